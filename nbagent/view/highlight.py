"""Colours for Python code: a small scanner, since code on its way from a model rarely parses."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from typing import Literal

Kind = Literal["", "keyword", "string", "comment", "number", "name"]

_TOKENS = re.compile(
    r"(?P<comment>#[^\n]*)"
    r"|(?P<string>[rRbBfFuU]{0,2}(?:'''(?:\\.|[^\\])*?(?:'''|\Z)|\"\"\"(?:\\.|[^\\])*?(?:\"\"\"|\Z))"
    r"|[rRbBfFuU]{0,2}(?:'(?:\\.|[^'\\\n])*'?|\"(?:\\.|[^\"\\\n])*\"?))"
    r"|(?P<number>\b(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?j?)\b)"
    r"|(?P<word>\b[^\W\d]\w*\b)",
    re.DOTALL,
)


def spans(code: str) -> Iterator[tuple[Kind, str]]:
    """Cut code into pieces with the kind of each; the pieces add up to the code."""
    end = 0
    previous = ""
    for found in _TOKENS.finditer(code):
        kind: Kind = ""
        if found["comment"] is not None:
            kind = "comment"
        elif found["string"] is not None:
            kind = "string"
        elif found["number"] is not None:
            kind = "number"
        elif keyword.iskeyword(found["word"]):
            kind = "keyword"
        elif previous in ("def", "class"):
            kind = "name"
        previous = found[0]
        if kind:
            if found.start() > end:
                yield "", code[end : found.start()]
            yield kind, found[0]
            end = found.end()
    if end < len(code):
        yield "", code[end:]
