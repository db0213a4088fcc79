"""The `final_answer` tool: ends the run."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nbagent.events import Risk
from nbagent.protocols import ToolContext, ToolResult, ToolSpec
from nbagent.tool_traits import ToolTraits
from nbagent.tools.definition import terse_schema


class FinalAnswerArguments(BaseModel):
    """What `final_answer` takes."""

    model_config = ConfigDict(extra="forbid")

    answer: str = Field(description="The whole answer, in Markdown.")


class FinalAnswer:
    """Gives the answer to the user and ends the run."""

    name = "final_answer"
    traits = ToolTraits(risk="read", small=True)
    arguments: type[BaseModel] = FinalAnswerArguments
    spec = ToolSpec(
        name=name,
        description=(
            "Give the user the answer and end the task. Use it once, alone, when outputs support it."
            ' Example: {"answer": "There are 4 rows with no price."} Mistakes: answering before the code has'
            " run; numbers that no output showed; leaving out a part of the task."
        ),
        schema=terse_schema(FinalAnswerArguments),
    )

    def grade(self, arguments: dict[str, Any], context: ToolContext) -> tuple[Risk, str]:
        """It changes nothing."""
        return "read", "only answers"

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Hand the answer over."""
        answer = str(arguments["answer"]).strip()
        if not answer:
            return ToolResult("invalid", "", notice="The answer is empty. Give the whole answer in `answer`.")
        return ToolResult("ok", "", summary="answered", answer=answer, notice="The answer was given to the user.")
