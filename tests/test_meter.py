"""The meter looks ahead: no budget is passed without a question, and what is not known is not claimed."""

from __future__ import annotations

import asyncio

import pytest

from nbagent.events import ActionFinished, ApprovalAsked, ApprovalGiven, Event, Usage
from nbagent.meter import Meter
from nbagent.models.pricing import Price
from nbagent.protocols import Approval, ApprovalRequest

PRICE = Price(1000, 100, 2000)  # a thousand tokens in are a dollar


class Asked:
    """Answers questions as it was told, and keeps what it heard."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.events: list[Event] = []
        self.requests: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Approval:
        self.requests.append(request)
        if not self.answers:
            return Approval(approved=False, by="nobody")
        return Approval(approved=self.answers.pop(0), by="user")


def meter(asked: Asked, **limits: float) -> Meter:
    return Meter(asked.events.append, asked.ask, PRICE, **limits)  # type: ignore[arg-type]


async def test_without_limits_nothing_is_asked_and_everything_is_counted() -> None:
    asked = Asked()
    counting = meter(asked)
    usage = counting.add(Usage(prompt_tokens=1000, cached_tokens=500, completion_tokens=10), 1100)
    assert usage.cost == pytest.approx(0.5 + 0.05 + 0.02)
    counting.add(Usage(prompt_tokens=1000), 1000)
    assert counting.spent.prompt_tokens == 2000
    assert await counting.before_request(10**9) is None
    assert not asked.requests


async def test_where_no_price_is_known_no_cost_is_shown() -> None:
    asked = Asked()
    counting = Meter(asked.events.append, asked.ask)
    assert counting.add(Usage(prompt_tokens=5), 5).cost is None


async def test_a_reply_that_was_ended_early_counts_its_prompt_as_an_estimate() -> None:
    counting = meter(Asked())
    counting.add(Usage(prompt_tokens=800, completion_tokens=1), 1000)  # this server counts 0.8 of our estimate
    usage = counting.add(Usage(completion_tokens=20, estimated=True), 1500)
    assert (usage.prompt_tokens, usage.estimated) == (1200, True)


async def test_a_server_that_counts_only_what_was_not_cached_does_not_spoil_the_reckoning() -> None:
    counting = meter(Asked(), max_tokens=3000)
    counting.add(Usage(prompt_tokens=20, completion_tokens=100), 2000)
    end = await counting.before_request(4000)
    assert end is not None
    assert end.reason == "max_tokens"


async def test_tokens_end_the_run_before_they_are_passed_with_room_left_to_sum_up() -> None:
    counting = meter(Asked(), max_tokens=4000)
    assert await counting.before_request(1000) is None
    counting.add(Usage(prompt_tokens=1000, completion_tokens=100), 1000)
    assert await counting.before_request(1200) is None
    end = await counting.before_request(1300)  # 1100 + 1400 for the step + 1600 to sum up
    assert end is not None
    assert end.reason == "max_tokens"
    assert counting.affords(1300)
    assert not counting.affords(2700)


async def test_money_is_asked_for_before_it_is_spent_and_a_yes_gives_as_much_again() -> None:
    asked = Asked(True, False)
    counting = meter(asked, max_cost=3.0)
    assert await counting.before_request(1000) is None  # 1.0, and a reply of 500 tokens: 1.0 more
    counting.add(Usage(prompt_tokens=1000, completion_tokens=500), 1000)
    assert await counting.before_request(1000) is None  # 2.0 spent, 2.0 for the step, 1.6 to sum up
    assert len(asked.requests) == 1
    assert "$3.00 more" in asked.requests[0].code
    counting.add(Usage(prompt_tokens=1000, completion_tokens=500), 1000)
    end = await counting.before_request(2000)
    assert end is not None
    assert end.reason == "max_cost"
    kinds = [type(event) for event in asked.events]
    assert kinds == [ApprovalAsked, ApprovalGiven, ActionFinished] * 2
    ends = [event.status for event in asked.events if isinstance(event, ActionFinished)]
    assert ends == ["ok", "denied"]


async def test_nobody_there_to_answer_is_no() -> None:
    counting = meter(Asked(), max_cost=0.5)
    end = await counting.before_request(1000)
    assert end is not None
    assert end.reason == "max_cost"


@pytest.mark.parametrize(("given", "granted"), [(1.0, 4.0), (3e-7, 3.5)])
async def test_a_budget_is_asked_about_once_a_step_however_small_it_is(given: float, granted: float) -> None:
    asked = Asked(True, True)
    counting = meter(asked, max_cost=given)
    assert await counting.before_request(2500) is None
    assert len(asked.requests) == 1
    assert counting.max_cost == pytest.approx(granted, rel=0.01)
    counting.add(Usage(prompt_tokens=2500, completion_tokens=500), 2500)
    assert await counting.before_request(2500) is None
    assert len(asked.requests) == 2


async def test_seconds_end_the_run_but_not_those_in_which_the_user_is_asked() -> None:
    counting = meter(Asked(), max_seconds=0.3)

    async def slow(request: ApprovalRequest) -> Approval:
        await asyncio.sleep(0.35)
        return Approval(approved=True, by="user")

    counting.ask = slow
    await counting.asked(ApprovalRequest("r", "c", "run_code", "1", "read", ""))
    assert counting.seconds > 0.3
    assert await counting.before_request(10) is None
    await asyncio.sleep(counting.seconds_left + 0.01)
    end = await counting.before_request(10)
    assert end is not None
    assert end.reason == "max_seconds"
