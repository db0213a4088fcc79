"""What names meant before each step of the agent's in the user's own kernel, and what the steps made of them.

Undo touches only what the steps touched, and of that only what the user has left as it was. Values that were
changed in place come back where they were cheap to copy before.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import Any

from nbagent.errors import CheckpointDeclined
from nbagent.kernels.kept_values import copy_of, differs
from nbagent.kernels.probe import is_a_variable, token_of
from nbagent.protocols import WentBack

_WORD = re.compile(r"\w+")
_NOTHING = object()

KEPT = 5  #: states of the names that are kept: each may keep an object alive that is bound no more

Names = dict[str, Any]
Tokens = dict[str, tuple[Any, ...]]  #: what can be seen of each value from outside


def users(names: Names) -> Names:
    """Give the names that are somebody's variables."""
    there = list(names.items())
    return {name: value for name, value in there if isinstance(name, str) and is_a_variable(name, value)}


@dataclass(frozen=True)
class _Left:
    """What code left of a name that it touched."""

    value: Any
    token: tuple[Any, ...]
    copy: Any

    def is_still(self, value: Any) -> bool:
        """Whether the name means that still, and the same is in it."""
        if value is not self.value or token_of(value) != self.token:
            return False
        return self.copy is None or not differs(value, self.copy)


@dataclass
class _State:
    names: Names
    tokens: Tokens = field(default_factory=dict)
    copies: dict[int, Any] = field(default_factory=dict)  #: of values, by their id
    left: dict[str, _Left | None] = field(default_factory=dict)  #: by code since; None where it took the name away

    def touched(self, name: str, value: Any) -> bool:
        """Whether a value that a name means now, or meant then, is seen to have changed inside since then."""
        copy = self.copies.get(id(value))
        return self.tokens.get(name) != token_of(value) or (copy is not None and differs(value, copy))


class LiveStates:
    """The states that are kept of one namespace."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._states: dict[str, _State] = {}

    def keep(self) -> str:
        """Keep which names mean what; give the mark of it."""
        mark = uuid.uuid4().hex[:8]
        self._states[mark] = _State(dict(self._names))
        while len(self._states) > KEPT:
            del self._states[next(iter(self._states))]
        return mark

    def has(self, mark: str) -> bool:
        """Whether it is still kept."""
        return mark in self._states

    def clear(self) -> None:
        """Let go of everything."""
        self._states.clear()

    def begin(self, tokens: Tokens, code: str) -> None:
        """Code is about to run: copy what it names."""
        if not self._states:
            return
        state = self._states[next(reversed(self._states))]
        state.tokens = state.tokens or tokens
        words = set(_WORD.findall(code))
        for name, value in users(self._names).items():
            if name in words and id(value) not in state.copies and (copy := copy_of(value)) is not None:
                state.copies[id(value)] = copy

    def ended(self, tokens: Tokens, before: Tokens) -> None:
        """Code has run; the tokens are those of now and of before it."""
        if not self._states:
            return
        state = self._states[next(reversed(self._states))]
        state.left.update((name, None) for name in before if name not in tokens)
        for name, token in tokens.items():
            value = self._names[name]
            if token != before.get(name) or state.touched(name, value):
                state.left[name] = _Left(value, token, copy_of(value))

    def go_back(self, mark: str) -> WentBack:
        """Bind the names that code has touched since to what they meant. Raises `CheckpointDeclined`."""
        if mark not in self._states:
            raise CheckpointDeclined("that checkpoint is not kept any more")
        marks = list(self._states)
        since = [self._states.pop(later) for later in marks[marks.index(mark) :]]
        then = since[0]
        left: dict[str, _Left | None] = {}
        for state in since:
            then.copies = state.copies | then.copies  # the oldest of each
            left |= state.left  # the newest of each
        back, gone, inside, yours = [], [], [], []
        for name, leaving in left.items():
            now = self._names.get(name, _NOTHING)
            if now is not _NOTHING if leaving is None else not leaving.is_still(now):
                yours.append(name)
            elif name not in then.names:
                gone.append(name)
                self._names.pop(name, None)
            else:
                value = then.names[name]
                if then.touched(name, value):
                    inside += [] if id(value) in then.copies else [name]
                    value = then.copies.get(id(value), value)
                back += [name] if now is not value else []
                self._names[name] = value
        self._states[mark] = _State(dict(self._names))
        told = [tuple(sorted(names)) for names in (back, gone, inside, yours)]
        return WentBack(told[0], told[1], inside=told[2], yours=told[3])
