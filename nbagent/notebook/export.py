"""A session log as a notebook that runs: what was thought, the code that ran, what it really gave.

The file is valid for nbformat, strict JSON, written in one step, and free of secrets and of the home
folder's path. The same log always gives the same bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nbagent.errors import StoreError, UsageError
from nbagent.events import (
    DialectChosen,
    Event,
    Output,
    Reasoning,
    RunFinished,
    RunStarted,
    SessionStarted,
    Shared,
    Thought,
)
from nbagent.notebook.atomic import refuse_existing, write_whole
from nbagent.notebook.carried import carry
from nbagent.notebook.outputs import OutputCleaner
from nbagent.notebook.prose import fenced, inert
from nbagent.notebook.texts import Texts
from nbagent.redaction import Redactor
from nbagent.steps import Item, Lost, Step, read_items, source_of
from nbagent.summing_up import UNFINISHED
from nbagent.tools.cell_names import names_of

#: Characters of partial output that are shown below a step that is not executed.
NOTE_CHARACTERS = 2000
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NOT_RUN = {
    "": "did not end",
    "error": "failed",
    "timeout": "ran out of time",
    "interrupted": "was interrupted",
    "denied": "was not allowed",
    "invalid": "could not be run",
    "unavailable": "was not available",
    "skipped": "was skipped",
}


@dataclass(frozen=True)
class ExportReport:
    """What was written."""

    path: Path
    cells: int
    code_cells: int
    left_out: int  #: steps that are shown as text only, or not at all
    data_files: tuple[Path, ...] = ()  #: variables too large for the notebook itself
    missing: tuple[str, ...] = ()  #: variables that the notebook needs and could not carry


def export_notebook(
    events: Sequence[Event],
    path: Path,
    *,
    clean: bool = False,
    force: bool = False,
    reasoning: bool = False,
    home: Path | None = None,
    redactor: Redactor | None = None,
) -> ExportReport:
    """Write the session as a notebook to `path`, which ends in `.ipynb`.

    `clean` leaves out the steps that are not executed; `force` replaces a file that is there; `reasoning`
    adds the model's hidden reasoning; `home` is the folder shown as `~` (default: the user's).

    Raises:
        UsageError: there is nothing to export, or `path` is no notebook's name.
        FileExistsRefused: something is at `path` already and `force` was not given.
        StoreError: the file cannot be written; what was there is unchanged.
    """
    if not any(isinstance(event, RunStarted) for event in events):
        raise UsageError("this session has no run yet: there is nothing to export")
    if path.suffix != ".ipynb":
        raise UsageError(f"{path} does not end in .ipynb")
    folders = [event.folder for event in events if isinstance(event, SessionStarted)]
    texts = Texts(redactor, folders, Path.home() if home is None else home)
    writer = _Writer(texts, clean=clean, reasoning=reasoning, data_folder=f"{path.stem}_data")
    writer.write(read_items(events))
    content = _notebook(writer.cells, _metadata(events, writer.items, texts, clean))
    data_files = {path.parent / writer.data_folder / name: data for name, data in writer.files.items()}
    for target in () if force else (path, *data_files):
        refuse_existing(target)
    _make_folders(path, data_files)
    for target, data in data_files.items():
        write_whole(target, data, force=force)
    write_whole(path, content, force=force)
    return ExportReport(
        path=path,
        cells=len(writer.cells),
        code_cells=writer.count,
        left_out=writer.left_out,
        data_files=tuple(data_files),
        missing=tuple(writer.missing),
    )


@dataclass
class _Writer:
    """Makes cells of items, in order."""

    texts: Texts
    clean: bool
    reasoning: bool
    data_folder: str
    cells: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    count: int = 0  #: code cells that were executed
    left_out: int = 0

    def __post_init__(self) -> None:
        self._outputs = OutputCleaner(self.texts.clean, self.texts.mask)
        self._ids: dict[str, int] = {}

    def write(self, items: Sequence[Item]) -> None:
        """Write all cells; variables that nothing made before they were shared come first of all."""
        self.items = list(items)
        first, later = _split_shared(items)
        self._shared(first)
        label = ""
        for position, item in enumerate(items):
            match item:
                case RunStarted():
                    label = item.label
                    self._text(f"## Task\n\n{self._inert(item.task)}", "task", item)
                case Thought() if not self._thinks_of_nothing(item):
                    self._text(self._inert(item.text), "thought", item)
                case Reasoning() if self.reasoning:
                    self._text(f"*Reasoning*\n\n{self._inert(item.text)}", "reasoning", item)
                case Shared() if item in later:
                    self._shared([item])
                case Step() if item.shown:
                    self._step(item)
                case Lost():
                    self._lost(item)
                case RunFinished():
                    self._ending(item, label)
                case _:
                    pass
            if _is_unfinished(items, position):
                note = "## Unfinished\n\nThe run was not over when this was exported, or was cut off."
                self._text(note, "ending", item)

    def _step(self, step: Step) -> None:
        if step.runs:
            self.count += 1
            outputs = self._outputs.cell(step.outputs, self.count)
            tags: dict[str, Any] = {"tags": ["raises-exception"]} if step.needed else {}
            self._code(self.texts.mask(step.code), "action", step, self._told(step), self.count, outputs, tags)
            return
        if step.status == "ok" and not step.died and not step.undone:  # a tool without code
            how = "was used"
        else:
            self.left_out += 1
            how = "stopped with the kernel" if step.died else _NOT_RUN.get(step.status, step.status)
            how = "was undone" if step.undone else how
            if self.clean:
                return
        source, language = source_of(step)
        why = f": {self._inert(step.summary)}" if step.summary else ""
        parts = [f"*`{_word(step.tool)}` {how}*{why}"]
        parts.append(fenced(self.texts.mask(source), language))
        if partial := self._partial(step):
            parts.append(fenced(partial))
        self._text("\n\n".join(parts), "action", step, self._told(step))

    def _partial(self, step: Step) -> str:
        """Give the text that a step printed before it ended."""
        outputs = self._outputs.cell(step.outputs, 1)
        text = "".join(output["text"] for output in outputs if output["output_type"] == "stream").strip("\n")
        if len(text) > NOTE_CHARACTERS:
            text = f"{text[:NOTE_CHARACTERS]}\n[{len(text) - NOTE_CHARACTERS} characters were left out]"
        others = sum(output["output_type"] not in ("stream", "error") for output in outputs)
        return f"{text}\n[{others} further outputs were left out]".strip("\n") if others else text

    def _lost(self, lost: Lost) -> None:
        names = f": {', '.join(lost.names)}" if lost.names else ""
        why = f" ({lost.why})" if lost.why else ""
        note = f"The kernel was started anew here{why}; its variables were gone{names}."
        self._text(f"*Note:* {self._inert(note)}", "note", lost)

    def _ending(self, event: RunFinished, label: str) -> None:
        if event.reason == "answered":
            caveat = f"\n\n({self._inert(label)})" if label else ""
            self._text(
                f"## Answer\n\n{self._inert(event.answer)}{caveat}", "ending", event, {"reason": event.reason}
            )
        else:
            summary = f"\n\n{UNFINISHED}\n\n{self._inert(event.summary)}" if event.summary else ""
            self._text(
                f"## Not answered: {event.reason}\n\n{self._inert(event.message)}{summary}",
                "ending",
                event,
                {"reason": event.reason},
            )

    def _shared(self, events: Sequence[Shared]) -> None:
        if not events:
            return
        carried = carry(events, self.data_folder, self.texts.redactor, taken=self.files)
        self.files |= carried.files
        self.missing += carried.missing
        self._code(carried.code, "shared", events[0])

    def _thinks_of_nothing(self, thought: Thought) -> bool:
        """Whether the thought is empty, or belongs to steps that are all left out."""
        if not thought.text.strip():
            return True
        steps = [
            item
            for item in self.items
            if isinstance(item, Step) and (item.run, item.step) == (thought.run, thought.step)
        ]
        return self.clean and bool(steps) and not any(step.runs or not step.shown for step in steps)

    def _inert(self, text: str) -> str:
        return inert(self.texts.clean(text))

    def _told(self, step: Step) -> dict[str, Any]:
        return {
            "tool": self.texts.mask(step.tool),
            "status": "undone" if step.undone else step.status,
            "seconds": round(step.seconds, 3),
        }

    def _text(self, source: str, kind: str, of: Item, told: Mapping[str, Any] = _NOTHING) -> None:
        self._add({"cell_type": "markdown", "source": source.rstrip(), "metadata": {}}, kind, of, told)

    def _code(
        self,
        source: str,
        kind: str,
        of: Item,
        told: Mapping[str, Any] = _NOTHING,
        count: int | None = None,
        outputs: Sequence[Output] = (),
        metadata: Mapping[str, Any] = _NOTHING,
    ) -> None:
        cell = {"cell_type": "code", "source": source, "execution_count": count, "outputs": list(outputs)}
        self._add({**cell, "metadata": dict(metadata)}, kind, of, told)

    def _add(self, cell: dict[str, Any], kind: str, of: Item, told: Mapping[str, Any]) -> None:
        self._ids[kind] = self._ids.get(kind, 0) + 1
        cell["id"] = f"{kind}-{self._ids[kind]}"
        cell["metadata"]["nbagent"] = {"kind": kind, "run": of.run, "step": of.step, **told}
        self.cells.append(cell)


def _word(text: str) -> str:
    return re.sub(r"[^\w.-]", "", text)[:60] or "action"


def _is_unfinished(items: Sequence[Item], position: int) -> bool:
    """Whether a run's last item is here and it is no ending."""
    item = items[position]
    following = items[position + 1] if position + 1 < len(items) else None
    if isinstance(item, RunFinished) or not (following is None or isinstance(following, RunStarted)):
        return False
    before = [earlier for earlier in items[: position + 1] if isinstance(earlier, RunStarted | RunFinished)]
    return bool(before) and isinstance(before[-1], RunStarted)


