"""Dialect and fields are agreed on without a probe: a real HTTP server that refuses, a real kernel that runs."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nbagent.context import Conversation
from nbagent.events import DialectChosen, Nudged, Retrying
from nbagent.models.dialects import dialect_named
from nbagent.negotiation import holds_code
from nbagent.stores.files import FileStore, default_home
from tests.scripted_server import Recorded, Response, ScriptedServer, final, plain, run_code
from tests.test_session import Work


@pytest.fixture
async def work(tmp_path: Path) -> AsyncIterator[Work]:
    folder = tmp_path / "work"
    folder.mkdir()
    made = Work(folder)
    yield made
    for session in made.sessions:
        await session.close()


def step(action: str, **arguments: str) -> Response:
    return final(json.dumps({"thought": "t", "action": action, "action_input": arguments}))


NO_TOOLS = plain(400, {"error": {"message": "gemma does not support tools"}})
SUM = "import os\nprint(40 + 2)"


def dialects(work: Work) -> list[str]:
    return [event.dialect for event in work.view.of(DialectChosen)]


async def test_a_server_without_tools_is_spoken_to_in_json_from_then_on_and_next_time_at_once(work: Work) -> None:
    finished = await work.run(NO_TOOLS, step("run_code", code=SUM), step("final_answer", answer="42"))
    assert finished.answer == "42"
    assert dialects(work) == ["tools", "json"]
    assert "no tools" in work.view.of(Retrying)[0].why
    assert "tools" not in work.bodies[1]
    assert work.bodies[1]["response_format"]["type"] == "json_schema"
    assert "final_answer" in work.bodies[1]["messages"][0]["content"]

    base_url = work.sessions[0].resolved.settings.base_url
    with ScriptedServer([step("run_code", code=SUM), step("final_answer", answer="42")]) as server:
        # The same server comes back under the port it had.
        remembered = work.sessions[0].log.folder.parents[1] / "servers.json"
        remembered.write_text(remembered.read_text().replace(base_url, server.base_url))
        again = await work.session(server).run("count", view=work.view)
        assert again.answer == "42"
        assert len(server.requests) == 2
        assert "response_format" in server.bodies[0]


async def test_two_replies_with_code_but_no_call_go_on_to_json(work: Work) -> None:
    prose = final(f"I sum.\n```python\n{SUM}\n```")
    finished = await work.run(prose, prose, step("run_code", code=SUM), step("final_answer", answer="42"))
    assert finished.answer == "42"
    assert dialects(work) == ["tools", "json"]
    assert "calls no tool" in work.bodies[1]["messages"][-1]["content"]
    assert "ONE JSON object" in work.bodies[2]["messages"][-1]["content"]
    assert "42" in work.observed[0]


async def test_a_model_that_cannot_keep_to_the_object_either_ends_up_with_blocks(work: Work) -> None:
    block = final(f"I sum.\n```python\n{SUM}\n```")
    finished = await work.run(NO_TOOLS, block, block, block, final("42"))
    assert finished.answer == "42"
    assert dialects(work) == ["tools", "json", "fenced"]
    assert "response_format" not in work.bodies[3]
    assert "42" in work.observed[0]


async def test_an_answer_that_holds_code_is_an_answer_once_the_model_has_called_a_tool(work: Work) -> None:
    answer = "Use this:\n```python\ndef double(x):\n    return 2 * x\n```"
    finished = await work.run(run_code(SUM), final(answer))
    assert (finished.reason, finished.answer) == ("answered", answer)
    assert dialects(work) == ["tools"]


async def test_a_dialect_that_was_asked_for_is_kept(work: Work) -> None:
    finished = await work.run(NO_TOOLS, dialect="tools")
    assert finished.reason == "model_error"
    assert "does not support tools" in finished.message


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


async def test_fields_that_a_server_refuses_are_dropped_once_and_remembered(work: Work) -> None:
    then = [run_code(SUM), final("42"), final("43")]
    fields = ("stream_options", "temperature", "max_tokens")
    with ScriptedServer(answer=refusing(*fields, then=then)) as server:
        settings = {"temperature": 0.5, "max_reply_tokens": 100}
        session = work.session(server, **settings)
        assert (await session.run("count", view=work.view)).answer == "42"
        assert len(server.requests) == 3 + 2
        assert (await work.session(server, **settings).run("count", view=work.view)).answer == "43"
        assert len(server.requests) == 6, "the next session knows"
        last = server.bodies[-1]
    assert not set(fields) & set(last)
    assert last["max_completion_tokens"] == 100
    said = [event.why for event in work.view.of(Retrying)]
    assert len(said) == 3
    assert any("max_completion_tokens" in why for why in said)
    assert any("temperature: sent without it" in why for why in said)


async def test_a_field_that_is_refused_although_it_is_gone_ends_the_run(work: Work) -> None:
    always = plain(400, {"error": {"message": "Unsupported parameter: 'temperature'.", "param": "temperature"}})
    finished = await work.run(always, always, temperature=0.5)
    assert finished.reason == "model_error"


async def test_json_goes_on_where_only_the_schema_is_refused(work: Work) -> None:
    refused = plain(400, {"error": {"message": "This response_format type is unavailable now"}})
    finished = await work.run(
        refused, step("run_code", code=SUM), step("final_answer", answer="42"), dialect="json"
    )
    assert finished.answer == "42"
    assert "response_format" not in work.bodies[1]


async def test_the_log_rebuilds_what_was_sent_after_each_change(work: Work) -> None:
    await work.run(NO_TOOLS, step("run_code", code=SUM), step("final_answer", answer="42"))
    conversation = Conversation(dialect_named)
    rebuilt, in_step = [], False
    for event in FileStore(default_home(os.environ)).read(work.sessions[0].id):
        conversation.add(event)
        in_step = (in_step or event.type == "StepStarted") and event.type != "StepFinished"
        if event.type == "StepStarted" or (in_step and isinstance(event, DialectChosen)):
            rebuilt.append(conversation.request().body)
    assert rebuilt == work.raw


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
def test_code_in_a_reply_is_known(text: str, held: bool) -> None:
    assert holds_code(text) is held


async def test_the_first_misfit_is_told_once_and_a_call_settles_it(work: Work) -> None:
    await work.run(final(f"```python\n{SUM}\n```"), run_code(SUM), final("42"))
    assert [event.guard for event in work.view.of(Nudged)] == ["format"]
    assert dialects(work) == ["tools"]
