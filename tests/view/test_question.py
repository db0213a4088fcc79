"""A question answered by a line: what is offered, what each answer means, and what counts as nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nbagent.protocols import Approval, ApprovalRequest
from nbagent.view.question import ask_by_line

ONCE = ApprovalRequest("r", "a", "run_code", "boom()", "destructive", "deletes a")
EVERY = "any code that uses the network or overwrites files"
LASTING = ApprovalRequest("r", "a", "run_code", "get()", "network", "requests.get", "requests.get", EVERY)


def lines(*answers: str | BaseException) -> tuple[Callable[[str], Awaitable[str]], list[str]]:
    left, prompts = list(answers), []

    async def read(prompt: str) -> str:
        prompts.append(prompt)
        answer = left.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return read, prompts


@pytest.mark.parametrize(
    ("answer", "approval"),
    [
        ("y", Approval(True, "user")),
        (" YES ", Approval(True, "user")),
        ("n", Approval(False, "user")),
        ("no use a copy", Approval(False, "user", "use a copy")),
        ("a", Approval(True, "user", always="pattern")),
        ("Always", Approval(True, "user", always="pattern")),
        ("s", Approval(True, "user", always="session")),
        (EOFError(), Approval(False, "nobody", "nobody is there to answer; see --approve")),
        (NotImplementedError(), Approval(False, "nobody", "nobody is there to answer; see --approve")),
    ],
)
async def test_each_answer_has_its_meaning(answer: str | BaseException, approval: Approval) -> None:
    read, prompts = lines(answer)
    assert await ask_by_line(LASTING, read, None) == approval
    assert prompts == [f"Approve? [y]es / [n]o / [a]lways requests.get / [s]ession: {EVERY} "]


async def test_what_is_not_offered_is_no_answer() -> None:
    read, prompts = lines("a", "s", "e", "", "what?", "n")
    assert await ask_by_line(ONCE, read, None, asked="boom()\nRun it?") == Approval(False, "user")
    assert prompts == ["boom()\nRun it? [y]es / [n]o ", *["Approve? [y]es / [n]o "] * 5]


async def test_ctrl_c_stops_the_run() -> None:
    read, _ = lines(KeyboardInterrupt())
    with pytest.raises(asyncio.CancelledError):
        await ask_by_line(ONCE, read, None)


async def test_a_plan_is_answered_by_other_steps_in_a_line() -> None:
    plan = ApprovalRequest("r", "plan_1", "plan", "1. [ ] Load", "read", "change it if you like")
    read, prompts = lines("what?", "load b.csv ; count its rows")
    assert await ask_by_line(plan, read, None) == Approval(True, "user", code="load b.csv\ncount its rows")
    assert prompts == ["Approve? [y]es / [n]o / your own steps; like; this "] * 2
    read, _ = lines("n use polars; not pandas")
    assert await ask_by_line(plan, read, None) == Approval(False, "user", "use polars; not pandas")
    read, _ = lines("a; b", "n")
    assert await ask_by_line(ONCE, read, None) == Approval(False, "user"), "code is not typed in a line"
