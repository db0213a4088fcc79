"""A recorded run, executed again: the same thoughts and code, no model; every action goes the way of any other."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from nbagent.errors import KernelError, ModelError, NbAgentError
from nbagent.events import (
    ActionProposed,
    Event,
    Output,
    OutputAdded,
    Reason,
    Replayed,
    RunFinished,
    StepFinished,
    StepStarted,
    Thought,
    Usage,
)
from nbagent.models.choose import Choice
from nbagent.models.pricing import FREE
from nbagent.models.window import Window
from nbagent.protocols import Approval, ApprovalRequest, Request
from nbagent.record import Record, RecordedAction
from nbagent.reply import Action, ReplyPart
from nbagent.same_outputs import digest_of
from nbagent.settings import Settings
from nbagent.tools.gateway import Gateway
from nbagent.workplace import RunContext

ASK_ANEW = "--again asks the model anew"


class Unasked:
    """Stands where a model would: a replay asks none."""

    host = ""

    def __init__(self, record: Record) -> None:
        self.name = record.model
        self.label = record.label

    def stream(self, request: Request) -> AsyncGenerator[ReplyPart, None]:
        """Refuse. Raises `ModelError`."""
        raise ModelError("a replay asks no model")

    async def close(self) -> None:
        """Nothing is open."""


def recorded_choice(record: Record, settings: Settings) -> Choice:
    """Give what stands in a replay for the choice of a model."""
    when = f"{record.recorded:%Y-%m-%d %H:%M} UTC"
    return Choice(
        model=Unasked(record),
        name=record.model,
        dialect=record.dialect,
        why="as recorded",
        parameters={},
        window=Window(),
        observation_characters=settings.observation_characters,
        price=FREE,
        key="",
        note=f"Replayed from the record of {when}: no model was asked; {ASK_ANEW}.",
    )


@dataclass(frozen=True)
class _End:
    reason: Reason
    message: str


@dataclass(slots=True)
class Replay:
    """One run. It ends as the recorded one did, or where the code does not do any more what it did."""

    record: Record
    gateway: Gateway
    emit: Callable[[Event], None]
    ask: Callable[[ApprovalRequest], Awaitable[Approval]]
    context: RunContext
    kernel_ready: asyncio.Future[None]
    _steps: int = 0
    _started: float = field(default_factory=time.monotonic)
    _differs: list[str] = field(default_factory=list)
    _by: str = ""  #: who said no

    async def run(self) -> None:
        """Run to an ending; whatever happens, the log gets a `RunFinished`.

        Raises:
            Exception: what the program's own `ask` raised; the log then says `interrupted`.
        """
        try:
            end = await self._replay()
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            end = _End("interrupted", "Stopped by the user. What was done so far is kept.")
        except KernelError as error:
            end = _End("kernel_lost", str(error))
        except NbAgentError as error:
            end = _End("no_progress", f"The record cannot be replayed: {error}; {ASK_ANEW}.")
        except Exception as error:
            self._finish(_End("interrupted", f"Stopped by an error: {type(error).__name__}: {error}"))
            raise
        if self._differs:
            self.emit(Replayed(differs=self._differs))
        self._finish(end)

    async def _replay(self) -> _End:
        for step in self.record.steps:
            began = time.monotonic()
            self._steps += 1
            self.emit(StepStarted())
            if step.thought or step.raw:
                self.emit(Thought(text=step.thought, raw=step.raw))
            calls = [Action(f"r{secrets.token_hex(4)}", action.tool, action.arguments) for action in step.actions]
            for call in calls:
                self.emit(ActionProposed(call_id=call.call_id, tool=call.tool, arguments=call.arguments))
            end = await self._act(step.actions, calls) if calls else None
            self.emit(StepFinished(usage=Usage(), seconds=time.monotonic() - began))
            if end is not None:
                return end
        return _End(self.record.reason, self.record.message)

    async def _act(self, recorded: list[RecordedAction], calls: list[Action]) -> _End | None:
        await asyncio.shield(self.kernel_ready)
        for position, (action, call) in enumerate(zip(recorded, calls, strict=True)):
            try:
                end = await self._do(action, call)
            except BaseException:  # even a cancelled run must leave no call unanswered
                self._skip(calls[position + 1 :])
                raise
            if end is not None:
                self._skip(calls[position + 1 :])
                return end
        return None

    async def _do(self, recorded: RecordedAction, call: Action) -> _End | None:
        outputs: list[Output] = []

        def emit(event: Event) -> None:
            if isinstance(event, OutputAdded):
                outputs.append(event.output)
            self.emit(event)

        result, _ = await self.gateway.call(call, replace(self.context, emit=emit), self._asked)
        if result.kernel_lost:
            return _End("kernel_lost", result.summary)
        if result.status == "denied":
            how = "nobody was there to ask (see NBAGENT_APPROVE)" if self._by == "nobody" else result.summary
            return _End("denied", f"Step {self._steps} of the record was not allowed: {how}; {ASK_ANEW}.")
        if result.status != recorded.status and recorded.status == "ok":
            why = f" ({result.summary})" if result.summary else ""
            return _End(
                "no_progress",
                f"The recorded code does not run any more: step {self._steps} failed{why}; {ASK_ANEW}.",
            )
        if result.status != recorded.status or digest_of(outputs) != recorded.outputs:
            self._differs.append(f"step {self._steps}")
        return None

    async def _asked(self, request: ApprovalRequest) -> Approval:
        approval = await self.ask(request)
        self._by = "" if approval.approved else approval.by
        return approval

    def _skip(self, calls: list[Action]) -> None:
        for call in calls:
            self.gateway.skipped(call, self.context, "the run ended before it")

    def _finish(self, end: _End) -> None:
        self.emit(
            RunFinished(
                reason=end.reason,
                answer=self.record.answer if end.reason == "answered" else "",
                message=end.message,
                steps=self._steps,
                seconds=time.monotonic() - self._started,
            )
        )
