"""The lines at the bottom of a terminal that still change: what is under way, and a truthful status."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from nbagent.events import (
    ActionDelta,
    ActionFinished,
    ActionProposed,
    ActionStarted,
    ApprovalGiven,
    Event,
    Retrying,
    StepStarted,
    ThoughtDelta,
)
from nbagent.tools.answer import FinalAnswer
from nbagent.view.outputs import plain

FRAME = 0.1  #: seconds between two pictures


class Region:
    """Drawn on the thread that shows, its clock by that thread's event loop: nothing else writes meanwhile.

    Args:
        newest: gives the lines above the status.
        lock: held while it draws.
    """

    def __init__(self, console: Console, newest: Callable[[], list[Text]], lock: threading.RLock) -> None:
        self._console = console
        self._newest = newest
        self._lock = lock
        self._spinner = Spinner("dots" if console.encoding.startswith("utf") else "line", style="cyan")
        self._live: Live | None = None
        self._status, self._since = "Starting…", time.monotonic()
        self._drawn = 0.0

    def draw(self, event: Event) -> None:
        """Appear, or come up to date with an event; deltas are drawn at most once a frame."""
        status = status_of(event) or self._status
        if status != self._status or isinstance(event, ActionStarted):
            self._status, self._since = status, time.monotonic()
        if self._live is None:
            self._live = Live(
                get_renderable=self._picture,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)
            self._tick_later(self._live)
        elif event.stored or time.monotonic() - self._drawn >= FRAME:
            self._refresh(self._live)

    def leave(self) -> None:
        """Take it away."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _picture(self) -> RenderableType:
        past = time.monotonic() - self._since
        status = plain(self._status) + (f" {past:.0f} s" if past >= 1 else "")
        self._spinner.update(text=Text(f"{status}  (Ctrl-C stops)", style="dim"))
        return Group(*self._newest(), self._spinner)

    def _refresh(self, live: Live) -> None:
        self._drawn = time.monotonic()
        live.refresh()

    def _tick_later(self, live: Live) -> None:
        """Keep the clock going; where no event loop runs, it moves with the events."""
        try:
            asyncio.get_running_loop().call_later(FRAME, self._tick, live)
        except RuntimeError:
            return

    def _tick(self, live: Live) -> None:
        with self._lock:
            if live is self._live:
                self._refresh(live)
                self._tick_later(live)


def status_of(event: Event) -> str:
    """Say what goes on after an event; empty where it changes nothing."""
    if isinstance(event, StepStarted | ThoughtDelta):
        return "Thinking…"
    if isinstance(event, ActionDelta):
        return "Writing the answer…" if event.tool == FinalAnswer.name else "Writing code…"
    if isinstance(event, ActionProposed | ApprovalGiven):
        return "Getting ready…"
    if isinstance(event, ActionStarted):
        return f"Running {event.tool}"
    if isinstance(event, ActionFinished):
        return "Working…"
    if isinstance(event, Retrying):
        return "Waiting to try again…"
    return ""
