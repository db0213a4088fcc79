"""A run that outgrows its model's window goes on, end to end: real kernel, real stream, the log as witness."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from nbagent.context import Conversation
from nbagent.events import AsideAsked, Compacted, Event, StepStarted, WindowLearned
from nbagent.models.dialects import dialect_named
from nbagent.stores.files import FileStore, default_home
from tests.scripted_server import C, Gate, Recorded, Response, ScriptedServer, final, plain, run_code, sse
from tests.test_session import Work

OVERFLOW = plain(
    400,
    {
        "error": {
            "message": "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens.",
            "code": "context_length_exceeded",
        }
    },
)
NOISY = "seen = globals().get('seen', 0) + 1; print('row', seen, 'value ' * 1500)"


@pytest.fixture
async def work(tmp_path: Path) -> AsyncIterator[Work]:
    folder = tmp_path / "work"
    folder.mkdir()
    made = Work(folder)
    yield made
    for session in made.sessions:
        await session.close()


def stored(work: Work) -> list[Event]:
    return FileStore(default_home(os.environ)).read(work.sessions[0].id)


def rebuilt(events: list[Event]) -> list[bytes]:
    """Every request that the log says was sent; an overflow's second attempt follows its compaction."""
    conversation = Conversation(dialect_named)
    bodies, in_step = [], False
    for event in events:
        conversation.add(event)
        if isinstance(event, AsideAsked):
            bodies.append(conversation.aside().body)
        elif isinstance(event, StepStarted) or (isinstance(event, Compacted) and in_step):
            bodies.append(conversation.request().body)
        in_step = isinstance(event, StepStarted) or (in_step and event.type not in ("StepFinished", "RunFinished"))
    return bodies


async def test_a_run_beyond_the_window_is_summed_up_and_goes_on(work: Work) -> None:
    replies = [run_code(NOISY, f"c{number}") for number in range(9)] + [final("9 rows")]

    def answer(request: Recorded) -> Response:
        if request.body["messages"][-1]["content"].startswith("(From nbagent"):
            return final("seen counts the rows; the user wants their number.")
        return replies.pop(0)

    with ScriptedServer(answer=answer) as server:
        session = work.session(server, context_window=17_000, observation_characters=10_000)
        finished = await session.run("Count the rows; never touch raw/", view=work.view)
    assert finished.answer == "9 rows"
    compactions = work.view.of(Compacted)
    assert compactions
    assert {event.by for event in compactions} == {"model"}
    assert all("seen: int" in event.note for event in compactions), "the variables as they are then"
    assert rebuilt(stored(work)) == [request.raw for request in server.requests]
    for body in server.bodies:
        assert "never touch raw/" in body["messages"][1]["content"]
        assert body["tools"], "tools are still offered"
    asked = [request for request in server.requests if b"(From nbagent" in request.raw]
    assert finished.usage.total_tokens > 0
    assert len(asked) == len(compactions)


async def test_an_overflow_is_compacted_and_sent_again_once(work: Work) -> None:
    steps = [run_code(NOISY, f"c{number}") for number in range(3)]
    finished = await work.run(*steps, OVERFLOW, final("done"))
    assert finished.answer == "done"
    (event,) = work.view.of(Compacted)
    assert "too long" in event.why
    assert [learned.tokens for learned in work.view.of(WindowLearned)] == [8192]
    assert rebuilt(stored(work)) == work.raw
    assert len(work.raw[-1]) < len(work.raw[-2])


async def test_a_second_overflow_ends_with_the_servers_word(work: Work) -> None:
    steps = [run_code(NOISY, f"c{number}") for number in range(3)]
    finished = await work.run(*steps, OVERFLOW, OVERFLOW)
    assert finished.reason == "model_error"
    assert "8192" in finished.message


async def test_a_task_too_long_for_the_window_is_said_before_any_request(work: Work) -> None:
    finished = await work.run(task="why? " * 4000, context_window=4096)
    assert finished.reason == "max_tokens"
    assert "4,096" in finished.message
    assert finished.steps == 0


async def test_a_small_window_is_not_filled_with_tools(work: Work) -> None:
    await work.run(final("ok"), context_window=4096)
    few = len(work.bodies[0]["tools"])
    await work.run(final("ok"), context_window=4096, toolset="full")
    assert few < len(work.bodies[0]["tools"])


async def test_stopped_while_it_is_summed_up_the_history_is_as_before(work: Work) -> None:
    gate = Gate()
    summary = sse(C({"content": "The"}), gate, C({"content": " summary"}), C({}, "stop"))

    def answer(request: Recorded) -> Response:
        question = request.body["messages"][-1]["content"]
        if question.startswith("(From nbagent"):
            return summary
        if "Task: and now" in question:
            return final("after")
        return run_code(NOISY, f"c{len(server.requests)}")

    with ScriptedServer(answer=answer) as server:
        session = work.session(server, context_window=16_500, observation_characters=10_000)
        running = asyncio.create_task(session.run("count", view=work.view))
        assert await asyncio.to_thread(gate.reached.wait, 60)
        session.stop()
        assert (await running).reason == "interrupted"
        assert not work.view.of(Compacted)
        gate.open()
        server.requests.clear()
        assert (await session.run("and now", view=work.view)).answer == "after"
    summing_up, answered = (request.body["messages"] for request in server.requests)
    assert summing_up[1]["content"] == "Task: count", "nothing of the broken summary stands in the history"
    assert sum(message["role"] == "tool" for message in summing_up) > 2
    assert "Task: and now" in answered[1]["content"]
    assert rebuilt(stored(work))[-1] == server.requests[-1].raw


async def test_a_server_that_cuts_in_silence_is_told_of_once_and_the_task_survives(work: Work) -> None:
    count = 0

    def answer(request: Recorded) -> Response:
        nonlocal count
        count += 1
        reply = run_code(NOISY, f"c{count}") if count < 7 else final("seven")
        usage = {"prompt_tokens": min(4096, len(request.raw) // 3), "completion_tokens": 9, "total_tokens": 0}
        return replace(reply, items=[*reply.items, {"choices": [], "usage": usage}])

    with ScriptedServer(answer=answer) as server:
        session = work.session(server, context_window=32_768, observation_characters=10_000)
        assert (await session.run("Count; never touch raw/", view=work.view)).answer == "seven"
    (learned,) = work.view.of(WindowLearned)
    assert learned.tokens == 4096
    assert work.view.of(Compacted)
    last = server.requests[-1]
    assert len(last.raw) / 3 < 4096
    assert last.body["messages"][0]["role"] == "system"
    assert "never touch raw/" in last.body["messages"][1]["content"]
