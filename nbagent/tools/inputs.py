"""Which files a cell starts from: those that stand there and that its code names."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from nbagent.events import DataFile
from nbagent.tools.own_files import OwnFiles
from nbagent.tools.source import parse

#: Bytes of a file that is hashed: larger ones are told by their size alone.
LARGEST_HASHED = 256_000_000
LONGEST_PATH = 400  #: characters


class Inputs:
    """The files that a session's code found, each told once for every state it was in."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, int]] = {}

    @property
    def paths(self) -> list[Path]:
        """The files that the session's code named, the latest last."""
        return list(self._seen)

    def look(self, code: str, folder: Path, own: OwnFiles) -> list[DataFile]:
        """Give the files that `code` names and that were not told yet; not the session's `own`."""
        found = []
        for text in dict.fromkeys(_literals(code)):
            path = folder / text
            name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()
            if own.has(name, folder):
                continue
            try:
                if not path.is_file():
                    continue
                status = path.stat()
                if self._seen.get(path) == (status.st_size, status.st_mtime_ns):
                    continue
                self._seen[path] = status.st_size, status.st_mtime_ns
                found.append(DataFile(path=name, size=status.st_size, sha256=_hash(path, status.st_size)))
            except (OSError, ValueError):  # what cannot be read is no input; a null byte is in no path
                continue
        return found


def _literals(code: str) -> list[str]:
    try:
        tree = parse(code)
    except SyntaxError:
        return []
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [text for text in texts if 0 < len(text) <= LONGEST_PATH and "\n" not in text]


def _hash(path: Path, size: int) -> str:
    if size > LARGEST_HASHED:
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
