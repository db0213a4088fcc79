"""Recorded `%%agent` cells under Run All: the same outputs without a model, in nbclient and papermill."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from nbagent.errors import UsageError
from nbagent.notebook.replay import Found, Records, in_output, key_of, withdraw_runs
from nbagent.record import from_values
from tests.faces.notebook import Cells, kernel
from tests.scripted_server import Response, ScriptedServer, final, run_code

CELLS = [
    "%load_ext nbagent\nprices = [2, 4]",
    "%%agent --max-steps 5\nWhat is the mean of prices?",
    "print(_agent.answer)",
]
RESPONSES = [run_code("1/0"), run_code("mean = sum(prices) / len(prices)\nprint(mean)"), final("The mean is 3.0.")]
NO_MODEL = {"NBAGENT_MODEL": "", "NBAGENT_BASE_URL": "", "NBAGENT_CACHE": "/nonexistent"}


class Runner:
    """Executes a notebook in `folder` with nbclient, each time in a new kernel."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "NBAGENT_HOME": str(home)}

    def all(self, notebook: Any, **environment: str) -> Any:
        """Run All; give the executed notebook."""
        executed = copy.deepcopy(notebook)
        client = NotebookClient(
            executed, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(self.folder)}}
        )
        client.execute(env={**self.environment, **NO_MODEL, **environment}, cleanup_kc=True)
        return executed

    def recorded(self, responses: Sequence[Response] = RESPONSES, cells: Sequence[str] = CELLS) -> Any:
        with ScriptedServer(responses) as server:
            done = self.all(of(*cells), NBAGENT_MODEL="stub", NBAGENT_BASE_URL=server.base_url)
            server.assert_complete()
        return done


def of(*cells: str) -> Any:
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )


def trace(notebook: Any, index: int = 1) -> str:
    return "".join(output.data["text/plain"] for output in notebook.cells[index].outputs if "data" in output)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    return Runner(folder, tmp_path / "home")


def test_run_all_gives_the_same_outputs_without_a_model(runner: Runner) -> None:
    first = runner.recorded()
    nbformat.validate(first)
    again = runner.all(first)
    nbformat.validate(again)
    assert again.cells[2].outputs == first.cells[2].outputs
    told, said = trace(first), trace(again)
    for expected in ("ZeroDivisionError", "print(mean)", "3.0", "The mean is 3.0."):
        assert expected in told
        assert expected in said
    assert "Replayed from the record of" in said
    assert "--again" in said
    assert again.cells[1].outputs[0].metadata == first.cells[1].outputs[0].metadata


@pytest.mark.long
def test_a_changed_cell_and_again_ask_the_model_anew(runner: Runner) -> None:
    first = runner.recorded()
    changed = copy.deepcopy(first)
    changed.cells[1].source += " Please."
    with ScriptedServer([final("Anew.")]) as server:
        asked = runner.all(changed, NBAGENT_MODEL="stub", NBAGENT_BASE_URL=server.base_url)
    assert "Anew." in trace(asked)
    changed.cells[1].source = first.cells[1].source.replace("%%agent", "%%agent --again")
    with ScriptedServer([final("Again.")]) as server:
        asked = runner.all(changed, NBAGENT_MODEL="stub", NBAGENT_BASE_URL=server.base_url)
    assert "Again." in trace(asked)
    assert "Again." in trace(runner.all(first))  # the record is the newest answer to these words


@pytest.mark.long
def test_a_notebook_carries_its_records_to_another_machine(runner: Runner, tmp_path: Path) -> None:
    first = runner.recorded()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    nbformat.write(first, elsewhere / "mean.ipynb")
    stranger = Runner(elsewhere, tmp_path / "other-home")
    again = stranger.all(first, NBAGENT_REPLAY="only")
    assert "The mean is 3.0." in trace(again)
    assert again.cells[2].outputs == first.cells[2].outputs


