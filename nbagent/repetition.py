"""Tells a run that is stuck from one that works: what was done before, and what was seen before.

Two actions are the same where only key order, white space or comments differ; two results where only
addresses and timings do. An action that changes variables or files is not repetition, and one that waits
(it sleeps, then looks) is polling, which is honest work for much longer.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nbagent.reply import Action

#: Longest cycle of different steps that is recognised when it repeats.
LONGEST_CYCLE = 3

#: Characters up to which the same result may say something else about another action.
SHORT_RESULT = 120

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
_TIMING = re.compile(r"^(CPU times|Wall time|.* per loop \(mean).*$", re.MULTILINE)
_WAITS = {"sleep", "wait", "wait_for"}
_SHELL_WAIT = re.compile(r"(^|[;&|!\s])(sleep|wait)\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Done:
    """One action with its result, as far as repetition goes."""

    what: bytes
    result: bytes
    changes: bytes  #: empty where it changed nothing

    def again(self, earlier: Done) -> bool:
        """Whether this is `earlier` once more: it changed nothing, or the same again."""
        return (self.what, self.result) == (earlier.what, earlier.result) and self.changes in (
            b"",
            earlier.changes,
        )


@dataclass(slots=True)
class History:
    """The actions of one run."""

    _done: list[Done] = field(default_factory=list)
    _seen: set[bytes] = field(default_factory=set)

    def add(self, action: Action, result: str, changes: str, *, failed: bool) -> bool:
        """Take note of an action; say whether it brought anything that was not seen before.

        A short result (`True`, `12`, `[figure: 640x480 png]`) of another action may well be news; an error or a
        long text that was shown already is none, whatever gave it.
        """
        done = Done(_digest(signature(action)), _digest(_lasting(result)), _digest(changes) if changes else b"")
        self._done.append(done)
        told = done.result if failed or len(result) > SHORT_RESULT else done.what + done.result
        seen = {part for part in (told if result.strip() else b"", done.changes) if part}
        new = seen - self._seen
        self._seen |= seen
        return bool(new)

    def repeats(self) -> tuple[int, int]:
        """Give how often the latest cycle of actions stands at the end of the run, and its length."""
        best = (1, 1)
        for period in range(1, LONGEST_CYCLE + 1):
            cycle = self._done[-period:]
            if len(cycle) < period:
                break
            count = 1
            while _again(cycle, self._done[-(count + 1) * period : -count * period]):
                count += 1
            if count > best[0]:
                best = (count, period)
        return best


def _again(cycle: Sequence[Done], earlier: Sequence[Done]) -> bool:
    return len(cycle) == len(earlier) and all(one.again(other) for one, other in zip(cycle, earlier, strict=True))


def signature(action: Action) -> str:
    """What makes two actions the same: key order, white space and comments do not count."""
    try:
        arguments = json.loads(action.arguments)
    except ValueError:
        return f"{action.tool} {action.arguments.strip()}"
    if isinstance(arguments, dict) and isinstance(arguments.get("code"), str):
        tree = _tree(arguments["code"])
        arguments = {**arguments, "code": " ".join(arguments["code"].split()) if tree is None else ast.dump(tree)}
    return f"{action.tool} {json.dumps(arguments, sort_keys=True)}"


def waits(action: Action) -> bool:
    """Say whether an action lets time pass before it looks, as polling does."""
    try:
        arguments = json.loads(action.arguments)
    except ValueError:
        return False
    texts = [text for text in arguments.values() if isinstance(text, str)] if isinstance(arguments, dict) else []
    return any(_waits(text) for text in texts)


def _waits(code: str) -> bool:
    tree = _tree(code)
    if tree is None:
        return bool(_SHELL_WAIT.search(code))
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = (getattr(function, "attr", getattr(function, "id", "")) for function in called)
    return any(name in _WAITS for name in names)


def _tree(code: str) -> Any:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _lasting(result: str) -> str:
    """The result without what differs each time although nothing is new."""
    return _TIMING.sub("", _ADDRESS.sub("0x", result))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
