"""A copy of the folder that a notebook works in, without what the session itself made there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from stat import S_ISREG
from types import MappingProxyType

from nbagent.errors import StoreError, UsageError
from nbagent.places import CREDENTIALS

#: A folder with more than this is not copied as a whole: the files that the code named are.
MOST_FILES = 20_000
MOST_BYTES = 2_000_000_000
_PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv", "env"})


def copy_workspace(
    folder: Path,
    target: Path,
    *,
    without: Iterable[str] = (),
    needed: Iterable[str] = (),
    originals: Mapping[str, Path] = MappingProxyType({}),
) -> None:
    """Copy `folder` to `target`, which is made; hidden folders and environments are left out.

    `without` are paths that the notebook makes itself; `needed` are those that it reads: they are copied from
    beside the folder, too, and are all that is copied where the whole is too large. `originals` are put in place
    of what the folder holds now.

    Raises:
        UsageError: it is too large, and what is needed is not known.
        StoreError: it cannot be copied.
    """
    target.mkdir(parents=True)
    named = [PurePath(path) for path in needed if not PurePath(path).is_absolute()]
    files = list(_files(folder))
    if len(files) > MOST_FILES or sum(size for _, size in files) > MOST_BYTES:
        if not named:
            raise UsageError(
                f"{folder} is too large to be copied (over {MOST_FILES:,} files or {MOST_BYTES // 10**9} GB): "
                "use --in-place to run the notebook in it, or name a smaller one with --folder"
            )
        files = []
    sources = {path: folder / path for path, _ in files} | {path: folder / path for path in named}
    for made in without:
        sources.pop(PurePath(made), None)
    sources |= {PurePath(path): copy for path, copy in originals.items() if not PurePath(path).is_absolute()}
    try:
        for path, source in sources.items():
            place = Path(os.path.normpath(target / path))
            if source.is_file() and _is_below(place, target) and not _is_secret(source):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, place)
    except OSError as error:
        raise StoreError(f"cannot copy {folder} for the clean run: {error.strerror}: {error.filename}") from error


def _is_below(place: Path, target: Path) -> bool:
    """Whether a copy at `place` stays with the others: no higher than the folders around `target`."""
    return place.is_relative_to(target.parents[2])


def _is_secret(source: Path) -> bool:
    """Whether this leads to where credentials lie, which the kernel could not read: nor can it in a copy."""
    whole, home = source.resolve(), Path.home().resolve()
    return any(whole.is_relative_to(home / name) for name in CREDENTIALS)


def _files(folder: Path) -> Iterator[tuple[PurePath, int]]:
    """Give the files below a folder, no more than it takes to see that there are too many."""
    count = size = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        for name in names:
            path = Path(parent, name)
            try:
                status = path.stat()
            except OSError:  # a broken link, or nothing of ours
                continue
            if name.startswith(".nbagent") or not S_ISREG(status.st_mode):
                continue
            bytes_ = status.st_size
            count, size = count + 1, size + bytes_
            yield path.relative_to(folder), bytes_
            if count > MOST_FILES or size > MOST_BYTES:
                return
