"""Which import statements can stand first in a notebook."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from nbagent.notebook.slicing.functions import meaning
from nbagent.notebook.slicing.state import Source

#: Magics after which an import may find something else.
_IMPORT_MAGICS = ("pip", "conda", "mamba", "uv", "env", "set_env", "cd", "writefile")


#: A module's file, or a command that installs some.
_MODULES_CHANGE = re.compile(r"\.py\b|\b(pip|conda|mamba|uv)\b")


def hoistable(cells: Sequence[Source], trees: Sequence[ast.Module | None]) -> set[int]:
    """Find the import statements that mean the same at the top: whose names nothing else ever binds."""
    meanings: dict[str, set[str]] = {}
    for name, stands_for in _bindings(trees):
        meanings.setdefault(name, set()).add(stands_for)
    found: set[int] = set()
    for cell, tree in zip(cells, trees, strict=True):
        if tree is None or not cell.complete:
            continue
        if _changes_imports(tree):
            break
        for node in tree.body:
            if not isinstance(node, ast.Import | ast.ImportFrom) or cell.code.lstrip().startswith("%%"):
                continue
            bound = [meaning(node, alias) for alias in node.names]
            future = isinstance(node, ast.ImportFrom) and (node.module == "__future__" or node.level > 0)
            if not future and all(name and meanings[name] == {stands} for name, stands in bound):
                found.add(id(node))
    return found


def _bindings(trees: Sequence[ast.Module | None]) -> Iterator[tuple[str, str]]:
    for tree in trees:
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from (meaning(node, alias) for alias in node.names)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                yield node.id, ""
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.name, ""
            elif isinstance(node, ast.arg):
                yield node.arg, ""


def _changes_imports(tree: ast.Module) -> bool:
    """Whether a cell changes what later imports find: the search path, the environment, installed packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "path", "meta_path", "chdir", "use"):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner in ("os", "sys", "matplotlib", "mpl") and (owner, node.attr) != ("os", "path"):
                return True
        if isinstance(node, ast.Constant) and node.value in (
            "pip",
            "conda",
            "env",
            "set_env",
            "cd",
            "writefile",
            "uv",
        ):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "putenv":
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULES_CHANGE.search(node.value):
            return True
    return False
