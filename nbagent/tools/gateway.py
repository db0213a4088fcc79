"""The one way from a model's action to what it is told of it: an ordered chain of small links."""

from __future__ import annotations

import ast
import asyncio
import difflib
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from nbagent.errors import KernelLost, NbAgentError
from nbagent.events import (
    ActionEdited,
    ActionFinished,
    ActionStarted,
    ApprovalAsked,
    ApprovalGiven,
    Event,
    Observed,
    Risk,
)
from nbagent.protocols import (
    Action,
    Approval,
    ApprovalRequest,
    Host,
    Kernel,
    Tool,
    ToolContext,
    ToolResult,
    ToolSpec,
)
from nbagent.redaction import Redactor
from nbagent.tools.answer import FinalAnswer
from nbagent.tools.risk import refused
from nbagent.tools.shape import fence
from nbagent.tools.source import without_fences

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
    session_folder: Path
    redactor: Redactor
    nonce: str
    cell_timeout: float
    observation_characters: int

    def emit(self, event: Event) -> None:
        """Record and show an event of this call."""
        self.whole.emit(event.model_copy(update={"call_id": self.call_id}))

    @classmethod
    def of(cls, call_id: str, whole: ToolContext) -> CallContext:
        """Make one for a call."""
        return cls(
            whole,
            call_id,
            whole.kernel,
            whole.host,
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
Link = Callable[["Gateway", Call], Awaitable[ToolResult | None]]


class Gateway:
    """Checks, grades, approves and runs actions, and says what the model is told of each."""

    def __init__(self, tools: Sequence[Tool], *, approve: Approve):
        self._tools = {tool.name: tool for tool in tools}
        self.approve: Approve = approve

    @property
    def specs(self) -> list[ToolSpec]:
        """What the model is told of the tools, in their order."""
        return [tool.spec for tool in self._tools.values()]

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools by name."""
        return dict(self._tools)

    async def call(self, action: Action, context: ToolContext, ask: Ask) -> tuple[ToolResult, str]:
        """Answer one action: its result, and the exact text that the model is sent.

        Raises:
            NbAgentError: something on our side failed; the action is answered in the log all the same.
        """
        call = Call(action, CallContext.of(action.call_id, context), ask)
        try:
            result = await self._through_the_chain(call)
        except asyncio.CancelledError:
            self._finish(call, ToolResult("interrupted", "", "interrupted", notice="interrupted by the user"))
            raise
        except NbAgentError as error:
            self._finish(call, ToolResult("error", "", str(error), notice=str(error)))
            raise
        return result, self._finish(call, result)

    def skipped(self, action: Action, context: ToolContext, why: str) -> tuple[ToolResult, str]:
        """Answer an action that is not run at all; `why` completes "Not run: ..."."""
        call = Call(action, CallContext.of(action.call_id, context), _nobody)
        result = ToolResult("skipped", "", f"not run: {why}", notice=f"Not run: {why}")
        return result, self._finish(call, result)

    async def _through_the_chain(self, call: Call) -> ToolResult:
        for link in CHAIN:
            if (result := await link(self, call)) is not None:
                return result
        raise AssertionError("the last link always answers")

    def _finish(self, call: Call, result: ToolResult) -> str:
        context = call.context
        text = observation(result, context)
        seconds = time.monotonic() - call.started if call.started else 0.0
        summary = context.redactor.text(result.summary)
        context.emit(
            ActionFinished(
                status=result.status, seconds=seconds, execution_count=result.execution_count, summary=summary
            )
        )
        context.emit(Observed(text=text))
        return text


# -- the links, in the order they run -------------------------------------------------------------------


async def parse(gateway: Gateway, call: Call) -> ToolResult | None:
    """Read the arguments as JSON, repairing only what can be read in one way."""
    text = without_fences(call.action.arguments).strip() or "{}"
    try:
        values = json.loads(text, strict=False)
    except ValueError as error:
        values = _python_literal(text)
        if not isinstance(values, dict):
            return invalid(f"The arguments are not valid JSON: {error}. Send one JSON object.")
    if isinstance(values, str):  # encoded twice
        values = _python_literal(values)
    if not isinstance(values, dict):
        return invalid(f"The arguments are not valid JSON for a call: want one JSON object, got {text[:80]}")
    call.values = values
    return None


async def find(gateway: Gateway, call: Call) -> ToolResult | None:
    """Find the tool by its exact name."""
    call.tool = gateway.tools.get(call.action.tool)
    if call.tool is not None:
        return None
    names = list(gateway.tools)
    nearest = difflib.get_close_matches(call.action.tool, names, n=1, cutoff=0.4)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return invalid(f"There is no tool {call.action.tool!r}.{hint} The tools are: {', '.join(names)}.")


async def validate(gateway: Gateway, call: Call) -> ToolResult | None:
    """Check the arguments; name the field at fault."""
    assert call.tool is not None
    model, values = call.tool.arguments, dict(call.values)
    fields = list(model.model_fields)
    if len(fields) == 1:
        if len(values) == 1 and fields[0] not in values:  # one thing asked for, one thing given
            values = {fields[0]: next(iter(values.values()))}
        lines = values.get(fields[0])
        if isinstance(lines, list) and lines and all(isinstance(line, str) for line in lines):
            values[fields[0]] = "\n".join(line.removesuffix("\n") for line in lines)
    try:
        call.values = model.model_validate(values).model_dump()
    except ValidationError as error:
        faults = error.errors(include_url=False)
        told = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault.get('ctx', {}).get('error') or fault['msg']}"
            for fault in faults
        )
        if all(fault["type"] == "value_error" for fault in faults):  # the tool's own words: the fields are right
            return invalid(f"{call.tool.name}: {told}")
        return invalid(f"{call.tool.name}: {told}. Its arguments are: {', '.join(fields)}.")
    return None


async def refuse(gateway: Gateway, call: Call) -> ToolResult | None:
    """Turn down what is never run, whatever the approval mode."""
    why = refused(call.code) if call.code else None
    if why is None:
        return None
    notice = f"Refused: {why}. This is never run here; do the task without it, or say what the user should run."
    return ToolResult("denied", "", f"refused: {why}", notice=notice)


async def grade(gateway: Gateway, call: Call) -> ToolResult | None:
    """Say how dangerous it looks."""
    assert call.tool is not None
    call.risk, call.why = call.tool.grade(call.values)
    return None


async def approve(gateway: Gateway, call: Call) -> ToolResult | None:
    """Ask the user where the mode says so; no answer is no."""
    assert call.tool is not None
    if call.risk not in ASKS[gateway.approve] or call.tool.name == FinalAnswer.name:
        return None
    context, tool = call.context, call.tool
    code = context.redactor.text(call.code or f"{tool.name}({json.dumps(call.values, ensure_ascii=False)})")
    request = ApprovalRequest(secrets.token_hex(4), call.action.call_id, tool.name, code, call.risk, call.why)
    context.emit(ApprovalAsked(request=request.request, tool=tool.name, code=code, risk=call.risk, why=call.why))
    approval = await call.ask(request)
    context.emit(
        ApprovalGiven(request=request.request, approved=approval.approved, by=approval.by, note=approval.note)
    )
    if not approval.approved:
        who = (
            "Nobody was there to approve this action"
            if approval.by == "nobody"
            else "The user refused this action"
        )
        note = f" ({approval.note})" if approval.note else ""
        notice = f"{who}{note}. Do not try it again another way; go on without it, or answer with what you know."
        return ToolResult("denied", "", f"refused{note}", notice=notice)
    if call.code and approval.code is not None and approval.code not in (call.code, code):
        call.values = {**call.values, "code": approval.code}
        call.edited = True
        context.emit(ActionEdited(arguments=json.dumps(call.values, ensure_ascii=False)))
        return await validate(gateway, call) or await refuse(gateway, call) or await grade(gateway, call)
    return None


async def run(gateway: Gateway, call: Call) -> ToolResult | None:
    """Run the tool. What its own code raises becomes an observation."""
    assert call.tool is not None
    context, redactor = call.context, call.context.redactor
    call.started = time.monotonic()
    context.emit(
        ActionStarted(
            tool=call.tool.name,
            arguments=redactor.value(call.values),
            code=redactor.text(call.code),
            risk=call.risk,
        )
    )
    try:
        result = await call.tool.run(call.values, context)
    except KernelLost as error:
        result = ToolResult("error", "", str(error), kernel_lost=True, notice=str(error))
    except NbAgentError:
        raise
    except Exception as error:  # noqa: BLE001 - a tool is foreign code: its fault must not end the run
        line = f"{type(error).__name__}: {error}"
        result = ToolResult("error", line, line, notice=f"The tool {call.tool.name} failed.")
    if call.edited:
        told = f"The user changed the code before it ran. What ran:\n{redactor.text(call.code)}"
        result.notice = f"{told}\n{result.notice}".rstrip()
    return result


CHAIN: tuple[Link, ...] = (parse, find, validate, refuse, grade, approve, run)


# -- what the model is told -----------------------------------------------------------------------------


def observation(result: ToolResult, context: ToolContext) -> str:
    """Redact, cut to size and fence. Masking comes first, so that no secret is half visible at the cut."""
    notice = context.redactor.text(result.notice)
    data = context.redactor.text(result.text).strip("\n")
    if not data.strip():
        return notice or "(no output)"
    fenced = fence(data, context.nonce, context.observation_characters)
    return f"{notice}\n{fenced}" if notice else fenced


def invalid(notice: str) -> ToolResult:
    """Answer an action that cannot be run as it was sent."""
    return ToolResult("invalid", "", notice.partition("\n")[0], notice=notice)


def _python_literal(text: str) -> Any:
    """Read a Python literal (single quotes, True, a trailing comma), or JSON within a string; else None."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


async def _nobody(request: ApprovalRequest) -> Approval:
    return Approval(False, "nobody")
