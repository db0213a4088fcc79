"""Which of the user's variables are in the agent's kernel, and bringing those that code is about to use.

A variable is copied once, when it is first needed; again only when the user has bound the name anew. What the
agent bound itself is never replaced by the user's variable of the same name.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from functools import partial

from nbagent.errors import TransferError
from nbagent.events import Shared
from nbagent.protocols import Executed, ToolContext
from nbagent.tools.source import parse


class Sharing:
    """What was copied from the user's kernel, for as long as the session lives."""

    def __init__(self) -> None:
        self._brought: dict[str, int] = {}  # name -> identity of the user's object that was copied
        self._own: set[str] = set()  # names that the agent's code bound

    async def bring(self, name: str, context: ToolContext) -> str:
        """Copy one variable and record it; give its summary. Raises `TransferError`."""
        host = context.host
        assert host is not None
        folder = context.session_folder / "shared"
        folder.mkdir(parents=True, exist_ok=True)
        # A file of its own for each copy: an earlier Shared event still points to what was shared then.
        file = folder / f"{name}-{len(list(folder.iterdir())) + 1}.pkl"
        identity, summary = await host.call(lambda: (host.identity(name), host.dump(name, file)))
        await context.kernel.bring(name, file)
        self._brought[name] = identity
        self._own.discard(name)
        context.emit(Shared(name=name, summary=summary, file=str(file)))
        return summary

    async def bring_needed(self, code: str, context: ToolContext) -> list[str]:
        """Copy what `code` uses of the user's and the kernel does not have; say what was copied, or why not."""
        host = context.host
        if host is None:
            return []
        used = [name for name in needs(code) if name not in self._own]
        if not used:
            return []
        users = {variable.name for variable in await host.call(host.variables)}
        told = []
        for name in used:
            if name not in users:
                continue
            if self._brought.get(name) == await host.call(partial(host.identity, name)):
                continue
            try:
                summary = await self.bring(name, context)
                told.append(f"{name} was copied from the user's kernel: {summary}.")
            except TransferError as error:
                told.append(f"{name} could not be copied from the user's kernel: {error}")
        return told

    def executed(self, code: str, executed: Executed) -> None:
        """Take note of what an execution bound or lost."""
        if executed.state_lost:
            self._brought.clear()
            self._own.clear()
            return
        bound = {variable.name for variable in executed.changes} & set(_stored(code))
        for name in (*bound, *executed.gone):
            self._brought.pop(name, None)
        self._own |= bound
        self._own -= set(executed.gone)


def needs(code: str) -> list[str]:
    """Give the names that `code` reads before its top level binds them, in order; builtins are left out."""
    try:
        tree = parse(code)
    except SyntaxError:
        return []
    bound: set[str] = set(vars(builtins))
    found: dict[str, None] = {}
    for statement in tree.body:
        read = [
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        ]
        inner = set(_bound_inside(statement))
        found.update(dict.fromkeys(name for name in read if name not in bound and name not in inner))
        bound |= set(_stored_in(statement))
    return list(found)


def _bound_inside(statement: ast.stmt) -> Iterator[str]:
    """Names that are local to functions, lambdas and comprehensions of a statement."""
    for node in ast.walk(statement):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.comprehension):
            yield from (name.id for name in ast.walk(node.target) if isinstance(name, ast.Name))


def _stored(code: str) -> Iterator[str]:
    try:
        tree = parse(code)
    except SyntaxError:
        return
    for statement in tree.body:
        yield from _stored_in(statement)


def _stored_in(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
