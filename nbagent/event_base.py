"""What every event is made of: the closed lists of words, token counts, and the envelope.

Values only. The events themselves are in `events` (what happened) and `mind` (what the model was asked and
told beside its steps).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

SCHEMA_VERSION = 1
#: The fields of every event that are the session's own words.
ENVELOPE = {"type", "version", "seq", "time", "session", "run", "step"}

#: How one action ended. `unavailable`: the tool's breaker was open; `skipped`: an earlier action of the
#: same step made it pointless (the run was stopped, the kernel died).
ActionStatus = Literal["ok", "error", "timeout", "interrupted", "denied", "invalid", "unavailable", "skipped"]

#: Why a run ended. Only `answered` is success.
Reason = Literal[
    "answered",
    "interrupted",
    "max_steps",
    "max_seconds",
    "max_tokens",
    "max_cost",
    "repeating",
    "no_progress",
    "empty_replies",
    "denied",
    "model_error",
    "kernel_lost",
]

#: How a model expresses actions: native tool calls, one JSON object a step, or prose and a marked block.
DialectName = Literal["tools", "json", "fenced"]

#: How dangerous an action looks, mildest first.
Risk = Literal["read", "write", "overwrite", "network", "destructive"]

#: One nbformat output (stream, display_data, execute_result, error), exactly as a kernel made it.
Output = dict[str, Any]


class Usage(BaseModel):
    """Tokens of one or more model requests, and what they cost.

    `cached_tokens` are part of `prompt_tokens`, `reasoning_tokens` of `completion_tokens`. `estimated` is true
    where the server did not report all of them. `cost` is in US dollars; None where a price is not known.
    """

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """Tokens in and out."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        """Add up. A sum of which any part has no known cost has none; no tokens cost nothing."""
        parts = [part.cost for part in (self, other) if part.total_tokens or part.cost is not None]
        known = [cost for cost in parts if cost is not None]
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            estimated=self.estimated or other.estimated,
            cost=sum(known) if known and len(known) == len(parts) else None,
        )


class Event(BaseModel):
    """The envelope. The session stamps `seq`, `time`, `session`, `run` and `step` when it appends."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = ""
    version: int = SCHEMA_VERSION
    seq: int = 0
    time: float = 0.0  #: seconds since the epoch
    session: str = ""
    run: int = 0  #: 1 for the first run of the session; 0 outside a run
    step: int = 0  #: 1 for the first step of the run; 0 outside a step
    call_id: str = ""

    @model_validator(mode="before")
    @classmethod
    def _name_the_type(cls, values: Any) -> Any:
        if isinstance(values, dict) and "type" not in values:
            return {"type": cls.__name__, **values}
        return values

    @property
    def stored(self) -> bool:
        """False for deltas, which are shown only: their sum follows as an event of its own."""
        return not self.type.endswith("Delta")
