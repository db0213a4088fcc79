"""What the model writes, shown while it comes: masked across the pieces it comes in."""

from __future__ import annotations

from collections.abc import Callable

from nbagent.events import ActionDelta, Event, ReasoningDelta, ThoughtDelta
from nbagent.redaction import Redactor, StreamRedactor

Delta = ThoughtDelta | ReasoningDelta | ActionDelta


class LiveText:
    """Passes deltas on, holding back what may be the beginning of a secret until it is known to be none."""

    def __init__(self, redactor: Redactor, emit: Callable[[Event], None]) -> None:
        self._redactor = redactor
        self._emit = emit
        self._stream: StreamRedactor | None = None
        self._last: Delta | None = None

    def show(self, delta: Delta) -> None:
        """Show a piece; one of another kind ends the text before it."""
        if self._stream is None or self._last is None or not _continues(self._last, delta):
            self.flush()
            self._stream = self._redactor.stream()
        self._last = delta
        if text := self._stream.feed(delta.text):
            self._emit(delta.model_copy(update={"text": text}))

    def flush(self) -> None:
        """Show what was held back: the text is over."""
        stream, last = self._stream, self._last
        self._stream = self._last = None
        if stream is not None and last is not None and (text := stream.flush()):
            self._emit(last.model_copy(update={"text": text}))


def _continues(last: Delta, delta: Delta) -> bool:
    same_tool = not isinstance(last, ActionDelta) or last.tool == getattr(delta, "tool", "")
    return type(last) is type(delta) and same_tool
