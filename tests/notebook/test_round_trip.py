"""What others make of an export: nbformat, nbconvert, papermill and jupytext accept every one of them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbagent.events import KernelStarted, SessionResumed
from nbagent.notebook.export import export_notebook
from nbagent.steps import calls_the_agent
from tests.notebook.logs import Log, stream

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def ordinary() -> Log:
    log = Log().task("Add them **up**; why `x`?").thought("First the numbers.").ran("x = [1, 2]")
    return log.thought("Now the sum.").ran("print(sum(x))", stream("3\n")).answer("It is 3.")


def odd() -> Log:
    log = Log().task("ünï \ud800 <script>alert(1)</script>\n```\n---\n# %%\n%% md\n---\nformat: x")
    log.thought("# %% [markdown]\n---").ran("# %% [markdown]\ny = 1  # +", stream("a\rb\x1b[31mred\x1b[0m\n"))
    log.thought("").ran("%matplotlib inline\n!echo hi", stream("hi\n")).ran("%%bash\necho bash", stream("bash\n"))
    figure = {"output_type": "display_data", "data": {"image/png": PNG, "text/plain": "<F>"}, "metadata": {}}
    log.ran("'''\n# %%\n'''; display(1)", figure).failed("1/0", "ZeroDivisionError: division by zero")
    log.not_run("import shutil; shutil.rmtree('/')", "denied")
    return log.ran("print(y)", stream("1\n")).answer("- [ ] a\n\n| a |\n|---|\n| <b> |\n\n$x$ {{ y }}")


def unfinished() -> Log:
    return Log().task("go").ran("z = 1").ran("print(z)", stream("1\n"))


def gone_on_with() -> Log:
    log = unfinished().ended("interrupted")
    log.add(SessionResumed(nonce="n", versions={}, folder="/elsewhere/project"))
    log.add(KernelStarted(generation=1, kind="fresh", python="3.11", confinement="", resumed=True))
    log.task("continue").thought("").ran("import os\nprint(z, os.getcwd())", stream("1 /elsewhere/project\n"))
    return log.answer("1")


@pytest.fixture(params=[ordinary, odd, unfinished, gone_on_with], ids=lambda made: made.__name__)
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make: Callable[[], Log] = request.param
    return export_notebook(make().events, tmp_path / "work" / "out.ipynb").path


def code_of(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_jupytext_carries_it_to_a_script_and_to_markdown_and_back(exported: Path) -> None:
    import jupytext

    for form in ("py:percent", "md", "ipynb"):
        text = jupytext.writes(nbformat.read(exported, as_version=4), fmt=form)
        back = jupytext.reads(text, fmt=form)
        nbformat.validate(back)
        sources = [cell.source for cell in back.cells if cell.cell_type == "code"]
        if "# %%" not in "".join(code_of(exported)):  # a cell mark within a cell is jupytext's own limit
            assert [source.rstrip() for source in sources] == [source.rstrip() for source in code_of(exported)]


def test_nbconvert_makes_a_script_and_a_page_of_it(exported: Path) -> None:
    from nbconvert import HTMLExporter, PythonExporter

    notebook = nbformat.read(exported, as_version=4)
    script, _ = PythonExporter().from_notebook_node(notebook)
    ast.parse(script)
    for line in code_of(exported)[-1].splitlines():
        assert line in script
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert "<script>alert(1)</script>" not in page
    assert "/elsewhere" not in page


def test_what_went_on_in_another_process_is_one_notebook_that_lost_nothing(tmp_path: Path) -> None:
    path = export_notebook(gone_on_with().events, tmp_path / "out.ipynb").path
    assert code_of(path)[:2] == ["z = 1", "print(z)"]
    assert "started anew" not in path.read_text()
    assert "/elsewhere" not in path.read_text()


@pytest.mark.parametrize(
    "code",
    [
        "%%agent\nwhat is x?",
        "x = 1\n%agent fix",
        "import nbagent\nnbagent.Agent().run_sync('x')",
        "get_ipython().run_cell_magic('agent', '', 'x')",
    ],
)
def test_no_cell_of_an_export_calls_the_model_again(code: str, tmp_path: Path) -> None:
    log = Log().task("%%agent\nask yourself").thought("").ran(code, stream("asked\n")).ran("y = 1").answer("done")
    path = export_notebook(log.events, tmp_path / "out.ipynb").path
    assert code_of(path) == ["y = 1"]
    assert not any(calls_the_agent(source) for source in code_of(path))
    assert "asked" in path.read_text()  # it is told, as text


@pytest.mark.long
def test_papermill_and_the_command_lines_execute_and_convert_it(exported: Path, monkeypatch: Any) -> None:
    import papermill

    folder = exported.parent
    monkeypatch.chdir(folder)
    papermill.execute_notebook("out.ipynb", "done.ipynb", progress_bar=False, kernel_name="python3")
    after = nbformat.read(folder / "done.ipynb", as_version=4)
    assert all(cell.execution_count for cell in after.cells if cell.cell_type == "code")
    for form in ("html", "script"):
        words = [sys.executable, "-m", "nbconvert", "--to", form, "out.ipynb"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    words = [sys.executable, "-m", "jupytext", "--to", "py:percent", "--test", "out.ipynb"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "# %%" in "".join(code_of(exported)), done.stdout + done.stderr
