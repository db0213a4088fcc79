"""How runs end that no answer ends: each with its own reason, a summary at a limit, and a next run that goes on.

One session and one kernel serve all of them, as in a notebook.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from nbagent import summing_up
from nbagent.api import result_of
from nbagent.context import Conversation
from nbagent.events import (
    ActionFinished,
    AsideAnswered,
    DialectChosen,
    StepFinished,
)
from nbagent.models.dialects import dialect_named
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.spending import spending
from nbagent.summing_up import in_prose
from nbagent.view import static
from nbagent.view.trace import Trace
from tests.one_session import Notebook, open_notebook, used
from tests.scripted_server import C, Delay, F, Gate, T, final, plain, run_code, sse
from tests.test_session import Recorder

EMPTY = sse(C({"role": "assistant", "content": ""}), C({}, "stop"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def notebook(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notebook]:
    async with open_notebook(tmp_path_factory.mktemp("work")) as made:
        yield made


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_at_the_step_limit_one_last_call_sums_up_and_continue_goes_on(notebook: Notebook) -> None:
    """LOOP-04."""
    summary = "Seen so far: x is 41. Open: the sum."
    finished = await notebook.cell(run_code("x = 41"), run_code("x", "b"), final(summary), max_steps=2)
    assert (finished.reason, finished.answer, finished.summary, finished.steps) == ("max_steps", "", summary, 2)
    asked = notebook.last(1)[0]
    assert asked["tool_choice"] == "none"
    assert "limit of steps" in asked["messages"][-1]["content"]
    assert [event.purpose for event in notebook.view.of(AsideAnswered)] == ["sum_up"]

    assert notebook.session is not None
    result = result_of(finished, notebook.session)
    assert not result.success
    assert summary in str(result)
    shown = Trace(notebook.view.shown)
    for text in (static.text(shown), static.html(shown)):
        assert "Step limit reached" in text
        assert "Not an answer" in text
        assert "Seen so far: x is 41" in text

    finished = await notebook.cell(run_code("print(x + 1)"), final("42"))
    assert finished.answer == "42"
    messages = notebook.last(2)[0]["messages"]
    assert messages[-2]["content"] == f"(unfinished, max_steps) {summary}"
    assert "42" in notebook.last(1)[0]["messages"][-1]["content"]


async def test_a_model_that_has_nothing_to_say_or_a_server_that_fails_leaves_the_limit_as_it_is(
    notebook: Notebook,
) -> None:
    finished = await notebook.cell(run_code("y = 1"), EMPTY, max_steps=1)
    assert (finished.reason, finished.summary) == ("max_steps", "")
    refused = plain(400, {"error": {"message": "no"}})
    finished = await notebook.cell(run_code("y = 2"), refused, refused, max_steps=1)
    assert (finished.reason, finished.summary) == ("max_steps", "")


async def test_a_call_instead_of_a_summary_is_not_run(notebook: Notebook) -> None:
    finished = await notebook.cell(run_code("z = 1"), run_code("z = 99"), max_steps=1)
    assert (finished.reason, finished.summary) == ("max_steps", "")
    await notebook.cell(run_code("print('z', z)"), final("1"))
    assert "z 1" in notebook.last(1)[0]["messages"][-1]["content"]


async def test_of_a_summary_that_does_not_end_is_kept_what_came_in_time_and_it_is_paid_for(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summing_up, "SECONDS", 0.2)
    gate = Gate()
    finished = await notebook.cell(run_code("r = 1"), sse(C({"content": "So "}), gate), max_steps=1)
    gate.open()
    assert (finished.reason, finished.summary) == ("max_steps", "So …")
    answered = notebook.view.of(AsideAnswered)[-1]
    assert (answered.text, answered.failed) == ("So", "no whole answer within 0.2 s")
    assert answered.usage.prompt_tokens > 0
    assert finished.usage == sum((event.usage for event in notebook.view.of(StepFinished)), answered.usage)


async def test_figures_of_a_summary_that_nothing_shows_are_named(notebook: Notebook) -> None:
    invented = "The mean is 42.7 and the share is 0.31, from 41 rows."
    finished = await notebook.cell(run_code("print(0.31)"), final(invented), max_steps=1)
    assert finished.summary == f"{invented}\n(In nothing that was observed: 42.7.)"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("Seen: 41.", "Seen: 41."),
        ('{"thought": "t", "action": "final_answer", "action_input": {"answer": "Seen: 41."}}', "Seen: 41."),
        ('```json\n{"thought": "Seen.", "action": "run_code", "action_input": {"code": "1"}}\n```', "Seen."),
        ('{"thought": ', ""),
        ("Seen: 41.\n```python\nprint(42)\n```\nOutput: 42", "Seen: 41."),
        ("```python\nprint(42)\n```", ""),
        ("", ""),
    ],
)
async def test_a_summary_is_prose_whatever_the_dialect(reply: str, words: str) -> None:
    assert in_prose(reply) == words


async def test_the_text_dialects_sum_up_too(notebook: Notebook) -> None:
    code = "I set.\n```python\nq = 5\n```\n"
    finished = await notebook.cell(final(code), final(f"q is 5.\n{code}"), dialect="fenced", max_steps=1)
    assert finished.summary == "q is 5.\nI set."
    step = json.dumps({"thought": "t", "action": "run_code", "action_input": {"code": "q = 6"}})
    finished = await notebook.cell(final(step), final("q is 6."), dialect="json", max_steps=1)
    assert finished.summary == "q is 6."
    assert "response_format" not in notebook.last(1)[0]
    await notebook.cell(run_code("print('q', q)"), final("6"))
    assert "q 6" in notebook.last(1)[0]["messages"][-1]["content"]


async def test_the_time_limit_sums_up_too(notebook: Notebook) -> None:
    slow = run_code("import time; time.sleep(0.4)")
    finished = await notebook.cell(slow, final("Slept."), max_seconds=0.3)
    assert (finished.reason, finished.summary) == ("max_seconds", "Slept.")


async def test_neither_code_nor_a_reply_without_end_outlasts_the_time_limit(notebook: Notebook) -> None:
    began = time.monotonic()
    finished = await notebook.cell(run_code("import time; time.sleep(60)"), final("Slept."), max_seconds=1.0)
    assert (finished.reason, finished.summary) == ("max_seconds", "Slept.")
    assert notebook.view.of(ActionFinished)[0].status == "timeout"
    babble = sse(*[item for _ in range(100) for item in (C({"content": "and so on "}), Delay(0.1))])
    finished = await notebook.cell(babble, final("Babbled."), max_seconds=0.6)
    assert (finished.reason, finished.summary) == ("max_seconds", "Babbled.")
    assert finished.usage.completion_tokens > 0
    assert time.monotonic() - began < 15


async def test_time_in_which_the_user_is_asked_is_not_the_runs(notebook: Notebook) -> None:
    class Slow(Recorder):
        async def ask(self, request: ApprovalRequest) -> Approval:
            await asyncio.sleep(0.8)
            return Approval(approved=True, by="user")

    finished = await notebook.cell(run_code("p = 1"), final("yes"), view=Slow(), approve="each", max_seconds=0.7)
    assert finished.answer == "yes"


async def test_tokens_end_a_run_and_leave_room_for_the_summary(notebook: Notebook) -> None:
    cached = {"prompt_tokens_details": {"cached_tokens": 1000}}  # counts that do not grow would be a window's
    steps = [used(run_code(f"t{n} = {n}"), 2000, 100, **cached) for n in range(2)]
    finished = await notebook.cell(*steps, used(final("Two set."), 2100, 20, **cached), max_tokens=8000)
    assert (finished.reason, finished.summary) == ("max_tokens", "Two set.")
    assert finished.usage.total_tokens <= 8000
    assert "max_tokens (8,000)" in finished.message


async def test_money_is_metered_a_step_a_run_and_asked_for_at_the_limit(notebook: Notebook) -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 1500},
        "completion_tokens_details": {"reasoning_tokens": 60},
    }
    steps = [used(run_code(f"m{n} = {n}"), 2000, 100, **details) for n in range(3)]
    view = Recorder(approve=True)
    finished = await notebook.cell(
        *steps, used(final("3"), 2000, 100, **details), view=view, max_cost=0.012, price="1,0.1,10"
    )
    step = (500 * 1 + 1500 * 0.1 + 100 * 10) / 1e6
    assert [event.usage.cost for event in view.of(StepFinished)] == [pytest.approx(step)] * 4
    assert finished.reason == "answered"
    assert finished.usage.cost == pytest.approx(4 * step)
    assert (finished.usage.cached_tokens, finished.usage.reasoning_tokens) == (6000, 240)
    assert len(view.asked) == 1
    assert "$0.012 more" in view.asked[0].code
    assert "$0.0066" in static.text(Trace(view.shown))

    assert notebook.session is not None
    told = spending(notebook.session.events)
    assert "2,000 in (1,500 cached), 100 out (60 reasoning), $0.0016" in told
    assert "  stub, answered: 8,000 in (6,000 cached), 400 out (240 reasoning), $0.0066" in told

    finished = await notebook.cell(*steps, used(final("Three."), 2000, 20), max_cost=0.012, price="1,0.1,10")
    assert (finished.reason, finished.summary) == ("max_cost", "Three.")
    assert finished.usage.cost is not None
    assert finished.usage.cost <= 0.012
    assert notebook.view.of(ActionFinished)[-1].status == "denied"


async def test_repetition_of_one_step_and_of_two_in_turn(notebook: Notebook) -> None:
    """LOOP-01."""
    finished = await notebook.cell(*[run_code("ls = 1", str(n)) for n in range(4)], max_steps=30)
    assert finished.reason == "repeating"
    turns = [run_code(f"print({n % 2})", str(n)) for n in range(8)]
    finished = await notebook.cell(*turns, max_steps=30)
    assert finished.reason == "repeating"


async def test_polling_and_retries_that_differ_are_left_alone(notebook: Notebook) -> None:
    polls = [run_code("import random; print(random.random())", str(n)) for n in range(5)]
    retries = [run_code(f"int('x{n}')", f"r{n}") for n in range(5)]
    waits = [run_code("import time; time.sleep(0.01); print('running')", f"w{n}") for n in range(8)]
    counts = [run_code("x = x + 1", f"c{n}") for n in range(6)]
    finished = await notebook.cell(*polls, *retries, *waits, *counts, final("done"), max_steps=30)
    assert finished.reason == "answered"


async def test_nothing_new_ends_as_no_progress(notebook: Notebook) -> None:
    ways = ["a", "(a)", "a + ''", "str(a)", "a[:]", "''.join(a)", "f'{a}'"]
    await notebook.cell(run_code("a = 'same ' * 40"), final("set"))
    finished = await notebook.cell(*[run_code(way, str(n)) for n, way in enumerate(ways)], max_steps=30)
    assert finished.reason == "no_progress"


async def test_a_streak_of_failures_ends_as_no_progress(notebook: Notebook) -> None:
    failing = [run_code(f"int('y{n}')", str(n)) for n in range(12)]
    finished = await notebook.cell(*failing, max_steps=30, reflect="off")
    assert (finished.reason, finished.message) == ("no_progress", "Stopped: 12 failures in a row.")


async def test_unusable_replies_end_as_no_progress(notebook: Notebook) -> None:
    half = sse(C(T(index=0, id="a", function=F("run_code", '{"code":"1'))), C({}, "length"))
    assert (await notebook.cell(half, half, half, half)).reason == "no_progress"


async def test_empty_replies_end_with_their_own_reason(notebook: Notebook) -> None:
    assert (await notebook.cell(EMPTY, EMPTY, EMPTY)).reason == "empty_replies"


async def test_a_stop_while_the_model_sums_up_is_heard(notebook: Notebook) -> None:
    gate = Gate()
    held = sse(C({"content": "So "}), gate)
    running = asyncio.create_task(notebook.cell(run_code("print('s')"), held, max_steps=1))
    assert await asyncio.to_thread(gate.reached.wait, 20)
    assert notebook.session is not None
    notebook.session.stop()
    assert (await running).reason == "interrupted"


async def test_after_all_of_that_the_session_still_works_and_its_log_rebuilds_every_request(
    notebook: Notebook,
) -> None:
    finished = await notebook.cell(run_code("print(x, z, m2)"), final("all there"))
    assert finished.answer == "all there"
    assert notebook.session is not None
    conversation = Conversation(dialect_named)
    rebuilt = []
    for event in notebook.store.read(notebook.session.id):
        conversation.add(event)
        if event.type == "StepStarted":
            rebuilt.append(conversation.request().body)
        elif event.type == "AsideAsked":
            rebuilt.append(conversation.aside().body)
    assert rebuilt == [request.raw for request in notebook.server.requests]
    assert len({json.dumps(body["tools"]) for body in notebook.server.bodies if "tools" in body}) == 1
    assert not [event for event in notebook.view.of(DialectChosen) if event.dialect != "tools"]
