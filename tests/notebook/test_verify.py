"""A notebook is executed in a clean kernel and compared cell by cell; the verdict is told and written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from nbagent.errors import UsageError
from nbagent.notebook.request import verify_notebook_file
from nbagent.notebook.verify import Verdict


def code(source: str, *outputs: Any, count: int | None = 1, tags: tuple[str, ...] = ()) -> Any:
    metadata = {"tags": list(tags)} if tags else {}
    return new_code_cell(source, outputs=list(outputs), execution_count=count, metadata=metadata)


def printed(text: str) -> Any:
    return new_output("stream", text=text)


def verified(home: Path, *cells: Any, **options: Any) -> Verdict:
    path = home / "a.ipynb"
    nbformat.write(new_notebook(cells=list(cells)), path)
    return verify_notebook_file(path, **options)


def test_what_gives_the_same_is_verified_and_the_verdict_is_in_the_file(tmp_path: Path) -> None:
    raised = new_output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=[])
    before = psutil.Process().children(recursive=True)
    verdict = verified(
        tmp_path,
        new_markdown_cell("text"),
        code("import sys\nprint(sys.executable)", printed(f"{sys.executable}\n")),
        code("open('here.txt', 'w').close()\nvalue = {3, 1, 2}, object()"),
        code("print(*value)", printed("{2, 3, 1} <object object at 0x7f0123456789>\n")),
        code("1 / 0", raised, tags=("raises-exception",)),
        code("6 * 7", new_output("execute_result", {"text/plain": "42"}, execution_count=9)),
    )
    assert verdict.line.startswith("Verified: 5 code cells gave the same in a clean kernel (")
    told = nbformat.read(tmp_path / "a.ipynb", as_version=4).metadata.nbagent.verified
    assert (told.ok, told.executed, told.compared, told.differs) == (True, 5, 5, [])
    assert not (tmp_path / "here.txt").exists()
    left = [child for child in psutil.Process().children(recursive=True) if child not in before]
    assert [child for child in left if "ipykernel_launcher" in " ".join(child.cmdline())] == []
    assert verdict.seconds < verdict.own_seconds + 30  # the budget of 2 s is measured on a quiet machine


def test_each_cell_that_differs_is_named_with_what_cannot_repeat(tmp_path: Path) -> None:
    verdict = verified(
        tmp_path,
        code("import random, time\nimport datetime as dt"),
        code("x = random.random()"),
        code("print(x)", printed("0.25\n")),
        code("time.time_ns()", new_output("execute_result", {"text/plain": "17"}, execution_count=3)),
        code("print('a')", printed("b\n")),
        code("2", printed("2\n")),
    )
    assert [found.cell for found in verdict.differs] == [3, 4, 5, 6]
    causes = [found.causes for found in verdict.differs]
    assert causes[0] == ("random numbers are drawn without a seed (random)",)
    assert causes[1] == ("the code asks for what differs each time (time.time_ns)",)
    assert causes[2:] == [(), ()]
    assert verdict.line.startswith("Not verified: cell 3 gave '0.")
    assert "1 more cell differs; random numbers are drawn without a seed (random); the code asks" in verdict.line
    assert verdict.differs[2].why == "gave 'a' in place of 'b'"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nope", "cell 2 raised NameError: name 'nope' is not defined"),
        ("import time; time.sleep(60)", "cell 2 did not end within 4 s"),
        ("import os; os._exit(3)", "cell 2 ended the kernel"),
    ],
)
def test_what_stops_it_is_named(tmp_path: Path, source: str, said: str) -> None:
    verdict = verified(tmp_path, code("x = 1"), code(source), code("2"), timeout=4 if "sleep" in source else 60)
    assert verdict.line == f"Not verified: {said}."


def test_it_works_in_a_copy_or_in_place_as_asked_and_never_outside(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.txt").write_text("5")
    outside = tmp_path / "outside.txt"
    cells = [
        code("from pathlib import Path\nprint(Path('data.txt').read_text())", printed("5\n")),
        code("Path('data.txt').write_text('6');"),
    ]
    assert verified(tmp_path, *cells, folder=str(tmp_path / "work")).ok
    assert (tmp_path / "work" / "data.txt").read_text() == "5"
    escape = code(f"open({str(outside)!r}, 'w')")
    stopped = verified(tmp_path, escape, folder=str(tmp_path / "work")).stopped
    assert stopped.startswith("cell 1 raised PermissionError")
    assert verified(tmp_path, *cells, folder=str(tmp_path / "work"), in_place=True).ok
    assert (tmp_path / "work" / "data.txt").read_text() == "6"


def test_a_kernel_spec_of_the_users_that_points_elsewhere_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text('{"argv": ["false"], "display_name": "x", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    assert verified(tmp_path, code("print(1)", printed("1\n"))).ok


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"cells": 1}', "\ud800"])
def test_what_is_no_notebook_is_a_usage_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "a.ipynb"
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(UsageError, match=r"a\.ipynb[^\n]*$"):
        verify_notebook_file(path)
