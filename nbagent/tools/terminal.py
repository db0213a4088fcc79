"""Folds what was written for a terminal into plain text: what would stand on the screen at the end."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours and the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles and links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # strings
    r"|\x1b[ -/]*[0-~]|\x1b"
)
_UP = re.compile(r"\x1b\[\d*[AF]")
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]")
#: A progress bar's line: what it is the progress of, and how far it is.
_BAR = re.compile(r"(.{0,80}?)\d{1,3}%\|")
#: This many equal lines on end are told as one with their number.
MOST_EQUAL = 10


def plain(text: str) -> str:
    """Take away escape codes and resolve carriage returns and backspaces. `\\r\\n` is a line end."""
    if not text.isprintable():
        text = _ESCAPE.sub("", _UP.sub("\n", text))  # what comes after a move upwards is another line's
        text = re.sub(r"(?<!\r)\r+\n", "\n", text)
        text = "\n".join(_without_repetition([_line(line) for line in text.split("\n")]))
    return text


def _without_repetition(lines: list[str]) -> list[str]:
    """Fold bars that were printed line by line, each to its last state, and long runs of equal lines."""
    kept: list[str] = []
    position = 0
    while position < len(lines):
        end = position + 1
        if _BAR.match(lines[position]):
            while end < len(lines) and (not lines[end].strip() or _BAR.match(lines[end])):
                end += 1
            kept += _last_states(lines[position:end])
        else:
            while end < len(lines) and lines[end] == lines[position]:
                end += 1
            equal = end - position
            if equal > MOST_EQUAL and lines[position].strip():
                kept += [lines[position], f"[… the line above {equal - 1:,} times more …]"]
            else:
                kept += lines[position:end]
        position = end
    return kept


def _last_states(bars: list[str]) -> list[str]:
    """Give the last line of each bar among lines that are bars or empty, and the empty ones at the end."""
    last: dict[str, str] = {}
    for line in bars:
        if bar := _BAR.match(line):
            name = bar[1].strip()
            last.pop(name, None)
            last[name] = line
    trailing = len(bars) - next(index for index in range(len(bars), 0, -1) if bars[index - 1].strip())
    return [*last.values(), *[""] * trailing]


def _line(line: str) -> str:
    if "\r" in line:
        # A bar redraws the whole line: its last state is the last piece that says something.
        line = next((piece for piece in reversed(line.split("\r")) if piece.strip()), "")
    if "\b" in line:
        kept: list[str] = []
        for character in line:
            if character != "\b":
                kept.append(character)
            elif kept:
                kept.pop()
        line = "".join(kept)
    return _CONTROL.sub("", line)
