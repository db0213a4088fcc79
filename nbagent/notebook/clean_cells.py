"""The code of a run as cells for the user's own notebook, where the variables that it was lent exist already."""

from __future__ import annotations

from collections.abc import Sequence

from nbagent.errors import UsageError
from nbagent.events import Event
from nbagent.steps import Step, read_items


def clean_cells(events: Sequence[Event]) -> list[str]:
    """Give the code of the last run that has any: what ran to its end, and what later cells need of what failed.

    Raises:
        UsageError: no run of the session left code that can be run again.
    """
    steps = [item for item in read_items(events) if isinstance(item, Step) and item.runs]
    if not steps:
        raise UsageError("this session has no code that could be inserted")
    return [step.code for step in steps if step.run == steps[-1].run]
