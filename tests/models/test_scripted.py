"""The scripted model says its script and nothing else."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from nbagent.errors import ModelBusy
from nbagent.models.scripted import Pause, ScriptedModel, ScriptError, call, say
from nbagent.protocols import Model, Request
from nbagent.reply import Action, ActionPart, Finish, ReplyPart, Text

REQUEST = Request(b'{"model": "scripted"}')


async def reply(model: ScriptedModel) -> list[ReplyPart]:
    return [part async for part in model.stream(REQUEST)]


async def test_replies_come_in_order_and_requests_are_kept() -> None:
    model = ScriptedModel([call("run_code", code="1 + 1", thought="I add."), say("It is 2.")])
    as_model: Model = model
    assert as_model.name == "scripted"
    first = await reply(model)
    assert first[:2] == [Text("I add."), ActionPart("run_code", "1 + 1")]
    (action,) = [part for part in first if isinstance(part, Action)]
    assert (action.tool, json.loads(action.arguments)) == ("run_code", {"code": "1 + 1"})
    second = await reply(model)
    assert "".join(part.text for part in second if isinstance(part, Text)) == "It is 2."
    assert second[-1] == Finish("stop")
    assert model.bodies == [{"model": "scripted"}] * 2
    model.assert_complete()


async def test_a_request_too_many_fails() -> None:
    model = ScriptedModel([])
    with pytest.raises(ScriptError, match="request 1 is more than"):
        await reply(model)


async def test_replies_left_over_fail() -> None:
    with pytest.raises(ScriptError, match="1 of the script's 1"):
        ScriptedModel([say("x")]).assert_complete()


async def test_a_failure_can_be_scripted() -> None:
    with pytest.raises(ModelBusy, match="later"):
        await reply(ScriptedModel([ModelBusy("later")]))


async def test_a_pause_holds_the_reply_in_mid_stream() -> None:
    pause = Pause()
    model = ScriptedModel([say("a b", pause=pause)])
    got: list[ReplyPart] = []

    async def consume() -> None:
        async for part in model.stream(REQUEST):
            got.append(part)  # noqa: PERF401 - what came so far is what is looked at

    task = asyncio.create_task(consume())
    await asyncio.wait_for(pause.reached(), 5)
    assert got == [Text("a ")]
    pause.release()
    await asyncio.wait_for(task, 5)
    assert got[1] == Text("b")


async def test_a_held_reply_can_be_cancelled() -> None:
    pause = Pause()
    task = asyncio.create_task(reply(ScriptedModel([say("a b", pause=pause)])))
    await asyncio.wait_for(pause.reached(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pause.release()


def test_another_thread_may_wait_and_release() -> None:
    pause = Pause()
    model = ScriptedModel([say("a b", pause=pause)])
    got: list[list[ReplyPart]] = []
    thread = threading.Thread(target=lambda: got.append(asyncio.run(reply(model))))
    thread.start()
    pause.wait(5)
    assert not got
    pause.release()
    thread.join(5)
    assert len(got) == 1
