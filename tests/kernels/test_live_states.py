"""Undo in the user's own kernel: what the agent's code touched goes back, and nothing that the user did since."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.errors import CheckpointDeclined
from nbagent.kernels.live_states import KEPT, LiveStates, users
from nbagent.kernels.probe import token_of
from nbagent.protocols import WentBack

START = """
import numpy as np, pandas as pd
rows, table, by_name, names = [1, 2], pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), {"k": 1}, {"n"}
array, column, raw, number = np.arange(4), pd.Series([1.5, 2.5]), bytearray(b"ab"), 7
alias = table
"""
SHOWN = ("rows", "by_name", "names", "raw", "number")


class Shell:
    """A namespace in which the user and the agent run code."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.user(START)
        self.states = LiveStates(self.names)

    def user(self, code: str) -> None:
        exec(code, self.names)

    def step(self, code: str) -> str:
        """Run code as a step of the agent's; give the mark of the state before it."""
        mark = self.states.keep()
        before = {name: token_of(value) for name, value in users(self.names).items()}
        self.states.begin(before, code)
        exec(code, self.names)
        self.states.ended({name: token_of(value) for name, value in users(self.names).items()}, before)
        return mark

    def seen(self) -> str:
        """Show every value whole."""
        names = self.names
        tables = [names[name].to_dict("list") for name in ("table", "alias")]
        return repr([*map(names.get, SHOWN), *tables, names["array"].tolist(), names["column"].tolist()])


@pytest.fixture
def shell() -> Shell:
    return Shell()


@pytest.mark.parametrize(
    ("code", "back"),
    [
        ("table.drop(columns='a', inplace=True)", "alias table"),
        ("table.loc[0, 'a'] = 99", "alias table"),
        ("table['b'] = 'z'", "alias table"),
        ("table['c'] = 1", "alias table"),
        ("table.index = [5, 6]", "alias table"),
        ("rows[0] = 5", "rows"),
        ("rows.clear()", "rows"),
        ("by_name['k'] = 2", "by_name"),
        ("names.add('m')", "names"),
        ("raw[0] = 0", "raw"),
        ("array[1:] = 0", "array"),
        ("column.iloc[0] = -1", "column"),
        ("number = rows = None", "number rows"),
        ("del table, number", "number table"),
        ("rows.append(3); rows = rows + [4]", "rows"),
    ],
)
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_what_code_changed_in_place_or_bound_anew_is_as_before(shell: Shell, code: str, back: str) -> None:
    before = shell.seen()
    mark = shell.step(code)
    went = shell.states.go_back(mark)
    assert shell.seen() == before
    assert went == WentBack(tuple(back.split()), (), inside=(), yours=())
    assert shell.names["table"] is shell.names["alias"]


def test_what_code_only_looks_at_stays_the_same_object(shell: Shell) -> None:
    there = dict(shell.names)
    mark = shell.step("seen = (table.sum(), rows[0], array.mean(), column.max(), by_name, names, raw)")
    assert shell.states.go_back(mark) == WentBack((), ("seen",), inside=(), yours=())
    assert all(shell.names[name] is value for name, value in there.items())


def test_what_the_user_did_since_stays_and_is_named(shell: Shell) -> None:
    mark = shell.step(
        "new = 1; rows.append(3); table['c'] = 1; number = 8; del raw; array[0] = 9; by_name['x'] = 1"
    )
    shell.user("mine = 1; new = 2; rows.append(4); table.loc[0, 'a'] = 50; raw = 1; by_name = 5")
    went = shell.states.go_back(mark)
    assert went.yours == ("alias", "by_name", "new", "raw", "rows", "table")
    assert went.back == ("array", "number")
    assert shell.names["mine"] == 1
    assert shell.names["new"] == 2
    assert shell.names["rows"] == [1, 2, 3, 4]
    assert shell.names["table"].loc[0, "a"] == 50
    assert shell.names["number"] == 7


def test_several_steps_go_back_to_the_first_of_them(shell: Shell) -> None:
    before = shell.seen()
    mark = shell.step("rows.append(3); number = 8")
    shell.step("rows.append(4); array[0] = 5")
    shell.step("rows = None; table.loc[0, 'a'] = 0; number = 9")
    assert shell.states.go_back(mark).back == ("alias", "array", "number", "rows", "table")
    assert shell.seen() == before
    again = shell.step("rows.append(5)")
    assert shell.states.go_back(again).back == ("rows",)
    assert shell.seen() == before


def test_what_was_too_dear_to_copy_is_named_where_it_is_seen_to_have_changed(shell: Shell) -> None:
    shell.user(
        "large = list(range(20_000)); own = type('Own', (), {'n': 1, '__repr__': lambda s: f'Own {s.n}'})()"
    )
    mark = shell.step("large.append(1); own.n = 2")
    went = shell.states.go_back(mark)
    assert went.inside is not None
    assert "large" in went.inside
    assert len(shell.names["large"]) == 20_001


def test_the_oldest_states_are_let_go_of(shell: Shell) -> None:
    marks = [shell.step(f"number = {n}") for n in range(KEPT + 1)]
    assert [shell.states.has(mark) for mark in marks] == [False] + [True] * KEPT
    with pytest.raises(CheckpointDeclined):
        shell.states.go_back(marks[0])


@pytest.mark.parametrize("made", ["pd.Series(['a', None])", "pd.DataFrame({'t': pd.to_datetime([0])})"])
def test_a_table_of_any_type_that_code_only_looks_at_stays_the_same_object(shell: Shell, made: str) -> None:
    shell.user(f"given = {made}")
    value = shell.names["given"]
    mark = shell.step("len(given)")
    assert shell.states.go_back(mark).back == ()
    assert shell.names["given"] is value
