"""ask_user: the user's own words come back, and nobody there is no answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nbagent.events import ApprovalAsked, ApprovalGiven
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.tools.ask_user import AskUser
from nbagent.view.question import ask_by_line
from tests.tools.calls import Desk
from tests.tools.conftest import User

QUESTION = "Net or gross prices?"


async def ask(tmp_path: Path, user: object, question: str = QUESTION, **rules: object) -> tuple[str, str, Desk]:
    desk = Desk(tmp_path, user=user)  # type: ignore[arg-type]
    status, text = await desk.call(desk.gateway(AskUser(), **rules), "ask_user", question=question)
    return status, text, desk


@pytest.mark.parametrize("approve", ["ask", "auto", "each", "off"])
async def test_the_users_words_are_told_and_logged_in_every_mode(tmp_path: Path, approve: str) -> None:
    user = User(Approval(True, "user", "net, please"))
    status, text, desk = await ask(tmp_path, user, approve=approve)
    assert (status, text) == ("ok", "The user answers: net, please")
    assert [(asked.tool, asked.code, asked.always) for asked in user.asked] == [("ask_user", QUESTION, "")]
    assert desk.context.of(ApprovalAsked)[0].code == QUESTION
    assert desk.context.of(ApprovalGiven)[0].note == "net, please"


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (Approval(False, "user"), "ok", "The user leaves it to you. Go on with what is most likely meant"),
        (Approval(False, "user", "neither: ask sales"), "ok", "The user answers: neither: ask sales"),
        (Approval(True, "user", "  "), "ok", "The user leaves it to you."),
        (Approval(False, "nobody", "no front end"), "unavailable", "Nobody is there to answer. Go on"),
    ],
)
async def test_no_answer_is_no_end(tmp_path: Path, answer: Approval, status: str, says: str) -> None:
    told, text, _ = await ask(tmp_path, User(answer))
    assert told == status
    assert text.startswith(says)


async def test_an_empty_question_is_not_put(tmp_path: Path) -> None:
    user = User(Approval(True, "user", "x"))
    status, text, _ = await ask(tmp_path, user, "  ")
    assert (status, user.asked) == ("invalid", [])
    assert "there is no question in it" in text


async def test_a_question_waits_no_longer_than_the_limit(tmp_path: Path) -> None:
    async def asleep(_: ApprovalRequest) -> Approval:
        await asyncio.sleep(60)
        raise AssertionError

    status, text, _ = await ask(tmp_path, asleep, approval_timeout=0.05)
    assert (status, text.partition(".")[0]) == ("unavailable", "Nobody is there to answer")


@pytest.mark.parametrize(
    ("typed", "approved", "note"), [("net", True, "net"), ("", False, ""), (" y ", True, "y")]
)
async def test_a_line_is_the_answer(typed: str, approved: bool, note: str) -> None:
    prompts: list[str] = []

    async def read(prompt: str) -> str:
        prompts.append(prompt)
        return typed

    request = ApprovalRequest("r", "c", "ask_user", QUESTION, "read", "")
    answer = await ask_by_line(request, read, None)
    assert (answer.approved, answer.by, answer.note) == (approved, "user", note)
    assert prompts == ["Your answer (empty: the agent decides): "]


async def test_no_keyboard_is_nobody() -> None:
    async def read(_: str) -> str:
        raise EOFError

    request = ApprovalRequest("r", "c", "ask_user", QUESTION, "read", "")
    assert (await ask_by_line(request, read, None)).by == "nobody"
