"""A copy of the folder that a notebook works in, without what the session itself made there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from nbagent.errors import StoreError, UsageError

#: A folder with more than this is not copied as a whole: the files that the code named are.
MOST_FILES = 20_000
MOST_BYTES = 2_000_000_000
_PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv", "env"})


def copy_workspace(folder: Path, target: Path, *, without: Iterable[str] = (), needed: Iterable[str] = ()) -> None:
    """Copy `folder` to `target`, which is made; hidden folders and environments are left out.

    `without` are paths that the notebook makes itself; `needed` are those to copy where the whole is too large.

    Raises:
        UsageError: it is too large, and what is needed is not known.
        StoreError: it cannot be copied.
    """
    left_out = {PurePath(path).as_posix() for path in without}
    target.mkdir(parents=True)
    files = list(_files(folder))
    if len(files) > MOST_FILES or sum(size for _, size in files) > MOST_BYTES:
        named = [PurePath(path) for path in needed if not PurePath(path).is_absolute()]
        if not named:
            raise UsageError(
                f"{folder} is too large to be copied (over {MOST_FILES:,} files or {MOST_BYTES // 10**9} GB): "
                "use --in-place to run the notebook in it, or name a smaller one with --folder"
            )
        files = [(path, 0) for path in named if ".." not in path.parts and (folder / path).is_file()]
    try:
        for path, _ in files:
            if path.as_posix() not in left_out:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / path, target / path)
    except OSError as error:
        raise StoreError(f"cannot copy {folder} for the clean run: {error.strerror}: {error.filename}") from error


def _files(folder: Path) -> Iterator[tuple[PurePath, int]]:
    """Give the files below a folder, no more than it takes to see that there are too many."""
    count = size = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        for name in names:
            path = Path(parent, name)
            if name.startswith(".nbagent") or not path.is_file():
                continue
            bytes_ = path.stat().st_size
            count, size = count + 1, size + bytes_
            yield path.relative_to(folder), bytes_
            if count > MOST_FILES or size > MOST_BYTES:
                return
