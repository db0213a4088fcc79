"""The meter of one run: tokens, money and time, and the budgets that they are held against.

A budget is looked at before a request is sent: what the next one may cost is reckoned from above (nothing
cached, a reply as long as the longest so far), so that the limit is not passed unasked.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from nbagent.events import ActionFinished, ActionStatus, ApprovalAsked, ApprovalGiven, Event, Usage
from nbagent.guards import End
from nbagent.models.pricing import Price, dollars
from nbagent.protocols import Approval, ApprovalRequest

#: Tokens of a reply before any has been seen, for the reckoning.
FIRST_REPLY_TOKENS = 500
#: Tokens of a summary at the end.
SUMMARY_TOKENS = 300
#: No tokenizer differs from the estimate by more than this, either way.
LEAST_RATIO = 0.4
BUDGET = "max_cost"


@dataclass(slots=True)
class Meter:
    """Counts what a run spends, from now on. The limits are in tokens, US dollars and seconds."""

    emit: Callable[[Event], None]
    ask: Callable[[ApprovalRequest], Awaitable[Approval]]
    price: Price | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float = math.inf
    spent: Usage = field(default_factory=Usage)
    _longest_reply: int = 0
    _ratio: float = 1.0  #: tokens that the server counts for one that we estimate
    _questions: int = 0
    _first_cost: float = 0.0  #: the `max_cost` that the user gave
    _began: float = field(default_factory=time.monotonic)
    _waited: float = 0.0  #: seconds that the user took to answer

    @property
    def seconds(self) -> float:
        """How long the run has lasted, questions included."""
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float:
        """How long it may still work."""
        return self.max_seconds - self.seconds + self._waited

    async def asked(self, request: ApprovalRequest) -> Approval:
        """Ask the user, in time that is not the run's."""
        began = time.monotonic()
        try:
            return await self.ask(request)
        finally:
            self._waited += time.monotonic() - began

    def out_of_time(self) -> End:
        """Give the ending of a run that has used up its seconds."""
        return End("max_seconds", f"Stopped after {self.max_seconds:g} s without an answer (max_seconds).")

    def add(self, usage: Usage, estimated_prompt: int) -> Usage:
        """Count one request; give its usage completed: an estimate where the server said nothing, the cost.

        A reply that was ended early comes without the tokens of its prompt; they were read all the same.
        """
        if usage.prompt_tokens and not usage.estimated and estimated_prompt:
            # Some servers count only what they had not cached: that is no measure of a prompt.
            self._ratio = min(max(usage.prompt_tokens / estimated_prompt, LEAST_RATIO), 1 / LEAST_RATIO)
        if not usage.prompt_tokens:
            prompt = round(estimated_prompt * self._ratio)
            usage = usage.model_copy(update={"prompt_tokens": prompt, "estimated": True})
        if self.price is not None and usage.cost is None:
            usage = usage.model_copy(update={"cost": self.price.of(usage)})
        self._longest_reply = max(self._longest_reply, usage.completion_tokens)
        self.spent += usage
        return usage

    async def before_request(self, estimated_prompt: int) -> End | None:
        """Say whether a step with a request of about that many tokens may be taken.

        Room is kept for a last request that sums up. At the limit of money the user is asked.
        """
        if self.seconds_left <= 0:
            return self.out_of_time()
        if self.max_tokens is not None:
            coming = self._coming(estimated_prompt)
            if self.spent.total_tokens + coming.total_tokens > self.max_tokens:
                return End(
                    "max_tokens",
                    f"Stopped at {self.spent.total_tokens:,} tokens: the next step may take "
                    f"{coming.total_tokens:,}, more than max_tokens ({self.max_tokens:,}) allows.",
                )
        while (end := self._too_dear(estimated_prompt)) is not None:
            if not await self._granted(end.message, self._cost(self.spent + self._coming(estimated_prompt))):
                return end
        return None

    def affords(self, estimated_prompt: int) -> bool:
        """Whether one more short request fits the budgets, without a question."""
        closing = self._closing(estimated_prompt)
        return (self.max_tokens is None or self.spent.total_tokens + closing.total_tokens <= self.max_tokens) and (
            self.max_cost is None or self._cost(self.spent) + self._cost(closing) <= self.max_cost
        )

    def _coming(self, estimated_prompt: int) -> Usage:
        """What the next step may take, and summing up behind it."""
        step = Usage(
            prompt_tokens=round(estimated_prompt * self._ratio),
            completion_tokens=self._longest_reply or FIRST_REPLY_TOKENS,
        )
        return step + self._closing(estimated_prompt) if self.spent.total_tokens else step

    def _closing(self, estimated_prompt: int) -> Usage:
        return Usage(prompt_tokens=round(estimated_prompt * self._ratio), completion_tokens=SUMMARY_TOKENS)

    def _cost(self, usage: Usage) -> float:
        if usage.cost is not None:
            return usage.cost
        return 0.0 if self.price is None else self.price.of(usage)

    def _too_dear(self, estimated_prompt: int) -> End | None:
        if self.max_cost is None:
            return None
        spent, coming = self._cost(self.spent), self._cost(self._coming(estimated_prompt))
        if spent + coming <= self.max_cost:
            return None
        return End(
            "max_cost",
            f"Stopped at {dollars(spent)}: the next step may cost {dollars(coming)}, more than max_cost "
            f"({dollars(self.max_cost)}) allows.",
        )

    async def _granted(self, why: str, wanted: float) -> bool:
        """Ask for as much again, as often as `wanted` dollars take it. Nobody there to answer is no."""
        assert self.max_cost is not None
        self._questions += 1
        self._first_cost = self._first_cost or self.max_cost
        more = self._first_cost * max(1, math.ceil((wanted - self.max_cost) / self._first_cost))
        call_id, request = f"budget_{self._questions}", secrets.token_hex(4)
        question = f"Spend up to {dollars(more)} more on this task?"
        reason = why.removeprefix("Stopped at ").rstrip(".")
        self.emit(
            ApprovalAsked(
                call_id=call_id, request=request, tool=BUDGET, code=question, risk="network", why=f"spent {reason}"
            )
        )
        approval = await self.ask(
            ApprovalRequest(request, call_id, BUDGET, question, "network", f"spent {reason}")
        )
        self.emit(
            ApprovalGiven(
                call_id=call_id,
                request=request,
                approved=approval.approved,
                by=approval.by,
                note=approval.note,
            )
        )
        if approval.approved:
            self.max_cost += more
        summary = f"max_cost is now {dollars(self.max_cost)}" if approval.approved else "no more is spent"
        status: ActionStatus = "ok" if approval.approved else "denied"
        self.emit(ActionFinished(call_id=call_id, status=status, seconds=0.0, summary=summary))
        return approval.approved
