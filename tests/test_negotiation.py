"""Dialect and fields are agreed on without a probe: a real HTTP server that refuses, a real kernel that runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from nbagent.answers import MOST_DOUBTS
from nbagent.context import Conversation
from nbagent.events import DialectChosen, Nudged, Observed, Retrying
from nbagent.models.choose import Choice
from nbagent.models.dialects import dialect_named
from nbagent.models.scripted import ScriptedModel
from nbagent.models.window import Window
from nbagent.negotiation import CALL_IT, Negotiation, holds_code
from nbagent.remembered import Remembered
from tests.one_session import Notebook, open_notebook
from tests.scripted_server import Recorded, Response, ScriptedServer, final, plain, run_code

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def notebook(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notebook]:
    async with open_notebook(tmp_path_factory.mktemp("work")) as made:
        yield made


def step(action: str, **arguments: str) -> Response:
    return final(json.dumps({"thought": "t", "action": action, "action_input": arguments}))


NO_TOOLS = plain(400, {"error": {"message": "gemma does not support tools"}})
SUM = "import os\nprint(40 + 2)"


def dialects(notebook: Notebook) -> list[str]:
    return [event.dialect for event in notebook.view.of(DialectChosen)]


async def test_a_server_without_tools_is_spoken_to_in_json_from_then_on_and_next_time_at_once(
    notebook: Notebook,
) -> None:
    work = [step("run_code", code=SUM), step("final_answer", answer="42")]
    finished = await notebook.cell(NO_TOOLS, *work, model="without-tools")
    assert finished.answer == "42"
    assert dialects(notebook) == ["tools", "json"]
    assert "no tools" in notebook.view.of(Retrying)[0].why
    sent = notebook.last(2)[0]
    assert "tools" not in sent
    assert sent["response_format"]["type"] == "json_schema"
    assert "final_answer" in sent["messages"][0]["content"]

    finished = await notebook.cell(*work, model="without-tools")
    assert finished.answer == "42"
    assert dialects(notebook) == ["json"]
    async with open_notebook(notebook.folder, notebook.server) as another:
        assert (await another.cell(*work, model="without-tools")).answer == "42"
        assert dialects(another) == ["json"], "another session knows, too"


async def test_two_replies_with_code_but_no_call_go_on_to_json(notebook: Notebook) -> None:
    prose = final(f"I sum.\n```python\n{SUM}\n```")
    work = [step("run_code", code=SUM), step("final_answer", answer="42")]
    finished = await notebook.cell(prose, prose, *work, model="writes-blocks")
    assert finished.answer == "42"
    assert dialects(notebook) == ["tools", "json"]
    assert "calls no tool" in notebook.last(3)[0]["messages"][-1]["content"]
    assert "ONE JSON object" in notebook.last(2)[0]["messages"][-1]["content"]
    assert "42" in notebook.view.of(Observed)[0].text


async def test_a_model_that_cannot_keep_to_the_object_either_ends_up_with_blocks(notebook: Notebook) -> None:
    block = final(f"I sum.\n```python\n{SUM}\n```")
    finished = await notebook.cell(NO_TOOLS, block, block, block, final("42"), model="blocks-only")
    assert finished.answer == "42"
    assert dialects(notebook) == ["tools", "json", "fenced"]
    assert "response_format" not in notebook.last(2)[0]
    assert "42" in notebook.view.of(Observed)[0].text


async def test_code_that_calls_no_tool_is_told_of_once_where_tools_are_the_users_choice(
    notebook: Notebook,
) -> None:
    code = final("```python\nprint(1)\n```")
    finished = await notebook.cell(code, code, model="chosen", dialect="tools")
    assert [nudge.text for nudge in notebook.view.of(Nudged)] == [CALL_IT]
    assert (finished.reason, finished.steps) == ("answered", 2)


async def test_an_answer_that_holds_code_is_an_answer_once_the_model_has_called_a_tool(notebook: Notebook) -> None:
    answer = "Use this:\n```python\ndef double(x):\n    return 2 * x\n```"
    finished = await notebook.cell(run_code(SUM), final(answer), model="calls")
    assert (finished.reason, finished.answer) == ("answered", answer)
    finished = await notebook.cell(final(answer), model="calls", reflect="off")
    assert finished.answer == answer
    assert dialects(notebook) == ["tools"]


async def test_a_question_about_code_costs_a_model_that_can_call_no_week_in_another_dialect(
    notebook: Notebook,
) -> None:
    answer = final("So:\n```python\npd.read_csv('a.csv')\n```")
    given = step("final_answer", answer="pd.read_csv")  # doubted, since nothing was run
    finished = await notebook.cell(answer, answer, *[given] * (MOST_DOUBTS + 1), model="strong")
    assert finished.answer == "pd.read_csv"
    await notebook.cell(run_code(SUM), final("42"), model="strong")
    assert dialects(notebook) == ["tools"]


async def test_the_first_misfit_is_told_once_and_a_call_settles_it(notebook: Notebook) -> None:
    await notebook.cell(final(f"```python\n{SUM}\n```"), run_code(SUM), final("42"), model="learns")
    assert [event.guard for event in notebook.view.of(Nudged)] == ["format"]
    assert dialects(notebook) == ["tools"]


async def test_a_dialect_that_was_asked_for_is_kept(notebook: Notebook) -> None:
    finished = await notebook.cell(NO_TOOLS, dialect="tools", model="asked")
    assert finished.reason == "model_error"
    assert "does not support tools" in finished.message


async def test_another_dialect_in_the_same_session_tells_the_earlier_steps_in_its_own_words(
    notebook: Notebook,
) -> None:
    await notebook.cell(run_code("kept = 7"), final("set"), model="native", reflect="off")
    work = [step("run_code", code="print('kept', kept)"), step("final_answer", answer="7")]
    finished = await notebook.cell(NO_TOOLS, *work, model="without-tools-after")
    assert finished.answer == "7"
    messages = notebook.last(2)[0]["messages"]
    assert not [message for message in messages if message["role"] == "tool" or "tool_calls" in message]
    assert any("kept = 7" in message["content"] for message in messages if message["role"] == "assistant")
    block = final("I look.\n```python\nprint('kept', kept)\n```")
    await notebook.cell(block, final("7"), dialect="fenced", model="small")
    assert any("```python\nkept = 7" in message["content"] for message in notebook.last(1)[0]["messages"])
    await notebook.cell(run_code("print(kept)"), final("7"), model="native")
    calls = [message for message in notebook.last(1)[0]["messages"] if "tool_calls" in message]
    told = [message for message in notebook.last(1)[0]["messages"] if message["role"] == "tool"]
    assert len(calls) == len(told) > 2


def refusing(*fields: str, then: list[Response]) -> Any:
    """A server that refuses some fields, one a time, as OpenAI says it."""
    replies = iter(then)

    def answer(request: Recorded) -> Response:
        for field in fields:
            if field in request.body:
                error = {"message": f"Unsupported parameter: '{field}'.", "param": field}
                return plain(400, {"error": {**error, "code": "unsupported_parameter"}})
        return next(replies)

    return answer


async def test_fields_that_a_server_refuses_are_dropped_once_and_remembered(notebook: Notebook) -> None:
    then = [run_code(SUM), final("42"), final("43"), final('{"enough": true, "need": "", "reason": "r"}')]
    fields = ("stream_options", "temperature", "max_tokens")
    with ScriptedServer(answer=refusing(*fields, then=then)) as server:
        given: dict[str, Any] = {"temperature": 0.5, "max_reply_tokens": 100, "base_url": server.base_url}
        assert (await notebook.cell(**given)).answer == "42"
        assert len(server.requests) == 3 + 2
        said = [event.why for event in notebook.view.of(Retrying)]
        assert (await notebook.cell(**given)).answer == "43"
        assert len(server.requests) == 7, "the next run knows, and so does the question aside"
        last = server.bodies[-1]
    assert not set(fields) & set(last)
    assert last["max_completion_tokens"] == 100
    assert len(said) == 3
    assert any("max_completion_tokens" in why for why in said)
    assert any("temperature: sent without it" in why for why in said)


async def test_a_field_that_is_refused_although_it_is_gone_ends_the_run(notebook: Notebook) -> None:
    always = plain(400, {"error": {"message": "Unsupported parameter: 'temperature'.", "param": "temperature"}})
    finished = await notebook.cell(always, always, temperature=0.5, model="stubborn")
    assert finished.reason == "model_error"


async def test_json_goes_on_where_only_the_schema_is_refused(notebook: Notebook) -> None:
    refused = plain(400, {"error": {"message": "This response_format type is unavailable now"}})
    work = [step("run_code", code=SUM), step("final_answer", answer="42")]
    finished = await notebook.cell(refused, *work, dialect="json", model="no-schema")
    assert finished.answer == "42"
    assert "response_format" not in notebook.last(2)[0]


async def test_the_log_rebuilds_what_was_sent_after_each_change(notebook: Notebook) -> None:
    work = [step("run_code", code=SUM), step("final_answer", answer="42")]
    await notebook.cell(NO_TOOLS, *work, model="rebuilt")
    assert notebook.session is not None
    conversation = Conversation(dialect_named)
    rebuilt, in_step = [], False
    for event in notebook.store.read(notebook.session.id):
        conversation.add(event)
        in_step = (in_step or event.type == "StepStarted") and event.type not in ("StepFinished", "RunFinished")
        if event.type == "StepStarted" or (in_step and isinstance(event, DialectChosen)):
            rebuilt.append(conversation.request().body)
    assert rebuilt[-3:] == [request.raw for request in notebook.server.requests[-3:]]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("I sum.\n```python\nprint(1)\n```", True),
        ("```py\nprint(1)\n```", True),
        ('<tool_call>\n{"name": "run_code", "arguments": {"code": "1"}}\n</tool_call>', True),
        ('{"name": "run_code", "arguments": {"code": "1"}}', True),
        ('```json\n{"action": "run_code", "action_input": {"code": "1"}}\n```', True),
        ("[TOOL_CALLS] run_code", True),
        ("The answer is 42.", False),
        ("```\na  b\n1  2\n```", False),
        ("```sql\nselect 1\n```", False),
        ('{"mean": 42}', False),
        ("", False),
    ],
)
async def test_code_in_a_reply_is_known(text: str, held: bool) -> None:
    assert holds_code(text) is held


async def test_a_model_that_repeats_itself_chooses_its_words_by_chance_from_then_on(tmp_path: Path) -> None:
    parameters: dict[str, float | int] = {"temperature": 0.0, "max_tokens": 9}
    choice = Choice(
        model=ScriptedModel([]),
        name="m",
        dialect="fenced",
        why="",
        parameters=parameters,
        window=Window(4096),
        observation_characters=2000,
        price=None,
        key="m",
        varied={"temperature": 0.7, "seed": 7},
    )
    events: list[Any] = []
    no_tools: Any = SimpleNamespace(specs=[])
    memory = Remembered(tmp_path / "known.json")
    terms = Negotiation(choice, lambda _: no_tools, memory, events.append)
    terms.begin()
    terms.vary()
    terms.vary()
    assert [event.parameters for event in events] == [parameters, {"temperature": 0.7, "max_tokens": 9, "seed": 7}]
    Negotiation(replace(choice, varied={}), lambda _: no_tools, memory, events.append).vary()
    assert len(events) == 2
