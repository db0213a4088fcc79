"""The user's own shell as the agent's kernel (kind `live`): code runs on its main thread, on their variables.

A checkpoint is the names as they were: see live_states.py.
"""

from __future__ import annotations

import asyncio
import builtins
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Literal

from nbagent.errors import KernelNotStarted, TransferError
from nbagent.events import Output
from nbagent.glance import describe
from nbagent.inspection import look
from nbagent.kernels.capture import CellRunner, Interrupts
from nbagent.kernels.live_states import LiveStates, Names, Tokens, users
from nbagent.kernels.outputs import Outputs, valid_text
from nbagent.kernels.probe import see_packages, token_of
from nbagent.kernels.process import ProcessKernel
from nbagent.programs import ProgramEnded
from nbagent.protocols import Checkpoints, Executed, Variable, WentBack

INTERRUPT_GRACE = 2.0  #: seconds after an interrupt until the next
MOST_WAITING = 4_000_000  #: characters that wait to be handed on; then the code waits
LONGEST_ERROR = 2000
DEAF = "[the code does not react to interrupts; restarting the kernel is the only way to end it]\n"


class LiveKernel:
    """Implements `protocols.Kernel` and `protocols.Checkpoints` over an IPython shell.

    `submit` has a function executed by the shell's main thread, which waits while the agent works; programs
    of the system run as `programs` holds them.
    """

    restartable = False
    has_the_users = True
    confinement = "none: the code runs in your own kernel (kernel=live)"

    def __init__(
        self,
        shell: Any,
        submit: Callable[[Callable[[], Any]], Future[Any]],
        programs: ProcessKernel,
        *,
        output_characters: int = 200_000,
    ) -> None:
        self.generation = 0
        self.checkpoints: Checkpoints | None = self
        self._shell, self._submit = shell, submit
        self._runner = CellRunner(shell)
        self._programs = programs  # never started: it only runs programs
        self._output_characters = output_characters
        self._turn = asyncio.Lock()
        self._states = LiveStates(shell.user_ns)
        self._agents: dict[str, int] = {}  # name -> id of the object that the agent's code bound it to
        self._known: dict[str, Variable] = {}

    async def start(self) -> None:
        """Nothing to start: it runs."""

    async def restart(self) -> None:
        """Refuse: the user's own kernel is not ours to restart."""
        raise KernelNotStarted("kernel=live works in your own kernel: restart it yourself")

    async def close(self) -> None:
        """Let go of the objects that were kept."""
        self._states.clear()

    def known_variables(self) -> Sequence[Variable]:
        """List the variables as of the last execution."""
        return list(self._known.values())

    def run_program(self, words: Sequence[str], *, timeout: float) -> AsyncGenerator[Output | ProgramEnded, None]:
        """Run a program of the system (see `protocols.Kernel`)."""
        return self._programs.run_program(words, timeout=timeout)

    async def install(
        self, arguments: Sequence[str], *, timeout: float
    ) -> AsyncGenerator[Output | ProgramEnded, None]:
        """Install packages into the user's environment (see `protocols.Kernel`)."""
        async with aclosing(self._programs.install(arguments, timeout=timeout)) as items:
            async for item in items:
                if isinstance(item, ProgramEnded):
                    see = partial(see_packages, *map(str, item.folders))
                    await asyncio.wrap_future(self._submit(see))
                yield item

    async def bring(self, name: str, file: Path) -> None:
        """Refuse: there is nothing to copy."""
        raise TransferError(f"{name} is in this kernel already (kernel=live)")

    async def adopt(self, name: str, file: Path) -> str:
        """Refuse: there is nothing to copy."""
        raise TransferError(f"{name} is yours already (kernel=live)")

    async def inspect(self, name: str) -> str:
        """Tell about the variable `name` in some lines. Raises `TransferError`."""
        names = self._shell.user_ns
        if name not in names:
            raise TransferError(f"{name} cannot be looked at: there is no such variable")
        return valid_text(await asyncio.wrap_future(self._submit(lambda: look(name, names[name]))))

    async def execute(self, code: str, *, timeout: float) -> AsyncGenerator[Output | Executed, None]:
        """Run code in the user's shell (see `protocols.Kernel`)."""
        async with self._turn:
            execution = _Execution(self._runner, self._shell, code, self._output_characters)
            before = dict(self._shell.user_ns)
            tokens = {name: token_of(value) for name, value in users(before).items()}
            self._states.begin(tokens, code)
            done = asyncio.wrap_future(self._submit(execution.run))
            watch = asyncio.create_task(execution.watch(done, timeout))
            try:
                async for output in execution.outputs():
                    yield output
            finally:
                execution.stop()  # cancelled or left by the caller; the next code waits for the end anyway
                await asyncio.wait({watch})
            yield self._ended(execution, before, tokens)

    def _ended(self, execution: _Execution, before: Names, tokens: Tokens) -> Executed:
        after = users(self._shell.user_ns)
        now = {name: token_of(value) for name, value in after.items()}
        self._states.ended(now, tokens)
        changed = [name for name in after if tokens.get(name) != now[name]]
        gone = tuple(name for name in tokens if name not in after)
        changes = tuple(Variable(name, *map(valid_text, describe(after[name]))) for name in changed)
        rebound = [name for name in changed if name in before and before[name] is not after[name]]
        taken = [name for name in (*rebound, *gone) if self._agents.get(name) != id(before[name])]
        shadowed = [
            name for name in after if name not in before and hasattr(builtins, name) and name not in self._agents
        ]
        bound = [name for name in changed if before.get(name) is not after[name]]
        self._agents.update((name, id(after[name])) for name in bound)
        self._known = {name: Variable(name, *map(valid_text, describe(value))) for name, value in after.items()}
        status, error = execution.ending()
        return Executed(
            status,
            time.monotonic() - execution.started,
            error=error,
            changes=changes,
            gone=gone,
            replaced=tuple(taken + shadowed),
        )

    # -- checkpoints --------------------------------------------------------------------------------------

    async def checkpoint(self) -> str:
        """Keep which names mean what."""
        return self._states.keep()

    def checkpoint_soon(self) -> None:
        """Nothing to begin: it takes no time."""

    def has(self, mark: str) -> bool:
        """Whether it is still kept."""
        return self._states.has(mark)

    async def go_back(self, mark: str) -> WentBack:
        """Bind the names again to what they meant. Raises `CheckpointDeclined`."""
        return self._states.go_back(mark)


