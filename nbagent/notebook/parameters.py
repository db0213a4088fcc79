"""The paths of data files as parameters: change one cell (or give papermill a `-p`) to run on other files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from nbagent.tools.source import parse, to_python

_IDENTIFIER = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Parameters:
    """Names for paths. `names` gives a literal of the code its name, `values` a name its path."""

    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    @property
    def code(self) -> str:
        """The cell, as papermill reads it: one assignment a line."""
        head = "# Data files: change a path here to run the notebook on another file."
        return "\n".join([head, *(f"{name} = {path!r}" for name, path in self.values.items())])

    def put_into(self, code: str) -> str:
        """Put names in place of literal paths; all else stays as it was typed."""
        if not self.names or code.lstrip().startswith("%%"):
            return code
        lines = code.split("\n")
        for node in sorted(_literals(code), key=lambda found: (found.lineno, found.col_offset), reverse=True):
            name = self.names.get(str(node.value))
            if name is None or node.end_lineno != node.lineno or node.end_col_offset is None:
                continue
            line = lines[node.lineno - 1].encode()
            literal = line[node.col_offset : node.end_col_offset]
            if _is_literal(literal, node.value):
                changed = line[: node.col_offset] + name.encode() + line[node.end_col_offset :]
                lines[node.lineno - 1] = changed.decode()
        return "\n".join(lines)


def choose_parameters(codes: Sequence[str], data_files: Iterable[str], folder: str) -> Parameters:
    """Name the data files (paths relative to `folder`, or absolute) that code gives as literals."""
    known = dict.fromkeys(data_files)
    used = {word for code in codes for word in _IDENTIFIER.findall(code)}
    names: dict[str, str] = {}
    values: dict[str, str] = {}
    by_path: dict[str, str] = {}
    for code in codes:
        for node in _literals(code):
            text = str(node.value)
            path = _relative(text, folder)
            if path not in known or text in names:
                continue
            if path not in by_path:
                name = _free_name(path, used)
                used.add(name)
                by_path[path] = name
                values[name] = path
            names[text] = by_path[path]
    return Parameters(names, values)


def _relative(text: str, folder: str) -> str:
    """Write a path relative to the session's folder where it lies in it."""
    path = PurePath(text)
    if folder and path.is_absolute() and path.is_relative_to(folder):
        path = path.relative_to(folder)
    return path.as_posix()


def _free_name(path: str, used: set[str]) -> str:
    plain = re.sub(r"\W+", "_", PurePath(path).name).strip("_").lower() or "data_file"
    name = plain if plain.isidentifier() else f"file_{plain}"
    number, free = 1, name
    while free in used:
        number += 1
        free = f"{name}_{number}"
    return free


def _literals(code: str) -> list[ast.Constant]:
    try:
        tree = parse(code)
        same = to_python(code).split("\n")
    except SyntaxError:
        return []
    typed = code.split("\n")
    return [
        node
        for node in _constants(tree)
        # IPython writes a magic's line anew: what stands there is not what was typed.
        if node.lineno <= min(len(typed), len(same)) and typed[node.lineno - 1] == same[node.lineno - 1]
    ]


def _constants(node: ast.AST) -> Iterator[ast.Constant]:
    """Give the strings that are expressions of their own: no part of an f-string, no docstring, no pattern."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr | ast.pattern):
            continue
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        yield from _constants(child)


def _is_literal(text: bytes, value: object) -> bool:
    try:
        return bool(ast.literal_eval(text.decode()) == value)
    except (SyntaxError, ValueError):
        return False
