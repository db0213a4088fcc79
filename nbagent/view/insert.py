"""Cells for the user's own notebook: below the cell that they belong to, else as the next input.

Only JupyterLab's own objects in the page can put several cells anywhere; the kernel's protocol knows one next
input, below the cell that runs now.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import anywidget
import traitlets
from IPython.display import display

from nbagent.tools.source import to_python
from nbagent.view.mail import WAKE_SECONDS, Mail, hear_while_running

WAIT_SECONDS = 6.0  #: for the page to load the widget and to answer; one that cannot call back never does
_HERE = Path(__file__).parent

Where = Literal["below", "there", "next"]


class InsertWidget(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget ships no types
    """The page's side; it is gone as soon as the cells are there."""

    below = traitlets.Unicode().tag(sync=True)  #: id of the cell that they go below
    _esm = "\n".join((_HERE / name).read_text("utf-8") for name in ("after.js", "insert.js"))


def insert_cells(shell: Any, cells: Sequence[str], below: str, *, asks: bool) -> Where:
    """Insert `cells` below the cell with the id `below`; say where they are.

    "there": they stand below it already. "next": all in one, as the next input. `asks` is whether the front end
    takes questions, as one with a page does. Call it on the main thread, in a running cell.
    """
    if below and asks and getattr(shell, "kernel", None) is not None:
        where = _in_the_page(cells, below, Mail(shell))
        if where is not None:
            return where
    shell.set_next_input(in_one(cells))
    return "next"


def in_one(cells: Sequence[str]) -> str:
    """Join cells to one; a cell magic, which takes a cell of its own, is written out as its call."""
    if len(cells) == 1:
        return cells[0]
    return "\n\n".join((to_python(cell) if cell.lstrip().startswith("%%") else cell).strip("\n") for cell in cells)


def _in_the_page(cells: Sequence[str], below: str, mail: Mail) -> Where | None:
    """Let the page do it in two steps, so that an answer which comes too late changes nothing."""
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    widget = InsertWidget(below=below)
    hear_while_running(widget)
    widget.on_msg(lambda _widget, content, _buffers: answers.put(str(content.get("op"))))
    handle = display(widget, display_id=True)
    try:
        if _next(answers, mail) != "ready":
            return None
        widget.send({"op": "insert", "below": below, "cells": list(cells)})
        return "there" if _next(answers, mail) == "there" else "below"
    finally:
        handle.update({"text/plain": ""}, raw=True)
        widget.close()


def _next(answers: queue.SimpleQueue[str], mail: Mail) -> str:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        mail.look()
        with contextlib.suppress(queue.Empty):
            return answers.get(timeout=WAKE_SECONDS)
    return ""
