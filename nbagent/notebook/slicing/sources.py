"""Where the value of an expression may come from, told by the names in it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from nbagent.notebook.slicing import knowledge

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sources:
    """Where a value may come from, by name: it may be the very object, be a part of it, or hold (parts of) it."""

    alias: frozenset[str] = NOTHING
    part: frozenset[str] = NOTHING
    holds: frozenset[str] = NOTHING
    made: frozenset[str] = NOTHING  #: functions that were called for it

    def __or__(self, other: Sources) -> Sources:
        return Sources(
            self.alias | other.alias, self.part | other.part, self.holds | other.holds, self.made | other.made
        )

    @property
    def every(self) -> frozenset[str]:
        """All names."""
        return self.alias | self.part | self.holds | self.made

    def as_part(self) -> Sources:
        """The sources of an element, an attribute or a view of it."""
        return Sources(part=self.alias | self.part | self.holds, made=self.made)

    def as_held(self) -> Sources:
        """The sources of a new container of it."""
        return Sources(holds=self.alias | self.part | self.holds, made=self.made)


FRESH = Sources()


def union(many: Iterable[Sources]) -> Sources:
    """Give all sources together."""
    total = FRESH
    for sources in many:
        total |= sources
    return total


class Tracer:
    """Traces expressions back to names. `modules` tells what imported names stand for."""

    def __init__(self, modules: dict[str, str]) -> None:
        self.modules = modules
        self._standing: dict[str, frozenset[str]] = {}  #: variables of comprehensions, and what they go through

    def is_bound(self, name: str) -> bool:
        """Whether the session bound the name itself: then it is no builtin any more."""
        return False

    def changes_by_method(self, sources: Sources, method: str) -> bool | None:
        """Say what the session's own classes tell of a method; None where they tell nothing."""
        return None

    def dotted(self, node: ast.expr) -> str:
        """Give the dotted name of what an imported name stands for, or ""."""
        if isinstance(node, ast.Name):
            return self.modules.get(node.id, "")
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        return ""

    def sources(self, node: ast.expr | None) -> Sources:
        """Give the names that a value may be, be a part of, or hold."""
        match node:
            case ast.Name(id=name):
                if name in self._standing:
                    return Sources(part=self._standing[name])
                return FRESH if name in self.modules else Sources(alias=frozenset({name}))
            case ast.Attribute(value=value, attr=attr):
                owner = self.sources(value)
                own = (
                    self.changes_by_method(owner, attr) is not None
                )  # a class of the session's has it its own way
                return owner.as_part() if own or attr not in knowledge.FRESH_ATTRIBUTES else FRESH
            case ast.Subscript(value=value, slice=index):
                return self.sources(value).as_held() if _copies(index) else self.sources(value).as_part()
            case ast.Call():
                return self._sources_of_call(node)
            case ast.BinOp(left=left, op=operator, right=right):
                if isinstance(operator, ast.Add | ast.Mult | ast.BitOr | ast.BitAnd):
                    return (self.sources(left) | self.sources(right)).as_held()
                return FRESH
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return union(map(self.sources, items)).as_held()
            case ast.Dict(keys=keys, values=values):
                return union(self.sources(item) for item in (*keys, *values)).as_held()
            case ast.BoolOp(values=values):
                return union(map(self.sources, values))
            case ast.IfExp(body=body, orelse=orelse):
                return self.sources(body) | self.sources(orelse)
            case ast.NamedExpr(target=target, value=value):
                return self.sources(value) | Sources(alias=frozenset({target.id}))
            case ast.Await(value=value):
                return self.sources(value)
            case ast.Lambda(args=arguments):
                defaults = [*arguments.defaults, *(default for default in arguments.kw_defaults if default)]
                return union(map(self.sources, defaults)).as_held()
            case ast.Starred(value=value):
                return self.sources(value).as_part()
            case ast.Yield() | ast.YieldFrom():
                return FRESH
            case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return self._sources_of_comprehension(node.generators, [elt])
            case ast.DictComp(key=key, value=value):
                return self._sources_of_comprehension(node.generators, [key, value])
        return FRESH

    def _sources_of_comprehension(self, generators: list[ast.comprehension], made: list[ast.expr]) -> Sources:
        total = union(map(self.sources, made)).every
        for generator in reversed(generators):
            targets = {name.id for name in ast.walk(generator.target) if isinstance(name, ast.Name)}
            if total & targets:
                total = (total - targets) | self.sources(generator.iter).every
        return Sources(holds=total)

    def _sources_of_call(self, node: ast.Call) -> Sources:
        arguments = self.arguments(node)
        function = node.func
        if isinstance(function, ast.Name) and self.is_builtin(function.id):
            if function.id in knowledge.FRESH_BUILTINS:
                return FRESH
            shallow = function.id in knowledge.SHALLOW_BUILTINS | knowledge.ITERATORS
            return arguments.as_held() if shallow else arguments.as_part()
        dotted = self.dotted(function)
        if dotted:
            last = dotted.rpartition(".")[2]
            fresh = dotted in knowledge.FRESH_FUNCTIONS or last in knowledge.FRESH_METHODS
            if fresh and dotted not in knowledge.VIEW_FUNCTIONS and "copy" not in {k.arg for k in node.keywords}:
                return FRESH
            if dotted.startswith(knowledge.FRESH_MODULES):
                return arguments.as_part() if last in ("choice", "match", "search", "sample") else FRESH
            return arguments.as_held() if dotted in knowledge.SHALLOW_FUNCTIONS else arguments.as_part()
        if isinstance(function, ast.Attribute):
            receiver = self.sources(function.value)
            if self.changes_by_method(receiver, function.attr) is None:
                if function.attr in knowledge.FRESH_METHODS:
                    return FRESH
                if function.attr in knowledge.PURE_METHODS - knowledge.VIEW_METHODS:
                    return (receiver | arguments).as_held()
            return (receiver | arguments).as_part()
        if isinstance(function, ast.Name) and function.id not in self._standing:
            return self.sources_of_call(function.id, arguments)
        return (self.sources(function) | arguments).as_part()

    def sources_of_call(self, name: str, arguments: Sources) -> Sources:
        """Give the sources of what a call of the session's own function gives."""
        return Sources(part=arguments.every, made=frozenset({name}))

    def owner(self, node: ast.expr) -> Sources:
        """Give the sources of what is stored into, or changed by a method: an attribute that looks new is not."""
        sources = self.sources(node)
        if sources.every:
            return sources
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        return self.sources(node).as_part() if isinstance(node, ast.Name) else FRESH

    def arguments(self, node: ast.Call) -> Sources:
        """Give the sources of a call's arguments."""
        return union(self.sources(argument) for argument in (*node.args, *(k.value for k in node.keywords)))

    def is_builtin(self, name: str) -> bool:
        """Whether a name stands for the builtin of that name."""
        return name in knowledge.BUILTINS and not self.is_bound(name)


def _copies(index: ast.expr) -> bool:
    """Whether a subscript picks by a mask or a list, which gives a copy."""
    if isinstance(index, ast.Compare | ast.List):
        return True
    if isinstance(index, ast.BinOp) and isinstance(index.op, ast.BitAnd | ast.BitOr):
        return _copies(index.left) or _copies(index.right)
    return isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert)
