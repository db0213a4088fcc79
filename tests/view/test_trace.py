"""The run so far, as a fold of its events."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given

from nbagent.events import (
    ActionDelta,
    ActionEdited,
    ActionProposed,
    ApprovalAsked,
    ApprovalGiven,
    Event,
    Nudged,
    Reason,
    Retrying,
    RunFinished,
    Shared,
    StepStarted,
    Thought,
    ThoughtDelta,
    UnknownEvent,
)
from nbagent.view.trace import ADVICE, ENDINGS, Trace, code_of
from tests.view.runs import RUNS, acted, answered, said, started, stepped, stream


def test_a_run_is_its_steps_their_actions_and_its_ending() -> None:
    events = [started(label="check it"), *said("I look."), *acted("print(1)", stream("1\n")), stepped()]
    trace = Trace([*events, *said("The mean is 2.", step=2), answered()])
    first, second = trace.steps
    assert (first.thought, second.thought) == ("I look.", "The mean is 2.")
    (action,) = first.actions
    assert (action.code, action.status, action.seconds) == ("print(1)", "ok", 0.25)
    assert (first.finished, first.usage.total_tokens) == (True, 120)
    assert (trace.answer, trace.ending, trace.advice, trace.label) == ("The mean is 2.", "Done", "", "check it")


def test_what_a_broken_attempt_showed_is_void() -> None:
    trace = Trace([started(), StepStarted(step=1), ThoughtDelta(text="The answ", step=1)])
    trace.add(ActionDelta(tool="run_code", text="import o", step=1))
    trace.add(Retrying(attempt=2, wait=1.0, why="The connection broke.", step=1))
    step = trace.steps[0]
    assert (step.thought, step.draft) == ("", "")
    assert step.notes == ["The connection broke. Trying again in 1 s (attempt 2)."]
    for event in said("Whole."):
        trace.add(event)
    assert [step.thought for step in trace.steps] == ["Whole."]


def test_one_call_id_in_two_steps_is_two_actions() -> None:
    events = [*acted("x = 1", stream("one\n")), *acted("x = 2", stream("two\n", step=2), step=2)]
    trace = Trace([started(), *events])
    texts = [action.outputs[0]["text"] for step in trace.steps for action in step.actions]
    codes = [action.code for step in trace.steps for action in step.actions]
    assert (codes, texts) == (["x = 1", "x = 2"], ["one\n", "two\n"])


def test_stream_outputs_of_one_name_are_one_and_others_keep_their_order() -> None:
    outputs = [stream("a"), stream("b\n"), stream("oh\n", name="stderr"), stream("c\n")]
    trace = Trace([started(), *acted("pass", *outputs)])
    (action,) = trace.steps[0].actions
    assert [output["text"] for output in action.outputs] == ["ab\n", "oh\n", "c\n"]


def test_unknown_events_are_skipped() -> None:
    events: list[Event] = [started(), *said("I look."), answered()]
    assert Trace([*events[:2], UnknownEvent(type="Invented", step=9), *events[2:]]).steps == Trace(events).steps


def test_a_question_waits_until_it_is_answered() -> None:
    asked = ApprovalAsked(
        request="r", call_id="a", step=1, tool="run_code", code="rm()", risk="destructive", why="deletes"
    )
    trace = Trace([started(), asked])
    (action,) = trace.steps[0].actions
    assert (action.status, action.why, action.code) == ("waiting", "deletes", "rm()")
    trace.add(ApprovalGiven(request="r", approved=False, by="user", call_id="a", step=1))
    assert action.status == "denied"


def test_an_edit_replaces_the_code_and_says_so() -> None:
    trace = Trace([started(), ActionProposed(tool="run_code", arguments='{"code": "a"}', call_id="a", step=1)])
    trace.add(ActionEdited(arguments='{"code": "b"}', call_id="a", step=1))
    (action,) = trace.steps[0].actions
    assert (action.code, action.edited) == ("b", True)


def test_an_interrupted_run_keeps_what_was_done_and_says_how_it_ended() -> None:
    end = RunFinished(reason="interrupted", message="Stopped by the user. What was done so far is kept.")
    trace = Trace([started(), *said("I look."), *acted("x = 1", status="interrupted"), end])
    assert (trace.ending, trace.answer) == ("Stopped", "")
    assert "kept" in trace.advice
    assert trace.steps[0].actions[0].status == "interrupted"


def test_a_run_whose_process_was_killed_is_unfinished() -> None:
    trace = Trace([started(), *said("I look.")])
    assert (trace.ending, trace.reason) == ("Unfinished", None)
    assert "killed" in trace.advice


@pytest.mark.parametrize("reason", get_args(Reason))
def test_every_ending_has_words_and_advice(reason: Reason) -> None:
    trace = Trace([started(), RunFinished(reason=reason)])
    assert trace.ending == ENDINGS[reason]
    assert trace.advice == ADVICE[reason]
    assert bool(trace.advice) is (reason != "answered")


def test_a_later_run_starts_anew() -> None:
    trace = Trace([started("one"), *said("I look."), answered(), started("two")])
    assert (trace.task, trace.steps, trace.answer, trace.reason) == ("two", [], "", None)


def test_news_is_noted_where_it_happened() -> None:
    before = Shared(name="df", summary="DataFrame (3, 2)", file="df.pkl")
    nudge = Nudged(guard="empty_replies", text="Say something.", step=1)
    trace = Trace([started(), before, *said("x"), nudge])
    assert trace.notes == ["Copied into the agent's kernel: df DataFrame (3, 2)"]
    assert trace.steps[0].notes == ["Nudge to the model (empty_replies): Say something."]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ('{"code": "x = 1"}', "x = 1"),
        ('{"path": "a.csv", "rows": 3}', "tool(path='a.csv', rows=3)"),
        ('{"code": "x = ', '{"code": "x = '),
        ("[1]", "[1]"),
        ("{}", "tool()"),
    ],
)
def test_a_calls_code_is_readable(arguments: str, code: str) -> None:
    assert code_of("tool", arguments) == code


@given(RUNS)
def test_any_events_are_folded(events: list[Event]) -> None:
    trace = Trace(events)
    assert [step.number for step in trace.steps] == list(dict.fromkeys(step.number for step in trace.steps))
    thoughts = [event for event in events if isinstance(event, Thought)]
    assert thoughts == [] or trace.steps or any(event.type == "RunStarted" for event in events)
