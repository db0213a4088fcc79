"""The one way from a model's action to what it is told of it: an ordered chain of small links."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from nbagent.errors import NbAgentError
from nbagent.events import ActionFinished, Observed
from nbagent.protocols import Approval, ApprovalRequest, Tool, ToolContext, ToolResult, ToolSpec
from nbagent.reply import Action
from nbagent.tools.call import Approve, Ask, Call, CallContext
from nbagent.tools.links import CHAIN
from nbagent.tools.shape import fence


class Gateway:
    """Checks, grades, approves and runs actions, and says what the model is told of each."""

    def __init__(self, tools: Sequence[Tool], *, approve: Approve, closing: str = ""):
        """Take the tools in the order they are told; `closing` ends each observation of a success."""
        self._closing = closing
        self._tools = {tool.name: tool for tool in tools}
        self.approve: Approve = approve

    @property
    def specs(self) -> list[ToolSpec]:
        """What the model is told of the tools, in their order."""
        return [tool.spec for tool in self._tools.values()]

    async def call(self, action: Action, context: ToolContext, ask: Ask) -> tuple[ToolResult, str]:
        """Answer one action: its result, and the exact text that the model is sent.

        Raises:
            NbAgentError: something on our side failed; the action is answered in the log all the same,
                and so it is where `ask` raises.
        """
        call = self._begin(action, context, ask)
        try:
            result = await self._through_the_chain(call)
        except asyncio.CancelledError:
            self._finish(call, ToolResult("interrupted", "", "interrupted", notice="interrupted by the user"))
            raise
        except NbAgentError as error:
            self._finish(call, ToolResult("error", "", str(error), notice=str(error)))
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            self._finish(call, ToolResult("error", "", why, notice=f"Nobody could be asked: {why}"))
            raise
        return result, self._finish(call, result)

    def skipped(self, action: Action, context: ToolContext, why: str) -> tuple[ToolResult, str]:
        """Answer an action that is not run at all; `why` completes "Not run: ..."."""
        call = self._begin(action, context, _nobody)
        result = ToolResult("skipped", "", f"not run: {why}", notice=f"Not run: {why}")
        return result, self._finish(call, result)

    def _begin(self, action: Action, context: ToolContext, ask: Ask) -> Call:
        return Call(action, CallContext.of(action.call_id, context), ask, self._tools, self.approve)

    async def _through_the_chain(self, call: Call) -> ToolResult:
        for link in CHAIN:
            if (result := await link(call)) is not None:
                return result
        raise AssertionError("the last link always answers")

    def _finish(self, call: Call, result: ToolResult) -> str:
        context = call.context
        text = observation(result, context)
        if self._closing and result.status == "ok" and result.answer is None:
            text = f"{text}\n{self._closing}"
        seconds = time.monotonic() - call.started if call.started else 0.0
        summary = context.redactor.text(result.summary)
        context.emit(
            ActionFinished(
                status=result.status, seconds=seconds, execution_count=result.execution_count, summary=summary
            )
        )
        context.emit(Observed(text=text))
        return text


def observation(result: ToolResult, context: ToolContext) -> str:
    """Redact, cut to size and fence. Masking comes first, so that no secret is half visible at the cut."""
    notice = context.redactor.text(result.notice)
    told = "\n".join(part for part in (result.text.strip("\n"), result.changes) if part.strip())
    data = context.redactor.text(told)
    if not data.strip():
        return notice or "(no output)"
    fenced = fence(data, context.nonce, context.observation_characters)
    return f"{notice}\n{fenced}" if notice else fenced


async def _nobody(request: ApprovalRequest) -> Approval:
    return Approval(False, "nobody")
