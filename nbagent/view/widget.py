"""The live view in a notebook: one anywidget, replaced by a static trace when the run is over.

The run is shown from the agent thread while the cell blocks the main thread. All that goes to the page is
sent by one flusher thread, some 20 times a second; all that comes from the page arrives on a thread of the
kernel's and only sets flags and futures. Nothing here prints: output of such a thread has no cell.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from IPython.display import clear_output, display

from nbagent.agent_thread import interrupts_held
from nbagent.events import Event, Undone
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.tool_traits import ASK_USER
from nbagent.view import static
from nbagent.view.mail import hear_while_running
from nbagent.view.ops import OpLog
from nbagent.view.outputs import visible
from nbagent.view.question import ask_by_line, own_question

FRAME = 1 / 20  #: seconds between two sendings: thousands of messages a second get lost on the way
#: Seconds after which a page that did not call back is held to be unable to: the first widget of a page
#: loads its code and has a subshell made first, which takes a busy machine more than two.
HELLO_TIMEOUT = 4.0
_WIDGET = "application/vnd.jupyter.widget-view+json"
HEARTBEAT = 5.0  #: seconds of silence after which a page is told the last number: it may have lost it
KEPT = 4  #: finished runs that a page which was loaded again in mid-run can still ask for
_HERE = Path(__file__).parent


class RunWidget(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget ships no types
    """The page's side of the live view."""

    name = traitlets.Unicode().tag(sync=True)  #: the same for all views of this widget, and for no other widget
    cell = traitlets.Unicode().tag(sync=True)  #: id of the cell that it stands under, where the front end says it
    # One module made of several files, so that a front end has nothing to fetch.
    _esm = "\n".join(
        (_HERE / name).read_text("utf-8") for name in ("shown.js", "question.js", "after.js", "widget.js")
    )
    _css = (_HERE / "widget.css").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class AfterWord:
    """What a button below a finished run brought: a line for the user, and cells for the notebook."""

    said: str
    cells: Sequence[str] = ()


#: Does what a button asks for by its name (`cells`, `export`); it must not raise.
AfterRun = Callable[[str], AfterWord]

_finished: deque[RunWidget] = deque()


