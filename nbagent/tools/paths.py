"""Holds the paths that a model names inside the workspace, and opens what they lead to.

The file tools run in the host, which nothing confines: these rules are their wall. A path is resolved first
(`..`, links, other spellings); what it leads to has to lie in the workspace. Then it is opened folder by folder
without following a link, so that nobody can put one in the way in the meantime.
"""

from __future__ import annotations

import difflib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nbagent.places import CREDENTIALS, WORK
from nbagent.protocols import ToolResult
from nbagent.tools.file_changes import look_at

_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_BY_FOLDER = os.open in os.supports_dir_fd and os.rename in os.supports_dir_fd
#: Names that Windows takes for devices in every folder.
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{kind}{n}" for kind in ("com", "lpt") for n in range(1, 10))}
)
LONGEST_PATH = 4096


class PathRefused(Exception):
    """A path cannot be used; the message says why and what to do, in the words of an observation.

    `data` is what the workspace itself has to say to it: names and texts that are not ours.
    """

    def __init__(self, message: str, data: str = ""):
        super().__init__(message)
        self.data = data

    def result(self) -> ToolResult:
        """Give the answer to the call."""
        message = str(self)
        return ToolResult("invalid", self.data, message.partition("\n")[0], notice=message)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: `path` is absolute and free of links, `shown` is how it is told."""

    root: Path
    path: Path
    shown: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders and the name below `root`."""
        return self.path.relative_to(self.root).parts


def locate(text: str, folder: Path, *, also: Sequence[Path] = (), write: bool = False) -> Place:
    """Resolve a path that a model named. Raises `PathRefused` where it leads out of the workspace.

    `also` are further folders that the user opened; what lies in one is told by its whole path.
    """
    if not text.strip():
        raise PathRefused("The path is empty: give one relative to the working folder.")
    if "\0" in text or len(text) > LONGEST_PATH:
        raise PathRefused("The path holds a null byte or is too long.")
    root = Path(os.path.realpath(folder))
    try:
        path = Path(os.path.realpath(root / Path(text).expanduser()))
        _check_name(path)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a home folder of nobody
        reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        raise PathRefused(f"{_short(text)} cannot be used as a path: {reason}.") from None
    inner = _within(path, root)
    for further in also if inner is None else ():
        opened = Path(os.path.realpath(further))
        if (below := _within(path, opened)) is not None:
            place = Place(opened, opened / below, _short((opened / below).as_posix()))
            _refuse_special(place, write=write)
            return place
    if inner is None:
        leads = f" (it leads to {path})" if not _same_text(text, path, root) else ""
        how = "" if write else "; run_code may read it"
        raise PathRefused(f"{_short(text)} lies outside the working folder {root}{leads}{how}.")
    place = Place(root, root / inner, _short(inner.as_posix()))
    _refuse_special(place, write=write)
    return place


def _check_name(path: Path) -> None:
    """Let the system object to what can be no path: a loop of links, a name too long."""
    with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
        path.stat()


def _refuse_special(place: Place, *, write: bool) -> None:
    if any(part.split(".")[0].rstrip().lower() in _DEVICES for part in place.parts) and os.name == "nt":
        raise PathRefused(f"{place.shown} is the name of a device.")
    home = Path(os.path.realpath(Path.home()))
    for name in CREDENTIALS:
        if _within(place.path, home / name) is not None:
            raise PathRefused(f"{place.shown} holds credentials and is not open to tools.")
    if not write:
        return
    if ".git" in (part.lower() for part in place.parts):
        raise PathRefused(f"{place.shown}: git's own files are not written to; use git commands.")
    if _within(home, place.root) is not None and place.parts[:1] != (WORK,):
        raise PathRefused(f"{place.root} is too wide to be written to: write below {WORK}/ in it.")


def _within(path: Path, folder: Path) -> Path | None:
    """Give `path` relative to `folder`, also where the two are spelt in different cases; None outside."""
    with suppress(ValueError):
        return path.relative_to(folder)
    rest: list[str] = []
    while path != path.parent:
        with suppress(OSError):
            if path.name.lower() == folder.name.lower() and path.samefile(folder):
                return Path(*rest)
        rest.insert(0, path.name)
        path = path.parent
    return None


