"""What is shown of an nbformat output: text, a table's cells or a figure's bytes; never its markup.

An output comes from code that the model wrote, over data that anyone may have made. HTML is therefore read
here for its tables only, cell by cell as text, and figures are let through as PNG or JPEG data alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Literal

from nbagent.events import Output
from nbagent.view.trace import joined

WIDGET = "application/vnd.jupyter.widget-view+json"
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[@-Z\\-_=>]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_DECEPTIVE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True, slots=True)
class Block:
    """One thing to show. `text` is its plain form, which may hold ANSI colours."""

    kind: Literal["stdout", "stderr", "text", "error", "table", "image"]
    text: str = ""
    rows: list[list[str]] = field(default_factory=list)  #: of a table, heads first
    heads: int = 0  #: rows that are column names
    mime: str = ""  #: of an image
    data: str = ""  #: of an image: base64


def block(output: Output) -> Block:
    """Choose what to show of one output; whatever is missing or odd in it is shown as text or left out."""
    kind = output.get("output_type")
    if kind == "stream":
        return Block("stderr" if output.get("name") == "stderr" else "stdout", joined(output.get("text")))
    if kind == "error":
        lines = output.get("traceback")
        text = "\n".join(map(str, lines)) if isinstance(lines, list | tuple) and lines else ""
        return Block("error", text or f"{output.get('ename', 'Error')}: {output.get('evalue', '')}")
    data = output.get("data")
    if not isinstance(data, dict):
        return Block("text", "")
    return _rich(data)


def _rich(data: dict[str, Any]) -> Block:
    plain = joined(data.get("text/plain"))
    for mime in ("image/png", "image/jpeg"):
        encoded = joined(data.get(mime))
        if encoded and _BASE64.fullmatch(encoded):
            return Block("image", plain, mime=mime, data="".join(encoded.split()))
    if WIDGET in data:
        return Block("text", f"{plain}\n(live widgets of the agent's kernel are not shown)".lstrip())
    html = joined(data.get("text/html"))
    if "<table" in html:
        reader = _TableReader()
        reader.feed(html)
        reader.close()
        if reader.rows and reader.tables == 1:
            return Block("table", plain, rows=reader.rows, heads=reader.heads)
    if not plain:
        plain = joined(data.get("text/markdown") or data.get("text/latex"))
    return Block("text", plain or f"({', '.join(sorted(map(str, data)))})")


class _TableReader(HTMLParser):
    """Reads the text of a table's cells; script and style count as nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self.heads = 0
        self.tables = 0
        self._in_head = False
        self._cell: list[str] | None = None
        self._span = 1
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style"):
            self._hidden += 1
        elif tag == "table":
            self.tables += 1
        elif tag == "thead":
            self._in_head = True
        elif tag == "tr":
            self._end_cell()
            self.rows.append([])
            self.heads += self._in_head
        elif tag in ("td", "th") and self.rows:
            self._end_cell()
            self._cell = []
            span = dict(attrs).get("colspan") or "1"
            self._span = min(int(span), 100) if span.isascii() and span.isdigit() else 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._hidden = max(0, self._hidden - 1)
        elif tag == "thead":
            self._in_head = False
        elif tag in ("td", "th", "tr", "table"):
            self._end_cell()

    def handle_data(self, data: str) -> None:
        if self._cell is not None and not self._hidden:
            self._cell.append(data)

    def close(self) -> None:
        super().close()
        self._end_cell()
        self.rows = [row for row in self.rows if row]

    def _end_cell(self) -> None:
        if self._cell is not None:
            self.rows[-1] += [" ".join("".join(self._cell).split())] + [""] * (self._span - 1)
            self._cell = None


def plain(text: str) -> str:
    """Give text as a terminal would leave it: no escape codes, progress bars in their last state."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def visible(code: str) -> str:
    """Give code with nothing hidden: what moves the cursor, is invisible or turns text is written as an escape.

    A lone carriage return ends a line of Python; taken as a progress bar's, it would hide what stands before it.
    """
    code = code.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    return _DECEPTIVE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), code)


def _last_state(line: str) -> str:
    for state in reversed(line.split("\r")):
        if state:
            return state
    return ""
