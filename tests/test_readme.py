"""README's examples run, its commands exist, and its figures of speech about settings hold."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from nbagent.cli import main
from nbagent.tools.definition import FunctionTool
from nbagent.tools.registry import unregister
from tests.faces.notebook import kernel
from tests.scripted_server import Recorded, Response, ScriptedServer, final, run_code

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def answer(request: Recorded) -> Response:
    """One step of code, then an answer, for any task."""
    if request.body["messages"][-1]["role"] == "tool":
        return final("It is 2.0.")
    return run_code("merged = 2.0\nranking = [2.0]\nprint(merged)")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "shop.csv").write_text("name,price\na,1\nb,3\n")
    return {"NBAGENT_MODEL": "stub", "NBAGENT_CACHE": str(tmp_path / "cache")}


@pytest.mark.parametrize("block", blocks("python"))
def test_python_examples_run(
    block: str, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ScriptedServer(answer=answer) as server:
        for name, value in {**environment, "NBAGENT_BASE_URL": server.base_url}.items():
            monkeypatch.setenv(name, value)
        names: dict[str, object] = {"__name__": "__main__"}
        try:
            exec(compile(block, "README.md", "exec"), names)
        finally:
            for tool in (value for value in names.values() if isinstance(value, FunctionTool)):
                unregister(tool.name)


def test_notebook_cells_run_in_order(tmp_path: Path, environment: dict[str, str]) -> None:
    with (
        ScriptedServer(answer=answer) as server,
        kernel(tmp_path, {**environment, "NBAGENT_BASE_URL": server.base_url}) as cells,
    ):
        for block in blocks("ipython"):
            text = cells.text(block)
            assert cells.status == "ok", text
            assert "UsageError" not in text
    assert (tmp_path / "report.ipynb").is_file()


def commands() -> list[str]:
    shell = [line for block in blocks("sh") for line in block.splitlines()]
    return [line for line in shell if line.startswith("nbagent ")]


def test_commands_run_as_they_are_written(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ""
    monkeypatch.chdir(tmp_path)
    with ScriptedServer(answer=answer) as server:
        for name, value in {**environment, "NBAGENT_BASE_URL": server.base_url}.items():
            monkeypatch.setenv(name, value)
        for line in commands():
            words = [session if word == "SESSION" else word for word in shlex.split(line)[1:]]
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 0, f"{line}\n{done.output}"
            if words[0] == "sessions":
                session = done.stdout.split()[0]


def test_the_quickstart_notebook_runs_from_top_to_bottom(tmp_path: Path, environment: dict[str, str]) -> None:
    notebook = nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", as_version=4)
    nbformat.validate(notebook)
    with (
        ScriptedServer(answer=answer) as server,
        kernel(tmp_path, {**environment, "NBAGENT_BASE_URL": server.base_url}) as cells,
    ):
        for cell in notebook.cells:
            if cell.cell_type == "code":
                text = cells.text(cell.source)
                assert cells.status == "ok", text


def test_the_picture_is_there() -> None:
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / path).is_file(), path


def test_the_magics_table_names_only_commands_that_exist() -> None:
    from nbagent.magic_commands import COMMANDS

    named = set(
        re.findall(
            r"`(?:%agent )?(\w+)(?: [A-Z\[].*?)?`", "\n".join(re.findall(r"^\| `%agent.*$", README, re.MULTILINE))
        )
    )
    assert named <= set(COMMANDS), named - set(COMMANDS)
