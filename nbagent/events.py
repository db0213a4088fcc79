"""The event vocabulary: one typed fact in the session log.

Everything that happens is one, appended to the log before it is shown; all else is a function of the log.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nbagent.event_base import SCHEMA_VERSION as SCHEMA_VERSION
from nbagent.event_base import ActionStatus as ActionStatus
from nbagent.event_base import DialectName as DialectName
from nbagent.event_base import Event as Event
from nbagent.event_base import Output as Output
from nbagent.event_base import Reason as Reason
from nbagent.event_base import Risk as Risk
from nbagent.event_base import Usage as Usage
from nbagent.event_provenance import DataFile as DataFile
from nbagent.event_provenance import DataFilesSeen as DataFilesSeen
from nbagent.event_provenance import PackagesImported as PackagesImported
from nbagent.event_provenance import ProvenanceEvent
from nbagent.event_provenance import UsersCells as UsersCells
from nbagent.mind import AsideAnswered as AsideAnswered
from nbagent.mind import AsideAsked as AsideAsked
from nbagent.mind import Compacted as Compacted
from nbagent.mind import PlanItem as PlanItem
from nbagent.mind import PlanMade as PlanMade
from nbagent.mind import PlanUpdated as PlanUpdated
from nbagent.mind import Reflected as Reflected
from nbagent.mind import WindowLearned as WindowLearned
from nbagent.states import CheckpointDeclined as CheckpointDeclined
from nbagent.states import CheckpointMade as CheckpointMade
from nbagent.states import Replaced as Replaced
from nbagent.states import StateEvent
from nbagent.states import StateLost as StateLost
from nbagent.states import Undone as Undone


class SessionStarted(Event):
    """A session was opened by a host process."""

    type: Literal["SessionStarted"] = "SessionStarted"
    nonce: str  #: fences data in observations, so that text in data cannot pose as ours
    versions: dict[str, str]  #: of nbagent, Python, the packages that matter for a re-run
    folder: str  #: where the kernel works


class SessionResumed(Event):
    """Another host process goes on with the session; its kernel, if any, is a new one."""

    type: Literal["SessionResumed"] = "SessionResumed"
    nonce: str
    versions: dict[str, str]
    folder: str


class KernelRestored(Event):
    """Cells of a resumed session ran again in its new kernel. The lists hold one line each, for people."""

    type: Literal["KernelRestored"] = "KernelRestored"
    ran: int  #: cells that ran again
    left_out: list[str] = Field(default_factory=list)  #: cells that did not, and why
    differs: list[str] = Field(default_factory=list)  #: what came out otherwise than the first time
    missing: list[str] = Field(default_factory=list)  #: names of variables that are not there now


class RunStarted(Event):
    """The user gave a task. `message` is the exact text that the model is sent for it."""

    type: Literal["RunStarted"] = "RunStarted"
    task: str
    message: str
    model: str
    host: str = ""  #: scheme and host that the requests go to
    label: str = ""  #: a caveat to show beside the answer, e.g. "local 1.5B: check it"
    notes: list[str] = Field(default_factory=list)  #: what the user is told once, at the beginning
    settings: dict[str, Any] = Field(default_factory=dict)


class Replayed(Event):
    """Recorded code gave, when it ran again, something else than was recorded; one line a place."""

    type: Literal["Replayed"] = "Replayed"
    differs: list[str]


class DialectChosen(Event):
    """How the model expresses actions from here on, with everything in a request but its messages."""

    type: Literal["DialectChosen"] = "DialectChosen"
    dialect: DialectName
    why: str
    system: str
    parameters: dict[str, Any]
    opening: str = ""  #: begins each reply that must be an action


class StepStarted(Event):
    """One turn of the loop begins: a request is being sent."""

    type: Literal["StepStarted"] = "StepStarted"


class ThoughtDelta(Event):
    """More of the thought, as it arrives."""

    type: Literal["ThoughtDelta"] = "ThoughtDelta"
    text: str


class Thought(Event):
    """What the model said while working, or to end the run.

    `raw` is its reply as it stays in the history, where that differs from `text` (the text dialects).
    """

    type: Literal["Thought"] = "Thought"
    text: str
    raw: str = ""


class ReasoningDelta(Event):
    """More of the model's hidden reasoning channel, as it arrives."""

    type: Literal["ReasoningDelta"] = "ReasoningDelta"
    text: str


