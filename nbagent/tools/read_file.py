"""The `read_file` tool: a part of a text file, in whole lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

from nbagent.protocols import ToolContext, ToolResult
from nbagent.tools.definition import tool
from nbagent.tools.paths import PathRefused, Place, locate, open_regular
from nbagent.tools.text_files import SAMPLE, decoded, encoding_of, size_in_words, what_it_is

LONGEST_LINE = 1000  #: characters of one line that are shown
MOST_COUNTED = 100_000_000  #: bytes that are read to count the lines of a file
LARGEST_NOTEBOOK = 20_000_000  #: bytes of a notebook that is read cell by cell


@tool(risk="read", timeout=10, parallel_safe=True, tags=("files",))
def read_file(path: str, context: ToolContext, start: int = 1, lines: int = 200) -> ToolResult:
    """Read a text file or notebook of the working folder, by lines; data tables are better read in run_code.
    Example: {"path": "src/a.py", "start": 40}.

    Args:
        start: First line; -20 is the 20th from the end.
    """
    start, lines = max(-MOST_COUNTED, min(start, MOST_COUNTED)), max(1, min(lines, MOST_COUNTED))
    try:
        place = locate(path, context.folder, also=context.allow_write)
        with open_regular(place) as file:
            size = file.seek(0, 2)
            file.seek(0)
            sample = file.read(SAMPLE)
            is_notebook = place.path.suffix == ".ipynb" and size <= LARGEST_NOTEBOOK
            if is_notebook and (cells := _cells(sample + file.read())) is not None:
                return _page(place, cells.split("\n"), start, lines, context, "cells of the notebook")
            encoding = encoding_of(sample, whole=size <= len(sample))
            if encoding is None:
                kind = what_it_is(sample)
                raise PathRefused(
                    f"{place.shown} is no text but {kind} ({size_in_words(size)}). Use run_code for it."
                )
            file.seek(0)
            if encoding.name in ("utf-8", "cp1252"):
                return _stream(place, file, size, encoding.name, encoding.note, start, lines, context)
            text = decoded(file.read(MOST_COUNTED), encoding)
            every = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []
            return _page(place, every, start, lines, context, encoding.note)
    except PathRefused as refused:
        return refused.result()
    except OSError as error:
        return PathRefused(f"{path} cannot be read: {error.strerror}.").result()


def _stream(
    place: Place, file: BinaryIO, size: int, encoding: str, note: str, start: int, lines: int, context: ToolContext
) -> ToolResult:
    """Read only as much of the file as is asked for, and count the rest."""
    if start < 0 and size > MOST_COUNTED:
        file.seek(size - MOST_COUNTED // 10)
        file.readline(MOST_COUNTED)
        return _page(place, [*_lines(file, encoding)], start, lines, context, "numbered from near the end")
    if start < 0:
        start = max(1, sum(1 for _ in _lines(file, encoding)) + start + 1)
        file.seek(0)
    every = _lines(file, encoding)
    skipped = sum(1 for _ in islice(every, max(0, start - 1)))
    wanted = list(islice(every, max(1, lines)))
    total: int | None = skipped + len(wanted) + sum(1 for _ in every)
    if file.tell() < size:
        total = None
        if not wanted:
            raise PathRefused(
                f"{place.shown} is too large ({size_in_words(size)}) to go to line {start}: use run_code."
            )
    return _told(place, wanted, skipped + 1, total, context, note, size)


def _lines(file: BinaryIO, encoding: str) -> Iterator[str]:
    """Give a file's lines, the longest ones cut, until `MOST_COUNTED` bytes were read."""
    left = MOST_COUNTED
    while left > 0 and (line := file.readline(SAMPLE)):
        left -= len(line)
        rest = line
        while not rest.endswith(b"\n") and left > 0 and (rest := file.readline(SAMPLE)):
            left -= len(rest)
        yield line.decode(encoding, "replace").rstrip("\r\n")


def _page(place: Place, text: list[str], start: int, lines: int, context: ToolContext, note: str) -> ToolResult:
    first = max(1, len(text) + start + 1) if start < 0 else max(1, start)
    return _told(place, text[first - 1 : first - 1 + max(1, lines)], first, len(text), context, note, None)


def _told(
    place: Place,
    wanted: list[str],
    first: int,
    total: int | None,
    context: ToolContext,
    note: str,
    size: int | None,
) -> ToolResult:
    """Show as many whole lines as an observation holds, and say where they stand."""
    if total == 0:
        return ToolResult("ok", "", "empty", notice=f"{place.shown} is empty.")
    if not wanted:
        raise PathRefused(f"{place.shown} has {total} lines: there is no line {first}.")
    shown = whole_lines(wanted, context.observation_characters)
    last = first + len(shown) - 1
    of = f" of {total:,}" if total is not None else ""
    extra = "; ".join(filter(None, [size_in_words(size) if size is not None else "", note]))
    notice = f"{place.shown}, lines {first}-{last}{of}{f' ({extra})' if extra else ''}."
    if total is None or last < total:
        notice += f" Go on with start={last + 1}."
    return ToolResult("ok", "\n".join(shown), f"lines {first}-{last}", notice=notice)


def whole_lines(lines: list[str], room: int) -> list[str]:
    """Give as many lines from the first on as fit into `room` characters, at least one; long ones are cut."""
    shown: list[str] = []
    for line in lines:
        line = line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}… [{len(line):,} characters]"
        room -= len(line) + 1
        if room < 0 and shown:
            break
        shown.append(line)
    return shown


def _cells(data: bytes) -> str | None:
    """Give a notebook's cells with the text of their outputs; None where it is no notebook."""
    try:
        book = json.loads(data)
        cells = book["cells"]
        parts = [_cell(number, cell) for number, cell in enumerate(cells, 1)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return "\n\n".join(parts) if parts else "[a notebook without cells]"


def _cell(number: int, cell: dict[str, Any]) -> str:
    source = "".join(cell.get("source", ""))
    parts = [f"[{number}] {cell.get('cell_type', '')}", source]
    for output in cell.get("outputs", ()):
        data = output.get("data") or {}
        text = "".join(output.get("text") or data.get("text/plain") or "")
        if output.get("output_type") == "error":
            text = f"{output.get('ename')}: {output.get('evalue')}"
        parts.append(f"[output] {text or ', '.join(data)}"[:1000])
    return "\n".join(parts)
