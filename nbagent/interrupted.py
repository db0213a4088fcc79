"""The traceback of code that was interrupted, made at once.

IPython's own goes through every module that is loaded and renders the frames of the libraries, too: whoever
pressed Stop would wait for it. Runs where glance.py runs, in the agent's kernel and in the user's.
"""

from __future__ import annotations

import linecache
import sys
import traceback
import types
from typing import Any

MOST_FRAMES = 20  #: outermost and innermost; how many are left out between them is said


def handle(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: types.TracebackType,
    tb_offset: object = None,
) -> None:
    """Show it: a handler for `shell.set_custom_exc`."""
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    shell._showtraceback(kind, error, lines(shell, error, trace))


def lines(shell: Any, error: BaseException, trace: types.TracebackType | None) -> list[str]:
    """Give the traceback as IPython writes it, without colours and with the code's own lines only."""
    frames = [
        _told(shell, frame.f_code.co_filename, number, frame.f_code.co_name)
        for frame, number in traceback.walk_tb(
            trace.tb_next if trace is not None else None
        )  # the first is IPython's
        if "__tracebackhide__" not in frame.f_locals
    ]
    if len(frames) > MOST_FRAMES:
        half = MOST_FRAMES // 2
        frames[half:-half] = [f"... {len(frames) - MOST_FRAMES} frames left out ..."]
    name = type(error).__name__
    return ["-" * 75, f"{name:<42}Traceback (most recent call last)", *frames, "", f"{name}: {error}"]


def _told(shell: Any, file: str, number: int, function: str) -> str:
    where = "" if function == "<module>" else f", in {function}()"
    cell = shell.compile.format_code_name(file)
    place = f"{' '.join(cell)}, line {number}{where}" if cell else f"File {file}:{number}{where}"
    if not cell and file.startswith((sys.prefix, sys.base_prefix, "<frozen")):
        return place
    line = linecache.getline(file, number).strip()
    return f"{place}\n----> {number} {line}" if line else place
