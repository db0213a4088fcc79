"""Figures from a real kernel: to models that see as pictures, to the others in words."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbagent import Agent
from nbagent.context import Conversation
from nbagent.events import Observed, OutputAdded, RunFinished, RunStarted
from nbagent.models.dialects import dialect_named
from tests.scripted_server import Response, ScriptedServer, final, run_code

PLOT = (
    "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(); ax.plot([1, 2]); plt.show(); plt.savefig('p.png')"
)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
#: As small as a figure can be, where it does not matter who drew it.
SHOW = f"from IPython.display import Image\nImage(data={PNG!r})"
BIG = "fig = plt.figure(figsize=(30, 20)); plt.plot([1, 2, 3]); plt.gca().set_title('t')\nfig"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ScriptedServer]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("MPLBACKEND", raising=False)
    with ScriptedServer() as made:
        monkeypatch.setenv("NBAGENT_BASE_URL", made.base_url)
        yield made


def pictures_in(messages: list[dict[str, Any]]) -> list[bytes]:
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    addresses = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [base64.b64decode(address.partition("base64,")[2]) for address in addresses]


def shown(events: list[Any]) -> int:
    return sum(
        "image/png" in (event.output.get("data") or {}) for event in events if isinstance(event, OutputAdded)
    )


@pytest.mark.parametrize(("model", "vision", "sent"), [("stub", "auto", False), ("gpt-4o", "auto", True)])
async def test_figures_are_told_in_words_or_sent_small(
    server: ScriptedServer, model: str, vision: str, sent: bool
) -> None:
    server.responses = [run_code(PLOT, "a"), run_code(BIG, "b"), run_code("x = 1", "c"), final("ok")]
    began = time.monotonic()
    async with Agent(model=model, vision=vision, image_pixels=400) as agent:
        result = await agent.run("plot")
        session = agent._session
        assert session is not None
        events = session.events
        assert result.reason == "answered"
    assert time.monotonic() - began < 40
    texts = [event.text for event in events if isinstance(event, Observed)]
    assert re.search(r"\[figure 1: \d+x\d+ png\]", texts[0])
    assert "[figure 1: " in texts[1]
    assert "figure" not in texts[2]
    assert shown(events) == 2
    body = json.dumps(server.bodies[3])
    if not sent:
        assert not re.search(r"[A-Za-z0-9+/]{200}", body)
        return
    images = pictures_in(server.bodies[3]["messages"])
    assert len(images) == 2
    for image in images:
        assert max(struct.unpack(">II", image[16:24])) <= 400
    roles = [message["role"] for message in server.bodies[3]["messages"]]
    assert roles == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "tool",
    ]
    rebuilt = Conversation(dialect_named)
    for event in events:
        rebuilt.add(event)
    assert rebuilt.estimated_tokens < 8000
    assert json.dumps(server.bodies[3]["messages"])[1:-1] in json.dumps(
        json.loads(rebuilt.request().body)["messages"]
    )


async def test_vision_can_be_turned_off_and_on(server: ScriptedServer) -> None:
    server.responses = [run_code(SHOW), final("ok"), run_code(SHOW), final("ok")]
    async with Agent(model="gpt-4o", vision="off") as off, Agent(model="stub", vision="on", approve="off") as on:
        await asyncio.wait_for(off.run("plot"), 60)
        await asyncio.wait_for(on.run("plot"), 60)
    assert [len(pictures_in(server.bodies[index]["messages"])) for index in (1, 3)] == [0, 1]


async def test_a_refused_figure_says_how_to_go_on_and_does_not_stand_in_the_way(server: ScriptedServer) -> None:
    refusal = json.dumps({"error": {"message": "image input is not supported by this model"}})
    server.responses = [run_code(SHOW), Response([refusal.encode()], status=400, stream=False)]
    async with Agent(model="gpt-4o", approve="off") as agent:
        result = await asyncio.wait_for(agent.run("plot"), 60)
        assert result.reason == "model_error"
        assert agent._session is not None
        events = agent._session.events
    message = next(event.message for event in events if isinstance(event, RunFinished))
    assert message.endswith("; to a model that takes no figures send none: --vision off")
    for model, settings, sent in [("gpt-4o", {}, 1), ("gpt-4o", {"vision": "off"}, 0), ("stub", {}, 0)]:
        conversation = Conversation(dialect_named)
        for event in [*events, RunStarted(task="go on", message="go on", model=model, settings=settings)]:
            conversation.add(event)
        messages = json.loads(conversation.request().body)["messages"]
        assert len(pictures_in(messages)) == sent
        assert "[figure 1: " in json.dumps(messages)
