"""For front ends that only collect outputs: the static trace, once, at the end; and nobody to ask."""

from __future__ import annotations

from typing import Any

from IPython.display import display

from nbagent.events import Event, Undone
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.view import static
from nbagent.view.trace import Trace


class FinalView:
    """Shows nothing while the run goes on and everything when it is over."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._trace = Trace()
        self._quiet = quiet
        self.metadata: dict[str, Any] = {}
        self.undo_from: int | None = None  # nobody is there

    def open(self) -> None:
        """Appear: nothing to show yet."""

    def show(self, event: Event) -> None:
        """Take note of one event."""
        self._trace.add(event)

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Say no: nobody is there."""
        return Approval(approved=False, by="nobody", note="this front end takes no questions")

    def take_undone(self, undone: Undone) -> None:
        """Nothing changes: what was shown once stands."""

    def close(self) -> None:
        """Leave the trace (on the main thread, in the running cell); nothing where no run was begun."""
        if not self._trace.task:
            return
        if self._quiet:
            said = self._trace.answer or f"{self._trace.ending}. {self._trace.advice}"
            display({"text/plain": said}, raw=True, metadata=self.metadata)
        else:
            left = {"text/html": static.html(self._trace), "text/plain": static.text(self._trace)}
            display(left, raw=True, metadata=self.metadata)
