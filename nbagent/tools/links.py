"""The links of the gateway's chain, in the order in which they run."""

from __future__ import annotations

import ast
import difflib
import json
import secrets
import time
from typing import Any

from pydantic import ValidationError

from nbagent.errors import KernelLost, NbAgentError
from nbagent.events import ActionEdited, ActionStarted, ApprovalAsked, ApprovalGiven
from nbagent.protocols import ApprovalRequest, ToolResult
from nbagent.tools.answer import FinalAnswer
from nbagent.tools.call import ASKS, Call, Link
from nbagent.tools.definition import parameters
from nbagent.tools.risk import refused
from nbagent.tools.source import without_fences


async def parse(call: Call) -> ToolResult | None:
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


async def find(call: Call) -> ToolResult | None:
    """Find the tool by its exact name."""
    call.tool = call.tools.get(call.action.tool)
    if call.tool is not None:
        return None
    names = list(call.tools)
    nearest = difflib.get_close_matches(call.action.tool, names, n=1, cutoff=0.4)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return invalid(f"There is no tool {call.action.tool!r}.{hint} The tools are: {', '.join(names)}.")


async def validate(call: Call) -> ToolResult | None:
    """Check the arguments; name the field at fault."""
    assert call.tool is not None
    model, values = call.tool.arguments, dict(call.values)
    fields = parameters(model)
    if len(fields) == 1:
        if len(values) == 1 and fields[0] not in values:  # one thing asked for, one thing given
            values = {fields[0]: next(iter(values.values()))}
        lines = values.get(fields[0])
        if isinstance(lines, list) and lines and all(isinstance(line, str) for line in lines):
            values[fields[0]] = "\n".join(line.removesuffix("\n") for line in lines)
    try:
        call.values = model.model_validate(values).model_dump(mode="json", by_alias=True)
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


async def refuse(call: Call) -> ToolResult | None:
    """Turn down what is never run, whatever the approval mode."""
    why = refused(call.code) if call.code else None
    if why is None:
        return None
    notice = f"Refused: {why}. This is never run here; do the task without it, or say what the user should run."
    return ToolResult("denied", "", f"refused: {why}", notice=notice)


async def grade(call: Call) -> ToolResult | None:
    """Say how dangerous it looks."""
    assert call.tool is not None
    call.risk, call.why = call.tool.grade(call.values, call.context)
    return None


async def approve(call: Call) -> ToolResult | None:
    """Ask the user where the mode says so; no answer is no."""
    assert call.tool is not None
    if call.risk not in ASKS[call.mode] or call.tool.name == FinalAnswer.name:
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
        return await validate(call) or await refuse(call) or await grade(call)
    return None


async def run(call: Call) -> ToolResult | None:
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
