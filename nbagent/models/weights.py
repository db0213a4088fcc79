"""The embedded model's weights: what there is, where it lies on this machine, and whether it can be trusted.

A file is trusted when its size and SHA-256 are those of the catalogue. The hash of a file is computed once
and remembered with the file's size and time of change, so that a changed file is hashed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import filelock
import platformdirs

from nbagent.errors import WeightsError
from nbagent.models import weights_download
from nbagent.models.weights_catalogue import (
    Catalogue,
    Progress,
    Report,
    Weights,
    in_units,
    load_catalogue,
    sha256,
)

#: Room that must stay on the disk after the weights are there, in bytes.
DISK_MARGIN = 64 * 1024 * 1024


class WeightsCache:
    """The weights of one catalogue in one folder, and a path that the user names instead of it."""

    def __init__(self, catalogue: Catalogue, folder: Path, named: Path | None = None):
        self.catalogue = catalogue
        self.folder = folder
        self.named = named

    def entry(self, name: str) -> Weights:
        """Give the catalogue's entry; `local:` before the name is allowed.

        Raises:
            WeightsError: there is none of that name.
        """
        name = name.removeprefix("local:")
        for weights in self.catalogue.weights:
            if weights.name == name:
                return weights
        known = ", ".join(weights.name for weights in self.catalogue.weights)
        raise WeightsError(f"there are no weights named {name!r}; there are: {known}")

    def find(self, name: str) -> Path | None:
        """Give the trusted file, or None where there is none. No network; quick unless the file changed.

        Raises:
            WeightsError: the file is there and is not what it should be; one of the cache is deleted.
        """
        weights = self.entry(name)
        named = self._named(weights)
        if named is not None:
            self._trust(weights, named)
            return named
        file = self.folder / weights.file
        if not file.is_file():
            return None
        try:
            self._trust(weights, file)
        except WeightsError:
            file.unlink(missing_ok=True)
            raise
        return file

    def check(self, name: str) -> Path:
        """Hash the file anew and give its path.

        Raises:
            WeightsError: there is no file, or it is not what it should be; one of the cache is deleted.
        """
        weights = self.entry(name)
        self._mark(self._named(weights) or self.folder / weights.file).unlink(missing_ok=True)
        found = self.find(name)
        if found is None:
            raise WeightsError(f"the weights of {weights.name} are not here; get them with `nbagent model pull`")
        return found

    def pull(self, name: str, progress: Report) -> Path:
        """Give the trusted file, downloading it if need be; an interrupted pull goes on where it was.

        Raises:
            WeightsError: one line that says what was tried and what to do.
        """
        weights = self.entry(name)
        try:
            found = self.find(name)
            if found is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                found = self._pull_alone(weights, progress)
        except OSError as error:
            raise WeightsError(
                f"the weights of {weights.name} cannot be kept in {self.folder}: {error}"
            ) from error
        progress(Progress(weights.size, weights.size))
        return found

    def _pull_alone(self, weights: Weights, progress: Report) -> Path:
        """Download while no other process does; whoever waited finds the other's file."""
        lock = filelock.FileLock(self.folder / f"{weights.file}.lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            progress(Progress(0, weights.size, "another process is fetching the weights: waiting for it"))
            lock.acquire()
        try:
            return self.find(weights.name) or self._download(weights, progress)
        finally:
            lock.release()

    def _download(self, weights: Weights, progress: Report) -> Path:

        self._make_room(weights)
        partial = weights_download.download(weights, self.folder, progress)
        try:
            self._compare(weights, partial)
        except WeightsError:
            weights_download.discard(weights, self.folder)
            raise
        file = self.folder / weights.file
        partial.replace(file)
        weights_download.discard(weights, self.folder)
        self._remember(weights, file)
        return file

    def _make_room(self, weights: Weights) -> None:
        """Refuse at once what cannot end well."""
        kept = sum(path.stat().st_size for path in self.folder.glob(f"{weights.file}.partial*") if path.is_file())
        need = weights.size - kept + DISK_MARGIN
        free = shutil.disk_usage(self.folder).free
        if free < need:
            raise WeightsError(
                f"the weights of {weights.name} need {in_units(need)} and {self.folder} has {in_units(free)} "
                "free: make room, or set NBAGENT_CACHE to a folder on a larger disk"
            )

    def _named(self, weights: Weights) -> Path | None:
        """The file that the user named for these weights: itself, or by its usual name in a folder."""
        if self.named is None:
            return None
        if self.named.is_dir():
            file = self.named / weights.file
            return file if file.is_file() else None
        if not self.named.is_file():
            raise WeightsError(f"NBAGENT_WEIGHTS names {self.named}, which is not there: correct it or unset it")
        size = self.named.stat().st_size
        others = (other.size for other in self.catalogue.weights if other is not weights)
        return None if size != weights.size and size in others else self.named

    def _trust(self, weights: Weights, file: Path) -> None:
        status = file.stat()
        if self._remembered(file) != _state(weights, status):
            self._compare(weights, file)
            self._remember(weights, file)

    def _compare(self, weights: Weights, file: Path) -> None:
        size = file.stat().st_size
        if size != weights.size:
            wrong = f"{size:,} bytes, not {weights.size:,}"
        elif (found := sha256(file)) != weights.sha256:
            wrong = f"SHA-256 {found[:12]}..., not {weights.sha256[:12]}..."
        else:
            return
        # What the user named is theirs: it is refused, never deleted.
        kept = file == self.named or (self.named is not None and file.parent == self.named)
        todo = "correct NBAGENT_WEIGHTS" if kept else "it was deleted; run `nbagent model pull` again"
        raise WeightsError(f"{file.name} is not the file that it should be ({wrong}): {todo}")

    def _mark(self, file: Path) -> Path:
        tag = hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:12]
        return self.folder / f"{file.name}.{tag}.verified"

    def _remembered(self, file: Path) -> str:
        try:
            return self._mark(file).read_text()
        except OSError:
            return ""

    def _remember(self, weights: Weights, file: Path) -> None:
        mark = self._mark(file)
        try:
            mark.parent.mkdir(parents=True, exist_ok=True)
            fresh = mark.with_name(f"{mark.name}.{os.getpid()}")
            fresh.write_text(_state(weights, file.stat()))
            fresh.replace(mark)
        except OSError:
            # A cache that cannot be written costs one hash each time, no more.
            return


