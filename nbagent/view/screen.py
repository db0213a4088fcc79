"""What a terminal or a pipe can take: lines of text that neither steer it nor flood it."""

from __future__ import annotations

import io
import os
import sys
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate

from rich.cells import chop_cells
from rich.containers import Lines
from rich.text import Text

from nbagent.view.outputs import plain

HEAD, TAIL = 20, 10  #: lines of one action's outputs that are shown
LONGEST_LINE = 1_000  #: characters
_PENDING = 10_000  #: characters of an unfinished line, beyond which only its last state is kept


class Screen(io.TextIOBase):
    """Standard output that never raises: what cannot be encoded becomes `?`, a closed pipe takes no more."""

    def __init__(self) -> None:
        super().__init__()
        self._out = sys.stdout
        self._open = True

    @property
    def encoding(self) -> str:  # type: ignore[override]  # ours is read-only
        """Give the encoding that characters must fit into."""
        return getattr(self._out, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Say whether a person reads it as it comes."""
        try:
            return self._out.isatty()
        except ValueError:
            return False

    def write(self, text: str) -> int:
        """Write, as far as there still is a reader."""
        self._try(text.encode(self.encoding, "replace").decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        """Pass on what was written."""
        self._try("")

    def _try(self, text: str) -> None:
        if not self._open:
            return
        try:
            if text:
                self._out.write(text)
            else:
                self._out.flush()
        except (OSError, ValueError) as error:
            self._open = False
            if isinstance(error, BrokenPipeError):
                self._let_go()

    def _let_go(self) -> None:
        """Point standard output nowhere: else the interpreter fails at exit on what is left in the buffer."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._out.fileno())
        finally:
            os.close(nowhere)


@dataclass(slots=True)
class Folded:
    """The lines of one action's outputs: the first are given on as they come, of the others the last are kept."""

    count: int = 0
    head: list[str] = field(default_factory=list)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    _source: str = ""
    _pending: str = ""

    def feed(self, text: str, source: str) -> list[str]:
        """Take in more text; give the lines that are complete now and belong to the first.

        Another source than before begins a line of its own.
        """
        if self._pending and source != self._source:
            text = f"\n{text}"
        self._source = source
        *lines, self._pending = (self._pending + text).split("\n")
        if len(self._pending) > _PENDING:
            self._pending = self._pending[max(self._pending.rfind("\r"), len(self._pending) - _PENDING) :]
        return [shown for line in lines if (shown := self._add(line)) is not None]

    def end_line(self) -> list[str]:
        """End a line that was left open; give it where it belongs to the first."""
        return self.feed("\n", self._source) if self._pending else []

    def rest(self) -> list[str]:
        """Give what the first lines leave out: how much is not shown, and the last lines."""
        missing = self.count - len(self.head) - len(self.tail)
        return [*([f"… {missing:,} lines not shown …"] if missing else []), *self.tail]

    def newest(self, count: int) -> list[str]:
        """Give the last lines so far, the open one with them."""
        open_line = [_shortened(plain(self._pending))] if self._pending else []
        return [*self.head, *self.tail, *open_line][-count:]

    def _add(self, line: str) -> str | None:
        line = _shortened(plain(line))
        self.count += 1
        if len(self.head) < HEAD:
            self.head.append(line)
            return line
        self.tail.append(line)
        return None


def folded(text: Text, width: int) -> Lines:
    """Cut text into lines of at most `width` cells, wherever that falls."""
    lines = Lines()
    for line in text.split("\n", allow_blank=True):
        line.expand_tabs(8)
        lines.extend(line.divide(list(accumulate(map(len, chop_cells(line.plain, width))))[:-1]))
    return lines


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}… ({len(line):,} characters)"
