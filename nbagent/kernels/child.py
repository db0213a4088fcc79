"""One kernel process: started, watched, interrupted and ended with all that it started.

The process is tied to the thread that starts it (PDEATHSIG, see launch.py): start it from the thread that
lives as long as the session, which is the one that runs the event loop.

The folder with the connection file and the sockets is private and is gone as soon as both sides are
connected, so that nothing is left of it, however either side ends, and nobody else can connect.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Self

import zmq
import zmq.asyncio
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from nbagent import glance, importing, inspection, interrupted, parcels
from nbagent.errors import KernelNotStarted
from nbagent.kernels import launch, probe
from nbagent.kernels.channels import Channels, SocketChannels
from nbagent.kernels.confinement import Confinement
from nbagent.kernels.own_folder import OwnFolder

POLL = 0.2  #: seconds between two looks at whether the process lives
LARGEST_LOG = 1_000_000  #: bytes of the kernel's own words that are kept
QUEUED = 16  #: messages that may wait for us here; the rest waits in the kernel's own process
EXIT_GRACE = 1.0  #: seconds that a kernel gets to end by itself

_LOG = logging.getLogger("nbagent.kernels")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False

_ARGUMENTS = [
    "--InteractiveShell.cache_size=0",  # Out and _ would keep every result in memory
    "--HistoryManager.enabled=False",  # no database of the code that an agent ran
]
#: What the probe is made of, each after those that it imports.
_MODULES_THERE = (glance, importing, inspection, interrupted, parcels, probe)
_INSTALL_PROBE = """(lambda sys, types: (
    [(
        sys.modules.__setitem__(name, types.ModuleType(name)),
        exec(compile(source, f"<{{name}}>", "exec"), vars(sys.modules[name])),
    ) for name, source in {sources!r}],
    sys.modules["_nbagent_probe"].install(),
))(__import__("sys"), __import__("types"))"""


def probe_call(name: str, *arguments: str) -> str:
    """Give the expression that calls a function of the probe in the kernel."""
    return f"__import__('sys').modules['_nbagent_probe'].{name}({', '.join(map(repr, arguments))})"


def _as_module_there(module: ModuleType) -> tuple[str, str]:
    """Give name and text of a module of ours for a kernel that may not have nbagent."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    return f"_nbagent_{module.__name__.rpartition('.')[2]}", source.replace("from nbagent.", "from _nbagent_")


@dataclass(frozen=True)
class Launch:
    """What a kernel is started with."""

    python: str
    folder: Path
    scratch: Path
    environment: Mapping[str, str]
    confinement: Confinement
    timeout: float  #: seconds


