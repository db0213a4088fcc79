"""Events of what goes on beside the steps: questions aside, compaction, reflection, the plan.

Values only. The log rebuilds every request from these too: an aside from its `AsideAsked`, and what was
sent after a compaction from its `Compacted`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nbagent.event_base import Event, Usage

Purpose = Literal["summary", "reflection", "plan", "sum_up"]


class AsideAsked(Event):
    """The model is asked something beside the conversation, which stays as it is.

    The request is the conversation's next one with `question` as one more user message; `parameters` stand in
    the place of the fields of the same name, and a field that is None is left out.
    """

    type: Literal["AsideAsked"] = "AsideAsked"
    purpose: Purpose
    question: str
    parameters: dict[str, Any]


class AsideAnswered(Event):
    """What came back: `text` is empty and `failed` says why where nothing usable came."""

    type: Literal["AsideAnswered"] = "AsideAnswered"
    purpose: Purpose
    text: str
    usage: Usage = Usage()
    failed: str = ""


class Compacted(Event):
    """The conversation had grown too long: its older steps were replaced by `note`.

    What is sent from here on: system prompt, the run's task as it was, `note`, the last `kept_steps` steps.
    """

    type: Literal["Compacted"] = "Compacted"
    kept_steps: int
    note: str  #: the exact text that the model is sent in the place of the older steps
    shortened: dict[str, str] = Field(default_factory=dict)  #: kept steps' observations, by call id
    by: Literal["model", "mechanical"]  #: who wrote the note's summary
    why: str
    tokens_before: int
    tokens_after: int


class WindowLearned(Event):
    """The model's window turned out to be another than was believed."""

    type: Literal["WindowLearned"] = "WindowLearned"
    tokens: int
    why: str  #: for people: how it was learned and what to do


class Reflected(Event):
    """The model was asked whether what was observed is enough to answer, and what else is needed."""

    type: Literal["Reflected"] = "Reflected"
    cause: Literal["failure_streak", "unsupported_answer"]
    enough: bool
    need: str
    reason: str


class PlanItem(BaseModel):
    """One line of the checklist."""

    model_config = ConfigDict(frozen=True)

    text: str
    done: bool = False


class PlanMade(Event):
    """The checklist of a run, before its work. `message` is the exact text that the model is sent of it."""

    type: Literal["PlanMade"] = "PlanMade"
    items: list[PlanItem]
    message: str
    edited: bool = False  #: the user changed it before approving


class PlanUpdated(Event):
    """The checklist as it stands now: ticked, or changed because of what was observed (`why`).

    `message` is the exact text that the model is sent of a change.
    """

    type: Literal["PlanUpdated"] = "PlanUpdated"
    items: list[PlanItem]
    why: str = ""
    message: str = ""
