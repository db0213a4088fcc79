"""Folds what was written for a terminal into plain text: what would stand on the screen at the end."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours and the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles and links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # strings
    r"|\x1b[ -/]*[0-~]|\x1b"
)
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]")


def plain(text: str) -> str:
    """Take away escape codes and resolve carriage returns and backspaces. `\\r\\n` is a line end."""
    if not text.isprintable():
        text = _ESCAPE.sub("", text)
        text = re.sub(r"(?<!\r)\r+\n", "\n", text)
        text = "\n".join(_line(line) for line in text.split("\n"))
    return text


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