@pytest.mark.long
def test_papermill_replays_and_keeps_the_records(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    import papermill

    first = runner.recorded()
    nbformat.write(first, runner.folder / "in.ipynb")
    for name, value in {**runner.environment, **NO_MODEL, "NBAGENT_REPLAY": "only"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(runner.folder)
    papermill.execute_notebook(
        "in.ipynb", "out.ipynb", progress_bar=False, log_output=False, kernel_name="python3"
    )
    out = nbformat.read(runner.folder / "out.ipynb", as_version=4)
    assert "The mean is 3.0." in trace(out)
    assert out.cells[1].outputs[0].metadata == first.cells[1].outputs[0].metadata
    assert out.cells[2].outputs[0].text == "The mean is 3.0.\n"


# -- one kernel, many cells -----------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as made:
        yield made


class Process:
    """A kernel of its own for a cell, in one folder and home, as a fresh Run All has it."""

    def __init__(self, folder: Path, home: Path, server: ScriptedServer) -> None:
        self.folder, self.home, self.server = folder, home, server
        folder.mkdir()

    def cells(self, **environment: str) -> Any:
        values = {"NBAGENT_HOME": str(self.home), "NBAGENT_CACHE": "/nonexistent", **environment}
        return kernel(self.folder, values)

    def live(self) -> dict[str, str]:
        return {"NBAGENT_MODEL": "stub", "NBAGENT_BASE_URL": self.server.base_url}


@pytest.fixture
def process(tmp_path: Path, server: ScriptedServer) -> Process:
    return Process(tmp_path / "work", tmp_path / "home", server)


def begun(cells: Cells) -> Cells:
    cells.run("%load_ext nbagent")
    return cells


@pytest.mark.long
def test_cells_of_the_same_words_have_each_their_own_record(process: Process) -> None:
    process.server.responses = [run_code("n = 1\nn"), final("one"), run_code("n += 1\nn"), final("two")]
    with process.cells(**process.live()) as cells:
        for _ in range(2):
            begun(cells).run("%%agent\ncontinue")
    with process.cells(NBAGENT_REPLAY="only") as cells:
        assert "one" in begun(cells).text("%%agent\ncontinue")
        assert "two" in cells.text("%%agent\ncontinue")
        missing = cells.text("%%agent\ncontinue")
        assert "there is no record of it" in missing
        assert cells.status == "error"


@pytest.mark.long
def test_what_no_longer_holds_is_said_and_what_no_longer_runs_ends_the_replay(process: Process) -> None:
    (process.folder / "n.txt").write_text("4")
    process.server.responses = [run_code("n = int(open('n.txt').read())\nprint(n)"), final("It is 4.")]
    with process.cells(**process.live()) as cells:
        begun(cells).run("%%agent\nread n")
    (process.folder / "n.txt").write_text("5")
    with process.cells() as cells:
        said = begun(cells).text("%%agent\nread n")
        assert "It is 4." in said
        assert "Otherwise than recorded: step 1" in said
    (process.folder / "n.txt").unlink()
    with process.cells(NBAGENT_REPLAY="only") as cells:
        said = begun(cells).text("%%agent\nread n")
        assert "does not run any more: step 1 failed (FileNotFoundError" in said
        assert "It is 4." not in said
        assert cells.status == "error"


@pytest.mark.long
def test_replayed_code_is_graded_and_asked_about_like_any_other(process: Process) -> None:
    (process.folder / "keep.txt").write_text("mine")
    code = "open('keep.txt', 'w').write('theirs')"
    process.server.responses = [run_code(code), final("written")]
    with process.cells(**process.live(), NBAGENT_APPROVE="off") as cells:
        begun(cells).run("%%agent\nwrite")
    (process.folder / "keep.txt").write_text("mine")
    with process.cells() as cells:
        said = begun(cells).text("%%agent\nwrite")
        assert "nobody was there to ask" in said
        assert (process.folder / "keep.txt").read_text() == "mine"
    with process.cells(NBAGENT_APPROVE="auto") as cells:
        assert "written" in begun(cells).text("%%agent\nwrite")
        assert (process.folder / "keep.txt").read_text() == "theirs"


@pytest.mark.long
def test_a_damaged_record_is_named_and_the_model_asked(process: Process) -> None:
    process.server.responses = [final("first"), final("second")]
    with process.cells(**process.live()) as cells:
        begun(cells).run("%%agent\ngo")
    (file,) = process.home.glob("records/*/*.json")
    file.write_text('{"record": {"version": 99}, "folder": "", "notebook": ""')
    with process.cells(NBAGENT_REPLAY="only") as cells:
        assert "is damaged" in begun(cells).text("%%agent\ngo")
    with process.cells(**process.live()) as cells:
        said = begun(cells).text("%%agent\ngo")
        assert "The model is asked: its record" in said
        assert "second" in said
    with process.cells() as cells:
        assert "second" in begun(cells).text("%%agent\ngo")


# -- records alone --------------------------------------------------------------------------------------


class Shell:
    """What a front end tells of the running cell."""

    def __init__(self, cell: str = "") -> None:
        self.parent_header = {"metadata": {"cellId": cell}}
        self.user_ns: dict[str, Any] = {}


def test_the_key_is_of_text_and_options() -> None:
    base = key_of({"model": "a", "max_steps": None, "again": False}, "count\n")
    assert base == key_of({"again": True, "quiet": True, "model": "a"}, "\ncount  ")
    assert base != key_of({"model": "b"}, "count")
    assert base != key_of({"model": "a"}, "count it")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"cells": 3}',
        b'{"cells": [{"cell_type": "code", "source": ["%%agent\\n", "go"], "outputs": [3, {"metadata": []}]}]}',
        b'{"cells": [null]}',
        b"[" * 100_000,
    ],
)
def test_any_file_that_calls_itself_a_notebook_is_looked_into_without_harm(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.ipynb").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    records = Records(Shell(), tmp_path / "home", asks=False)
    assert records.find("0" * 32, "auto", again=False).record is None


def test_only_the_first_execution_of_a_cell_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = {"key": "k", "recorded": "2026-12-01T00:00:00Z", "model": "m", "dialect": "tools", "steps": []}
    ours = {"nbagent": {"record": {**record, "reason": "answered", "answer": "old"}}}
    cell = {"cell_type": "code", "source": "%%agent\ngo", "outputs": [{"metadata": ours}]}
    notebook = tmp_path / "a.ipynb"
    notebook.write_text(json.dumps({"cells": [cell]}))
    shell = Shell("cell-1")
    monkeypatch.setenv("JPY_SESSION_NAME", str(notebook))
    records = Records(shell, tmp_path / "home", asks=True)
    found = records.find("k", "auto", again=False)
    assert found.record is not None
    assert found.record.answer == "old"
    assert records.find("k", "auto", again=False).record is None
    shell.parent_header["metadata"]["cellId"] = "cell-2"
    assert records.find("k", "auto", again=False).record is None  # another cell of these words has no record
    assert records.find("other", "auto", again=False).record is None


def test_what_was_undone_is_replayed_no_more_wherever_its_record_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"key": "k", "recorded": "2026-12-01T00:00:00Z", "model": "m", "dialect": "tools", "steps": []}
    record = from_values({**values, "reason": "answered"})
    cell = {"cell_type": "code", "source": "%%agent\ngo", "outputs": [{"metadata": in_output(record)}]}
    notebook = tmp_path / "a.ipynb"
    notebook.write_text(json.dumps({"cells": [cell]}))
    monkeypatch.setenv("JPY_SESSION_NAME", str(notebook))

    def found() -> tuple[Records, Found]:
        records = Records(Shell("cell-1"), tmp_path / "home", asks=True)
        return records, records.find("k", "auto", again=False)

    records, before = found()
    records.keep(record)
    assert before.record == record
    records.withdraw(records.file_of(record))
    records, after = found()
    assert after == Found(note="what it did was undone")
    newer = record.model_copy(update={"recorded": datetime.now(UTC) + timedelta(seconds=1)})
    records.keep(newer, "session", 3)
    for session, runs in (("session", [2]), ("other", [3])):
        withdraw_runs(tmp_path / "home", session, runs)
        assert found()[1].record == newer
    withdraw_runs(tmp_path / "home", "session", [1, 3])  # as another process does, which did not record it
    assert found()[1] == Found(note="what it did was undone")


