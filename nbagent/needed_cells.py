"""Which failed cells an export must keep, because a later cell needs what they did."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from nbagent.tools.cell_names import names_of
from nbagent.tools.source import parse

#: Values that may be, be a part of, or hold what they name.
_SHARING = ast.Name | ast.Attribute | ast.Subscript | ast.List | ast.Tuple | ast.Dict | ast.Set


@dataclass(frozen=True)
class Candidate:
    """A cell that an export could hold, in the order of execution."""

    code: str
    ok: bool  #: it ran to its end; else it raised
    state_lost_before: bool = False  #: variables of earlier cells were gone when it ran


def needed_failures(cells: Sequence[Candidate]) -> set[int]:
    """Give the indexes of failed cells that bound, or changed, what a later kept cell needs."""
    kept: set[int] = set()
    needed: set[str] = set()
    shared = _Shared([cell.code for cell in cells]) if any(not cell.ok for cell in cells) else None
    for index in range(len(cells) - 1, -1, -1):
        cell = cells[index]
        names = names_of(cell.code, failed=not cell.ok)
        if cell.ok:
            needed = (needed - names.binds) | names.needs
        elif shared is not None and shared.reached(names.touches, names_of(cell.code).needs) & needed:
            kept.add(index)
            needed |= names_of(cell.code).needs
        if cell.state_lost_before:
            needed = set()
    return kept


class _Shared:
    """What else a change reaches: other names of an object, and what a function of the cells' own changes."""

    def __init__(self, codes: Sequence[str]) -> None:
        self._same: dict[str, set[str]] = {}
        self._does: dict[str, set[str]] = {}
        modules: set[str] = set()
        for code in codes:
            for node in _nodes(code):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    modules |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    touched = names_of(ast.unparse(node)).touches - {node.name}
                    self._does.setdefault(node.name, set()).update(touched)
                elif isinstance(node, ast.Assign) and isinstance(node.value, _SHARING):
                    self._link([*node.targets, node.value])
        for name in modules:
            self._same.pop(name, None)

    def _link(self, parts: Sequence[ast.expr]) -> None:
        together = {inner.id for part in parts for inner in ast.walk(part) if isinstance(inner, ast.Name)}
        for name in together:
            self._same.setdefault(name, set()).update(together)

    def reached(self, touched: frozenset[str], used: frozenset[str]) -> set[str]:
        """Give the names whose object may have changed, where those were touched and those used."""
        reached: set[str] = set()
        waiting = [*touched, *(name for user in used for name in self._does.get(user, ()))]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self._same.get(name, ())
        return reached


def _nodes(code: str) -> list[ast.AST]:
    try:
        return list(ast.walk(parse(code)))
    except SyntaxError:
        return []
