"""Server-sent events: bytes in, the data of each event out.

Lines end at CR, LF or CRLF only: a reader that also splits at U+2028 or form feeds, as line iterators of
HTTP libraries do, breaks the JSON of texts that contain them.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")


class SseDecoder:
    """Collects bytes and gives the data of each complete event; comments and other fields are dropped."""

    def __init__(self) -> None:
        self._bytes = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[str]:
        """Give the data of the events that `received` completes."""
        self._bytes += received
        lines = _LINE_END.split(self._bytes)
        if self._bytes.endswith(b"\r"):
            # Its LF may still come: keep the line until that is known.
            self._bytes = lines[-2] + b"\r"
            lines = lines[:-2]
        else:
            self._bytes = lines.pop()
        return [data for line in lines if (data := self._line(line)) is not None]

    def finish(self) -> list[str]:
        """Give the last event, where the server left out the empty line at its end."""
        lines = [*_LINE_END.split(self._bytes), b""]
        self._bytes = b""
        return [data for line in lines if (data := self._line(line)) is not None]

    def _line(self, line: bytes) -> str | None:
        if not line:
            if not self._data:
                return None
            data, self._data = b"\n".join(self._data), []
            return data.decode("utf-8", "replace")
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None