def test_a_record_of_a_stranger_can_do_no_more_than_be_shown_and_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good = {"key": "k", "recorded": "2026-12-01T00:00:00Z", "model": "m", "dialect": "tools", "reason": "answered"}
    step = {"actions": [{"tool": "run_code", "arguments": "{}", "status": "ok", "outputs": ""}]}
    masked = {
        "tool": "run_code",
        "arguments": '{"code": "k = \'[masked API_KEY]\'"}',
        "status": "ok",
        "outputs": "",
    }
    hostile: list[dict[str, Any]] = [
        {**good, "key": "another", "steps": []},
        {**good, "version": 2, "steps": []},
        {**good, "steps": [{"actions": "x"}]},
        {**good, "steps": [step] * 10_001},
        {**good, "steps": [], "reason": "because"},
        {**good, "steps": [{"actions": [masked]}]},
    ]
    for record in hostile:
        cell = {
            "cell_type": "code",
            "source": "%%agent\ngo",
            "outputs": [{"metadata": {"nbagent": {"record": record}}}],
        }
        (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}))
        records = Records(Shell(), tmp_path / "home", asks=False)
        found = records.find("k", "auto", again=False)
        assert found.record is None
        assert len(found.note.splitlines()) <= 1
        with pytest.raises(UsageError, match="cannot be replayed"):
            Records(Shell(), tmp_path / "home", asks=False).find("k", "only", again=False)
