"""What is kept of a run so that its cell can be executed again without a model: a function of its events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from nbagent.events import (
    ActionEdited,
    ActionFinished,
    ActionProposed,
    DialectChosen,
    DialectName,
    Event,
    OutputAdded,
    Reason,
    RunFinished,
    RunStarted,
    Thought,
    Undone,
)
from nbagent.same_outputs import digest_of, is_masked
from nbagent.tools.answer import FinalAnswer

#: Endings that another execution of the same code comes to again.
RECORDED: frozenset[Reason] = frozenset(
    {"answered", "max_steps", "max_seconds", "max_tokens", "max_cost", "repeating", "no_progress", "empty_replies"}
)


class RecordedAction(BaseModel):
    """One action that ran: `arguments` as they were at last, `outputs` as a hash of what is compared."""

    model_config = ConfigDict(frozen=True)

    tool: str
    arguments: str
    status: Literal["ok", "error", "invalid"]
    outputs: str


class RecordedStep(BaseModel):
    """One step; actions that were denied, stopped or timed out are not in it."""

    model_config = ConfigDict(frozen=True)

    thought: str = ""
    raw: str = ""
    actions: list[RecordedAction] = Field(default_factory=list)


class Record(BaseModel):
    """One run. It may come from a stranger: what it says is shown and its code is graded like any other."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    key: str  #: of the cell: see `notebook.replay`
    recorded: datetime
    model: str
    label: str = ""
    dialect: DialectName
    steps: list[RecordedStep] = Field(max_length=10_000)
    reason: Reason
    answer: str = ""
    message: str = ""

    @property
    def whole(self) -> bool:
        """Whether the code is as it ran; a secret that was masked in it is gone."""
        return not any(is_masked(action.arguments) for step in self.steps for action in step.actions)


def record_of(key: str, run: Sequence[Event]) -> Record | None:
    """Make the record of one run's events; None where it is not worth repeating."""
    started = next((event for event in run if isinstance(event, RunStarted)), None)
    finished = next((event for event in run if isinstance(event, RunFinished)), None)
    dialects = [event.dialect for event in run if isinstance(event, DialectChosen)]
    if started is None or finished is None or not dialects or finished.reason not in RECORDED:
        return None
    if any(isinstance(event, Undone) for event in run):
        return None
    numbers = sorted({event.step for event in run if event.step})
    steps = [_step([event for event in run if event.step == number]) for number in numbers]
    return Record(
        key=key,
        recorded=datetime.fromtimestamp(finished.time, UTC).replace(microsecond=0),
        model=started.model,
        label=started.label,
        dialect=dialects[-1],
        steps=[step for step in steps if step is not None],
        reason=finished.reason,
        answer=finished.answer,
        message=finished.message,
    )


def _step(events: Sequence[Event]) -> RecordedStep | None:
    """Record one step; None where nothing of it is to be done again."""
    thoughts = [event for event in events if isinstance(event, Thought)]
    proposed = [event for event in events if isinstance(event, ActionProposed)]
    actions = [made for event in proposed if (made := _action(event, events)) is not None]
    if not actions and any(event.tool != FinalAnswer.name for event in proposed):
        return None
    thought = thoughts[-1] if thoughts else Thought(text="")
    return RecordedStep(thought=thought.text, raw=thought.raw, actions=actions)


def _action(proposed: ActionProposed, events: Sequence[Event]) -> RecordedAction | None:
    about = [event for event in events if event.call_id == proposed.call_id]
    ended = next((event for event in about if isinstance(event, ActionFinished)), None)
    if ended is None or ended.status not in ("ok", "error", "invalid") or proposed.tool == FinalAnswer.name:
        return None
    edited = [event.arguments for event in about if isinstance(event, ActionEdited)]
    return RecordedAction(
        tool=proposed.tool,
        arguments=edited[-1] if edited else proposed.arguments,
        status=ended.status,
        outputs=digest_of(event.output for event in about if isinstance(event, OutputAdded)),
    )


def from_values(values: object) -> Record:
    """Read a record from JSON's values. Raises `ValueError` with one line that says what is wrong with it."""
    try:
        return Record.model_validate(values)
    except ValueError as error:
        raise ValueError(" ".join(str(error).split("\n")[1:3]) or "it is no record") from None
