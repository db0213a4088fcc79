"""The seam to where session logs live."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nbagent.events import Event


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One line of `nbagent sessions`."""

    id: str
    started: float  #: seconds since the epoch
    folder: str
    task: str  #: the first task
    runs: int
    reason: str  #: how the last run ended; "" while it runs or where it was killed
    model: str = ""


class SessionLog(Protocol):
    """One session's log, open for writing by this process alone."""

    id: str
    folder: Path  #: the session's own folder, for large outputs and copies

    def append(self, event: Event) -> Event:
        """Stamp and store an event (deltas are stamped only); give the stamped one."""
        ...

    async def sync(self) -> None:
        """Make sure that what was appended survives a power cut."""
        ...

    def close(self) -> None:
        """Close it and let another process have it."""
        ...


class SessionStore(Protocol):
    """Where session logs live."""

    def create(self) -> SessionLog:
        """Begin a new session."""
        ...

    def open(self, session: str) -> SessionLog:
        """Open one for writing. Raises `SessionBusy` or `StoreError`."""
        ...

    def read(self, session: str) -> list[Event]:
        """Read one, torn or corrupt lines left out. Raises `StoreError` when there is none."""
        ...

    def summaries(self) -> list[SessionSummary]:
        """List them, newest first."""
        ...
