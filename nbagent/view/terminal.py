"""The trace as text, while it happens: on a terminal with colours and a status line, in a pipe line by line.

What still changes (a thought that streams, code on its way, the output of running code) stands in a region
at the bottom; what is complete is printed above it and never touched again. A pipe gets only the latter.
Text of the model and of data never steers the terminal: escape codes and console markup are taken as text.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from typing import IO, Any, cast

from rich import box
from rich.console import Console
from rich.containers import Lines
from rich.panel import Panel
from rich.text import Text

from nbagent.events import (
    ActionFinished,
    ActionProposed,
    ActionStarted,
    ApprovalAsked,
    Event,
    OutputAdded,
    RunFinished,
    RunStarted,
    Undone,
)
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.tool_traits import ASK_USER
from nbagent.tools.answer import FinalAnswer
from nbagent.view.highlight import Kind, spans
from nbagent.view.outputs import block, plain, visible
from nbagent.view.prose import styled
from nbagent.view.question import ask_by_line, own_question
from nbagent.view.region import Region
from nbagent.view.screen import Folded, Screen, folded
from nbagent.view.static import seconds
from nbagent.view.trace import Trace, TraceAction, note_of, spent

REGION_LINES = 8
ERROR_LINES = 8  #: the last ones of a traceback
_STYLES: dict[Kind, str] = {
    "": "",
    "keyword": "magenta",
    "string": "green",
    "comment": "dim",
    "number": "cyan",
    "name": "bold",
}
_MARKS = {"ok": ("✓", "green"), "interrupted": ("■", "yellow"), "skipped": ("–", "dim")}


class TerminalView:
    """Shows one run on standard output. Its methods but `open` and `close` are for the agent thread.

    Args:
        interactive: whether someone is there to answer questions.
        quiet: show the answer only, or why there is none.
        input_on_main: reads one line on the main thread; by default a line is read on a thread of its own.
    """

    def __init__(
        self,
        *,
        interactive: bool,
        quiet: bool = False,
        input_on_main: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self.metadata: dict[str, Any] = {}  # a terminal keeps none
        self.undo_from: int | None = None  # `%agent undo` does it there
        self._interactive = interactive
        self._quiet = quiet
        self._input = input_on_main or _input_on_a_thread
        screen = Screen()
        self._console = Console(
            file=cast("IO[str]", screen),
            force_terminal=screen.isatty(),
            force_jupyter=False,
            markup=False,
            highlight=False,
            emoji=False,
        )
        self._lock = threading.RLock()
        self._moving = self._console.is_terminal and not self._console.is_dumb_terminal and not quiet
        self._region = Region(self._console, self._newest, self._lock)
        self._begin()

    def _begin(self) -> None:
        self._trace = Trace()
        self._output: Folded | None = None  #: of the action that runs
        self._errors: list[str] = []
        self._headed = self._spoken = 0  #: the last step whose heading, whose thought is printed
        self._coded: set[tuple[int, str]] = set()  #: actions whose code is printed, by step and call id
        self._asked: set[str] = set()

    def open(self) -> None:
        """Appear: nothing to show before the first event."""

    def show(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            if isinstance(event, RunStarted):
                self._begin()
            if not isinstance(event, OutputAdded):  # they are folded here, however many they are
                self._trace.add(event)
            if self._quiet:
                if isinstance(event, RunFinished):
                    self._line(Text(plain(self._trace.answer) or self._ended()))
                return
            self._print(event)
            if isinstance(event, RunFinished | ApprovalAsked):
                self._region.leave()
            elif self._moving:
                self._region.draw(event)

    def take_undone(self, undone: Undone) -> None:
        """Nothing changes: what was printed stands."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Show the whole code with its risk, and wait for yes, no or an edited version.

        Raises:
            asyncio.CancelledError: Ctrl-C: the run is stopped.
        """
        if not self._interactive:
            return Approval(approved=False, by="nobody", note="nobody is there to answer; see --approve")
        with self._lock:
            self._region.leave()
            self._question(request)
        return await ask_by_line(request, self._input, self._code)

    def close(self) -> None:
        """Take the status line away, if the run left one."""
        with self._lock:
            self._region.leave()

    # -- what is printed for good -----------------------------------------------------------------------

    def _print(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._line(Text(plain(" · ".join(filter(None, [event.model, event.host]))), style="dim"))
            for note in event.notes:
                self._line(Text(f"· {plain(note)}", style="dim"))
        elif isinstance(event, RunFinished):
            self._end(event)
        elif note := note_of(event):
            self._speak()
            self._head()
            self._line(Text(f"· {plain(note)}", style="dim"), margin="  ")
        elif isinstance(event, ActionProposed):
            if event.tool != FinalAnswer.name:
                self._speak()
        elif isinstance(event, ApprovalAsked):
            self._question(event)
        elif isinstance(event, ActionStarted):
            self._output, self._errors = Folded(), []
            self._action(self._current(event))
        elif isinstance(event, OutputAdded):
            self._take(event)
        elif isinstance(event, ActionFinished):
            self._outcome(self._current(event))

    def _speak(self) -> None:
        """Print the open step's thought: it is not the answer, since the step goes on."""
        if not self._trace.steps or self._spoken == self._trace.steps[-1].number:
            return
        step = self._trace.steps[-1]
        if step.thought.strip():
            self._spoken = step.number
            self._head()
            self._line(self._prose(step.thought))

    def _head(self) -> None:
        number = self._trace.steps[-1].number if self._trace.steps else 0
        if number != self._headed:
            self._headed = number
            self._line(Text(f"── Step {number} ".ljust(min(self._console.width, 60), "─"), style="dim"))

    def _action(self, action: TraceAction) -> None:
        """Print an action's code, unless it stands there already."""
        key = (self._trace.steps[-1].number, action.call_id)
        if action.tool == FinalAnswer.name or (key in self._coded and not action.edited):
            return
        self._coded.add(key)
        self._speak()
        self._head()
        self._code(action.code)

    def _code(self, code: str) -> None:
        text = Text()
        for kind, piece in spans(visible(code).strip("\n")):
            text.append(piece, _STYLES[kind])
        with self._lock:
            self._line(text, margin="  │ ")

    def _question(self, asked: ApprovalAsked | ApprovalRequest) -> None:
        if asked.request in self._asked:
            return
        self._asked.add(asked.request)
        if self._trace.steps:
            self._speak()
            self._head()
            self._coded.add((self._trace.steps[-1].number, asked.call_id))
        if asked.tool == ASK_USER:
            self._line(Text(f"The agent asks: {visible(asked.code)}", style="bold yellow"))
            return
        words = own_question(asked.tool) or f"{asked.tool} needs your yes: {asked.risk}"
        self._line(Text(f"{words} ({plain(asked.why)})", style="bold yellow"))
        self._code(asked.code)

    def _take(self, event: OutputAdded) -> None:
        shown = block(event.output)
        output = self._output = self._output or Folded()
        if shown.kind == "error":
            self._errors = _traceback(shown.text)
            return
        if shown.kind in ("stdout", "stderr"):
            lines = output.feed(shown.text, shown.kind)
        else:
            text = f"[figure: {shown.text or shown.mime}]" if shown.kind == "image" else shown.text
            lines = output.feed(text.strip("\n") + "\n", shown.kind)
        if not self._moving:
            self._lines(lines)

    def _outcome(self, action: TraceAction) -> None:
        if action.tool == FinalAnswer.name and action.status == "ok":
            self._output = None
            return
        self._action(action)
        output, self._output = self._output or Folded(), None
        last = output.end_line()
        self._lines(output.head if self._moving else last)
        self._lines(output.rest())
        self._lines(self._errors, "red")
        mark, style = _MARKS.get(action.status, ("✗", "red"))
        said = action.summary == action.status or any(action.summary in line for line in self._errors)
        facts = [
            action.tool if action.status == "ok" else f"{action.tool}: {action.status}",
            seconds(action.seconds),
            "" if said else plain(action.summary),
            "edited by you" if action.edited else "",
            "allowed by your earlier yes" if action.allowed else "",
        ]
        line = Text.assemble((f"{mark} ", style), (" · ".join(filter(None, facts)), "dim"))
        self._line(line, margin="  ")
        self._errors = []

    def _end(self, event: RunFinished) -> None:
        trace = self._trace
        answered = trace.reason == "answered"
        if trace.steps and (not answered or trace.steps[-1].thought.strip() != trace.answer.strip()):
            self._speak()
        if trace.steps and trace.steps[-1].draft.strip():
            self._head()
            self._code(trace.steps[-1].draft)
            self._line(Text("not finished, not run", style="dim"), margin="  ")
        if not self._moving:
            self._line(Text(f"Answer: {plain(trace.answer)}" if answered else self._ended()))
            self._line(Text(plain(trace.label) if answered else ""))
        else:
            self._console.print(
                Panel(
                    self._prose(trace.answer) if answered else Text(plain(trace.advice)),
                    box=box.HORIZONTALS,
                    title=Text("Answer" if answered else trace.ending, style="bold"),
                    title_align="left",
                    subtitle=Text(plain(trace.label)) if answered and trace.label else None,
                    subtitle_align="left",
                    border_style="green" if answered else "yellow",
                )
            )
        self._line(Text(self._facts(event), style="dim"))

    def _prose(self, text: str) -> Text:
        return styled(text, self._console.width - 4)  # the frame of the answer takes that much

    def _ended(self) -> str:
        return plain(f"{self._trace.ending}. {self._trace.advice}")

    def _facts(self, event: RunFinished) -> str:
        steps = event.steps or len(self._trace.steps)
        facts = [f"{steps} step{'' if steps == 1 else 's'}", seconds(event.seconds), *spent(event.usage)]
        return " · ".join([*facts, *filter(None, [event.session and f"session {event.session}"])])

    def _lines(self, lines: list[str], style: str = "") -> None:
        for line in lines:
            self._line(Text(line, style), margin="  ", empty=True)

    def _line(self, text: Text, *, margin: str = "", empty: bool = False) -> None:
        """Print text, each of its lines behind a margin; nothing for nothing. Prose alone breaks at words."""
        if not text.plain and not empty:
            return
        text.expand_tabs(8)
        width = max(10, self._console.width - len(margin))
        for whole in text.split("\n", allow_blank=True):
            lines = Lines([whole])
            if self._moving:
                lines = folded(whole, width) if margin else whole.wrap(self._console, width, overflow="fold")
            for number, line in enumerate(lines or [whole]):
                before = margin.replace("│", "┊") if number else margin  # the same line of code goes on
                self._console.print(Text.assemble((before, "dim"), line), soft_wrap=True)

    def _current(self, event: Event) -> TraceAction:
        return self._trace.step(event).action(event.call_id)

    # -- the region that still changes ------------------------------------------------------------------

    def _newest(self) -> list[Text]:
        """Give the last lines of what is under way, as they fit above the status."""
        width = max(10, self._console.width - 2)
        count = max(1, min(REGION_LINES, self._console.height - 4))
        step = self._trace.steps[-1] if self._trace.steps else None
        if self._output is not None:
            shown = folded(Text("\n".join(self._output.newest(count)), "dim"), width)
        elif step is None or step.number == self._spoken:
            return []
        elif step.draft:
            shown = folded(Text(visible(step.draft[-count * width :]), "dim"), width)
        elif step.thought:
            shown = self._prose(step.thought[-count * width :]).wrap(self._console, width, overflow="fold")
        else:
            reasoning = Text(plain(step.reasoning[-count * width :]).strip(), "dim")
            shown = reasoning.wrap(self._console, width, overflow="fold")
        return [Text("  ").append_text(line) for line in shown[-count:] if line.plain]


def _traceback(text: str) -> list[str]:
    """Give the frame in the agent's cell and the error: what lies between is libraries' code."""
    parts = [part.strip("\n").split("\n") for part in re.split(r"\n[ \t]*\n", plain(text).strip("\n"))]
    frames = [part[at:] for part in parts[:-1] for at, line in enumerate(part) if line.startswith("Cell In[")]
    return [*(frames[-1][:ERROR_LINES] if frames else []), *parts[-1][-ERROR_LINES:]]


async def _input_on_a_thread(prompt: str) -> str:
    return await asyncio.to_thread(input, prompt)
