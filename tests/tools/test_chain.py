"""What the chain does around a tool's run: each way to fail has words of its own."""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from nbagent.errors import KernelLost
from nbagent.events import ActionFinished, ActionStarted, Observed, OutputAdded
from nbagent.protocols import Approval, ApprovalRequest, ToolContext, ToolResult
from nbagent.redaction import Redactor
from nbagent.reply import Action
from nbagent.tools.breaker import BreakerLimits
from nbagent.tools.chain import CHAIN
from nbagent.tools.definition import FunctionTool, tool
from nbagent.tools.permission import Permission
from tests.tools.calls import Desk
from tests.tools.test_approval import Dry


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_order_of_the_links_is_data() -> None:
    assert [link.__name__ for link in CHAIN] == [
        "parse",
        "find",
        "validate",
        "refuse",
        "grade",
        "permit",
        "available",
        "ask_the_user",
        "approve",
        "cache",
        "breaker",
        "quota",
        "concurrency",
        "contain",
        "time_limit",
        "retry",
        "run",
    ]


@tool(risk="read")
def double(number: int, tags: list[str] | None = None, exact: bool = False) -> str:
    """Double a number."""
    if number < 0:
        raise ValueError("only positive numbers")
    return f"{2 * number} {tags} {exact}"


@pytest.mark.parametrize(
    ("arguments", "status", "answered_by", "words"),
    [
        ({"number": 2}, "ok", "run", "4 None False"),
        ({"number": "2"}, "ok", "run", "4 None False"),
        ({"number": 2, "tags": '["a", "b"]'}, "ok", "run", "4 ['a', 'b'] False"),
        ({"number": 2, "exact": None}, "ok", "run", "4 None False"),
        ({"number": -1}, "error", "run", "The tool double failed.\n<output 3fa9c1>\nValueError: only positive"),
        ({"number": "two"}, "invalid", "validate", "double: number: Input should be a valid integer"),
        ({"numbre": 2}, "invalid", "validate", "Its arguments are: number, tags, exact."),
        ({"number": 2, "tags": "[a"}, "invalid", "validate", "tags: Input should be a valid list"),
    ],
)
async def test_every_outcome_has_its_words_and_names_its_link(
    desk: Desk, arguments: dict[str, Any], status: str, answered_by: str, words: str
) -> None:
    assert (told := await desk.call(desk.gateway(double), "double", **arguments))[0] == status
    assert words in told[1]
    assert (desk.last.answered_by, desk.last.tool) == (answered_by, "double")


async def test_what_a_tool_gives_is_shown_to_the_user_once_and_masked(desk: Desk) -> None:
    @tool
    async def show(context: ToolContext, itself: bool) -> str:
        """Show."""
        if itself:
            context.emit(OutputAdded(output={"output_type": "stream", "name": "stdout", "text": "its own"}))
        return "sk-test-ABCDEFGHIJKLMNOPQRSTUVWX and more"

    desk.context.redactor = Redactor({"MY_KEY": "sk-test-ABCDEFGHIJKLMNOPQRSTUVWX"})
    for itself in (False, True):
        await desk.call(desk.gateway(show), "show", itself=itself)
    texts = [event.output["text"] for event in desk.context.of(OutputAdded)]
    assert texts == ["[masked MY_KEY] and more\n", "its own"]


async def test_an_unknown_tool_is_answered_with_the_nearest(desk: Desk) -> None:
    status, text = await desk.call(desk.gateway(double), "dubble", number=1)
    assert (status, text) == (
        "invalid",
        "There is no tool 'dubble'. Did you mean double? The tools are: double.",
    )
    assert desk.last.answered_by == "find"


@pytest.mark.parametrize(
    ("invented", "meant"),
    [
        ("python_exec", "run_code"),
        ("execute_code", "run_code"),
        ("runcode", "run_code"),
        ("RUN_CODE", "run_code"),
        ("bash", "run_code"),
        ("cat_file", "read_file"),
        ("read-file", "read_file"),
        ("grep", "search_files"),
        ("zzz", ""),
    ],
)
async def test_a_name_that_models_invent_is_answered_with_the_tool_that_is_meant(
    desk: Desk, invented: str, meant: str
) -> None:
    def named(name: str) -> FunctionTool:
        return tool(name=name, description="It.")(lambda: "")

    gateway = desk.gateway(*map(named, ("run_code", "read_file", "search_files")))
    _, text = await desk.call(gateway, invented)
    assert (f"Did you mean {meant}?" in text) is bool(meant)
    assert text.endswith("The tools are: run_code, read_file, search_files.")


