"""kill -9 at random moments, a hundred times, and the same session gone on with each time."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nbagent.context import Conversation
from nbagent.events import ActionFinished, Event, KernelRestored, Observed, RunFinished, SessionResumed
from nbagent.models.dialects import dialect_named
from nbagent.stores.files import FileStore, default_home
from tests.scripted_server import C, Delay, F, Recorded, Response, ScriptedServer, T, final, sse
from tests.test_resume import assert_valid

KILLS = 100
SEED = 20261201


class Counter:
    """A model that counts: each step's code only works where all steps before it still hold."""

    def __init__(self) -> None:
        self.finish = False

    def answer(self, request: Recorded) -> Response:
        told = [message["content"] for message in request.body["messages"] if message["role"] == "tool"]
        seen = [int(number) for text in told for number in re.findall(r"^step (\d+)$", text, re.MULTILINE)]
        number = max(seen, default=-1) + 1
        if self.finish:
            return final(f"{number} steps")
        first = "steps = []\n" if number == 0 else ""
        code = (
            f"{first}assert steps[:{number}] == list(range({number})), steps\n"
            f"steps[{number}:] = [{number}]\nprint('step', {number})"
        )
        call = T(index=0, id=f"c{len(told)}", type="function", function=F("run_code", json.dumps({"code": code})))
        return sse(C({"content": f"Step {number}."}), Delay(0.05), C(call), Delay(0.05), C({}, "tool_calls"))


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_nothing_is_lost_but_the_step_in_flight(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    model = Counter()
    store = FileStore(default_home(os.environ))
    with ScriptedServer(answer=model.answer) as server:
        words = ["--base-url", server.base_url, "--model", "stub", "--max-steps", "100000", "--json"]
        words += ["--context-window", "10000000", "--folder", str(tmp_path)]
        session, log = "", b""
        for kill in range(KILLS):
            asked = len(server.requests)
            process = _nbagent(["run", "count", *words, *(["--session", session] if session else [])])
            if kill % 2:  # also before it has come as far as asking the model
                time.sleep(chance.uniform(0, 3))
            else:
                _until(lambda asked=asked: len(server.requests) > asked, process)
                time.sleep(chance.uniform(0, 1))
            process.send_signal(signal.SIGKILL)
            process.wait()
            if not session and not (known := store.summaries()):
                continue
            session = session or known[0].id
            path = store.home / "sessions" / session / "events.jsonl"
            before, log = log, path.read_bytes()
            assert log.startswith(before)
        model.finish = True
        last = _nbagent(["run", "--session", session, *words])
        assert last.wait(300) == 0
        sent = [request.raw for request in server.requests]
    events = store.read(session)
    for body in sent:
        assert_valid(json.loads(body)["messages"])
    remaining = iter(_rebuilt(events))
    assert all(request in remaining for request in sent), "a request that the log does not rebuild"
    _check(events)


def _check(events: list[Event]) -> None:
    finished = [event for event in events if isinstance(event, RunFinished)]
    assert finished[-1].reason == "answered"
    assert {event.reason for event in finished[:-1]} == {"interrupted"}
    steps = [
        int(number)
        for event in events
        if isinstance(event, Observed)
        for number in re.findall(r"^step (\d+)$", event.text, re.MULTILINE)
    ]
    assert steps == list(range(len(steps)))
    assert finished[-1].answer == f"{len(steps)} steps"
    assert {event.status for event in events if isinstance(event, ActionFinished)} <= {
        "ok",
        "interrupted",
        "skipped",
    }
    restored = [event for event in events if isinstance(event, KernelRestored)]
    assert not [event for event in restored if event.left_out or event.differs or event.missing]
    resumed = sum(isinstance(event, SessionResumed) for event in events)
    print(f"\n{KILLS} kills, resumed {resumed} times, {len(steps)} steps, {restored[-1].ran} cells at last")


def _rebuilt(events: list[Event]) -> list[bytes]:
    conversation = Conversation(dialect_named)
    requests = []
    for event in events:
        conversation.add(event)
        if event.type == "StepStarted":
            requests.append(conversation.request().body)
    return requests


def _nbagent(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "nbagent", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _until(condition: Any, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)
