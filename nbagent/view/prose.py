"""Prose on a terminal: bold, code and tables are shown as such; nothing else of Markdown is taken."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.text import Text

from nbagent.view.markdown import Side, Table, table_at
from nbagent.view.outputs import plain

_INLINE = re.compile(r"\*\*(?=\S)([^*\n]+?)\*\*|`([^`\n]+)`")


def styled(text: str, width: int) -> Text:
    """Show text for `width` cells; addresses stay visible, and a table that is wider stays as it was written."""
    lines = plain(text).strip().split("\n")
    shown: list[Text] = []
    at = 0
    while at < len(lines):
        table = table_at(lines, at)
        drawn = _drawn(table) if table is not None else []
        if table is not None and drawn and max(line.cell_len for line in drawn) <= width:
            shown += drawn
            at += table.length
        else:
            shown.append(_line(lines[at]))
            at += 1
    return Text("\n").join(shown)


def _line(source: str) -> Text:
    shown, end = Text(), 0
    for found in _INLINE.finditer(source):
        shown.append(source[end : found.start()])
        shown.append(found[1] or found[2], "bold" if found[1] else "cyan")
        end = found.end()
    return shown.append(source[end:])


def _drawn(table: Table) -> list[Text]:
    """Draw a table with its columns below each other."""
    rows = [[_line(cell) for cell in row] for row in table.rows]
    widths = [max(row[column].cell_len for row in rows) for column in range(len(table.sides))]
    rows.insert(1, [Text("─" * wide, "dim") for wide in widths])
    gap = Text("  ")
    lines = [gap.join(map(_padded, row, widths, table.sides)) for row in rows]
    for line in lines:
        line.rstrip()
    return lines


def _padded(cell: Text, wide: int, side: Side) -> Text:
    room = wide - cell_len(cell.plain)
    before = {"left": 0, "center": room // 2, "right": room}[side]
    return Text.assemble(" " * before, cell, " " * (room - before))