async def test_a_tool_that_the_settings_deny_is_said_to_be_denied(desk: Desk) -> None:
    gateway = desk.gateway(withheld={"fetch": "denied by setting (deny_tools=fetch)"})
    status, text = await desk.call(gateway, "fetch", url="x")
    assert status == "denied"
    assert "denied by setting (deny_tools=fetch)" in text


async def test_a_grade_that_the_settings_deny_is_not_run(desk: Desk) -> None:
    @tool(risk=lambda arguments, context: arguments["risk"])
    def act(risk: Literal["read", "network"]) -> str:
        """Act."""
        return "done"

    gateway = desk.gateway(act, permission=Permission(deny=("risk:network",)))
    assert (await desk.call(gateway, "act", risk="read"))[0] == "ok"
    status, text = await desk.call(gateway, "act", risk="network")
    assert (status, desk.last.answered_by) == ("denied", "permit")
    assert "deny_tools=risk:network" in text


# -- time -----------------------------------------------------------------------------------------------


async def test_a_hanging_sync_tool_is_answered_in_time_and_its_late_result_is_dropped(desk: Desk) -> None:
    go, ended = threading.Event(), threading.Event()

    @tool(timeout=0.1)
    def hang(context: ToolContext) -> str:
        """Hang."""
        go.wait(20)
        context.emit(OutputAdded(output={"output_type": "stream", "name": "stdout", "text": "late"}))
        ended.set()
        return "late"

    began = time.monotonic()
    status, text = await desk.call(desk.gateway(hang), "hang")
    assert time.monotonic() - began < 5
    assert (status, text) == (
        "timeout",
        "hang timed out after 0.1 s; what it gives later is dropped. Ask it for less, or go on without.",
    )
    assert desk.last.answered_by == "time_limit"
    go.set()
    assert await asyncio.to_thread(ended.wait, 20)
    await asyncio.sleep(0)
    assert not desk.context.of(OutputAdded)
    assert [event.text for event in desk.context.of(Observed)] == [text]


