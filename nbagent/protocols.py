"""The seams: what the loop needs of a model, a dialect, a kernel, a tool, a host and a view.

Implementations live in the layer above and do not know each other; the loop is typed against these alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel

from nbagent.events import ActionStatus, DialectName, Event, Output, Risk
from nbagent.programs import ProgramEnded
from nbagent.redaction import Redactor
from nbagent.reply import Action, ReplyPart
from nbagent.tool_traits import ToolTraits

# -- model and dialect --

NO_OUTPUT = "(no output)"  #: what the model is told of an action that gave nothing


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `body` is the whole JSON object as UTF-8, built by the conversation.

    `opening` is how its last message begins the reply for the model; what is streamed goes on from there.
    """

    body: bytes
    opening: str = ""


class Model(Protocol):
    """A model behind some wire. Stateless: all it knows of the conversation is in the request."""

    name: str
    host: str  #: scheme and host that requests go to, for people
    label: str  #: a caveat to show beside its answers, or ""

    def stream(self, request: Request) -> AsyncGenerator[ReplyPart, None]:
        """Send one request and yield its reply's parts; ends with `Finish`.

        Raises:
            ModelError: no usable reply came within the limits; the message is one line for the user.
        """
        ...

    async def close(self) -> None:
        """Let go of connections (and of the embedded server)."""
        ...


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of one tool. `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """What the model is told of one action."""

    call_id: str
    tool: str
    text: str
    images: Sequence[Mapping[str, str]] = ()  #: each as `{kind: base64}`; for dialects that can send them


class Dialect(Protocol):
    """How a model expresses actions, both ways."""

    name: DialectName

    def parameters(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """Give the request fields that this dialect needs (`tools`, `response_format`, `stop`)."""
        ...

    def read(self, parts: AsyncIterator[ReplyPart], opening: str = "") -> AsyncGenerator[ReplyPart, None]:
        """Turn the wire's parts into thought, actions and, for text dialects, one `Raw` before `Finish`.

        `opening` is the beginning of the reply that the request gave.
        """
        ...

    def assistant(self, thought: str, raw: str, actions: Sequence[Action]) -> dict[str, Any]:
        """Give the history's message for a reply."""
        ...

    def observations(self, observations: Sequence[Observation]) -> list[dict[str, Any]]:
        """Give the history's messages for what was observed, in call order."""
        ...


# -- kernel --


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable as a model or a person is told of it, e.g. `left`, `DataFrame`, `(1312, 4)`."""

    name: str
    type: str
    summary: str  #: shape, length or a short value; "" where there is nothing cheap to say


@dataclass(frozen=True, slots=True)
class Executed:
    """How one execution ended. `changes` are variables that are new or differ; `gone` were deleted."""

    status: Literal["ok", "error", "timeout", "interrupted", "died"]
    seconds: float
    execution_count: int | None = None
    error: str = ""  #: "NameError: name 'df' is not defined", or how the kernel died
    state_lost: bool = False
    lost_names: tuple[str, ...] = ()
    restored: str = ""  #: mark of the checkpoint that was gone back to after the kernel's end
    back_names: tuple[str, ...] = ()  #: what is there again because of it
    changes: tuple[Variable, ...] = ()
    gone: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()  #: names of the user's, in their own kernel, that mean something else now
    table: str = ""  #: dimensions and dtypes of the table that is the last line's value
    imported: tuple[tuple[str, str], ...] = ()  #: packages that are new in the process, with their versions
    columns: tuple[str, ...] = ()  #: of the table that was asked for a column that it has not
    differences: str = ""  #: what of the user's is not in the kernel as it is in theirs; said once


@dataclass(frozen=True, slots=True)
class WentBack:
    """What going back to a checkpoint did to the variables."""

    back: tuple[str, ...]  #: are as they were then
    gone: tuple[str, ...]  #: did not exist then
    cut: str = ""  #: connections that have to be opened anew, in words
    ended: tuple[str, ...] = ()  #: names of programs that the code had started since, and that were ended
    #: Where names went back and not the whole state, those whose objects stay changed inside; else None.
    inside: tuple[str, ...] | None = None
    yours: tuple[str, ...] = ()  #: that the user has changed since, and that stay so


class Checkpoints(Protocol):
    """Kernel states that can be gone back to, each named by a mark. Files are no part of them."""

    async def checkpoint(self) -> str:
        """Keep the state as it is; give its mark, the last one where nothing has run since.

        Raises:
            CheckpointDeclined: what is loaded or running would not survive it; the message says what.
        """
        ...

    def checkpoint_soon(self) -> None:
        """Begin to, so that the next `checkpoint` need not wait."""
        ...

    def has(self, mark: str) -> bool:
        """Whether a checkpoint is still kept."""
        ...

    async def go_back(self, mark: str) -> WentBack:
        """Go back to a checkpoint; later ones are gone then.

        Raises:
            CheckpointDeclined: it is not kept any more, and nothing has changed.
            KernelError: its process ended; the kernel's variables are lost.
        """
        ...


class Kernel(Protocol):
    """A persistent place where code runs."""

    generation: int  #: grows whenever the variables were lost
    checkpoints: Checkpoints | None  #: None where there are none
    restartable: bool  #: false where it is the user's own
    has_the_users: bool  #: whether the user's variables are in it without being copied
    confinement: str  #: what holds its code, in words, or why nothing does

    async def start(self) -> None:
        """Start it (no-op when it runs). Raises `KernelNotStarted` with the kernel's own words."""
        ...

    def execute(self, code: str, *, timeout: float) -> AsyncGenerator[Output | Executed, None]:
        """Run code; yield outputs as they come and one `Executed` last.

        Cancelling the iteration interrupts the code and keeps the kernel. `timeout` is in seconds.

        Raises:
            KernelLost: it died and could not be started again.
        """
        ...

    def known_variables(self) -> Sequence[Variable]:
        """List the variables as of the last execution, without asking the kernel."""
        ...

    def run_program(self, words: Sequence[str], *, timeout: float) -> AsyncGenerator[Output | ProgramEnded, None]:
        """Run a program, held like the kernel's code; yield what it prints and one `ProgramEnded` last.

        Leaving it ends the program. Raises `KernelNotStarted` where the kernel's folder is gone.
        """
        ...

    def install(self, arguments: Sequence[str], *, timeout: float) -> AsyncGenerator[Output | ProgramEnded, None]:
        """Install packages, as `pip install` with these arguments, into the environment that the code runs in.

        It is held like the kernel's code, but that it may write there; imports find the packages at once.
        Leaving it ends it. Raises `KernelNotStarted`.
        """
        ...

    async def bring(self, name: str, file: Path) -> None:
        """Bind `name` to the pickle in `file`. Raises `TransferError`."""
        ...

    async def adopt(self, name: str, file: Path) -> str:
        """Pickle the variable `name` into `file` and give its one-line summary. Raises `TransferError`."""
        ...

    async def inspect(self, name: str) -> str:
        """Tell about the variable `name` in some lines, without changing it. Raises `TransferError`."""
        ...

    async def restart(self) -> None:
        """Replace it by a new one, without variables. Raises `KernelNotStarted`."""
        ...

    async def close(self) -> None:
        """End it and all that its code started in its process group."""
        ...


# -- host --

T = TypeVar("T")


class Host(Protocol):
    """The process that the user works in. Its code runs on its main thread only."""

    shell: Any  #: the IPython shell

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Have `function` run on the host's main thread."""
        ...

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the host's main thread and give its result."""
        ...

    def variables(self) -> list[Variable]:
        """List the user's own live variables (call it on the main thread)."""
        ...

    def recent_cells(self, count: int) -> list[str]:
        """Give the source of the last cells that the user ran, oldest first."""
        ...

    def last_error(self) -> str:
        """Give the user's last traceback as plain text, or ""."""
        ...

    def inspect(self, name: str) -> str:
        """Tell about the user's variable `name` in some lines. Raises `TransferError`."""
        ...

    def post_mortem(self, *, values: bool = False) -> str:
        """Tell the frames, locals and sources of the user's last exception, or give "".

        A variable is told in one line or, with `values`, with some of what it holds.
        """
        ...

    def dump(self, name: str, file: Path) -> str:
        """Pickle the user's variable `name` into `file`; give its summary. Raises `TransferError`."""
        ...

    def load(self, name: str, file: Path) -> None:
        """Bind the user's `name` to the pickle in `file`. Raises `TransferError`."""
        ...


# -- tools --

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Approval:
    """The user's answer to one question. `code` is set where they edited it: then that is what runs."""

    approved: bool
    by: Literal["user", "nobody", "rule"]
    note: str = ""
    code: str | None = None
    always: Literal["", "pattern", "session"] = ""  #: what else in this session the yes is for


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One question: may this action run?"""

    request: str
    call_id: str
    tool: str
    code: str
    risk: Risk
    why: str
    always: str = ""  #: in words, what a yes with `always="pattern"` would allow; "" where that is not offered
    session: str = ""  #: the same of `always="session"`


@dataclass(slots=True)
class ToolResult:
    """What a tool gives back, before the gateway shapes it for the model.

    `text` and `changes` (what it did to the variables) are data: fenced, cut to size. `notice` is nbagent's
    own word on it: first, never cut, unfenced; `doubt`, what makes it doubtful although it worked, its last one.
    """

    status: ActionStatus
    text: str
    summary: str = ""
    execution_count: int | None = None
    answer: str | None = None  #: set by `final_answer` only: ends the run
    kernel_lost: bool = False  #: the kernel cannot be had back: ends the run
    notice: str = ""
    changes: str = ""
    doubt: str = ""
    images: Sequence[dict[str, str]] = ()  #: figures for a model that sees, each as `{kind: base64}`
    denied_by: Literal["", "user", "nobody"] = ""  #: who did not say yes, where someone had to


class ToolContext(Protocol):
    """What a tool may use while it runs."""

    kernel: Kernel
    host: Host | None
    folder: Path  #: the workspace, resolved: where the kernel works and what paths are relative to
    allow_write: tuple[Path, ...]  #: further folders that files may be written to
    session_folder: Path
    redactor: Redactor
    nonce: str  #: fences data in observations
    cell_timeout: float  #: seconds
    observation_characters: int
    image_pixels: int  #: longest side of figures that are sent to the model; 0: it is sent none

    def emit(self, event: Event) -> None:
        """Record and show an event of this call. Safe from the tool's own thread; dropped after its time-out."""
        ...

    def kept(self, kind: type[Kept]) -> Kept:
        """Give the session's one `kind()`, made when first asked for: what a tool keeps from call to call."""
        ...


class Tool(Protocol):
    """A typed, documented thing that the model may ask for."""

    name: str
    spec: ToolSpec
    arguments: type[BaseModel]  #: checks what the model sent; forbids what it does not know
    traits: ToolTraits

    def grade(self, arguments: dict[str, Any], context: ToolContext) -> tuple[Risk, str]:
        """Say how dangerous the call looks, and why in a few words."""
        ...

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Do it. The model's mistakes are results; only our own failures raise."""
        ...


# -- view --


class View(Protocol):
    """Something that shows a run while it happens. It must never raise into the run."""

    def show(self, event: Event) -> None:
        """Show one event; called on the agent thread, in order."""
        ...

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Ask the user; `by="nobody"` where there is no one to answer."""
        ...

    def close(self) -> None:
        """Leave the static trace behind."""
        ...
