"""Turns what a kernel publishes into valid nbformat outputs of bounded size.

An event stream cannot take back what it gave, so two things that a notebook shows in place are folded:

* `update_display_data`: the first version is given when it comes, the last one at the end;
* `clear_output`: what was given before stays; from there on outputs are held back, each further clear
  drops them, and what is left is given at the end.
"""

from __future__ import annotations

import base64
import json
import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from nbagent.events import Output

LARGEST_OUTPUT = 10_000_000  #: characters of one rich output
LARGEST_RICH_TOTAL = 50_000_000  #: characters of all rich outputs of one execution
MOST_RICH_OUTPUTS = 500
LAST_WORDS = 2000  #: characters of what was printed that are at hand at the end
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_HINT = "[a live widget: it works in the agent's kernel only and is not shown]"


def valid_text(text: str) -> str:
    """Replace lone surrogates, which no file can hold, by "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def valid_json(value: Any) -> Any:
    """Give `value` as strict JSON: NaN and infinities become null, unknown things their type's name."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return {valid_text(str(key)): valid_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [valid_json(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return f"[{type(value).__name__}]"


def shortened(text: str, limit: int) -> str:
    """Keep head and tail of a text that is over `limit` characters and say how many were left out."""
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    tail = limit - head
    return f"{text[:head]}\n{_left_out(len(text) - limit)}\n{text[-tail:]}"


def _left_out(count: int) -> str:
    return f"[... {count:,} characters left out ...]"


def valid_bundle(data: Any, limit: int) -> dict[str, Any]:
    """Give a MIME bundle that nbformat accepts and that is not over the limits."""
    bundle: dict[str, Any] = {}
    for mime, value in data.items() if isinstance(data, Mapping) else ():
        if mime == WIDGET_VIEW:
            continue
        if mime == "application/json" or mime.endswith("+json"):
            bundle[mime] = valid_json(value)
        elif isinstance(value, str):
            bundle[mime] = valid_text(shortened(value, limit) if mime == "text/plain" else value)
        elif isinstance(value, list) and all(isinstance(line, str) for line in value):
            bundle[mime] = valid_text("".join(value))
        else:
            bundle[mime] = value_text(value)
    if isinstance(data, Mapping) and WIDGET_VIEW in data:
        bundle["text/plain"] = "\n".join(filter(None, (bundle.get("text/plain"), WIDGET_HINT)))
    size = _size(bundle)
    if size > LARGEST_OUTPUT:
        note = f"[an output of {size / 1e6:.1f} MB was left out: {', '.join(bundle)}]"
        return {"text/plain": "\n".join(filter(None, (bundle.get("text/plain"), note)))}
    return bundle or {"text/plain": ""}


def value_text(value: Any) -> str:
    """Give as text what a type that holds text was given instead: base64 of bytes, JSON of the rest."""
    clean = valid_json(value)
    return clean if isinstance(clean, str) else json.dumps(clean)


def _size(bundle: Mapping[str, Any]) -> int:
    return sum(len(value) if isinstance(value, str) else len(json.dumps(value)) for value in bundle.values())


class _Text:
    """Stream text of one execution: the head is given at once, the tail kept, the middle counted."""

    def __init__(self, limit: int):
        self._head_left = limit * 3 // 4
        self._tail_limit = limit - self._head_left
        self._tail: deque[tuple[str, str]] = deque()
        self._tail_size = 0
        self._left_out = 0

    def add(self, name: str, text: str) -> str:
        """Give the part of `text` that is still head."""
        head, rest = text[: self._head_left], text[self._head_left :]
        self._head_left -= len(head)
        if len(rest) > self._tail_limit:
            self._left_out += len(rest) - self._tail_limit
            rest = rest[-self._tail_limit :]
        if rest:
            self._tail.append((name, rest))
            self._tail_size += len(rest)
        while self._tail_size > self._tail_limit:
            first_name, first = self._tail.popleft()
            excess = min(len(first), self._tail_size - self._tail_limit)
            if excess < len(first):
                self._tail.appendleft((first_name, first[excess:]))
            self._tail_size -= excess
            self._left_out += excess
        return head

    def tail(self) -> list[tuple[str, str]]:
        """Give the note on what was left out and the tail."""
        note = [("stdout", f"\n{_left_out(self._left_out)}\n")] if self._left_out else []
        return [*note, *self._tail]