async def test_an_async_tool_is_cancelled_in_time_and_one_that_will_not_end_is_left(desk: Desk) -> None:
    heard: list[str] = []
    free = asyncio.Event()

    @tool(timeout=0.05)
    async def stubborn() -> str:
        """Hang."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            heard.append("cancelled")
            await free.wait()
        return "late"

    assert (await desk.call(desk.gateway(stubborn), "stubborn"))[0] == "timeout"
    assert heard == ["cancelled"]
    free.set()
    await asyncio.sleep(0)


async def test_stop_cancels_an_async_tool_and_leaves_a_sync_one(desk: Desk) -> None:
    running, heard, go = threading.Event(), [], threading.Event()

    @tool(timeout=30, parallel_safe=True)
    async def patient() -> str:
        """Wait."""
        running.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise
        return ""

    @tool(timeout=30, parallel_safe=True)
    def hang() -> str:
        """Hang."""
        go.wait(20)
        return ""

    gateway = desk.gateway(patient, hang)
    stopped = asyncio.ensure_future(
        desk.all(gateway, Action("a", "patient", "{}"), Action("b", "hang", "{}"), Action("c", "none", "{}"))
    )
    await asyncio.to_thread(running.wait, 10)
    began = time.monotonic()
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    assert time.monotonic() - began < 5
    go.set()
    assert heard == ["cancelled"]
    ends = {event.call_id: event.status for event in desk.context.of(ActionFinished)}
    assert ends == {"a": "interrupted", "b": "interrupted", "c": "invalid"}


async def test_a_stop_that_a_tool_keeps_to_itself_goes_no_further_all_the_same(desk: Desk) -> None:
    running = asyncio.Event()

    @tool(timeout=None)
    async def deaf() -> str:
        """Catch everything."""
        running.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "went on"
        return ""

    stopped = asyncio.ensure_future(
        desk.all(desk.gateway(deaf), Action("a", "deaf", "{}"), Action("b", "deaf", "{}"))
    )
    await running.wait()
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    ends = [(event.call_id, event.status) for event in desk.context.of(ActionFinished)]
    assert ends == [("a", "ok"), ("b", "skipped")]


async def test_a_sync_tool_does_not_hold_up_the_loop(desk: Desk) -> None:
    go = threading.Event()

    @tool
    def wait() -> str:
        """Wait for the loop to do something."""
        return str(go.wait(4))

    running = asyncio.ensure_future(desk.call(desk.gateway(wait), "wait"))
    await asyncio.sleep(0.01)
    go.set()
    assert "True" in (await running)[1]


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), asyncio.CancelledError()]
)
async def test_no_exception_of_a_tools_own_ends_the_run(desk: Desk, raised: BaseException) -> None:
    @tool
    def bad() -> str:
        """Raise."""
        raise raised

    @tool(timeout=None)
    async def bad_async() -> str:
        """Raise."""
        raise raised

    for one in (bad, bad_async)[: 1 if isinstance(raised, KeyboardInterrupt) else 2]:
        status, text = await desk.call(desk.gateway(one), one.name)
        assert status == "error"
        assert type(raised).__name__ in text


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"status": "fine"}, "status"),
        ({"text": None}, "text"),
        ({"notice": 5}, "notice"),
        ({"answer": 5}, "answer"),
        ({"execution_count": "a"}, "execution_count"),
        ({"images": [1]}, "images"),
    ],
)
async def test_a_result_that_is_none_is_the_tools_fault(desk: Desk, given: dict[str, Any], fault: str) -> None:
    @tool
    def odd() -> ToolResult:
        """Give what is no result."""
        return ToolResult(**{"status": "ok", "text": "", **given})

    status, text = await desk.call(desk.gateway(odd), "odd")
    assert status == "error"
    assert fault in text


async def test_a_text_without_end_does_not_hold_up_the_run(desk: Desk) -> None:
    @tool
    def long() -> str:
        """Say much."""
        return "head\n" + "x" * 30_000_000 + "\ntail"

    began = time.monotonic()
    status, text = await desk.call(desk.gateway(long), "long")
    assert (status, text.count("head"), text.count("tail")) == ("ok", 1, 1)
    assert time.monotonic() - began < 5


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_an_exception_that_cannot_be_written_is_named(desk: Desk) -> None:
    @tool
    async def bad() -> str:
        """Raise."""
        raise Mute

    assert "Mute" in (await desk.call(desk.gateway(bad), "bad"))[1]


# -- retries --------------------------------------------------------------------------------------------


def failing(times: int, error: Exception, **traits: Any) -> FunctionTool:
    left = [times]

    @tool(**traits)
    def flaky() -> str:
        """Fail, then answer."""
        if left[0]:
            left[0] -= 1
            raise error
        return "at last"

    return flaky


async def test_a_fault_of_the_connection_is_tried_again_where_a_tool_only_reads(desk: Desk) -> None:
    flaky = failing(2, ConnectionResetError("gone"), risk="read")
    status, text = await desk.call(desk.gateway(flaky), "flaky")
    assert (status, desk.last.attempts) == ("ok", 3)
    assert "at last" in text
    assert len(desk.context.of(ActionStarted)) == 1


@pytest.mark.parametrize(
    ("error", "traits", "attempts"),
    [
        (ConnectionResetError("gone"), {"risk": "write"}, 1),
        (ValueError("no such city"), {"risk": "read"}, 1),
        (FileNotFoundError("x"), {"risk": "read"}, 1),
        (ConnectionResetError("gone"), {"risk": "read", "retries": 1}, 2),
    ],
)
async def test_nothing_else_is_tried_again(
    desk: Desk, error: Exception, traits: dict[str, Any], attempts: int
) -> None:
    status, text = await desk.call(desk.gateway(failing(9, error, **traits)), "flaky")
    assert (status, desk.last.attempts) == ("error", attempts)
    assert ("(2 attempts)" in text) is (attempts == 2)


def test_faults_of_well_known_libraries_are_told_from_answers() -> None:
    import urllib.error

    import httpx

    from nbagent.tools.running import is_connection_fault

    assert is_connection_fault(httpx.ConnectError("x"))
    assert is_connection_fault(httpx.ReadTimeout("x"))
    assert is_connection_fault(urllib.error.URLError("x"))
    assert not is_connection_fault(urllib.error.HTTPError("u", 404, "m", {}, None))  # type: ignore[arg-type]
    assert not is_connection_fault(httpx.HTTPStatusError("x", request=None, response=None))  # type: ignore[arg-type]
    assert not is_connection_fault(PermissionError("x"))


# -- cache and quota ------------------------------------------------------------------------------------


async def test_a_good_result_is_kept_for_its_time_and_the_same_arguments(desk: Desk) -> None:
    ran: list[int] = []

    @tool(risk="read", cache=10, quota=3)
    def price(item: int) -> str:
        """Give a price."""
        ran.append(item)
        if item == 13:
            raise ValueError("unlucky")
        return f"{item}.00"

    gateway = desk.gateway(price)
    first = await desk.call(gateway, "price", item=1)
    assert await desk.call(gateway, "price", item="1") == first
    assert (desk.last.cached, desk.last.answered_by) == (True, "cache")
    for _ in range(2):
        assert (await desk.call(gateway, "price", item=13))[0] == "error"
    assert ran == [1, 13, 13]
    desk.clock.now += 10
    status, text = await desk.call(gateway, "price", item=1)
    assert (status, text) == (
        "unavailable",
        "The quota of price is used up (3 of 3 calls in this session). Go on without it.",
    )
    assert desk.last.answered_by == "available"


# -- breaker --------------------------------------------------------------------------------------------


def test_a_tool_that_hangs_again_and_again_rests_and_comes_back(desk: Desk) -> None:
    """Refused at once; an invalid call leaves the probe; errors of the user's code do not count."""
    with in_turned_time() as loop:
        loop.run_until_complete(hang_and_come_back(desk, loop))


