"""Executes a notebook in a clean kernel: the proof that an export runs."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from nbagent.errors import KernelNotStarted, UsageError, VerificationFailed


def execute_clean(path: Path, *, folder: Path | None = None, timeout: float = 600) -> list[tuple[int, str]]:
    """Execute all cells, top to bottom, and give each code cell's index with the text that it printed.

    The kernel is that of this interpreter, whatever kernel specs are installed. `folder` is where it works
    (default: the notebook's own); `timeout` is in seconds for each cell. The file is not changed.

    Raises:
        UsageError: `path` is not a notebook.
        KernelNotStarted: no kernel came up.
        VerificationFailed: a cell failed; the message names it and what it raised.
    """
    notebook = _read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory(prefix="nbagent-") as scratch:
        manager = _this_interpreter(Path(scratch))
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=timeout,
            resources={"metadata": {"path": str(folder or path.parent)}},
        )
        try:
            client.execute(cleanup_kc=True)  # it is our manager, so nbclient would leave its kernel behind
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise VerificationFailed(f"{path.name} does not run: {_failure(notebook, error, timeout)}") from error
        except (RuntimeError, OSError) as error:
            client.km = manager  # nbclient tidies up once more when the process ends
            line = str(error).strip().partition("\n")[0]
            raise KernelNotStarted(f"no clean kernel for {path.name} with {sys.executable}: {line}") from error
    return [(index, _text(cell)) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]


def _read(path: Path) -> Any:
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(notebook)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, AttributeError, KeyError, TypeError, nbformat.ValidationError) as error:
        raise UsageError(f"{path} is not a valid notebook: {str(error).partition(chr(10))[0]}") from error
    return notebook


def _this_interpreter(scratch: Path) -> AsyncKernelManager:
    return AsyncKernelManager(
        kernel_name="python3",
        # Without folders to look in, the only spec is ipykernel's own: `python3` of this very interpreter.
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
        connection_file=str(scratch / "kernel.json"),
        transport="ipc" if os.name == "posix" else "tcp",  # no port that others could reach
    )


def _failure(notebook: Any, error: Exception, timeout: float) -> str:
    """Name the cell that stopped the execution (counted from 1) and why it did."""
    code = [index for index, cell in enumerate(notebook.cells, 1) if cell.cell_type == "code"]
    begun = [index for index in code if "execution" in notebook.cells[index - 1].metadata]
    where = f"cell {begun[-1] if begun else code[0]}"
    if isinstance(error, CellTimeoutError):
        return f"{where} did not end within {timeout:g} s"
    if isinstance(error, CellExecutionError):
        return f"{where} raised {error.ename}: {error.evalue}"
    return f"{where} ended the kernel"


def _text(cell: Any) -> str:
    """Give what a cell printed and its results as plain text."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type in ("execute_result", "display_data"):
            parts.append(output.data.get("text/plain", "") + "\n")
        else:
            parts.append(f"{output.ename}: {output.evalue}\n")
    return "".join(parts)
