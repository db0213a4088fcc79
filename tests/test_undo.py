"""Undo: variables and files as they were before the last steps that ran code, and the model is told."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from nbagent import Agent
from nbagent.cli import main
from nbagent.errors import UsageError
from nbagent.events import CheckpointDeclined, CheckpointMade, KernelDied, StateLost, Undone
from nbagent.kernels.checkpoints import CheckpointKernel
from nbagent.notebook.clean_cells import clean_cells
from nbagent.notebook.export import export_notebook
from nbagent.steps import Step, read_items
from nbagent.undo import undone_in_words
from nbagent.view.trace import Trace
from tests.scripted_server import C, F, Response, ScriptedServer, T, final, run_code, sse

linux = pytest.mark.skipif(sys.platform != "linux", reason="checkpoints are forks")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ScriptedServer]:
    monkeypatch.chdir(tmp_path)
    with ScriptedServer() as made:
        monkeypatch.setenv("NBAGENT_BASE_URL", made.base_url)
        monkeypatch.setenv("NBAGENT_MODEL", "stub")
        yield made


def observed(server: ScriptedServer, code: str, agent: Agent) -> str:
    """Let the agent run code in a run of its own and give what the model was told of it."""
    server.responses += [run_code(code), final("ok")]
    assert agent.run_sync("go on").answer == "ok"
    return str(server.bodies[-1]["messages"][-1]["content"])


def last_task(server: ScriptedServer) -> str:
    users = [message for message in server.bodies[-1]["messages"] if message["role"] == "user"]
    return str(users[-1]["content"])


@linux
def test_a_destructive_step_is_undone_with_its_files_and_the_model_is_told(
    server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    server.responses = [
        run_code("import csv; rows = list(csv.reader(open('t.csv'))); kept = iter(rows); next(kept)"),
        run_code("rows.clear(); del kept; new = 1; _ = open('t.csv', 'w').write('')"),
        final("done"),
    ]
    with Agent(checkpoints="on", approve="off") as agent:
        agent.run_sync("empty it")
        undone = agent.undo_sync()
        assert (undone.how, undone.gone, undone.back) == ("checkpoint", ["new"], ["kept", "rows"])
        assert (tmp_path / "t.csv").read_text() == "a,b\n1,2\n"
        told = observed(server, "print(rows, next(kept), 'new' in dir())", agent)
        assert "[['a', 'b'], ['1', '2']] ['1', '2'] False" in told
        task = last_task(server)
        assert "The user has undone your last code cell (step 2 of run 1)." in task
        assert "Gone: new. Back as they were: kept, rows. Files put back: t.csv." in task
        session = agent.session
        assert session is not None
        notebook = session.log.folder / "out.ipynb"
        export_notebook(session.events, notebook)
        cell = next(cell for cell in nbformat.read(notebook, as_version=4).cells if "rows.clear" in cell.source)
        assert cell.cell_type == "markdown"
        assert "was undone" in cell.source
        assert Trace(event for event in session.events if event.run == 1).steps[1].actions[0].status == "undone"


@linux
@pytest.mark.long
def test_more_than_one_step_is_undone_and_what_was_undone_is_not_undone_again(server: ScriptedServer) -> None:
    server.responses = [run_code("x = 1"), run_code("x = 2"), run_code("x = 3"), final("done")]
    with Agent(checkpoints="on") as agent:
        agent.run_sync("count")
        agent.undo_sync(2)
        assert "\n1\n" in observed(server, "print(x)", agent)
        with pytest.raises(UsageError, match="only 2 steps ran code in this kernel: 3 cannot be undone"):
            agent.undo_sync(3)
        assert agent.undo_sync(2).gone == ["x"]
        assert "NameError" in observed(server, "print(x)", agent)


@linux
def test_a_kernel_that_dies_goes_back_to_the_state_before_the_code_which_is_not_run_again(
    server: ScriptedServer, tmp_path: Path
) -> None:
    die = "rows.append(4); f = open('log.txt', 'a'); f.write('once\\n'); f.close(); import os; os._exit(9)"
    server.responses = [run_code("rows = [1, 2, 3]"), run_code(die), run_code("print(rows)"), final("done")]
    with Agent(checkpoints="on") as agent:
        agent.run_sync("die")
        assert agent.session is not None
        events = agent.session.events
    assert (tmp_path / "log.txt").read_text() == "once\n"
    told = str(server.bodies[2]["messages"][-1]["content"])
    assert told.startswith("The kernel died: the kernel process exited with code 9.")
    assert "the code was not run again. Variables: rows. What the code did to files is still there." in told
    assert "[1, 2, 3]" in str(server.bodies[3]["messages"][-1]["content"])
    assert [type(event) for event in events if isinstance(event, KernelDied | StateLost)] == [KernelDied]
    assert len([event for event in events if isinstance(event, CheckpointMade)]) == 3
    assert clean_cells(events) == ["rows = [1, 2, 3]", "print(rows)"], "nothing was lost with the kernel"


@linux
def test_after_a_death_that_an_older_state_came_back_from_what_was_before_it_counts_and_is_undoable(
    server: ScriptedServer,
) -> None:
    die = "import os; os._exit(9)"
    server.responses = [run_code("x = 1"), run_code("y = 2"), final("done"), run_code(die), run_code("z = x + 1")]
    server.responses.append(final("done"))
    with Agent(checkpoints="on") as agent:
        agent.run_sync("count")
        assert agent.session is not None
        kernel, events = agent.session.kernel, agent.session.events
        assert isinstance(kernel, CheckpointKernel)
        until = time.monotonic() + 10
        while len(kernel._sleepers) < 3:
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(list(kernel._sleepers.values())[-1].pid, signal.SIGKILL)  # the state before the code that dies
        agent.run_sync("die")
        assert [event.names for event in events if isinstance(event, StateLost)] == [["y"]]
        steps = [item for item in read_items(events) if isinstance(item, Step)]
        assert [step.code for step in steps if step.runs] == ["x = 1", "z = x + 1"]
        assert clean_cells(events) == ["x = 1", "z = x + 1"]
        assert agent.undo_sync(2).gone == ["x", "z"]
        with pytest.raises(UsageError, match="there is nothing to undo"):
            agent.undo_sync()


@linux
def test_programs_of_a_step_that_is_undone_end_and_are_told(server: ScriptedServer) -> None:
    start = "import subprocess; subprocess.Popen(['sleep', '300'])"
    server.responses = [run_code("x = 1"), run_code(f"import time; time.sleep(0.05); {start}"), final("done")]
    with Agent(checkpoints="on", approve="off") as agent:
        agent.run_sync("start it")
        assert "Programs that they had started were ended: sleep." in undone_in_words(agent.undo_sync())
        observed(server, "print(x)", agent)
        assert "Programs that they had started were ended: sleep." in last_task(server)


def test_without_a_checkpoint_undo_says_what_would_run_again_and_does_it_when_asked(
    server: ScriptedServer,
) -> None:
    server.responses = [run_code("x = [1]"), run_code("y = 5"), run_code("x.append(2)"), final("done")]
    with Agent(checkpoints="off") as agent:
        with pytest.raises(UsageError, match="no run has begun"):
            agent.undo_sync()
        agent.run_sync("append")
        with pytest.raises(UsageError) as raised:
            agent.undo_sync()
        assert str(raised.value) == (
            "there is no checkpoint before step 3 of run 1: none was kept (--checkpoints on, Linux only). "
            "Undo would start a new kernel and run 2 earlier cells again, asking before those with effects "
            "outside it: `%agent undo 1 --rerun` does so"
        )
        assert agent.undo_sync(rerun=True).how == "rerun"
        assert "[1] 5" in observed(server, "print(x, y)", agent)
        assert agent.session is not None
        assert agent.session.kernel.generation == 1


@linux
@pytest.mark.long
def test_a_step_that_cannot_be_kept_says_why_and_undo_runs_the_cells_before_it_again(
    server: ScriptedServer,
) -> None:
    thread = "import threading; stop = threading.Event(); t = threading.Thread(target=stop.wait, name='mine')"
    server.responses = [run_code(f"{thread}; t.start(); x = 1"), run_code("x = 2; stop.set()"), final("done")]
    with Agent(checkpoints="on") as agent:
        agent.run_sync("start a thread")
        assert agent.session is not None
        declined = [event for event in agent.session.events if isinstance(event, CheckpointDeclined)]
        why = "a thread that code started (mine) would not survive a checkpoint"
        assert [event.why for event in declined] == [why]
        with pytest.raises(UsageError, match=re.escape(f"before step 2 of run 1: {why}. Undo would start")):
            agent.undo_sync()
        assert agent.undo_sync(2).how == "checkpoint"
        undone = [event for event in agent.session.events if isinstance(event, Undone)]
        assert len(undone[0].actions) == 2


def test_a_session_that_nobody_has_open_is_undone_from_the_shell(server: ScriptedServer, tmp_path: Path) -> None:
    server.responses = [run_code("x = 1"), run_code("x = 2; _ = open('made.txt', 'w').write('m')"), final("done")]
    with Agent() as agent:
        session = agent.run_sync("count").session
    done = CliRunner().invoke(main, ["undo", session[:8]])
    assert done.exit_code == 0, done.output
    assert "Undone: 1 step that ran code." in done.output
    assert not (tmp_path / "made.txt").exists()
    with Agent(session=session) as agent:
        assert "\n1\n" in observed(server, "print(x)", agent)
        assert "The user has undone your last code cell" in last_task(server)


def test_what_tools_did_to_files_is_undone_without_touching_the_kernel(
    server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("user\n")

    def call(tool: str, call_id: str, **arguments: str) -> Response:
        made = T(index=0, id=call_id, type="function", function=F(tool, json.dumps(arguments)))
        return sse(C(made), C({}, "tool_calls"))

    server.responses = [
        run_code("x = 5"),
        call("edit_file", "e", path="a.txt", old="user", new="agent"),
        call("run_shell", "s", command="echo one > b.txt"),
        call("write_file", "w", path="a.txt", content="again"),
        final("done"),
    ]
    with Agent(checkpoints="off", approve="off") as agent:
        agent.run_sync("change files")
        undone = agent.undo_sync()
        assert (undone.how, (tmp_path / "a.txt").read_text()) == ("files", "agent\n")
        assert undone_in_words(undone) == "Undone: 1 step that changed files. Files put back: a.txt."
        undone = agent.undo_sync(2)
        assert (tmp_path / "a.txt").read_text() == "user\n"
        assert not (tmp_path / "b.txt").exists()
        with pytest.raises(UsageError, match="no checkpoint before step 1 of run 1"):
            agent.undo_sync()
        with pytest.raises(UsageError, match="only 1 steps ran code in this kernel: 2 cannot be undone"):
            agent.undo_sync(2)
        assert "5" in observed(server, "print(x)", agent)
        assert "The user has undone what you did to files last. Files put back: a.txt" in str(server.bodies[-2])
