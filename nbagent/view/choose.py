"""Which view a front end gets, by what it can do and not by its name."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from nbagent.events import Undone
from nbagent.protocols import View
from nbagent.view.final import FinalView
from nbagent.view.terminal import TerminalView
from nbagent.view.widget import AfterRun, WidgetView


class CellView(View, Protocol):
    """A view that is opened in the running cell. `metadata` stays with the trace, where there is an output."""

    metadata: dict[str, Any]
    undo_from: int | None  #: the step from which on the user took everything back, while the run went on

    def open(self) -> None:
        """Appear (call it on the main thread)."""
        ...

    def take_undone(self, undone: Undone) -> None:
        """Mark in the trace what was undone after the run (call it on the main thread)."""
        ...


def choose_view(
    shell: Any,
    *,
    on_stop: Callable[[], None],
    input_on_main: Callable[[str], Awaitable[str]],
    after: AfterRun,
    quiet: bool = False,
    cell: str = "",
) -> CellView:
    """Choose for the cell that runs now in `shell`.

    A terminal gets text. A kernel whose front end takes no questions (nbclient, papermill: the request
    says `allow_stdin` false) gets the static trace at the end, without widget or wait. Others get the widget.
    """
    if getattr(shell, "kernel", None) is None:
        return TerminalView(interactive=sys.stdin.isatty(), quiet=quiet, input_on_main=input_on_main)
    if not takes_questions(shell):
        return FinalView(quiet=quiet)
    return WidgetView(on_stop=on_stop, input_on_main=input_on_main, after=after, cell=cell)


def takes_questions(shell: Any) -> bool:
    """Whether the cell that runs now came from a front end where somebody can be asked."""
    if getattr(shell, "kernel", None) is None:
        return True
    request = getattr(shell, "parent_header", None) or {}
    return bool(request.get("content", {}).get("allow_stdin", False))
