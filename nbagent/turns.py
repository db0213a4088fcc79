"""What a conversation is made of: the tasks that were given and the steps that were taken, as values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nbagent.protocols import Dialect, Observation
from nbagent.reply import Action

#: A rough but safe ratio for prose, code and numbers when no tokenizer is at hand.
BYTES_PER_TOKEN = 3.0
#: What a picture costs, whatever its size in bytes: servers scale it down to tiles.
IMAGE_TOKENS = 1000

Message = dict[str, Any]


@dataclass(slots=True)
class Task:
    """A run as it was opened: `text` is the message, `task` the user's own words in it."""

    text: str
    task: str
    ending: str = ""  #: the answer, or how it ended without one

    def messages(self) -> list[Message]:
        """Give the user message that opens the run."""
        return [{"role": "user", "content": self.text}]


@dataclass(slots=True)
class Step:
    """A closed step: each of its calls has its observation."""

    dialect: Dialect
    thought: str
    raw: str  #: the reply as it stays in the history, in the text dialects
    actions: Sequence[Action]
    observations: Sequence[Observation]
    notes: Sequence[str] = field(default_factory=tuple)  #: our words to the model, after the observations

    def messages(self) -> list[Message]:
        """Give the reply, what was observed and the notes."""
        told = list(self.observations)
        if told and self.notes:
            last = told[-1]
            told[-1] = replace(last, text="\n".join([last.text, *self.notes]))
        messages: list[Message] = []
        if self.thought or self.raw or self.actions:
            messages.append(self.dialect.assistant(self.thought, self.raw, self.actions))
        if told:
            messages += self.dialect.observations(told)
        else:
            messages += [{"role": "user", "content": note} for note in self.notes]
        return messages

    def in_dialect(self, dialect: Dialect) -> Step:
        """Give the same step as another dialect says it."""
        return self if dialect.name == self.dialect.name else replace(self, dialect=dialect, raw="")

    def without_figures(self) -> Step:
        """Give the same step in words only."""
        return replace(self, observations=[replace(seen, images=()) for seen in self.observations])

    def with_observations(self, shorter: dict[str, str]) -> Step:
        """Give the same step with other texts of what was observed, by call id."""
        observations = [
            Observation(seen.call_id, seen.tool, shorter[seen.call_id]) if seen.call_id in shorter else seen
            for seen in self.observations
        ]
        return replace(self, observations=observations)


Turn = Task | Step


def tokens_of(turn: Turn) -> int:
    """Estimate what a turn takes of the window."""
    return sum(message_tokens(message) for message in turn.messages())


def message_tokens(message: Message) -> int:
    """Estimate what a message takes of the window; a picture counts as one, not as its bytes."""
    return encoded_tokens(message, len(encode(message)))


def encoded_tokens(message: Message, size: int) -> int:
    """Do the same where the number of bytes is known."""
    images = 0
    for address in _pictures(message):
        size -= len(address)
        images += 1
    return int((size + 1) / BYTES_PER_TOKEN) + 1 + images * IMAGE_TOKENS


def _pictures(message: Message) -> Iterator[str]:
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "image_url":
            yield str(part.get("image_url", {}).get("url", ""))


def encode(value: dict[str, Any]) -> bytes:
    """Write a value as the JSON that is sent."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
