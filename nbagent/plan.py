"""The plan of a run: a checklist made before the work, which the user may change, and ticked while it goes on.

What the model is told of it stays in the history; ticks are for people and come back to the model only where
the plan is changed or the history is summed up. Without a usable plan the run goes on without one.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from nbagent import checklist
from nbagent.aside import Aside
from nbagent.context import Conversation
from nbagent.events import (
    ActionFinished,
    ActionStatus,
    ApprovalAsked,
    ApprovalGiven,
    Event,
    PlanItem,
    PlanMade,
    PlanUpdated,
)
from nbagent.guards import End
from nbagent.prompt import text_named
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.turns import Step

PLAN = "plan"
#: How often the user may send the plan back with a word on it.
MOST_PLANS = 3
WHY = "change it if you like"


@dataclass(slots=True)
class Planner:
    """Makes and keeps the plan of one run; does nothing unless it is `on`. `ask` is None where nothing asks."""

    on: bool
    aside: Aside
    conversation: Conversation
    emit: Callable[[Event], None]
    ask: Callable[[ApprovalRequest], Awaitable[Approval]] | None
    items: list[PlanItem] = field(default_factory=list)

    def text(self) -> str:
        """Give the plan as it stands for the model; "" where there is none."""
        return f"The plan as it stands:\n{checklist.written(self.items)}" if self.items else ""

    async def make(self) -> None:
        """Ask the model for a plan, and the user for a word on it."""
        if not self.on:
            return
        question = text_named("plan")
        for number in range(1, MOST_PLANS + 1):
            items = checklist.proposed(await self._asked(question))
            if not items:
                return
            approval = await self._approved(items, number)
            if approval.approved or approval.by == "nobody":
                changed = checklist.read(approval.code) if approval.code is not None else items
                self._begin(changed, edited=changed != items, seen=approval.by == "user")
                return
            if not approval.note:
                return
            said = text_named("plan_again").replace("{plan}", checklist.written(items))
            question = f"{said.replace('{note}', approval.note)}\n\n{text_named('plan')}"

    async def update(self, end: End | None) -> None:
        """After a step, tick what is done and change what an observation broke; `end` is that of the run."""
        answered = end is not None and end.reason == "answered"
        if all(item.done for item in self.items) or not (answered or (end is None and self._saw_something)):
            return
        question = text_named("plan_update").replace("{plan}", checklist.written(self.items))
        value = checklist.object_in(await self._asked(question))
        numbers = value.get("done")
        done = {str(number) for number in numbers} if isinstance(numbers, list) else set()
        items = [
            item.model_copy(update={"done": item.done or str(at) in done}) for at, item in enumerate(self.items, 1)
        ]
        why, changed = value.get("why"), value.get("changed")
        others = checklist.of_texts(changed) if isinstance(changed, list) and not answered else []
        left = [item for item in items if not item.done]
        if others and others != left and isinstance(why, str) and why.strip():
            self._change([item for item in items if item.done] + others, checklist.short(" ".join(why.split())))
        elif items != self.items:
            self.items = items
            self.emit(PlanUpdated(items=items))

    @property
    def _saw_something(self) -> bool:
        last = self.conversation.turns[-1] if self.conversation.turns else None
        return isinstance(last, Step) and bool(last.observations)

    def _begin(self, items: list[PlanItem], *, edited: bool, seen: bool) -> None:
        self.items = items
        if not items:
            return  # the user took all of it out
        who = "changed by the user" if edited else "approved by the user" if seen else "not seen by the user"
        message = text_named("plan_made").replace("{who}", who).replace("{plan}", checklist.written(items))
        self.emit(PlanMade(items=items, message=self._with_reminder(message), edited=edited))

    def _change(self, items: list[PlanItem], why: str) -> None:
        self.items = items
        message = text_named("plan_changed").replace("{why}", why).replace("{plan}", checklist.written(items))
        self.emit(PlanUpdated(items=items, why=why, message=self._with_reminder(message)))

    def _with_reminder(self, message: str) -> str:
        """Small models must read last that they are to compute."""
        return message if self.conversation.dialect == "tools" else f"{message}\n\n{text_named('reminder')}"

    async def _asked(self, question: str) -> str:
        fields: dict[str, Any] = {"temperature": 0}
        if self.conversation.dialect != "tools":
            fields["response_format"] = {"type": "json_object"}
        return await self.aside.ask("plan", question, fields)

    async def _approved(self, items: list[PlanItem], number: int) -> Approval:
        """Show the plan to the user and take their yes, no or changed version. Nobody there is no objection."""
        if self.ask is None:
            return Approval(approved=True, by="rule")
        call_id, request, text = f"{PLAN}_{number}", secrets.token_hex(4), checklist.written(items)
        self.emit(ApprovalAsked(call_id=call_id, request=request, tool=PLAN, code=text, risk="read", why=WHY))
        approval = await self.ask(ApprovalRequest(request, call_id, PLAN, text, "read", WHY))
        self.emit(
            ApprovalGiven(
                call_id=call_id, request=request, approved=approval.approved, by=approval.by, note=approval.note
            )
        )
        summary = "taken" if approval.approved else "not taken" if approval.by == "user" else "nobody was asked"
        status: ActionStatus = "denied" if not approval.approved and approval.by == "user" else "ok"
        self.emit(ActionFinished(call_id=call_id, status=status, seconds=0.0, summary=summary))
        return approval
