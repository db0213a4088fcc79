"""The one way from a model's action to what it is told of it: an ordered chain of small links."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from nbagent.errors import NbAgentError
from nbagent.events import ActionFinished, Observed
from nbagent.protocols import Approval, ApprovalRequest, Tool, ToolContext, ToolResult, ToolSpec
from nbagent.reply import Action
from nbagent.stopping import heed_stop
from nbagent.tools.call import Approve, Ask, Call, CallContext, Rules
from nbagent.tools.chain import CHAIN
from nbagent.tools.observe import observation

#: Gives the last words on the result of some code, or "".
LastWords = Callable[[ToolResult, str], str]


def _nothing(result: ToolResult, code: str) -> str:
    return ""


class Gateway:
    """Checks, grades, approves and runs actions, and says what the model is told of each."""

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        approve: Approve = "ask",
        rules: Rules | None = None,
        closing: LastWords = _nothing,
    ):
        """Take the tools in the order they are told; `closing` gives the words that end an observation.

        `rules` say more than `approve` alone, which is for programs that need no more.
        """
        self._closing = closing
        self._tools = {tool.name: tool for tool in tools}
        self._rules = rules or Rules(approve=approve)

    @property
    def specs(self) -> list[ToolSpec]:
        """What the model is told of the tools, in their order."""
        return [tool.spec for tool in self._tools.values()]

    async def call(self, action: Action, context: ToolContext, ask: Ask) -> tuple[ToolResult, str]:
        """Answer one action: its result, and the exact text that the model is sent.

        Raises:
            NbAgentError: something on our side failed; the action is answered in the log all the same,
                and so it is where `ask` raises.
            asyncio.CancelledError: stopped; the action is answered in the log.
        """
        call = self._begin(action, context, ask)
        try:
            result = await call.go(call.links)
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
        text = self._finish(call, result)
        heed_stop()
        return result, text

    async def answers(
        self, actions: Sequence[Action], context: ToolContext, ask: Ask
    ) -> AsyncGenerator[tuple[Action, ToolResult], None]:
        """Answer the actions of one reply, together where all are parallel-safe; give the results in call order.

        Every action is answered in the log, however this ends: cancelled, closed by who listens, or by an error.
        """
        if len(actions) > 1 and all(self._parallel_safe(action) for action in actions):
            for action, result in zip(actions, await self._together(actions, context, ask), strict=True):
                yield action, result
            return
        for position, action in enumerate(actions):
            later = actions[position + 1 :]
            try:
                result, _ = await self.call(action, context, ask)
            except BaseException:
                self._skip(later, context, "the run was stopped before it")
                raise
            try:
                yield action, result
            except GeneratorExit:
                self._skip(later, context, "the run ended before it")
                raise

    async def _together(self, actions: Sequence[Action], context: ToolContext, ask: Ask) -> list[ToolResult]:
        running = [asyncio.ensure_future(self.call(action, context, ask)) for action in actions]
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            raise
        return [one.result()[0] for one in running]

    def _parallel_safe(self, action: Action) -> bool:
        """Whether an action may run beside others; one of no known tool runs nothing."""
        tool = self._tools.get(action.tool)
        return tool is None or tool.traits.parallel_safe

    def _skip(self, actions: Sequence[Action], context: ToolContext, why: str) -> None:
        for action in actions:
            self.skipped(action, context, why)

    def skipped(self, action: Action, context: ToolContext, why: str) -> tuple[ToolResult, str]:
        """Answer an action that is not run at all; `why` completes "Not run: ..."."""
        call = self._begin(action, context, _nobody)
        result = ToolResult("skipped", "", f"not run: {why}", notice=f"Not run: {why}")
        return result, self._finish(call, result)

    def _begin(self, action: Action, context: ToolContext, ask: Ask) -> Call:
        return Call(action, CallContext.of(action.call_id, context), ask, self._tools, self._rules, CHAIN)

    def _finish(self, call: Call, result: ToolResult) -> str:
        """Shape, mask and record: one `ActionFinished` for each call is its audit record."""
        context = call.context
        context.over = True
        text = observation(result, context, pages="read_output" in self._tools)
        if words := self._closing(result, call.code):
            text = f"{text}\n{words}"
        context.record(
            ActionFinished(
                status=result.status,
                seconds=time.monotonic() - call.started if call.started else 0.0,
                execution_count=result.execution_count,
                summary=context.redactor.text(result.summary),
                tool=call.action.tool,
                risk=call.risk,
                answered_by=call.answered_by,
                approved_by=call.approved_by,
                attempts=call.attempts,
                cached=call.cached,
            )
        )
        context.record(Observed(text=text, images=list(result.images)))
        return text


async def _nobody(request: ApprovalRequest) -> Approval:
    return Approval(False, "nobody")
