"""A worker: an IPython kernel without threads and without zmq, so that it can be forked between two requests.

A checkpoint is a fork that sleeps. Woken, it first leaves another sleeper behind and then goes on as the
kernel: whoever is the kernel is a child of the keeper, sooner or later, which tells the host how it ended.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
import types
import warnings
from pathlib import Path
from typing import Any

import ipykernel
from ipykernel.ipkernel import IPythonKernel
from IPython.core.profiledir import ProfileDir, ProfileDirError
from IPython.paths import get_ipython_dir
from jupyter_client.session import Session
from tornado.ioloop import IOLoop
from traitlets import Any as AnyTrait
from traitlets.config import Application, Config

from nbagent.kernels.zygote import forking
from nbagent.kernels.zygote.hot_pages import HotPages
from nbagent.kernels.zygote.streams import OutStream
from nbagent.kernels.zygote.wire import CHECKPOINT, KEY, PUBLISHED, RESUME, SHELL, Channel, Wire

_SET_SIGNAL = 10  #: F_SETSIG, which Python does not name


class Running(Application):  # type: ignore[misc]
    """What code that looks for the running kernel finds: `%matplotlib inline` does, by way of `%gui`."""

    kernel = AnyTrait()


class WorkerKernel(IPythonKernel):  # type: ignore[misc]
    """Takes its messages from a wire, one at a time."""

    shell_stream = AnyTrait()
    control_stream = AnyTrait()
    debugpy_stream = AnyTrait(None, allow_none=True)
    wire = AnyTrait()
    loop = AnyTrait()
    family = AnyTrait()

    _supports_kernel_subshells = property(lambda self: False)

    def start(self) -> None:
        """Listen."""
        self.shell.exit_now = False
        self.io_loop = IOLoop.current()
        self.ending = False
        Running.instance().kernel = self
        self._task: asyncio.Task[None] | None = None
        self.listen()

    def listen(self) -> None:
        """Wake up when a message comes."""
        self.loop.add_reader(self.wire.socket.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        self.wire.pump()
        if self._task is None or self._task.done():
            self._task = self.loop.create_task(self._drain())

    async def _drain(self) -> None:
        while self.wire.frames and not self.ending:
            kind, parts = self.wire.frames.popleft()
            try:
                if kind == SHELL:
                    self.wire.begin()
                    try:
                        await self.dispatch_shell([_Part(part) for part in parts])
                    finally:
                        self.wire.end()
                    if os.getpid() != self.wire.owner:  # a fork that the code made and did not end
                        os._exit(0)
                elif kind == CHECKPOINT:
                    self.family.checkpoint(json.loads(parts[0]))
            except KeyboardInterrupt:
                continue
        if self.ending:
            self.loop.stop()

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Nothing waits behind code that raised: the host sends one request at a time."""

    async def shutdown_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """End: exit handlers run, open files are written out."""
        self.ending = True


class _Part(bytes):
    """A message part as pyzmq gives them."""

    @property
    def bytes(self) -> bytes:
        return self

    @property
    def buffer(self) -> memoryview:
        return memoryview(self)


class Family:
    """Forks the kernel and wakes the sleepers."""

    def __init__(self, kernel: WorkerKernel, life: int) -> None:
        self._kernel = kernel
        self._life = life
        self._tied = _die_with_keeper(life, None)
        self._sleepers: list[int] = []  # children of this process that nobody waits for
        self._hot_pages = HotPages()

    def checkpoint(self, request: dict[str, Any]) -> None:
        """Leave a fork behind that keeps this moment, or say why that cannot be."""
        self._reap()
        answer: dict[str, Any] = {"id": request["id"]}
        if why := forking.obstacle():
            self._answer({**answer, "declined": why})
        elif busy := forking.busy_threads():
            self._answer({**answer, "busy": busy})
        else:
            started = time.perf_counter()
            hosts_end, own_end = socket.socketpair()
            forking.pause_openmp()
            self._hot_pages.learn()
            files = forking.open_files()  # before the fork: afterwards this process moves the shared positions on
            if pid := _fork():
                own_end.close()
                self._sleepers.append(pid)
                milliseconds = (time.perf_counter() - started) * 1000
                self._answer({**answer, "pid": pid, "fork": milliseconds}, hosts_end)
                hosts_end.close()
                self._hot_pages.copy()
            else:
                hosts_end.close()
                self._sleep(own_end, files)

    def _answer(self, answer: dict[str, Any], passed: socket.socket | None = None) -> None:
        descriptors = [passed.fileno()] if passed is not None else []
        self._kernel.wire.send(CHECKPOINT, [json.dumps(answer).encode()], descriptors)

    def _sleep(self, end: socket.socket, files: forking.OpenFiles) -> None:
        """Be a checkpoint until the host wakes it; returns as the kernel."""
        kernel = self._kernel
        kernel.loop.remove_reader(kernel.wire.socket.fileno())
        kernel.wire.replace(end)
        self._is_a_fork()
        while True:
            kernel.wire.next_frame()
            hosts_end, own_end = socket.socketpair()
            if pid := _fork():
                self._sleepers.append(pid)
                break
            for unused in (hosts_end, own_end):
                unused.close()
            self._is_a_fork()
            kernel.wire.owner = os.getpid()
        cut = forking.cut_connections({kernel.wire.socket.fileno(), hosts_end.fileno(), own_end.fileno()})
        forking.own_files(files)
        denied = forking.deny_sqlite(files, kernel.shell.user_ns)
        forking.renew_executors()
        forking.forget_children()
        woken = {"pid": os.getpid(), "sleeper": pid, "connections": cut, "databases": denied}
        kernel.wire.send(RESUME, [json.dumps(woken).encode()], [hosts_end.fileno()])
        hosts_end.close()
        self._wake(own_end)

    def _is_a_fork(self) -> None:
        self._sleepers = []
        self._tied = _die_with_keeper(self._life, self._tied)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _wake(self, end: socket.socket) -> None:
        """Go on as the kernel, on the same loop object: what waits in it goes on, too."""
        kernel = self._kernel
        kernel.wire.replace(end)
        kernel.session.pid = os.getpid()
        loop = kernel.loop
        asyncio._set_running_loop(loop)  # asyncio remembers in which process it runs
        asyncio.set_event_loop(loop)
        loop._close_self_pipe()  # the old one would wake another process
        loop._make_self_pipe()
        loop._default_executor = None
        kernel.listen()

    def hide_sleepers(self) -> None:
        """Let `os.wait()`, which waits for any child, know only those of the code's own."""
        wait_for = os.waitpid

        def waitpid(pid: int, options: int) -> tuple[int, int]:
            while pid == -1:
                if not self._children() - set(self._sleepers):
                    raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | (options & os.WNOHANG))
                if ended is None:
                    return 0, 0
                if ended.si_pid not in self._sleepers:
                    return wait_for(ended.si_pid, options)
                self._reap()
            return wait_for(pid, options)

        os.waitpid = waitpid
        os.wait = lambda: waitpid(-1, 0)

    def _children(self) -> set[int]:
        lists = Path("/proc/self/task").glob("*/children")
        return {int(pid) for listed in lists for pid in listed.read_text().split()}

    def _reap(self) -> None:
        for pid in list(self._sleepers):
            try:
                ended, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended = pid
            if ended:
                self._sleepers.remove(pid)


