"""A copy-on-write twin of the user's live kernel as the agent's (kind `branch`). Linux only.

It is a kernel with checkpoints (see checkpoints.py) whose first worker is a fork of the user's process instead
of a new interpreter: it has every variable at no cost, and whatever becomes of it, the user's kernel goes on.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Literal

from nbagent.errors import KernelNotStarted
from nbagent.events import Output
from nbagent.kernels.channels import Channels
from nbagent.kernels.checkpoints import BUSY_PAUSE, BUSY_TRIES, CheckpointKernel
from nbagent.kernels.child import Child, Launch
from nbagent.kernels.forkable import ForkableChild
from nbagent.kernels.probe import token_of
from nbagent.protocols import Executed, Host, Variable

LOADING_SECONDS, LOADING_PAUSE = 20.0, 0.02  #: within which the agent's own imports are over; between two looks
PARK_SECONDS = 1.0  #: within which the agent's thread comes to rest
INSTEAD = "`--kernel fresh` copies the variables that it needs"


@dataclass(frozen=True)
class BranchLaunch(Launch):
    """What a branch is started with."""

    host: Host


class _Forked:
    """A child process that was forked and not executed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Give its exit code, None while it lives."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # it has ended before; or the user's code has waited for every child
            return 0
        return os.waitstatus_to_exitcode(status) if pid else None


@dataclass
class BranchChild(ForkableChild):
    """The fork of the user's process, and its family."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.differences: list[str] = []  #: what of the user's is not in it as it is there
        self.tokens: dict[str, Any] = {}  #: what the user's variables were
        self.variables: dict[str, Variable] = {}  #: those variables

    async def _spawn(self, log: BinaryIO) -> Channels:
        plan = self.plan
        assert isinstance(plan, BranchLaunch)
        assert self._channels is not None
        loop = asyncio.get_running_loop()
        try:
            await plan.host.call(lambda: self._fork(plan.host, loop, log.fileno()))
        finally:
            for end in self._handed_over:
                end.close()
            for descriptor in self._inherited[2:]:
                os.close(descriptor)
        return self._channels

    def _fork(self, host: Host, loop: asyncio.AbstractEventLoop, log: int) -> None:
        """Fork, on the user's main thread. Raises `KernelNotStarted` where that would not be safe."""
        from nbagent.kernels.zygote import preflight, twin

        if why := preflight.refusal(host.shell):
            raise KernelNotStarted(f"no branch: {why}; {INSTEAD}")
        self.differences = preflight.differences(host.shell, self.plan.scratch.parent, _talks_on(loop))
        names = host.shell.user_ns
        self.variables = {one.name: one for one in host.variables()}
        self.tokens = {name: token_of(names[name]) for name in self.variables}
        confinement = self.plan.confinement
        control, wire, out, err = self._inherited
        plan = twin.Plan(
            (control, wire, out, err),
            self.plan.folder,
            self.plan.environment,
            {
                **confinement.plan(),
                "writable": [str(path) for path in (*confinement.writable, self._room)],
            },
            log,
            self._outcome_file,
        )
        until, attempt = time.monotonic() + LOADING_SECONDS, 0
        while True:
            with _parked(loop) as resting:
                why = preflight.busy() if resting else "the agent's own thread did not come to rest"
                if not why:
                    twin.fork(plan, host.shell, self._take)
                    return
            loading = why == preflight.LOADING
            attempt += not loading
            if attempt == BUSY_TRIES or time.monotonic() > until:
                break
            time.sleep(LOADING_PAUSE if loading else BUSY_PAUSE)
        raise KernelNotStarted(f"no branch now: {why}, and a fork could freeze your kernel; wait, or {INSTEAD}")

    def _take(self, pid: int) -> None:
        self._process = _Forked(pid)


@contextmanager
def _parked(loop: asyncio.AbstractEventLoop) -> Iterator[bool]:
    """Hold the thread of `loop` between two of its steps, where it has no lock; give whether it came to rest."""
    resting, over = threading.Event(), threading.Event()

    def rest() -> None:
        if not over.is_set():
            resting.set()
            over.wait()

    loop.call_soon_threadsafe(rest)
    try:
        yield resting.wait(PARK_SECONDS)
    finally:
        over.set()


def _talks_on(loop: asyncio.AbstractEventLoop) -> set[int]:
    """Give the descriptors of a loop of ours, those of the connections to the model among them."""
    made: Any = getattr(loop, "_transports", {})
    selector: Any = getattr(loop, "_selector", None)  # knows of those that are read just now, or not yet made
    return {*made, *(selector.get_map() if selector is not None else ())}


class BranchKernel(CheckpointKernel):
    """Implements `protocols.Kernel` and `protocols.Checkpoints` over a fork of the user's kernel.

    It holds the user's variables as they were when it was made; `restart` makes a new one of them as they are.
    """

    has_the_users = True

    def __init__(self, *, host: Host, **options: Any) -> None:
        super().__init__(**options)
        self._host = host
        self._tokens: dict[str, Any] = {}
        self._untold = ""  # what is not in it as it is in the user's, until the next code has run

    async def execute(self, code: str, *, timeout: float) -> AsyncGenerator[Output | Executed, None]:
        """Run code (see `protocols.Kernel`); the first end tells what of the user's is otherwise here."""
        async with aclosing(super().execute(code, timeout=timeout)) as items:
            async for item in items:
                if isinstance(item, Executed) and self._untold:
                    item, self._untold = replace(item, differences=self._untold), ""
                yield item

    def differs(self, name: str) -> bool:
        """Whether the user has bound a variable anew since, or changed it in a way that can be seen from outside.

        Call it on the user's main thread.
        """
        names = self._host.shell.user_ns
        return name in names and self._tokens.get(name) != token_of(names[name])

    async def _start_child(self, plan: Launch) -> Child:
        self._begin_anew()
        child = await BranchChild.start(BranchLaunch(**vars(plan), host=self._host))
        self._tokens = child.tokens
        self._known = dict(child.variables)
        return child

    async def _restarted(
        self, status: Literal["died", "timeout", "interrupted"], started: float, why: str
    ) -> Executed:
        executed = await super()._restarted(status, started, why)
        if executed.restored:
            return executed
        lost = tuple(name for name in executed.lost_names if name not in self._known)
        # The user's own are there again.
        return replace(executed, lost_names=lost, back_names=tuple(sorted(self._known)))

    async def _launch(self) -> Child:
        child = await super()._launch()
        assert isinstance(child, BranchChild)
        self._untold = "; ".join(child.differences)
        self.confinement = "; ".join(["a copy of your kernel as it was now", self.confinement, *child.differences])
        return child
