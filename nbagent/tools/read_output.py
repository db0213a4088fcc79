"""The `read_output` tool: pages and searches an output that was too long to be shown whole."""

from __future__ import annotations

from nbagent.protocols import ToolContext, ToolResult
from nbagent.tools.definition import tool
from nbagent.tools.find_lines import PatternRefused, SearchFailed, check_pattern, find_lines, ripgrep
from nbagent.tools.long_outputs import file_of, handles
from nbagent.tools.read_file import whole_lines


@tool(risk="read", timeout=20, parallel_safe=True, tags=("outputs",))
async def read_output(
    handle: str, context: ToolContext, start: int = 1, lines: int = 100, pattern: str = ""
) -> ToolResult:
    """Read more of an output that was cut, by the handle that stands at the cut. Example: {"handle": "o3",
    "pattern": "error"}.

    Args:
        start: First line; -20 is the 20th from the end.
    """
    file = file_of(handle, context.session_folder)
    if file is None:
        known = ", ".join(handles(context.session_folder)[-8:])
        hint = f"The last ones are: {known}." if known else "No output was cut so far."
        return _invalid(f"There is no output {handle!r:.60}. {hint}")
    name = file.stem
    if not pattern:
        every = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        first = max(1, len(every) + start + 1) if start < 0 else max(1, start)
        if first > len(every):
            return _invalid(f"Output {name} has {len(every)} lines: there is no line {first}.")
        shown = whole_lines(every[first - 1 : first - 1 + max(1, lines)], context.observation_characters)
        last = first + len(shown) - 1
        more = f" Go on with start={last + 1}." if last < len(every) else ""
        notice = f"Output {name}, lines {first}-{last} of {len(every):,}.{more}"
        return ToolResult("ok", "\n".join(shown), f"lines {first}-{last}", notice=notice)
    try:
        check_pattern(pattern)
        found = await find_lines(pattern, file.parent, [file.name], program=ripgrep())
    except PatternRefused as refused:
        return _invalid(str(refused))
    except SearchFailed as failed:
        return ToolResult("error", "", str(failed), notice=f"The search failed: {failed}.")
    matching = [f"{one.line}: {one.text}" for one in found]
    from_here = matching[max(0, len(matching) + start if start < 0 else start - 1) :][: max(1, lines)]
    shown = whole_lines(from_here, context.observation_characters)
    count = f"{len(found):,} line{'s' if len(found) != 1 else ''}" if found else "no line"
    cut = f", {len(shown)} of them here" if len(shown) < len(found) else ""
    return ToolResult("ok", "\n".join(shown), f"{count} match", notice=f"Output {name}: {count} match{cut}.")


def _invalid(notice: str) -> ToolResult:
    return ToolResult("invalid", "", notice, notice=notice)
