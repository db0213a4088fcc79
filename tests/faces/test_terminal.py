"""The agent on a real terminal: `nbagent run` and terminal IPython in a pseudo-terminal, and in a pipe."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faces.test_cli import called, here
from tests.scripted_server import C, Delay, F, Gate, ScriptedServer, T, final, plain, run_code, sse

pexpect = pytest.importorskip("pexpect", reason="there are no pseudo-terminals here")

__all__ = ["here"]  # a fixture

CTRL_C = "\x03"
ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as made:
        yield made


@contextmanager
def terminal(words: list[str], folder: Path, **environment: str) -> Iterator[Any]:
    child = pexpect.spawn(
        sys.executable,
        ["-m", *words],
        cwd=str(folder),
        env={**os.environ, "TERM": "xterm-256color", "NBAGENT_CACHE": str(folder / "cache"), **environment},
        dimensions=(40, 100),
        timeout=60,
        encoding="utf-8",
        # A suite that was started in the background ignores the interrupt, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield child
    finally:
        child.close(force=True)


def run(server: ScriptedServer, folder: Path, *words: str, **environment: str) -> Any:
    command = ["nbagent", "run", "go", "--base-url", server.base_url, "--model", "stub", *words]
    return terminal(command, folder, **environment)


def rest_of(child: Any) -> str:
    """Wait for the end; give what came on the way, without colours."""
    child.expect(pexpect.EOF)
    child.close()
    return ANSI.sub("", child.before)


def ipython(server: ScriptedServer, folder: Path) -> Any:
    return terminal(
        ["IPython", "--no-banner", "--colors=NoColor", "--simple-prompt", "--no-confirm-exit"],
        folder,
        IPYTHONDIR=str(folder / "ipython"),
        NBAGENT_BASE_URL=server.base_url,
        NBAGENT_MODEL="stub",
    )


def give(child: Any, task: str) -> None:
    """Type a `%%agent` cell; blank lines end it."""
    for line in ("%%agent", task, ""):
        child.sendline(line)
        child.expect_exact("...: ")
    child.sendline("")


DELETE = run_code("import os\nos.remove('old.txt')")


def test_a_run_streams_its_thought_and_leaves_every_part_once_and_its_clock_goes_on(
    server: ScriptedServer, tmp_path: Path
) -> None:
    gate = Gate()
    server.responses = [
        run_code("import time\ntime.sleep(1.6)\nprint(6 * 7)"),
        sse(Delay(1.6), C({"content": "Forty-"}), gate, C({"content": "two."}), C({}, "stop")),
    ]
    with run(server, tmp_path) as child:
        child.expect(r"Running run_code [1-9] s")
        child.expect(r"Thinking… [1-9] s")
        child.expect("Forty")
        assert gate.reached.wait(30)
        gate.open()
        shown = rest_of(child)
    assert child.exitstatus == 0
    assert shown.count("Forty-two.") >= 1
    assert "Answer" in shown
    assert "2 steps" in shown


def test_no_an_edit_and_yes_are_what_becomes_of_code_that_deletes(server: ScriptedServer, tmp_path: Path) -> None:
    names = ("first.txt", "second.txt", "third.txt")
    for name in names:
        (tmp_path / name).write_text("x")
    editor = tmp_path / "editor.py"
    editor.write_text("import sys, pathlib\npathlib.Path(sys.argv[1]).write_text('print(\"spared\")')\n")
    server.responses = [*(run_code(f"import os\nos.remove({name!r})") for name in names), final("gone")]
    with run(server, tmp_path, EDITOR=f"{sys.executable} {editor}") as child:
        child.expect(r"Approve\?")
        child.sendline("n move it instead")
        child.expect(r"\[e\]dit")
        child.sendline("e")
        child.expect("spared")
        child.expect(r"Approve\?")
        child.sendline("y")
        child.expect("edited by you")
        child.expect(r"Approve\? \[y\]es / \[n\]o")
        asked = ANSI.sub("", child.before)
        assert "os.remove('third.txt')" in asked
        assert "overwrite" in asked
        assert (tmp_path / "third.txt").exists()
        child.sendline("what?")
        child.expect(r"Approve\?")
        child.sendline("y")
        shown = rest_of(child)
    assert child.exitstatus == 0
    assert "os.remove" not in shown, "the code is not shown twice"
    assert [name for name in names if (tmp_path / name).exists()] == ["first.txt", "second.txt"]
    assert "move it instead" in server.bodies[1]["messages"][-1]["content"]


@pytest.mark.parametrize("at", ["question", "stream", "code"])
def test_one_ctrl_c_stops_and_the_session_is_kept(server: ScriptedServer, tmp_path: Path, at: str) -> None:
    gate = Gate()
    (tmp_path / "old.txt").write_text("x")
    first, mark = {
        "question": (DELETE, r"Approve\?"),
        "stream": (sse(C({"content": "Let me "}), gate), "Let me"),
        "code": (run_code("import time\nprint('begun')\ntime.sleep(60)"), "Running run_code 1 s"),
    }[at]
    server.responses = [first]
    with run(server, tmp_path) as child:
        child.expect(mark)
        child.send(CTRL_C)
        shown = rest_of(child)
    assert child.exitstatus == 130
    assert "Stopped" in shown
    assert "Traceback" not in shown
    assert (tmp_path / "old.txt").exists()
    (listed,) = [json.loads(line) for line in called("sessions", "--json").stdout.splitlines()]
    assert listed["reason"] == "interrupted"
    assert listed["id"] in shown


def test_a_pipe_gets_plain_lines_and_what_nobody_can_allow_is_shown_and_not_run(
    server: ScriptedServer, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    (here / "old.txt").write_text("x")
    code = "import sys\nfor i in range(50): sys.stderr.write(f'\\r{i}%')\nprint('\\x1b[31mred\\x1b[0m')\n1/0"
    server.responses = [DELETE, run_code(code), final("It [bold]failed[/bold]. \x1b[2Jx")]
    done = called("run", "go", "--base-url", server.base_url, "--model", "stub")
    assert done.exit_code == 0, done.stderr
    assert (here / "old.txt").exists()
    assert "os.remove('old.txt')" in done.stdout
    assert "--approve" in done.stdout
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", done.stdout)
    for part in ("  49%\n", "  red\n", "ZeroDivisionError: division by zero", "It [bold]failed[/bold]. x"):
        assert done.stdout.count(part) == 1, part
    assert "48%" not in done.stdout


def test_quiet_prints_the_answer_alone_or_why_there_is_none(server: ScriptedServer, here: Path) -> None:
    server.responses = [run_code("print(1)"), final("One."), plain(401, {"error": {"message": "no"}})]
    words = ("run", "go", "--quiet", "--base-url", server.base_url, "--model", "stub")
    assert called(*words).stdout == "One.\n"
    (line,) = called(*words).stdout.splitlines()
    assert line.startswith("The model failed.")


def test_a_reader_that_leaves_does_not_disturb_the_run(server: ScriptedServer, tmp_path: Path) -> None:
    gate = Gate()
    server.responses = [run_code("print(1)"), sse(gate, C({"content": "ok"}), C({}, "stop"))]
    process = subprocess.Popen(
        [sys.executable, "-m", "nbagent", "run", "go", "--base-url", server.base_url, "--model", "stub"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert gate.reached.wait(30)
    process.stdout.close()
    gate.open()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_terminal_that_knows_few_characters_still_shows_the_answer(server: ScriptedServer, here: Path) -> None:
    server.responses = [run_code("print('ä')"), final("größer → 5")]
    words = ("run", "go", "--base-url", server.base_url, "--model", "stub")
    done = called(*words, charset="ascii")
    assert done.exit_code == 0, done.stderr
    assert "Answer: gr??er ? 5" in done.stdout


def test_ipython_shows_the_run_stops_it_goes_on_asks_in_the_cell_and_mends_the_last_exception(
    server: ScriptedServer, tmp_path: Path
) -> None:
    gate = Gate()
    (tmp_path / "old.txt").write_text("x")
    server.responses = [sse(C({"content": "Let me "}), gate), run_code("print(6 * 7)"), final("Forty-two.")]
    server.responses += [DELETE, final("kept"), DELETE, final("gone")]
    look = C(T(index=0, id="a", type="function", function=F("post_mortem", "{}")))
    server.responses += [sse(look, C({}, "tool_calls")), final("Divide by one.")]
    with ipython(server, tmp_path) as child:
        child.expect_exact("In [1]: ")
        child.sendline("%load_ext nbagent")
        child.expect_exact("In [2]: ")
        give(child, "wait")
        child.expect("Let me")
        child.send(CTRL_C)
        child.expect("Stopped")
        child.expect_exact("In [3]: ")
        give(child, "six times seven")
        child.expect("Forty-two")
        child.expect_exact("In [4]: ")
        child.sendline("print('the reason is', _agent.reason)")
        child.expect("the reason is answered")
        for answer, there in (("n", True), ("y", False)):
            child.expect_exact("]: ")
            give(child, "delete it")
            child.expect(r"Approve\?")
            child.sendline(answer)
            child.expect("Answer")
            assert (tmp_path / "old.txt").exists() is there
        child.expect_exact("]: ")
        child.sendline("amount = 5; amount / 0")
        child.expect("ZeroDivisionError: division")
        assert "Traceback" not in child.before.replace("Traceback (most recent call last)", "", 1)
        child.expect_exact("]: ")
        child.sendline("%agent fix")
        child.expect("Divide by one")
        child.sendline("exit")
        assert "Traceback" not in rest_of(child)
    seen = server.requests[-1].body["messages"][-1]["content"]
    assert "ZeroDivisionError: division by zero" in seen
    assert "  amount: int 5" in seen


def test_a_question_that_nobody_answers_is_a_no_and_the_command_ends(
    server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "old.txt").write_text("x")
    server.responses = [DELETE, final("It is kept.")]
    with run(server, tmp_path, "--approval-timeout", "1.5") as child:
        child.expect(r"Approve\?")
        shown = rest_of(child)
    assert child.exitstatus == 0
    assert "It is kept." in shown
    assert "Traceback" not in shown
    assert (tmp_path / "old.txt").exists()
    assert "no answer within 1.5 s" in server.bodies[1]["messages"][-1]["content"]


@pytest.mark.long
def test_a_is_a_yes_for_always(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("x")
    write = run_code("open('old.txt', 'w').write('y'); None")
    again = run_code("print(open('old.txt', 'w').write('zz'))", "b")
    server.responses = [write, again, final("Written.")]
    with run(server, tmp_path) as child:
        child.expect(r"\[a\]lways overwrites old\.txt / \[s\]ession: any code that overwrites files")
        child.sendline("a")
        shown = rest_of(child)
    assert child.exitstatus == 0
    assert "Approve?" not in shown
    assert (tmp_path / "old.txt").read_text() == "zz"
