"""Going on with a session in another process: the conversation byte for byte, the variables made again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nbagent.context import NOT_RUN, Conversation
from nbagent.errors import SessionBusy, SettingsError, StoreError
from nbagent.events import (
    ActionFinished,
    Event,
    KernelRestored,
    Observed,
    OutputAdded,
    RunFinished,
    SessionResumed,
)
from nbagent.models.dialects import dialect_named
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.session import Session
from nbagent.settings import resolve
from nbagent.stores.files import FileStore, default_home
from tests.scripted_server import C, F, Response, ScriptedServer, T, final, run_code, sse

TWO_CALLS = sse(
    C({"role": "assistant", "content": "Both."}),
    C(T(index=0, id="a", type="function", function=F("run_code", json.dumps({"code": "a = 1\nprint(a)"})))),
    C(T(index=1, id="b", type="function", function=F("run_code", json.dumps({"code": "print(a + 1)"})))),
    C({}, "tool_calls"),
)


class Someone:
    """A view whose user answers every question alike."""

    def __init__(self, approve: bool | None = None) -> None:
        self.asked: list[ApprovalRequest] = []
        self.shown: list[Event] = []
        self._approve = approve

    def show(self, event: Event) -> None:
        self.shown.append(event)

    async def ask(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        if self._approve is None:
            return Approval(approved=False, by="nobody")
        return Approval(approved=self._approve, by="user")

    def close(self) -> None:
        pass


class Desk:
    """A folder and sessions in it, each against a scripted server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ScriptedServer()
        self.store = FileStore(default_home(os.environ))
        self.open: list[Session] = []
        self.settings: dict[str, Any] = {}

    def session(self, **settings: Any) -> Session:
        given = {"model": "stub", "base_url": self.server.base_url, "folder": str(self.folder)}
        given |= {**self.settings, **settings}
        session = Session(resolve(given, os.environ), store=self.store, environment=os.environ)
        self.open.append(session)
        return session

    async def run(
        self, session: Session, *responses: Response, task: str = "count", **keywords: Any
    ) -> RunFinished:
        self.server.responses += responses
        return await session.run(task, view=keywords.get("view") or Someone())

    async def worked(self, *responses: Response) -> str:
        """A session that did this and ended with its process."""
        session = self.session()
        await self.run(session, *responses, final("so far"))
        await session.close()
        return session.id


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    folder = tmp_path / "work"
    folder.mkdir()
    made = Desk(folder)
    with made.server:
        yield made
        for session in made.open:
            await session.close()


def rebuilt(events: list[Event]) -> list[bytes]:
    """Every request that the log says was sent."""
    conversation = Conversation(dialect_named)
    requests = []
    for event in events:
        conversation.add(event)
        if event.type == "StepStarted":
            requests.append(conversation.request().body)
    return requests


async def test_the_variables_and_every_request_go_on_as_if_nothing_had_happened(desk: Desk) -> None:
    past = await desk.worked(
        run_code("rows = [1, 2, 3]"), run_code("rows.missing"), run_code("rows.append(4)\nprint(len(rows))")
    )
    before = desk.store.read(past)
    view = Someone()
    session = desk.session(session=past[:-2])
    finished = await desk.run(session, run_code("print(sum(rows))"), final("10"), task="continue", view=view)
    assert (session.id, finished.answer) == (past, "10")
    assert not view.asked
    (restored,) = [event for event in view.shown if isinstance(event, KernelRestored)]
    assert (restored.ran, restored.left_out, restored.differs, restored.missing) == (2, [], [], [])
    (seen,) = [event.text for event in view.shown if isinstance(event, Observed)]
    assert "10" in seen
    events = desk.store.read(past)
    assert events[: len(before)] == before
    assert rebuilt(events) == [request.raw for request in desk.server.requests]
    last_before, first_after = desk.server.bodies[3]["messages"], desk.server.bodies[4]["messages"]
    assert first_after[: len(last_before)] == last_before
    assert first_after[-1]["content"].endswith("Task: continue")


async def test_a_log_cut_off_anywhere_gives_a_valid_request_that_loses_only_the_step_in_flight(desk: Desk) -> None:
    past = await desk.worked(run_code("x = 1"), TWO_CALLS)  # the id "a" is used twice, as servers do
    folder = desk.store.home / "sessions" / past
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    whole = desk.store.read(past)
    for kept in range(1, len(lines)):
        copy = folder.with_name(f"cut{kept}")
        copy.mkdir()
        (copy / "events.jsonl").write_bytes(b"".join(lines[:kept]) + lines[kept][: kept % 40])
        session = desk.session(session=copy.name, rerun="none")
        events = desk.store.read(copy.name)
        assert events[:kept] == whole[:kept]
        assert isinstance(events[kept], SessionResumed)
        begun = sum(event.type == "RunStarted" for event in events)
        assert begun == sum(event.type == "RunFinished" for event in events)
        conversation = Conversation(dialect_named)
        for event in events:
            conversation.add(event)
        if begun and any(event.type == "DialectChosen" for event in events):
            body = json.loads(conversation.request().body)
            assert_valid(body["messages"])
            finished = [event for event in whole[:kept] if event.type == "Observed"]
            answers = [message["content"] for message in body["messages"] if message["role"] == "tool"]
            assert NOT_RUN not in answers, "an open call that the log does not answer"
            assert answers[: len(finished)] == [event.text for event in finished if isinstance(event, Observed)]
        await session.close()


