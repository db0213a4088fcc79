"""An interrupt waits while a library is being imported.

A library that is cut off in the middle of its import cannot be loaded again in that process, now and then: NumPy
and most of what stands on it fail from then on with errors that name something else. So an interrupt that comes
there is held back until the import is over. Runs where glance.py runs, in the agent's kernel and in the user's.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import types
from typing import Any

HELD_SECONDS = 3.0  #: the longest that one waits; the host ends a kernel that does not react 4 s after it asked
LOOK_SECONDS = 0.02  #: between two looks at whether the import is over


def library_at(frame: types.FrameType | None) -> str:
    """Name the library whose import is under way at a frame of a cell; "" if there is none."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "run_code" and code.co_filename.endswith("interactiveshell.py"):
            return ""  # the cell's own beginning
        if code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>":
            name = str(frame.f_locals.get("name", "")).partition(".")[0]
            if _is_library(sys.modules.get(name)):
                return name
        frame = frame.f_back
    return ""


def _is_library(module: types.ModuleType | None) -> bool:
    """Whether it is installed, not the user's own: a module of theirs may run for hours while it is imported."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    place = next(filter(None, places), "")
    return "site-packages" in place or "dist-packages" in place or place.startswith((sys.prefix, sys.base_prefix))


class HeldBack:
    """The interrupt of one cell that waits for the end of an import. Made and asked on the main thread."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._since = 0.0
        self._open = True
        self.why = ""  #: what is to be said with one that has waited long enough

    def takes(self, frame: types.FrameType | None) -> bool:
        """Say whether an interrupt that came at `frame` has to wait; it comes again by itself."""
        name = library_at(frame)
        if not name or not hasattr(signal, "pthread_kill"):
            return False
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > HELD_SECONDS:
            self.why = f"in the middle of importing {name}, which may not load again in this kernel"
            return False
        if self._timer is None or not self._timer.is_alive():
            self._timer = threading.Timer(LOOK_SECONDS, self._come_again)
            self._timer.daemon = True
            self._timer.start()
        return True

    def _come_again(self) -> None:
        with self._lock:
            if self._open and self._main is not None:
                signal.pthread_kill(self._main, signal.SIGINT)

    def close(self) -> None:
        """Let none come any more: the cell is over."""
        with self._lock:
            self._open = False


def interruption(held: HeldBack | None) -> KeyboardInterrupt:
    """Make what is raised."""
    return KeyboardInterrupt(*([held.why] if held and held.why else []))


class ImportGuard:
    """Holds the interrupts of each cell of a shell back while one imports a library."""

    def __init__(self, shell: Any) -> None:
        self._held: HeldBack | None = None
        shell.events.register("pre_execute", self._begin)
        shell.events.register("post_execute", self._end)

    def _begin(self) -> None:
        # Another handler is there where the code awaits, or where it was set by the user's own.
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._held = HeldBack()
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, _number: int, frame: types.FrameType | None) -> None:
        __tracebackhide__ = True  # a traceback shows the code's own frames
        if self._held is None or not self._held.takes(frame):
            raise interruption(self._held)

    def _end(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        held.close()
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)
