"""The `bring_variable` tool: copies one of the user's variables into the agent's kernel."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nbagent.errors import TransferError
from nbagent.events import Risk
from nbagent.protocols import ToolContext, ToolResult, ToolSpec
from nbagent.tool_traits import ToolTraits
from nbagent.tools.definition import terse_schema
from nbagent.tools.sharing import Sharing, made_by


class BringVariableArguments(BaseModel):
    """What `bring_variable` takes."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="Name of one of the user's variables.")


class BringVariable:
    """Copies a variable by value: the user's own stays as it is. Offer it only where there is a host."""

    name = "bring_variable"
    traits = ToolTraits(risk="read", small=True)
    arguments: type[BaseModel] = BringVariableArguments
    spec = ToolSpec(
        name=name,
        description=(
            "Copy a variable of the user's into your kernel under the same name, for data they loaded."
            ' Example: {"name": "df"}. Changing the copy does not change theirs.'
            " Mistakes: df.head(), which is no name."
        ),
        schema=terse_schema(BringVariableArguments),
    )

    def __init__(self, sharing: Sharing | None = None):
        self._sharing = sharing or Sharing()

    def grade(self, arguments: dict[str, Any], context: ToolContext) -> tuple[Risk, str]:
        """A copy changes nothing of the user's."""
        return "read", "copies a variable"

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Pickle it in the user's process, load it in the agent's."""
        name, host = str(arguments["name"]).strip(), context.host
        if host is None:
            return ToolResult("invalid", "", notice="There is no user's kernel here to bring a variable from.")
        known = [variable.name for variable in await host.call(host.variables)]
        if name not in known:
            return _unknown(name, known)
        try:
            summary = await self._sharing.bring(name, context)
        except TransferError as error:
            text = f"{error}{await made_by(name, host)}"
            return ToolResult("error", text, str(error), notice=f"{name} could not be brought:")
        return ToolResult(
            "ok", f"{name} {summary}".strip(), f"brought {name}", notice=f"{name} is in your kernel now:"
        )


def _unknown(name: str, known: list[str]) -> ToolResult:
    nearest = difflib.get_close_matches(name, known, n=3) or known[:12]
    hint = f" Nearest: {', '.join(nearest)}." if nearest else " The user has no variables."
    return ToolResult("invalid", "", f"no variable {name}", notice=f"The user has no variable {name!r}.{hint}")
