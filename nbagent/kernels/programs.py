"""Runs programs of the system in the kernel's place: the same folder, environment and confinement.

Each has a process group of its own, which ends with it: what it left running in the background, too.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nbagent.events import Output
from nbagent.kernels import launch
from nbagent.kernels.confinement import Confinement
from nbagent.kernels.outputs import Outputs
from nbagent.kernels.own_folder import OwnFolder
from nbagent.programs import ProgramEnded

INTERRUPT_GRACE = 1.0  #: seconds that a program gets to end by itself
DRAIN = 0.2  #: seconds for what is still in its pipes when it has ended
FLUSH = 0.05  #: seconds between two outputs

#: What keeps programs from waiting for somebody at a keyboard, or for a page to be turned.
_UNATTENDED = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "EDITOR": "true",
    "PIP_NO_INPUT": "1",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONUNBUFFERED": "1",
    "TERM": "dumb",
}


@dataclass(frozen=True)
class Place:
    """Where a program runs, and what holds it."""

    python: str
    folder: Path
    scratch: Path
    environment: Mapping[str, str]
    confinement: Confinement
    output_characters: int


async def run_program(
    words: Sequence[str], place: Place, *, timeout: float
) -> AsyncGenerator[Output | ProgramEnded, None]:
    """Run a program to its end; yield what it prints as it comes and one `ProgramEnded` last.

    It reads nothing from a keyboard. At the time limit, and where the caller is cancelled or leaves, it is ended
    with all that it started in its process group.
    """
    own = await asyncio.to_thread(OwnFolder)  # what is in scratch, code of the kernel's could change meanwhile
    items: asyncio.Queue[Output | None] = asyncio.Queue()
    try:
        outputs = Outputs(items.put_nowait, place.output_characters)
        program = await _start(words, place, own.path, outputs)
        work = asyncio.create_task(program.follow(timeout))
        work.add_done_callback(lambda _: items.put_nowait(None))
        try:
            while (output := await items.get()) is not None:
                yield output
        finally:
            work.cancel()  # left by the caller; where it is done this says nothing
            await asyncio.wait({work})
        yield _with_outcome(work.result(), own.path, place, outputs.last_words)
    finally:
        own.remove()


async def _start(words: Sequence[str], place: Place, room: Path, outputs: Outputs) -> _Program:
    held = place.confinement
    plan = {
        "host": os.getpid(),
        **held.plan(),
        "writable": [*map(str, held.writable), str(room)],
        "program": list(words),
    }
    (room / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    folder = Path(shutil.which(place.python) or place.python).parent
    path = os.pathsep.join([str(folder), place.environment.get("PATH", os.defpath)])
    transport, program = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Program(outputs),
        *(sys.executable, "-I", "-S", launch.__file__, str(room / "plan.json"), str(room / "outcome.json")),
        cwd=place.folder,
        env={**place.environment, **_UNATTENDED, "PATH": path},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    program.transport = transport
    return program


class _Program(asyncio.SubprocessProtocol):
    """A running program. Its end and the end of what it prints are two things: others may hold its pipes."""

    transport: asyncio.SubprocessTransport

    def __init__(self, outputs: Outputs):
        self._outputs = outputs
        self._exited = asyncio.Event()
        self._silent = asyncio.Event()
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {1: decoder("replace"), 2: decoder("replace")}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take in what it prints."""
        self._take(fd, self._decoders[fd].decode(data))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Take in the last of it."""
        self._take(fd, self._decoders.pop(fd).decode(b"", final=True))
        if not self._decoders:
            self._silent.set()

    def process_exited(self) -> None:
        """Take note of its end."""
        self._exited.set()

    def _take(self, fd: int, text: str) -> None:
        if text:
            self._outputs.take("stream", {"name": "stdout" if fd == 1 else "stderr", "text": text})

    async def follow(self, timeout: float) -> ProgramEnded:
        """Hand on what it prints until it has ended; end its group in every case."""
        started = time.monotonic()
        flusher = asyncio.create_task(self._flush())
        status: Literal["ended", "timeout"] = "ended"
        try:
            if not await _within(timeout, self._exited):
                status = "timeout"
                await self._end(signal.SIGTERM)
            await _within(DRAIN, self._silent)
            left = self._signal(signal.SIGKILL)
            await _within(DRAIN, self._silent)
        finally:
            if not self._exited.is_set():  # cancelled: the user stopped it
                await self._end(signal.SIGINT)
            self._signal(signal.SIGKILL)
            flusher.cancel()
            self.transport.close()
            self._outputs.finish()
        code = self.transport.get_returncode()
        return ProgramEnded(status, 0 if code is None else code, time.monotonic() - started, left_running=left)

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH)
            if self._outputs.waiting:
                self._outputs.flush()

    async def _end(self, first: signal.Signals) -> None:
        """Ask it to end, then end it."""
        self._signal(first)
        if not await _within(INTERRUPT_GRACE, self._exited):
            self._signal(signal.SIGKILL)
            await self._exited.wait()

    def _signal(self, number: signal.Signals) -> bool:
        """Signal all that is left of its group; say whether there was anything."""
        try:
            if os.name == "posix":
                os.killpg(self.transport.get_pid(), number)
            elif not self._exited.is_set():
                self.transport.kill()
            else:
                return False
        except (ProcessLookupError, PermissionError):
            return False
        return True


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for an event, but no longer than this; say whether it came."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _with_outcome(ended: ProgramEnded, room: Path, place: Place, printed: str) -> ProgramEnded:
    """Add what the launcher says: what it could not start; and what may have stopped the program."""
    try:
        outcome = json.loads((room / "outcome.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        outcome = {}
    refused = str(outcome.get("refused", ""))
    return ProgramEnded(
        ended.status,
        ended.code,
        ended.seconds,
        left_running=ended.left_running,
        not_started=str(outcome.get("not_started", "")),
        advice="" if refused or ended.code == 0 else place.confinement.explain((), "", printed, place.folder),
    )
