"""The tools that look without touching: `inspect_variable` and `post_mortem`."""

from __future__ import annotations

import difflib

from nbagent.errors import TransferError
from nbagent.protocols import ToolContext, ToolResult
from nbagent.tools.definition import tool

MOST_NAMES = 12  #: that are told where there is none of the name asked for


@tool(risk="read", timeout=None, parallel_safe=False)
async def inspect_variable(name: str, context: ToolContext) -> ToolResult:
    """Tell a variable's type, shape, dtypes, ranges, missing values, first rows: yours or the user's, uncopied."""
    name = name.strip()
    known = {variable.name for variable in context.kernel.known_variables()}
    if name in known or context.host is None or context.kernel.has_the_users:
        try:
            return ToolResult("ok", await context.kernel.inspect(name))
        except TransferError as error:
            if name in known:
                return ToolResult("error", str(error), str(error), notice=f"{name} could not be looked at:")
    host = context.host
    theirs = {variable.name for variable in await host.call(host.variables)} if host is not None else set()
    if host is not None and name in theirs:
        text = await host.call(lambda: host.inspect(name))
        return ToolResult("ok", text, notice=f"{name} is the user's; it is not in your kernel yet.")
    names = sorted(known | theirs)
    nearest = difflib.get_close_matches(name, names, n=3) or names[:MOST_NAMES]
    hint = f"Nearest: {', '.join(nearest)}." if nearest else "There are no variables yet."
    return ToolResult("invalid", "", f"no variable {name}", notice=f"There is no variable {name!r}. {hint}")


@tool(risk="read", timeout=None)
async def post_mortem(context: ToolContext) -> ToolResult:
    """Show frames, source and variables of the user's last exception: first when they ask about an error."""
    host = context.host
    values = context.kernel.has_the_users  # else they are copied first, and the copy is announced
    text = await host.call(lambda: host.post_mortem(values=values)) if host is not None else ""
    if not text:
        return ToolResult("invalid", "", "no exception", notice="The user's code has raised no exception.")
    return ToolResult("ok", text)
