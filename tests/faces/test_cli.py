"""`nbagent ...` as a user's shell runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from click.testing import CliRunner, Result

from nbagent.cli import main
from tests.scripted_server import Gate, ScriptedServer, final, plain, run_code, sse


def nbagent(
    *words: str, folder: Path, timeout: float = 60, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nbagent", *words],
        cwd=folder,
        env={**os.environ, "NBAGENT_CACHE": str(folder / "cache"), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def called(*words: str, charset: str = "utf-8") -> Result:
    """Call the command line in this process."""
    return CliRunner(charset=charset).invoke(main, words)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command line is called in."""
    monkeypatch.setenv("NBAGENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_answers_exports_and_lists_the_session(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text("name,price\na,1\nb,3\n")
    steps = [
        run_code("import pandas as pd\nprint(pd.read_csv('shop.csv').price.mean())"),
        final("The mean is 2.0."),
    ]
    with ScriptedServer(steps) as server:
        words = ("--base-url", server.base_url, "--model", "stub", "--data", "shop.csv", "--export", "out.ipynb")
        done = nbagent("run", "What is the mean price?", *words, folder=tmp_path)
        assert "'price': number" in server.bodies[0]["messages"][1]["content"]
    assert done.returncode == 0, done.stderr
    assert "The mean is 2.0." in done.stdout
    assert "\x1b" not in done.stdout
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert "2.0" in json.dumps(notebook)
    listed = [json.loads(line) for line in called("sessions", "--json").stdout.splitlines()]
    assert listed[0]["task"] == "What is the mean price?"
    again = called("export", listed[0]["id"], str(tmp_path / "again.ipynb"))
    assert again.exit_code == 0, again.output
    assert called("export", listed[0]["id"], str(tmp_path / "again.ipynb")).exit_code == 2


def test_json_prints_one_event_a_line_and_nothing_else(here: Path) -> None:
    with ScriptedServer([run_code("print(1)"), final("1")]) as server:
        done = called("run", "go", "--json", "--base-url", server.base_url, "--model", "stub")
    types = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert types[0] == "RunStarted"
    assert types[-1] == "RunFinished"
    assert "ThoughtDelta" not in types


@pytest.mark.parametrize(
    ("responses", "words", "code"),
    [
        ([plain(401, {"error": {"message": "no"}})], (), 1),
        ([run_code("x = 1")], ("--max-steps", "1"), 3),
        ([], ("--no-such",), 2),
    ],
)
def test_exit_codes_tell_how_it_ended(
    here: Path, responses: list[object], words: tuple[str, ...], code: int
) -> None:
    with ScriptedServer(responses) as server:  # type: ignore[arg-type]
        done = called("run", "go", "--base-url", server.base_url, "--model", "stub", *words)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("--max-steps", "none"), ("--data", "missing.csv")])
def test_what_cannot_be_is_refused_before_the_run(here: Path, words: tuple[str, ...]) -> None:
    done = called("run", "go", "--base-url", "http://127.0.0.1:9/v1", "--model", "stub", *words)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.stderr


def test_without_key_and_weights_one_line_says_what_to_do(here: Path) -> None:
    done = called("run", "go")
    assert done.exit_code == 2
    assert "nbagent model pull" in done.stderr
    assert "OPENAI_API_KEY" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_export_is_refused_before_any_work_where_the_file_is_there(here: Path) -> None:
    (here / "mine.ipynb").write_text("mine")
    with ScriptedServer() as server:
        words = ("--base-url", server.base_url, "--model", "stub", "--export", "mine.ipynb")
        done = called("run", "go", *words)
        assert not server.requests
    assert done.exit_code == 2
    assert (here / "mine.ipynb").read_text() == "mine"


def test_a_home_that_cannot_be_written_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "file").write_text("")
    monkeypatch.setenv("NBAGENT_HOME", str(here / "file" / "home"))
    done = called("run", "go", "--base-url", "http://127.0.0.1:9", "--model", "m")
    assert done.exit_code not in (0, None)
    assert "NBAGENT_HOME" in done.stderr
    assert "Traceback" not in done.stderr


def test_model_list_names_what_there_is(here: Path) -> None:
    text = called("model", "list").stdout
    assert "local:qwen2.5-coder-1.5b (default)" in text
    assert "not here" in text


def test_nothing_is_left_running_when_the_process_is_killed(tmp_path: Path) -> None:
    gate = Gate()
    with ScriptedServer([run_code("import os; print(os.getpid())"), sse(gate)]) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "nbagent", "run", "go", "--base-url", server.base_url, "--model", "stub"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert gate.reached.wait(30)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.kill()
        process.wait()
        _gone, alive = psutil.wait_procs(children, timeout=10)
        assert not alive


def test_every_command_has_help() -> None:
    listed = called("--help").stdout
    for command in ("demo", "export", "lab", "model", "run", "sessions"):
        assert command in listed
        assert called(command, "--help").exit_code == 0


@pytest.mark.parametrize("target", ["out.txt", "file/out.ipynb", "folder.ipynb", "out"])
def test_an_export_that_cannot_be_written_is_refused_before_the_run(here: Path, target: str) -> None:
    (here / "file").write_text("")
    (here / "folder.ipynb").mkdir()
    words = ("--base-url", "http://127.0.0.1:9/v1", "--model", "stub", "--force", "--export", target)
    done = called("run", "go", *words)
    assert done.exit_code == 2
    assert f"--export {target}" in done.stderr
    assert "Traceback" not in done.stderr
    assert "No sessions yet." in called("sessions").stdout


@pytest.mark.parametrize(
    "closed", ["<&- >&- 2>&-", ">&-", *(pytest.param(one, marks=pytest.mark.long) for one in ("<&-", "2>&-"))]
)
def test_a_run_whose_streams_are_closed_ends_as_any_other(tmp_path: Path, closed: str) -> None:
    with ScriptedServer([final("ok")]) as server:
        command = f"{sys.executable} -m nbagent run go --base-url {server.base_url} --model stub {closed}"
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_lab_opens_jupyterlab_on_the_quickstart(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nbagent", "lab", "mine", "--no-browser"],
        cwd=tmp_path,
        env={**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path / "run")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert any("/lab/tree/quickstart.ipynb?token=" in line for line in process.stdout)
        assert (tmp_path / "mine" / "quickstart.ipynb").is_file()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.long
def test_an_export_is_proven_or_the_exit_code_says_that_it_is_not(tmp_path: Path) -> None:
    steps = [run_code("x = 6 * 7"), run_code("y = 1"), run_code("print(x)"), final("42")]
    with ScriptedServer(steps) as server:
        words = ("--model", "stub", "--export", "a.ipynb", "--distill", "--verify", "--base-url", server.base_url)
        done = nbagent("run", "go", *words, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "distilled: Verified: 2 code cells gave the same" in done.stdout
    assert "left out: run 1, step 2: nothing that is kept uses its y" in done.stdout
    steps = [run_code("import time\nprint(time.time_ns())"), final("Now.")]
    with ScriptedServer(steps) as server:
        options = ("--model", "stub", "--export", "b.ipynb", "--verify", "--base-url", server.base_url)
        done = nbagent("run", "go", *options, folder=tmp_path)
    assert done.returncode == 4
    assert done.stderr.startswith("nbagent: b.ipynb was written, but it is not proven. Not verified: cell 2 gave")
    assert "the code asks for what differs each time (time.time_ns)" in done.stderr
    assert nbagent("verify", "b.ipynb", folder=tmp_path).returncode == 4
