"""The files that a session made itself, which it may overwrite and delete unasked, and how tools write files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbagent.events import FileChange, FilesChanged, Risk
from nbagent.protocols import ToolContext
from nbagent.tools.file_changes import LARGEST_COPY, Copies, stamp_of
from nbagent.tools.paths import PathRefused, Place, locate, write_whole


class OwnFiles:
    """Made once a session (`ToolContext.kept`). A file that somebody wrote to since is no longer its own."""

    def __init__(self) -> None:
        self._left_as: dict[str, str] = {}

    def took(self, event: FilesChanged) -> None:
        """Take note of what an action did to files."""
        for change in event.changes:
            if change.change == "made" or (change.path in self._left_as and change.after):
                self._left_as[change.path] = change.after
            else:
                self._left_as.pop(change.path, None)

    def has(self, path: str, folder: Path) -> bool:
        """Say whether the session made the file at `path` in `folder`, and nobody changed it since."""
        left_as = self._left_as.get(path)
        return left_as is not None and left_as == str(stamp_of(folder / path) or "")


def grade_write(arguments: Any, context: ToolContext) -> tuple[Risk, str]:
    """Grade a tool's write to `path`: what stands there and is not the session's own is overwritten."""
    try:
        place = locate(str(arguments["path"]), context.folder, also=context.allow_write, write=True)
    except PathRefused:
        return "read", "is refused"
    if place.path.exists() and not context.kept(OwnFiles).has(place.shown, place.root):
        return "overwrite", f"overwrites {place.shown}"
    return "write", f"writes {place.shown}"


def what_a_yes_covers(arguments: dict[str, Any]) -> list[str]:
    """Say what "always" allows a tool that writes: this file, as it is named."""
    return [f"overwrites {arguments['path']}"]


def put(place: Place, content: bytes, context: ToolContext) -> FileChange:
    """Write a file whole, with a copy kept of what stood there; emits `FilesChanged`. Raises `PathRefused`."""
    before = stamp_of(place.path)
    copy, no_copy = "", ""
    if before is not None:
        no_copy = f"over {LARGEST_COPY // 1_000_000} MB" if before.size > LARGEST_COPY else ""
        try:
            copy = "" if no_copy else Copies(context.session_folder).keep(place.path)
        except OSError as error:
            raise PathRefused(f"{place.shown} cannot be copied before it is written: {error.strerror}.") from None
    write_whole(place, content)
    change = FileChange(
        path=place.shown,
        change="changed" if before else "made",
        before=copy,
        mode=before.mode if before else 0,
        after=str(stamp_of(place.path) or ""),
        no_copy=no_copy,
    )
    event = FilesChanged(changes=[change])
    context.emit(event)
    context.kept(OwnFiles).took(event)
    return change