def assert_valid(messages: list[dict[str, Any]]) -> None:
    """Every call has exactly one answer, right after it; nothing is empty; roles are in order."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
            assert message["content"]
            continue
        assert not open_calls
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
        assert message.get("content") or open_calls
    assert not open_calls


async def test_what_ran_when_the_process_was_killed_is_answered_and_said(desk: Desk) -> None:
    past = await desk.worked(TWO_CALLS)
    path = desk.store.home / "sessions" / past / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    cut = next(number for number, line in enumerate(lines) if line.startswith(b'{"type":"ActionStarted"'))
    path.write_bytes(b"".join(lines[: cut + 1]))
    session = desk.session(session=past)
    await desk.run(session, final("on"), task="continue")
    messages = desk.server.bodies[-1]["messages"]
    assert_valid(messages)
    a, b = [message["content"] for message in messages if message["role"] == "tool"]
    assert "ended while this ran" in a
    assert b.startswith("Not run")
    statuses = [event.status for event in session.events if isinstance(event, ActionFinished)]
    assert statuses == ["interrupted", "skipped"]


@pytest.mark.parametrize("answer", [*(pytest.param(one, marks=pytest.mark.long) for one in (True, None)), False])
async def test_effects_outside_the_kernel_happen_again_only_after_a_yes(desk: Desk, answer: bool | None) -> None:
    past = await desk.worked(
        run_code("n = 5"),
        run_code("open('log.txt', 'a').write('once\\n')\nwritten = n"),
        run_code("doubled = written * 2"),
        run_code("n += 1\nprint(n)"),
    )
    view = Someone(approve=answer)
    session = desk.session(session=past)
    restored = await session.restore(view.ask)
    assert restored is not None
    (question,) = view.asked
    assert "log.txt" in question.code
    assert "n = 5" not in question.code
    assert (desk.folder / "log.txt").read_text() == "once\n" * (2 if answer else 1)
    await desk.run(session, run_code("print(sorted(set(dir()) & {'n', 'written', 'doubled'}), n)"), final())
    (seen,) = [message["content"] for message in desk.server.bodies[-1]["messages"][-1:]]
    told = [message["content"] for message in desk.server.bodies[-2]["messages"]][-1]
    if answer:
        assert (restored.ran, restored.left_out, restored.missing) == (4, [], [])
        assert "['doubled', 'n', 'written'] 6" in seen
        assert told.endswith("Task: count")
        assert "kernel is a new one" not in told
    else:
        assert (restored.ran, restored.missing) == (2, ["doubled", "written"])
        assert len(restored.left_out) == 2
        assert "['n'] 6" in seen
        assert "These variables are gone: doubled, written." in told


@pytest.mark.long
async def test_what_comes_out_otherwise_is_said_to_the_user_and_the_model(desk: Desk) -> None:
    (desk.folder / "shop.csv").write_text("2\n4\n")
    past = await desk.worked(
        run_code("prices = [int(line) for line in open('shop.csv')]\nprint(object())\nprint(sum(prices))"),
        run_code("mean = sum(prices) / len(prices)\nmean"),
    )
    (desk.folder / "shop.csv").write_text("2\n8\n")
    session = desk.session(session=past)
    restored = await session.restore(Someone().ask)
    assert restored is not None
    assert restored.differs == [
        "step 1 of run 1 gave “10”, and “6” the first time",
        "step 2 of run 1 gave “5.0”, and “3.0” the first time",
    ]
    await desk.run(session, final())
    assert "Otherwise than before: step 1" in desk.server.bodies[-1]["messages"][-1]["content"]


@pytest.mark.long
async def test_a_cell_that_fails_now_is_said_and_what_needs_it_is_left_out(desk: Desk) -> None:
    (desk.folder / "shop.csv").write_text("2\n4\n")
    past = await desk.worked(
        run_code("prices = [int(line) for line in open('shop.csv')]"),
        run_code("mean = sum(prices) / len(prices)"),
        run_code("other = 1"),
    )
    (desk.folder / "shop.csv").unlink()
    session = desk.session(session=past)
    restored = await session.restore(Someone().ask)
    assert restored is not None
    assert "failed now: FileNotFoundError" in restored.differs[0]
    assert restored.left_out == ["step 2 of run 1 (it needs prices)"]
    assert restored.missing == ["mean", "prices"]


@pytest.mark.long
@pytest.mark.parametrize("checkpoints", ["on", "off"])
async def test_only_what_the_last_kernel_held_runs_again(desk: Desk, checkpoints: str) -> None:
    desk.settings["checkpoints"] = checkpoints
    past = await desk.worked(
        run_code("old = 1"), run_code("import os\nos._exit(9)"), run_code("new = 2"), run_code("1/0")
    )
    view = Someone()
    session = desk.session(session=past)
    await desk.run(session, run_code("print('old' in dir(), new)"), final(), view=view)
    (output,) = [event.output for event in view.shown if isinstance(event, OutputAdded)]
    kept = checkpoints == "on"  # a state that is kept comes back after a death
    assert output["text"] == f"{kept} 2\n"
    await session.close()
    again = await desk.session(session=past).restore(view.ask)
    assert again is not None
    assert (again.ran, again.differs) == (2 + kept, [])


@pytest.mark.long
async def test_a_stop_while_cells_run_again_keeps_what_was_done_and_names_the_rest(desk: Desk) -> None:
    hold = "import os, time\nwhile os.path.exists('hold'):\n    time.sleep(0.02)\nafter = 1"
    past = await desk.worked(run_code("x = 1"), run_code(hold), run_code("z = 3"))
    (desk.folder / "hold").touch()
    session = desk.session(session=past)
    seen = asyncio.create_task(session.restore(Someone().ask))
    while not any(event.type == "KernelStarted" and event.seq > 20 for event in session.events):
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)  # into the cell that waits; a stop before it would be one all the same
    seen.cancel()
    with pytest.raises(asyncio.CancelledError):
        await seen
    (desk.folder / "hold").unlink()
    (restored,) = [event for event in session.events if isinstance(event, KernelRestored)]
    assert "stopped" in restored.left_out[-1]
    assert "z" in restored.missing
    await desk.run(session, run_code("'x' in dir(), 'z' in dir()"), final())
    assert "(True, False)" in desk.server.bodies[-1]["messages"][-1]["content"]
    assert "These variables are gone:" in desk.server.bodies[-2]["messages"][-1]["content"]


@pytest.mark.long
async def test_edited_code_is_no_yes_and_rerun_decides_beforehand(desk: Desk) -> None:
    past = await desk.worked(run_code("open('log.txt', 'a').write('once\\n')\nn = 1"))

    async def edits(request: ApprovalRequest) -> Approval:
        return Approval(approved=True, by="user", code="n = 2")

    for rerun, ran in (("ask", 0), ("safe", 0), ("all", 1)):
        session = desk.session(session=past, rerun=rerun)
        restored = await session.restore(edits)
        assert restored is not None
        assert restored.ran == ran
        await session.close()
    assert (desk.folder / "log.txt").read_text() == "once\n" * 2


@pytest.mark.long
async def test_rerun_none_brings_nothing_back_and_says_so(desk: Desk) -> None:
    past = await desk.worked(run_code("x = 1"))
    session = desk.session(session=past, rerun="none")
    view = Someone()
    await desk.run(session, run_code("x"), final(), view=view)
    assert any(event.type == "StateLost" for event in view.shown)
    assert "These variables are gone: x." in desk.server.bodies[-2]["messages"][-1]["content"]


async def test_a_session_of_another_process_or_with_a_lost_folder_is_refused_in_one_line(desk: Desk) -> None:
    past = await desk.worked(run_code("x = 1"))
    session = desk.session(session=past)
    with pytest.raises(SessionBusy, match=f"in use by process {os.getpid()}"):
        desk.session(session=past)
    await session.close()
    with pytest.raises(StoreError, match="no session 'nothing'"):
        desk.session(session="nothing")
    shutil.rmtree(desk.folder)
    with pytest.raises(SettingsError, match="is gone: name another with --folder"):
        Session(resolve({"session": past}, {}), store=desk.store)
    elsewhere = desk.store.home
    Session(resolve({"session": past, "folder": str(elsewhere)}, {}), store=desk.store).log.close()


async def test_a_damaged_log_is_gone_on_with_as_far_as_it_can_be_read(desk: Desk) -> None:
    past = await desk.worked(run_code("x = 1"), run_code("y = x + 1"))
    path = desk.store.home / "sessions" / past / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for lost in range(len(lines)):
        path.write_bytes(b"".join([*lines[:lost], b'{"type":"Thought", torn\xff\n', *lines[lost + 1 :]]))
        session = desk.session(session=past, rerun="none")
        conversation = Conversation(dialect_named)
        for event in desk.store.read(past):
            conversation.add(event)
        await session.close()
