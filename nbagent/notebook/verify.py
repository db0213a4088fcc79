"""The proof that a notebook runs: executed in a clean kernel, compared cell by cell, with a verdict.

It works in a copy of the workspace unless it is told to work in place, held by the same confinement as the
agent's own kernel, for the code is the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nbagent.errors import KernelError, UsageError
from nbagent.events import Output
from nbagent.kernels.own_folder import OwnFolder
from nbagent.kernels.process import ProcessKernel
from nbagent.notebook.atomic import write_whole
from nbagent.notebook.comparison import difference
from nbagent.notebook.outputs import OutputCleaner
from nbagent.notebook.slicing.flow import Flow
from nbagent.notebook.slicing.state import Source
from nbagent.notebook.texts import Texts
from nbagent.notebook.workspace_copy import copy_workspace
from nbagent.protocols import Executed
from nbagent.redaction import Redactor
from nbagent.workplace import HIDDEN_FROM_KERNEL

#: Seconds for all cells together.
TIME_LIMIT = 600.0
MOST_NAMED = 3
#: The copy lies this deep, so that what the code names as `../data.csv` has a place.
_BELOW = ("folder", "folder", "folder")


@dataclass(frozen=True)
class Differs:
    """One cell that did not do the same again. `cell` counts all cells of the notebook from 1."""

    cell: int
    why: str
    causes: tuple[str, ...] = ()  #: what of the code cannot repeat: no seed, the time


@dataclass
class Verdict:
    """What came of it."""

    executed: int = 0  #: code cells
    compared: int = 0  #: of them, those that had recorded outputs or were recorded to have none
    differs: list[Differs] = field(default_factory=list)
    stopped: str = ""  #: why not all cells were executed
    cautions: tuple[str, ...] = ()  #: what of the code cannot repeat, though it may have this time
    seconds: float = 0.0  #: all in all
    own_seconds: float = 0.0  #: of the cells themselves
    printed: list[str] = field(default_factory=list)  #: text of each code cell's outputs, as plain text

    @property
    def ok(self) -> bool:
        """Whether all cells ran and gave the same."""
        return not self.differs and not self.stopped

    @property
    def line(self) -> str:
        """The verdict in one line."""
        cells = f"{self.executed} code cell{'s' if self.executed != 1 else ''}"
        if self.ok:
            same = "gave the same" if self.compared else "ran; no outputs were recorded to compare"
            line = f"Verified: {cells} {same} in a clean kernel ({self.seconds:.1f} s)."
            return f"{line} Yet {' and '.join(self.cautions)}." if self.cautions else line
        told = [self.stopped] if self.stopped else []
        told += [f"cell {found.cell} {found.why}" for found in self.differs[:MOST_NAMED]]
        if (more := len(self.differs) - MOST_NAMED) > 0:
            told.append("1 more cell differs" if more == 1 else f"{more} more cells differ")
        causes = dict.fromkeys(cause for found in self.differs for cause in found.causes)
        return f"Not verified: {'; '.join([*told, *causes])}."

    @property
    def metadata(self) -> dict[str, Any]:
        """The verdict as it stands in the notebook's metadata."""
        return {
            "ok": self.ok,
            "executed": self.executed,
            "compared": self.compared,
            "seconds": round(self.seconds, 3),
            "stopped": self.stopped,
            "cautions": list(self.cautions),
            "differs": [{"cell": d.cell, "why": d.why, "causes": list(d.causes)} for d in self.differs],
        }


def read_notebook(path: Path) -> dict[str, Any]:
    """Read a notebook in nbformat 4. Raises `UsageError` where it is none."""
    import nbformat

    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(notebook)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, AttributeError, KeyError, TypeError, nbformat.ValidationError) as error:
        raise UsageError(f"{path} is not a valid notebook: {str(error).partition(chr(10))[0]}") from error
    found: dict[str, Any] = notebook
    return found