def _same_text(text: str, path: Path, root: Path) -> bool:
    return os.path.normpath(root / text) == str(path)


def _short(text: str) -> str:
    """Give a path as it can stand in a line of ours."""
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= 200 else f"{text[:200]}…"


# -- opening -----------------------------------------------------------------------------------------------


@contextmanager
def _parent(place: Place, *, make: bool = False) -> Iterator[int | None]:
    """Open the folder that holds a place, link-free; None on systems where folders cannot be opened."""
    if not _BY_FOLDER:
        if make:
            place.path.parent.mkdir(parents=True, exist_ok=True)
        yield None
        return
    descriptor = os.open(place.root, _FOLDER & ~getattr(os, "O_NOFOLLOW", 0))
    try:
        for part in place.parts[:-1]:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=descriptor)
            below = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(place: Place) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        PathRefused: there is none, it is something else, or it may not be read.
    """
    try:
        with _parent(place) as folder:
            name = place.parts[-1] if place.parts and folder is not None else str(place.path)
            descriptor = os.open(name if place.parts else ".", os.O_RDONLY | _FILE, dir_fd=folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise PathRefused(f"There is no file {_short(place.shown)}.", _nearest(place)) from None
        raise PathRefused(f"{place.shown} cannot be opened: {error.strerror}.") from None
    kind = _kind(os.fstat(descriptor).st_mode)
    if kind:
        os.close(descriptor)
        hint = ": search_files lists what is in it" if kind == "a folder" else ", which is not opened"
        raise PathRefused(f"{place.shown} is {kind}{hint}.")
    return os.fdopen(descriptor, "rb")


def _nearest(place: Place) -> str:
    """Name the files that could be meant: of the same name elsewhere, or of nearly the same."""
    files = list(look_at(place.root).files)
    name = place.path.name.lower()
    same = [path for path in files if path.rpartition("/")[2].lower() == name]
    by_lower = {path.lower(): path for path in files}
    near = [by_lower[close] for close in difflib.get_close_matches(place.shown.lower(), by_lower, n=3, cutoff=0.6)]
    found = list(dict.fromkeys([*same[:3], *near]))[:4]
    if found:
        return f"Nearest: {', '.join(found)}"
    more = f" and {len(files) - 12} more" if len(files) > 12 else ""
    return (
        f"The working folder has: {', '.join(files[:12])}{more}" if files else "The working folder has no files."
    )


def _kind(mode: int) -> str:
    """Say what a thing is that is no regular file; "" for a regular one."""
    kinds = {
        stat.S_IFREG: "",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "no regular file")


def write_whole(place: Place, content: bytes) -> None:
    """Put `content` at a place in one move; folders are made, permissions are kept.

    Raises:
        PathRefused: it cannot be written; what stood there is as it was.
    """
    if not place.parts:
        raise PathRefused(f"{place.root} is the working folder itself: name a file in it.")
    name, unfinished = place.parts[-1], f".{secrets.token_hex(6)}.part"
    try:
        with _parent(place, make=True) as folder:
            beside = unfinished if folder is not None else str(place.path.with_name(unfinished))
            target = name if folder is not None else str(place.path)
            mode = _mode_of(target, folder, place)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
            descriptor = os.open(beside, flags, 0o666, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as opened:
                    opened.write(content)
                    opened.flush()
                    os.fsync(opened.fileno())
                    if mode is not None and hasattr(os, "fchmod"):
                        os.fchmod(opened.fileno(), mode)
                os.replace(beside, target, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=folder)
                raise
    except OSError as error:
        if isinstance(error, NotADirectoryError):
            raise PathRefused(f"{place.shown} lies below a file, not a folder.") from None
        raise PathRefused(f"{place.shown} cannot be written: {error.strerror}.") from None


def _mode_of(target: str, folder: int | None, place: Place) -> int | None:
    """Give the permissions of what stands there; None where nothing does. Raises `PathRefused` for no file."""
    try:
        mode = os.stat(target, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if kind := _kind(mode):
        raise PathRefused(f"{place.shown} is {kind}, which is not written to.")
    if not mode & stat.S_IWUSR:
        raise PathRefused(f"{place.shown} is write-protected.")
    return stat.S_IMODE(mode)
