"""One action on its way through the gateway's chain, and what a link of the chain is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nbagent.events import Event, OutputAdded, Risk
from nbagent.protocols import Approval, ApprovalRequest, Host, Kept, Kernel, Tool, ToolContext, ToolResult
from nbagent.redaction import Redactor
from nbagent.reply import Action
from nbagent.tools.breaker import BreakerLimits
from nbagent.tools.permission import Permission

Approve = Literal["ask", "auto", "each", "off"]
Ask = Callable[[ApprovalRequest], Awaitable[Approval]]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say of calls."""

    approve: Approve = "ask"
    permission: Permission = field(default_factory=Permission)
    #: Tools that are there and not offered in this run, each with the reason.
    withheld: Mapping[str, str] = field(default_factory=dict)
    approval_timeout: float | None = None  #: seconds that a question waits; None: for ever
    breaker: BreakerLimits = field(default_factory=BreakerLimits)
    clock: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class CallContext:
    """The session's context as one call sees it: its events carry the call's id."""

    whole: ToolContext
    call_id: str
    kernel: Kernel
    host: Host | None
    folder: Path
    allow_write: tuple[Path, ...]
    session_folder: Path
    redactor: Redactor
    nonce: str
    cell_timeout: float
    observation_characters: int
    image_pixels: int
    loop: asyncio.AbstractEventLoop
    shown: bool = False  #: the tool has shown outputs itself
    over: bool = False  #: the call is answered: what a left tool still says belongs to nobody

    def emit(self, event: Event) -> None:
        """Record and show an event of this call, in its order; from any thread."""
        if asyncio._get_running_loop() is self.loop:
            self._emit(event)
        else:
            self.loop.call_soon_threadsafe(self._emit, event)

    def _emit(self, event: Event) -> None:
        if not self.over:
            self.shown = self.shown or isinstance(event, OutputAdded)
            self.record(event)

    def record(self, event: Event) -> None:
        """Record an event of the gateway's own, after the tool's last one."""
        self.whole.emit(event.model_copy(update={"call_id": self.call_id}))

    def kept(self, kind: type[Kept]) -> Kept:
        """Give the session's one `kind()`."""
        return self.whole.kept(kind)

    @classmethod
    def of(cls, call_id: str, whole: ToolContext) -> CallContext:
        """Make one for a call."""
        return cls(
            whole,
            call_id,
            whole.kernel,
            whole.host,
            whole.folder,
            whole.allow_write,
            whole.session_folder,
            whole.redactor,
            whole.nonce,
            whole.cell_timeout,
            whole.observation_characters,
            whole.image_pixels,
            asyncio.get_running_loop(),
        )


@dataclass(slots=True)
class Call:
    """One action on its way through the chain."""

    action: Action
    context: CallContext
    ask: Ask
    tools: Mapping[str, Tool]
    rules: Rules
    links: tuple[Link, ...]
    values: dict[str, Any] = field(default_factory=dict)
    found: Tool | None = None
    risk: Risk | None = None  #: None: not graded yet
    why: str = ""
    approved_by: str = ""  #: "user", "rule" or "nobody"; "" where nothing had to be asked
    remember: Literal["", "pattern", "session"] = ""  #: what the user's yes covers beside this call
    edited: bool = False
    attempts: int = 0
    cached: bool = False
    #: Whether the tool itself failed, which its breaker counts; None: it never came to an outcome.
    fault: bool | None = None
    answered_by: str = ""  #: the link that gave the result
    started: float = 0.0  #: monotonic seconds; 0 where it never ran

    @property
    def tool(self) -> Tool:
        """The tool that is called; links after `find` know it."""
        assert self.found is not None
        return self.found

    @property
    def code(self) -> str:
        """What a kernel would get, also for a tool that does the same in another way."""
        if self.found is not None and self.found.traits.code is not None:
            return self.found.traits.code(self.values)
        code = self.values.get("code", "")
        return code if isinstance(code, str) else ""

    async def go(self, links: tuple[Link, ...]) -> ToolResult:
        """Go through these links; each answers, or hands over to the rest."""
        link, rest = links[0], links[1:]
        self.answered_by = link.__name__
        return await link(self, lambda: self.go(rest))


Rest = Callable[[], Awaitable[ToolResult]]
#: A link answers the call itself, or awaits the rest of the chain and gives (or changes) its result.
Link = Callable[[Call, Rest], Awaitable[ToolResult]]


def gate(check: Callable[[Call], ToolResult | None]) -> Link:
    """Make a link of a check that answers the call, or lets it pass with None."""

    async def link(call: Call, rest: Rest) -> ToolResult:
        answer = check(call)
        return await rest() if answer is None else answer

    link.__name__, link.__doc__ = check.__name__, check.__doc__
    return link


def invalid(notice: str) -> ToolResult:
    """Answer a call that cannot be run as it was sent."""
    return ToolResult("invalid", "", notice.partition("\n")[0], notice=notice)


def unavailable(notice: str) -> ToolResult:
    """Answer a call of a tool that cannot be used now."""
    return ToolResult("unavailable", "", notice.partition(". ")[0], notice=notice)
