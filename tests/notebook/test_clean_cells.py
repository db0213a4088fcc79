"""The cells of the last run, with what they build upon."""

from __future__ import annotations

import pytest

from nbagent.errors import UsageError
from nbagent.notebook.clean_cells import clean_cells
from tests.notebook.logs import Log


def test_cells_of_earlier_runs_come_along_where_the_last_run_needs_them() -> None:
    log = Log().task("first").thought("").ran("rows = [1, 2]").ran("unused = 3").ran("rows.append(4)").answer("ok")
    log.task("second").thought("").ran("total = sum(rows)").failed("total.nothing").ran("print(total)").answer("7")
    assert clean_cells(log.events) == ["rows = [1, 2]", "rows.append(4)", "total = sum(rows)", "print(total)"]


def test_what_was_lost_with_a_kernel_is_no_foundation() -> None:
    log = Log().task("first").thought("").ran("x = 1").died("crash()").answer("ok")
    log.task("second").thought("").ran("x = 2").ran("print(x)").answer("2")
    assert clean_cells(log.events) == ["x = 2", "print(x)"]


def test_a_session_without_code_says_so() -> None:
    with pytest.raises(UsageError, match="no code"):
        clean_cells(Log().task("talk").answer("hello").events)
