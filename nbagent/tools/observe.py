"""From a tool's result to the exact text that the model is told: masked, cut to size and fenced."""

from __future__ import annotations

from nbagent.protocols import NO_OUTPUT, ToolContext, ToolResult
from nbagent.tools.long_outputs import keep
from nbagent.tools.shape import cut, fence, unmarked


def observation(result: ToolResult, context: ToolContext, *, pages: bool) -> str:
    """Write the observation. Masking comes first, so that no secret is half visible at the cut.

    `pages`: the model has `read_output`, so what is cut is kept under a handle that it can ask for.
    """
    notice = context.redactor.text(result.notice)
    text, changes = (
        unmarked(context.redactor.text(part.strip("\n")), context.nonce) for part in (result.text, result.changes)
    )
    limit = max(context.observation_characters - len(changes), context.observation_characters // 2)
    handle = keep(text, context.session_folder) if pages and len(text) > limit else ""
    told = "\n".join(part for part in (cut(text, limit, handle), changes) if part.strip())
    if not told.strip():
        return notice or NO_OUTPUT
    fenced = fence(told, context.nonce, context.observation_characters)
    return f"{notice}\n{fenced}" if notice else fenced