class WidgetView:
    """Shows one run in the cell that opened it, and asks there."""

    def __init__(
        self,
        *,
        on_stop: Callable[[], None],
        input_on_main: Callable[[str], Awaitable[str]] | None = None,
        after: AfterRun | None = None,
        cell: str = "",
    ):
        """Take what to do on Stop (called on a kernel thread; it must return at once).

        `input_on_main` asks one line of the user by other means; it is used where the page cannot call back.
        `cell` is the id of the running cell: a page whose saved notebook has no view of the run puts one there.
        `after` does what the buttons below a finished run ask for, on a thread of its own.
        """
        self._after = after
        self._cell = cell
        #: The step from which on the user took everything back; the run is stopped then.
        self.undo_from: int | None = None
        self.metadata: dict[str, Any] = {}
        self._on_stop = on_stop
        self._input_on_main = input_on_main
        self._log = OpLog()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._decided = threading.Event()  # whether the page can call back is known
        self._letters: list[dict[str, Any]] = []  # to the page, outside the numbered log
        self._replay_from: int | None = None
        self._questions: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Future[Approval]]] = {}
        self._flusher: threading.Thread | None = None
        self._callbacks_work = False
        self._line_open = False
        self._left: dict[str, Any] | None = None  # the static trace, once it stands
        self._pages: set[str] = set()  # that said hello and were answered

    @property
    def callbacks_work(self) -> bool:
        """Whether the page has called back: false in front ends and kernels that cannot while a cell runs."""
        return self._callbacks_work

    def open(self) -> None:
        """Show the widget in the running cell (call it on the main thread, once)."""
        self._widget = RunWidget(name=secrets.token_hex(8), cell=self._cell)
        # Whether it worked is not assumed: the page says hello, or the fallbacks stay on.
        hear_while_running(self._widget)
        self._widget.on_msg(self._receive)
        bundle = {
            _WIDGET: {"version_major": 2, "version_minor": 0, "model_id": self._widget.model_id},
            "text/plain": "nbagent is at work. This front end has no live view; the trace comes at the end.",
        }
        self._handle = display(bundle, raw=True, display_id=True)
        # Output made under a copy of this context belongs to this cell, whatever runs meanwhile.
        self._context = contextvars.copy_context()
        self._flusher = threading.Thread(
            target=self._context.copy().run, args=(self._flush_until_closed,), name="nbagent-view", daemon=True
        )
        self._flusher.start()

    def show(self, event: Event) -> None:
        """Show one event; it reaches the page with the next frame."""
        if not event.time:
            event = event.model_copy(update={"time": time.time()})
        with self._lock:
            self._log.add(event)
        self._wake.set()

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Wait for the user's answer in the page, or by other means where the page cannot call back."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Approval] = loop.create_future()
        with self._lock:
            self._questions[request.request] = (loop, answer)
        try:
            while not self._decided.is_set() and not answer.done():
                await asyncio.wait([answer], timeout=FRAME)
            if self._callbacks_work or answer.done():
                return await answer
            if self._input_on_main is None:
                return Approval(approved=False, by="nobody", note="there was no one to ask")
            return await self._ask_by_line(request, self._input_on_main)
        finally:
            with self._lock:
                self._questions.pop(request.request, None)

    async def _ask_by_line(self, request: ApprovalRequest, ask: Callable[[str], Awaitable[str]]) -> Approval:
        self._line_open = True  # an open input box cannot be taken back: until then the page shows no buttons
        try:
            own, looks = own_question(request.tool), f"This looks {request.risk}: {request.why}\nRun it?"
            words = f"{own} ({request.why})" if own else looks
            asked = visible(request.code) + ("" if request.tool == ASK_USER else f"\n\n{words}")
            return await ask_by_line(request, ask, None, asked=asked)
        finally:
            with self._lock:
                self._line_open = False
                if self._callbacks_work:
                    self._letters.append(self._welcome())

    def close(self) -> None:
        """Send what is left and put the static trace in the widget's place.

        Raises:
            KeyboardInterrupt: the user stopped what had ended; the trace stands all the same.
        """
        if self._flusher is None or self._closing.is_set():
            return
        with interrupts_held():
            self._closing.set()
            self._wake.set()
            self._flusher.join()
            self._context.copy().run(self._leave_static)

    def take_undone(self, undone: Undone) -> None:
        """Mark what was undone after the run in the trace that stands (call it on the main thread)."""
        if self._left is not None and self._log.trace.add_undone(undone):
            self.metadata = {}  # the record of what was undone is not to be replayed
            self._leave_static()

    def _leave_static(self) -> None:
        trace = self._log.trace
        if trace.task:
            left = {"text/html": static.html(trace), "text/plain": static.text(trace)}
            self._handle.update(left, raw=True, metadata=self.metadata)
            with self._lock:
                self._left = left
        else:
            clear_output()  # nothing was begun: the error that says why stands alone
        # The widget lives on for a while. A page that was loaded again in mid-run does not know the output's
        # display_id: it asks for the static trace and puts it there itself. And one that is loading the widget
        # still would report an error where it was closed.
        self._widget.send({"op": "over", "model": self._widget.model_id})
        if self._widget not in _finished:
            _finished.append(self._widget)
        while len(_finished) > KEPT:
            _finished.popleft().close()

    def _show_again(self, hello: dict[str, Any]) -> None:
        page, last = str(hello.get("page")), hello.get("last")
        if page in self._pages and not hello.get("again"):
            return  # said more than once
        self._pages.add(page)
        first, ops = self._log.after(last if isinstance(last, int) else 0)
        self._widget.send({"op": "ops", "first": first, "ops": ops, "now": time.time()})
        self._widget.send({"op": "left", "model": self._widget.model_id, "data": self._left})

    def _welcome(self) -> dict[str, Any]:
        return {"op": "welcome", "model": self._widget.model_id}

    def _do_after(self, after: AfterRun, name: str) -> None:
        word = after(name)
        self._widget.send({"op": "after", "said": word.said, "cells": list(word.cells)})

    # -- kernel to page: the flusher thread only --------------------------------------------------------

    def _flush_until_closed(self) -> None:
        opened = time.monotonic()
        while not self._closing.is_set():
            undecided = not self._decided.is_set()
            silent = not self._wake.wait(HELLO_TIMEOUT / 10 if undecided else HEARTBEAT)
            self._wake.clear()
            if undecided and time.monotonic() - opened > HELLO_TIMEOUT:
                self._give_up_on_hello()
            self._flush(beat=silent and not undecided)
            self._closing.wait(FRAME)
        self._flush()

    def _give_up_on_hello(self) -> None:
        with self._lock:
            if not self._callbacks_work:
                self._replay_from = 0  # such a page cannot ask for what it missed while it was loading
                self._letters.append({"op": "deaf"})
        self._decided.set()

    def _flush(self, *, beat: bool = False) -> None:
        with self._lock:
            again, self._replay_from = self._replay_from, None
            batches = [self._log.after(again)] if again is not None else []
            batches.append(self._log.take())
            letters, self._letters = self._letters, []
        for letter in letters:
            self._widget.send(letter)
        for first, ops in batches:
            if ops or beat:
                self._widget.send({"op": "ops", "first": first, "ops": ops, "now": time.time()})

    # -- page to kernel: a thread of the kernel's; it must not wait -------------------------------------

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        if not isinstance(content, dict):
            return
        op = content.get("op")
        if self._left is not None:
            if op == "hello":
                self._show_again(content)
            elif op == "after" and self._after is not None:
                threading.Thread(target=self._do_after, args=(self._after, str(content.get("name")))).start()
        elif op == "hello":
            page, last = str(content.get("page")), content.get("last")
            with self._lock:
                self._callbacks_work = True
                if page not in self._pages or content.get("again"):
                    wanted = last if isinstance(last, int) else 0
                    others = wanted if self._replay_from is None else self._replay_from
                    self._replay_from = min(wanted, others)  # of two pages, the one that has less
                self._pages.add(page)
                if not self._line_open:
                    self._letters.append(self._welcome())
            self._decided.set()
        elif op == "stop":
            with self._lock:
                self._letters.append({"op": "stopping"})
            self._on_stop()
        elif op == "undo":
            step = content.get("step")
            self.undo_from = step if isinstance(step, int) else None
            self._on_stop()
        elif op in ("approve", "deny"):
            self._answer(op == "approve", content)
        self._wake.set()

    def _answer(self, approved: bool, content: dict[str, Any]) -> None:
        code, always = content.get("code"), content.get("always")
        approval = Approval(
            approved=approved,
            by="user",
            note=str(content.get("note") or ""),
            code=code if approved and isinstance(code, str) else None,
            always=always if approved and always in ("pattern", "session") else "",
        )
        with self._lock:
            question = self._questions.get(str(content.get("request")))
        if question is not None:
            loop, answer = question
            loop.call_soon_threadsafe(_settle, answer, approval)


def _settle(answer: asyncio.Future[Approval], approval: Approval) -> None:
    if not answer.done():  # a second click, or the run was stopped meanwhile
        answer.set_result(approval)
