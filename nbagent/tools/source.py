"""Reads a cell's source: fences off, magics turned into Python, and its syntax error in words."""

from __future__ import annotations

import ast
import re
import warnings
from functools import lru_cache

from IPython.core.inputtransformer2 import TransformerManager

from nbagent.tools.findings import words

#: Words that IPython runs as a magic or a shell alias when they open a one-line cell without `%`.
AUTOMAGIC = words(
    "cat cd conda config cp env history ldir less lf lk ll load_ext ls lx mamba man matplotlib mkdir more mv pip"
    " pwd rm rmdir run time timeit uv who whos"
)

F_STRING_ADVICE = "Compute each value into a variable first; in the f-string write only {name} or {name:.2f}."

_FENCE = re.compile(r"\A\s*(`{3,}|~{3,})[ \t]*[\w+.-]*[ \t]*\n(.*?)\n?[ \t]*\1\s*\Z", re.DOTALL)
_FIRST_WORD = re.compile(r"([A-Za-z]\w*)(?:\s+(?![=\-+*/|&^%<>!@]?=)\S.*)?\Z")


def without_fences(code: str) -> str:
    """Take away one pair of Markdown fences around the whole code."""
    fenced = _FENCE.match(code)
    return fenced[2] if fenced else code


def to_python(code: str) -> str:
    """Turn IPython's magics and shell escapes into the calls that they stand for.

    Raises:
        SyntaxError: IPython cannot take the text apart.
    """
    line = code.strip()
    word = _FIRST_WORD.match(line)
    if word and word[1] in AUTOMAGIC and "\n" not in line:
        code = f"%{line}"
    return str(TransformerManager().transform_cell(code))


@lru_cache(maxsize=8)
def parse(code: str) -> ast.Module:
    """Parse a cell as IPython would, once for all who look at it: the tree must not be changed.

    Raises:
        SyntaxError: it does not parse.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(to_python(code))
            compile(tree, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except (ValueError, RecursionError, MemoryError) as error:  # null bytes; absurdly deep nesting
            raise SyntaxError(str(error) or "nested too deeply") from error
    return tree


def _parse_module(code: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(code, "<file>", "exec", dont_inherit=True)
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(str(error) or "nested too deeply") from error


def syntax_error(code: str, *, cell: bool = True) -> str:
    """Give the syntax error with its line, or "" where the code parses, as a notebook's cell or as a module."""
    try:
        parse(code) if cell else _parse_module(code)
    except SyntaxError as error:
        where = f"\n  line {error.lineno}: {(error.text or '').strip()}" if error.lineno else ""
        advice = f"\n{F_STRING_ADVICE}" if "f-string" in error.msg else ""
        return f"{type(error).__name__}: {error.msg}{where}{advice}"
    return ""
