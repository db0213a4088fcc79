"""What the page is told: small operations on the shown run, numbered from 1, made from events.

The page keeps the last number that it has; whatever it missed is sent again from this log. Text that
streams is joined between two sendings, so the log grows with the text and with time, not with tokens. Of steps
far back the page keeps a line, and so does the log: neither a page nor what it is sent again grows with the run.
"""

from __future__ import annotations

from typing import Any

from nbagent.events import (
    ActionDelta,
    ActionEdited,
    ActionFinished,
    ActionProposed,
    ActionStarted,
    ApprovalAsked,
    ApprovalGiven,
    Event,
    OutputAdded,
    PlanMade,
    PlanUpdated,
    Reasoning,
    ReasoningDelta,
    Retrying,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    Thought,
    ThoughtDelta,
)
from nbagent.view.outputs import Block, block
from nbagent.view.static import title_of
from nbagent.view.trace import Trace, TraceStep, call_text, code_of, cost_of, mark_of, note_of

Op = dict[str, Any]

KEPT_STEPS = 50  #: the newest, which are shown whole; of older ones the title stays
_STREAMED = {"say", "reason", "draft"}


class OpLog:
    """Every operation of one run; `take` gives those that were not given before."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.ops: list[Op | None] = []  #: None: of a step that is folded to a line now
        self._taken = 0
        self._of_step: dict[int, list[int]] = {}  # places in `ops`

    @property
    def last(self) -> int:
        """The number of the newest operation."""
        return len(self.ops)

    def add(self, event: Event) -> None:
        """Take in one event."""
        for op in _ops(event, self.trace):
            self._append(op)
        self.trace.add(event)
        if isinstance(event, StepStarted) and len(self.trace.steps) > KEPT_STEPS:
            self._fold(self.trace.steps[-1 - KEPT_STEPS])

    def take(self) -> tuple[int, list[Op | None]]:
        """Give the number of the first new operation, and the new operations."""
        first, self._taken = self._taken + 1, len(self.ops)
        return first, self.ops[first - 1 :]

    def after(self, last: int) -> tuple[int, list[Op | None]]:
        """Give again what was given already and comes after number `last`."""
        last = max(0, min(last, self._taken))
        return last + 1, self.ops[last : self._taken]

    def _append(self, op: Op) -> None:
        newest = (self.ops[-1] if len(self.ops) > self._taken else None) or {}
        if op["t"] in _STREAMED and (newest.get("t"), newest.get("n"), newest.get("tool")) == (
            op["t"],
            op["n"],
            op.get("tool"),
        ):
            newest["x"] += op["x"]
        elif (
            op["t"] == newest.get("t") == "out"
            and op["id"] == newest["id"]
            and op["b"]["kind"] == newest["b"]["kind"] in ("stdout", "stderr")
        ):
            newest["b"]["text"] += op["b"]["text"]
        else:
            self._of_step.setdefault(op.get("n", 0), []).append(len(self.ops))
            self.ops.append(op)

    def _fold(self, step: TraceStep) -> None:
        """Let a line stand for a step: where it was, for a page that comes later, and now, for those there are."""
        places = self._of_step.pop(step.number, [])
        if not places:
            return
        bad = [action.status for action in step.actions if action.status != "ok"]
        line = {"t": "fold", "n": step.number, "title": title_of(step), "seconds": step.seconds}
        for place in places:
            self.ops[place] = None
        self.ops[places[0]] = line | {"status": bad[-1] if bad else "ok"}
        self.ops.append(self.ops[places[0]])


def _ops(event: Event, before: Trace) -> list[Op]:
    """Say one event in operations; `before` is the run up to it."""
    if isinstance(event, RunStarted):
        named = {"t": "run", "id": mark_of(event), "task": event.task, "at": event.time}
        return [{**named, "model": event.model, "label": event.label}]
    if isinstance(event, RunFinished):
        return [_end(event, before)]
    if isinstance(event, PlanMade | PlanUpdated):
        return [{"t": "plan", "items": [[item.text, item.done] for item in event.items]}]
    if note := note_of(event):
        number = before.step(event).number if event.step or before.steps else 0
        void: list[Op] = [{"t": "void", "n": number}] if isinstance(event, Retrying) and not event.aside else []
        return [*void, {"t": "note", "n": number, "x": note}]
    if isinstance(event, StepStarted):
        return [{"t": "step", "n": event.step}]
    if isinstance(event, StepFinished):
        number = before.step(event).number
        cost = cost_of(before.usage + event.usage)
        tokens = event.usage.total_tokens
        return [{"t": "stepped", "n": number, "tokens": tokens, "seconds": event.seconds, "cost": cost}]
    return _speech(event, before) or _action(event, before)


def _speech(event: Event, before: Trace) -> list[Op]:
    if isinstance(event, ThoughtDelta | ReasoningDelta | ActionDelta) and event.text:
        number = before.step(event).number
        if isinstance(event, ActionDelta):
            return [{"t": "draft", "n": number, "tool": event.tool, "x": event.text}]
        return [{"t": "say" if isinstance(event, ThoughtDelta) else "reason", "n": number, "x": event.text}]
    if isinstance(event, Thought | Reasoning):
        step = before.step(event)
        name, shown = ("said", step.thought) if isinstance(event, Thought) else ("reasoned", step.reasoning)
        op: Op = {"t": name, "n": step.number}
        return [op if shown == event.text else {**op, "x": event.text}]
    return []


def _action(event: Event, before: Trace) -> list[Op]:
    op: Op = {"n": before.step(event).number if event.call_id else 0, "id": event.call_id}
    if isinstance(event, ActionProposed):
        return [{**op, "t": "action", "tool": event.tool, "code": code_of(event.tool, event.arguments)}]
    if isinstance(event, ActionEdited):
        tool = before.step(event).action(event.call_id).tool
        return [{**op, "t": "action", "tool": tool, "code": code_of(tool, event.arguments), "edited": True}]
    if isinstance(event, ApprovalAsked):
        asked = {"request": event.request, "tool": event.tool, "code": event.code}
        asked |= {"risk": event.risk, "why": event.why, "always": event.always, "session": event.session_wide}
        return [{**op, **asked, "t": "ask"}]
    if isinstance(event, ApprovalGiven):
        return [{**op, "t": "given", "request": event.request, "approved": event.approved, "by": event.by}]
    if isinstance(event, ActionStarted):
        code = event.code or call_text(event.tool, event.arguments)
        return [{**op, "t": "start", "tool": event.tool, "code": code, "at": event.time}]
    if isinstance(event, OutputAdded):
        return [{**op, "t": "out", "b": _plain_block(block(event.output))}]
    if isinstance(event, ActionFinished):
        done = {"status": event.status, "seconds": event.seconds, "summary": event.summary}
        return [{**op, "t": "done", **done, **({"allowed": True} if event.approved_by == "rule" else {})}]
    return []


def _plain_block(shown: Block) -> dict[str, Any]:
    if shown.kind == "table":
        return {"kind": "table", "rows": shown.rows, "heads": shown.heads, "text": shown.text}
    if shown.kind == "image":
        return {"kind": "image", "mime": shown.mime, "data": shown.data, "text": shown.text}
    return {"kind": shown.kind, "text": shown.text}


def _end(event: RunFinished, before: Trace) -> Op:
    after = Trace()
    after.add(event)
    return {
        "t": "end",
        "answered": event.reason == "answered",
        "stopped": event.reason == "interrupted",
        "ending": after.ending,
        "advice": after.advice,
        "answer": event.answer,
        "tokens": event.usage.total_tokens or before.usage.total_tokens,
        "seconds": event.seconds,
        "cost": cost_of(event.usage),
    }