def _state(weights: Weights, status: os.stat_result) -> str:
    return json.dumps({"sha256": weights.sha256, "size": status.st_size, "changed": status.st_mtime_ns})


def cache_folder() -> Path:
    """Where everything that can be had again lives: NBAGENT_CACHE, or the user's cache folder."""
    named = os.environ.get("NBAGENT_CACHE", "").strip()
    return Path(named).expanduser() if named else platformdirs.user_cache_path("nbagent", appauthor=False)


def open_cache(path: Path | None = None) -> WeightsCache:
    """Open this user's cache; `path` (or NBAGENT_WEIGHTS) names a file or folder to use instead of it."""
    named = os.environ.get("NBAGENT_WEIGHTS", "").strip()
    if path is None and named:
        path = Path(named).expanduser()
    return WeightsCache(load_catalogue(), cache_folder() / "weights", path)


def default_name() -> str:
    """Name the weights that are used where none are named."""
    return load_catalogue().default


def list_weights() -> tuple[Weights, ...]:
    """List what there is to pull."""
    return load_catalogue().weights


def find(name: str) -> Path | None:
    """Give the trusted file of `name`, or None; see `WeightsCache.find`."""
    return open_cache().find(name)


def pull(name: str, *, progress: Report, path: Path | None = None) -> Path:
    """Give the trusted file of `name`, downloading it if need be; see `WeightsCache.pull`."""
    return open_cache(path).pull(name, progress)


def check(name: str) -> Path:
    """Hash the file of `name` anew; see `WeightsCache.check`."""
    return open_cache().check(name)
