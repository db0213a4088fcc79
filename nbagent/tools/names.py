"""Resolves what names in code stand for: modules under other names, functions, and literal texts."""

from __future__ import annotations

import ast

from nbagent.tools import calls

#: What these short names stand for where no import says otherwise: the kernel may know them from before.
CUSTOMARY = {"pd": "pandas", "np": "numpy", "plt": "matplotlib.pyplot", "sns": "seaborn", "Path": "pathlib.Path"}


class Names:
    """Grows with each cell: a name keeps what it once stood for, as it may still do so in the kernel.

    A text is known only where the name surely holds it: bound once in the cell, before its use, and not only
    in some branch while an earlier cell may have bound it to something else.
    """

    def __init__(self) -> None:
        self._meanings: dict[str, set[str]] = {name: {module} for name, module in CUSTOMARY.items()}
        self._texts: dict[str, str | None] = {}
        self._bound_at: dict[str, tuple[int, int]] = {}  # in the cell at hand

    def copy(self) -> Names:
        """Give a copy for a cell that may not run."""
        names = Names()
        names._meanings = {name: set(meanings) for name, meanings in self._meanings.items()}
        names._texts = dict(self._texts)
        return names

    def doubt(self, before: Names) -> None:
        """Forget the texts that differ from `before`: the cell did not run to its end."""
        for name, text in self._texts.items():
            if name not in before._texts or before._texts[name] != text:
                self._texts[name] = None

    def learn(self, tree: ast.Module) -> None:
        """Take in a cell's imports and assignments."""
        bound: dict[str, list[ast.expr | None]] = {}
        sure = {id(statement) for statement in tree.body}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    self._add(alias.asname or top, alias.name if alias.asname else top)
            elif isinstance(node, ast.ImportFrom) and node.module:
                self._from(node.module, node.names)
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for name in _bind(target, node.value, bound):
                        if id(node) not in sure and name in self._texts:
                            bound[name].append(None)
            elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension):
                _bind(node.target, None, bound)
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                _bind(node.optional_vars, node.context_expr, bound)
            elif isinstance(node, ast.arg):
                bound.setdefault(node.arg, []).append(None)
        self._take(bound)

    def _take(self, bound: dict[str, list[ast.expr | None]]) -> None:
        self._bound_at = {}
        for name, values in bound.items():
            only = values[0] if len(values) == 1 else None
            self._texts[name] = None if only is None else self.text(only)
            if only is not None:
                self._bound_at[name] = (only.lineno, only.col_offset)
            for value in values:
                if value is not None and not isinstance(value, ast.Name):
                    for meaning in self.of(value):
                        self._add(name, meaning)
                elif isinstance(value, ast.Name) and value.id in self._meanings:
                    self._meanings.setdefault(name, set()).update(self._meanings[value.id])

    def of(self, node: ast.expr) -> set[str]:
        """Give the dotted names that an expression may stand for, `pathlib.Path()` for a call's value."""
        if isinstance(node, ast.Name):
            return self._meanings.get(node.id) or {node.id}
        if isinstance(node, ast.Attribute):
            return {f"{name}.{node.attr}" for name in self.of(node.value)}
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, ast.Subscript) and self.of(node.value) & calls.TABLES:
            text = self.text(node.slice)
            return self._meanings.get(text) or {text} if text else set()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return {name for name in self.of(node.left) if name.startswith("pathlib.")}
        if isinstance(node, ast.Await):
            return self.of(node.value)
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value)
        return set()

    def text(self, node: ast.expr | None) -> str | None:
        """Give the text or path that an expression is, where the code spells it out; else None."""
        if isinstance(node, ast.Attribute) and "os.devnull" in self.of(node):
            return "/dev/null"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            used_early = (node.lineno, node.col_offset) < self._bound_at.get(node.id, (0, 0))
            return None if used_early else self._texts.get(node.id)
        if isinstance(node, ast.JoinedStr):
            parts = [self.text(v.value if isinstance(v, ast.FormattedValue) else v) for v in node.values]
            return None if None in parts else "".join(p for p in parts if p is not None)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            left, right = self.text(node.left), self.text(node.right)
            if left is None or right is None:
                return None
            return left + right if isinstance(node.op, ast.Add) else f"{left}/{right}"
        if isinstance(node, ast.Call):
            return self._text_of_call(node)
        return None

    def _of_call(self, node: ast.Call) -> set[str]:
        functions = self.of(node.func)
        if functions & calls.IMPORTS and node.args:
            module = self.text(node.args[0])
            return {module} if module else set()
        if "getattr" in functions and len(node.args) > 1:
            attribute = self.text(node.args[1])
            return {f"{name}.{attribute}" for name in self.of(node.args[0])} if attribute else set()
        return {f"{name}()" for name in functions}

    def _text_of_call(self, node: ast.Call) -> str | None:
        functions = self.of(node.func)
        parts = [self.text(argument) for argument in node.args]
        known = [part for part in parts if part is not None]
        if functions & {"pathlib.Path.home", "pathlib.Path().home"}:
            return "~"
        if functions & {"pathlib.Path.cwd", "os.getcwd"}:
            return "."
        if functions & {
            "pathlib.Path",
            "pathlib.PosixPath",
            "os.path.join",
            "os.path.expanduser",
            "str",
            "os.fspath",
        }:
            return "/".join(known) if len(known) == len(parts) and not node.keywords else None
        return None

    def _from(self, module: str, aliases: list[ast.alias]) -> None:
        for alias in aliases:
            if alias.name != "*":
                self._add(alias.asname or alias.name, f"{module}.{alias.name}")
                continue
            for function in calls.STARS:
                owner, _, name = function.rpartition(".")
                if owner == module:
                    self._add(name, function)

    def _add(self, name: str, meaning: str) -> None:
        self._meanings.setdefault(name, set()).add(meaning)


def _bind(target: ast.expr, value: ast.expr | None, bound: dict[str, list[ast.expr | None]]) -> list[str]:
    """Note what a target's names are bound to; give the names."""
    if isinstance(target, ast.Name):
        bound.setdefault(target.id, []).append(value)
        return [target.id]
    if isinstance(target, ast.Starred):
        return _bind(target.value, None, bound)
    names: list[str] = []
    if isinstance(target, ast.Tuple | ast.List):
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        for index, item in enumerate(target.elts):
            names += _bind(item, values[index] if len(values) == len(target.elts) else None, bound)
    return names