class Reasoning(Event):
    """What came over the model's hidden reasoning channel in this step."""

    type: Literal["Reasoning"] = "Reasoning"
    text: str


class ActionDelta(Event):
    """More of an action's code or arguments, readable, as it arrives."""

    type: Literal["ActionDelta"] = "ActionDelta"
    tool: str
    text: str


class ActionProposed(Event):
    """The model asked for a tool call; `arguments` is the raw string that it sent."""

    type: Literal["ActionProposed"] = "ActionProposed"
    tool: str
    arguments: str


class ActionEdited(Event):
    """The user changed the arguments before approving; these are the ones that run."""

    type: Literal["ActionEdited"] = "ActionEdited"
    arguments: str


class ApprovalAsked(Event):
    """The user is asked whether this action may run. `request` ties the answer to the question."""

    type: Literal["ApprovalAsked"] = "ApprovalAsked"
    request: str
    tool: str
    code: str
    risk: Risk
    why: str
    always: str = ""  #: what a yes for always would allow, in words; "" where that is not offered
    session_wide: str = ""  #: the same of a yes for the whole session


class ApprovalGiven(Event):
    """The answer: `by` is `user`, `nobody` (no one was there, or no answer came) or `rule`."""

    type: Literal["ApprovalGiven"] = "ApprovalGiven"
    request: str
    approved: bool
    by: Literal["user", "nobody", "rule"]
    note: str = ""
    always: str = ""  #: "pattern" or "session" where the yes is for more than this action


class ActionStarted(Event):
    """The action runs now. `code` is what the kernel gets, for tools that run code."""

    type: Literal["ActionStarted"] = "ActionStarted"
    tool: str
    arguments: dict[str, Any]
    code: str = ""
    risk: Risk = "read"


class OutputAdded(Event):
    """The kernel made one output. Consecutive stream outputs of one name belong together."""

    type: Literal["OutputAdded"] = "OutputAdded"
    output: Output


class ActionFinished(Event):
    """The action ended, however it did: with what came before it, the audit record of each call."""

    type: Literal["ActionFinished"] = "ActionFinished"
    status: ActionStatus
    seconds: float
    execution_count: int | None = None
    summary: str = ""  #: one line for people, e.g. "NameError: name 'df' is not defined"
    tool: str = ""
    risk: Risk | None = None  #: None: it was answered before it was graded
    answered_by: str = ""  #: the link of the gateway's chain that gave the result
    approved_by: str = ""  #: user, rule or nobody; "" where nothing had to be asked
    attempts: int = 0
    cached: bool = False


class Observed(Event):
    """The exact text that the model is sent for one action."""

    type: Literal["Observed"] = "Observed"
    text: str
    images: list[dict[str, str]] = Field(default_factory=list)  #: sent with it, each as `{kind: base64}`


class StepFinished(Event):
    """The step is over."""

    type: Literal["StepFinished"] = "StepFinished"
    usage: Usage
    seconds: float
    first_token_seconds: float | None = None


class Nudged(Event):
    """A guard told the model something; `text` is the exact line it is sent."""

    type: Literal["Nudged"] = "Nudged"
    guard: str
    text: str


class Retrying(Event):
    """The request failed and is sent again; what the broken attempt showed is void."""

    type: Literal["Retrying"] = "Retrying"
    attempt: int
    wait: float  #: seconds until the next attempt
    why: str
    aside: bool = False  #: it was a question beside the step: what the step showed still holds


