"""Tells which files an action made, changed or deleted, and keeps copies of what it is about to overwrite.

The copies lie in the session folder as `files/DIGEST`, named for their content; `FilesChanged` events say which
copy belongs where, and `nbagent.file_history` puts them back. What an action did is found by comparing the
workspace before and after it, so a file that somebody else changed in the meantime counts as changed by it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from nbagent.events import FileChange, FilesChanged
from nbagent.glance import Effort

LARGEST_COPY = 50_000_000  #: bytes of one file that a copy is kept of
MOST_COPIED = 200_000_000  #: bytes copied before one action that may overwrite anything
MOST_ENTRIES = 2000  #: files and folders that one look at the workspace takes in
MOST_SECONDS = 0.02  #: for one look: it comes before and after every step
STARVED_SECONDS = 0.1  #: more where the machine is busy with other things, or its files are far away
THOROUGH = 20  #: times as much before and after an action that may overwrite anything
MOST_TOLD = 8  #: paths of one kind that a line names
#: Folders that other programs fill; hidden ones are left out too.
PASSED_OVER = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
COPIES = "files"  #: the folder of the copies, within the session folder


class Stamp(NamedTuple):
    """What tells that a file was written to: made for each file of a workspace at every step, so it is cheap."""

    size: int
    modified: int  #: nanoseconds since the epoch
    node: int
    mode: int

    def __str__(self) -> str:
        return f"{self.size}-{self.modified}"


@dataclass(slots=True)
class Look:
    """The regular files of a workspace at one moment, by path; its folders, and those of them that were read."""

    files: dict[str, Stamp] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)


def stamp_of(path: Path) -> Stamp | None:
    """Give the stamp of a regular file; None where there is none."""
    with suppress(OSError, ValueError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            return _stamp(status)
    return None


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino, stat.S_IMODE(status.st_mode))


_NAME = attrgetter("name")


def look_at(workspace: Path, passed_over: Iterable[Path] = (), *, thorough: bool = False) -> Look:
    """Look at the files of a workspace, nearest first, within bounds of number and time."""
    seen = Look()
    times = THOROUGH if thorough else 1
    effort = Effort(STARVED_SECONDS)
    left_out = {os.fspath(path) for path in passed_over}
    waiting = deque([""])
    count = 0
    while waiting and count < MOST_ENTRIES * times and effort.seconds() < MOST_SECONDS * times:
        folder = waiting.popleft()
        try:
            with os.scandir(workspace / folder) as entries:
                found = sorted(entries, key=_NAME)
        except OSError:
            continue
        count += len(found)
        seen.read.add(folder)
        before = f"{folder}/" if folder else ""
        for entry in found:
            name = entry.name
            try:
                if entry.is_file(follow_symlinks=False):
                    seen.files[before + name] = _stamp(entry.stat(follow_symlinks=False))
                elif entry.is_dir(follow_symlinks=False):
                    seen.folders.add(before + name)
                    if not (name.startswith(".") or name in PASSED_OVER or entry.path in left_out):
                        waiting.append(before + name)
            except OSError:  # it is gone again
                continue
    return seen


class Copies:
    """The copies of one session, named for their content: the same content is kept once."""

    def __init__(self, session_folder: Path):
        self.folder = session_folder / COPIES

    def keep(self, path: Path) -> str:
        """Copy a regular file and give its digest.

        Raises:
            OSError: it cannot be read or written, or is no regular file.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f"{secrets.token_hex(8)}.part"
        digest = hashlib.blake2b(digest_size=20)
        try:
            descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT | _BINARY)
            with os.fdopen(descriptor, "rb") as source, unfinished.open("wb") as target:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError("no regular file")
                while piece := source.read(1 << 20):
                    digest.update(piece)
                    target.write(piece)
            unfinished.replace(self.folder / digest.hexdigest())
        finally:
            unfinished.unlink(missing_ok=True)
        return digest.hexdigest()

    def place(self, digest: str) -> Path:
        """Give the file that holds a copy."""
        return self.folder / digest


_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)