def _fork() -> int:
    with warnings.catch_warnings():  # since Python 3.12 there is one where threads run: they were looked at
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _die_with_keeper(life: int, before: int | None) -> int:
    """Have the system kill this process, whatever it does, when the last writer of the pipe `life` is gone.

    A parent-death signal would not do: parents in this family end while their children go on.
    """
    if before is not None:
        os.close(before)
    own = os.open(f"/proc/self/fd/{life}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, _SET_SIGNAL, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_RDONLY | os.O_NONBLOCK | os.O_ASYNC)
    try:
        os.read(own, 1)
    except BlockingIOError:
        return own
    os._exit(1)  # it was gone before


def _configuration() -> Config:
    return Config(
        {
            "InteractiveShell": {"cache_size": 0},  # Out and _ would keep every result in memory
            "HistoryManager": {"enabled": False},  # no database of the code that an agent ran
        }
    )


def _profile() -> ProfileDir:
    folder = Path(get_ipython_dir()) / "profile_default"
    try:
        return ProfileDir.find_profile_dir(str(folder))
    except ProfileDirError:
        return ProfileDir.create_profile_dir(str(folder))


def make_kernel(wire: Wire, loop: asyncio.AbstractEventLoop, **others: Any) -> WorkerKernel:
    """Make the process's one kernel. `others` are traits: a profile, the names of the user."""
    config = _configuration()
    kernel: WorkerKernel = WorkerKernel.instance(
        config=config,
        session=Session(key=KEY, config=config),
        wire=wire,
        loop=loop,
        shell_stream=Channel(wire, SHELL),
        control_stream=Channel(wire, SHELL),
        iopub_socket=Channel(wire, PUBLISHED),
        stdin_socket=Channel(wire, SHELL),
        iopub_thread=None,
        control_thread=None,
        shell_channel_thread=types.SimpleNamespace(parent_thread=threading.main_thread(), io_loop=None),
        log=logging.getLogger("nbagent.worker"),
        **others,
    )
    return kernel


def take_streams(wire: Wire, out: int, err: int) -> None:
    """Have what is printed, and what is written to the descriptors 1 and 2, go to the host."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    sys.stdout, sys.stderr = OutStream(wire, "stdout", 1), OutStream(wire, "stderr", 2)


def new_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop of this thread."""
    loop = asyncio.SelectorEventLoop(selectors.PollSelector())  # epoll would be shared with every fork
    asyncio.set_event_loop(loop)
    return loop


def main(wire: Wire, out: int, err: int, life: int) -> None:
    """Be the kernel until the host says that it is over."""
    take_streams(wire, out, err)
    sys.argv = [str(Path(ipykernel.__file__).parent.parent / "ipykernel_launcher.py")]
    sys.path.insert(0, "")
    serve(make_kernel(wire, new_loop(), profile_dir=_profile(), user_ns={}), life)


def serve(kernel: WorkerKernel, life: int) -> None:
    """Answer requests until the host says that it is over."""
    kernel.family = Family(kernel, life)
    kernel.family.hide_sleepers()
    kernel.start()
    while not kernel.ending:
        try:
            kernel.loop.run_forever()
        except KeyboardInterrupt:
            continue
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
