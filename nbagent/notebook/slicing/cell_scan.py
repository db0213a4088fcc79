"""Reads one cell: what it needs, binds and changes, given what the cells before it did."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from nbagent.notebook.slicing import knowledge
from nbagent.notebook.slicing.effects import CallScanner
from nbagent.notebook.slicing.functions import (
    NO_EFFECT,
    PERHAPS,
    Latent,
    definition_latent,
    function_latent,
    has_attributes,
    meaning,
)
from nbagent.notebook.slicing.sources import NOTHING, Sources
from nbagent.notebook.slicing.state import Import, Node, State, Value

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
#: IPython's names for what earlier cells were and gave, which count cells.
_HISTORY = re.compile(r"In|Out|_{1,3}|_i{1,3}|_i?\d+|_[dos]h|_ih")


class CellScanner(CallScanner):
    """Reads one cell and keeps the flow's tables."""

    def __init__(self, state: State, index: int, node: Node) -> None:
        super().__init__(state.modules)
        self._state, self._index, self._node = state, index, node
        self._performing: set[str] = set()
        self._of_class: set[str] | None = None  #: names that the class at hand has bound so far

    # -- reading --

    def load(self, name: str) -> None:
        if self._of_class is not None and name in self._of_class:
            return
        if name not in self._state.values and _HISTORY.fullmatch(name):
            self._node.depends |= set(range(self._index))
        if self.is_builtin(name):
            return
        state = self._state
        self._node.depends |= state.bound_by.get(name, set())
        self._node.imports |= state.import_of.get(name, set())
        value = state.values.get(name)
        if value is None:
            self._node.depends |= state.anything
            return
        for token in value.every:
            self._node.depends |= state.changed_by.get(token, set())
        if name in self.modules:
            self._look_at_module(self.modules[name])
        if value.latent.methods or value.iterator:  # what is done to it calls code of the session's own
            self.use(name)

    def use(self, name: str) -> None:
        value = self._state.values.get(name)
        if value is None or name in self._performing:
            return
        self._performing.add(name)
        self._perform(name, value)
        self._performing.discard(name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A function that is made here may be called here."""
        super().visit_Lambda(node)
        self._do(function_latent(self.modules, node), "a lambda")

    def _look_at_module(self, dotted: str) -> None:
        self._node.depends |= self._state.states.get(f"module {dotted.partition('.')[0]}", set())
        if dotted in knowledge.CLOCKS or dotted.startswith(knowledge.ALWAYS_RANDOM):
            self._node.clocks.add(dotted)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = self.dotted(node)
        if dotted in knowledge.CLOCKS or dotted.startswith(knowledge.ALWAYS_RANDOM):
            self._node.clocks.add(dotted)
        super().visit_Attribute(node)

    def visit_Call(self, node: ast.Call) -> None:
        dotted = self.dotted(node.func)
        if dotted in knowledge.CLOCKS:
            self._node.clocks.add(dotted)
        super().visit_Call(node)

    def _perform(self, name: str, value: Value) -> None:
        self._do(value.latent, name)
        if value.latent.changes_itself or value.iterator:
            self.change(name, deep=True)

    def _do(self, latent: Latent, what: str) -> None:
        """Do what a function may do when it is called."""
        if latent.opaque:
            self.opaque(f"uses {what}, which runs code that cannot be read")
        for needed in latent.needs:
            self.load(needed)
            self.use(needed)
        for changed in latent.changes:
            self.change(changed, deep=True)
        for state in latent.states:
            self.state(state.removesuffix(PERHAPS), certain=not state.endswith(PERHAPS))
        for call in latent.calls:
            if self._changes_arguments(call.name, certain=call.certain):
                for given in call.given:
                    self.change(given, deep=True)
        with self.unsure():
            for stored in latent.stores:
                self.bind(stored, None, Sources(part=latent.needs))

    def _changes_arguments(self, name: str, *, certain: bool, seen: frozenset[str] = NOTHING) -> bool:
        """Whether a call of what a name stands for may change what it is given."""
        if name in self.modules or self.is_builtin(name):
            return False
        value = self._state.values.get(name)
        if value is None or not value.latent.function:
            return certain
        return value.latent.changes_arguments or any(
            inner.parameters
            and inner.name not in seen
            and self._changes_arguments(inner.name, certain=inner.certain, seen=seen | {name})
            for inner in value.latent.calls
        )

    # -- changing --

    def change(self, name: str, *, deep: bool) -> None:
        if name in self.modules and name not in self._state.values:
            return
        value = self._state.values.get(name)
        if value is None:
            value = self._state.values[name] = Value(own=frozenset({self._state.token()}))
        for token in value.every if deep else value.own:
            self._state.changed_by.setdefault(token, set()).add(self._index)

    def absorb(self, into: Sources, what: Sources) -> None:
        given = self._value(None, what.as_held())
        if not given.every and given.latent == NO_EFFECT:
            return
        owners = frozenset().union(*(self._state.values[n].every for n in into.every if n in self._state.values))
        for value in self._state.values.values():
            if value.own & owners or value.inner & owners:
                value.inner |= given.every
                value.latent = replace(value.latent | given.latent, function=value.latent.function)
                value.known = value.known and given.known

    def call(self, name: str, arguments: Sources) -> None:
        value = self._state.values.get(name)
        if self._changes_arguments(name, certain=True):
            self.change_all(arguments, deep=True)
            self.absorb(arguments, arguments)
            for token in value.inner if value is not None else ():  # arguments that it was given before
                self._state.changed_by.setdefault(token, set()).add(self._index)
        if value is None or not value.latent.function:
            self.change(name, deep=True)

    def sources_of_call(self, name: str, arguments: Sources) -> Sources:
        value = self._state.values.get(name)
        if value is None:
            return super().sources_of_call(name, arguments)
        latent = value.latent
        returned = self._returned(latent.returns, frozenset({name}))
        held = self._returned(latent.holds, frozenset({name}))
        return Sources(
            part=returned | (arguments.every if latent.returns_arguments or not latent.function else NOTHING),
            holds=held | (arguments.every if latent.holds_arguments else NOTHING),
            made=frozenset({name}),
        )

    def _returned(self, names: frozenset[str], seen: frozenset[str]) -> frozenset[str]:
        """Give the names whose objects a call may give, where one function gives what another gave it."""
        found = names
        for name in names - seen:
            value = self._state.values.get(name)
            if value is not None and value.latent.function:
                found |= self._returned(value.latent.returns | value.latent.holds, seen | {name})
        return found

    def handed_on(self, receiver: Sources, node: ast.Call) -> None:
        everything = receiver | self.arguments(node)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            changes = isinstance(argument, ast.Name) and self._changes_arguments(argument.id, certain=False)
            if isinstance(argument, ast.Lambda):
                latent = function_latent(self.modules, argument)
                changes = latent.changes_arguments or any(
                    self._changes_arguments(call.name, certain=call.certain) for call in latent.calls
                )
            if changes:
                self.change_all(everything, deep=True)
                self.absorb(everything, everything)

    def changes_by_method(self, sources: Sources, method: str) -> bool | None:
        values = [self._state.values[name] for name in sources.every if name in self._state.values]
        told = [value.latent for value in values if value.latent.methods]
        if not told:
            return None
        return any(method in latent.changing for latent in told) or any(
            method not in latent.methods for latent in told
        )

    def consumed(self, sources: Sources) -> None:
        for name in sources.alias:
            value = self._state.values.get(name)
            if value is not None and not value.known:
                self.use(name)
                self.change(name, deep=False)

    # -- binding --

    def is_bound(self, name: str) -> bool:
        return name in self._state.values

    def bind(self, name: str, value: ast.expr | None, sources: Sources) -> None:
        if self._of_class is not None:
            self._of_class.add(name)
            return
        made = self._value(value, sources)
        self.modules.pop(name, None)
        self._state.import_of.pop(name, None)
        self._put(name, made)

    def _put(self, name: str, made: Value) -> None:
        state = self._state
        self._node.binds.add(name)
        before = state.values.get(name)
        made.own |= {state.token()}
        if self.sure or before is None:
            state.bound_by[name] = {self._index} | (set() if self.sure else state.bound_by.get(name, set()))
            state.values[name] = made
            return
        state.bound_by.setdefault(name, set()).add(self._index)
        state.values[name] = Value(
            before.own | made.own,
            before.inner | made.inner,
            before.latent | made.latent,
            before.iterator or made.iterator,
            before.known and made.known,
        )

    def _value(self, expression: ast.expr | None, sources: Sources) -> Value:
        values = self._state.values
        own: set[int] = set()
        inner: set[int] = set()
        latent = NO_EFFECT
        iterator, known = False, True
        for name in sources.every:
            value = values.get(name)
            if value is None:
                continue
            if name in sources.alias:
                own |= value.own
                inner |= value.inner
                iterator, known = iterator or value.iterator, known and value.known
            tokens = value.inner if value.settled else value.every
            if name in sources.part:
                own |= tokens
            if name in sources.part | sources.made | sources.holds:
                inner |= tokens
            only_made = name not in sources.alias | sources.part | sources.holds
            if not only_made or value.latent.makes_functions or value.latent.iterator or not value.latent.function:
                latent |= value.latent
            known = known and (only_made or value.known)
        for node in ast.walk(expression) if expression is not None else ():
            if isinstance(node, ast.Lambda):
                latent |= function_latent(self.modules, node)
        made = self._is_iterator(expression)
        if made is not None:
            iterator, known = iterator or made, known and not made
        elif isinstance(expression, ast.Call | ast.Await):
            known = False
        if not isinstance(expression, ast.Name | ast.Lambda):  # not the function itself, but what it made
            latent = replace(latent, function=False, iterator=False)
        return Value(frozenset(own), frozenset(inner), latent, iterator, known and not iterator)

    def _is_iterator(self, node: ast.expr | None) -> bool | None:
        """Whether a value is used up by whoever goes through it; None: unknown."""
        if isinstance(node, ast.GeneratorExp):
            return True
        if not isinstance(node, ast.Call):
            return False if not isinstance(node, ast.Subscript | ast.Attribute | ast.Await) else None
        if any(keyword.arg in ("chunksize", "iterator") for keyword in node.keywords):
            return True
        dotted, function = self.dotted(node.func), node.func
        last = function.attr if isinstance(function, ast.Attribute) else dotted.rpartition(".")[2]
        if isinstance(function, ast.Name) and self.is_builtin(function.id):
            return function.id in knowledge.ITERATORS
        if dotted in knowledge.VIEW_FUNCTIONS:
            return False
        if last in knowledge.ITERATOR_FUNCTIONS or dotted.startswith("itertools.") or dotted == "csv.reader":
            return True
        if dotted and dotted.partition(".")[0] in knowledge.PURE_PACKAGES and not dotted.startswith("csv."):
            return False
        if isinstance(function, ast.Attribute) and last in knowledge.PURE_METHODS - knowledge.VIEW_METHODS:
            return False
        if isinstance(function, ast.Name) and function.id in self._state.values:
            latent = self._state.values[function.id].latent
            return latent.iterator if latent.function else None
        return None

    def unpacked(self, names: list[str], value: ast.expr) -> None:
        common = frozenset({self._state.token()})
        for name in names:
            if name in self._state.values:
                known = isinstance(value, ast.Call) and self.dotted(value.func)
                self._state.values[name].inner |= common
                self._state.values[name].own |= frozenset() if known else common

    def unbind(self, name: str) -> None:
        self._state.bound_by.setdefault(name, set()).add(self._index)
        self._node.binds.add(name)

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.modules.pop(node.name, None)
        self._state.import_of.pop(node.name, None)
        latent = definition_latent(self.modules, node)
        if isinstance(node, ast.ClassDef):
            given = [part for part in (*node.bases, *node.decorator_list) if not self._is_plain(part)]
            self._class_body([item for item in node.body if not isinstance(item, _FUNCTIONS)])
        else:
            given = [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        held = self._value(None, Sources(holds=frozenset().union(*(self.sources(item).every for item in given))))
        bases = [self._state.values.get(base.id) for base in given if isinstance(base, ast.Name)]
        told = all(base is not None and base.latent.function for base in bases) and len(bases) == len(given)
        function = latent.function and (told if isinstance(node, ast.ClassDef) else not node.decorator_list)
        made = Value(held.own, held.inner, replace(held.latent | latent, function=function), known=function)
        self._put(node.name, made)
        if isinstance(node, ast.ClassDef) and has_attributes(node):
            made.inner |= made.own

    def _is_plain(self, node: ast.expr) -> bool:
        """Whether this base or decorator leaves a class to do what its own methods say."""
        node = node.func if isinstance(node, ast.Call) else node
        if isinstance(node, ast.Name) and self.is_builtin(node.id):
            return True
        return self.dotted(node).startswith(knowledge.PLAIN_CLASSES)

    def _class_body(self, body: list[ast.stmt]) -> None:
        """Run a class's own statements: what they bind is the class's."""
        before, self._of_class = self._of_class, set(self._of_class or ())
        self.run(body)
        self._of_class = before

    def imported(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> None:
        name, stands_for = meaning(node, alias)
        if not name:
            self._state.anything.add(self._index)
            return
        package = stands_for.partition(".")[0]
        if id(node) not in self._state.hoisted:
            self._put(name, Value(known=True))
        else:
            self._state.values[name] = Value(own=frozenset({self._state.token()}), known=True)
            self._state.bound_by[name] = set()
            self._state.import_of[name] = {self._number(node)}
        self.modules[name] = stands_for
        self._look_at_module(package)

    def _number(self, node: ast.Import | ast.ImportFrom) -> int:
        names = frozenset(meaning(node, alias)[0] for alias in node.names)
        line = ast.unparse(node)
        for number, known in enumerate(self._state.imports):
            if (known.cell, known.first, known.line) == (self._index, node.lineno, line):
                return number
        last = node.end_lineno or node.lineno
        self._state.imports.append(Import(self._index, line, node.lineno, last, names))
        return len(self._state.imports) - 1

    # -- the process --

    def state(self, name: str, *, renewed: bool = False, certain: bool = True) -> None:
        self._node.states.add(name)
        if name == "settings":
            self._node.changes_settings = True
        if name.startswith("random "):
            if renewed:
                self._state.seeded.add(name)
            elif name not in self._state.seeded:
                (self._node.drawn if certain else self._node.perhaps_drawn).add(name.partition(" ")[2])
                return
        users = self._state.states.setdefault(name, set())
        self._node.depends |= set() if renewed and self.sure else users
        if renewed and self.sure:
            users.clear()
        users.add(self._index)

    def opaque(self, why: str) -> None:
        self._node.opaque = self._node.opaque or why
        self._node.depends |= set(range(self._index))
        self._state.anything.add(self._index)
        for state in list(self._state.states):
            self._state.states[state].add(self._index)
        for name, value in list(self._state.values.items()):
            self._state.bound_by.setdefault(name, set()).add(self._index)
            for token in value.every:
                self._state.changed_by.setdefault(token, set()).add(self._index)
