"""Takes `<think>…</think>` at the beginning of a reply's text out of it, also where it is split over chunks."""

from __future__ import annotations

from nbagent.reply import ReasoningText, Text

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkSplitter:
    """Splits text into what is said and what is thought.

    Only blocks that come before any other text count: further on, the tag is something the model talks of.
    """

    def __init__(self) -> None:
        self._kept = ""
        self._place: str = "start"  # "start" (nothing said yet), "inside", "text"
        self._thought = False

    def feed(self, piece: str) -> list[Text | ReasoningText]:
        """Take a piece of the text; give what is decided of it."""
        if self._place == "text":
            return [Text(piece)] if piece else []
        parts: list[Text | ReasoningText] = []
        self._kept += piece
        while self._kept and self._step(parts):
            pass
        return parts

    def finish(self) -> list[Text | ReasoningText]:
        """Give what was kept back."""
        kept, self._kept = self._kept, ""
        if not kept or (self._thought and not kept.strip()):
            return []
        return [ReasoningText(kept) if self._place == "inside" else Text(kept)]

    def _step(self, parts: list[Text | ReasoningText]) -> bool:
        if self._place == "inside":
            thought, closed, rest = self._kept.partition(_CLOSE)
            if not closed:
                keep = _held(thought, _CLOSE)
                thought, rest = thought[: len(thought) - keep], thought[len(thought) - keep :]
            if thought:
                parts.append(ReasoningText(thought))
            self._kept = rest
            if closed:
                self._place = "start"
            return bool(closed)
        said = self._kept.lstrip()
        if said.startswith(_OPEN):
            self._kept, self._place, self._thought = said[len(_OPEN) :], "inside", True
            return True
        if _OPEN.startswith(said):
            return False
        parts.append(Text(said if self._thought else self._kept))
        self._kept, self._place = "", "text"
        return False


def _held(text: str, tag: str) -> int:
    """Count the characters at the end of `text` that may begin `tag`."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)