class _Execution:
    """One cell: runs on the main thread, hands its outputs over to the loop that waits for them."""

    def __init__(self, runner: CellRunner, shell: Any, code: str, output_characters: int) -> None:
        self.started = time.monotonic()
        self._runner, self._shell, self._code = runner, shell, code
        self._loop = asyncio.get_running_loop()
        self._interrupts = Interrupts()
        self._items: asyncio.Queue[Output | None] = asyncio.Queue()
        self._outputs = Outputs(self._items.put_nowait, output_characters)
        self._lock = threading.Lock()
        self._messages: list[tuple[str, dict[str, Any]]] = []
        self._waiting = 0
        self._result: Any = None
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._timed_out = False
        self._asked = False

    # on the main thread

    def run(self) -> None:
        """Run the code. Raises `KeyboardInterrupt` where the user interrupted the cell."""
        if self._stopped.done():
            return
        self._result = self._runner.run(self._code, self._take, self._interrupts)
        if self._interrupts.by_user:
            raise KeyboardInterrupt

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        with self._lock:
            first = not self._messages
            self._messages.append((kind, content))
            self._waiting += len(content.get("text", ""))
        if first:
            self._loop.call_soon_threadsafe(self._loop.call_later, 0.02, self._hand_on)
        while self._waiting > MOST_WAITING:
            time.sleep(0.01)

    # on the loop

    def _hand_on(self) -> None:
        with self._lock:
            messages, self._messages, self._waiting = self._messages, [], 0
        for kind, content in messages:
            self._outputs.take(kind, content)
        self._outputs.flush()

    async def outputs(self) -> AsyncGenerator[Output, None]:
        """Give the outputs as they come, until the code is over."""
        while (output := await self._items.get()) is not None:
            yield output

    def stop(self) -> None:
        """Ask the code to end."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def watch(self, done: asyncio.Future[Any], timeout: float) -> None:
        """Wait for the end; interrupt at the time limit or on `stop`, again and again."""
        act_at, interrupts = self.started + timeout, 0
        while not done.done():
            waiting: set[asyncio.Future[Any]] = {done}
            if not interrupts:
                waiting.add(self._stopped)
            left = max(0.0, act_at - time.monotonic())
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if done.done() or (time.monotonic() < act_at and (interrupts or not self._stopped.done())):
                continue
            self._timed_out = self._timed_out or not self._stopped.done()
            self._asked = True
            self._interrupts.ask()
            interrupts += 1
            act_at = time.monotonic() + INTERRUPT_GRACE
            if interrupts == 3:
                self._take("stream", {"name": "stderr", "text": DEAF})
        if not done.cancelled():
            done.exception()  # the main thread raises it to whom it concerns
        self._hand_on()
        self._outputs.finish()
        self._items.put_nowait(None)

    def ending(self) -> tuple[Literal["ok", "error", "timeout", "interrupted"], str]:
        """Say how it ended."""
        result = self._result
        error = None if result is None else result.error_in_exec or result.error_before_exec
        told = "" if error is None else valid_text(f"{type(error).__name__}: {error}".rstrip(": "))[:LONGEST_ERROR]
        if isinstance(error, SystemExit):
            told += " (the code asked to exit; the kernel still runs)"
        if self._timed_out:
            return "timeout", told
        if self._asked or self._interrupts.by_user or result is None:
            return "interrupted", told
        return ("ok", "") if error is None else ("error", told)
