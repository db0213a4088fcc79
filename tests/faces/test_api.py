"""`Agent` and `Result`: the programming interface."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest

import nbagent
from nbagent import Agent, NbAgentError
from nbagent.api import EventQueue
from nbagent.errors import FileExistsRefused, SettingsError, UsageError
from nbagent.events import RunFinished
from nbagent.protocols import Approval, ApprovalRequest
from tests.scripted_server import C, Gate, ScriptedServer, final, run_code, sse


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ScriptedServer]:
    monkeypatch.chdir(tmp_path)
    with ScriptedServer() as made:
        monkeypatch.setenv("NBAGENT_BASE_URL", made.base_url)
        monkeypatch.setenv("NBAGENT_MODEL", "stub")
        yield made


def test_public_names_are_one_sorted_list() -> None:
    assert nbagent.__all__ == sorted(nbagent.__all__)
    for name in nbagent.__all__:
        assert inspect.getdoc(getattr(nbagent, name)), name


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="agnet"):
        _ = nbagent.agnet


def test_run_sync_answers_and_exports(server: ScriptedServer, tmp_path: Path) -> None:
    server.responses = [run_code("print(6 * 7)"), final("42")]
    with Agent() as agent:
        result = agent.run_sync("multiply")
        assert (result.answer, result.reason, result.success, result.steps) == ("42", "answered", True, 2)
        assert result.usage.total_tokens > 0
        path = result.export("out.ipynb")
        with pytest.raises(FileExistsRefused):
            result.export(path, distill=True, verify=True)
        proven = result.export("proven.ipynb", distill=True, verify=True)
        assert nbformat.read(proven, as_version=4).metadata.nbagent.verified.ok


async def test_run_sync_works_where_a_loop_is_running(server: ScriptedServer) -> None:
    server.responses = [final("ok")]
    with Agent() as agent:
        assert agent.run_sync("go").answer == "ok"


async def test_the_session_goes_on_from_run_to_run(server: ScriptedServer) -> None:
    server.responses = [run_code("x = 5"), final("kept"), run_code("print(x)"), final("5")]
    async with Agent() as agent:
        first = await agent.run("keep 5")
        second = await agent.run("what was it?")
        assert (first.answer, second.answer) == ("kept", "5")
        assert first.session == second.session
    assert "keep 5" in str(server.bodies[3]["messages"])


async def test_stream_yields_events_until_the_run_is_finished(server: ScriptedServer) -> None:
    server.responses = [run_code("print(1)"), final("done")]
    async with Agent() as agent:
        types = [event.type async for event in agent.stream("go")]
    assert types[0] == "RunStarted"
    assert types[-1] == "RunFinished"
    assert "ThoughtDelta" in types
    assert "OutputAdded" in types


async def test_leaving_the_stream_stops_the_run(server: ScriptedServer) -> None:
    gate = Gate()
    server.responses = [sse(C({"content": "I"}), gate), final("again")]
    async with Agent() as agent:
        events = agent.stream("go")
        async for event in events:
            if event.type == "ThoughtDelta":
                break
        await events.aclose()
        assert await asyncio.to_thread(server.disconnected.wait, 10)
        assert (await agent.run("again")).answer == "again"


async def test_cancelling_run_stops_it(server: ScriptedServer) -> None:
    gate = Gate()
    server.responses = [sse(C({"content": "I"}), gate)]
    async with Agent() as agent:
        running = asyncio.create_task(agent.run("go"))
        assert await asyncio.to_thread(gate.reached.wait, 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(server.disconnected.wait, 10)


def test_a_program_may_approve(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("old")
    server.responses = [run_code("open('old.csv', 'w').write('new')"), final("written")]
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    with Agent(approve_action=approve) as agent:
        assert agent.run_sync("overwrite").answer == "written"
    assert asked[0].risk == "overwrite"
    assert (tmp_path / "old.csv").read_text() == "new"


@pytest.mark.parametrize("settings", [{"max_step": 3}, {"max_steps": 0}, {"approve": "perhaps"}])
def test_settings_that_do_not_fit_are_refused_at_once(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        Agent(**settings)  # type: ignore[arg-type]


def test_data_that_is_not_there_is_said(server: ScriptedServer) -> None:
    with Agent() as agent, pytest.raises(UsageError, match=r"nowhere\.csv"):
        agent.run_sync("go", data=["nowhere.csv"])


def test_every_error_is_one_of_ours() -> None:
    assert issubclass(UsageError, NbAgentError)


def test_an_approve_function_that_raises_ends_the_run_in_the_log_and_the_agent_goes_on(
    server: ScriptedServer, tmp_path: Path
) -> None:
    def approve(request: ApprovalRequest) -> bool:
        raise LookupError("no one to ask")

    (tmp_path / "kept.txt").write_text("kept")
    server.responses = [run_code("open('kept.txt', 'w')"), final("still here")]
    with Agent(approve_action=approve) as agent:
        with pytest.raises(LookupError, match="no one to ask"):
            agent.run_sync("overwrite it")
        assert agent.session is not None
        ended = agent.session.events[-1]
        assert isinstance(ended, RunFinished)
        assert (ended.reason, ended.message) == ("interrupted", "Stopped by an error: LookupError: no one to ask")
        assert agent.run_sync("go on").answer == "still here"
        roles = [message["role"] for message in server.bodies[1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "user"]
    assert (tmp_path / "kept.txt").read_text() == "kept"


REQUEST = ApprovalRequest("r", "c", "run_code", "x", "overwrite", "")


@pytest.mark.parametrize(
    ("answer", "approved", "note"),
    [
        (True, True, ""),
        (False, False, ""),
        (None, False, ""),
        (1, True, ""),
        ("yes", True, ""),
        ("no", False, ""),
        ("not this file", False, "not this file"),
        ("", False, ""),
        (Approval(True, "user", code="y"), True, ""),
    ],
)
async def test_only_a_clear_yes_of_a_program_is_one(answer: Any, approved: bool, note: str) -> None:
    async def later(request: ApprovalRequest) -> Any:
        return answer

    for approve in (lambda _: answer, later):
        given = await EventQueue(approve).ask(REQUEST)
        assert (given.approved, given.note) == (approved, note)


NO_ANSWERS: list[Any] = [
    [1],
    object(),
    {"approved": True},
    Approval(True, "me"),  # type: ignore[arg-type]
    Approval(True, "user", always="ever"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("answer", NO_ANSWERS)
async def test_what_is_no_answer_is_said_and_approves_nothing(answer: Any) -> None:
    with pytest.raises(UsageError, match="give True, False"):
        await EventQueue(lambda _: answer).ask(REQUEST)


async def test_an_exit_of_the_programs_own_does_not_end_the_loop() -> None:
    def leave(request: ApprovalRequest) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        await EventQueue(leave).ask(REQUEST)


def test_closing_in_mid_run_gives_the_run_its_result(server: ScriptedServer) -> None:
    gate = Gate()
    server.responses = [sse(C({"content": "thinking"}), gate, C({}, "stop"))]
    agent = Agent()
    with ThreadPoolExecutor(1) as other:
        running = other.submit(agent.run_sync, "think")
        assert gate.reached.wait(30)
        agent.close()
        assert running.result(timeout=30).reason == "interrupted"


def test_after_a_fork_an_agent_of_the_parents_is_refused_and_a_new_one_works(
    server: ScriptedServer, tmp_path: Path
) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        "import os\n"
        "from nbagent import Agent\n"
        "from nbagent.errors import UsageError\n"
        "with Agent() as agent:\n"
        "    agent.run_sync('begin')\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try:\n"
        "            agent.run_sync('never')\n"
        "        except UsageError as error:\n"
        "            print(error, flush=True)\n"
        "        agent.close()\n"
        "        with Agent() as own:\n"
        "            print(own.run_sync('in the child').answer, flush=True)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    print(agent.run_sync('in the parent').answer)\n"
    )
    server.responses = [final("one"), final("two"), run_code("print(1)"), final("three")]
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        "this agent's kernel belongs to the process before the fork: make a new Agent here",
        "two",
        "three",
    ], done.stderr
