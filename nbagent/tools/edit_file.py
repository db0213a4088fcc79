"""The `edit_file` tool: replaces a text that stands once in a file, and tells near misses apart."""

from __future__ import annotations

import difflib
import re
from typing import Any

from nbagent.protocols import ToolContext, ToolResult
from nbagent.tools.definition import tool
from nbagent.tools.differences import difference
from nbagent.tools.own_files import grade_write, put, what_a_yes_covers
from nbagent.tools.paths import PathRefused, Place, locate, open_regular
from nbagent.tools.text_files import Encoding, decoded, encoding_of, what_it_is
from nbagent.tools.write_file import fault_in

LARGEST_FILE = 5_000_000  #: bytes
LONGEST_SEARCH = 20_000  #: lines that are searched for a near miss
LIKENESS = 0.6  #: of lines that could be the ones that were meant


def _preview(arguments: dict[str, Any], context: ToolContext) -> str:
    """Give what a yes would change, in its place."""
    place = locate(arguments["path"], context.folder, also=context.allow_write, write=True)
    text, _ = _read(place)
    replace_all = bool(arguments.get("replace_all"))
    edited = _edited(place, text, arguments["old"], arguments["new"], replace_all=replace_all)
    return difference(text, edited, place.shown)


@tool(risk=grade_write, timeout=60, tags=("files",), patterns=what_a_yes_covers, preview=_preview)
def edit_file(path: str, old: str, new: str, context: ToolContext, replace_all: bool = False) -> ToolResult:
    """Replace text in a file. `old` must stand there exactly, once: copy it from read_file, with lines around
    it if it stands more often. Example: {"path": "a.py", "old": "x = 1", "new": "x = 2"}.
    """
    try:
        place = locate(path, context.folder, also=context.allow_write, write=True)
        text, encoding = _read(place)
        edited = _edited(place, text, old, new, replace_all=replace_all)
        try:
            data = _encoded(edited, encoding)
        except UnicodeEncodeError:
            raise PathRefused(f"{place.shown} is written in {encoding.name}: it cannot hold `new`.") from None
        change = put(place, data, context)
    except PathRefused as refused:
        return refused.result()
    count = text.count(_in_its_line_ends(old, text)) if replace_all else 1
    told = f"Edited {place.shown}" + (f" in {count} places." if count > 1 else ".")
    if change.no_copy:
        told += f" There is no copy of what stood there: it was {change.no_copy}."
    shown = "\n".join(filter(None, [difference(text, edited, place.shown), fault_in(place, edited)]))
    return ToolResult("ok", shown, f"edited {place.shown}", notice=told)


def _read(place: Place) -> tuple[str, Encoding]:
    with open_regular(place) as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise PathRefused(f"{place.shown} is too large to be edited: change it from run_code.")
    encoding = encoding_of(data, whole=True)
    if encoding is None:
        raise PathRefused(f"{place.shown} is no text but {what_it_is(data)}.")
    text = decoded(data, encoding)
    try:
        same = _encoded(text, encoding) == data
    except UnicodeEncodeError:
        same = False
    if not same:
        raise PathRefused(f"{place.shown} would not survive an edit: its encoding is not known. Use run_code.")
    return text, encoding


def _encoded(text: str, encoding: Encoding) -> bytes:
    return text.encode(encoding.name)


def _edited(place: Place, text: str, old: str, new: str, *, replace_all: bool) -> str:
    """Give the text after the edit. Raises `PathRefused` with what to do."""
    if old == new:
        raise PathRefused("`old` and `new` are the same: there is nothing to change.")
    if not old:
        raise PathRefused("`old` is empty: give the text to replace, or use write_file for a whole file.")
    old, new = _in_its_line_ends(old, text), _in_its_line_ends(new, text)
    count = text.count(old)
    if count == 0:
        raise _near_miss(place, text, old)
    if count > 1 and not replace_all:
        raise PathRefused(
            f"`old` stands {count} times in {place.shown} (lines {_lines_of(text, old)}): take more of the lines"
            " around it into `old`, or set replace_all."
        )
    return text.replace(old, new)


def _in_its_line_ends(piece: str, text: str) -> str:
    """Give a piece of text the line ends of the file."""
    if "\r\n" in text and "\n" in piece and "\r\n" not in piece:
        return piece.replace("\n", "\r\n")
    return piece


def _lines_of(text: str, old: str) -> str:
    places: list[str] = []
    start = text.find(old)
    while start >= 0 and len(places) < 8:
        places.append(str(text.count("\n", 0, start) + 1))
        start = text.find(old, start + len(old))
    return ", ".join(places) + (", …" if start >= 0 else "")


def _near_miss(place: Place, text: str, old: str) -> PathRefused:
    """Say that the text is not there, and what stands there that could be meant."""
    told = f"`old` does not stand in {place.shown}."
    text, old = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    stripped = re.sub(r"(?m)^ *\d+(?:\t|[:|→] ?)", "", old)
    if stripped != old and stripped and stripped in text:
        return PathRefused(f"{told} Without the line numbers it does: leave them out.")
    lines, wanted = text.split("\n")[:LONGEST_SEARCH], old.strip("\n").split("\n")
    start = _found_loosely(lines, wanted)
    how = "It differs only in spaces from"
    if start is None:
        start, likeness = _most_alike(lines, wanted)
        how = "Most like it are"
        if likeness < LIKENESS:
            return PathRefused(f"{told} Nothing there is like it: look with read_file first.")
    end = start + len(wanted)
    return PathRefused(f"{told} {how} lines {start + 1}-{end}, which are:", "\n".join(lines[start:end]))


def _found_loosely(lines: list[str], wanted: list[str]) -> int | None:
    """Find lines that are the wanted ones but for spaces."""
    loose = ["".join(line.split()) for line in lines]
    target = ["".join(line.split()) for line in wanted]
    if not any(target):
        return None
    for start in range(len(loose) - len(target) + 1):
        if loose[start : start + len(target)] == target:
            return start
    return None


def _most_alike(lines: list[str], wanted: list[str]) -> tuple[int, float]:
    """Find the lines that are most like the wanted ones, by the most telling line first."""
    telling = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    near = difflib.get_close_matches(wanted[telling], lines, n=5, cutoff=LIKENESS)
    best, likeness = 0, 0.0
    for line in near:
        start = max(0, lines.index(line) - telling)
        block = "\n".join(lines[start : start + len(wanted)])
        ratio = difflib.SequenceMatcher(None, block, "\n".join(wanted)).ratio()
        if ratio > likeness:
            best, likeness = start, ratio
    return best, likeness
