"""A session's log as a notebook: valid, in order, safe to pass on, and it runs."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
import pytest
from nbconvert import HTMLExporter

from nbagent.errors import FileExistsRefused, StoreError, UsageError, VerificationFailed
from nbagent.events import ActionStarted, DataFile, DataFilesSeen, FileChange, FilesChanged, Shared
from nbagent.notebook.export import export_notebook
from nbagent.notebook.metadata import data_files_of, made_files_of, originals_of
from nbagent.redaction import Redactor
from tests.notebook.clean_kernel import execute_clean
from tests.notebook.logs import Log, raised, stream


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "report.ipynb"


def exported(log: Log, target: Path, **options: Any) -> Any:
    """Export and read back; what comes back is valid and strict JSON."""
    export_notebook(log.events, target, **options)
    text = target.read_bytes().decode("utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    return notebook


def sources(notebook: Any, kind: str) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.metadata.nbagent.kind == kind]


def code(notebook: Any) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


# -- what it holds --------------------------------------------------------------------------------------


def test_task_thoughts_code_with_its_outputs_and_answer_come_in_order(target: Path) -> None:
    result = {
        "output_type": "execute_result",
        "execution_count": 17,
        "data": {"text/plain": "2.0"},
        "metadata": {},
    }
    log = Log().task().thought("I add them up.").ran("m = 2.0", stream("adding\n")).ran("m", result)
    notebook = exported(log.answer("The mean is 2.0."), target)
    assert [cell.metadata.nbagent.kind for cell in notebook.cells] == [
        "task",
        "thought",
        "action",
        "action",
        "ending",
    ]
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "markdown", "code", "code", "markdown"]
    assert notebook.cells[0].source == "## Task\n\nWhat is the mean?"
    assert notebook.cells[2].outputs[0].text == "adding\n"
    assert notebook.cells[3].outputs[0].execution_count == notebook.cells[3].execution_count == 2
    assert notebook.cells[4].source == "## Answer\n\nThe mean is 2.0."


def test_cell_ids_are_unique_and_counts_go_up_from_one(target: Path) -> None:
    log = Log()
    for _ in range(3):
        log.task().thought("t").ran("1").failed("x").ran("2").answer("a")
    notebook = exported(log, target)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == [1, 2, 3, 4, 5, 6]


def test_metadata_tells_model_prompt_versions_usage_and_how_each_step_and_run_ended(target: Path) -> None:
    notebook = exported(Log().task().thought("t").ran("1").answer("a"), target)
    told = notebook.metadata.nbagent
    (run,) = told.runs
    assert told.versions == {"python": "3.11.2", "nbagent": "0.1.0"}
    assert (run.model, run.reason, run.usage.total_tokens, len(run.prompt_sha256)) == ("m", "answered", 15, 64)
    step = next(cell for cell in notebook.cells if cell.cell_type == "code").metadata.nbagent
    assert (step.run, step.step, step.status) == (1, 1, "ok")
    assert notebook.cells[-1].metadata.nbagent.reason == "answered"
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.language_info.name == "python"


def test_the_same_log_gives_the_same_bytes(target: Path) -> None:
    log = Log().task().thought("t").ran("1", stream("x")).answer("a")
    export_notebook(log.events, target)
    export_notebook(log.events, target.with_name("again.ipynb"))
    assert target.read_bytes() == target.with_name("again.ipynb").read_bytes()


def test_the_answer_is_not_said_twice(target: Path) -> None:
    notebook = exported(Log().task().thought("t").ran("1").thought("It is 2.").answer("It is 2."), target)
    assert sum("It is 2." in cell.source for cell in notebook.cells) == 1


def test_the_local_models_caveat_stands_beside_its_answer(target: Path) -> None:
    notebook = exported(Log().task(label="local 1.5B: check it").answer("2"), target)
    assert notebook.cells[-1].source == "## Answer\n\n2\n\n(local 1.5B: check it)"


def test_hidden_reasoning_is_left_out_unless_asked_for(target: Path) -> None:
    log = Log().task().reasoning("hmm").answer("a")
    assert "hmm" not in json.dumps(exported(log, target))
    assert "hmm" in json.dumps(exported(log, target, force=True, reasoning=True))


def test_a_display_that_a_later_cell_updates_shows_its_last_state(target: Path) -> None:
    shown = {"output_type": "display_data", "data": {"text/plain": "10 %"}, "transient": {"display_id": "bar"}}
    log = (
        Log()
        .task()
        .ran("show()", shown)
        .ran("go()", {**shown, "output_type": "update_display_data"} | {"data": {"text/plain": "99 %"}})
    )
    first, second = [cell for cell in exported(log.answer("a"), target).cells if cell.cell_type == "code"]
    assert first.outputs[0].data["text/plain"] == "99 %"
    assert second.outputs == []


def test_several_runs_of_a_session_follow_each_other(target: Path) -> None:
    log = Log().task("one").ran("a = 1").answer("first").task("two").ran("a").answer("second")
    notebook = exported(log, target)
    assert sources(notebook, "task") == ["## Task\n\none", "## Task\n\ntwo"]
    assert sources(notebook, "ending") == ["## Answer\n\nfirst", "## Answer\n\nsecond"]


def test_a_run_that_a_limit_ended_says_so(target: Path) -> None:
    notebook = exported(Log().task().ran("1").ended("max_steps", "15 steps were not enough."), target)
    assert notebook.cells[-1].source == "## Not answered: max_steps\n\n15 steps were not enough."


def test_a_run_that_never_ended_says_so(target: Path) -> None:
    log = Log().task("one").thought("t").ran("1").task("two").answer("a").task("three")
    endings = sources(exported(log, target), "ending")
    assert [ending.splitlines()[0] for ending in endings] == ["## Unfinished", "## Answer", "## Unfinished"]


def test_a_log_that_was_cut_off_anywhere_can_be_exported(target: Path, tmp_path: Path) -> None:
    log = Log().task("one").kernel().reasoning("r").thought("t").shared("n", 1, tmp_path).ran("n", stream("1\n"))
    log.failed("n.a").not_run("x", "denied").died("boom()", stream("so")).ran("n").answer("1").task("two").ran("2")
    for length in range(3, len(log.events) + 1):
        part = Log()
        part.events = log.events[:length]
        assert exported(part, target, force=True).cells


def test_a_session_without_a_run_cannot_be_exported(target: Path) -> None:
    with pytest.raises(UsageError, match="nothing to export"):
        export_notebook(Log().events, target)
    with pytest.raises(UsageError, match="nothing to export"):
        export_notebook([], target)


# -- what is not executed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (Log().task().ran("spin()", stream("so far\n"), status="timeout", summary="over 5 s"), "ran out of time"),
        (Log().task().ran("spin()", stream("so far\n"), status="interrupted"), "was interrupted"),
        (Log().task().died("spin()", stream("so far\n")), "stopped with the kernel"),
        (Log().task().not_run("spin()", "denied", "the user said no"), "was not allowed"),
        (Log().task().not_run("spin()", "invalid"), "could not be run"),
        (Log().task().not_run("spin()", "skipped"), "was skipped"),
        (Log().task().failed("spin()"), "failed"),
    ],
)
def test_what_did_not_end_well_is_text_and_clean_leaves_it_out(log: Log, said: str, target: Path) -> None:
    log.ran("print(1)").answer("a")
    notebook = exported(log, target)
    (step,) = [cell for cell in notebook.cells if "spin" in cell.source]
    assert step.cell_type == "markdown"
    assert said in step.source
    assert step.metadata.nbagent.status
    assert code(notebook) == ["print(1)"]
    assert "spin" not in json.dumps(exported(log, target, rung="clean", force=True))


def test_what_a_stopped_step_had_printed_is_kept(target: Path) -> None:
    log = Log().task().ran("spin()", stream("so far\n"), status="timeout").answer("a")
    assert "```\nso far\n```" in sources(exported(log, target), "action")[0]


def test_code_that_is_not_executed_cannot_leave_its_fence(target: Path) -> None:
    log = Log().task().not_run('x = """\n```\n<script>alert(1)</script>\n````\n"""', "denied").answer("a")
    assert sources(exported(log, target), "action")[0].endswith('\n"""\n`````')


