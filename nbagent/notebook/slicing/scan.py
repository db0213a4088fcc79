"""Walks code in the order of execution and tells what it does to names, objects and the process.

A `Scanner` knows nothing of what came before: it calls hooks (`load`, `change`, `bind`, ...), which the cell's
reader and the function's reader answer in their own way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from nbagent.notebook.slicing.sources import FRESH, NOTHING, Sources, Tracer


class Scanner(Tracer, ast.NodeVisitor):
    """Base of the readers."""

    def __init__(self, modules: dict[str, str]) -> None:
        super().__init__(modules)
        self._unsure = 0

    # -- hooks --

    def load(self, name: str) -> None:
        """A name is mentioned: what stands behind it may be looked at and used."""

    def use(self, name: str) -> None:
        """What a name stands for may be called: what it may do is done."""

    def use_all(self, *nodes: ast.AST) -> None:
        """Whatever is mentioned may be called."""
        for node in nodes:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and inner.id in self._standing:
                    for name in self._standing[inner.id]:
                        self.use(name)
                elif isinstance(inner, ast.Name) and not self.is_builtin(inner.id):
                    self.use(inner.id)

    def change(self, name: str, *, deep: bool) -> None:
        """The object of a name changes; `deep`: perhaps what it holds, too."""

    def absorb(self, into: Sources, what: Sources) -> None:
        """Objects take in others."""

    def bind(self, name: str, value: ast.expr | None, sources: Sources) -> None:
        """A name is bound, surely so where `self.sure`."""

    def unpacked(self, names: list[str], value: ast.expr) -> None:
        """Names were bound to the parts of one value, which may share something."""

    def unbind(self, name: str) -> None:
        """A name is deleted."""

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """A function or class is made; decorators, defaults and bases were visited."""

    def imported(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> None:
        """A module or a name of it is bound."""

    def call(self, name: str, arguments: Sources) -> None:
        """What a name stands for is called."""

    def state(self, name: str, *, renewed: bool = False, certain: bool = True) -> None:
        """A state of the process, not of a name, is used and changed; `renewed`: whatever it was before."""

    def opaque(self, why: str) -> None:
        """Code runs that cannot be read: it may do anything."""

    def consumed(self, sources: Sources) -> None:
        """Someone goes through a value, which is used up if it is an iterator."""

    # -- statements --

    @property
    def sure(self) -> bool:
        """Whether what is visited is surely executed."""
        return not self._unsure

    @contextmanager
    def unsure(self) -> Iterator[None]:
        """What is visited within may be executed, or not, or more than once."""
        self._unsure += 1
        try:
            yield
        finally:
            self._unsure -= 1

    def run(self, nodes: Iterable[ast.AST | None]) -> None:
        """Visit nodes in order."""
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _twice(self, *nodes: ast.AST | None) -> None:
        """Visit what is perhaps executed: twice, as a second round sees what the first one did."""
        with self.unsure():
            self.run(nodes)
            self.run(nodes)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id not in self._standing:
            self.load(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        named = [target for target in node.targets if isinstance(target, ast.Name)]
        first = named[0] if named else node.targets[0]
        self.target(first, node.value, self.sources(node.value))
        for target in node.targets:
            if target is not first:  # all of them stand for one object
                self.target(target, None, self.sources(first))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.run([node.annotation, node.value])
        if node.value is not None:
            self.target(node.target, node.value, self.sources(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        given = self.sources(node.value)
        if isinstance(node.target, ast.Name):
            name = node.target.id
            self.load(name)
            self.change(name, deep=False)
            own = Sources(alias=frozenset({name}))
            self.absorb(own, given)
            self.bind(name, None, own | given.as_held())
        else:
            self.visit(node.target)
            self.change_all(self.sources(node.target))
            self.target(node.target, None, given)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.target(node.target, node.value, self.sources(node.value))

    def target(self, target: ast.expr, value: ast.expr | None, sources: Sources) -> None:
        """Store a value somewhere."""
        match target:
            case ast.Name(id=name):
                self.bind(name, value, sources)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                given = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                if {name.id for name in _names(target)} & {name.id for part in given for name in _names(part)}:
                    given = []  # as in `a, b = b, a`: each may be any of them
                for index, item in enumerate(items):
                    if len(given) == len(items):
                        self.target(item, given[index], self.sources(given[index]))
                    else:
                        self.target(item, None, sources.as_part())
                if value is not None and len(given) != len(items):
                    self.unpacked([item.id for item in items if isinstance(item, ast.Name)], value)
            case ast.Starred(value=inner):
                self.target(inner, None, sources.as_held())
            case ast.Attribute(value=inner) | ast.Subscript(value=inner):
                self.run([inner, target.slice if isinstance(target, ast.Subscript) else None])
                self._store_into(inner, sources)

    def _store_into(self, owner: ast.expr, sources: Sources) -> None:
        if self._is_of_a_module(owner):
            self.state("settings")
            return
        self.change_all(self.owner(owner))
        self.absorb(self.owner(owner), sources)

    def _is_of_a_module(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.modules

    def change_all(self, sources: Sources, *, deep: bool = False) -> None:
        """Change the objects that a value may be."""
        for name in sources.alias:
            self.change(name, deep=deep)
        for name in sources.part | sources.made | (sources.holds if deep else NOTHING):
            self.change(name, deep=True)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.load(target.id)
                self.unbind(target.id)
            elif isinstance(target, ast.Tuple | ast.List):
                self.visit_Delete(ast.Delete(targets=target.elts))
            elif isinstance(target, ast.Attribute | ast.Subscript):
                self.run([target.value, target.slice if isinstance(target, ast.Subscript) else None])
                self._store_into(target.value, FRESH)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.consumed(self.sources(node.iter))
        with self.unsure():
            for _ in range(2):
                self.target(node.target, None, self.sources(node.iter).as_part())
                self.run([*node.body])
            self.run(node.orelse)

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._twice(*node.body, node.test, *node.orelse)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        with self.unsure():
            self.run([*node.body, *node.orelse])

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        with self.unsure():
            self.run(node.body)
            names = {inner.id for part in node.body for inner in ast.walk(part) if isinstance(inner, ast.Name)}
            for handler in node.handlers:
                self._handle(handler, Sources(part=frozenset(names - set(self.modules))))
            self.run(node.orelse)
        self.run(node.finalbody)

    visit_TryStar = visit_Try  # noqa: N815

    def _handle(self, node: ast.ExceptHandler, raised: Sources) -> None:
        """Visit a handler; the error may hold anything that the guarded code knew."""
        self.run([node.type])
        if node.name:
            self.bind(node.name, None, raised)
        self.run(node.body)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self.target(item.optional_vars, item.context_expr, self.sources(item.context_expr))
        self.run(node.body)

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_Await(self, node: ast.Await) -> None:
        self.visit(node.value)
        self.use_all(node.value)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        subject = self.sources(node.subject).as_part()
        with self.unsure():
            for case in node.cases:
                for inner in ast.walk(case.pattern):
                    name = getattr(inner, "name", None) or getattr(inner, "rest", None)
                    if isinstance(name, str):
                        self.bind(name, None, subject)
                self.run([case.pattern, case.guard, *case.body])

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.imported(node, alias)

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._head(node)
        self.use_all(*node.decorator_list)
        self.define(node)

    def _head(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Visit what is evaluated when a function is made."""
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self.run([*node.decorator_list, *arguments.defaults, *arguments.kw_defaults, node.returns])
        self.run(argument.annotation for argument in every if argument is not None)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.run([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        for item in node.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                self._head(item)
        self.use_all(*node.decorator_list, *node.bases)
        self.define(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.run([*node.args.defaults, *node.args.kw_defaults])

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        """Visit a comprehension, whose variables are its own."""
        with self.unsure():
            for generator in node.generators:
                self.visit(generator.iter)
                self.consumed(self.sources(generator.iter))
            tests = [test for generator in node.generators for test in generator.ifs]
            made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            with self._standing_for(node.generators):
                self.run([*tests, *made])

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = comprehension  # noqa: N815

    @contextmanager
    def _standing_for(self, generators: list[ast.comprehension]) -> Iterator[None]:
        """Within, the variables of a comprehension stand for parts of what it goes through."""
        before = self._standing
        for generator in generators:
            through = self.sources(generator.iter).every
            own = {inner.id for inner in ast.walk(generator.target) if isinstance(inner, ast.Name)}
            self._standing = self._standing | dict.fromkeys(own, through)
        try:
            yield
        finally:
            self._standing = before


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
