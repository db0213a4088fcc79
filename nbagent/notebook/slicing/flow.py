"""Cells in the order of execution: which earlier cells each one depends on.

Objects are told apart by tokens. A binding makes a new one; a name's value has the tokens of what it may be
(`own`) and of what it may hold (`inner`). A change marks tokens, and reading a name depends on the cells that
may have bound it and on all that changed its tokens. States of the process (random generators, settings, the
current figure) are read and changed like names.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from nbagent.notebook.slicing.cell_scan import CellScanner
from nbagent.notebook.slicing.hoisting import hoistable
from nbagent.notebook.slicing.state import Import, Node, Source, State
from nbagent.tools.source import parse


class Flow:
    """Reads cells in order. `imports` are those that may be put first: they make nothing depend on a cell."""

    def __init__(self, cells: Sequence[Source], *, hoist: bool = True) -> None:
        self.nodes: list[Node] = []
        self._state = State()
        trees = [_tree(cell.code) for cell in cells]
        self._state.hoisted = hoistable(cells, trees) if hoist else set()
        for index, (cell, tree) in enumerate(zip(cells, trees, strict=True)):
            self._take(index, cell, tree)

    @property
    def imports(self) -> list[Import]:
        """The import statements that can stand first, in order."""
        return self._state.imports

    def needed_by(self, roots: set[int]) -> set[int]:
        """Give the cells without which the roots cannot give what they gave, the roots among them."""
        needed: set[int] = set()
        waiting = list(roots)
        while waiting:
            index = waiting.pop()
            if index not in needed:
                needed.add(index)
                waiting.extend(self.nodes[index].depends - needed)
        return needed

    def _take(self, index: int, cell: Source, tree: ast.Module | None) -> None:
        state, node = self._state, Node()
        if cell.state_lost_before:
            state.forget()
        self.nodes.append(node)
        scanner = CellScanner(state, index, node)
        if tree is None:
            scanner.opaque("it does not parse")
        elif cell.complete:
            scanner.run(tree.body)
        else:
            with scanner.unsure():
                scanner.run(tree.body)
        node.depends |= state.states.get("settings", set()) | state.anything
        node.depends.discard(index)


def _tree(code: str) -> ast.Module | None:
    try:
        return parse(code)
    except SyntaxError:
        return None
