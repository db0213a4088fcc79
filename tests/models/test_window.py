"""A model's window is asked from the server where it says, each in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nbagent.errors import ModelRefused
from nbagent.models.choose import choose_model
from nbagent.models.openai_chat import OpenAIChat
from nbagent.models.window import ASSUMED_TOKENS, Window, asked_window
from nbagent.settings import Settings, resolve
from tests.scripted_server import Recorded, Response, ScriptedServer, plain


class Server(ScriptedServer):
    """Answers other paths than chat as it is told; all else is 404."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__()
        self.answers = answers

    def respond(self, request: Recorded) -> Response:
        self.others.append(request)
        if request.path in self.answers:
            return plain(200, self.answers[request.path])
        return plain(404, "404 page not found")


def listing(**row: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "stub", **row}]}


SERVERS: dict[str, tuple[dict[str, Any], int | None]] = {
    "llama.cpp": (
        {
            "/v1/models": listing(owned_by="llamacpp", meta={"n_ctx_train": 131072}),
            "/props": {"default_generation_settings": {"n_ctx": 8192}, "total_slots": 1},
        },
        8192,
    ),
    "vLLM": ({"/v1/models": listing(owned_by="vllm", max_model_len=32768)}, 32768),
    "a host": ({"/v1/models": listing(context_length=200_000, top_provider={"context_length": 131072})}, 200_000),
    "Ollama, loaded": (
        {
            "/v1/models": listing(owned_by="library"),
            "/api/ps": {"models": [{"name": "stub", "context_length": 4096}]},
        },
        4096,
    ),
    "Ollama, from its file": (
        {
            "/v1/models": listing(owned_by="library"),
            "/api/ps": {"models": []},
            "/api/show": {
                "parameters": 'stop   "<|im_end|>"\nnum_ctx                        16384',
                "model_info": {"qwen2.context_length": 131072},
            },
        },
        16384,
    ),
    "Ollama, by default": (
        {"/v1/models": listing(owned_by="library"), "/api/show": {"model_info": {"qwen2.context_length": 131072}}},
        None,
    ),
    "LM Studio": (
        {
            "/v1/models": listing(owned_by="organization_owner"),
            "/api/v0/models": {
                "data": [{"id": "stub", "loaded_context_length": 4096, "max_context_length": 32768}]
            },
        },
        4096,
    ),
    "one that does not say": ({"/v1/models": listing(owned_by="openai")}, None),
    "garbage": ({"/v1/models": {"data": [{"id": "stub", "max_model_len": "many"}, 7, None]}}, None),
    "nothing there": ({}, None),
}


@pytest.mark.parametrize("server", SERVERS)
async def test_each_server_is_asked_in_its_own_way(server: str) -> None:
    answers, wanted = SERVERS[server]
    with Server(answers) as scripted:
        chat = OpenAIChat("stub", scripted.base_url, first_token_timeout=5, stream_timeout=5, max_retry_seconds=0)
        assert await asked_window("stub", chat.fetch) == wanted
        await chat.close()


@pytest.fixture
async def window() -> AsyncIterator[Window]:
    made = Window()
    yield made
    await made.close()


async def test_the_servers_word_is_taken_once_it_is_there(window: Window) -> None:
    gate = asyncio.Event()

    async def answer() -> int | None:
        await gate.wait()
        return 8192

    window.ask(answer())
    assert await window.said() is None
    assert window.tokens == ASSUMED_TOKENS
    gate.set()
    assert await window.said(5) == 8192
    assert window.tokens == 8192
    assert await window.said(5) is None


async def test_the_users_limit_is_not_exceeded() -> None:
    window = Window(4096)
    assert not window.learn(200_000)
    assert window.tokens == 4096


def settings(server: Server) -> Settings:
    return resolve({"model": "stub", "base_url": server.base_url}, {}).settings


async def test_a_choice_asks_its_server_and_stops_asking_when_it_is_closed() -> None:
    with Server({"/v1/models": listing(max_model_len=32768)}) as server:
        choice = await choose_model(settings(server))
        assert await choice.window.said(5) == 32768
        await choice.close()
        closed = await choose_model(settings(server))
        await closed.close()
        assert await closed.window.said(1) is None


async def test_what_a_server_has_not_is_a_refusal_for_whoever_asks_directly() -> None:
    with Server({}) as server:
        chat = OpenAIChat("stub", server.base_url, first_token_timeout=5, stream_timeout=5, max_retry_seconds=0)
        with pytest.raises(ModelRefused):
            await chat.fetch("//props")
        assert server.others[-1].path == "/props"
        await chat.close()


async def test_an_answer_that_cannot_be_read_ends_no_run(window: Window) -> None:
    async def answer() -> int | None:
        raise RecursionError("nested too deep")

    window.ask(answer())
    assert await window.said(5) is None
    assert window.tokens == ASSUMED_TOKENS
    window.ask(answer())
    await asyncio.sleep(0)
    await window.close()
