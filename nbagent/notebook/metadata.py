"""What a notebook says of its making: models, prompts, usage, versions, packages, kernel, data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from nbagent.events import (
    ActionStarted,
    DataFile,
    DataFilesSeen,
    DialectChosen,
    Event,
    FilesChanged,
    KernelStarted,
    PackagesImported,
    RunFinished,
    RunStarted,
    SessionStarted,
)
from nbagent.notebook.texts import Texts


def notebook_metadata(
    events: Sequence[Event], texts: Texts, rung: str, data_files: Mapping[str, DataFile]
) -> dict[str, Any]:
    """Give the notebook's metadata, our own under `nbagent`."""
    versions = versions_of(events)
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
        "nbagent": {
            "session": events[0].session,
            "rung": rung,
            "versions": versions,
            "environment": _environment(events, texts, versions, data_files),
            "runs": _runs(events, texts),
        },
    }


def versions_of(events: Sequence[Event]) -> dict[str, str]:
    """Give what was recorded when the session began."""
    started = next((event for event in events if isinstance(event, SessionStarted)), None)
    return dict(started.versions) if started is not None else {}


def data_files_of(events: Sequence[Event]) -> dict[str, DataFile]:
    """Give the files that code named and found as they were when it first did, but for those that it made."""
    made: set[str] = set()
    found: dict[str, DataFile] = {}
    cells = _cells(events)
    for event in events:
        if isinstance(event, FilesChanged) and _by_a_cell(event, cells):
            made |= {change.path for change in event.changes if change.change == "made"}
        elif isinstance(event, DataFilesSeen):
            for file in event.files:
                if file.path not in made:
                    found.setdefault(file.path, file)
    return found


def _cells(events: Sequence[Event]) -> set[tuple[int, int, str]]:
    return {(e.run, e.step, e.call_id) for e in events if isinstance(e, ActionStarted) and e.code}


def _by_a_cell(event: FilesChanged, cells: set[tuple[int, int, str]]) -> bool:
    """Whether code did it, and the notebook does it again; what tools wrote lies beside it, as data does."""
    return (event.run, event.step, event.call_id) in cells


def made_files_of(events: Sequence[Event]) -> list[str]:
    """Give the paths of the files that the session's code made, relative to its folder."""
    made: dict[str, None] = {}
    cells = _cells(events)
    for event in events:
        for change in event.changes if isinstance(event, FilesChanged) and _by_a_cell(event, cells) else ():
            if change.change == "made":
                made.setdefault(change.path)
    return list(made)


def originals_of(events: Sequence[Event]) -> dict[str, str]:
    """Give the files that the session's code changed or deleted, each with the copy of what stood there first."""
    first: dict[str, str] = {}
    cells = _cells(events)
    for event in events:
        for change in event.changes if isinstance(event, FilesChanged) and _by_a_cell(event, cells) else ():
            first.setdefault(change.path, "" if change.change == "made" else change.before)
    return {path: copy for path, copy in first.items() if copy}


def _environment(
    events: Sequence[Event], texts: Texts, versions: Mapping[str, str], data_files: Mapping[str, DataFile]
) -> dict[str, Any]:
    packages: dict[str, str] = {}
    for event in events:
        if isinstance(event, PackagesImported):
            packages |= event.packages
    kernels = [event for event in events if isinstance(event, KernelStarted)]
    environment: dict[str, Any] = {
        "python": versions.get("python", ""),
        "packages": dict(sorted(packages.items())),
    }
    if kernels:
        kernel = kernels[-1]
        told = {
            "kind": kernel.kind,
            "python": texts.clean(kernel.python),
            "ipykernel": versions.get("ipykernel", ""),
        }
        environment["kernel"] = told
    environment["data_files"] = [
        {"path": texts.clean(file.path), "bytes": file.size, "sha256": file.sha256} for file in data_files.values()
    ]
    environment["made_files"] = [texts.clean(path) for path in made_files_of(events)]
    return environment


def _runs(events: Sequence[Event], texts: Texts) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, RunStarted):
            prompt = _prompt(events, event.run)
            runs.append({"run": event.run, "model": texts.mask(event.model), "prompt_sha256": prompt})
        elif isinstance(event, RunFinished) and runs:
            usage = {**event.usage.model_dump(), "total_tokens": event.usage.total_tokens}
            runs[-1] |= {
                "reason": event.reason,
                "steps": event.steps,
                "seconds": round(event.seconds, 3),
                "usage": usage,
            }
    return runs


def _prompt(events: Sequence[Event], run: int) -> str:
    """Give the hash of the system prompt that a run was made with."""
    systems = [event.system for event in events if isinstance(event, DialectChosen) and event.run <= run]
    return hashlib.sha256(systems[-1].encode("utf-8", "replace")).hexdigest() if systems else ""
