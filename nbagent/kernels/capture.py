"""Runs one cell in the user's own shell, on its main thread, and takes everything that it shows.

Nothing of it reaches the running cell's own output, `In`, `Out` or `_`, and nothing of it can end the process or
wait for input. What was in place before stands there again afterwards, whatever the code did.
"""

from __future__ import annotations

import asyncio
import builtins
import codecs
import contextlib
import functools
import io
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from IPython.core.displaypub import DisplayPublisher

from nbagent.importing import HeldBack, interruption
from nbagent.interrupted import handle

Take = Callable[[str, dict[str, Any]], None]  #: kind and content of one message, as a kernel would publish it

_LAST_ERROR = ("last_type", "last_value", "last_traceback", "last_exc")
_ENDINGS = ("_exit", "abort")


class Interrupts:
    """The signal handler while a cell runs: only the code that runs is ever interrupted.

    `by_user` is true once an interrupt came that `ask` did not send.
    """

    def __init__(self) -> None:
        self.by_user = False
        self._asked = 0
        self._in_code = False
        self._lock = threading.Lock()
        self._main = threading.main_thread()
        self._held = HeldBack()

    def ask(self) -> None:
        """Interrupt the code, from any thread; no-op when it is over."""
        with self._lock:
            if not self._in_code:
                return
            self._asked += 1
            if hasattr(signal, "pthread_kill") and self._main.ident is not None:
                signal.pthread_kill(self._main.ident, signal.SIGINT)
            else:
                import _thread

                _thread.interrupt_main()

    def _handle(self, _number: int, frame: types.FrameType | None) -> None:
        __tracebackhide__ = True  # a traceback shows the code's own frames
        if self._in_code and self._held.takes(frame):
            return
        if self._asked:
            self._asked -= 1
        else:
            self.by_user = True
        if self._in_code:
            raise interruption(self._held)

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Handle interrupts, on the main thread, while the code runs."""
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            self._in_code = True
            yield
        except KeyboardInterrupt:
            pass  # between the code's end and the next line
        finally:
            self._in_code = False
            self._held.close()
            signal.signal(signal.SIGINT, before)


class _Stream(io.TextIOBase):
    """What stands for `sys.stdout` or `sys.stderr`."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, name: str, take: Take, descriptor: int) -> None:
        self._name, self._take, self._descriptor = name, take, descriptor

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self._take("stream", {"name": self._name, "text": text})
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor


class _Publisher(DisplayPublisher):  # type: ignore[misc]
    """What stands for the shell's publisher of displays."""

    def __init__(self, shell: Any, take: Take) -> None:
        super().__init__(parent=shell)
        self.shell = shell
        self._take_message = take

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        """Take one display."""
        kind = "update_display_data" if update else "display_data"
        self._take_message(kind, {"data": data, "metadata": metadata or {}, "transient": transient or {}})

    def clear_output(self, wait: bool = False) -> None:
        """Take the wish to clear."""
        self._take_message("clear_output", {"wait": wait})


