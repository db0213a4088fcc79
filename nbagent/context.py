"""From the session log to the messages of a request.

The conversation is a function of the stored events: feeding it a log rebuilds every request that was sent,
byte for byte. Messages are serialised once and appended, so that a step costs the same at any length and
each request begins with the whole of the one before; only `Compacted` writes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from nbagent.events import (
    ActionEdited,
    ActionFinished,
    ActionProposed,
    AsideAsked,
    Compacted,
    DialectChosen,
    DialectName,
    Event,
    Nudged,
    Observed,
    PlanMade,
    PlanUpdated,
    RunFinished,
    RunStarted,
    SessionResumed,
    SessionStarted,
    StepFinished,
    StepStarted,
    Thought,
)
from nbagent.models.vision import takes_figures
from nbagent.protocols import Dialect, Observation, Request
from nbagent.reply import Action
from nbagent.turns import (
    BYTES_PER_TOKEN,
    Message,
    Step,
    Task,
    Turn,
    encode,
    encoded_tokens,
    message_tokens,
    tokens_of,
)

NOT_RUN = "This action was not run: the run was stopped before it."


class Conversation:
    """The messages of a session. `add` every stored event in order; `request` whenever one is to be sent.

    A request was sent after each `StepStarted`, and after a `Compacted` within a step; an aside's after each
    `AsideAsked`.
    """

    def __init__(self, dialect_named: Callable[[DialectName], Dialect]) -> None:
        self._dialect_named = dialect_named
        self._dialect: Dialect | None = None
        self._fields: dict[str, Any] = {}
        self._system = b""
        self._head = b""
        self._messages = bytearray()
        self._tokens = 0  #: of the messages
        self._last_user: tuple[int, str] | None = None
        self._model = ""
        self._pending = _PendingStep()
        self._task: Task | None = None
        self._asked: AsideAsked | None = None
        self._opening = ""
        self._must_act = False  #: the reply has to be an action: nothing was run yet, or what was run failed
        self.nonce = ""  #: fences data
        self.folded: list[Turn] = []  #: what a note stands for, oldest first, with the task at the front
        self.front: Task | None = None  #: the task that stands before the note, once there was a compaction
        self.note = ""
        self.turns: list[Turn] = []  #: what is sent as it was, oldest first

    @property
    def estimated_tokens(self) -> int:
        """About how many tokens the next request holds."""
        return self.head_tokens + self._tokens

    @property
    def head_tokens(self) -> int:
        """About how many of them are the system prompt, the tools and the other fields."""
        return int(len(self._head) / BYTES_PER_TOKEN)

    @property
    def dialect(self) -> DialectName:
        """How the model expresses actions now."""
        return self._dialect.name if self._dialect is not None else "tools"

    @property
    def task(self) -> Task | None:
        """The task of the run under way."""
        return self._task

    def add(self, event: Event) -> None:
        """Take note of one event."""
        match event:
            case SessionStarted() | SessionResumed():
                self.nonce = event.nonce
            case RunStarted():
                self._close_step()
                self._model = event.model
                if not takes_figures(event.model, event.settings.get("vision", "auto")):
                    self._leave_figures_out()
                self._take(Task(event.message, event.task))
                self._must_act = True
            case DialectChosen():
                self._choose(event)
            case StepStarted():
                self._close_step()
            case Thought():
                self._pending.thought, self._pending.raw = event.text, event.raw
            case ActionProposed():
                self._pending.actions[event.call_id] = Action(event.call_id, event.tool, event.arguments)
            case ActionEdited():
                # Of a torn log the line of the call itself may be lost.
                if (edited := self._pending.actions.get(event.call_id)) is not None:
                    self._pending.actions[event.call_id] = Action(event.call_id, edited.tool, event.arguments)
                    self._pending.edited = True
            case ActionFinished():
                self._must_act = event.status in ("error", "invalid", "timeout")
            case Observed():
                self._pending.observed[event.call_id] = event
            case Nudged():
                self._pending.notes.append(event.text)
            case PlanMade() | PlanUpdated():
                self._pending.notes += filter(None, [event.message])
            case StepFinished() | RunFinished():
                self._close_step()
                if isinstance(event, RunFinished) and event.summary and self._dialect is not None:
                    self._take(
                        Step(self._dialect, f"(unfinished, {event.reason}) {event.summary}", "", [], [], ())
                    )
                if isinstance(event, RunFinished) and (task := self.task) is not None:
                    task.ending = event.answer or event.message
            case Compacted():
                self._compact(event)
            case AsideAsked():
                self._close_step()  # what was said of the last step belongs to what is asked about
                self._asked = event
            case _:
                pass

    def request(self) -> Request:
        """Build the next request."""
        if not (self._opening and self._must_act):
            return Request(b"".join((self._head, self._messages, b"]}")))
        begun = encode({"role": "assistant", "content": self._opening})
        return Request(b"".join((self._head, self._messages, b",", begun, b"]}")), self._opening)

    def aside(self) -> Request:
        """Build the request of the aside that was asked last; the conversation stays as it is."""
        assert self._asked is not None
        fields = {**self._fields, **self._asked.parameters}
        messages, last_user = bytes(self._messages), self._last_user
        kept = self._tokens
        self._append_user(self._asked.question)
        body = b"".join((self._head_of(fields), self._messages, b"]}"))
        self._messages, self._last_user, self._tokens = bytearray(messages), last_user, kept
        return Request(body)

    def observed(self) -> Iterator[str]:
        """Give all that the model was shown: tasks with their context, observations, notes."""
        for turn in [*self.folded, *self.turns]:
            if isinstance(turn, Step):
                yield from (seen.text for seen in turn.observations)
            else:
                yield turn.text
        yield self.note

    def takes(self, field: str) -> bool:
        """Whether the server takes a field of a request, as far as is known."""
        return self._fields.get(field, "") is not None

    def settle(self) -> None:
        """Close what is open, so that `turns` is all that the next request says."""
        self._close_step()

    # -- the head --

    def _choose(self, event: DialectChosen) -> None:
        self._dialect = dialect = self._dialect_named(event.dialect)
        self._opening = event.opening
        self._fields = {
            "model": self._model,
            "stream": True,
            "stream_options": {"include_usage": True},
            **event.parameters,
        }
        self._system = encode({"role": "system", "content": event.system})
        self._head = self._head_of(self._fields)
        if any(isinstance(turn, Step) and turn.dialect.name != dialect.name for turn in self.turns):
            # A server that knows no tools refuses the calls of earlier steps, too.
            self.turns = [turn.in_dialect(dialect) if isinstance(turn, Step) else turn for turn in self.turns]
            self._write_anew()

    def _leave_figures_out(self) -> None:
        """Forget figures that another model was sent: one that does not see refuses them."""
        if any(seen.images for turn in self.turns if isinstance(turn, Step) for seen in turn.observations):
            self.turns = [turn.without_figures() if isinstance(turn, Step) else turn for turn in self.turns]
            self._write_anew()

    def _head_of(self, fields: dict[str, Any]) -> bytes:
        # The messages come last, so that the whole of an earlier request is the beginning of a later one.
        fields = {name: value for name, value in fields.items() if value is not None}
        return encode(fields)[:-1] + b',"messages":[' + self._system

    # -- the messages --

    def _take(self, turn: Turn) -> None:
        if isinstance(turn, Task):
            self._task = turn
        self.turns.append(turn)
        self._write(turn)

    def _write(self, turn: Turn) -> None:
        for message in turn.messages():
            if message["role"] == "user" and isinstance(message["content"], str):
                self._append_user(message["content"])
            else:
                self._append(message)

    def _append(self, message: Message) -> None:
        start = len(self._messages)
        encoded = encode(message)
        self._messages += b"," + encoded
        self._tokens += encoded_tokens(message, len(encoded))
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
            self._tokens -= message_tokens({"role": "user", "content": before})
            text = f"{before}\n\n{text}"
        self._append({"role": "user", "content": text})

    def _close_step(self) -> None:
        """Write the pending step down: each call with its answer, nothing empty, notes at the end."""
        pending, self._pending = self._pending, _PendingStep()
        if pending.is_empty or self._dialect is None:
            return
        actions = list(pending.actions.values())
        not_run = Observed(text=NOT_RUN)
        observations = [
            Observation(action.call_id, action.tool, seen.text, tuple(seen.images))
            for action in actions
            for seen in [pending.observed.get(action.call_id, not_run)]
        ]
        raw = "" if pending.edited else pending.raw
        self._take(Step(self._dialect, pending.thought, raw, actions, observations, tuple(pending.notes)))

    # -- compaction --

    def _compact(self, event: Compacted) -> None:
        self._close_step()
        self.folded, self.front, self.turns = self.split(event.kept_steps)
        if self.turns and isinstance(last := self.turns[-1], Step):
            self.turns[-1] = last.with_observations(event.shortened)
        self.note = event.note
        self._write_anew()

    def _write_anew(self) -> None:
        self._messages, self._tokens, self._last_user = bytearray(), 0, None
        if self.front is not None:
            self._write(self.front)
        if self.note:
            self._append_user(self.note)
        for turn in self.turns:
            self._write(turn)

    def split(self, kept_steps: int) -> tuple[list[Turn], Task | None, list[Turn]]:
        """Give what a compaction folds, the task that stays in front, and the last steps, which stay whole."""
        position = max((at for at, turn in enumerate(self.turns) if isinstance(turn, Task)), default=-1)
        steps = self.turns[position + 1 :]
        kept = steps[max(0, len(steps) - kept_steps) :]
        folded = [*self.folded, *self.turns[: len(self.turns) - len(kept)]]
        return folded, self.task, kept

    def tokens_after(self, event: Compacted) -> int:
        """About how many tokens the next request will hold once `event` is added."""
        _, task, kept = self.split(event.kept_steps)
        turns: list[Turn] = [*kept]
        if turns and isinstance(last := turns[-1], Step):
            turns[-1] = last.with_observations(event.shortened)
        if task is not None:
            turns.append(task)
        note = message_tokens({"role": "user", "content": event.note})
        return self.head_tokens + note + sum(map(tokens_of, turns))

    def fixed_tokens(self) -> int:
        """About how many tokens no compaction takes away: the head and the task."""
        return self.head_tokens + (0 if self.task is None else tokens_of(self.task))


class _PendingStep:
    """What the open step has so far."""

    def __init__(self) -> None:
        self.thought = ""
        self.raw = ""
        self.actions: dict[str, Action] = {}
        self.observed: dict[str, Observed] = {}
        self.notes: list[str] = []
        self.edited = False

    @property
    def is_empty(self) -> bool:
        return not (self.thought or self.raw or self.actions or self.notes)
