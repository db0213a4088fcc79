"""What the page is told: a log of operations from which it can be brought up to date at any time."""

from __future__ import annotations

import copy
import json

from hypothesis import given
from hypothesis import strategies as st

from nbagent.events import ActionDelta, Event, Retrying, RunFinished, StepStarted, ThoughtDelta
from nbagent.view.ops import Op, OpLog
from tests.view.runs import RUNS, acted, answered, said, started, stepped, stream


class Page:
    """A page that joins what streams and keeps the rest as it came; what it has already it drops."""

    def __init__(self) -> None:
        self.last = 0
        self.state: list[Op] = []

    def take(self, first: int, ops: list[Op]) -> None:
        assert first <= self.last + 1, "nothing is left out"
        for number, op in enumerate(ops, first):
            if number == self.last + 1:
                self.last = number
                self._apply(copy.deepcopy(op))

    def _apply(self, op: Op) -> None:
        last = self.state[-1] if self.state else {}
        same = {key: value for key, value in op.items() if key != "x"}
        if op["t"] in ("say", "reason", "draft") and same == {key: last[key] for key in last if key != "x"}:
            last["x"] += op["x"]
        else:
            self.state.append(op)


def log_of(events: list[Event]) -> OpLog:
    log = OpLog()
    for event in events:
        log.add(event)
    return log


def test_a_run_in_operations() -> None:
    log = log_of([started(), *said("I look."), *acted("print(1)", stream("1\n")), stepped(), answered()])
    first, ops = log.take()
    assert first == 1
    assert [op["t"] for op in ops] == [
        "run",
        "step",
        "say",
        "said",
        "action",
        "start",
        "out",
        "done",
        "stepped",
        "end",
    ]
    assert ops[2]["x"] == "I look."
    assert "x" not in ops[3], "what streamed is not sent twice"
    assert ops[-1]["answer"] == "The mean is 2."


def test_what_streams_is_joined_until_it_is_sent_and_never_after() -> None:
    log = log_of([started(), StepStarted(step=1), *(ThoughtDelta(text="a", step=1) for _ in range(1000))])
    assert log.last == 3
    log.take()
    log.add(ThoughtDelta(text="b", step=1))
    first, ops = log.take()
    assert (first, [op["x"] for op in ops]) == (4, ["b"])
    assert log.after(2)[1][0]["x"] == "a" * 1000


def test_a_retry_voids_what_was_shown() -> None:
    log = log_of([StepStarted(step=1), ActionDelta(tool="run_code", text="x", step=1)])
    log.add(Retrying(attempt=2, wait=1, why="It broke.", step=1))
    assert [op["t"] for op in log.take()[1]][-2:] == ["void", "note"]


def test_an_ending_without_answer_says_what_to_do() -> None:
    (end,) = log_of([RunFinished(reason="max_steps")]).take()[1]
    assert not end["answered"]
    assert "--max-steps" in end["advice"]


@given(RUNS, st.lists(st.integers(0, 25), max_size=5), st.integers(-5, 60))
def test_a_page_that_comes_late_or_again_shows_the_same(events: list[Event], sends: list[int], have: int) -> None:
    log, watching = OpLog(), Page()
    for count, event in enumerate(events):
        log.add(event)
        if count in sends:
            watching.take(*log.take())
    watching.take(*log.take())
    late, back = Page(), Page()
    late.take(*log.after(0))
    back.take(1, log.ops[: max(0, min(have, log.last))])
    back.take(*log.after(have))
    assert watching.state == late.state == back.state
    assert watching.last == log.last


@given(RUNS)
def test_operations_are_json(events: list[Event]) -> None:
    taken = log_of(events).take()[1]
    assert json.loads(json.dumps(taken)) == taken
