"""A session log as a notebook that runs: what was thought, the code that ran, what it really gave.

The file is valid for nbformat, strict JSON, written in one step, and free of secrets and of the home
folder's path. The same log always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nbagent.errors import StoreError, UsageError
from nbagent.events import DataFile, Event, RunStarted, SessionResumed, SessionStarted
from nbagent.notebook.atomic import refuse_existing, write_whole
from nbagent.notebook.distill import Distilled, Dropped, distill
from nbagent.notebook.metadata import data_files_of, made_files_of, notebook_metadata
from nbagent.notebook.parameters import Parameters, choose_parameters
from nbagent.notebook.texts import Texts
from nbagent.notebook.writer import Writer
from nbagent.redaction import Redactor
from nbagent.steps import Item, Step, read_items

#: How much of a session a notebook holds: all of it; what ran well; only what the answers need.
Rung = Literal["full", "clean", "distilled"]


@dataclass(frozen=True)
class ExportReport:
    """What was written."""

    path: Path
    cells: int
    code_cells: int
    left_out: int  #: steps that are shown as text only, or not at all
    data_files: tuple[Path, ...] = ()  #: variables too large for the notebook itself
    missing: tuple[str, ...] = ()  #: variables that the notebook needs and could not carry
    rung: Rung = "full"
    dropped: tuple[Dropped, ...] = ()  #: cells that a distilled notebook does without


@dataclass
class Draft:
    """A notebook that is not written yet."""

    rung: Rung
    notebook: dict[str, Any]  #: as nbformat 4.5 has it
    code_cells: int
    left_out: int
    files: dict[str, bytes] = field(default_factory=dict)  #: beside it, by path from its folder
    missing: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    made_files: tuple[str, ...] = ()  #: by the session; the notebook makes them itself

    @property
    def content(self) -> bytes:
        """The file's content, checked against nbformat's schema."""
        import nbformat  # takes longer to load than all of nbagent, and most sessions are never exported

        notebook = nbformat.from_dict(self.notebook)
        nbformat.validate(notebook)
        text: str = nbformat.writes(notebook)
        return text.encode() + b"\n"

    @property
    def executed(self) -> list[str]:
        """The sources of its code cells."""
        return [cell["source"] for cell in self.notebook["cells"] if cell["cell_type"] == "code"]


def export_notebook(
    events: Sequence[Event],
    path: Path,
    *,
    rung: Rung = "full",
    force: bool = False,
    reasoning: bool = False,
    home: Path | None = None,
    redactor: Redactor | None = None,
) -> ExportReport:
    """Write the session as a notebook to `path`, which ends in `.ipynb`.

    `rung` says how much of it; `force` replaces a file that is there; `reasoning` adds the model's hidden
    reasoning; `home` is the folder shown as `~` (default: the user's).

    Raises:
        UsageError: there is nothing to export, or `path` is no notebook's name.
        FileExistsRefused: something is at `path` already and `force` was not given.
        StoreError: the file cannot be written; what was there is unchanged.
    """
    draft = draft_notebook(events, path, rung=rung, reasoning=reasoning, home=home, redactor=redactor)
    return write_draft(draft, path, force=force)


def draft_notebook(
    events: Sequence[Event],
    path: Path,
    *,
    rung: Rung = "full",
    reasoning: bool = False,
    home: Path | None = None,
    redactor: Redactor | None = None,
) -> Draft:
    """Make the notebook that would be written to `path`. Raises `UsageError` as `export_notebook` does."""
    if not any(isinstance(event, RunStarted) for event in events):
        raise UsageError("this session has no run yet: there is nothing to export")
    if path.suffix != ".ipynb":
        raise UsageError(f"{path} does not end in .ipynb")
    folders = [event.folder for event in events if isinstance(event, SessionStarted | SessionResumed)]
    texts = Texts(redactor, folders, Path.home() if home is None else home)
    items = read_items(events)
    distilled = distill(items, events) if rung == "distilled" else None
    data_files = data_files_of(events)
    writer = Writer(
        texts,
        clean=rung != "full",
        reasoning=reasoning,
        data_folder=f"{path.stem}_data",
        distilled=distilled,
        parameters=_parameters(items, distilled, data_files, folders),
    )
    writer.write(items)
    metadata = notebook_metadata(events, texts, rung, data_files)
    if distilled is not None:
        metadata["nbagent"]["dropped"] = [vars(dropped) for dropped in distilled.dropped]
    return Draft(
        rung=rung,
        notebook={"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": writer.cells},
        code_cells=writer.count,
        left_out=writer.left_out,
        files={f"{writer.data_folder}/{name}": data for name, data in writer.files.items()},
        missing=tuple(writer.missing),
        dropped=tuple(distilled.dropped) if distilled is not None else (),
        made_files=tuple(made_files_of(events)),
    )


def write_draft(draft: Draft, path: Path, *, force: bool) -> ExportReport:
    """Write a draft and what lies beside it. Raises as `export_notebook` does."""
    content = draft.content
    data_files = {path.parent / name: data for name, data in draft.files.items()}
    for target in () if force else (path, *data_files):
        refuse_existing(target)
    _make_folders(path, data_files)
    for target, data in data_files.items():
        write_whole(target, data, force=force)
    write_whole(path, content, force=force)
    return ExportReport(
        path=path,
        cells=len(draft.notebook["cells"]),
        code_cells=draft.code_cells,
        left_out=draft.left_out,
        data_files=tuple(data_files),
        missing=draft.missing,
        rung=draft.rung,
        dropped=draft.dropped,
    )


def _parameters(
    items: Sequence[Item], distilled: Distilled | None, data_files: dict[str, DataFile], folders: Sequence[str]
) -> Parameters:
    steps = [item for item in items if isinstance(item, Step) and item.runs]
    codes = [step.code for step in steps if distilled is None or id(step) in distilled.kept]
    folder = folders[0] if folders else ""
    return choose_parameters(codes, data_files, folder) if data_files else Parameters()


def _make_folders(path: Path, data_files: Iterable[Path]) -> None:
    for folder in (path.parent, *(file.parent for file in data_files)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the folder {folder}: {error.strerror}") from error
