"""What tests of the chain share: calls without a kernel, a clock that is turned by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from nbagent.events import ActionFinished, Observed
from nbagent.protocols import Approval, ApprovalRequest, Kernel, Tool, ToolResult
from nbagent.reply import Action
from nbagent.tools.call import Rules
from nbagent.tools.gateway import Gateway
from tests.tools.conftest import Context, User

NOBODY = User(Approval(False, "nobody"))


@dataclass
class Clock:
    """Time that passes only when a test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Desk:
    """A gateway, a context without a kernel, and one line to call a tool."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    user: Callable[[ApprovalRequest], Any] = field(default_factory=lambda: NOBODY)
    last: ActionFinished = field(default_factory=lambda: ActionFinished(status="ok", seconds=0))

    def __post_init__(self) -> None:
        self.context = Context(cast("Kernel", None), self.folder, self.folder)

    def gateway(self, *tools: Tool, **rules: Any) -> Gateway:
        return Gateway(tools, rules=Rules(**{"clock": self.clock, **rules}))

    async def call(self, gateway: Gateway, tool: str, call_id: str = "c", **arguments: Any) -> tuple[str, str]:
        """Give the status and the exact text that the model reads."""
        action = Action(call_id, tool, json.dumps(arguments))
        result, text = await gateway.call(action, self.context, self.user)
        self.last = self.context.of(ActionFinished)[-1]
        assert self.last.status == result.status
        assert self.context.of(Observed)[-1].text == text
        return result.status, text

    async def all(self, gateway: Gateway, *actions: Action) -> list[tuple[str, ToolResult]]:
        return [
            (action.call_id, result) async for action, result in gateway.answers(actions, self.context, self.user)
        ]
