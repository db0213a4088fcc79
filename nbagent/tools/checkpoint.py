"""Keeps the kernel's state before an action's code runs, where the kernel can, and records what came of it."""

from __future__ import annotations

from nbagent.errors import CheckpointDeclined
from nbagent.protocols import ToolContext
from nbagent.states import CheckpointDeclined as Declined
from nbagent.states import CheckpointMade


async def keep_state(context: ToolContext) -> str:
    """Keep it; give its mark, or "" where it cannot be kept."""
    checkpoints = context.kernel.checkpoints
    if checkpoints is None:
        return ""
    try:
        mark = await checkpoints.checkpoint()
    except CheckpointDeclined as error:
        context.emit(Declined(why=str(error)))
        return ""
    context.emit(CheckpointMade(mark=mark))
    return mark


def keep_state_soon(context: ToolContext) -> None:
    """Begin to keep the state that code has left, while the model thinks about what it gave."""
    if context.kernel.checkpoints is not None:
        context.kernel.checkpoints.checkpoint_soon()
