"""Records of `%%agent` cells: found again by the cell's text and options, and replayed without a model.

A record lies in two places: in the notebook, as metadata of the cell's own output, which the front end saves and
which travels with the file; and in NBAGENT_HOME, one file a cell and place. The first execution of a cell in a
kernel process replays its record; any later one asks the model, and so does a changed cell.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbagent.errors import StoreError, UsageError
from nbagent.notebook.atomic import write_whole
from nbagent.record import Record, from_values

#: Options that do not change what a cell means.
NOT_IN_THE_KEY = frozenset({"again", "replay", "quiet"})
#: The key of our part of an output's metadata.
METADATA = "nbagent"
LARGEST_NOTEBOOK = 20_000_000  #: bytes; larger ones are not looked into
MOST_NOTEBOOKS = 50  #: of a folder, where the notebook's own path is not known
_AGENT_CELL = re.compile(r"\s*%%agent\b")


def key_of(options: Mapping[str, object], text: str) -> str:
    """Give the key of a cell's record: a hash of its text and of the options that were given."""
    given = {
        name: str(value)
        for name, value in options.items()
        if value not in (None, False) and name not in NOT_IN_THE_KEY
    }
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return hashlib.sha256(json.dumps([sorted(given.items()), lines]).encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True)
class Found:
    """What there is for a cell. `note` says why a record that is there cannot be used."""

    record: Record | None = None
    note: str = ""


class Records:
    """The records as one kernel process sees them.

    Cells with the same text and options are told apart by the order in which they come.
    """

    def __init__(self, shell: Any, home: Path, *, asks: bool) -> None:
        """Take the front end's shell; `asks` is whether it takes questions, as a person's does."""
        self._shell = shell
        self._folder = home / "records"
        self._asks = asks
        self._executed: dict[str, list[object]] = {}
        self._in_notebook: dict[tuple[str, int], Record] | None = None
        self._positions: dict[str, int] = {}  # of the cell that was executed last, by its key
        self._damaged: dict[tuple[str, int], str] = {}

    def find(self, key: str, mode: str, *, again: bool) -> Found:
        """Give the record that this execution of a cell replays.

        Raises:
            UsageError: `mode` is "only" and there is none.
        """
        position, first = self._take_turn(key)
        self._positions[key] = position
        if self._in_notebook is None:  # now, before the page saves the notebook without its outputs
            self._in_notebook = dict(self._read_notebooks())
        if mode == "off" or (mode == "auto" and (again or not first)):
            return Found()
        found = self._look_up(key, position, anywhere=mode == "only")
        if found.record is None and mode == "only":
            why = found.note or "there is no record of it"
            raise UsageError(f"replay=only asks no model, and this cell cannot be replayed: {why}")
        return found

    def file_of(self, record: Record) -> Path:
        """Give the file for the record of the cell that `find` was asked for last."""
        return self._file(record.key, self._place(), self._positions.get(record.key, 1))

    def keep(self, record: Record, session: str = "", run: int = 0) -> None:
        """Store the record of the cell that `find` was asked for last, with the run it is of.

        Raises `StoreError`.
        """
        values = {"session": session, "run": run, "record": record.model_dump(mode="json")}
        self._write(self.file_of(record), values)

    def withdraw(self, file: Path) -> None:
        """Replay what was recorded for this file up to now no more: it was undone. Raises `StoreError`.

        The notebook may carry the record, too, where it is not ours to take out.
        """
        self._write(file, {"withdrawn": _now()})

    def _write(self, file: Path, values: dict[str, Any]) -> None:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make {file.parent}: {error.strerror}") from error
        _write_values(file, {"folder": str(Path.cwd()), "notebook": str(self._path() or ""), **values})

    # -- which execution this is ------------------------------------------------------------------------

    def _take_turn(self, key: str) -> tuple[int, bool]:
        """Say which of the cells with this key is executed, from 1, and whether for the first time."""
        executed = self._executed.setdefault(key, [])
        cell = cell_id(self._shell) or ("" if self._asks else object())
        first = cell not in executed
        if first:
            executed.append(cell)
        return executed.index(cell) + 1, first

    def _look_up(self, key: str, position: int, *, anywhere: bool) -> Found:
        candidates: list[Record] = []
        note = self._damaged.get((key, position), "")
        if (own := (self._in_notebook or {}).get((key, position))) is not None:
            candidates.append(own)
        stored, fault = self._stored(key, position, anywhere=anywhere)
        withdrawn = [when for when in stored if isinstance(when, datetime)]
        candidates += [record for record in stored if isinstance(record, Record)]
        candidates = [record for record in candidates if all(record.recorded > when for when in withdrawn)]
        if withdrawn and not candidates:
            note = "what it did was undone"
        whole = [record for record in candidates if record.whole]
        if whole:
            return Found(max(whole, key=lambda record: record.recorded))
        if candidates:
            return Found(note="its code held a secret, which is not stored")
        return Found(note=note or fault)

    # -- in NBAGENT_HOME --------------------------------------------------------------------------------

    def _stored(self, key: str, position: int, *, anywhere: bool) -> tuple[list[Record | datetime], str]:
        """Give the records of this place, or of any; and what is wrong with one that cannot be read.

        Where one was withdrawn, the time stands for it.
        """
        found: list[Record | datetime] = []
        fault = ""
        files = sorted((self._folder / key).glob(f"*-{position}.json"))
        for file in files:
            try:
                content = json.loads(file.read_bytes())
                here = self._is_here(content)
                if "withdrawn" in content:
                    found += [datetime.fromisoformat(content["withdrawn"]).astimezone(UTC)] if here else []
                    continue
                record = from_values(content["record"])
            except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
                fault = f"its record {file} is damaged ({str(error)[:100]})"
                continue
            if record.key == key and (here or anywhere):
                found.append(record)
        return found, fault

    def _is_here(self, content: Mapping[str, Any]) -> bool:
        """Whether a record was made in this notebook; where either is unknown, the folder decides."""
        here, there = self._path(), str(content["notebook"])
        if here is not None and there:
            return str(here) == there
        return str(content["folder"]) == str(Path.cwd())

    def _file(self, key: str, place: str, position: int) -> Path:
        name = hashlib.sha256(place.encode("utf-8", "replace")).hexdigest()[:16]
        return self._folder / key / f"{name}-{position}.json"

    def _place(self) -> str:
        return str(self._path() or Path.cwd())

    # -- in the notebook --------------------------------------------------------------------------------

    def _path(self) -> Path | None:
        return notebook_path(self._shell, os.environ)

    def _read_notebooks(self) -> Iterator[tuple[tuple[str, int], Record]]:
        path = self._path()
        paths = [path] if path is not None else []
        if path is None and not self._asks:  # nbclient and papermill do not say which notebook they execute
            paths = sorted(Path.cwd().glob("*.ipynb"))[:MOST_NOTEBOOKS]
        for candidate in paths:
            for position, values in _records_in(candidate):
                key = str(values.get("key", "")) if isinstance(values, dict) else ""
                try:
                    yield (key, position), from_values(values)
                except ValueError as error:
                    self._damaged[key, position] = (
                        f"its record in {candidate.name} is damaged ({str(error)[:100]})"
                    )


