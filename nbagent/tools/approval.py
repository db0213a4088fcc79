"""The link that asks the user: when the mode and the grade want it, and never twice for what they allowed."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass, field, replace
from textwrap import indent

from nbagent.events import ActionEdited, ApprovalAsked, ApprovalGiven, Risk
from nbagent.protocols import Approval, ApprovalRequest, ToolResult
from nbagent.tools.answer import FinalAnswer
from nbagent.tools.call import Approve, Call, Rest
from nbagent.tools.findings import RISKS
from nbagent.tools.links import denied, validate
from nbagent.tools.threads import in_a_thread

#: Which grades wait for the user's yes.
ASKS: dict[Approve, frozenset[Risk]] = {
    "ask": frozenset({"overwrite", "network", "destructive"}),
    "auto": frozenset({"destructive"}),
    "each": frozenset({"read", "write", "overwrite", "network", "destructive"}),
    "off": frozenset(),
}

#: What may be so bad that a yes holds for this very action only.
ONLY_ITSELF: frozenset[Risk] = frozenset({"destructive"})

_ANY = {"run_code": "any code", "run_shell": "any command"}
_DOES: dict[Risk, str] = {
    "read": "only reads",
    "write": "adds files",
    "overwrite": "overwrites files",
    "network": "uses the network or overwrites files",
}


@dataclass(slots=True)
class Grants:
    """What the user allowed for the rest of the session, and the one question at a time."""

    patterns: dict[str, set[str]] = field(default_factory=dict)  #: by tool: what it may do, in words
    risks: dict[str, Risk] = field(default_factory=dict)  #: by tool: the worst grade that is allowed as a whole
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def covers(self, call: Call) -> bool:
        """Whether the user has allowed this call before."""
        name, risk = call.tool.name, _risk(call)
        if risk not in ONLY_ITSELF and name in self.risks and _not_worse(risk, self.risks[name]):
            return True
        return set(patterns(call)) <= self.patterns.get(name, set())

    def add(self, call: Call) -> None:
        """Take in a yes that was meant for more than this call."""
        name, risk = call.tool.name, _risk(call)
        if call.remember == "session" and risk not in ONLY_ITSELF:
            known = self.risks.get(name, risk)
            self.risks[name] = risk if _not_worse(known, risk) else known
        elif call.remember:
            self.patterns.setdefault(name, set()).update(patterns(call))


def patterns(call: Call) -> tuple[str, ...]:
    """Say in words what "always" would cover: what the call does, or this very action where that is too much."""
    risk, own = _risk(call), call.tool.traits.patterns
    if risk in ONLY_ITSELF:
        return (written(call),)
    try:
        found = tuple(map(str, own(call.values))) if own is not None else ()
    except Exception:  # noqa: BLE001 - a tool's own function; without its words a yes is for this very action
        return (written(call),)
    return found or (f"{call.tool.name} ({risk})",)


def written(call: Call) -> str:
    """Write the call as a person reads it: the code that it runs, or the tool with its arguments."""
    if call.code:
        return call.code
    long = {name for name, value in call.values.items() if isinstance(value, str) and "\n" in value}
    if not long:
        return f"{call.tool.name}({json.dumps(call.values, ensure_ascii=False)})"
    parts = [
        f"{name}:\n{indent(value, '    ')}" if name in long else f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in call.values.items()
    ]
    return "\n".join([call.tool.name, *parts])


async def approve(call: Call, rest: Rest) -> ToolResult:
    """Ask the user where the mode says so; no answer is no."""
    risk = _risk(call)
    grants = call.context.kept(Grants)
    if call.approved_by:  # here again with the code that the user edited
        grants.add(call)
        return await rest()
    if risk not in ASKS[call.rules.approve] or call.tool.name == FinalAnswer.name:
        return await rest()
    async with grants.asking:
        if grants.covers(call):
            call.approved_by = "rule"
            return await rest()
        code, approval = await _ask(call, risk)
    call.approved_by = approval.by
    if not approval.approved:
        return _refusal(approval)
    call.remember = approval.always
    edited = approval.code is not None and approval.code not in (call.code, code)
    if edited and not call.code:
        # Its arguments cannot be read back from what was shown: what the user did not see must not run.
        return _changed(call, approval.code or "")
    if edited:
        with_code = call.tool.traits.with_code or (lambda values, code: {**values, "code": code})
        call.values, call.edited = with_code(call.values, approval.code or ""), True
        call.context.emit(ActionEdited(arguments=json.dumps(call.values, ensure_ascii=False)))
        return await call.go(call.links[call.links.index(validate) :])
    grants.add(call)
    return await rest()


async def put_question(call: Call, question: str) -> Approval:
    """Ask the user something in words, one question at a time; what they write is the answer's `note`."""
    async with call.context.kept(Grants).asking:
        shown = call.context.redactor.text(question)
        request = ApprovalRequest(
            secrets.token_hex(4), call.action.call_id, call.tool.name, shown, "read", call.why
        )
        return await _put(call, request)


