"""A small part of Markdown as HTML: headings, lists, fences, bold and code. All else is text, escaped.

Links and images stand as they were written: what a model wrote is never an address to fetch or to click.
"""

from __future__ import annotations

import re
from html import escape

from nbagent.view.outputs import plain

_INLINE = re.compile(r"`([^`\n]+)`|\*\*(?=\S)([^*\n]+?)\*\*")
_HEADING = re.compile(r"#{1,6}\s+(.*)")
_ITEM = re.compile(r"\s*(?:([-*+])|(\d{1,9})[.)])\s+(.*)")
_FENCE = re.compile(r"\s*(```|~~~)")
_MARGIN = "margin: 4px 0;"


def text(value: str) -> str:
    """Escape text for HTML; what is no valid UTF-8 becomes "?"."""
    return escape(value.encode("utf-8", "replace").decode("utf-8"))


def line(value: str) -> str:
    """Give one line with its bold and its code."""
    parts, end = [], 0
    value = plain(value)
    for found in _INLINE.finditer(value):
        tag, inner = ("code", found[1]) if found[1] is not None else ("b", found[2])
        parts += [text(value[end : found.start()]), f"<{tag}>{text(inner)}</{tag}>"]
        end = found.end()
    return "".join([*parts, text(value[end:])])


def html(value: str, *, code_style: str) -> str:
    """Give a whole text; `code_style` is the style of its fenced blocks."""
    parts: list[str] = []
    paragraph: list[str] = []
    items: list[str] = []
    opened = ""

    def end_block() -> None:
        nonlocal opened
        if items:
            tag = opened.partition(" ")[0]
            parts.append(f'<{opened} style="{_MARGIN} padding-left: 1.6em;">{"".join(items)}</{tag}>')
        elif paragraph:
            content = "\n".join(paragraph)
            parts.append(f'<div style="{_MARGIN} white-space: pre-wrap;">{content}</div>')
        items.clear()
        paragraph.clear()
        opened = ""

    lines = iter(value.strip().split("\n"))
    for source in lines:
        if fence := _FENCE.match(source):
            end_block()
            code = []
            for inner in lines:
                if inner.strip() == fence[1]:
                    break
                code.append(inner)
            parts.append(f'<pre style="{code_style}">{text(plain(chr(10).join(code)))}</pre>')
        elif heading := _HEADING.match(source):
            end_block()
            parts.append(f'<div style="{_MARGIN}"><b>{line(heading[1])}</b></div>')
        elif item := _ITEM.match(source):
            tag = "ul" if item[1] else "ol"
            if opened.partition(" ")[0] != tag:
                end_block()
                opened = tag if item[1] else f'ol start="{int(item[2])}"'
            items.append(f"<li>{line(item[3])}</li>")
        elif source.strip():
            if items:
                end_block()
            paragraph.append(line(source))
        else:
            end_block()
    end_block()
    return "".join(parts)
