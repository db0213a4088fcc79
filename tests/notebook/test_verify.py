"""Executing a notebook in a clean kernel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from nbagent.errors import UsageError, VerificationFailed
from nbagent.notebook.verify import execute_clean


def write(path: Path, *cells: Any) -> Path:
    nbformat.write(new_notebook(cells=list(cells)), path)
    return path


def test_it_gives_what_each_code_cell_printed_and_leaves_the_file_and_no_kernel(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.ipynb",
        new_markdown_cell("text"),
        new_code_cell("import sys\nprint(sys.executable)"),
        new_code_cell("6 * 7"),
        new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}),
        new_code_cell("open('here.txt', 'w').close()"),
    )
    before = path.read_bytes()
    printed = execute_clean(path)
    assert [index for index, _ in printed] == [1, 2, 3, 4]
    assert printed[0][1] == f"{sys.executable}\n"
    assert printed[1][1] == "42\n"
    assert printed[2][1] == "ZeroDivisionError: division by zero\n"
    assert (tmp_path / "here.txt").exists()
    assert path.read_bytes() == before
    children = psutil.Process().children(recursive=True)
    assert [child for child in children if "ipykernel_launcher" in " ".join(child.cmdline())] == []


def test_a_kernel_spec_of_the_users_that_points_elsewhere_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text('{"argv": ["false"], "display_name": "x", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    path = write(tmp_path / "a.ipynb", new_code_cell("print(1)"))
    assert execute_clean(path) == [(0, "1\n")]


def test_the_first_failing_cell_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", new_code_cell("1"), new_code_cell("nope"), new_code_cell("2"))
    with pytest.raises(VerificationFailed, match=r"^a\.ipynb does not run: cell 2 raised NameError: name 'nope'"):
        execute_clean(path)


def test_a_cell_that_takes_too_long_or_ends_the_kernel_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", new_code_cell("1"), new_code_cell("import time; time.sleep(60)"))
    with pytest.raises(VerificationFailed, match="cell 2 did not end within 1 s"):
        execute_clean(path, timeout=1)
    path = write(tmp_path / "b.ipynb", new_code_cell("import os; os._exit(3)"))
    with pytest.raises(VerificationFailed, match="cell 1 ended the kernel"):
        execute_clean(path)


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"cells": 1}', "\ud800"])
def test_what_is_no_notebook_is_a_usage_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "a.ipynb"
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(UsageError, match=r"a\.ipynb[^\n]*$"):
        execute_clean(path)