def test_a_failed_step_is_code_where_a_later_cell_needs_what_it_bound(target: Path) -> None:
    log = (
        Log().task().failed("a = 1\nb = a / 0", "ZeroDivisionError: division by zero").ran("print(a)").answer("1")
    )
    for clean in (False, True):
        notebook = exported(log, target, rung="clean" if clean else "full", force=True)
        assert code(notebook) == ["a = 1\nb = a / 0", "print(a)"]
        failed = next(cell for cell in notebook.cells if cell.cell_type == "code")
        assert failed.metadata.tags == ["raises-exception"]
        assert failed.outputs[0].ename == "ZeroDivisionError"
    assert execute_clean(target)[1][1] == "1\n"


def test_clean_leaves_out_the_thoughts_of_what_it_leaves_out(target: Path) -> None:
    log = Log().task().thought("try aa").failed("df.aa").thought("then a").ran("1").answer("a")
    assert sources(exported(log, target, rung="clean"), "thought") == ["then a"]


def test_a_step_that_ended_without_raising_is_not_run_again_even_where_its_names_are_needed(target: Path) -> None:
    log = Log().task().ran("a = 1\nexit_hard()", status="error", summary="the kernel died").ran("print(a)")
    assert code(exported(log.answer("1"), target)) == ["print(a)"]


