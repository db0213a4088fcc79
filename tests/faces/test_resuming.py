"""Going on with a session from each face: the magics, the command line, the programming interface."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbagent import Agent
from nbagent.agent_thread import MainThreadQueue
from nbagent.cell_sessions import ShellSessions
from nbagent.events import RunFinished, RunStarted, SessionStarted
from nbagent.settings import resolve
from nbagent.stores.files import FileStore, default_home
from tests.faces.notebook import kernel
from tests.faces.test_cli import nbagent
from tests.scripted_server import ScriptedServer, final, run_code


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def live(server: ScriptedServer, **more: str) -> dict[str, Any]:
    return {"NBAGENT_BASE_URL": server.base_url, "NBAGENT_MODEL": "stub", "NBAGENT_CACHE": "/nonexistent", **more}


def test_an_agent_of_the_program_goes_on_with_a_session(folder: Path, server: ScriptedServer) -> None:
    server.responses = [run_code("x = 41"), final("set"), run_code("print(x + 1)"), final("42")]
    settings: dict[str, Any] = {"model": "stub", "base_url": server.base_url, "folder": str(folder)}
    with Agent(**settings) as agent:
        first = agent.run_sync("set x")
    with Agent(session=first.session, **settings) as agent:
        second = agent.run_sync("continue")
        assert (second.session, second.answer) == (first.session, "42")
    told = [message["content"] for message in server.bodies[-1]["messages"] if message["role"] == "tool"]
    assert "42" in told[-1]


@pytest.mark.long
def test_a_session_that_was_put_aside_has_its_kernel_still(folder: Path, server: ScriptedServer) -> None:
    server.responses = [run_code("n = 1"), final(), final("other"), run_code("n += 1\nprint(n)"), final("2")]
    with kernel(folder, live(server, NBAGENT_REPLAY="off")) as cells:
        cells.run("%load_ext nbagent")
        cells.run("%%agent\nset n")
        first = cells.text("%agent status").split()[1].rstrip(":")
        cells.run("%agent reset")
        cells.run("%%agent\nanother")
        said = cells.text(f"%agent resume {first}")
        assert f"Session {first} goes on: 1 run, 2 steps" in said
        assert "Cells that ran again: 1" in said
        other = next(one.id for one in FileStore(default_home(os.environ)).summaries() if one.id != first)
        assert "its kernel has lived on" in cells.text(f"%agent resume {other}")
        assert "its kernel has lived on" in cells.text(f"%agent resume {first}")
        cells.run(f"%%agent --session {first}\ncontinue")
        assert "2" in [message["content"] for message in server.bodies[-1]["messages"]][-1]
        assert "write `%agent resume ID" in cells.text("%agent resume")
        assert "there is no session 'nothing'" in cells.text("%agent resume nothing")
        assert first in cells.text("%agent status")  # a resume that failed changes nothing


def test_what_was_left_unfinished_here_is_pointed_to_but_not_what_is_at_work(folder: Path) -> None:
    store, sessions = FileStore(default_home(os.environ)), ShellSessions(None, MainThreadQueue())
    resolved = resolve({"folder": str(folder)}, {})
    assert list(sessions.left_over(resolved)) == []
    log = store.create()
    log.append(SessionStarted(nonce="n", versions={}, folder=str(folder)))
    log.append(RunStarted(task="go", message="go", model="m").model_copy(update={"run": 1}))
    assert list(sessions.left_over(resolved)) == []
    log.close()
    assert f"`%agent resume {log.id}`" in "".join(sessions.left_over(resolved))
    assert list(sessions.left_over(resolve({"folder": str(folder.parent)}, {}))) == []
    log = store.open(log.id)
    log.append(RunFinished(reason="answered", answer="x").model_copy(update={"run": 1}))
    log.close()
    assert list(sessions.left_over(resolved)) == []


@pytest.mark.long
def test_a_notebook_kernel_that_is_killed_in_mid_run_loses_the_step_in_flight_only(
    folder: Path, server: ScriptedServer
) -> None:
    server.responses = [
        run_code("rows = [1, 2, 3]"),
        run_code("import time\nprint('begun', flush=True)\ntime.sleep(60)"),
    ]
    with kernel(folder, live(server)) as cells:
        cells.run("%load_ext nbagent")
        pid = int(cells.text("import os; print(os.getpid())"))
        log = default_home(os.environ) / "sessions"

        def kill_once_begun() -> None:
            while not any('"text":"begun' in file.read_text() for file in log.glob("*/events.jsonl")):
                threading.Event().wait(0.05)
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_once_begun)
        killer.start()
        with pytest.raises((RuntimeError, TimeoutError)):
            cells.run("%%agent\nadd them up", timeout=20)
        killer.join()
    server.responses += [run_code("print(sum(rows))"), final("6")]
    (session,) = FileStore(default_home(os.environ)).summaries()
    with kernel(folder, live(server)) as cells:
        cells.run("%load_ext nbagent")
        said = cells.text(f"%agent resume {session.id[:-2]}")
        assert "Its last run is unfinished (interrupted): “add them up”" in said
        assert "Cells that ran again: 1." in said
        assert "6" in cells.text("%%agent\ncontinue")
        assert cells.text("print(_agent.answer)").strip() == "6"
    messages = server.bodies[-1]["messages"]
    told = [message["content"] for message in messages if message["role"] == "tool"]
    assert "ended while this ran" in told[1]
    assert messages[1]["content"].rstrip().endswith("Task: add them up")


@pytest.mark.long
def test_the_command_line_goes_on_where_a_limit_stopped_it(folder: Path, server: ScriptedServer) -> None:
    server.responses = [run_code("x = 41"), final("at the limit"), run_code("print(x + 1)"), final("42")]
    environment = live(server)
    first = nbagent("run", "compute", "--max-steps", "1", folder=folder, **environment)
    assert first.returncode == 3, first.stdout + first.stderr
    (listed,) = [json.loads(line) for line in nbagent("sessions", "--json", folder=folder).stdout.splitlines()]
    assert nbagent("run", folder=folder, **environment).returncode == 2
    second = nbagent("run", "--session", listed["id"][:-1], "--json", folder=folder.parent, **environment)
    assert second.returncode == 0, second.stderr
    events = [json.loads(line) for line in second.stdout.splitlines()]
    assert events[-1]["answer"] == "42"
    assert events[-1]["session"] == listed["id"]
    assert [event["ran"] for event in events if event["type"] == "KernelRestored"] == [1]
