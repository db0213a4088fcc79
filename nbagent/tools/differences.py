"""What differs between two texts, for the model and for the user who is asked to approve it."""

from __future__ import annotations

import difflib

#: Characters of a text that is compared line by line: the time grows faster than the text.
LARGEST_COMPARED = 300_000
MOST_LINES = 80  #: of a difference that is told


def difference(old: str, new: str, name: str) -> str:
    """Give a unified diff without its file header, cut to `MOST_LINES`; "" where it would take too long."""
    if len(old) + len(new) > LARGEST_COMPARED:
        return ""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, lineterm="", n=3))[2:]
    if len(lines) > MOST_LINES:
        head, tail = MOST_LINES * 2 // 3, MOST_LINES // 3
        lines = [*lines[:head], f"[… {len(lines) - head - tail} lines left out …]", *lines[-tail:]]
    return "\n".join(lines)


def line_count(text: str) -> str:
    """Say how many lines a text has, e.g. `1 line`."""
    count = text.count("\n") + (bool(text) and not text.endswith("\n"))
    return "1 line" if count == 1 else f"{count:,} lines"
