"""Puts files back as they were: a function of the session's log and of the copies in its folder.

A file that was touched since by somebody else is left alone and named: what the user did by hand is never
undone. What is taken away goes to the copies first, so that even an undo loses nothing.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nbagent.events import Event, FileChange, FilesChanged, SessionResumed, SessionStarted
from nbagent.tools.file_changes import LARGEST_COPY, Copies, stamp_of


@dataclass(slots=True)
class Restored:
    """What `restore_files` did. `left` names the files that are not as they were, each with the reason."""

    back: list[str] = field(default_factory=list)  #: paths whose earlier content stands there again
    removed: list[str] = field(default_factory=list)  #: paths of files that the undone steps had made
    left: list[tuple[str, str]] = field(default_factory=list)
    event: FilesChanged | None = None  #: emit it: a later undo has to know what this one did

    def words(self) -> str:
        """Say it in one line; "" where no file was concerned."""
        told = []
        if self.back:
            told.append(f"put back: {_listed(self.back)}")
        if self.removed:
            told.append(f"removed again: {_listed(self.removed)}")
        if self.left:
            told.append("left as they are: " + _listed([f"{path} ({why})" for path, why in self.left]))
        return "Files " + "; ".join(told) if told else ""


def files_changed(events: Iterable[Event], *, since: int) -> list[str]:
    """List the files that events from number `since` on made, changed or deleted, in order of path."""
    return sorted({path for path, _, _ in _histories(events, since)})


def restore_files(events: Sequence[Event], session_folder: Path, *, since: int) -> Restored:
    """Put files back as they were before the event number `since`, usually a step's `StepStarted`.

    It blocks on files (run it in a thread), never raises `OSError`, and does nothing a second time.
    """
    copies = Copies(session_folder)
    restored = Restored()
    done: list[FileChange] = []
    for path, first, last in _histories(events, since):
        folder = _folder(events, since)
        place = folder / path
        try:
            _stays_within(folder, place)
            change = _restore(place, first, last, copies)
        except _Left as reason:
            restored.left.append((path, str(reason)))
        except OSError as error:
            restored.left.append((path, error.strerror or "it cannot be written"))
        else:
            if change is not None:
                done.append(change)
                (restored.removed if change.change == "deleted" else restored.back).append(path)
    if done:
        restored.event = FilesChanged(changes=done)
    return restored


class _Left(Exception):
    """Why a file is not put back."""


def _stays_within(folder: Path, place: Path) -> None:
    """Raise `_Left` where code has put a link on the way, which would have us write outside of the folder."""
    inside = Path(os.path.normpath(place)).is_relative_to(os.path.normpath(folder))
    if inside and not Path(os.path.realpath(place.parent)).is_relative_to(os.path.realpath(folder)):
        raise _Left("a link there leads out of the folder")


def _histories(events: Iterable[Event], since: int) -> list[tuple[str, FileChange, FileChange]]:
    """Give each path with its first and its last change from `since` on."""
    found: dict[str, list[FileChange]] = {}
    for event in events:
        if isinstance(event, FilesChanged) and event.seq >= since:
            for change in event.changes:
                found.setdefault(change.path, []).append(change)
    return [(path, changes[0], changes[-1]) for path, changes in sorted(found.items())]


def _folder(events: Iterable[Event], since: int) -> Path:
    """Give the folder that the session worked in from `since` on."""
    folder = "."
    for event in events:
        if isinstance(event, SessionStarted | SessionResumed) and (event.seq <= since or folder == "."):
            folder = event.folder
    return Path(folder)


def _restore(place: Path, first: FileChange, last: FileChange, copies: Copies) -> FileChange | None:
    now = stamp_of(place)
    wanted = "" if first.change == "made" else first.before
    if now is None and (place.exists() or place.is_symlink()):
        raise _Left("something else stands there now")
    if first.change == "made" and now is None:
        return None
    if first.change != "made":
        if not wanted:
            raise _Left(f"there is no copy: {first.no_copy}")
        if not copies.place(wanted).is_file():
            raise _Left("its copy is gone")
        if now is not None and now.size <= LARGEST_COPY and copies.keep(place) == wanted:
            return None
    if str(now or "") != last.after:
        raise _Left("it was changed since")
    kept = ""
    if now is not None and now.size <= LARGEST_COPY:
        kept = copies.keep(place)
    if not wanted:
        place.unlink()
        return FileChange(path=first.path, change="deleted", before=kept, mode=now.mode if now else 0)
    _put(copies.place(wanted), place, first.mode)
    return FileChange(
        path=first.path,
        change="changed" if now else "made",
        before=kept,
        mode=now.mode if now else 0,
        after=str(stamp_of(place) or ""),
        no_copy="" if kept or not now else "it was too large",
    )


def _put(copy: Path, place: Path, mode: int) -> None:
    """Write a copy's content to `place` in one move, with the permissions that the file had."""
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with copy.open("rb") as source, unfinished.open("xb") as target:
            while piece := source.read(1 << 20):
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
        with suppress(OSError):
            unfinished.chmod(mode or 0o644)
        unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(paths[:12]) + (f" and {len(paths) - 12} more" if len(paths) > 12 else "")
