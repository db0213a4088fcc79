"""The code of a run as cells for the user's own notebook, where the variables that it was lent exist already."""

from __future__ import annotations

from collections.abc import Sequence

from nbagent.errors import UsageError
from nbagent.events import Event
from nbagent.steps import Lost, Step, read_items
from nbagent.tools.cell_names import names_of


def clean_cells(events: Sequence[Event]) -> list[str]:
    """Give the code of the last run that has any: what ran to its end, and what later cells need of what failed.

    Cells of earlier runs that it builds upon come first.

    Raises:
        UsageError: no run of the session left code that can be run again.
    """
    items = [
        item for item in read_items(events) if isinstance(item, Lost) or (isinstance(item, Step) and item.runs)
    ]
    steps = [item for item in items if isinstance(item, Step)]
    if not steps:
        raise UsageError("this session has no code that could be inserted")
    last = steps[-1].run
    kept: list[str] = []
    needed: set[str] = set()
    for item in reversed(items):
        if isinstance(item, Lost):
            needed = set()  # what a cell needs was made after this
        if not isinstance(item, Step) or not item.runs:
            continue
        names = names_of(item.code)
        if item.run == last or names.touches & needed:
            kept.insert(0, item.code)
            needed = (needed - names.binds) | names.needs
    return kept
