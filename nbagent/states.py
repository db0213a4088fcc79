"""Events about the kernel's states: kept before code runs, and gone back to. Values only, like `events`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nbagent.event_base import Event


class CheckpointMade(Event):
    """The kernel's state before this action's code was kept under `mark`."""

    type: Literal["CheckpointMade"] = "CheckpointMade"
    mark: str


class CheckpointDeclined(Event):
    """The kernel's state before this action's code was not kept; `why` completes "there is no checkpoint: "."""

    type: Literal["CheckpointDeclined"] = "CheckpointDeclined"
    why: str


class StateLost(Event):
    """The kernel's variables are gone; `names` are those that were known.

    Where an earlier state was gone back to, `restored` is its mark, and what was there before it is there again.
    """

    type: Literal["StateLost"] = "StateLost"
    names: list[str]
    restored: str = ""


class Replaced(Event):
    """Code in the user's own kernel (kind `live`) rebound, deleted or shadowed these names of theirs."""

    type: Literal["Replaced"] = "Replaced"
    names: list[str]


class Undone(Event):
    """The last actions that ran code or changed files were undone.

    `actions` are the numbers (`seq`) of their `ActionStarted`.
    """

    type: Literal["Undone"] = "Undone"
    actions: list[int]
    #: A kept state was gone back to; the cells before run again; or the kernel had no part in it.
    how: Literal["checkpoint", "rerun", "files"]
    message: str  #: what the model is told with the next task
    back: list[str] = Field(default_factory=list)  #: names of variables that are as they were
    gone: list[str] = Field(default_factory=list)  #: names of variables that are not there any more
    files: str = ""  #: what became of the files that they changed, in words
    note: str = ""  #: what is to know besides, for people


StateEvent = CheckpointMade | CheckpointDeclined | StateLost | Replaced | Undone
