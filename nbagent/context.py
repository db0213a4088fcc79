"""From the session log to the messages of a request.

The conversation is a function of the stored events: feeding it a log rebuilds every request that was sent,
byte for byte. Messages are serialised once and appended, so that a step costs the same at any length and
each request begins with the whole of the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nbagent.events import (
    ActionEdited,
    ActionProposed,
    DialectChosen,
    DialectName,
    Event,
    Nudged,
    Observed,
    RunFinished,
    RunStarted,
    StateLost,
    StepFinished,
    StepStarted,
    Thought,
)
from nbagent.protocols import Dialect, Observation, Request
from nbagent.reply import Action

#: A rough but safe ratio for prose, code and numbers when no tokenizer is at hand.
CHARACTERS_PER_TOKEN = 3.0

NOT_RUN = "This action was not run: the run was stopped before it."


class Conversation:
    """The messages of a session. `add` every stored event in order; `request` whenever one is to be sent."""

    def __init__(self, dialect_named: Callable[[DialectName], Dialect]) -> None:
        self._dialect_named = dialect_named
        self._dialect: Dialect | None = None
        self._head = b""
        self._messages = bytearray()
        self._last_user: tuple[int, str] | None = None
        self._model = ""
        self._pending = _PendingStep()

    @property
    def estimated_tokens(self) -> int:
        """About how many tokens the next request holds."""
        return int((len(self._head) + len(self._messages)) / CHARACTERS_PER_TOKEN)

    def add(self, event: Event) -> None:
        """Take note of one event."""
        match event:
            case RunStarted():
                self._close_step()
                self._model = event.model
                self._append_user(event.message)
            case DialectChosen():
                self._choose(event)
            case StepStarted():
                self._close_step()
            case Thought():
                self._pending.thought, self._pending.raw = event.text, event.raw
            case ActionProposed():
                self._pending.actions[event.call_id] = Action(event.call_id, event.tool, event.arguments)
            case ActionEdited():
                edited = self._pending.actions[event.call_id]
                self._pending.actions[event.call_id] = Action(event.call_id, edited.tool, event.arguments)
                self._pending.edited = True
            case Observed():
                self._pending.observed[event.call_id] = event.text
            case Nudged():
                self._pending.notes.append(event.text)
            case StateLost():
                pass  # the observation of the action that lost it says so
            case StepFinished() | RunFinished():
                self._close_step()
            case _:
                pass

    def request(self) -> Request:
        """Build the next request."""
        return Request(b"".join((self._head, self._messages, b"]}")))

    def _choose(self, event: DialectChosen) -> None:
        self._dialect = self._dialect_named(event.dialect)
        fields = {
            "model": self._model,
            "stream": True,
            "stream_options": {"include_usage": True},
            **event.parameters,
        }
        system = {"role": "system", "content": event.system}
        # The messages come last, so that the whole of an earlier request is the beginning of a later one.
        self._head = _encode(fields)[:-1] + b',"messages":[' + _encode(system)

    def _append(self, message: dict[str, Any]) -> None:
        start = len(self._messages)
        self._messages += b"," + _encode(message)
        content = message.get("content")
        user = message["role"] == "user" and isinstance(content, str)
        self._last_user = (start, str(content)) if user else None

    def _append_user(self, text: str) -> None:
        """Append a user message, joined to the one before if that is a user's too.

        Many chat templates insist on turns that alternate.
        """
        if self._last_user is not None:
            start, before = self._last_user
            del self._messages[start:]
            text = f"{before}\n\n{text}"
        self._append({"role": "user", "content": text})

    def _close_step(self) -> None:
        """Write the pending step down: each call with its answer, nothing empty, notes at the end."""
        step, self._pending = self._pending, _PendingStep()
        if step.is_empty or self._dialect is None:
            return
        actions = list(step.actions.values())
        raw = "" if step.edited else step.raw
        if step.thought or raw or actions:
            self._append(self._dialect.assistant(step.thought, raw, actions))
        observations = [
            Observation(action.call_id, action.tool, step.observed.get(action.call_id, NOT_RUN))
            for action in actions
        ]
        if observations and step.notes:
            last = observations[-1]
            joined = "\n".join([last.text, *step.notes])
            observations[-1] = Observation(last.call_id, last.tool, joined)
            step.notes.clear()
        for message in self._dialect.observations(observations) if observations else []:
            self._append(message)
        for note in step.notes:
            self._append_user(note)


class _PendingStep:
    """What the open step has so far."""

    def __init__(self) -> None:
        self.thought = ""
        self.raw = ""
        self.actions: dict[str, Action] = {}
        self.observed: dict[str, str] = {}
        self.notes: list[str] = []
        self.edited = False

    @property
    def is_empty(self) -> bool:
        return not (self.thought or self.raw or self.actions or self.notes)


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
