"""A part of Markdown as HTML: headings, lists, tables, fences, bold and code. All else is text, escaped.

Links and images stand as they were written: what a model wrote is never an address to fetch or to click. That
holds where the HTML is part of a Markdown file, too (nbconvert makes such): no text begins a link there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from nbagent.view.outputs import plain

FONT = "font-family: menlo, consolas, 'DejaVu Sans Mono', monospace;"
TABLE = "margin: 6px 0; font-size: 12px;"
DEEPEST = 6  #: lists within lists
_INLINE = re.compile(r"`([^`\n]+)`|\*\*(?=\S)([^*\n]+?)\*\*")
_CODE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*)")
_ITEM = re.compile(r"(\s*)(?:([-*+])|(\d{1,9})[.)])\s+(.*)")
_FENCE = re.compile(r"\s*(?P<mark>`{3,}|~{3,})\s*(?P<language>[^`]*)")
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
_MARGIN = "margin: 4px 0;"
_RULE = re.compile(":?-+:?")
_ENTITIES = {ord("["): "&#91;", ord("`"): "&#96;", ord("\n"): "&#10;", ord("\r"): " "}

Side = Literal["left", "center", "right"]


@dataclass(frozen=True, slots=True)
class Table:
    """The cells of a table as they were written, heads first, and to which side each column goes."""

    rows: list[list[str]]
    sides: list[Side]
    length: int  #: in lines


def table_at(lines: Sequence[str], at: int) -> Table | None:
    """Read the table that begins with a line, if one does."""
    if at + 1 >= len(lines) or "|" not in lines[at] or "|" not in lines[at + 1]:
        return None
    heads, rules = _cells(lines[at]), _cells(lines[at + 1])
    if len(heads) != len(rules) or not all(map(_RULE.fullmatch, rules)):
        return None
    rows = [heads]
    for source in lines[at + 2 :]:
        if "|" not in source:
            break
        rows.append([*_cells(source), *[""] * len(heads)][: len(heads)])
    return Table(rows, [_side(rule) for rule in rules], len(rows) + 1)


def text(value: str) -> str:
    """Escape text for HTML, also within Markdown; what is no valid UTF-8 becomes "?"."""
    return escape(value.encode("utf-8", "replace").decode("utf-8")).translate(_ENTITIES)


def line(value: str) -> str:
    """Give one line with its bold and its code."""
    return _inline(plain(value), _INLINE)


def html(value: str, *, code: Callable[[str, str], str]) -> str:
    """Give a whole text; `code` gives the HTML of a fenced block from its text and its language."""
    writer = _Writer(value.strip("\n").split("\n"), code)
    return writer.written()


def _inline(value: str, pattern: re.Pattern[str]) -> str:
    parts, end = [], 0
    for found in pattern.finditer(value):
        parts.append(text(value[end : found.start()]))
        if found[1] is not None:
            parts.append(f'<code style="{FONT}">{text(found[1])}</code>')
        else:
            parts.append(f"<b>{_inline(found[2], _CODE)}</b>")
        end = found.end()
    return "".join([*parts, text(value[end:])])


class _Writer:
    """Reads line by line; what may still grow is the paragraph, or the innermost list's last item."""

    def __init__(self, lines: Sequence[str], code: Callable[[str, str], str]) -> None:
        self._lines = lines
        self._code = code
        self._parts: list[str] = []
        self._paragraph: list[str] = []
        self._lists: list[tuple[int, str]] = []  #: those that are open, outermost first: indent and tag

    def written(self) -> str:
        at = 0
        while at < len(self._lines):
            source = self._lines[at]
            if not source.strip():
                self._end_paragraph()  # a list goes on, if its next item or indented text follows
            elif fence := _FENCE.fullmatch(source):
                at = self._fence(at, fence)
            elif table := table_at(self._lines, at):
                self._table(table)
                at += table.length - 1
            elif heading := _HEADING.fullmatch(source):
                self._end()
                self._parts.append(f'<div style="{_MARGIN}"><b>{line(heading[1])}</b></div>')
            elif item := _ITEM.fullmatch(source):
                self._item(item)
            elif self._lists and (source[0].isspace() or self._lines[at - 1].strip()):
                self._parts.append(f"<br>{line(source.strip())}")
            else:
                self._end_lists(0)
                self._paragraph.append(line(source))
            at += 1
        self._end()
        return "".join(self._parts)

    def _fence(self, at: int, fence: re.Match[str]) -> int:
        """Write a fenced block; give the number of its last line. One that nobody closed goes on to the end."""
        self._end_paragraph()
        if not self._lines[at][0].isspace():
            self._end_lists(0)
        margin = len(self._lines[at]) - len(self._lines[at].lstrip())
        code = []
        for number in range(at + 1, len(self._lines)):
            inner = self._lines[number].strip()
            if len(inner) >= len(fence["mark"]) and set(inner) == {fence["mark"][0]}:
                break
            own = self._lines[number]
            code.append(own[margin:] if not own[:margin].strip() else own)
        else:
            number = len(self._lines)
        self._parts.append(self._code("\n".join(code), fence["language"].strip().lower()))
        return number

    def _table(self, table: Table) -> None:
        self._end()
        rows = [_row(row, table.sides, "th" if row is table.rows[0] else "td") for row in table.rows]
        self._parts.append(f'<div style="overflow-x: auto; {TABLE}"><table>{"".join(rows)}</table></div>')

    def _item(self, item: re.Match[str]) -> None:
        self._end_paragraph()
        indent, tag = len(item[1].expandtabs(4)), "ul" if item[2] else "ol"
        while self._lists and indent < self._lists[-1][0]:
            self._end_lists(len(self._lists) - 1)
        inner = not self._lists or indent >= self._lists[-1][0] + 2
        if not inner and self._lists[-1][1] != tag:
            self._end_lists(len(self._lists) - 1)
            inner = True
        if inner and len(self._lists) < DEEPEST:
            start = f' start="{int(item[3])}"' if item[3] and int(item[3]) != 1 else ""
            self._parts.append(f'<{tag}{start} style="{_MARGIN} padding-left: 1.6em;">')
            self._lists.append((indent, tag))
        else:
            self._parts.append("</li>")
        self._parts.append(f"<li>{line(item[4])}")

    def _end(self) -> None:
        self._end_paragraph()
        self._end_lists(0)

    def _end_paragraph(self) -> None:
        if self._paragraph:
            # Spaces count, as in a table that was drawn with them; a page that strips styles breaks lines, too.
            content = "<br>".join(self._paragraph)
            self._parts.append(f'<div style="{_MARGIN} white-space: pre-wrap;">{content}</div>')
            self._paragraph.clear()

    def _end_lists(self, left: int) -> None:
        while len(self._lists) > left:
            self._parts.append(f"</li></{self._lists.pop()[1]}>")


def _cells(source: str) -> list[str]:
    inner = source.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip().replace("\\|", "|") for cell in _BETWEEN_CELLS.split(inner)]


def _row(cells: Sequence[str], sides: Sequence[str], tag: str) -> str:
    shown = (
        f'<{tag} style="text-align: {side};">{line(cell)}</{tag}>' for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"


def _side(rule: str) -> Side:
    if not rule.endswith(":"):
        return "left"
    return "center" if rule.startswith(":") else "right"
