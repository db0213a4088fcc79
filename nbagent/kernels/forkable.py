"""A kernel process that can be forked while it waits: its checkpoints are forks that sleep.

The host holds one socket to the worker that is the kernel and one to each sleeper; the keeper (see zygote/)
tells how each ended. A sleeper whose socket is closed ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from nbagent.errors import KernelError
from nbagent.kernels.channels import Channels
from nbagent.kernels.child import EXIT_GRACE, POLL, Child, Launch, how_it_ended, is_over
from nbagent.kernels.family import end_younger
from nbagent.kernels.wire_channels import WireChannels
from nbagent.kernels.zygote.wire import RESUME, Unpacker, pack, receive

FORK_SECONDS = 30.0  #: after which a fork, or a sleeper that is to wake, is given up

_BOOTSTRAP = Path(__file__).parent / "zygote" / "bootstrap.py"


@dataclass
class Sleeper:
    """A checkpoint: the process that sleeps and the socket that wakes it."""

    pid: int
    socket: socket.socket
    milliseconds: float  #: that the fork took

    def drop(self) -> None:
        """Let it end."""
        self.socket.close()


class Process(Protocol):
    """The child process that keeps the family."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def poll(self) -> int | None:
        """Give its exit code, None while it lives."""
        ...


@dataclass
class ForkableChild(Child):
    """Started directly: its sockets are inherited, none is in the file system."""

    plan: Launch
    sleepers: dict[str, Sleeper] = field(default_factory=dict)  #: by mark, oldest first

    def __post_init__(self) -> None:
        super().__init__(self.plan)
        self._process: Process | None = None
        self._control: socket.socket | None = None
        self._told = b""
        self.worker = 0  #: number of the process that is the kernel
        self._ends: dict[int, int] = {}  # process number -> exit code, negative for a signal

    def _arguments(self) -> list[str]:
        return [str(_BOOTSTRAP), *map(str, self._inherited)]

    async def _start(self) -> None:
        self._control, keepers_end = socket.socketpair()
        own_end, workers_end = socket.socketpair()
        self._channels = channels = WireChannels(own_end)
        self._inherited = [keepers_end.fileno(), workers_end.fileno(), *(one.writing for one in channels.printed)]
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control, self._listen)
        self._handed_over = [keepers_end, workers_end]
        await super()._start()

    async def _spawn(self, log: BinaryIO) -> Channels:
        assert self._channels is not None
        try:
            self._process = subprocess.Popen(  # noqa: ASYNC220 (it dies with the thread that starts it: this one)
                self._command,
                cwd=self.plan.folder,
                env=dict(self.plan.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self._inherited,
                start_new_session=True,
            )
        finally:
            for end in self._handed_over:
                end.close()
            for descriptor in self._inherited[2:]:
                os.close(descriptor)
        return self._channels

    def _listen(self) -> None:
        """Hear from the keeper how a process ended."""
        assert self._control is not None
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._control)
            return
        *lines, self._told = (self._told + data).split(b"\n")
        for line in lines:
            pid, code = json.loads(line)
            if code is None:
                self.worker = pid
            else:
                self._ends[pid] = code

    async def death(self) -> str:
        """Say how the worker that is the kernel ended; "" while it lives."""
        if self._process is None:
            return "has ended"
        try:
            end = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # noqa: ASYNC222
        except ChildProcessError:  # someone in this process waits for every child
            return "has ended"
        if end is not None:
            return how_it_ended(end.si_status if end.si_code == os.CLD_EXITED else -end.si_status)
        self._listen()
        if self.worker and self.worker not in self._ends and is_over(self.worker):
            await self._told_how_within(EXIT_GRACE)
            if self.worker not in self._ends:
                return "has ended"
        code = self._ends.get(self.worker)
        return "" if code is None else how_it_ended(code)

    async def _told_how_within(self, seconds: float) -> None:
        """Wait for the keeper's word on a worker that has ended: it may come a moment later."""
        until = time.monotonic() + seconds
        while self.worker not in self._ends and time.monotonic() < until:
            await asyncio.sleep(0.002)
            self._listen()

    async def interrupt(self) -> None:
        """Interrupt what runs; keeper and sleepers ignore it."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGINT)
        # The handler for code that awaits does not wake the event loop: any message does.
        self.channels.forget(self.channels.greet())

    async def _end(self) -> None:
        process = self._process
        for sleeper in self.sleepers.values():
            sleeper.drop()
        self.sleepers.clear()
        if process is not None:
            if self._control is not None:
                self._control.shutdown(socket.SHUT_RDWR)  # the keeper ends its family, and then itself
                await self._keeper_ended_within(EXIT_GRACE)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # after its end too: the group may live on
            while process.poll() is None:  # noqa: ASYNC110 - no thread can be started while the interpreter shuts down
                await asyncio.sleep(0.002)
        if self._channels is not None:
            await self._channels.close()
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()

    async def _keeper_ended_within(self, seconds: float) -> None:
        assert self._process is not None
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # noqa: ASYNC222
            except ChildProcessError:  # someone in this process waits for every child
                return
            if ended is not None:
                return
            await asyncio.sleep(0.005)

    # -- checkpoints ------------------------------------------------------------------------------------

    async def checkpoint(self, mark: str) -> dict[str, Any]:
        """Fork. The answer has `pid`, or `declined` or `busy` with the reason in words.

        Raises:
            KernelError: the worker died, or the fork never came back and it was ended.
        """
        channels = self.channels
        assert isinstance(channels, WireChannels)
        until = time.monotonic() + FORK_SECONDS
        with channels.checkpoint(mark) as asked:
            while not asked.done():
                await asyncio.wait({asked}, timeout=POLL)
                if asked.done():
                    break
                if how := await self.death():  # its sleepers hold its socket, too: that does not end
                    raise KernelError(f"the kernel process {how}")
                if time.monotonic() > until:
                    await self.kill_worker()
                    raise KernelError("the kernel hung while it was forked, and was ended")
            answer, passed = asked.result()
        for descriptor in passed:
            sleeper = Sleeper(answer["pid"], socket.socket(fileno=descriptor), answer["fork"])
            sleeper.socket.setblocking(False)
            self.sleepers[mark] = sleeper
        return answer

    async def wake(self, mark: str) -> dict[str, Any]:
        """End the worker and let the sleeper `mark` go on in its place; younger ones end.

        Gives what had to be cut, and as `ended` the names of the programs that the code had started since, which
        end too. The mark stays: it can be woken again.

        Raises:
            KernelError: the sleeper is gone; so is its mark, and no worker runs.
        """
        marks = list(self.sleepers)
        younger = marks[marks.index(mark) + 1 :]
        leaving = {self.worker, *(self.sleepers[one].pid for one in younger)}  # they take a moment
        for one in younger:
            self.drop(one)
        await self.kill_worker()
        sleeper = self.sleepers[mark]
        ended = self._end_started_since(sleeper, leaving)
        channels = self.channels
        assert isinstance(channels, WireChannels)
        try:
            woken, descriptor = await asyncio.wait_for(_wake(sleeper.socket), FORK_SECONDS)
        except (TimeoutError, OSError) as error:
            self.drop(mark)
            raise KernelError("the checkpoint's process is gone") from error
        self.worker, sleeper.pid = woken["pid"], woken["sleeper"]
        channels.replace(socket.socket(fileno=descriptor))
        return {**woken, "ended": ended}

    def _end_started_since(self, sleeper: Sleeper, leaving: set[int]) -> list[str]:
        if self._process is None or is_over(self._process.pid):
            return []
        own = {one.pid for one in self.sleepers.values()} | leaving
        return end_younger(self._process.pid, sleeper.pid, own)

    def drop(self, mark: str) -> None:
        """Forget a checkpoint."""
        self.sleepers.pop(mark).drop()

    async def kill_worker(self) -> None:
        """End the worker that is the kernel; no-op when it has ended."""
        if self._control is None or await self.death():
            return
        with suppress(OSError):
            self._control.send(b"%d\n" % self.worker)
        await self._ended_within(EXIT_GRACE)


async def _wake(sock: socket.socket) -> tuple[dict[str, Any], int]:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, pack(RESUME, []))
    unpacker, descriptors = Unpacker(), list[int]()
    while True:
        ready = asyncio.Event()
        loop.add_reader(sock, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(sock)
        data, passed = receive(sock)
        descriptors += passed
        if not data:
            raise ConnectionResetError
        for _, parts in unpacker.feed(data):
            return json.loads(parts[0]), descriptors[0]