async def hang_and_come_back(desk: Desk, loop: asyncio.AbstractEventLoop) -> None:
    hangs = [True, False, True, True, True, False]

    @tool(timeout=1, parallel_safe=True)
    async def t(number: int) -> str:
        """Hang or answer."""
        if hangs.pop(0):
            await asyncio.sleep(60)
        return f"ok {number}"

    gateway = desk.gateway(t, Failing(desk.folder), breaker=BreakerLimits(faults=3, cooldown=2), clock=loop.time)
    began = loop.time()
    for number, expected in enumerate(["timeout", "ok", "timeout", "timeout", "timeout"]):
        status, text = await desk.call(gateway, "t", number=number)
        assert status == expected
        assert ("timed out after 1 s" in text) is (status == "timeout")
    assert loop.time() - began == pytest.approx(4)
    for left in ("2 s", "1 s"):
        refused_at = loop.time()
        status, text = await desk.call(gateway, "t", number=9)
        assert (status, desk.last.answered_by) == ("unavailable", "available")
        assert f"3 faults in a row; it may be tried again in {left}" in text
        assert loop.time() == refused_at
        await asyncio.sleep(1)
    for _ in range(10):
        status, text = await desk.call(gateway, "run_code", code="1 / 0")
        assert status == "error"
        assert "ZeroDivisionError" in text
    await asyncio.sleep(0.5)
    assert (await desk.call(gateway, "t", number="none"))[0] == "invalid"
    status, text = await desk.call(gateway, "t", number=6)
    assert (status, hangs) == ("ok", [])
    assert "ok 6" in text


class Failing(Dry):
    """`run_code` whose code raises."""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("error", "ZeroDivisionError: division by zero")


