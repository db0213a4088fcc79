"""The smallest notebook that verifies: distilled, then clean, then full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nbagent.events import Event, RunStarted, SessionResumed, SessionStarted
from nbagent.notebook.atomic import refuse_existing
from nbagent.notebook.export import Draft, ExportReport, Rung, draft_notebook, write_draft
from nbagent.notebook.metadata import originals_of
from nbagent.notebook.verify import TIME_LIMIT, Verdict, put_verdict, verify_notebook
from nbagent.redaction import Redactor

RUNGS: tuple[Rung, ...] = ("distilled", "clean", "full")


@dataclass
class Climb:
    """What was tried, in order, and what was written."""

    report: ExportReport
    tried: list[tuple[Rung, Verdict]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether what was written verified."""
        return self.tried[-1][1].ok and self.tried[-1][0] == self.report.rung


async def export_verified(
    events: Sequence[Event],
    path: Path,
    *,
    rungs: Sequence[Rung] = RUNGS,
    force: bool = False,
    timeout: float = TIME_LIMIT,
    redactor: Redactor | None = None,
    session_folder: Path | None = None,
) -> Climb:
    """Write the first of `rungs` that verifies, its verdict in it.

    Where none does, the last is written with its verdict all the same: nothing is lost, and `Climb.ok` is
    False. `timeout` is in seconds for each rung. `session_folder` holds the copies of files as they were before
    the session changed them: the notebook is to start from those.

    Raises:
        UsageError, FileExistsRefused, StoreError, KernelError: see `export_notebook` and `verify_file`.
    """
    if not force:
        refuse_existing(path)
    folders = [Path(event.folder) for event in events if isinstance(event, SessionStarted | SessionResumed)]
    folder = folders[-1] if folders else Path.cwd()
    originals = _originals(events, session_folder)
    tried: list[tuple[Draft, Verdict]] = []
    for rung in rungs:
        draft = draft_notebook(events, path, rung=rung, redactor=redactor)
        same = [verdict for other, verdict in tried if other.executed == draft.executed]
        verdict = (
            same[0]
            if same
            else await verify_notebook(
                draft.notebook,
                folder=folder,
                files=draft.files,
                originals=originals,
                timeout=timeout,
                confine=_confinement(events),
                redactor=redactor,
            )
        )
        tried.append((draft, verdict))
        if verdict.ok:
            break
    draft, verdict = tried[-1]
    put_verdict(draft.notebook, verdict)
    draft.notebook["metadata"]["nbagent"]["verified"]["tried"] = [
        {"rung": other.rung, "ok": found.ok, "why": found.line} for other, found in tried
    ]
    report = write_draft(draft, path, force=force)
    return Climb(report, [(other.rung, found) for other, found in tried])


def _originals(events: Sequence[Event], session_folder: Path | None) -> dict[str, Path]:
    if session_folder is None:
        return {}
    found = {path: session_folder / "files" / copy for path, copy in originals_of(events).items()}
    return {path: copy for path, copy in found.items() if copy.is_file()}


def _confinement(events: Sequence[Event]) -> Literal["workspace", "strict", "off"]:
    """Hold the code as it was held when it first ran."""
    started = [event for event in events if isinstance(event, RunStarted)]
    held = started[-1].settings.get("confine") if started else ""
    return "off" if held == "off" else "strict" if held == "strict" else "workspace"
