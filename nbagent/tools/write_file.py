"""The `write_file` tool: a whole file, new or instead of the one that stood there."""

from __future__ import annotations

import json
from typing import Any

from nbagent.protocols import ToolContext, ToolResult
from nbagent.tools.definition import tool
from nbagent.tools.differences import difference, line_count
from nbagent.tools.own_files import grade_write, put, what_a_yes_covers
from nbagent.tools.paths import PathRefused, Place, locate, open_regular
from nbagent.tools.source import syntax_error
from nbagent.tools.text_files import decoded, encoding_of, size_in_words, what_it_is

LARGEST_CONTENT = 5_000_000  #: characters
LARGEST_LOOK = 5_000_000  #: bytes of what stood there that are looked at


def _preview(arguments: dict[str, Any], context: ToolContext) -> str:
    """Give what a yes would change of the text that stands there."""
    place = locate(arguments["path"], context.folder, also=context.allow_write, write=True)
    old = _what_stood_there(place)[1]
    return difference(old, arguments["content"], place.shown) if old is not None else ""


@tool(risk=grade_write, timeout=60, tags=("files",), patterns=what_a_yes_covers, preview=_preview)
def write_file(path: str, content: str, context: ToolContext) -> ToolResult:
    """Write a whole new text file, or replace one; to change one use edit_file, to save data run_code.
    Example: {"path": "notes.md", "content": "# Notes\\n"}.
    """
    try:
        place = locate(path, context.folder, also=context.allow_write, write=True)
        if len(content) > LARGEST_CONTENT:
            raise PathRefused(f"The content is too long ({len(content):,} characters): write it from run_code.")
        data = content.encode("utf-8")
        was, old = _what_stood_there(place)
        change = put(place, data, context)
    except UnicodeEncodeError:
        return PathRefused("The content holds half characters (lone surrogates), which no file can hold.").result()
    except PathRefused as refused:
        return refused.result()
    told = f"Wrote {place.shown}: {line_count(content)}, {size_in_words(len(data))}"
    told += f"; it replaced {was}." if was else ", a new file."
    if change.no_copy:
        told += f" There is no copy of what it replaced: it was {change.no_copy}."
    diff = difference(old, content, place.shown) if old is not None else ""
    shown = "\n".join(filter(None, [diff, fault_in(place, content)]))
    return ToolResult("ok", shown, f"wrote {place.shown}", notice=told)


def _what_stood_there(place: Place) -> tuple[str, str | None]:
    """Give what is replaced in words ("" for nothing) and, where it is text of a size to compare, the text."""
    if not place.path.exists():
        return "", None
    with open_regular(place) as file:
        size = file.seek(0, 2)
        file.seek(0)
        data = file.read(LARGEST_LOOK)
    encoding = encoding_of(data, whole=size <= len(data)) if size <= LARGEST_LOOK else None
    if encoding is None:
        return f"{what_it_is(data)}, {size_in_words(size)}", None
    text = decoded(data, encoding)
    return f"{line_count(text)}, {size_in_words(size)}", text


def fault_in(place: Place, content: str) -> str:
    """Say what is wrong with a file's content that its kind of file does not allow, or ""."""
    if place.path.suffix == ".py" and (fault := syntax_error(content, cell=False)):
        return f"It does not parse as Python: {fault}"
    if place.path.suffix in (".json", ".ipynb"):
        try:
            json.loads(content)
        except (ValueError, RecursionError) as error:
            return f"It is no valid JSON: {error}."
    return ""