async def verify_file(
    path: Path,
    *,
    folder: Path | None = None,
    in_place: bool = False,
    timeout: float = TIME_LIMIT,
    confine: Literal["workspace", "strict", "off"] = "workspace",
    redactor: Redactor | None = None,
) -> Verdict:
    """Verify a notebook file and write the verdict into it.

    `folder` is where it works (default: the notebook's own); with `in_place` there itself, else in a copy.

    Raises:
        UsageError: it is no notebook, or the folder cannot be copied.
        KernelError: no kernel came up.
        StoreError: the verdict cannot be written.
    """
    notebook = read_notebook(path)
    verdict = await verify_notebook(
        notebook,
        folder=folder or path.absolute().parent,
        in_place=in_place,
        timeout=timeout,
        confine=confine,
        redactor=redactor,
    )
    put_verdict(notebook, verdict)
    write_whole(path, _content(notebook), force=True)
    return verdict


async def verify_notebook(
    notebook: Mapping[str, Any],
    *,
    folder: Path,
    files: Mapping[str, bytes] | None = None,
    originals: Mapping[str, Path] | None = None,
    in_place: bool = False,
    timeout: float = TIME_LIMIT,
    confine: Literal["workspace", "strict", "off"] = "workspace",
    redactor: Redactor | None = None,
) -> Verdict:
    """Execute a notebook and compare; see `verify_file`.

    `files` lie beside it, by relative path; `originals`, by path in the folder, stand in the copy for what the
    folder holds now.
    """
    began = time.monotonic()
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder that the notebook could work in; name one with --folder")
    told = notebook["metadata"].get("nbagent", {})
    environment = told.get("environment", {}) if isinstance(told, Mapping) else {}
    with OwnFolder("verify-") as own:
        scratch = own.path.resolve()
        place = folder
        if not in_place:
            place = scratch.joinpath(*_BELOW, "workspace")
            await asyncio.to_thread(
                copy_workspace,
                folder,
                place,
                without=environment.get("made_files", ()),
                needed=[file["path"] for file in environment.get("data_files", ())],
                originals=originals or {},
            )
        for name, content in (files or {}).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        kernel = ProcessKernel(
            folder=place,
            scratch=scratch / "scratch",
            confine=confine,
            hidden_environment=HIDDEN_FROM_KERNEL,
        )
        texts = Texts(redactor, [str(place), str(folder)], Path.home())
        run = _Run(kernel, texts, timeout)
        try:
            await kernel.start()
            await run.cells(notebook["cells"])
        finally:
            await kernel.close()
    run.verdict.seconds = time.monotonic() - began
    return run.verdict


class _Run:
    """Executes cells in order and collects the verdict."""

    def __init__(self, kernel: ProcessKernel, texts: Texts, timeout: float) -> None:
        self.verdict = Verdict()
        self._kernel, self._texts = kernel, texts
        self._cleaner = OutputCleaner(texts.clean, texts.mask)
        self._timeout, self._until = timeout, 0.0

    async def cells(self, cells: Sequence[Mapping[str, Any]]) -> None:
        self._until = time.monotonic() + self._timeout
        code = [(number, cell) for number, cell in enumerate(cells, 1) if cell["cell_type"] == "code"]
        differing: list[tuple[int, int, str]] = []
        for index, (number, cell) in enumerate(code):
            why = await self._cell(number, cell)
            if why:
                differing.append((index, number, why))
            if self.verdict.stopped:
                break
        causes = _Causes([_source(cell) for _, cell in code])
        self.verdict.differs = [Differs(number, why, causes.of({index})) for index, number, why in differing]
        shown = {index for index, (_, cell) in enumerate(code) if cell.get("outputs")}
        self.verdict.cautions = causes.of(shown, sure_only=True)

    async def _cell(self, number: int, cell: Mapping[str, Any]) -> str:
        """Execute one cell; say how it differs."""
        source = _source(cell)
        if not source.strip():
            return ""
        left = self._until - time.monotonic()
        if left <= 0:
            self.verdict.stopped = f"the time limit of {self._timeout:g} s was over before cell {number}"
            return ""
        outputs, executed = await self._execute(source, left)
        self.verdict.executed += 1
        self.verdict.own_seconds += executed.seconds
        given = self._cleaner.cell(outputs, self.verdict.executed)
        self.verdict.printed.append(_plain(given))
        may_raise = "raises-exception" in cell["metadata"].get("tags", ())
        if executed.status in ("timeout", "died") or executed.state_lost:
            did = f"did not end within {self._timeout:g} s" if executed.status == "timeout" else "ended the kernel"
            self.verdict.stopped = f"cell {number} {did}"
        elif executed.status != "ok" and not may_raise:
            self.verdict.stopped = f"cell {number} raised {self._texts.clean(executed.error)}"
        elif cell.get("outputs") or cell.get("execution_count"):
            self.verdict.compared += 1
            return difference(cell.get("outputs", ()), given)
        return ""

    async def _execute(self, source: str, timeout: float) -> tuple[list[Output], Executed]:
        outputs: list[Output] = []
        async with aclosing(self._kernel.execute(source, timeout=timeout)) as stream:
            async for item in stream:
                if isinstance(item, Executed):
                    return outputs, item
                outputs.append(item)
        raise KernelError("the kernel gave no end to a cell")


