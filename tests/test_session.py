"""A session end to end: a real kernel, a real HTTP stream, a scripted model. One run is one ending."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nbagent.context import Conversation
from nbagent.errors import NoModelError, SettingsError, UsageError
from nbagent.events import (
    ActionFinished,
    ActionStarted,
    ApprovalGiven,
    Event,
    KernelStarted,
    Nudged,
    Observed,
    OutputAdded,
    Retrying,
    RunFinished,
    RunStarted,
    StateLost,
    StepFinished,
    Thought,
    to_json,
)
from nbagent.models.dialects import dialect_named
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.session import Session
from nbagent.settings import resolve
from nbagent.stores.files import FileStore, default_home
from tests.scripted_server import RESET, C, Delay, F, Gate, Response, ScriptedServer, T, final, run_code, sse


class Recorder:
    """A view that keeps what it was shown and answers questions as it is told."""

    def __init__(self, approve: bool | None = None, code: str | None = None) -> None:
        self.shown: list[Event] = []
        self.asked: list[ApprovalRequest] = []
        self._approve = approve
        self._code = code
        self.seen = asyncio.Event()
        self.waiting_for: Callable[[Event], bool] = lambda event: False

    def show(self, event: Event) -> None:
        self.shown.append(event)
        if self.waiting_for(event):
            self.seen.set()

    async def ask(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        if self._approve is None:
            return Approval(approved=False, by="nobody")
        return Approval(approved=self._approve, by="user", code=self._code, note="not now")

    def close(self) -> None:
        pass

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.shown if isinstance(event, kind)]


class Work:
    """A folder, sessions in it, and one way to run a task against a scripted server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sessions: list[Session] = []
        self.view = Recorder()

    def session(self, server: ScriptedServer, **settings: Any) -> Session:
        given = {"model": "stub", "base_url": server.base_url, "folder": str(self.folder), **settings}
        store = FileStore(default_home(os.environ))
        session = Session(resolve(given, os.environ), store=store, environment=os.environ)
        self.sessions.append(session)
        return session

    async def run(self, *responses: Response, task: str = "count", **settings: Any) -> RunFinished:
        with ScriptedServer(responses) as server:
            finished = await self.session(server, **settings).run(task, view=self.view)
            server.assert_complete()
            self.bodies = server.bodies
            self.raw = [request.raw for request in server.requests]
        return finished

    @property
    def observed(self) -> list[str]:
        return [event.text for event in self.view.of(Observed)]