class _OneSpec(KernelSpecManager):  # type: ignore[misc]
    """Knows one kernel: ours, whatever kernelspecs this machine has."""

    argv: list[str]

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Give the kernel."""
        return KernelSpec(argv=self.argv, display_name=kernel_name, language="python")


class Child(ABC):
    """A running kernel process with its channels."""

    def __init__(self, plan: Launch):
        self._plan = plan
        self._own = OwnFolder()
        self._room = self._own.path
        self._log = _own_log(plan.scratch / "kernel.log")
        self._channels: Channels | None = None
        self.refused = ""  #: why the system would not confine the process

    @classmethod
    async def start(cls, plan: Launch) -> Self:
        """Start one and wait until it listens.

        Raises:
            KernelNotStarted: it ended or stayed silent; its last words are quoted.
        """
        if shutil.which(plan.python) is None:
            raise KernelNotStarted(f"there is no interpreter {plan.python}: give another one with --python")
        child = cls(plan)
        try:
            await child._start()
        except BaseException:
            await child.close()
            raise
        return child

    @property
    def channels(self) -> Channels:
        """The way to it; there is one once it was started."""
        assert self._channels is not None
        return self._channels

    async def _start(self) -> None:
        confinement = self._plan.confinement
        values = {
            "host": os.getpid(),
            **confinement.plan(),
            "writable": [str(path) for path in (*confinement.writable, self._room)],
            "arguments": self._arguments(),
        }
        self._plan_file.write_text(json.dumps(values))
        try:
            self._channels = await self._spawn(self._log)
        except OSError as error:
            raise KernelNotStarted(f"{self._plan.python} cannot be started: {error.strerror}") from error
        try:
            await asyncio.wait_for(self._ready(), self._plan.timeout)
        except TimeoutError:
            words, seconds = self.last_words(), self._plan.timeout
            raise KernelNotStarted(f"the kernel did not answer within {seconds:g} s{words}") from None
        self._own.remove()

    @property
    def _plan_file(self) -> Path:
        return self._room / "plan.json"

    @property
    def _outcome_file(self) -> Path:
        return self._room / "outcome.json"

    @property
    def _command(self) -> list[str]:
        """What is executed: it becomes the interpreter with `_arguments`.

        Nothing but the standard library is loaded before the process is held.
        """
        return [self._plan.python, "-I", "-S", launch.__file__, str(self._plan_file), str(self._outcome_file)]

    @abstractmethod
    def _arguments(self) -> list[str]:
        """Give what the interpreter is to run in the end."""

    @abstractmethod
    async def _spawn(self, log: BinaryIO) -> Channels:
        """Start the process, its own words going to `log`. Raises OSError."""

    async def _ready(self) -> None:
        """Wait until the kernel answers and its published messages reach us, then install the probe."""
        heard = False
        while not heard:
            greeting = self.channels.greet()
            while not greeting.reply:
                await asyncio.wait({greeting.over}, timeout=0.02)
                await self._check_start()
            await asyncio.wait({greeting.over}, timeout=0.2)
            heard = greeting.idle
            self.channels.forget(greeting)
        outcome = json.loads(self._outcome_file.read_text())
        self.refused = str(outcome["refused"])
        sources = [_as_module_there(module) for module in _MODULES_THERE]
        installed = self.channels.execute(_INSTALL_PROBE.format(sources=sources), silent=True)
        while not installed.over.done():
            await asyncio.wait({installed.over}, timeout=POLL)
            await self._check_start()
        self.channels.forget(installed)
        if installed.reply.get("status") != "ok":
            problem = f"{installed.reply.get('ename')}: {installed.reply.get('evalue')}"
            raise KernelNotStarted(f"the kernel of {self._plan.python} does not suit nbagent ({problem})")

    async def _check_start(self) -> None:
        how = await self.death()
        if not how:
            return
        found = self._outcome_file.exists() and json.loads(self._outcome_file.read_text())["ipykernel"]
        if self._outcome_file.exists() and not found:
            python = self._plan.python
            raise KernelNotStarted(f"{python} has no ipykernel: run `{python} -m pip install ipykernel`")
        raise KernelNotStarted(f"the kernel process {how} while it was starting{self.last_words()}")

    def last_words(self) -> str:
        """Quote the last lines that the process itself wrote, or give ""."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4000))
        text = self._log.read(4000).decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return ": " + " / ".join(lines[-3:])[-500:] if lines else " and said nothing"

    @abstractmethod
    async def death(self) -> str:
        """Say how the kernel ended, e.g. "exited with code 7"; "" while it lives."""

    @abstractmethod
    async def interrupt(self) -> None:
        """Interrupt what runs, in this kernel's own process group."""

    def bound_log(self) -> None:
        """Forget the kernel's own words where they are too many."""
        if os.fstat(self._log.fileno()).st_size > LARGEST_LOG:
            self._log.truncate(0)

    async def close(self, gentle: bool = False) -> None:
        """End the process and its group and leave nothing behind; `gentle` lets it end by itself first.

        Goes on to its end even if the caller is cancelled.
        """
        await asyncio.shield(asyncio.create_task(self._close(gentle)))

    @abstractmethod
    async def _end(self) -> None:
        """End the process and its group and close what leads to it."""

    async def _close(self, gentle: bool) -> None:
        if gentle and not await self.death():
            self.channels.ask_to_exit()
            await self._ended_within(EXIT_GRACE)
        await self._end()
        self._log.close()
        self._own.remove()

    async def _ended_within(self, seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while clock() < until and not await self.death():  # noqa: ASYNC110 (a process sends no event)
            await asyncio.sleep(0.005)


class SocketChild(Child):
    """An ordinary ipykernel, started by jupyter_client."""

    def __init__(self, plan: Launch):
        super().__init__(plan)
        self._context = zmq.asyncio.Context()
        self._context.setsockopt(zmq.RCVHWM, QUEUED)
        self._context.setsockopt(zmq.RECONNECT_IVL, 20)
        self._manager = AsyncKernelManager(
            kernel_name="nbagent",
            transport="ipc" if os.name == "posix" else "tcp",
            connection_file=str(self._room / "k.json"),
            context=self._context,
            kernel_spec_manager=_OneSpec(),
            log=_LOG,
        )
        self._manager.kernel_spec_manager.argv = self._command

    def _arguments(self) -> list[str]:
        return ["-m", "ipykernel_launcher", "-f", str(self._room / "k.json"), *_ARGUMENTS]

    async def _spawn(self, log: BinaryIO) -> Channels:
        await self._manager.start_kernel(
            cwd=str(self._plan.folder), env=dict(self._plan.environment), stdout=log, stderr=log
        )
        client = self._manager.client()
        client.start_channels(stdin=False, hb=False, control=False)
        return SocketChannels(client)

    async def death(self) -> str:
        """Say how the process ended, e.g. "exited with code 7"; "" while it lives.

        The process is not waited for yet, so that its number stays its own until `close`.
        """
        provisioner = self._manager.provisioner
        if provisioner is None or not provisioner.has_process:
            return "has ended"
        if not hasattr(os, "waitid"):
            code = await provisioner.poll()
            return "" if code is None else how_it_ended(code)
        clock = asyncio.get_running_loop().time
        until = clock() + EXIT_GRACE
        while True:
            try:
                end = os.waitid(os.P_PID, provisioner.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # noqa: ASYNC222
            except ChildProcessError:  # someone in this process waits for every child
                return "has ended"
            if end is not None:
                return how_it_ended(end.si_status if end.si_code == os.CLD_EXITED else -end.si_status)
            if clock() > until or not is_over(provisioner.pid):
                return ""
            await asyncio.sleep(0.002)  # its threads end one after the other

    async def interrupt(self) -> None:
        """Interrupt what runs, in this kernel's own process group."""
        with suppress(RuntimeError, OSError):  # it has just ended
            await self._manager.interrupt_kernel()

    async def _end(self) -> None:
        provisioner = self._manager.provisioner
        if provisioner is not None and provisioner.has_process:
            await provisioner.kill()  # after its end too: the group lives on in what the code started
            await self._ended_within(EXIT_GRACE)
            await provisioner.wait()
        if self._channels is not None:
            await self._channels.close()
        await self._manager.cleanup_resources()
        self._context.destroy(linger=0)


def _own_log(path: Path) -> BinaryIO:
    """Make a file for a kernel's words, where an earlier kernel's code may have left anything."""
    path.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0), 0o600)
    return os.fdopen(descriptor, "a+b", buffering=0)


def is_over(pid: int) -> bool:
    """Whether a process has ended, though its threads or its parent may need a moment more. Linux; else false."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1]
    except OSError:
        return Path("/proc/self/stat").exists()
    return state in b"ZX"


def how_it_ended(code: int) -> str:
    """Say it in words; a negative code is a signal's."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-code}"
