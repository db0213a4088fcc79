"""Finds the tests that a test run says have failed, and gives their source: the model need not ask for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_TESTS = 3
MOST_LINES = 30  #: of one test
LARGEST_FILE = 1_000_000  #: bytes of a file that is looked into

#: `FAILED tests/test_a.py::TestB::test_c[1] - ...` of pytest.
_PYTEST = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py)::(\S+)", re.MULTILINE)
#: `FAIL: test_c (tests.test_a.TestB.test_c)` of unittest, the method's name missing before Python 3.11.
_UNITTEST = re.compile(r"^(?:FAIL|ERROR): (\w+) \(([\w.]+)\)", re.MULTILINE)
_FRAME = re.compile(r'^ *File "([^"]+)", line \d+, in (\w+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Test:
    file: str
    names: tuple[str, ...]  #: of the classes and the function, outermost first


def failing_tests(printed: str, folder: Path) -> str:
    """Give the source of the tests that `printed` says have failed, as far as it does not show it itself."""
    parts = []
    for test in list(dict.fromkeys(_named(printed)))[:MOST_TESTS]:
        source = _source(test, folder)
        if source and source.split("\n")[0].strip() not in printed:
            parts.append(f"[source of {test.file}::{'::'.join(test.names)}]\n{source}")
    return "\n".join(parts)


def _named(printed: str) -> Iterator[_Test]:
    for found in _PYTEST.finditer(printed):
        names = re.sub(r"\[.*", "", found[2]).split("::")
        yield _Test(found[1], tuple(names))
    frames = {name: file for file, name in _FRAME.findall(printed)}
    for found in _UNITTEST.finditer(printed):
        if found[1] in frames:
            path = found[2].removesuffix(f".{found[1]}").split(".")
            yield _Test(frames[found[1]], (path[-1], found[1]))


def _source(test: _Test, folder: Path) -> str:
    """Give a test's source from a file below `folder`; "" where there is none."""
    path = (folder / test.file).resolve()
    try:
        if not path.is_relative_to(folder) or path.stat().st_size > LARGEST_FILE:
            return ""
        text = path.read_text(encoding="utf-8")
        body = ast.parse(text).body
    except (OSError, ValueError, SyntaxError, RecursionError):
        return ""
    node: ast.stmt | None = None
    for name in test.names:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        node = next((child for child in body if isinstance(child, kinds) and child.name == name), None)
        if node is None:
            return ""
        body = getattr(node, "body", [])
    if node is None:
        return ""
    lines = text.split("\n")[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], "[…]"])
