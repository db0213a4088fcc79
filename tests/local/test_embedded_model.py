"""The embedded model for real: its server is shared, survives what it should, and answers over the usual wire."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from nbagent.models import weights
from nbagent.models.embedded import EmbeddedModel
from nbagent.models.embedded_server import Record
from nbagent.protocols import Request
from nbagent.reply import Attempt, Finish, ReplyPart, Text, UsageReport

pytestmark = pytest.mark.local

NAME = "qwen2.5-coder-0.5b"
GRACE = 2.0
OWNER = f"""
import asyncio, sys
from nbagent.models.embedded import EmbeddedModel
async def own():
    model = EmbeddedModel({NAME!r}, context=4096, grace=float(sys.argv[1]))
    await model.warm_up()
    print("warm", flush=True)
    await asyncio.Event().wait()
asyncio.run(own())
"""


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder where this test's servers say where they are; afterwards they are gone."""
    file = weights.find(NAME)
    if file is None:
        pytest.skip(f"needs `nbagent model pull {NAME}`")
    monkeypatch.setenv("NBAGENT_WEIGHTS", str(file))
    monkeypatch.setenv("NBAGENT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "embedded"
    yield folder
    for pid in pids(folder):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def model(servers: Path) -> AsyncIterator[EmbeddedModel]:
    model = EmbeddedModel(NAME, context=4096, grace=GRACE)
    yield model
    await model.close()


def pids(servers: Path) -> list[int]:
    records = [Record.read(file) for file in servers.glob("*.json")]
    return [record.pid for record in records if record is not None and is_running(record.pid)]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it did not happen"
        time.sleep(0.02)
    return time.monotonic() - began


def request(text: str, *, tokens: int = 24, **more: Any) -> Request:
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }
    return Request(json.dumps(body).encode())


async def reply(model: EmbeddedModel, asked: Request) -> list[ReplyPart]:
    return [part async for part in model.stream(asked)]


def text_of(parts: list[ReplyPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def cached_tokens(parts: list[ReplyPart]) -> int:
    (report,) = [part for part in parts if isinstance(part, UsageReport)]
    return report.usage.cached_tokens


# -- answers --------------------------------------------------------------------------------------------


async def test_it_answers_and_a_request_that_begins_with_the_last_one_is_mostly_cached(
    model: EmbeddedModel,
) -> None:
    messages = [{"role": "user", "content": "Remember these numbers: " + " ".join(map(str, range(60)))}]
    first = await reply(model, request("", messages=messages))
    assert text_of(first).strip()
    assert isinstance(first[-1], Finish)
    (report,) = [part for part in first if isinstance(part, UsageReport)]
    messages += [{"role": "assistant", "content": text_of(first)}, {"role": "user", "content": "Thanks. Next?"}]
    second = await reply(model, request("", messages=messages))
    assert cached_tokens(second) > 0.9 * report.usage.prompt_tokens > 100


async def test_a_schema_holds_while_the_reply_streams(model: EmbeddedModel) -> None:
    schema = {
        "type": "object",
        "properties": {"thought": {"type": "string", "maxLength": 60}, "action": {"enum": ["run_code"]}},
        "required": ["thought", "action"],
        "additionalProperties": False,
    }
    constrained = {"type": "json_schema", "json_schema": {"name": "step", "strict": True, "schema": schema}}
    parts = await reply(model, request("What is 2 + 2?", tokens=80, response_format=constrained))
    assert json.loads(text_of(parts))["action"] == "run_code"
    assert sum(isinstance(part, Text) for part in parts) > 3


async def test_a_stopped_request_leaves_the_server_free(model: EmbeddedModel) -> None:
    async with aclosing(model.stream(request("Count from 1 to 500.", tokens=2000))) as parts:
        async for part in parts:
            if isinstance(part, Text):
                break
    async with asyncio.timeout(15):
        assert text_of(await reply(model, request("Say yes.", tokens=4))).strip()


# -- lifetime -------------------------------------------------------------------------------------------


def owner(grace: float) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(grace)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "warm\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_killed_owners_share_a_server_which_is_gone_ten_seconds_after_the_last(servers: Path) -> None:
    first, second = owner(10.0), owner(10.0)
    (server,) = pids(servers)
    kill(first)
    third = owner(10.0)
    kill(second)
    assert pids(servers) == [server]
    kill(third)
    assert 9.5 < wait_for(lambda: not is_running(server), 20) < 12
    assert not list(servers.glob("*.json"))


async def test_owners_in_one_process_share_a_server_and_closing_lets_go(
    servers: Path, model: EmbeddedModel
) -> None:
    other = EmbeddedModel(NAME, context=4096, grace=GRACE)
    await asyncio.gather(model.warm_up(), other.warm_up())
    (server,) = pids(servers)
    await model.close()
    assert text_of(await reply(other, request("Say yes.", tokens=4))).strip()
    await other.close()
    await asyncio.to_thread(wait_for, lambda: not is_running(server))
    assert text_of(await reply(model, request("Say yes.", tokens=4))).strip()


async def test_a_server_killed_between_requests_is_started_again(servers: Path, model: EmbeddedModel) -> None:
    await model.warm_up()
    (server,) = pids(servers)
    os.kill(server, signal.SIGKILL)
    parts = await reply(model, request("Say yes.", tokens=4))
    assert text_of(parts).strip()
    assert not any(isinstance(part, Attempt) for part in parts)
    assert pids(servers) != [server]


async def test_a_server_killed_in_mid_reply_is_started_again_and_the_reply_is_whole(
    servers: Path, model: EmbeddedModel
) -> None:
    parts: list[ReplyPart] = []
    killed = False
    async for part in model.stream(request("Count from 1 to 30.", tokens=60)):
        parts.append(part)
        if isinstance(part, Text) and not killed:
            killed = True
            os.kill(pids(servers)[0], signal.SIGKILL)
    (attempt,) = [part for part in parts if isinstance(part, Attempt)]
    assert attempt.number == 2
    whole = parts[parts.index(attempt) + 1 :]
    assert text_of(whole).strip()
    assert isinstance(whole[-1], Finish)


async def test_a_server_that_hangs_is_replaced(servers: Path, model: EmbeddedModel) -> None:
    await model.warm_up()
    (server,) = pids(servers)
    os.kill(server, signal.SIGSTOP)
    assert text_of(await reply(model, request("Say yes.", tokens=4))).strip()
    assert not is_running(server)
