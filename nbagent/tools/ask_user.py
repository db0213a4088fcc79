"""The `ask_user` tool: a question that the user answers in their own words, where there is one to answer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from nbagent.events import Risk
from nbagent.protocols import ToolContext, ToolResult, ToolSpec
from nbagent.tool_traits import ASK_USER, ToolTraits
from nbagent.tools.approval import put_question
from nbagent.tools.call import Call, Rest
from nbagent.tools.definition import terse_schema

LONGEST_QUESTION = 4000  #: characters
LONGEST_ANSWER = 20_000
GO_ON = "Go on with what is most likely meant, and say in your answer what you assumed."


class AskUserArguments(BaseModel):
    """What `ask_user` takes."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(description="One question, with the choices that there are.")

    @field_validator("question")
    @classmethod
    def _is_one(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("there is no question in it")
        return question.strip()[:LONGEST_QUESTION]


class AskUser:
    """Asks the user. The gateway puts the question, as it does with those for approval: see `ask_the_user`."""

    name = ASK_USER
    arguments: type[BaseModel] = AskUserArguments
    traits = ToolTraits(risk="read", tags=("user",))
    spec = ToolSpec(
        name=name,
        description=(
            "Ask the user, only when the task can be meant in different ways and the data does not decide it."
            ' Example: {"question": "Net or gross prices?"}.'
        ),
        schema=terse_schema(AskUserArguments),
    )

    def grade(self, arguments: dict[str, Any], context: ToolContext) -> tuple[Risk, str]:
        """A question changes nothing."""
        return "read", "a question to you"

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Answer where no gateway put the question: nobody was asked."""
        return _nobody()


async def ask_the_user(call: Call, rest: Rest) -> ToolResult:
    """Put the question of `ask_user` and give the answer; every other call passes."""
    if not isinstance(call.tool, AskUser):
        return await rest()
    answer = await put_question(call, str(call.values["question"]))
    if answer.by == "nobody":
        return _nobody()
    words = answer.note.strip()[:LONGEST_ANSWER]
    if not words:
        return ToolResult("ok", "", "left to the agent", notice=f"The user leaves it to you. {GO_ON}")
    return ToolResult("ok", "", f"answered: {words}".partition("\n")[0][:200], notice=f"The user answers: {words}")


def _nobody() -> ToolResult:
    return ToolResult("unavailable", "", "nobody to ask", notice=f"Nobody is there to answer. {GO_ON}")