def test_lost_state_is_said_once(target: Path) -> None:
    log = Log().task().kernel().ran("a = 1").died("boom()").kernel().ran("b = 2").answer("x")
    notes = sources(exported(log, target), "note")
    assert len(notes) == 1
    assert "started anew" in notes[0]
    assert "df" in notes[0]


# -- it runs --------------------------------------------------------------------------------------------


def test_it_runs_in_a_clean_kernel_in_an_empty_folder(target: Path, tmp_path: Path) -> None:
    """EXP-03: the user's variable, a failed step, magics and shell lines; nothing of it calls a model."""
    log = Log().task().shared("rows", [1, 2, 3], tmp_path).failed("rows.aa", "AttributeError: aa")
    log.ran("m = sum(rows) / 3").ran("%matplotlib inline").ran("!echo hi").ran("print(m)").answer("2.0")
    notebook = exported(log, target)
    assert code(notebook)[1:] == ["m = sum(rows) / 3", "%matplotlib inline", "!echo hi", "print(m)"]
    (tmp_path / "empty").mkdir()
    assert execute_clean(target, folder=tmp_path / "empty")[-1][1] == "2.0\n"


def test_a_variable_that_was_brought_for_a_cell_comes_before_it(target: Path, tmp_path: Path) -> None:
    log = Log().task().ran("n = 0").propose("n.append(3)").shared("n", [1, 2], tmp_path, call="call_2")
    log.run_proposed("n.append(3)", shared=("m", [4], tmp_path)).ran("print(n + m)").answer("a")
    export_notebook(log.events, target)
    assert execute_clean(target)[-1][1] == "[1, 2, 3, 4]\n"


def test_actions_of_one_reply_stand_in_the_order_in_which_they_ran(target: Path) -> None:
    log = Log().task().propose("boom()").propose("print(1)").run_proposed("boom()", call="call_1", dies=True)
    log.run_proposed("print(1)", call="call_2").answer("a")
    kinds = [cell.metadata.nbagent.kind for cell in exported(log, target).cells]
    assert kinds == ["task", "action", "note", "action", "ending"]


def test_a_large_variable_lies_beside_the_notebook(target: Path, tmp_path: Path) -> None:
    log = Log().task().shared("text", "x" * 100_000, tmp_path).ran("print(len(text))").answer("a")
    report = export_notebook(log.events, target)
    assert report.data_files == (target.parent / "report_data" / "text.pickle",)
    assert execute_clean(target)[-1][1] == "100000\n"