async def _ask(call: Call, risk: Risk) -> tuple[str, Approval]:
    """Ask whether the call may run; give the code as it was shown, too."""
    context, tool = call.context, call.tool
    code = context.redactor.text("\n".join(filter(None, [written(call), await _preview(call)])))
    request = ApprovalRequest(
        request=secrets.token_hex(4),
        call_id=call.action.call_id,
        tool=tool.name,
        code=code,
        risk=risk,
        why=call.why,
        always="this very action" if risk in ONLY_ITSELF else context.redactor.text("; ".join(patterns(call))),
        session=_all_up_to(risk, tool.name),
    )
    return code, await _put(call, request)


def _all_up_to(risk: Risk, tool: str) -> str:
    """Say in words what a yes for the whole session would cover; "" where there is none."""
    return f"{_ANY.get(tool, f'any {tool}')} that {_DOES[risk]}" if risk in _DOES else ""


async def _preview(call: Call) -> str:
    """Give what a yes would change, in the tool's own words; "" where it cannot say."""
    preview = call.tool.traits.preview
    if preview is None:
        return ""
    try:
        told = str(await in_a_thread(preview, call.values, call.context))
    except Exception:  # noqa: BLE001 - a tool's own function; without its words the call itself is shown
        return ""
    return f"What it changes:\n{told}" if told.strip() else ""


async def _put(call: Call, request: ApprovalRequest) -> Approval:
    """Put a question and record it with its answer."""
    context, limit = call.context, call.rules.approval_timeout
    context.emit(
        ApprovalAsked(
            request=request.request,
            tool=request.tool,
            code=request.code,
            risk=request.risk,
            why=request.why,
            always=request.always,
            session_wide=request.session,
        )
    )
    try:
        async with asyncio.timeout(limit) as waiting:
            approval = await call.ask(request)
    except TimeoutError:
        if not waiting.expired():
            raise
        approval = Approval(False, "nobody", f"no answer within {limit:g} s")
    context.emit(
        ApprovalGiven(
            request=request.request,
            approved=approval.approved,
            by=approval.by,
            note=approval.note,
            always=approval.always if approval.approved else "",
        )
    )
    return approval


def _refusal(approval: Approval) -> ToolResult:
    nobody = approval.by == "nobody"
    who = "Nobody was there to approve this action" if nobody else "The user refused this action"
    note = f" ({approval.note})" if approval.note else ""
    notice = f"{who}{note}. Do not try it again another way; go on without it, or answer with what you know."
    return replace(denied(notice, f"refused{note}"), denied_by="nobody" if nobody else "user")


def _changed(call: Call, wanted: str) -> ToolResult:
    """Answer a call whose text the user changed, of a tool that is not run from a text."""
    notice = f"The user changed this {call.tool.name} call, so it was not run. Call it as they want it:"
    return ToolResult("denied", call.context.redactor.text(wanted), "changed by the user", notice=notice)


def _risk(call: Call) -> Risk:
    assert call.risk is not None, "graded by the link before"
    return call.risk


def _not_worse(risk: Risk, than: Risk) -> bool:
    return RISKS.index(risk) <= RISKS.index(than)
