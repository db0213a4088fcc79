"""What the page is told: a log of operations from which it can be brought up to date at any time."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.events import ActionDelta, ActionStatus, Event, Retrying, RunFinished, StepStarted, ThoughtDelta
from nbagent.view.ops import KEPT_STEPS, Op, OpLog
from tests.view.runs import RUNS, acted, answered, said, started, stepped, stream


class Page:
    """A page that joins what streams and keeps the rest as it came; what it has already it drops."""

    def __init__(self) -> None:
        self.last = 0
        self.state: list[Op] = []

    def take(self, first: int, ops: Sequence[Op | None]) -> None:
        assert first <= self.last + 1, "nothing is left out"
        for number, op in enumerate(ops, first):
            if number == self.last + 1:
                self.last = number
                if op is not None:
                    self._apply(copy.deepcopy(op))

    def _apply(self, op: Op) -> None:
        if op["t"] == "fold":
            places = [place for place, one in enumerate(self.state) if one.get("n") == op["n"]]
            self.state = [one for one in self.state if one.get("n") != op["n"]]
            self.state.insert(places[0] if places else len(self.state), op)
            return
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


def taken(log: OpLog) -> tuple[int, list[Op]]:
    """Take of a run that is short: nothing of it is folded."""
    first, ops = log.take()
    return first, [op for op in ops if op is not None]


def test_a_run_in_operations() -> None:
    log = log_of([started(), *said("I look."), *acted("print(1)", stream("1\n")), stepped(), answered()])
    first, ops = taken(log)
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
    first, ops = taken(log)
    assert (first, [op["x"] for op in ops]) == (4, ["b"])
    assert log.after(2)[1][0] == {"t": "say", "n": 1, "x": "a" * 1000}


def test_a_retry_voids_what_was_shown() -> None:
    log = log_of([StepStarted(step=1), ActionDelta(tool="run_code", text="x", step=1)])
    log.add(Retrying(attempt=2, wait=1, why="It broke.", step=1))
    assert [op["t"] for op in taken(log)[1]][-2:] == ["void", "note"]


def test_an_ending_without_answer_says_what_to_do() -> None:
    (end,) = taken(log_of([RunFinished(reason="max_steps")]))[1]
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


@settings(deadline=None, max_examples=10)
@given(st.lists(st.integers(0, 400), max_size=4), st.integers(0, 400))
def test_of_steps_far_back_a_line_stays_for_every_page(sends: list[int], have: int) -> None:
    log, watching, back = OpLog(), Page(), Page()
    events: list[Event] = [started()]
    for step in range(1, KEPT_STEPS + 21):
        status: ActionStatus = "error" if step == 3 else "ok"
        events += [*said(f"# Step **{step}**", step=step), *acted(f"print({step})", step=step, status=status)]
    for count, event in enumerate([*events, answered()]):
        log.add(event)
        if count in sends:
            watching.take(*log.take())
            if log.last <= have:
                back.take(*log.after(back.last))
    watching.take(*log.take())
    late = Page()
    late.take(*log.after(0))
    back.take(*log.after(back.last))
    assert watching.state == late.state == back.state
    folded = [op for op in late.state if op["t"] == "fold"]
    assert [op["n"] for op in folded] == list(range(1, 21))
    assert [op["status"] for op in folded[:4]] == ["ok", "ok", "error", "ok"]
    assert folded[0]["title"] == "Step **1**"
    assert "print(1)" not in json.dumps(log.ops)


@given(RUNS)
def test_operations_are_json(events: list[Event]) -> None:
    ops = log_of(events).take()[1]
    assert json.loads(json.dumps(ops)) == ops