class Watch:
    """One action's effect on files: make it before the action (that copies), ask for `changes` after it.

    `paths` are those that the action names (relative to the workspace or absolute); `anything` says that it may
    overwrite or delete others too, so that all files are copied first, within `MOST_COPIED`; `words` is the
    action's own text. Both methods read and write files: run them in a thread where they may take long.
    """

    def __init__(
        self, workspace: Path, session_folder: Path, *, paths: Iterable[str] = (), anything: bool, words: str = ""
    ):
        self._workspace = workspace
        self._words = words
        self._copies = Copies(session_folder)
        self._passed_over = (session_folder, session_folder.parent)
        self._thorough = anything
        self._before = look_at(workspace, self._passed_over, thorough=anything)
        self._named: set[str] = set()
        for path in paths:
            self._name(path)
        had = {digest.name for digest in _listed(self._copies.folder)}
        self._kept, self._why = self._keep(anything)
        self._new = set(self._kept.values()) - had

    def _name(self, path: str) -> None:
        """Take in a path that the action names, or all below it if it is a folder."""
        whole = self._workspace / path
        with suppress(ValueError):
            path = whole.relative_to(self._workspace).as_posix()
        if not whole.is_dir() or whole.is_symlink():
            self._named.add(path)
            if (mark := stamp_of(whole)) is not None:
                self._before.files[path] = mark
            return
        for name, mark in look_at(whole, thorough=True).files.items():
            inner = f"{path}/{name}" if path != "." else name
            self._named.add(inner)
            self._before.files[inner] = mark

    def _keep(self, anything: bool) -> tuple[dict[str, str], dict[str, str]]:
        """Copy what may be lost; give the digest, or why there is no copy, by path."""
        kept: dict[str, str] = {}
        why: dict[str, str] = {}
        room = MOST_COPIED
        others = sorted(set(self._before.files) - self._named, key=lambda path: self._before.files[path].size)
        for path in [*sorted(self._named & set(self._before.files)), *(others if anything else ())]:
            size = self._before.files[path].size
            if size > LARGEST_COPY:
                why[path] = f"over {LARGEST_COPY // 1_000_000} MB"
                continue
            if path not in self._named:
                room -= size
                if room < 0:
                    why[path] = "too much to copy"
                    continue
            try:
                kept[path] = self._copies.keep(self._workspace / path)
            except OSError as error:
                why[path] = error.strerror or "it could not be read"
        return kept, why

    def changes(self) -> FilesChanged | None:
        """Tell what the action did to files, and let go of the copies that were not needed."""
        after = look_at(self._workspace, self._passed_over, thorough=self._thorough)
        for path in self._named:
            if (mark := stamp_of(self._workspace / path)) is not None:
                after.files[path] = mark
            else:
                after.files.pop(path, None)
        found = [
            change
            for path in sorted(_differing(self._before.files, after.files))
            if (change := self._compare(path, self._before, after)) is not None
        ]
        needed = {change.before for change in found}
        for digest in self._new - needed:
            self._copies.place(digest).unlink(missing_ok=True)
        return FilesChanged(changes=found) if found else None

    def _compare(self, path: str, before: Look, after: Look) -> FileChange | None:
        old, new = before.files.get(path), after.files.get(path)
        if old == new or not self._counts(path, before, after):
            return None
        if old is None:
            return FileChange(path=path, change="made", after=str(new))
        kept = self._kept.get(path, "")
        if new is not None and kept and old.mode == new.mode and self._same(path, kept, old, new):
            return None
        return FileChange(
            path=path,
            change="deleted" if new is None else "changed",
            before=kept,
            mode=old.mode,
            after="" if new is None else str(new),
            no_copy="" if kept else self._why.get(path, "it was not known that it would be written"),
        )

    def _counts(self, path: str, before: Look, after: Look) -> bool:
        """Leave out what says nothing: a folder that was not read both times, a notebook that its page saves."""
        if path in self._named:
            return True
        folder, _, name = path.rpartition("/")
        if name.endswith(".ipynb") and name not in self._words:
            return False
        if path in before.files:
            return folder in after.read or (folder not in after.folders and folder != "")
        while folder and folder not in before.folders:  # a new folder is as good as one that was read
            folder = folder.rpartition("/")[0]
        return folder in before.read

    def _same(self, path: str, digest: str, old: Stamp, new: Stamp) -> bool:
        """Whether a file that was written to holds what it held."""
        if old.size != new.size or new.size > LARGEST_COPY:
            return False
        with suppress(OSError), (self._workspace / path).open("rb") as opened:
            return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=20)).hexdigest() == digest
        return False


def files_line(event: FilesChanged | None) -> str:
    """Say in one line what happened to files; "" where nothing did."""
    told = []
    for kind in ("made", "changed", "deleted"):
        paths = [change.path for change in event.changes if change.change == kind] if event else []
        more = f" and {len(paths) - MOST_TOLD} more" if len(paths) > MOST_TOLD else ""
        if paths:
            told.append(f"{kind} {', '.join(paths[:MOST_TOLD])}{more}")
    return f"Files: {'; '.join(told)}" if told else ""


def _differing(before: dict[str, Stamp], after: dict[str, Stamp]) -> set[str]:
    """Give the paths whose stamps are not the same; all that is compared is compared at once."""
    return set() if before == after else {path for path, _ in before.items() ^ after.items()}


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
