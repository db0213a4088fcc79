"""An export as the faces ask for it: `[--clean|--distill] [--verify] [--force]`, in one call with its words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nbagent.agent_thread import MainThreadQueue, agent_thread
from nbagent.errors import UsageError, VerificationFailed
from nbagent.events import Event
from nbagent.notebook.export import ExportReport, Rung, export_notebook
from nbagent.notebook.ladder import RUNGS, Climb, export_verified
from nbagent.notebook.verify import TIME_LIMIT, Verdict, verify_file
from nbagent.redaction import Redactor
from nbagent.stores.files import default_home


@dataclass(frozen=True)
class ExportRequest:
    """What is asked for. `distill` with `verify` climbs: distilled, clean, full."""

    clean: bool = False
    distill: bool = False
    verify: bool = False
    force: bool = False
    timeout: float = TIME_LIMIT  #: seconds for each clean run

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """What may be written, smallest first."""
        if self.clean and self.distill:
            raise UsageError("--clean and --distill exclude each other: a distilled notebook is clean already")
        if self.distill:
            return RUNGS if self.verify else ("distilled",)
        return ("clean",) if self.clean else ("full",)


@dataclass(frozen=True)
class Exported:
    """What was written, what to tell the user, and, where it was verified, how that went."""

    report: ExportReport
    lines: list[str]
    climb: Climb | None = None

    def check(self) -> None:
        """Raise `VerificationFailed` where it was to be verified and did not verify."""
        if self.climb is not None and not self.climb.ok:
            why = self.climb.tried[-1][1].line
            raise VerificationFailed(f"{self.report.path} was written, but it is not proven. {why}")


def export_session(
    events: Sequence[Event],
    path: Path,
    request: ExportRequest,
    *,
    redactor: Redactor | None = None,
    main: MainThreadQueue | None = None,
    session_folder: Path | None = None,
) -> Exported:
    """Write the session as asked. Ctrl-C stops a verification, and nothing is written.

    `session_folder` is where the session lies (default: below NBAGENT_HOME).

    Raises:
        UsageError: there is nothing to export, or the options exclude each other.
        FileExistsRefused: something is at `path` already and `force` was not given.
        StoreError: the file cannot be written; what was there is unchanged.
        KernelError: no kernel came up for the verification.
    """
    rungs = request.rungs
    redactor = redactor or Redactor.from_environment(os.environ)
    if not request.verify:
        report = export_notebook(events, path, rung=rungs[0], force=request.force, redactor=redactor)
        return Exported(report, [f"Exported to {report.path}.", *_without(report)])
    climbing = export_verified(
        events,
        path,
        rungs=rungs,
        force=request.force,
        timeout=request.timeout,
        redactor=redactor,
        session_folder=session_folder or default_home(os.environ) / "sessions" / events[0].session,
    )
    climb = agent_thread().run(climbing, main=main)
    lines = [f"{rung}: {verdict.line}" for rung, verdict in climb.tried]
    lines.append(f"Exported to {climb.report.path}: the {climb.report.rung} notebook.")
    return Exported(climb.report, [*lines, *_without(climb.report)], climb)


def verify_notebook_file(
    path: Path,
    *,
    folder: str | None = None,
    in_place: bool = False,
    timeout: float = TIME_LIMIT,
    confine: Literal["workspace", "strict", "off"] = "workspace",
) -> Verdict:
    """Verify a notebook file and write the verdict into it: see `verify_file`."""
    if not timeout > 0:
        raise UsageError("--timeout is a number of seconds above 0")
    return agent_thread().run(
        verify_file(
            path,
            folder=Path(folder).expanduser().absolute() if folder else None,
            in_place=in_place,
            timeout=timeout,
            confine=confine,
            redactor=Redactor.from_environment(os.environ),
        )
    )


def _without(report: ExportReport) -> list[str]:
    """Say what the notebook needs and does not hold, and which cells a distilled one does without and why."""
    needs = [f"It needs, and does not hold: {'; '.join(report.missing)}."] if report.missing else []
    if report.rung != "distilled":
        return needs
    kept = f"{report.code_cells} code cell{'s' if report.code_cells != 1 else ''} kept"
    return [*needs, kept, *(f"  left out: run {d.run}, step {d.step}: {d.why}" for d in report.dropped)]
