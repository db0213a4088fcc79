"""What may happen when a function or an object of the session's own classes is used, read from its body."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from nbagent.notebook.slicing.effects import CallScanner
from nbagent.notebook.slicing.sources import NOTHING, Sources

#: Methods that Python calls by itself: what they change changes at any use of the object.
_MADE_BY = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__"})
#: Ends the name of a state that a body may use, or not.
PERHAPS = "?"
_NAMING = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler),
    *(ast.MatchAs, ast.MatchStar),
)


@dataclass(frozen=True)
class Call:
    """Within a body, something of the namespace is called, or (not `certain`) handed to what may call it."""

    name: str
    given: frozenset[str]  #: names of the namespace
    parameters: bool  #: the body's own parameters are given, too
    certain: bool


@dataclass(frozen=True)
class Latent:
    """What a use may do. Names are those of the namespace, looked up when it is used."""

    needs: frozenset[str] = NOTHING
    changes: frozenset[str] = NOTHING
    stores: frozenset[str] = NOTHING
    states: frozenset[str] = NOTHING
    opaque: bool = False
    changes_itself: bool = False
    changes_arguments: bool = False
    calls: frozenset[Call] = frozenset()
    function: bool = False  #: all that a call may do is told here
    iterator: bool = False  #: what a call gives is used up by whoever looks at it
    returns: frozenset[str] = NOTHING  #: names whose object, or a part of it, a call may give
    returns_arguments: bool = False
    holds: frozenset[str] = NOTHING  #: names whose object may be in the new container that a call gives
    holds_arguments: bool = False
    makes_functions: bool = False  #: what a call gives may do all this when it is used
    methods: frozenset[str] = NOTHING
    changing: frozenset[str] = NOTHING  #: methods that change their object, or their arguments

    def __or__(self, other: Latent) -> Latent:
        if other in (NO_EFFECT, self):
            return self
        if self == NO_EFFECT:
            return other
        return Latent(
            needs=self.needs | other.needs,
            changes=self.changes | other.changes,
            stores=self.stores | other.stores,
            states=self.states | other.states,
            opaque=self.opaque or other.opaque,
            changes_itself=self.changes_itself or other.changes_itself,
            changes_arguments=self.changes_arguments or other.changes_arguments,
            calls=self.calls | other.calls,
            function=self.function and other.function,
            iterator=self.iterator or other.iterator,
            returns=self.returns | other.returns,
            returns_arguments=self.returns_arguments or other.returns_arguments,
            holds=self.holds | other.holds,
            holds_arguments=self.holds_arguments or other.holds_arguments,
            makes_functions=self.makes_functions or other.makes_functions,
            methods=self.methods | other.methods,
            changing=self.changing | other.changing,
        )


NO_EFFECT = Latent()


@dataclass
class _Found:
    needs: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)
    states: set[str] = field(default_factory=set)
    calls: set[Call] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)  #: parameters
    returned: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)  #: in what is returned
    inner: Latent = NO_EFFECT
    opaque: bool = False
    itself: bool = False
    makes_functions: bool = False
    iterator: bool = False


class BodyScanner(CallScanner):
    """Reads the body of one function, whose local names are traced back to parameters and to the namespace."""

    def __init__(self, modules: dict[str, str], arguments: ast.arguments, body: list[ast.AST]) -> None:
        super().__init__(dict(modules))
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        extra = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
        self.parameters = [argument.arg for argument in (*every, *extra)]
        self._outer = _declared(body, ast.Global)
        self._enclosing = _declared(body, ast.Nonlocal)
        self._local = (_stored(body) - self._outer - self._enclosing) | set(self.parameters)
        for name in self._local:
            self.modules.pop(name, None)
        self._from: dict[str, frozenset[str]] = {name: frozenset({name}) for name in self.parameters}
        self._shared: set[str] = set()  #: local names that may stand for an object from outside
        self.found = _Found()
        self.run(body)
        self.found.iterator = any(isinstance(n, ast.Yield | ast.YieldFrom) for s in body for n in _own(s))

    def latent(self, *, defaults: bool) -> Latent:
        """Sum up. `defaults`: parameters have defaults that may be changed from call to call."""
        found = self.found
        return found.inner | Latent(
            needs=frozenset(found.needs),
            changes=frozenset(found.changes),
            stores=frozenset(found.stores),
            states=frozenset(found.states),
            opaque=found.opaque,
            changes_itself=found.itself or (defaults and bool(found.changed)),
            changes_arguments=bool(found.changed),
            calls=frozenset(found.calls),
            function=True,
            iterator=found.iterator,
            returns=frozenset(found.returned - set(self.parameters)),
            returns_arguments=bool(found.returned & set(self.parameters)),
            makes_functions=found.makes_functions,
            holds=frozenset(found.held - set(self.parameters)),
            holds_arguments=bool(found.held & set(self.parameters)),
        )

    def _origins(self, names: frozenset[str]) -> frozenset[str]:
        """Trace local names back to parameters and names of the namespace."""
        return frozenset().union(*(self._from.get(n, NOTHING) if n in self._local else {n} for n in names))

    def load(self, name: str) -> None:
        if name not in self._local and not self.is_builtin(name):
            self.found.needs.add(name)

    def change(self, name: str, *, deep: bool) -> None:
        direct = name in self._local and name not in self.parameters
        for origin in self._origins(frozenset({name})) if not direct or deep or name in self._shared else ():
            (self.found.changed if origin in self.parameters else self.found.changes).add(origin)
        if name in self._enclosing:
            self.found.itself = True

    def absorb(self, into: Sources, what: Sources) -> None:
        given = self._origins(what.every)
        for name in into.every & self._local:
            self._from[name] = self._from.get(name, NOTHING) | given

    def bind(self, name: str, value: ast.expr | None, sources: Sources) -> None:
        if name in self._outer:
            self.found.stores.add(name)
        elif name in self._enclosing:
            self.found.itself = True
        elif name in self._local:
            self._from[name] = self._from.get(name, NOTHING) | self._origins(sources.every)
            if sources.alias | sources.part:
                self._shared.add(name)
        for inner in ast.walk(value) if value is not None else ():
            if isinstance(inner, ast.Lambda):
                self._within(function_latent(self.modules, inner))

    def visit_Return(self, node: ast.Return | ast.Yield | ast.YieldFrom) -> None:
        """Note what leaves the function."""
        if node.value is not None:
            self.visit(node.value)
            sources = self.sources(node.value)
            own = {n for n in sources.alias if n in self._local - self._shared - set(self.parameters)}
            self.found.returned |= self._origins((sources.alias - own) | sources.part | sources.made)
            self.found.held |= self._origins(sources.holds | own)

    visit_Yield = visit_YieldFrom = visit_Return  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        super().visit_Lambda(node)
        self._within(function_latent(self.modules, node))

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        inner = definition_latent(self.modules, node)
        self._within(inner)
        # What it captured can be reached through it.
        captured = self._origins(inner.needs & self._local)
        self._from[node.name] = self._from.get(node.name, NOTHING) | captured

    def _within(self, inner: Latent) -> None:
        """Take in a function made within: what is ours in it stays here."""
        self.found.makes_functions = True
        mine = inner.needs & self._local
        changed = self._origins(inner.changes & self._local)
        self.found.changed |= changed & set(self.parameters)
        self.found.itself = self.found.itself or inner.changes_itself or bool(inner.changes & mine)
        self.found.needs |= {name for name in inner.needs if name not in self._local}
        self.found.changes |= {name for name in inner.changes | changed if name not in self._local}
        self.found.stores |= inner.stores
        self.found.states |= inner.states
        self.found.opaque = self.found.opaque or inner.opaque
        self.found.calls |= inner.calls
        if inner.returns_arguments or inner.holds_arguments:
            self.found.returned |= set(self.parameters)
        self.found.returned |= self._origins(inner.returns | inner.holds)
        if inner.changes_arguments:  # it may be handed anything that is known here
            self.found.changed |= set(self.parameters)
            self.found.changes |= self.found.needs

    def imported(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> None:
        name, stands_for = meaning(node, alias)
        if name in self._outer:
            self.found.stores.add(name)
        elif name:
            self._local.discard(name)
            self.modules[name] = stands_for

    def call(self, name: str, arguments: Sources) -> None:
        origins = self._origins(arguments.every)
        parameters = bool(origins & set(self.parameters))
        if name in self._local:
            self.change(name, deep=True)
            for origin in origins:
                (self.found.changed if origin in self.parameters else self.found.changes).add(origin)
        else:
            self.found.calls.add(Call(name, frozenset(origins - set(self.parameters)), parameters, certain=True))

    def handed_on(self, receiver: Sources, node: ast.Call) -> None:
        origins = self._origins((receiver | self.arguments(node)).every)
        parameters = bool(origins & set(self.parameters))
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(argument, ast.Name) and argument.id not in self._local:
                given = frozenset(origins - set(self.parameters) - {argument.id})
                self.found.calls.add(Call(argument.id, given, parameters, certain=False))

    def is_bound(self, name: str) -> bool:
        return name in self._local

    def mentioned(self, name: str) -> None:
        self.load(name)

    def state(self, name: str, *, renewed: bool = False, certain: bool = True) -> None:
        self.found.states.add(name if certain else name + PERHAPS)

    def opaque(self, why: str) -> None:
        self.found.opaque = True


def function_latent(modules: dict[str, str], node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Latent:
    """Give what a call of a function may do."""
    body: list[ast.AST]
    body = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else [*node.body]
    return BodyScanner(modules, node.args, body).latent(defaults=_has_defaults(node.args))


def definition_latent(
    modules: dict[str, str], node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
) -> Latent:
    """Give what uses of a function, or of a class and its objects, may do."""
    if not isinstance(node, ast.ClassDef):
        latent = function_latent(modules, node)
        # A decorator may give anything else in its place.
        return replace(latent, function=latent.function and not node.decorator_list)
    total = Latent(function=True)
    methods, changing = set(), set()
    itself = arguments = False
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            scanner = BodyScanner(modules, item.args, [*item.body])
            latent, changed = scanner.latent(defaults=_has_defaults(item.args)), scanner.found.changed
            methods.add(item.name)
            if changed or latent.changes_itself:
                changing.add(item.name)
                special = item.name.startswith("__") and item.name not in _MADE_BY
                itself = itself or special or bool(item.decorator_list)
            arguments = arguments or bool(changed - set(scanner.parameters[:1]))
            iterator = latent.iterator and item.name == "__iter__"
            total |= replace(latent, changes_arguments=False, changes_itself=False, iterator=iterator)
    return replace(
        total,
        returns=total.returns | total.needs,
        returns_arguments=True,
        makes_functions=True,
        changes_itself=itself,
        methods=frozenset(methods),
        changing=frozenset(changing),
        changes_arguments=arguments,
    )


def _has_defaults(arguments: ast.arguments) -> bool:
    """Whether there are defaults that a call could change for the next one."""
    defaults = [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    return any(not isinstance(default, ast.Constant) for default in defaults)


def has_attributes(node: ast.ClassDef) -> bool:
    """Whether a class has values of its own, which its objects share."""
    return any(
        isinstance(item, ast.Assign | ast.AnnAssign)
        and item.value is not None
        and not isinstance(item.value, ast.Constant)
        and not (isinstance(item.value, ast.Call) and ast.unparse(item.value.func).endswith("field"))
        for item in node.body
    )


def meaning(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> tuple[str, str]:
    """Give the name that an import binds and what it stands for; `*` binds none that is known."""
    if alias.name == "*":
        return "", ""
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        return alias.asname or alias.name, f"{module}.{alias.name}"
    top = alias.name.partition(".")[0]
    return (alias.asname, alias.name) if alias.asname else (top, top)


def _declared(body: list[ast.AST], kind: type[ast.Global] | type[ast.Nonlocal]) -> set[str]:
    return {
        name for statement in body for node in _own(statement) if isinstance(node, kind) for name in node.names
    }


def _stored(body: list[ast.AST]) -> set[str]:
    names: set[str] = set()
    for statement in body:
        for node in _own(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                names.add(node.id)
            elif isinstance(node, _NAMING) and node.name:
                names.add(node.name)
    return names


def _own(node: ast.AST) -> list[ast.AST]:
    """Give a node and what is within it, the bodies of inner functions and classes left out."""
    nodes, waiting = [], [node]
    while waiting:
        current = waiting.pop()
        nodes.append(current)
        if not isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(current))
    return nodes