class _Descriptors:
    """What is written to the descriptors 1 and 2 directly, by subprocesses or libraries in C."""

    def __init__(self, take: Take) -> None:
        self._take = take

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Take it while the code runs."""
        with ExitStack() as stack:
            for descriptor, name in ((1, "stdout"), (2, "stderr")):
                stack.enter_context(self._one(descriptor, name))
            yield

    @contextlib.contextmanager
    def _one(self, descriptor: int, name: str) -> Iterator[None]:
        kept = os.dup(descriptor)
        reading, writing = os.pipe()
        reader = threading.Thread(target=self._read, args=(reading, name), name="nbagent output", daemon=True)
        reader.start()
        os.dup2(writing, descriptor)
        os.close(writing)
        try:
            yield
        finally:
            os.dup2(kept, descriptor)  # the last writer of the pipe, unless a subprocess goes on
            os.close(kept)
            reader.join(0.2)

    def _read(self, reading: int, name: str) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # interrupts are the main thread's
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with open(reading, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 16):
                self._take("stream", {"name": name, "text": decoder.decode(data)})


class CellRunner:
    """Runs cells in one shell. Its event loop stays from cell to cell, as a kernel's does."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, code: str, take: Take, interrupts: Interrupts) -> Any:
        """Run `code` on the main thread; give IPython's result."""
        shell = self._shell
        kept = shell.last_execution_result
        result = None
        with ExitStack() as stack:
            stack.enter_context(_kept_attributes(sys, *_LAST_ERROR))
            stack.enter_context(_swapped(sys, "stdout", _Stream("stdout", take, 1)))
            stack.enter_context(_swapped(sys, "stderr", _Stream("stderr", take, 2)))
            stack.enter_context(_swapped(shell, "display_pub", _Publisher(shell, take)))
            hook = self._display_hook(code, take)
            stack.enter_context(_swapped(shell.display_trap, "hook", hook))
            stack.enter_context(_swapped(sys, "displayhook", hook))  # the trap is set already in a running cell
            stack.enter_context(_swapped(shell, "_showtraceback", _error_taker(take)))
            if not shell.custom_exceptions:
                stack.enter_context(_swapped(shell, "custom_exceptions", (KeyboardInterrupt,)))
                stack.enter_context(_swapped(shell, "CustomTB", functools.partial(handle, shell)))
            stack.enter_context(_swapped(shell, "loop_runner", self._run_coroutine))
            stack.enter_context(_swapped(shell, "ask_exit", lambda: None))
            stack.enter_context(_swapped(builtins, "input", _no_input))
            stack.enter_context(_no_exit(shell.user_ns))
            for ending in _ENDINGS:
                stack.enter_context(_swapped(os, ending, _not_the_end(getattr(os, ending))))
            if getattr(shell, "kernel", None) is not None:  # else they are the terminal that the run is shown on
                stack.enter_context(_Descriptors(take).around())
            with interrupts.around():
                result = shell.run_cell(code, store_history=False)
        shell.last_execution_result = kept
        return result

    def _display_hook(self, code: str, take: Take) -> Callable[[object], None]:
        quiet = code.rstrip().endswith(";")

        def show(value: object) -> None:
            if value is None or quiet:
                return
            data, metadata = self._shell.display_formatter.format(value)
            if data:
                take("execute_result", {"data": data, "metadata": metadata, "execution_count": None})

        return show

    def _run_coroutine(self, coroutine: Any) -> Any:
        """Run top-level `await` although the kernel's own loop is running: it waits for the agent's cell."""
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
            raise
        finally:
            asyncio._set_running_loop(outer)


@contextlib.contextmanager
def _swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put `value` in an attribute's place; take it back whatever the code put there."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own or not hasattr(type(owner), name) or isinstance(owner, type(sys)):
            setattr(owner, name, before)
        else:
            delattr(owner, name) if name in vars(owner) else setattr(owner, name, before)


@contextlib.contextmanager
def _kept_attributes(owner: Any, *names: str) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in names if hasattr(owner, name)}
    try:
        yield
    finally:
        for name in names:
            if name in before:
                setattr(owner, name, before[name])
            elif hasattr(owner, name):
                delattr(owner, name)


def _error_taker(take: Take) -> Callable[..., None]:
    def show(kind: type[BaseException], error: BaseException, traceback: list[str]) -> None:
        take("error", {"ename": kind.__name__, "evalue": str(error), "traceback": list(traceback)})

    return show


def _no_input(prompt: object = "") -> str:
    raise RuntimeError("input() is not available to the agent's code")


@contextlib.contextmanager
def _no_exit(names: dict[str, Any]) -> Iterator[None]:
    """Let `exit()` leave the code that calls it, not the user's kernel."""

    def leave(status: object = None, keep_kernel: bool = True) -> None:
        raise SystemExit(*([] if status is None else [status]))

    before = {name: names[name] for name in ("exit", "quit") if name in names}
    names.update(dict.fromkeys(before, leave))
    try:
        yield
    finally:
        for name, value in before.items():
            if names.get(name) is leave:
                names[name] = value


def _not_the_end(end: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse to end the user's process; a fork of it, which multiprocessing makes, may end."""
    process = os.getpid()

    def refuse(*arguments: Any) -> Any:
        if os.getpid() == process:
            raise RuntimeError(f"os.{end.__name__} would end the user's own kernel, and was not called")
        return end(*arguments)

    return refuse