class TurnedTime(selectors.DefaultSelector):
    """Nothing to wait for but time: it is over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += max(0.0, timeout or 0.0)
        return super().select(0)


@contextmanager
def in_turned_time() -> Iterator[asyncio.AbstractEventLoop]:
    selector = TurnedTime()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        yield loop
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


async def test_an_interrupt_a_refusal_and_a_kept_result_leave_the_probe(desk: Desk) -> None:
    mode = ["raise"]

    @tool(risk="network", cache=100)
    async def fetch(url: str) -> str:
        """Fetch."""
        if mode[0] == "raise":
            raise OSError("down")
        if mode[0] == "hang":
            await asyncio.sleep(60)
        return "page"

    answers = {"say": Approval(True, "user")}

    async def user(request: ApprovalRequest) -> Approval:
        return answers["say"]

    desk.user = user
    gateway = desk.gateway(fetch, breaker=BreakerLimits(faults=1, cooldown=2))
    mode[0] = "answer"
    await desk.call(gateway, "fetch", url="kept")
    mode[0] = "raise"
    await desk.call(gateway, "fetch", url="a")
    assert (await desk.call(gateway, "fetch", url="a"))[0] == "unavailable"
    desk.clock.now += 2
    assert (await desk.call(gateway, "fetch", url="kept"))[0] == "ok"
    answers["say"] = Approval(False, "user")
    assert (await desk.call(gateway, "fetch", url="a"))[0] == "denied"
    answers["say"] = Approval(True, "user")
    mode[0] = "hang"
    running = asyncio.ensure_future(desk.call(gateway, "fetch", url="a"))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    mode[0] = "answer"
    assert (await desk.call(gateway, "fetch", url="a"))[0] == "ok"


async def test_a_lost_kernel_is_no_fault_of_the_tool(desk: Desk) -> None:
    @tool
    async def code() -> str:
        """Run."""
        raise KernelLost("it died three times")

    gateway = desk.gateway(code, breaker=BreakerLimits(faults=1))
    for _ in range(2):
        assert (await desk.call(gateway, "code"))[1] == "it died three times"


# -- together -------------------------------------------------------------------------------------------


def pair(parallel_safe: bool) -> tuple[FunctionTool, list[str]]:
    """A tool that notes when it begins and ends; `last` waits for the others to have begun, where they may."""
    heard: list[str] = []
    all_begun = asyncio.Barrier(3)

    @tool(parallel_safe=parallel_safe)
    async def work(name: str) -> str:
        """Work."""
        heard.append(f"{name} begins")
        if parallel_safe:
            await all_begun.wait()
            await asyncio.sleep({"a": 0.02, "b": 0.01}.get(name, 0))
        heard.append(f"{name} ends")
        return name

    return work, heard


def three() -> list[Action]:
    return [Action(f"id-{name}", "work", f'{{"name": "{name}"}}') for name in "abc"]


async def test_parallel_safe_calls_run_together_and_results_keep_call_order(desk: Desk) -> None:
    work, heard = pair(parallel_safe=True)
    results = await desk.all(desk.gateway(work), *three())
    assert [(call_id, result.text) for call_id, result in results] == [("id-a", "a"), ("id-b", "b"), ("id-c", "c")]
    assert heard == ["a begins", "b begins", "c begins", "c ends", "b ends", "a ends"]
    told = {event.call_id: event.text for event in desk.context.of(Observed)}
    assert {call_id: text.splitlines()[1] for call_id, text in told.items()} == {
        "id-a": "a",
        "id-b": "b",
        "id-c": "c",
    }


async def test_one_call_that_is_not_parallel_safe_makes_all_wait_their_turn(desk: Desk) -> None:
    work, heard = pair(parallel_safe=False)
    await desk.all(desk.gateway(work, double), *three(), Action("d", "double", '{"number": 1}'))
    assert heard == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


async def test_calls_that_are_not_parallel_safe_are_alone_whoever_makes_them(desk: Desk) -> None:
    work, heard = pair(parallel_safe=False)
    gateway = desk.gateway(work)
    await asyncio.gather(*[gateway.call(action, desk.context, desk.user) for action in three()])
    assert heard == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


async def test_who_stops_listening_leaves_no_call_unanswered(desk: Desk) -> None:
    work, _ = pair(parallel_safe=False)
    answers = desk.gateway(work).answers(three(), desk.context, desk.user)
    assert (await anext(answers))[1].text == "a"
    await answers.aclose()
    assert [(event.call_id, event.status) for event in desk.context.of(ActionFinished)] == [
        ("id-a", "ok"),
        ("id-b", "skipped"),
        ("id-c", "skipped"),
    ]
    assert desk.context.of(Observed)[-1].text == "Not run: the run ended before it"


async def test_one_failure_among_parallel_calls_is_its_own(desk: Desk) -> None:
    @tool(parallel_safe=True, timeout=0.05)
    async def work(name: str) -> str:
        """Work."""
        if name == "a":
            raise ValueError("bad a")
        if name == "b":
            await asyncio.sleep(60)
        return name

    results = await desk.all(desk.gateway(work), *three())
    assert [result.status for _, result in results] == ["error", "timeout", "ok"]


async def test_every_call_leaves_one_audit_record(desk: Desk) -> None:
    gateway = desk.gateway(double, approve="each")
    await desk.call(gateway, "double", "1", number=1)
    await desk.call(gateway, "double", "2", number="x")
    await desk.call(gateway, "none", "3")
    gateway.skipped(Action("4", "double", "{}"), desk.context, "it was over")
    records = [
        (event.call_id, event.tool, event.status, event.answered_by, event.risk, event.approved_by)
        for event in desk.context.of(ActionFinished)
    ]
    assert records == [
        ("1", "double", "denied", "approve", "read", "nobody"),
        ("2", "double", "invalid", "validate", None, ""),
        ("3", "none", "invalid", "find", None, ""),
        ("4", "double", "skipped", "", None, ""),
    ]
