"""Tells a traceback short: the frames of the user's own code and the error, without the libraries' frames."""

from __future__ import annotations

import re

from nbagent.events import Output
from nbagent.tools.terminal import plain

_CELL = re.compile(r"\s*(Cell In\[\d+\]), (line \d+)(?:, in (.*))?$")
_FILE = re.compile(r"\s*File (.+?):(\d+)(?:,? in (.*))?$")
_CHAINED = re.compile(
    r"^(?:The above exception was the direct cause|During handling of the above).*$", re.MULTILINE
)
_ARROW = re.compile(r"\s*-+> \d+ ?(.*)$")
_LIBRARY = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python\d|[/\\]Lib[/\\]|<frozen|\.(?:pyx|pxi)$")
#: More frames of the user's own (a recursion) say nothing more.
MOST_FRAMES = 6


def shorten(output: Output, error: str = "") -> str:
    """Give an error output as the model needs it: `Cell In[3], line 2, in f(x): return 1/x` and the error.

    `error` is the error line as the kernel explains it, if it does.
    """
    name, value = str(output.get("ename", "")), plain(str(output.get("evalue", "")))
    text = plain("\n".join(map(str, output.get("traceback", []))))
    error = plain(error) or (f"{name}: {value}" if value else name)
    if name in ("SyntaxError", "IndentationError", "TabError"):
        return _syntax_error(text) or error
    *causes, last = _CHAINED.split(text)
    frames: list[str] = []
    for cause in causes:
        if mine := _frames(cause):
            frames += [*mine, cause.rstrip().rpartition("\n")[2]]
    frames += _frames(last)
    frames = [frame for index, frame in enumerate(frames) if frame not in frames[index + 1 : index + 3]]
    if len(frames) > MOST_FRAMES:
        left_out = len(frames) - MOST_FRAMES
        frames = [*frames[: MOST_FRAMES // 2], f"[{left_out} more frames]", *frames[-MOST_FRAMES // 2 :]]
    return "\n".join([*frames, error])


def _frames(text: str) -> list[str]:
    frames: list[str] = []
    mine = False  # whether the frame that the next arrow belongs to is the user's own
    for line in text.split("\n"):
        if cell := _CELL.match(line):
            mine = True
            frames.append(", ".join(filter(None, (cell[1], cell[2], cell[3] and f"in {cell[3]}"))))
        elif file := _FILE.match(line):
            mine = not _LIBRARY.search(file[1])
            if mine:
                frames.append(f"{file[1]}, line {file[2]}" + (f", in {file[3]}" if file[3] else ""))
        elif mine and (arrow := _ARROW.match(line)):
            frames[-1] += f": {arrow[1].strip()}"
            mine = False
    return frames


def _syntax_error(text: str) -> str:
    """Keep from the last place that is named: the line at fault, its caret and the message."""
    lines = text.rstrip().split("\n")
    places = [index for index, line in enumerate(lines) if _CELL.match(line) or _FILE.match(line)]
    return "\n".join(lines[places[-1] :]).strip() if places else ""