def test_a_variable_that_is_shared_again_is_brought_again_at_its_place(target: Path, tmp_path: Path) -> None:
    log = (
        Log().task().shared("n", 1, tmp_path).ran("print(n)").shared("n", 2, tmp_path).ran("print(n)").answer("a")
    )
    export_notebook(log.events, target)
    assert [text for _, text in execute_clean(target)] == ["", "1\n", "", "2\n"]


def test_a_variable_whose_data_is_gone_is_named_by_the_first_cell(target: Path, tmp_path: Path) -> None:
    log = Log().task().add(Shared(name="df", summary="DataFrame (3, 1)", file=str(tmp_path / "no"))).ran("df")
    report = export_notebook(log.answer("a").events, target)
    assert report.missing == ("df (DataFrame (3, 1)), whose data is no longer in the session",)
    with pytest.raises(VerificationFailed, match=r"cell 1 raised NameError: this notebook needs df \(DataFrame"):
        execute_clean(target)


# -- it is safe to pass on ------------------------------------------------------------------------------

KEY, PASSWORD = "sk-test-ABCDEFGHIJKLMNOPQRSTUVWX", "hunter2hunter2"
REDACTOR = Redactor.from_environment({"OPENAI_API_KEY": KEY, "DB_PASSWORD": PASSWORD, "MY_TOKEN": "a"})


def test_no_secret_and_no_private_path_is_in_any_file(target: Path, tmp_path: Path) -> None:
    """EXP-04, from a log that was written without masking."""
    encoded = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
    log = Log(folder="/home/someone/work").task(f"Use {KEY}").thought(f"{KEY} {quote(PASSWORD)}")
    log.shared("config", {"key": KEY}, tmp_path).shared("big", KEY + "x" * 100_000, tmp_path)
    log.ran(f'k = "{KEY}"', stream(KEY[:9]), stream(KEY[9:]), raised(f"E: {KEY} in /home/someone/work/x.py"))
    log.ran("k", {"output_type": "display_data", "data": {"application/json": {KEY: [encoded]}}, "metadata": {}})
    log.ran("p", stream("/home/someone/work/x.py /home/someone/work /home/someone/.cache /home/someone2/y\n"))
    log.not_run(f'k = "{KEY}"', "denied", KEY).ended("model_error", f"Authorization: Bearer {KEY}")
    notebook = exported(log, target, redactor=REDACTOR, home=Path("/home/someone"))
    for file in (file for file in target.parent.rglob("*") if file.is_file()):
        content = file.read_bytes()
        for secret in (KEY, PASSWORD, KEY[:20], encoded[-12:], base64.b64encode(KEY.encode()).decode()[:20]):
            assert secret.encode() not in content
    text = json.dumps(notebook)
    assert "x.py . ~/.cache /home/someone2/y" in text
    assert "/home/someone/" not in text
    assert "a secret and was not exported" in text
    assert "a masked" not in text


def test_paths_in_code_stay_what_they_were(target: Path) -> None:
    log = Log(folder="/home/someone/work").task().ran('open("/home/someone/work/x.csv")').answer("a")
    assert code(exported(log, target, home=Path("/home/someone"))) == ['open("/home/someone/work/x.csv")']


def test_what_a_model_says_cannot_load_or_run_anything(target: Path) -> None:
    """SEC-02, up to the page that nbconvert makes; figures of the agent's own steps are still shown."""
    nasty = '![x](http://127.0.0.1:9/p.png?q=1) <img src="http://127.0.0.1:9/h.png"> <script>bad()</script>'
    figure = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo="}, "metadata": {}}
    log = Log().task(nasty).thought(nasty).ran("plot()", figure).not_run("x", "denied", nasty).answer(nasty)
    export_notebook(log.events, target)
    page = HTMLExporter().from_filename(str(target))[0]
    body = page[page.index("<body") :]
    assert "<script>bad" not in body
    assert 'src="http://127' not in body
    assert re.sub("<[^>]*>", "", body).count("![x](http://127.0.0.1:9/p.png?q=1)") == 4
    assert "data:image/png;base64,iVBORw0KGgo=" in body


# -- the file -------------------------------------------------------------------------------------------


def small() -> Log:
    return Log().task().ran("1").answer("a")


