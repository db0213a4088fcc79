"""One owner's hold on the shared server of the embedded model: find it, else start it, and keep it alive.

The files of one server are named for its weights and parameters, in a folder of the user's cache:
`ID.json` says where it listens, `ID.alive` is locked while it lives, `ID.lock` lets one owner start it.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import filelock

from nbagent.errors import ModelUnreachable, NoModelError
from nbagent.models.embedded_server import ALREADY_RUNNING, LOOPBACK, Record

#: Seconds that a live server may take to answer its owner; llama.cpp computes outside of Python's lock.
ANSWER_SECONDS = 10.0
#: Seconds that loading the weights may take: a slow disk reads 1 GB in a minute.
START_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class ServerParameters:
    """What makes two owners share a server. `grace` is in seconds."""

    file: Path
    context: int  #: tokens
    threads: int
    grace: float

    def identity(self) -> str:
        """Name the server: its weights as they are now, and everything it is started with."""
        status = self.file.stat()
        facts = [
            str(self.file.resolve()),
            status.st_size,
            status.st_mtime_ns,
            self.context,
            self.threads,
            self.grace,
            socket.gethostname(),  # a home folder may be shared by machines
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


class ServerOwner:
    """Holds one server alive from `acquire` to `release`. Thread-safe; blocks for as long as it must."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._mutex = threading.Lock()
        self._hold: tuple[Record, socket.socket] | None = None

    def acquire(self, parameters: ServerParameters) -> Record:
        """Give a server that answers: the one that is held, one that runs, or a new one.

        Raises:
            NoModelError: llama.cpp is not installed.
            ModelUnreachable: the server did not start; its last words are quoted.
        """
        with self._mutex:
            if self._hold is not None and _greet(self._hold[1], self._hold[0].key):
                return self._hold[0]
            self._let_go()
            try:
                self._hold = self._join(parameters)
            except (OSError, filelock.Timeout) as error:
                raise ModelUnreachable(f"the embedded model's server did not start: {error}") from error
            return self._hold[0]

    def alive(self) -> bool:
        """Say whether the held server still answers."""
        with self._mutex:
            return self._hold is not None and _greet(self._hold[1], self._hold[0].key)

    def release(self) -> None:
        """Hold it no more."""
        with self._mutex:
            self._let_go()

    def _let_go(self) -> None:
        if self._hold is not None:
            self._hold[1].close()
            self._hold = None

    def _join(self, parameters: ServerParameters) -> tuple[Record, socket.socket]:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        place = self._folder / f"{parameters.identity()}.json"
        deadline = time.monotonic() + START_SECONDS
        child: subprocess.Popen[bytes] | None = None
        with filelock.FileLock(place.with_suffix(".lock"), timeout=START_SECONDS):
            while time.monotonic() < deadline:
                record = Record.read(place)
                if record is not None and record.control:
                    connection = _connect(record)
                    if connection is not None:
                        return record, connection
                    if _is_locked(place.with_suffix(".alive")):
                        # It lives, for only its process holds that lock, but it does not answer: it hangs.
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(record.pid, signal.SIGKILL)
                    place.unlink(missing_ok=True)
                if child is not None and child.poll() not in (None, ALREADY_RUNNING):
                    raise _did_not_start(child, place.with_suffix(".log"))
                if (child is None or child.poll() is not None) and not _is_locked(place.with_suffix(".alive")):
                    child = _start(parameters, place)
                time.sleep(0.05)
        raise ModelUnreachable(f"the embedded model's server did not start within {START_SECONDS:.0f} s")


def _start(parameters: ServerParameters, place: Path) -> subprocess.Popen[bytes]:
    if importlib.util.find_spec("xllamacpp") is None:
        raise NoModelError("the embedded model needs llama.cpp: pip install 'nbagent[local]', or set a key")
    options = {
        "--model": parameters.file.resolve(),
        "--record": place.resolve(),
        "--context": parameters.context,
        "--threads": parameters.threads,
        "--grace": parameters.grace,
    }
    # -P: a module in the user's folder must not stand in for one of ours.
    command = [sys.executable, "-P", "-m", "nbagent.models.embedded_server"]
    with place.with_suffix(".log").open("wb") as log:
        child = subprocess.Popen(
            [*command, *(str(word) for option in options.items() for word in option)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place.parent,
            # Threads that wait go to sleep soon: when they spin, one busy neighbour makes the model many times
            # slower (measured on 2 cores: 1 token/s, against 6), and alone it is hardly faster.
            env={"GOMP_SPINCOUNT": "2000", **os.environ},
            start_new_session=True,  # an interrupt from the terminal is not for it
        )
    # It outlives us; while we live, this thread takes its exit code so that it leaves no zombie.
    threading.Thread(target=child.wait, name="nbagent-embedded-server", daemon=True).start()
    return child


def _did_not_start(child: subprocess.Popen[bytes], log: Path) -> ModelUnreachable:
    ended = f"the embedded model's server ended with code {child.returncode}"
    try:
        lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return ModelUnreachable(f"{ended}: {lines[-1][:200]} (all of it is in {log})" if lines else ended)


def _connect(record: Record) -> socket.socket | None:
    """Become an owner of the server that `record` speaks of; None where it does not answer in full."""
    try:
        connection = socket.create_connection((LOOPBACK, record.control), ANSWER_SECONDS)
    except OSError:
        return None
    if _greet(connection, record.key) and _is_healthy(record):
        return connection
    connection.close()
    return None


def _greet(connection: socket.socket, key: str) -> bool:
    """Say the key and wait for the answer."""
    try:
        connection.settimeout(ANSWER_SECONDS)
        connection.sendall(key.encode() + b"\n")
        return connection.recv(16) == b"ok\n"
    except OSError:
        return False


def _is_healthy(record: Record) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, record.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _is_locked(file: Path) -> bool:
    lock = filelock.FileLock(file)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return True
    lock.release()
    return False
