"""What comes out of a model's reply, piece by piece: values, whatever the server or dialect was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from nbagent.events import Usage


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of what the model says in the open."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """A piece of the hidden reasoning channel."""

    text: str


@dataclass(frozen=True, slots=True)
class ActionPart:
    """A readable piece of an action under way (code, or raw arguments). Never run: only shown."""

    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """One complete tool call. `arguments` is the raw string, a JSON object if the model did well."""

    call_id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Tokens of this request."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Attempt:
    """The request failed and is sent again after `wait` seconds; every part before this one is void."""

    number: int
    wait: float
    why: str


@dataclass(frozen=True, slots=True)
class Raw:
    """The reply as it stays in the history (text dialects), made-up observations cut off."""

    text: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """The reply cannot be used as it is; `correction` is the shortest useful word to the model."""

    correction: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The reply is whole. `length`: the server cut it at the token limit."""

    reason: Literal["stop", "length", "filter"]


ReplyPart = Text | ReasoningText | ActionPart | Action | UsageReport | Attempt | Raw | Malformed | Finish


def joined(parts: Iterable[ReplyPart]) -> Iterator[ReplyPart]:
    """Give the parts with those that continue each other in one: what came together is shown together."""
    last: Text | ReasoningText | ActionPart | None = None
    for part in parts:
        if isinstance(last, ActionPart) and isinstance(part, ActionPart) and last.tool == part.tool:
            last = ActionPart(last.tool, last.text + part.text)
        elif isinstance(last, Text) and isinstance(part, Text):
            last = Text(last.text + part.text)
        elif isinstance(last, ReasoningText) and isinstance(part, ReasoningText):
            last = ReasoningText(last.text + part.text)
        else:
            if last is not None:
                yield last
            last = part if isinstance(part, Text | ReasoningText | ActionPart) else None
            if last is None:
                yield part
    if last is not None:
        yield last


_SURROGATE_ESCAPES = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\u[dD][89a-fA-F][0-9a-fA-F]{2})+)")


def whole_characters(text: str) -> str:
    """Put U+FFFD for each half of a surrogate pair, which no file, page or request could hold."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_escapes(arguments: str) -> str:
    """Do the same for the escapes of a JSON text."""

    def mended(found: re.Match[str]) -> str:
        return found[1] + json.dumps(whole_characters(json.loads(f'"{found[2]}"')))[1:-1]

    return whole_characters(_SURROGATE_ESCAPES.sub(mended, arguments))