class Together(Work):
    """One session and one server for many tests: each has a run in it, a view and the requests of that run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = ScriptedServer()

    async def run(self, *responses: Response, task: str = "count", **settings: Any) -> RunFinished:
        self.server.begin_again()
        self.server.responses += responses
        session = self.sessions[0] if self.sessions else self.session(self.server)
        given = {"model": "stub", "base_url": self.server.base_url, "folder": str(self.folder), **settings}
        finished = await session.run(task, view=self.view, resolved=resolve(given, os.environ))
        self.server.assert_complete()
        self.bodies = self.server.bodies
        return finished


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Together]:
    made = Together(tmp_path_factory.mktemp("together"))
    with made.server:
        yield made
        await made.sessions[0].close()


@pytest.fixture
def together(one_session: Together) -> Together:
    one_session.view = Recorder()
    return one_session


shared_loop = pytest.mark.asyncio(loop_scope="module")  #: for the session that tests share


@pytest.fixture
async def work(tmp_path: Path) -> AsyncIterator[Work]:
    folder = tmp_path / "work"
    folder.mkdir()
    made = Work(folder)
    yield made
    for session in made.sessions:
        await session.close()


async def test_variables_survive_between_steps_and_runs(work: Work) -> None:
    with ScriptedServer(
        [run_code("x = 41"), run_code("print(x + 1)"), final("42"), run_code("print(x)"), final()]
    ) as s:
        session = work.session(s)
        assert (await session.run("first", view=work.view)).answer == "42"
        assert "42" in work.observed[1]
        assert (await session.run("second", view=work.view)).reason == "answered"
        assert "41" in work.observed[2]
        assert len(work.view.of(KernelStarted)) == 1


async def test_the_log_rebuilds_every_request_byte_for_byte(work: Work) -> None:
    await work.run(run_code("x = 1\nx"), run_code("1/0"), run_code("print('ü', x)"), final("done"))
    events = FileStore(default_home(os.environ)).read(work.sessions[0].id)
    conversation = Conversation(dialect_named)
    rebuilt = []
    for event in events:
        conversation.add(event)
        if event.type == "StepStarted":
            rebuilt.append(conversation.request().body)
    assert rebuilt == work.raw


async def test_every_event_carries_the_whole_envelope_in_order(work: Work) -> None:
    await work.run(run_code("1"), final())
    events = FileStore(default_home(os.environ)).read(work.sessions[0].id)
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    assert {event.session for event in events} == {work.sessions[0].id}
    assert all(event.time > 0 and event.version == 1 for event in events)
    steps = [event.step for event in events if event.type == "StepStarted"]
    assert steps == [1, 2]
    assert {event.call_id for event in events if event.type in ("ActionStarted", "Observed")} == {"a"}


async def test_the_run_is_recorded_before_it_is_shown(work: Work) -> None:
    store = FileStore(default_home(os.environ))
    seen_unrecorded: list[str] = []

    def check(event: Event) -> bool:
        if event.stored and event.seq not in {stored.seq for stored in store.read(event.session)}:
            seen_unrecorded.append(event.type)
        return False

    work.view.waiting_for = check
    await work.run(run_code("print(1)"), final())
    assert seen_unrecorded == []


@shared_loop
async def test_an_error_becomes_an_observation_and_the_run_goes_on(together: Together) -> None:
    finished = await together.run(run_code("print('before'); 1/0"), final("fixed"))
    assert finished.reason == "answered"
    assert "ZeroDivisionError" in together.observed[0]
    assert "before" in together.observed[0]
    assert together.view.of(ActionFinished)[0].status == "error"


@shared_loop
async def test_a_model_that_repeats_itself_is_told_and_then_ended(together: Together) -> None:
    finished = await together.run(*[run_code("ls = 1", str(n)) for n in range(4)], max_steps=30)
    assert finished.reason == "repeating"
    assert [event.guard for event in together.view.of(Nudged)] == ["repeating", "repeating"]
    assert "exactly this before" in together.bodies[2]["messages"][-1]["content"]


@shared_loop
async def test_code_that_fails_the_same_way_again_and_again_is_ended(together: Together) -> None:
    finished = await together.run(*[run_code("int('6[4]')", str(n)) for n in range(4)], max_steps=30)
    assert finished.reason == "repeating"


@shared_loop
async def test_an_unknown_tool_is_answered_and_its_neighbour_runs(together: Together) -> None:
    two = sse(
        C(T(index=0, id="a", type="function", function=F("python_exec", '{"code":"1"}'))),
        C(T(index=1, id="b", type="function", function=F("run_code", '{"code":"print(2)"}'))),
        C({}, "tool_calls"),
    )
    assert (await together.run(two, final("ok"))).reason == "answered"
    tools = [message for message in together.bodies[1]["messages"][-2:] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in tools] == ["a", "b"]
    assert "run_code" in tools[0]["content"]
    assert "2" in tools[1]["content"]


@shared_loop
async def test_a_call_cut_by_the_token_limit_never_runs(together: Together) -> None:
    half = sse(
        C(
            T(
                index=0,
                id="a",
                type="function",
                function=F("run_code", "{\"code\":\"open('out.csv','w').write('he"),
            )
        ),
        C({}, "length"),
    )
    await together.run(half, final("ok"))
    assert not (together.folder / "out.csv").exists()
    for message in together.bodies[1]["messages"]:
        for call in message.get("tool_calls", []):
            json.loads(call["function"]["arguments"])


@shared_loop
async def test_a_broken_stream_is_retried_and_nothing_of_it_runs(together: Together) -> None:
    call = C(
        T(index=0, id="a", type="function", function=F("run_code", "{\"code\":\"open('n.txt','a').write('1')\"}"))
    )
    usages = [{"usage": {"prompt_tokens": 1000, "completion_tokens": 10}, "choices": []}] * 2
    good = sse(call, C({}, "tool_calls"), usages[0])
    finished = await together.run(sse(call, RESET, done=False), good, sse(*final("ok").items, usages[1]))
    assert finished.usage.prompt_tokens > 2500, "the reply that broke off is paid for, too"
    assert (together.folder / "n.txt").read_text() == "1"
    assert len(together.view.of(Retrying)) == 1


async def test_stop_while_the_model_streams_keeps_the_partial_thought(work: Work) -> None:
    gate = Gate()
    work.view.waiting_for = lambda event: event.type == "ThoughtDelta"
    with ScriptedServer([sse(C({"content": "I will"}), gate, C({}, "stop")), final("later")]) as server:
        session = work.session(server)
        running = asyncio.create_task(session.run("go", view=work.view))
        await asyncio.wait_for(work.view.seen.wait(), 20)
        session.stop()
        session.stop()
        finished = await asyncio.wait_for(running, 5)
        assert finished.reason == "interrupted"
        assert [event.text for event in work.view.of(Thought)] == ["I will"]
        assert (await session.run("again", view=work.view)).answer == "later"
        assert all(message["content"] for message in server.bodies[1]["messages"])


async def test_stop_while_code_runs_answers_every_call_and_keeps_the_kernel(work: Work) -> None:
    two = sse(
        C(
            T(
                index=0,
                id="a",
                type="function",
                function=F("run_code", '{"code":"x = 7\\nimport time; print(1); time.sleep(60)"}'),
            )
        ),
        C(T(index=1, id="b", type="function", function=F("run_code", '{"code":"print(1)"}'))),
        C({}, "tool_calls"),
    )
    work.view.waiting_for = lambda event: event.type == "OutputAdded"
    with ScriptedServer([two, run_code("print(x)"), final("ok")]) as server:
        session = work.session(server)
        running = asyncio.create_task(session.run("go", view=work.view))
        await asyncio.wait_for(work.view.seen.wait(), 30)
        session.stop()
        finished = await asyncio.wait_for(running, 8)
        assert finished.reason == "interrupted"
        assert finished.usage.total_tokens > 100, "the reply was paid for, whatever came of its code"
        statuses = [event.status for event in work.view.of(ActionFinished)]
        assert statuses == ["interrupted", "skipped"]
        assert (await session.run("again", view=work.view)).reason == "answered"
        tools = [message for message in server.bodies[1]["messages"] if message["role"] == "tool"]
        assert "interrupted" in tools[0]["content"]
        assert "ot run" in tools[1]["content"]
        assert "7" in work.observed[-1]


@shared_loop
async def test_the_time_limit_interrupts_and_keeps_partial_output(together: Together) -> None:
    await together.run(run_code("print('part'); import time; time.sleep(60)"), final("ok"), cell_timeout=1)
    assert together.view.of(ActionFinished)[0].status == "timeout"
    assert "part" in together.observed[0]


async def test_a_dead_kernel_is_told_with_what_was_lost_and_nothing_runs_twice(work: Work) -> None:
    die = "open('log.txt','a').write('once\\n'); import os; os._exit(9)"
    await work.run(
        run_code("rows = [1,2,3]"), run_code(die), run_code("print(rows)"), final("lost"), checkpoints="off"
    )
    assert (work.folder / "log.txt").read_text() == "once\n"
    assert "rows" in work.observed[1]
    assert "NameError" in work.observed[2]
    lost = work.view.of(StateLost)
    assert lost
    assert "rows" in lost[0].names


async def test_risky_code_waits_for_a_yes_and_nobody_means_no(work: Work) -> None:
    (work.folder / "keep.csv").write_text("mine")
    risky = run_code("import os; os.remove('keep.csv')", "a")
    again = run_code("import shutil; shutil.rmtree('.')", "b")
    finished = await work.run(risky, again)
    assert finished.reason == "denied"
    assert (work.folder / "keep.csv").read_text() == "mine"
    assert [event.by for event in work.view.of(ApprovalGiven)] == ["nobody", "nobody"]
    assert not work.view.of(OutputAdded)


@shared_loop
async def test_code_that_the_user_edits_is_what_runs_and_what_the_model_sees(together: Together) -> None:
    together.view = Recorder(approve=True, code="print('edited')")
    finished = await together.run(run_code("print('mine')"), final("ok"), approve="each")
    assert finished.reason == "answered"
    assert together.view.of(ActionStarted)[0].code == "print('edited')"
    call = together.bodies[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(call) == {"code": "print('edited')"}


@shared_loop
async def test_a_refusal_goes_to_the_model_once_and_the_run_goes_on(together: Together) -> None:
    together.view = Recorder(approve=False)
    finished = await together.run(run_code("import os; os.remove('x.csv')"), final("I will not"))
    assert finished.answer == "I will not"
    assert "not now" in together.observed[0]


async def test_secrets_of_the_environment_reach_nobody(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("sk-test-ABCDEFGHIJKLMNOPQRSTUVWX", "wJalrTESTKEY/EXAMPLE+abcdefghijklmnop")
    monkeypatch.setenv("MY_API_KEY", secrets[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secrets[1])
    halves = (
        "import os, sys; k = os.environ['MY_API_KEY']; sys.stdout.write(k[:16]); sys.stdout.flush(); print(k[16:])"
    )
    await work.run(
        run_code("import os; print(dict(os.environ))"),
        run_code(halves),
        run_code("raise ValueError(os.environ['AWS_SECRET_ACCESS_KEY'])"),
        run_code("len(os.environ['MY_API_KEY'])"),
        final("ok"),
    )
    everything = b"".join(work.raw)
    for file in work.sessions[0].log.folder.rglob("*.json*"):
        everything += file.read_bytes()
    everything += "".join(event.model_dump_json() for event in work.view.shown).encode()
    for secret in secrets:
        assert secret.encode() not in everything
    assert str(len(secrets[0])) in work.observed[3]


@shared_loop
async def test_model_errors_end_the_run_and_keep_what_was_done(together: Together) -> None:
    refused = Response([b'{"error":{"message":"bad key"}}'], status=401, stream=False)
    finished = await together.run(run_code("x = 1"), refused)
    assert finished.reason == "model_error"
    assert "\n" not in finished.message
    assert len(together.view.of(StepFinished)) >= 1


@pytest.mark.parametrize("dialect", ["json", "fenced"])
@shared_loop
async def test_the_same_task_is_solved_in_the_text_dialects(together: Together, dialect: str) -> None:
    if dialect == "json":
        first = json.dumps({"thought": "sum", "action": "run_code", "action_input": {"code": "print(40+2)"}})
        last = json.dumps({"thought": "done", "action": "final_answer", "action_input": {"answer": "42"}})
    else:
        first, last = "I sum.\n```python\nprint(40+2)\n```", "42"
    finished = await together.run(final(first), final(last), dialect=dialect)
    assert (finished.reason, finished.answer) == ("answered", "42")
    assert "42" in together.observed[0]


@shared_loop
async def test_a_guess_before_any_code_is_doubted_in_the_text_dialects(together: Together) -> None:
    finished = await together.run(
        final("It is 7."), final("```python\nprint(8)\n```"), final("8"), dialect="fenced"
    )
    assert finished.answer == "8"
    assert together.view.of(Nudged)[0].guard == "unsupported_answer"


async def test_an_empty_task_and_a_second_run_at_once_are_refused_in_a_line(work: Work) -> None:
    gate = Gate()
    work.view.waiting_for = lambda event: event.type == "StepStarted"
    with ScriptedServer([sse(gate, C({"content": "ok"}), C({}, "stop"))]) as server:
        session = work.session(server)
        with pytest.raises(UsageError, match="empty"):
            await session.run("  \n", view=work.view)
        running = asyncio.create_task(session.run("go", view=work.view))
        await asyncio.wait_for(work.view.seen.wait(), 20)
        with pytest.raises(UsageError, match="at work"):
            await session.run("and", view=work.view)
        gate.open()
        assert (await running).answer == "ok"


async def test_no_model_name_lists_what_the_server_offers(work: Work) -> None:
    with (
        ScriptedServer(models=["alpha", "beta"]) as server,
        pytest.raises(NoModelError, match=r"alpha, beta.*--model"),
    ):
        await work.session(server, model="").run("go", view=work.view)


async def test_what_shapes_the_kernel_cannot_change_under_it(work: Work, tmp_path: Path) -> None:
    with ScriptedServer([final()]) as server:
        session = work.session(server)
        given = {"model": "stub", "base_url": server.base_url, "folder": str(tmp_path)}
        with pytest.raises(SettingsError, match="reset"):
            await session.run("go", view=work.view, resolved=resolve(given, os.environ))


async def test_cancelling_whoever_waits_still_ends_the_run_properly(work: Work) -> None:
    gate = Gate()
    work.view.waiting_for = lambda event: event.type == "StepStarted"
    with ScriptedServer([sse(gate)]) as server:
        running = asyncio.create_task(work.session(server).run("go", view=work.view))
        await asyncio.wait_for(work.view.seen.wait(), 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert work.view.of(RunFinished)[0].reason == "interrupted"


async def test_running_without_questions_is_said_once(work: Work) -> None:
    with ScriptedServer([final("ok"), final("ok")]) as server:
        session = work.session(server, approve="off")
        await session.run("go", view=work.view)
        await session.run("go", view=work.view)
    notes = [event.notes for event in work.view.of(RunStarted)]
    assert ["approve=off" in " ".join(said) for said in notes] == [True, False]


@shared_loop
async def test_half_characters_from_the_model_reach_neither_file_nor_page(together: Together) -> None:
    halves = sse(C({"content": "a \ud83d b \ud83d"}), C({"content": "\ude00"}), C({}, "stop"))
    finished = await together.run(run_code("print('\ud83d', '\\ud83d'.isprintable())"), halves)
    assert finished.answer == "a \ufffd b \U0001f600"
    assert "\ufffd False" in together.observed[0]
    for event in together.view.shown:
        to_json(event).encode()


async def test_limits_given_later_hold_for_the_next_request(work: Work) -> None:
    slow = [sse(Delay(5), C({"content": "late"}), C({}, "stop"))] * 2
    with ScriptedServer([final("ok"), *slow]) as server:
        session = work.session(server)
        await session.run("go", view=work.view)
        given = {**session.resolved.settings.model_dump(), "first_token_timeout": 0.3, "max_retry_seconds": 0}
        finished = await session.run("again", view=work.view, resolved=resolve(given, os.environ))
    assert finished.reason == "model_error"


async def test_a_current_folder_that_is_gone_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SettingsError, match="current folder is gone"):
        Session(resolve({}, {}), store=FileStore(tmp_path / "home"), environment={})
