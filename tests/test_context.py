"""The conversation is a function of the log: rebuilt byte for byte, append-only, always valid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.context import NOT_RUN, Conversation
from nbagent.events import (
    ActionEdited,
    ActionFinished,
    ActionProposed,
    AsideAsked,
    Compacted,
    DialectChosen,
    DialectName,
    Event,
    Nudged,
    Observed,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    Thought,
    Usage,
    from_json,
    to_json,
)
from nbagent.models.dialects import dialect_named

DIALECTS: tuple[DialectName, ...] = ("tools", "json", "fenced")


def opening(dialect: DialectName, task: str = "count") -> list[Event]:
    return [
        RunStarted(task=task, message=task, model="m"),
        DialectChosen(dialect=dialect, why="test", system="You are S.", parameters={"temperature": 0}),
    ]


def step(number: int, observed: str | None = "1", note: str = "") -> list[Event]:
    call = f"c{number}"
    code = json.dumps({"code": f"print({number})"})
    events: list[Event] = [
        StepStarted(),
        Thought(text=f"thought {number}", raw=f"thought {number}\n```python\nprint({number})\n```"),
        ActionProposed(call_id=call, tool="run_code", arguments=code),
    ]
    if observed is not None:
        events.append(Observed(call_id=call, text=observed))
    if note:
        events.append(Nudged(guard="g", text=note))
    events.append(StepFinished(usage=Usage(), seconds=0.1))
    return events


def conversation_of(events: list[Event]) -> Conversation:
    conversation = Conversation(dialect_named)
    for event in events:
        conversation.add(event)
    return conversation


def messages(conversation: Conversation) -> list[dict[str, Any]]:
    found = json.loads(conversation.request().body)["messages"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_request_begins_with_the_whole_of_the_one_before(dialect: DialectName) -> None:
    conversation = conversation_of(opening(dialect))
    before = conversation.request().body
    for number in range(20):
        for event in step(number, note="look again" if number % 5 == 0 else ""):
            conversation.add(event)
        body = conversation.request().body
        assert body.startswith(before.removesuffix(b"]}"))
        before = body


def test_a_reply_that_must_be_an_action_is_begun_for_the_model() -> None:
    chosen = DialectChosen(dialect="fenced", why="", system="S", parameters={}, opening="```python\n#")
    conversation = conversation_of([opening("fenced")[0], chosen])
    begun = {"role": "assistant", "content": chosen.opening}
    before = b""
    for number, status in enumerate(["error", "ok", "timeout", "ok"]):
        request = conversation.request()
        must_act = number == 0 or number == 1 or number == 3  # nothing was run yet, or what was run failed
        assert (messages(conversation)[-1] == begun) is must_act
        assert request.opening == (chosen.opening if must_act else "")
        # What the model went on with is sent back whole, so that the beginning stays what it was.
        assert request.body.startswith(before.removesuffix(b'"}]}').removesuffix(b"]}"))
        before = request.body
        raw = "```python\n# Look\nx\n```\n" if must_act else "I look.\n```python\nx\n```\n"
        finished = ActionFinished(call_id=f"c{number}", status=status, seconds=0.1)  # type: ignore[arg-type]
        _, _, proposed, observed, done = step(number)
        for event in (StepStarted(), Thought(text="", raw=raw), proposed, finished, observed, done):
            conversation.add(event)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_log_read_back_rebuilds_the_request_byte_for_byte(dialect: DialectName) -> None:
    events = opening(dialect) + [event for number in range(5) for event in step(number)]
    read_back = [from_json(to_json(event)) for event in events]
    assert conversation_of(read_back).request().body == conversation_of(events).request().body


def test_the_system_prompt_is_first_and_the_task_verbatim() -> None:
    first, second, *_ = messages(conversation_of(opening("tools", "Use only a.csv;\n  never touch raw/")))
    assert first == {"role": "system", "content": "You are S."}
    assert second == {"role": "user", "content": "Use only a.csv;\n  never touch raw/"}


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_a_log_that_has_lost_lines_still_makes_a_request(dialect: DialectName, data: st.DataObject) -> None:
    whole: list[Event] = [*opening(dialect), *step(1), *step(2), *opening(dialect, "go on"), *step(3)]
    whole.insert(6, ActionEdited(call_id="c1", arguments='{"code": "2"}'))
    whole.insert(9, AsideAsked(purpose="reflection", question="Enough?", parameters={}))
    whole.append(Compacted(kept_steps=1, note="n", by="mechanical", why="w", tokens_before=2, tokens_after=1))
    kept = data.draw(st.lists(st.sampled_from(range(len(whole))), unique=True).map(sorted))
    conversation = conversation_of([whole[at] for at in kept])
    again = [*opening(dialect, "continue"), *step(4)]
    for event in again:
        conversation.add(event)
    assert messages(conversation)[-1]["content"]


def test_a_call_that_was_never_answered_is_answered_before_the_next_run() -> None:
    killed = [*opening("tools"), *step(1, observed=None)[:-1]]
    resumed = conversation_of([*killed, *opening("tools", "go on")])
    assert [message["role"] for message in messages(resumed)] == ["system", "user", "assistant", "tool", "user"]
    assert messages(resumed)[3]["content"] == NOT_RUN


def test_a_nudge_is_told_in_the_tool_message() -> None:
    told = conversation_of(opening("tools") + step(1, "5", note="You did exactly this before."))
    assert messages(told)[-1]["role"] == "tool"
    assert messages(told)[-1]["content"] == "5\nYou did exactly this before."


def test_users_turns_are_joined_so_that_turns_alternate() -> None:
    events = [*opening("fenced"), RunFinished(reason="interrupted"), *opening("fenced", "and now")]
    assert [message["role"] for message in messages(conversation_of(events))] == ["system", "user"]


def test_lone_surrogates_do_not_break_a_request() -> None:
    body = conversation_of(opening("tools", "odd \ud800 name")).request().body
    assert json.loads(body)["messages"][1]["content"] == "odd ? name"


HISTORY = st.lists(
    st.tuples(
        st.sampled_from(["answered", "interrupted"]),
        st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=4),
    ),
    min_size=1,
    max_size=4,
)


def random_history(runs: list[Any], dialect: DialectName) -> list[Event]:
    events: list[Event] = []
    for number, (reason, steps) in enumerate(runs):
        events += opening(dialect, f"task {number}")
        for index, (says, calls, answered, note) in enumerate(steps):
            events.append(StepStarted())
            if says:
                events.append(Thought(text="hm", raw="hm"))
            for call in range(calls):
                call_id = f"{number}-{index}-{call}"
                events.append(ActionProposed(call_id=call_id, tool="run_code", arguments="{not json"))
                if call < answered:
                    events.append(Observed(call_id=call_id, text="ok"))
            if note:
                events.append(Nudged(guard="g", text="note"))
            if answered != 2:
                events.append(StepFinished(usage=Usage(), seconds=0))
        events.append(RunFinished(reason=reason))
    return [*events, *opening(dialect, "last task")]


@given(HISTORY, st.sampled_from(DIALECTS))
def test_any_history_gives_a_valid_request(runs: list[Any], dialect: DialectName) -> None:
    found = messages(conversation_of(random_history(runs, dialect)))
    open_calls: list[str] = []
    for message in found:
        if message["role"] == "tool":
            assert open_calls.pop(0) == message["tool_call_id"]
            continue
        assert not open_calls, "every call is answered before anything else is said"
        assert message["content"] or message.get("tool_calls"), "no message is empty"
        for call in message.get("tool_calls", []):
            json.loads(call["function"]["arguments"])
            open_calls.append(call["id"])
    assert not open_calls
    assert found[1]["role"] == "user"
    assert found[-1]["content"].endswith("last task")
