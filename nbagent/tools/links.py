"""The links of the gateway's chain that check a call before anything of it happens."""

from __future__ import annotations

import ast
import difflib
import json
import re
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from nbagent.errors import NbAgentError
from nbagent.protocols import ToolResult
from nbagent.tools.breaker import Breakers
from nbagent.tools.call import Call, gate, invalid, unavailable
from nbagent.tools.definition import parameters
from nbagent.tools.findings import RISKS
from nbagent.tools.quota import Quotas
from nbagent.tools.risk import refused
from nbagent.tools.source import without_fences


@gate
def parse(call: Call) -> ToolResult | None:
    """Read the arguments as JSON, repairing only what can be read in one way."""
    text = without_fences(call.action.arguments).strip() or "{}"
    try:
        values = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        values = _python_literal(text)
        if not isinstance(values, dict):
            return invalid(f"The arguments are not valid JSON: {error}. Send one JSON object.")
    if isinstance(values, str):  # encoded twice
        values = _python_literal(values)
    if not isinstance(values, dict):
        return invalid(f"The arguments are not valid JSON for a call: want one JSON object, got {text[:80]}")
    call.values = values
    return None


@gate
def find(call: Call) -> ToolResult | None:
    """Find the tool by its exact name."""
    name = call.action.tool
    call.found = call.tools.get(name)
    if call.found is not None:
        return None
    if why := call.rules.withheld.get(name):
        return denied(f"The tool {name} is not to be used: {why}. Go on without it.")
    names = list(call.tools)
    nearest = _nearest(name, names)
    hint = f" Did you mean {nearest}?" if nearest else ""
    return invalid(f"There is no tool {name[:80]!r}.{hint} The tools are: {', '.join(names)}.")


#: Words in the names that models invent, and the tool that is meant.
_MEANT = {
    "run_code": "python ipython code exec execute eval interpreter jupyter notebook cell repl",
    "run_shell": "shell bash sh terminal command cmd",
    "read_file": "cat open view load file",
    "search_files": "grep rg find glob search ls list",
    "edit_file": "replace patch sed str_replace modify",
    "write_file": "create save write",
    "ask_user": "ask question clarify human",
    "final_answer": "finish done submit answer final",
}
_TOOL_OF = {word: tool for tool, words in _MEANT.items() for word in words.split()}


def _nearest(name: str, names: list[str]) -> str:
    """Give the tool that is spelled like this, else the one that its words mean."""
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.75)
    meant = [_TOOL_OF[word] for word in re.split(r"[^a-z]+", name.lower()) if word in _TOOL_OF]
    alike = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.4)
    if "run_shell" in meant:
        meant.append("run_code")  # its magics run commands, too
    return next((tool for tool in (*close, *meant, *alike) if tool in names), "")


@gate
def validate(call: Call) -> ToolResult | None:
    """Check the arguments; name the field at fault."""
    model, values = call.tool.arguments, dict(call.values)
    fields = parameters(model)
    if len(fields) == 1:
        if len(values) == 1 and fields[0] not in values:  # one thing asked for, one thing given
            values = {fields[0]: next(iter(values.values()))}
        lines = values.get(fields[0])
        if isinstance(lines, list) and lines and all(isinstance(line, str) for line in lines):
            values[fields[0]] = "\n".join(line.removesuffix("\n") for line in lines)
    try:
        call.values = _checked(model, values)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        told = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault.get('ctx', {}).get('error') or fault['msg']}"
            for fault in faults
        )
        if all(fault["type"] == "value_error" for fault in faults):  # the tool's own words: the fields are right
            return invalid(f"{call.tool.name}: {told}")
        return invalid(f"{call.tool.name}: {told}. Its arguments are: {', '.join(fields) or 'none'}.")
    except NbAgentError:
        raise
    except Exception as error:  # noqa: BLE001 - a validator of the tool's own may do anything
        return invalid(f"{call.tool.name}: its arguments could not be checked: {type(error).__name__}: {error}")
    return None


def _checked(model: type[BaseModel], values: dict[str, Any]) -> dict[str, Any]:
    """Check, mending what can be meant in one way only: see `_mended`."""
    try:
        checked = model.model_validate(values)
    except ValidationError as error:
        mended = _mended(model, values, error)
        if mended is None:
            raise
        checked = model.model_validate(mended)
    try:
        return checked.model_dump(mode="json", by_alias=True)
    except PydanticSerializationError:  # a default that JSON does not know: the tool has it itself
        return checked.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _mended(model: type[BaseModel], values: dict[str, Any], error: ValidationError) -> dict[str, Any] | None:
    """Mend what models often get wrong: JSON in a string for a list or object, null for "not given"."""
    optional = {field.alias or name for name, field in model.model_fields.items() if not field.is_required()}
    mended, changed = dict(values), False
    for fault in error.errors(include_url=False):
        name = fault["loc"][0] if fault["loc"] else ""
        value = mended.get(str(name))
        if value is None and name in mended and name in optional:
            del mended[str(name)]
            changed = True
        elif isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            try:
                mended[str(name)] = json.loads(value)
                changed = True
            except (ValueError, RecursionError):
                continue
    return mended if changed else None


@gate
def refuse(call: Call) -> ToolResult | None:
    """Turn down what is never run, whatever the approval mode."""
    why = refused(call.code) if call.code else None
    if why is None:
        return None
    notice = f"Refused: {why}. This is never run here; do the task without it, or say what the user should run."
    return denied(notice, f"refused: {why}")


@gate
def grade(call: Call) -> ToolResult | None:
    """Say how dangerous it looks."""
    try:
        call.risk, call.why = call.tool.grade(call.values, call.context)
    except NbAgentError:
        raise
    except Exception as error:  # noqa: BLE001 - a tool may bring a function for it, which may do anything
        call.risk, call.why = "destructive", f"its risk is not known: {type(error).__name__}: {error}"
    if call.risk not in RISKS:
        call.risk, call.why = "destructive", f"its risk is not known: {call.risk!r}"
    return None


@gate
def permit(call: Call) -> ToolResult | None:
    """Turn down what this session's settings do not allow, by name, tag or risk."""
    why = call.rules.permission.of_call(call.tool, call.risk)
    if not why:
        return None
    return denied(
        f"This {call.tool.name} call is not to be run ({call.risk}: {call.why}): {why}. Go on without it."
    )


@gate
def available(call: Call) -> ToolResult | None:
    """Answer at once for a tool that cannot be used now, before anyone is asked about it."""
    rules, context, tool = call.rules, call.context, call.tool
    breaker = context.kept(Breakers).of(tool.name, tool, rules.breaker, rules.clock)
    if when := breaker.refusal():
        return unavailable(
            f"The tool {tool.name} is unavailable: {breaker.why}; {when}. Go on without it until then."
        )
    if used_up := context.kept(Quotas).refusal(tool):
        return unavailable(used_up)
    return None


def denied(notice: str, summary: str = "") -> ToolResult:
    """Answer a call that must not be run."""
    return ToolResult("denied", "", summary or notice.partition(". ")[0], notice=notice)


def _python_literal(text: str) -> Any:
    """Read a Python literal (single quotes, True, a trailing comma), or JSON within a string; else None."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None
