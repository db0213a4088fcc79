"""Which cells a result needs: nothing that mattered is lost, and most of what did not matter goes."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings

from nbagent.notebook.slicing.flow import Flow
from nbagent.notebook.slicing.state import Source
from nbagent.tools.risk import Grader
from tests.notebook.library_ways import LIBRARY_WAYS
from tests.notebook.programs import LIST_CHANGES, ROUNDABOUT, Program, programs


def executed(cells: Sequence[str]) -> str:
    """Execute cells one after the other in an empty folder; give what the last one printed."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        for cell in cells:
            printed.seek(0)
            printed.truncate()
            exec(compile(cell, "<cell>", "exec"), namespace)
    return printed.getvalue()


def sliced(cells: Sequence[str]) -> set[int]:
    """Slice from the last cell and from those that write files, as distilling does."""
    grader, roots = Grader(), {len(cells) - 1}
    for index, cell in enumerate(cells):
        if any(grader.touches(cell)):
            roots.add(index)
        grader.ran(cell, completed=True)
    return Flow([Source(cell) for cell in cells], hoist=False).needed_by(roots)


#: More in a long look: `SLICING_EXAMPLES=5000 pytest tests/notebook/test_slicing.py`.
EXAMPLES = int(os.environ.get("SLICING_EXAMPLES", "40"))


@pytest.mark.parametrize("template", [*LIST_CHANGES, *ROUNDABOUT])
def test_no_way_to_change_a_list_is_missed(template: str) -> None:
    for a, b in (("base", "other"), ("other", "base"), ("base", "base")):
        cells = template.format(a=a, b=b, k="way", n=2, m=3).split("|")
        for shown in ("base", "other", *(["way"] if template in ROUNDABOUT else [])):
            program = ["base = [1, 2]", "other = [5]", *cells, "unused = 1", f"print({shown})"]
            kept = sliced(program)
            assert executed([cell for index, cell in enumerate(program) if index in kept]) == executed(program)
            assert len(program) - 2 not in kept or "exec(" in template


@pytest.mark.parametrize("way", LIBRARY_WAYS, ids=lambda way: way.partition("|")[2])
def test_what_a_library_changes_is_not_missed(way: str) -> None:
    *cells, shown = way.split("|")
    program = [*cells, "unused = 1", shown]
    kept = sliced(program)
    assert executed([cell for index, cell in enumerate(program) if index in kept]) == executed(program)
    assert len(program) - 2 not in kept


def test_a_slice_gives_the_same_values_and_most_dead_cells_are_gone() -> None:
    planted = survived = 0

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def check(program: Program) -> None:
        nonlocal planted, survived
        kept = sliced(program.cells)
        left = [cell for index, cell in enumerate(program.cells) if index in kept]
        assert executed(left) == executed(program.cells)
        planted += len(program.dead)
        survived += len(program.dead & kept)

    check()
    assert planted > EXAMPLES
    assert survived <= planted / 2
    print(survived, planted)