class _Causes:
    """Finds what in the code cannot repeat."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._flow = Flow([Source(source) for source in sources], hoist=False)

    def of(self, cells: set[int], *, sure_only: bool = False) -> tuple[str, ...]:
        """Name what these cells depend on that differs, or may differ, from run to run."""
        nodes = [self._flow.nodes[cell] for cell in sorted(self._flow.needed_by(cells))]
        drawn = sorted({kind for node in nodes for kind in node.drawn})
        perhaps = any(node.perhaps_drawn for node in nodes) and not sure_only and not drawn
        clocks = sorted({name for node in nodes for name in node.clocks})
        found = []
        if drawn:
            found.append(f"random numbers are drawn without a seed ({', '.join(drawn)})")
        if perhaps:
            found.append("a model is fitted without random_state")
        if clocks:
            found.append(f"the code asks for what differs each time ({', '.join(clocks)})")
        return tuple(found)


def put_verdict(notebook: dict[str, Any], verdict: Verdict) -> None:
    """Write a verdict into a notebook: its metadata and, where we made the notebook, its last cell."""
    ours = notebook["metadata"].setdefault("nbagent", {})
    ours["verified"] = verdict.metadata
    if "runs" not in ours:
        return
    cells = [cell for cell in notebook["cells"] if cell["metadata"].get("nbagent", {}).get("kind") != "verdict"]
    note = {"kind": "verdict", "ok": verdict.ok}
    text = f"*{'Verified' if verdict.ok else 'Not verified'}*{_inert(verdict.line.partition(':')[2], verdict)}"
    cell = {"cell_type": "markdown", "source": text, "metadata": {"nbagent": note}, "id": "verdict-1"}
    notebook["cells"] = [*cells, cell]


def _inert(text: str, verdict: Verdict) -> str:
    from nbagent.notebook.prose import inert

    # The time it took would make two exports of one log differ in their text for no one's use.
    return ":" + inert(text.replace(f" ({verdict.seconds:.1f} s)", ""))


def _content(notebook: dict[str, Any]) -> bytes:
    import nbformat

    made = nbformat.from_dict(notebook)
    nbformat.validate(made)
    text: str = nbformat.writes(made)
    return text.encode() + b"\n"


def _source(cell: Mapping[str, Any]) -> str:
    source = cell["source"]
    return "".join(source) if isinstance(source, list) else str(source)


def _plain(outputs: Sequence[Output]) -> str:
    parts = []
    for output in outputs:
        if output["output_type"] == "stream":
            parts.append(output["text"])
        elif output["output_type"] == "error":
            parts.append(f"{output['ename']}: {output['evalue']}\n")
        else:
            parts.append(str(output["data"].get("text/plain", "")) + "\n")
    return "".join(parts)