def withdraw_runs(home: Path, session: str, runs: Collection[int]) -> None:
    """Let no cell replay these runs of a session, whichever process recorded them. Raises `StoreError`."""
    for file in (home / "records").glob("*/*.json"):
        try:
            text = file.read_bytes()
            content = json.loads(text) if session.encode() in text else {}
            where = {name: str(content[name]) for name in ("folder", "notebook")} if "record" in content else {}
        except (OSError, ValueError, TypeError, KeyError, RecursionError):  # damaged: nothing replays it
            continue
        if where and content.get("session") == session and content.get("run") in runs:
            _write_values(file, {**where, "withdrawn": _now()})


def _write_values(file: Path, values: Mapping[str, Any]) -> None:
    write_whole(file, json.dumps(values, ensure_ascii=False).encode("utf-8", "replace"), force=True)


def _now() -> str:
    return datetime.now(UTC).isoformat()


def cell_id(shell: Any) -> str:
    """Give the id of the cell that is executed, where the front end says it (JupyterLab does)."""
    request = getattr(shell, "parent_header", None) or {}
    metadata = request.get("metadata")
    return str(metadata.get("cellId") or "") if isinstance(metadata, dict) else ""


def notebook_path(shell: Any, environment: Mapping[str, str]) -> Path | None:
    """Give the path of the notebook, where the front end says it: Jupyter servers, VS Code, papermill."""
    names = getattr(shell, "user_ns", {})
    for named in (
        names.get("__vsc_ipynb_file__"),
        names.get("PAPERMILL_INPUT_PATH"),
        environment.get("JPY_SESSION_NAME"),
    ):
        if isinstance(named, str) and named.endswith(".ipynb"):
            path = Path(named).absolute()
            if path.is_file():
                return path
    return None


def _records_in(path: Path) -> Iterator[tuple[int, object]]:
    """Give what stands for a record in each `%%agent` cell of a notebook, unchecked; nothing of no notebook.

    Each comes with its cell's position, from 1, among the cells of the same source.
    """
    try:
        if path.stat().st_size > LARGEST_NOTEBOOK:
            return
        content = path.read_bytes()
        if b"%%agent" not in content:  # most of a folder's notebooks: not worth taking apart
            return
        notebook = json.loads(content)
        cells = [cell for cell in notebook["cells"] if cell.get("cell_type") == "code"]
        sources = ["".join(cell.get("source", "")) for cell in cells]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
    seen: dict[str, int] = {}
    for cell, source in zip(cells, sources, strict=True):
        if not _AGENT_CELL.match(source):
            continue
        position = seen[source.strip()] = seen.get(source.strip(), 0) + 1
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            metadata = output.get("metadata") if isinstance(output, dict) else None
            ours = metadata.get(METADATA) if isinstance(metadata, dict) else None
            if isinstance(ours, dict) and "record" in ours:
                yield position, ours["record"]


def in_output(record: Record) -> dict[str, Any]:
    """Give the metadata that carries a record in its cell's output."""
    return {METADATA: {"record": record.model_dump(mode="json")}}
