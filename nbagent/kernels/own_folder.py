"""Temporary folders that go with the process that made them; what a killed one left, the next one sweeps."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self
from weakref import finalize

from filelock import FileLock, Timeout

PREFIX = "nbagent-"
_LOCK = ".in-use"
#: A folder younger than this may be one that another process is about to lock.
_SETTLED = 60.0


class OwnFolder:
    """A folder of this process's, locked as long as the process lives. Also a context manager."""

    def __init__(self, kind: str = "") -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX + kind))
        self._lock = FileLock(self.path / _LOCK, thread_local=False)  # a thread may remove what another made
        self._lock.acquire()
        self._removed = finalize(self, _remove, self.path, self._lock)  # at the process's end, too

    def remove(self) -> None:
        """Delete it with all that it holds; again does nothing."""
        self._removed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def _remove(folder: Path, lock: FileLock) -> None:
    lock.release()
    shutil.rmtree(folder, ignore_errors=True)


@cache
def sweep() -> None:
    """Delete the folders of processes that ended without deleting them. Once in a process is enough."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError, Timeout):
                    _remove_if_left(entry)


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    status = entry.stat(follow_symlinks=False)
    if status.st_uid != os.getuid() or time.time() - status.st_mtime < _SETTLED:
        return
    if not Path(entry.path, _LOCK).is_file():  # somebody else's
        return
    with FileLock(Path(entry.path, _LOCK), timeout=0):
        shutil.rmtree(entry.path, ignore_errors=True)
