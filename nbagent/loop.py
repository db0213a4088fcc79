"""The loop: think, act, observe, until there is an answer or a guard ends it.

It knows models, dialects, tools and kernels by their protocols only; everything that happens goes through
`emit`, which records before it shows. It renders nothing and writes no file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from nbagent.answers import Answers
from nbagent.beside import Beside
from nbagent.context import Conversation
from nbagent.errors import ContextOverflow, KernelError, ModelRefused, NbAgentError
from nbagent.events import ActionProposed, Event, Nudged, Reason, RunFinished, StepFinished, StepStarted, Usage
from nbagent.guards import End, Guards, Nudge
from nbagent.listening import Listener, Reply
from nbagent.meter import Meter
from nbagent.models.assembler import CUT
from nbagent.negotiation import Negotiation
from nbagent.protocols import Approval, ApprovalRequest, Model, ToolContext, ToolResult
from nbagent.reply import Action
from nbagent.summing_up import sum_up


@dataclass(slots=True)
class Loop:
    """One run. All times are seconds."""

    model: Model
    terms: Negotiation
    conversation: Conversation
    guards: Guards
    meter: Meter
    emit: Callable[[Event], None]
    ask: Callable[[ApprovalRequest], Awaitable[Approval]]
    tool_context: ToolContext
    kernel_ready: asyncio.Future[None]
    beside: Beside

    step: int = 0
    _answer: str = ""
    _summary: str = ""
    _listener: Listener = field(init=False)
    _cell_timeout: float = field(init=False)
    _answers: Answers = field(init=False)

    def __post_init__(self) -> None:
        task = self.conversation.task
        self._answers = Answers(task.task if task is not None else "")
        self._listener = Listener(self.emit, self.tool_context.redactor)
        self._cell_timeout = self.tool_context.cell_timeout

    async def run(self) -> None:
        """Run to an ending; whatever happens, the log gets a `RunFinished`.

        Raises:
            asyncio.CancelledError: never: a cancelled run ends as `interrupted`.
            Exception: what the program's own `ask` raised; the log then says `interrupted`.
        """
        try:
            end = await self._steps()
            if self.step:
                self._summary = await sum_up(end, self.beside.aside)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            end = End("interrupted", "Stopped by the user. What was done so far is kept.")
            self._keep_partial_reply()
        except KernelError as error:
            end = End("kernel_lost", str(error))
        except NbAgentError as error:
            end = End("model_error", str(error))
        except Exception as error:
            self._finish("interrupted", f"Stopped by an error: {type(error).__name__}: {error}".partition("\n")[0])
            raise
        self._finish(end.reason, end.message)

    async def _steps(self) -> End:
        await self.beside.planner.make()
        while (limit := await self._limit()) is None:
            self.step += 1
            began = time.monotonic()
            self.emit(StepStarted())
            if (reply := await self._think_in_time()) is None:
                return self.meter.out_of_time()
            self.beside.compactor.counted(reply.usage)
            usage = self._spent(reply)  # whatever comes of it
            end = await self._act(reply)
            self.emit(
                StepFinished(
                    usage=usage,
                    seconds=time.monotonic() - began,
                    first_token_seconds=None if reply.first_token is None else reply.first_token - began,
                )
            )
            last = self.step >= self.guards.max_steps
            if (end := self._heed(await self.beside.after_step(end, self._answer, last=last))) is not None:
                return end
        return limit

    def _spent(self, reply: Reply) -> Usage:
        """Count a reply, and the attempts at it that broke off."""
        estimated = self.conversation.estimated_tokens
        return sum((self.meter.add(usage, estimated) for usage in [*reply.lost, reply.usage]), Usage())

    async def _limit(self) -> End | None:
        """Say why another step may not be taken."""
        if (end := self.guards.before_step(self.step + 1)) is not None:
            return end
        if (end := await self.beside.compactor.make_room()) is not None:
            return end
        return await self.meter.before_request(self.conversation.estimated_tokens)

    async def _think_in_time(self) -> Reply | None:
        """Think while the run's time lasts; None where it ran out over it: some replies never end."""
        try:
            async with asyncio.timeout(self.meter.seconds_left) as limit:
                return await self._think()
        except TimeoutError:
            if not limit.expired():
                raise
            self._keep_partial_reply()
            return None

    async def _think(self) -> Reply:
        """Send the request and take the reply in, showing it as it comes; again where a refusal can be met."""
        while True:
            try:
                request = self.conversation.request()
                parts = self.terms.dialect.read(self.model.stream(request), request.opening)
                return await self._listener.hear(parts)
            except ContextOverflow as overflow:
                if not await self.beside.compactor.after_overflow(overflow):
                    raise
            except ModelRefused as refused:
                if not self.terms.gives_way(refused):
                    raise

    async def _act(self, reply: Reply) -> End | None:
        """Do what the reply asks; give the ending if there is one."""
        if (word := self.terms.heard(reply)) is not None:
            return self._heed(word)
        if reply.malformed:
            return self._heed(self.guards.malformed_reply(reply.malformed))
        if not reply.actions:
            if not reply.thought.strip():
                return self._heed(self.guards.empty_reply())
            if reply.finish == "length":
                return self._heed(self.guards.malformed_reply(CUT))
            return self._answered(reply.thought.strip())
        self.guards.usable_reply()
        for action in reply.actions:
            self.emit(ActionProposed(call_id=action.call_id, tool=action.tool, arguments=action.arguments))
        await asyncio.shield(self.kernel_ready)
        self.tool_context.cell_timeout = max(1.0, min(self._cell_timeout, self.meter.seconds_left))
        async with aclosing(self.terms.gateway.answers(reply.actions, self.tool_context, self.ask)) as answers:
            async for action, result in answers:
                if (end := self._weigh(action, result)) is not None:
                    return end
        nudge = self.guards.steps_left(self.step)
        return self._heed(nudge) if nudge is not None else None

    def _weigh(self, action: Action, result: ToolResult) -> End | None:
        """Say whether what came of an action ends the run."""
        if result.answer is not None:
            return self._answered(result.answer.strip())
        if result.kernel_lost:
            return End("kernel_lost", result.summary)
        if result.denied_by:
            denial = self.guards.denied(by_user=result.denied_by == "user")
            if denial is not None:
                return denial
        self._answers.acted(result.status, result.text)
        # The same error is the same result, whatever the number of the cell that its traceback names.
        told = result.summary if result.status == "error" else result.notice + result.text
        # What a small model's failed code has changed on its way does not make the same failure a new one.
        changes = "" if self._small and result.status == "error" else result.changes
        word = self.guards.acted(action, result.status, told, changes)
        if isinstance(word, Nudge) and word.guard == "repeating" and result.status != "ok" and self._small:
            self.beside.compactor.copied()
        return self._heed(word)

    @property
    def _small(self) -> bool:
        """Whether the model is taken for a small one: it acts in text."""
        return self.terms.dialect.name != "tools"

    def _answered(self, answer: str) -> End | None:
        answer = self._answers.completed(answer)
        doubt = self._answers.doubt(answer, small=self._small)
        if doubt is not None and self.step < self.guards.max_steps:
            return self._heed(doubt)
        self._answer = answer
        return End("answered", "")

    def _heed(self, word: Nudge | End | None) -> End | None:
        """Pass a guard's nudge on to the model, or its end to the loop."""
        if isinstance(word, Nudge):
            self.beside.reflection.noticed(word)
            if word.guard == "repeating":
                self.terms.vary()
            self.emit(Nudged(guard=word.guard, text=word.text))
            return None
        return word

    def _keep_partial_reply(self) -> None:
        estimated = self.conversation.estimated_tokens
        for lost in self._listener.reply.lost:
            self.meter.add(lost, estimated)
        if (partial := self._listener.keep_partial()) is not None:
            self.meter.add(partial, estimated)

    def _finish(self, reason: Reason, message: str) -> None:
        self.emit(
            RunFinished(
                reason=reason,
                answer=self._answer if reason == "answered" else "",
                message=message,
                summary=self._summary,
                usage=self.meter.spent,
                steps=self.step,
                seconds=self.meter.seconds,
            )
        )