def test_an_existing_file_is_refused_and_unchanged(target: Path) -> None:
    target.write_text("mine")
    with pytest.raises(FileExistsRefused, match="--force"):
        export_notebook(small().events, target)
    assert target.read_text() == "mine"
    assert list(target.parent.iterdir()) == [target]


def test_force_replaces_the_file_in_one_step(target: Path) -> None:
    target.write_text("mine")
    before = target.stat().st_ino
    export_notebook(small().events, target, force=True)
    assert target.stat().st_ino != before
    nbformat.validate(nbformat.read(target, as_version=4))
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_refused_and_with_force_replaced_itself(target: Path, tmp_path: Path, there: bool) -> None:
    other = tmp_path / "other.ipynb"
    if there:
        other.write_text("other")
    target.symlink_to(other)
    with pytest.raises(FileExistsRefused):
        export_notebook(small().events, target)
    export_notebook(small().events, target, force=True)
    assert not target.is_symlink()
    assert (other.read_text() if there else other.exists()) == ("other" if there else False)


def test_an_existing_data_file_is_refused_before_anything_is_written(target: Path, tmp_path: Path) -> None:
    (target.parent / "report_data").mkdir()
    (target.parent / "report_data" / "text.pickle").write_text("mine")
    log = Log().task().shared("text", "x" * 100_000, tmp_path).answer("a")
    with pytest.raises(FileExistsRefused):
        export_notebook(log.events, target)
    assert not target.exists()


def test_a_folder_that_cannot_be_written_is_one_line(target: Path) -> None:
    (target.parent / "file").write_text("")
    with pytest.raises(StoreError, match=r"^cannot make the folder [^\n]*$"):
        export_notebook(small().events, target.parent / "file" / "x.ipynb")


def test_a_full_disk_leaves_what_was_there_and_nothing_else(target: Path, tmp_path: Path) -> None:
    """A file-size limit of the process fails the write half-way, as a full disk does."""
    target.write_text("mine")
    script = """
import resource, signal, sys
from pathlib import Path
from nbagent.errors import StoreError
from nbagent.notebook.atomic import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    write_whole(Path(sys.argv[1]), b"x" * 5000, force=True)
except StoreError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script, str(target)], capture_output=True, text=True, check=True)
    assert done.stdout == f"cannot write {target}: File too large\n"
    assert target.read_text() == "mine"
    assert list(target.parent.iterdir()) == [target]


def test_a_name_that_is_no_notebooks_is_a_usage_error(target: Path) -> None:
    with pytest.raises(UsageError, match=r"does not end in \.ipynb"):
        export_notebook(small().events, target.with_suffix(".py"))


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_the_file_has_the_users_usual_mode(target: Path) -> None:
    export_notebook(small().events, target)
    (target.parent / "usual").touch()
    assert target.stat().st_mode == (target.parent / "usual").stat().st_mode


def test_two_hundred_steps_are_exported_within_a_second(target: Path) -> None:
    log = Log().task()
    for number in range(200):
        log.thought(f"Step {number} looks at `df[{number}]`.")
        log.ran(f"x{number} = {number}\nprint(x{number})", stream("line\n" * 50))
    log.answer("a")
    begin = time.process_time()
    export_notebook(log.events, target)
    assert time.process_time() - begin < 1


def test_files_that_tools_wrote_lie_beside_the_notebook_as_data_does() -> None:
    log = Log().task()
    for call, code, path in (("a", "", "helper.py"), ("b", "open('made.txt', 'w')", "made.txt")):
        log.add(ActionStarted(tool="any", arguments={}, code=code, call_id=call))
        log.add(FilesChanged(changes=[FileChange(path=path, change="made")], call_id=call))
        log.add(FilesChanged(changes=[FileChange(path=f"old-{path}", change="changed", before="1")], call_id=call))
        log.add(DataFilesSeen(files=[DataFile(path=path, size=1, sha256="0" * 64)]))
    assert made_files_of(log.events) == ["made.txt"]
    assert originals_of(log.events) == {"old-made.txt": "1"}
    assert list(data_files_of(log.events)) == ["helper.py"]