class KernelStarted(Event):
    """A kernel was started for the session. `generation` grows whenever state was lost."""

    type: Literal["KernelStarted"] = "KernelStarted"
    generation: int
    kind: str
    python: str
    confinement: str  #: what holds the kernel's code, or why nothing does
    resumed: bool = False  #: the first one of a resumed session: what it holds, `KernelRestored` says


class KernelDied(Event):
    """The kernel process ended; `why` names its exit code or signal."""

    type: Literal["KernelDied"] = "KernelDied"
    why: str


class Shared(Event):
    """A variable of the user's was copied into the agent's kernel. `file` holds it for a re-run."""

    type: Literal["Shared"] = "Shared"
    name: str
    summary: str
    file: str


class FileChange(BaseModel):
    """What one action did to one file. `path` is relative to the session's folder where the file lies in it."""

    model_config = ConfigDict(frozen=True)

    path: str
    change: Literal["made", "changed", "deleted"]
    before: str = ""  #: name of the copy of what stood there, within `files` of the session folder; "" for none
    mode: int = 0  #: permissions that the file had before
    after: str = ""  #: size and time of what stands there since; "" where the file is gone
    no_copy: str = ""  #: why there is no copy of what stood there


class FilesChanged(Event):
    """An action, or an undo, made, changed or deleted files."""

    type: Literal["FilesChanged"] = "FilesChanged"
    changes: list[FileChange]


class Adopted(Event):
    """A variable of the agent's kernel was copied into the user's."""

    type: Literal["Adopted"] = "Adopted"
    name: str
    summary: str


class RunFinished(Event):
    """The run ended. `answer` is empty unless the reason is `answered`.

    `summary` is what the model said of unfinished work when a limit ended the run: no answer.
    """

    type: Literal["RunFinished"] = "RunFinished"
    reason: Reason
    answer: str = ""
    message: str = ""  #: one line for people: what stopped it and what to do
    summary: str = ""
    usage: Usage = Usage()
    steps: int = 0
    seconds: float = 0.0


class UnknownEvent(Event):
    """An event that a newer nbagent wrote: kept, and skipped by every view."""


AnyEvent = (
    SessionStarted
    | SessionResumed
    | KernelRestored
    | RunStarted
    | Replayed
    | DialectChosen
    | StepStarted
    | ThoughtDelta
    | Thought
    | ReasoningDelta
    | Reasoning
    | ActionDelta
    | ActionProposed
    | ActionEdited
    | ApprovalAsked
    | ApprovalGiven
    | ActionStarted
    | OutputAdded
    | ActionFinished
    | Observed
    | StepFinished
    | Nudged
    | Retrying
    | KernelStarted
    | KernelDied
    | Shared
    | FilesChanged
    | ProvenanceEvent
    | Adopted
    | StateEvent
    | RunFinished
    | AsideAsked
    | AsideAnswered
    | Compacted
    | WindowLearned
    | Reflected
    | PlanMade
    | PlanUpdated
)

_adapter: TypeAdapter[Event] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="type")])


def to_json(event: Event) -> str:
    """Write one event as one line of JSON that is valid UTF-8 (a lone surrogate becomes "?")."""
    text = json.dumps(event.model_dump(mode="python"), ensure_ascii=False, separators=(",", ":"), allow_nan=True)
    return text.encode("utf-8", "replace").decode("utf-8")


def from_json(line: str) -> Event:
    """Read one event.

    Raises:
        ValueError: the line is not a JSON object with a `type` and this schema's fields.
    """
    values = json.loads(line)
    if not isinstance(values, dict) or not isinstance(values.get("type"), str):
        raise ValueError("not an event")
    try:
        return _adapter.validate_python(values)
    except ValidationError as error:
        if error.errors()[0]["type"] == "union_tag_invalid":
            return UnknownEvent.model_validate(values)
        raise