class Outputs:
    """The outputs of one execution: fed with messages, hands on nbformat outputs.

    Stream pieces are gathered until `flush`; `finish` gives what was held back.
    """

    def __init__(self, hand_on: Callable[[Output], None], limit: int):
        self._hand_on = hand_on
        self._limit = limit
        self._text = _Text(limit)
        self._pieces: list[tuple[str, str]] = []
        self._held: list[Output] | None = None  # from the first clear_output on
        self._clear_next = False
        self._updated: dict[str, tuple[Output, int]] = {}
        self.last_words = ""  #: the end of what was printed, however much that was
        self._rich_count = self._rich_size = self._rich_left_out = self._updated_size = 0

    def take(self, kind: str, content: Mapping[str, Any]) -> None:
        """Take in one message of the kernel; kinds that are no output (comm messages) are dropped."""
        if kind == "clear_output":
            self._clear_next = True
            if not content.get("wait"):
                self._clear()
        elif kind == "stream":
            self._settle_clear()
            name = "stderr" if content.get("name") == "stderr" else "stdout"
            text = str(content.get("text", ""))
            self.last_words = (self.last_words + text[-LAST_WORDS:])[-LAST_WORDS:]
            head = self._text.add(name, text)
            if head:
                self._pieces.append((name, head))
        elif kind in ("display_data", "execute_result", "update_display_data"):
            self._settle_clear()
            self._take_rich(kind, content)
        elif kind == "error":
            self._settle_clear()
            self.flush()
            self._give(self._error(content))

    @property
    def waiting(self) -> bool:
        """True while there are stream pieces to flush."""
        return bool(self._pieces)

    def flush(self) -> None:
        """Hand on the stream text gathered so far, one output for each run of the same name."""
        pieces, self._pieces = self._pieces, []
        self._give_streams(pieces)

    def finish(self) -> None:
        """Hand on everything that was held back: the execution is over."""
        self.flush()
        self._give_streams(self._text.tail())
        held, self._held = self._held or [], None
        for output in (*held, *(output for output, _ in self._updated.values())):
            self._hand_on(output)
        if self._rich_left_out:
            note = f"[{self._rich_left_out} more rich outputs were left out]\n"
            self._hand_on({"output_type": "stream", "name": "stderr", "text": note})

    def _settle_clear(self) -> None:
        if self._clear_next:
            self._clear()

    def _clear(self) -> None:
        self._clear_next = False
        if self._held is None:
            self.flush()
            self._give_streams(self._text.tail())
        self._held, self._pieces, self._text = [], [], _Text(self._limit)

    def _give(self, output: Output) -> None:
        if self._held is None:
            self._hand_on(output)
        else:
            self._held.append(output)

    def _give_streams(self, pieces: list[tuple[str, str]]) -> None:
        start = 0
        for end in range(1, len(pieces) + 1):
            if end == len(pieces) or pieces[end][0] != pieces[start][0]:
                text = valid_text("".join(text for _, text in pieces[start:end]))
                self._give({"output_type": "stream", "name": pieces[start][0], "text": text})
                start = end

    def _take_rich(self, kind: str, content: Mapping[str, Any]) -> None:
        self.flush()
        try:
            data = valid_bundle(content.get("data"), self._limit)
            metadata = valid_json(content.get("metadata") or {})
        except RecursionError:
            data, metadata = {"text/plain": "[an output was left out: it is nested too deeply]"}, {}
        output: Output = {"output_type": "display_data", "data": data, "metadata": metadata}
        size = _size(data)
        if kind == "update_display_data":
            transient = content.get("transient")
            display = transient.get("display_id", "") if isinstance(transient, Mapping) else ""
            self._update(str(display), output, size)
            return
        self._rich_count += 1
        self._rich_size += size
        if self._rich_count > MOST_RICH_OUTPUTS or self._rich_size > LARGEST_RICH_TOTAL:
            self._rich_left_out += 1
            return
        if kind == "execute_result":
            count = content.get("execution_count")
            output = {**output, "output_type": kind, "execution_count": count if isinstance(count, int) else None}
        self._give(output)

    def _update(self, display: str, output: Output, size: int) -> None:
        _, replaced = self._updated.pop(display, (output, 0))
        total = self._updated_size - replaced + size
        if len(self._updated) >= MOST_RICH_OUTPUTS or total > LARGEST_RICH_TOTAL:
            self._rich_left_out += 1
            total -= size
        else:
            self._updated[display] = output, size
        self._updated_size = total

    def _error(self, content: Mapping[str, Any]) -> Output:
        lines = content.get("traceback") or []
        text = lines if isinstance(lines, str) else "\n".join(map(str, lines))
        return {
            "output_type": "error",
            "ename": valid_text(shortened(str(content.get("ename", "")), 1000)),
            "evalue": valid_text(shortened(str(content.get("evalue", "")), self._limit)),
            "traceback": valid_text(shortened(text, self._limit)).split("\n"),
        }
