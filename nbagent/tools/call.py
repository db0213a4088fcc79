"""One action on its way through the gateway's chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nbagent.events import Event, Risk
from nbagent.protocols import Approval, ApprovalRequest, Host, Kept, Kernel, Tool, ToolContext, ToolResult
from nbagent.redaction import Redactor
from nbagent.reply import Action

Approve = Literal["ask", "auto", "each", "off"]
Ask = Callable[[ApprovalRequest], Awaitable[Approval]]

#: Which grades wait for the user's yes.
ASKS: dict[Approve, frozenset[Risk]] = {
    "ask": frozenset({"overwrite", "network", "destructive"}),
    "auto": frozenset({"destructive"}),
    "each": frozenset({"read", "write", "overwrite", "network", "destructive"}),
    "off": frozenset(),
}


@dataclass(slots=True)
class CallContext:
    """The session's context as one call sees it: its events carry the call's id."""

    whole: ToolContext
    call_id: str
    kernel: Kernel
    host: Host | None
    folder: Path
    session_folder: Path
    redactor: Redactor
    nonce: str
    cell_timeout: float
    observation_characters: int

    def emit(self, event: Event) -> None:
        """Record and show an event of this call."""
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
            whole.session_folder,
            whole.redactor,
            whole.nonce,
            whole.cell_timeout,
            whole.observation_characters,
        )


@dataclass(slots=True)
class Call:
    """One action on its way through the chain."""

    action: Action
    context: CallContext
    ask: Ask
    tools: Mapping[str, Tool]
    mode: Approve
    values: dict[str, Any] = field(default_factory=dict)
    tool: Tool | None = None
    risk: Risk = "read"
    why: str = ""
    edited: bool = False
    started: float = 0.0  #: monotonic seconds; 0 where it never ran

    @property
    def code(self) -> str:
        """What a kernel would get."""
        code = self.values.get("code", "")
        return code if isinstance(code, str) else ""


#: A link passes the call on (None) or answers it; then the links after it are left out.
Link = Callable[[Call], Awaitable[ToolResult | None]]