def _split_shared(items: Sequence[Item]) -> tuple[list[Shared], list[Shared]]:
    """Part the variables that can come first from those that replace what a cell or a copy made before."""
    first: list[Shared] = []
    later: list[Shared] = []
    made: set[str] = set()
    for item in items:
        if isinstance(item, Step) and item.runs:
            made |= names_of(item.code).touches
        elif isinstance(item, Shared):
            (later if item.name in made else first).append(item)
            made.add(item.name)
    return first, later


def _metadata(events: Sequence[Event], items: Sequence[Item], texts: Texts, clean: bool) -> dict[str, Any]:
    started = next((event for event in events if isinstance(event, SessionStarted)), None)
    versions = started.versions if started is not None else {}
    runs: list[dict[str, Any]] = []
    for item in items:
        if isinstance(item, RunStarted):
            runs.append(
                {"run": item.run, "model": texts.mask(item.model), "prompt_sha256": _prompt(events, item.run)}
            )
        elif isinstance(item, RunFinished) and runs:
            usage = {**item.usage.model_dump(), "total_tokens": item.usage.total_tokens}
            runs[-1] |= {
                "reason": item.reason,
                "steps": item.steps,
                "seconds": round(item.seconds, 3),
                "usage": usage,
            }
    language = {
        "name": "python",
        "version": versions.get("python", ""),
        "mimetype": "text/x-python",
        "file_extension": ".py",
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "codemirror_mode": {"name": "ipython", "version": 3},
    }
    return {
        "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"},
        "language_info": language,
        "nbagent": {"session": events[0].session, "versions": dict(versions), "clean": clean, "runs": runs},
    }


def _notebook(cells: list[dict[str, Any]], metadata: dict[str, Any]) -> bytes:
    """Give the file's content, checked against nbformat's schema."""
    import nbformat  # takes longer to load than all of nbagent, and most sessions are never exported

    notebook = nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells})
    nbformat.validate(notebook)
    text: str = nbformat.writes(notebook)
    return text.encode() + b"\n"


def _prompt(events: Sequence[Event], run: int) -> str:
    """Give the hash of the system prompt that a run was made with."""
    systems = [event.system for event in events if isinstance(event, DialectChosen) and event.run <= run]
    return hashlib.sha256(systems[-1].encode("utf-8", "replace")).hexdigest() if systems else ""


def _make_folders(path: Path, data_files: Iterable[Path]) -> None:
    for folder in (path.parent, *(file.parent for file in data_files)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the folder {folder}: {error.strerror}") from error
