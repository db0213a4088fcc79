"""Which failed cells an export must keep, because a later cell needs what they did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbagent.tools.cell_names import names_of


@dataclass(frozen=True)
class Candidate:
    """A cell that an export could hold, in the order of execution."""

    code: str
    ok: bool  #: it ran to its end; else it raised
    state_lost_before: bool = False  #: variables of earlier cells were gone when it ran


def needed_failures(cells: Sequence[Candidate]) -> set[int]:
    """Give the indexes of failed cells that bound, or changed, what a later kept cell needs."""
    kept: set[int] = set()
    needed: set[str] = set()
    for index in range(len(cells) - 1, -1, -1):
        cell = cells[index]
        names = names_of(cell.code, failed=not cell.ok)
        if cell.ok:
            needed = (needed - names.binds) | names.needs
        elif names.touches & needed:
            kept.add(index)
            needed |= names_of(cell.code).needs
        if cell.state_lost_before:
            needed = set()
    return kept
