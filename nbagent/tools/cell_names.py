"""Which names a cell binds and needs, read from its source without running it.

When unsure, a name counts as needed and as not surely bound: a cell too many is better than a notebook
that stops.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from IPython.core.inputtransformer2 import TransformerManager

_BUILTINS = frozenset(dir(builtins)) | {"__name__", "get_ipython", "display", "In", "Out", "_"}
#: Methods that change the object they are called on, for the built-in containers.
_MUTATORS = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem"}
    | {"remove", "reverse", "setdefault", "sort", "update"}
)
#: Magics whose statement or body is Python of the same namespace.
_PYTHON_MAGICS = frozenset({"time", "capture", "prun", "timeit"})
#: What a shell line takes from the namespace: `{name}`, `$name`; and a query on a table: `@name`.
_IN_SHELL = re.compile(r"(?<!\$)\$([A-Za-z_]\w*)|\{([^{}]+)\}")
_IN_QUERY = re.compile(r"@([A-Za-z_]\w*)")


@dataclass(frozen=True)
class CellNames:
    """What one cell does to the namespace."""

    needs: frozenset[str]  #: names that must be there before it runs
    built_in: frozenset[str]  #: names that it takes from the builtins, unless someone bound them anew
    binds: frozenset[str]  #: names that are there after it ran to its end
    stored: frozenset[str]  #: names that it may bind
    touches: frozenset[str]  #: names that it may bind, or whose object it may change


@lru_cache(maxsize=64)
def names_of(code: str, *, failed: bool = False) -> CellNames:
    """Read the names of a cell, magics and shell lines included. Code that does not parse has none.

    `failed`: the cell raised, so its last statement did not come to its end and bound nothing.
    """
    body = _parse(code)
    if failed and body and not hasattr(body[-1], "body"):
        body = body[:-1]
    reader = _Reader()
    reader.run(body)
    reader.needs |= reader.later - reader.bound
    return CellNames(
        needs=frozenset(reader.needs - _BUILTINS),
        built_in=frozenset(reader.needs & _BUILTINS),
        binds=frozenset() if failed else frozenset(reader.bound),
        stored=frozenset(reader.stored),
        touches=frozenset(reader.stored | reader.changed),
    )


def _parse(code: str) -> list[ast.stmt]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the model's "\d" is no concern of ours
            source: str = TransformerManager().transform_cell(code)
            return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return []


def _statement(line: str) -> list[ast.stmt]:
    """Parse the statement of a line such as `-n 10 -r3 f(x)`: what parses after the fewest words left out."""
    rest = line.strip()
    while rest and not (body := _parse(rest)):
        rest = rest.partition(" ")[2].lstrip()
    return body if rest else []


@dataclass
class _Reader(ast.NodeVisitor):
    """Walks statements in the order of execution."""

    bound: set[str] = field(default_factory=set)  #: surely bound so far
    stored: set[str] = field(default_factory=set)  #: bound somewhere, be it in one branch only
    changed: set[str] = field(default_factory=set)  #: whose object may change
    needs: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)  #: needed when a function of the cell is called

    def run(self, body: Iterable[ast.AST | None]) -> None:
        for node in body:
            if node is not None:
                self.visit(node)

    def bind(self, name: str) -> None:
        self.bound.add(name)
        self.stored.add(name)

    def change(self, node: ast.AST) -> None:
        """Note that the object behind `a.b[c]` changes: that of the name `a`."""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        if isinstance(node, ast.Name):
            self.changed.add(node.id)

    def branches(self, *bodies: Iterable[ast.AST | None]) -> None:
        """Walk alternatives: what is bound in each of them is surely bound."""
        before, outcomes = set(self.bound), []
        for body in bodies:
            self.bound = set(before)
            self.run(body)
            outcomes.append(self.bound)
        self.bound = set.intersection(*outcomes)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bind(node.id)
        elif isinstance(node.ctx, ast.Del):
            self.need(node.id)
            self.bound.discard(node.id)
            self.stored.add(node.id)
        else:
            self.need(node.id)

    def need(self, name: str) -> None:
        if name not in self.bound:
            self.needs.add(name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.change(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.change(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        in_place = any(keyword.arg == "inplace" for keyword in node.keywords)
        if isinstance(function, ast.Attribute) and (in_place or function.attr in _MUTATORS):
            self.change(function)
        self.generic_visit(node)
        self._magic_body(node)

    def _magic_body(self, node: ast.Call) -> None:
        """Read `get_ipython().run_cell_magic("time", "", BODY)`, which `%%time` became, and its kind."""
        if not isinstance(node.func, ast.Attribute):
            return
        values = [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
        match node.func.attr, values:
            case "run_cell_magic", [name, line, body] if name in _PYTHON_MAGICS:
                self.run(_parse(body) if name == "capture" else [*_statement(line), *_parse(body)])
            case "run_line_magic", [name, line] if name in _PYTHON_MAGICS:
                self.run(_statement(line))
            case (("system" | "getoutput" | "getoutputs"), [line]):
                for name, expression in _IN_SHELL.findall(line):
                    self.run(_parse(name or expression))
            case (("query" | "eval"), [text, *_]):
                for name in _IN_QUERY.findall(text):
                    self.need(name)
            case _:
                pass

    def visit_Assign(self, node: ast.Assign) -> None:
        self.run([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.run([node.annotation, node.value])
        if node.value is not None:
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.need(node.target.id)
        self.run([node.value, node.target])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.run([node.value, node.target])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.branches([node.target, *node.body], [])
        self.run(node.orelse)

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self.branches(node.body, [])
        self.run(node.orelse)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.branches(node.body, node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        self.branches([*node.body, *node.orelse], *([handler] for handler in node.handlers))
        self.run(node.finalbody)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.run([node.type])
        if node.name:
            self.bound.add(node.name)
        self.run(node.body)
        self.bound.discard(node.name or "")

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        self.branches([], *([case.pattern, case.guard, *case.body] for case in node.cases))

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.bind(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs  # noqa: N815

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.bind(node.rest)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.bind(alias.asname or alias.name.split(".")[0])

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.run([*node.decorator_list, node.returns])
        self.inner(node.args, node.body)
        self.bind(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.inner(node.args, [node.body])

    def inner(self, arguments: ast.arguments, body: Iterable[ast.AST]) -> None:
        """Read a function: its defaults now, its body when it is called, perhaps after later cells."""
        self.run([*arguments.defaults, *arguments.kw_defaults])
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        parameters = {argument.arg for argument in every if argument is not None}
        inside = _Reader(bound=set(parameters), stored=set(parameters))
        inside.run(argument.annotation for argument in every if argument is not None)
        inside.run(body)
        outer = _declared_global(body)
        local = inside.stored - outer
        self.stored |= outer & inside.stored
        self.changed |= inside.changed - local
        self.later |= (inside.needs | inside.later) - local

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.run([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        inside = _Reader(bound=set(self.bound))
        inside.run(node.body)
        self.needs |= inside.needs
        self.later |= inside.later
        self.changed |= inside.changed
        self.bind(node.name)

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        bound, stored = set(self.bound), set(self.stored)
        for generator in node.generators:
            self.run([generator.iter, generator.target, *generator.ifs])
        self.run([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        walrus = {inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}
        self.bound = bound | (self.bound & walrus)
        self.stored = stored | walrus

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = comprehension  # noqa: N815


def _declared_global(body: Iterable[ast.AST]) -> set[str]:
    return {
        name
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Global)
        for name in node.names
    }
