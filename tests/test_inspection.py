"""A look at a value tells what matters of it, calls no code that it does not know, and ends in time."""

from __future__ import annotations

import signal
import time
from collections import OrderedDict, deque
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbagent.glance import TooLong, describe, within
from nbagent.inspection import LONGEST_TEXT, look

CALLED: list[str] = []


class Trap:
    """Whoever calls its code is noted."""

    def __init__(self) -> None:
        self.__dict__["held"] = [1, 2]

    def _caught(self, *_: Any) -> Any:
        CALLED.append("called")
        raise RuntimeError

    __repr__ = __str__ = __len__ = __iter__ = __getattr__ = __hash__ = __eq__ = __bool__ = __sizeof__ = _caught

    @property
    def shape(self) -> Any:
        return self._caught()


class Broken:
    def __repr__(self) -> str:
        raise ValueError("r")


def test_a_table_is_told_with_its_columns_ranges_missing_values_and_first_rows() -> None:
    table = pd.DataFrame(
        {
            "id": range(1000),
            "price": np.linspace(0.5, 99.5, 1000),
            "name": ["ann", "bob", None, "cid"] * 250,
            "day": pd.date_range("2024-01-01", periods=1000),
            "list": [[1, 2]] * 1000,
        }
    )
    table.loc[3, "price"] = np.nan
    text = look("df", table)
    assert text.startswith("df: DataFrame (1000, 5)\n1000 rows x 5 columns, ")
    assert "- id: int64 0 to 999, mean 499.5\n" in text
    assert "- price: float64 0.5 to 99.5, mean 50.0" in text
    assert " 3 different: 'ann', 'bob', 'cid', 250 missing\n" in text
    assert " 2024-01-01 00:00:00 to 2026-09-26 00:00:00\n" in text
    assert "first rows:\n  0 | 0.5 | 'ann' | 2024-01-01 00:00:00 | list 2 items\n" in text


def test_a_column_whose_name_poses_as_more_is_quoted() -> None:
    text = look("df", pd.DataFrame({"a\n- b: int64": [1], " x": [2], "": [3], "plain name": [4]}))
    assert "- 'a\\n- b: int64': int64" in text
    assert "- ' x': int64" in text
    assert "- '': int64" in text
    assert "- plain name: int64" in text


def test_a_wide_table_and_a_long_text_are_bounded() -> None:
    wide = pd.DataFrame(np.zeros((3, 2000)), columns=[f"column_{number}" for number in range(2000)])
    assert len(look("wide", wide)) < LONGEST_TEXT + 200
    assert "and 1970 more" in look("wide", wide)
    text = look("text", "a" * 50_000_000)
    assert len(text) < 1500
    assert "50000000 characters" in text


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.array([[1.5, np.nan], [2, 3]]), ["shape (2, 2), float64, 32 bytes", "1.5 to 3, mean 2.16667, 1 NaN"]),
        (np.array(["a", "b"]), ["shape (2,), <U1", "first values: 'a', 'b'"]),
        (np.array([Broken(), 1], dtype=object), ["first values: Broken, 1"]),
        (pd.Series([1, 2, None], name="s"), ["float64, 3 values", "1 to 2, mean 1.5, 1 missing"]),
        (pd.Index(["a", "b"]), ["2 values", "first values: 'a', 'b'"]),
        ([1, "a", Broken()], ["3 items: 1 int, 1 str, 1 Broken", "first: 1, 'a', Broken"]),
        ({"k": [1], Broken: 2}, ["2 items", "- 'k': list 1 item", "- class: 2"]),
        (OrderedDict(a=1), ["1 items", "- 'a': 1"]),
        (deque([1, "a"]), ["2 items: 1 int, 1 str", "first: 1, 'a'"]),
        (
            [date(2024, 1, 2), timedelta(1), (1, "a"), (1, [])],
            ["2024-01-02, 1 day, 0:00:00, (1, 'a'), tuple 2 items"],
        ),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", 1)])), ["- ('a', 1): int64 1 to 1"]),
        (pd.DataFrame({"x": [np.inf, -np.inf]}), ["- x: float64 -inf to inf"]),
        (np.ma.array([1, 2, 99], mask=[False, False, True]), ["1 masked; of the others:", "1 to 2, mean 1.5"]),
        (Broken(), ["of class tests.test_inspection.Broken"]),
        ((i for i in range(3)), ["nothing of it is computed"]),
        (test_a_wide_table_and_a_long_text_are_bounded, ["test_inspection.py, line"]),
        (Path, ["names: "]),
    ],
)
def test_a_value_is_told_by_what_it_is(value: Any, told: list[str]) -> None:
    text = look("x", value)
    for words in told:
        assert words in text


def test_no_code_of_an_unknown_class_is_called_in_whatever_it_hides() -> None:
    CALLED.clear()
    trap = Trap()
    cells = np.empty(2, dtype=object)
    cells[0] = trap
    table = pd.DataFrame({"c": cells})
    CALLED.clear()  # what pandas did to take it in is not ours
    for value in (trap, [trap], {"k": trap}, {1: [trap]}, table, (trap,)):
        look("x", value)
        describe(value)
    assert look("trap", trap) == "trap: Trap\nof class tests.test_inspection.Trap\n- held: list 2 items"
    assert CALLED == []


def test_a_table_that_hangs_is_told_as_far_as_it_goes_and_in_time() -> None:
    class Hanging(pd.DataFrame):
        @property
        def shape(self) -> Any:
            while True:
                try:
                    time.sleep(0.01)
                except Exception:  # noqa: BLE001
                    continue

    began = time.monotonic()
    text = look("x", Hanging({"a": [1]}), seconds=0.2)
    assert "looking took longer than 0.2 s" in text
    assert time.monotonic() - began < 3


def test_a_look_changes_nothing() -> None:
    table = pd.DataFrame({"a": [1, 2]})
    generator = (i for i in range(3))
    rows = iter([1, 2])
    held = vars(Broken).keys()
    before = table.copy()
    for value in (table, generator, rows, Broken):
        look("x", value)
    pd.testing.assert_frame_equal(table, before)
    assert list(generator) == [0, 1, 2]
    assert list(rows) == [1, 2]
    assert vars(Broken).keys() == held


def test_an_absurd_number_is_told_by_its_type() -> None:
    assert look("n", 10**5000).startswith("n: int\n")


def forever() -> None:
    while True:
        pass


def test_what_a_busy_machine_takes_away_counts_as_nobodys_time_and_still_all_ends() -> None:
    def held_up(seconds: float) -> str:
        time.sleep(seconds)
        return "seen"

    assert within(0.01, lambda: held_up(0.1)) == "seen"
    with pytest.raises(TooLong):
        within(0.01, lambda: held_up(30))


def test_a_time_limit_leaves_the_users_own_alarm() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TooLong):
            within(0.05, forever)
        until = time.monotonic() + 5
        while not rung and time.monotonic() < until:
            time.sleep(0.01)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_a_limit_that_ends_just_then_breaks_into_nothing_that_follows() -> None:
    before = signal.getsignal(signal.SIGALRM)
    for _ in range(500):
        with suppress(TooLong):
            within(0.0002, lambda: busy(0.0002))
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 0  # ours is gone; the test's own runs on
        assert signal.getsignal(signal.SIGALRM) is before
