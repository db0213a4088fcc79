"""The one agent thread of a process: an asyncio loop for the model, the tools and the kernel clients.

The caller's thread (the host's main thread) waits, and is the only place where the host's own code runs:
while it waits it executes what the agent thread submits. So the core is written once, async, and the
synchronous entry points (the magic, the command line, `Agent.run_sync`) run it here.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import os
import queue
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

T = TypeVar("T")

#: How often the waiting thread looks up: Windows cannot interrupt a longer wait.
WAKE_SECONDS = 0.2


class MainThreadQueue:
    """Work that the agent thread wants done on the host's waiting thread.

    `meanwhile` is called there each time that it looks up, every `wake_seconds`.
    """

    def __init__(
        self, meanwhile: Callable[[], None] = lambda: None, *, wake_seconds: float = WAKE_SECONDS
    ) -> None:
        self._meanwhile = meanwhile
        self._wake_seconds = wake_seconds
        self._items: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._reader: int | None = None  # the thread that waits for a line
        self._withdrawn = False  # an interrupt is on its way that is ours: nobody waits for the line any more

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Queue `function`; its result or exception comes through the future."""
        future: Future[Any] = Future()
        self._items.put((function, future))
        return future

    async def input(self, prompt: str) -> str:
        """Ask the user with `input()` on the waiting thread; at Ctrl-C the awaiting task is cancelled.

        Raises:
            EOFError: nobody is there.
        """
        line = self.submit(lambda: self._read(prompt))
        try:
            return await asyncio.wrap_future(line)
        except asyncio.CancelledError:
            if not line.cancelled() and not line.done():
                self._withdraw()
            raise

    def _read(self, prompt: str) -> str:
        self._reader = threading.get_ident()
        try:
            return input(prompt)
        except KeyboardInterrupt:
            if self.take_withdrawal():
                raise EOFError("the question was withdrawn") from None
            raise
        finally:
            self._reader = None

    def _withdraw(self) -> None:
        """Free the waiting thread from an `input()` that nobody waits for: an answer was too late."""
        main = threading.main_thread().ident  # the only one that an interrupt reaches
        if main is not None and self._reader == main and hasattr(signal, "pthread_kill"):
            self._withdrawn = True
            signal.pthread_kill(main, signal.SIGINT)

    def take_withdrawal(self) -> bool:
        """Say whether a `KeyboardInterrupt` was ours and not the user's; once."""
        withdrawn, self._withdrawn = self._withdrawn, False
        return withdrawn

    def wake(self) -> None:
        """Make the waiting thread look up."""
        self._items.put(None)

    def run_one(self, on_interrupt: Callable[[], None]) -> None:
        """Wait a moment for one item and run it; a `KeyboardInterrupt` calls `on_interrupt`."""
        try:
            self._meanwhile()
            item = self._items.get(timeout=self._wake_seconds)
            if item is not None:
                _settle(*item, on_interrupt)
        except queue.Empty:
            pass
        except KeyboardInterrupt:
            on_interrupt()


def _settle(function: Callable[[], Any], future: Future[Any], on_interrupt: Callable[[], None]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except KeyboardInterrupt:
        on_interrupt()  # before its end is known: what waits for it would go on to something else
        future.set_exception(CancelledError())  # an interrupt that went to the other thread would end its loop
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to who submitted the function
        future.set_exception(error)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Let an interrupt of the main thread, a second press of Stop mostly, wait until what is at hand is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


class AgentThread:
    """A daemon thread that runs one asyncio loop for as long as the process lives.

    It lives that long on purpose: a kernel dies with the thread that started it.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pid = os.getpid()
        self._closers: dict[object, Callable[[], Coroutine[Any, Any, None]]] = {}
        # The context is copied so that output made on this thread stays with the cell that started it.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self.loop.run_forever,), name="nbagent", daemon=True
        )
        self._thread.start()
        atexit.register(self._at_exit)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the agent thread; do not wait."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        main: MainThreadQueue | None = None,
        on_interrupt: Callable[[], None] | None = None,
    ) -> T:
        """Run a coroutine on the agent thread and wait, executing what `main` is given meanwhile.

        A `KeyboardInterrupt` calls `on_interrupt` (by default: cancels) and the wait goes on until the
        coroutine has ended: it knows how to stop and what to keep.

        Raises:
            KeyboardInterrupt: the interrupt left it nothing to give.
        """
        main = main or MainThreadQueue()
        future = self.start(coroutine)
        future.add_done_callback(lambda _: main.wake())
        interrupted = False

        def interrupt() -> None:
            nonlocal interrupted
            if not main.take_withdrawal():
                interrupted = True
                (on_interrupt or future.cancel)()

        pressed = False
        while True:
            try:
                if pressed:
                    pressed = False
                    interrupt()
                while not future.done():
                    main.run_one(interrupt)
                break
            except KeyboardInterrupt:  # between two waits, or in the middle of passing another one on
                pressed = True
        if interrupted and future.cancelled():
            raise KeyboardInterrupt
        return future.result()

    def at_exit(self, owner: object, close: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        """Register what to close when the process ends; `None` takes it back."""
        if close is None:
            self._closers.pop(owner, None)
        else:
            self._closers[owner] = close

    def _at_exit(self) -> None:
        if os.getpid() != self.pid:  # a fork of the user's process must not close the parent's sessions
            return
        for close in list(self._closers.values()):
            with contextlib.suppress(TimeoutError):
                self.start(close()).result(timeout=5)


_the_thread: AgentThread | None = None
_lock = threading.Lock()


def agent_thread() -> AgentThread:
    """Give the process's agent thread, started on first use: after a fork, a new one."""
    global _the_thread
    with _lock:
        if _the_thread is None or _the_thread.pid != os.getpid():  # threads do not come along in a fork
            _the_thread = AgentThread()
        return _the_thread
