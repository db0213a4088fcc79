"""Whatever a model sends is answered: generated calls, well-formed and not, of tools that work and that fail."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from nbagent.events import ActionFinished, ActionStarted, Observed
from nbagent.protocols import Approval, Tool
from nbagent.reply import Action
from nbagent.tools.answer import FinalAnswer
from nbagent.tools.breaker import BreakerLimits
from nbagent.tools.definition import tool
from nbagent.tools.read_file import read_file
from nbagent.tools.search_files import search_files
from tests.tools.calls import Desk
from tests.tools.conftest import User
from tests.tools.test_approval import Dry

FAULTS: tuple[Callable[[], BaseException], ...] = (
    lambda: ValueError("bad value"),
    lambda: KeyError("k"),
    lambda: SystemExit(2),
    lambda: RecursionError("deep"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    lambda: ExceptionGroup("many", [ValueError("one")]),
    lambda: StopIteration(),
    lambda: MemoryError(),
)


@tool(risk="read")
def shaky(number: int, fail: int = -1) -> Any:
    """Give odd values, or fail."""
    if 0 <= fail < len(FAULTS):
        raise FAULTS[fail]()
    odd: list[Any] = [None, "", "\ud800", {"a": {1, 2}}, float("nan"), b"\xff", object, "x" * 20_000]
    return odd[number % len(odd)]


@tool(risk="read", parallel_safe=True)
async def convert(amount: float, unit: Literal["m", "ft"], names: list[str] | None = None) -> str:
    """Convert."""
    return f"{amount} {unit} {names}"


FIELDS: dict[str, dict[str, list[Any]]] = {
    "run_code": {"code": ["x = 1", "print(2)", "import os; os.remove('a')", "!sudo ls", "df.head()"]},
    "read_file": {"path": ["a.txt", "none.txt", "../x", "/etc/passwd"]},
    "search_files": {"pattern": ["a", "[", "(?P<x>", "word"]},
    "shaky": {"number": [0, 1, 2, 3, 4, 5, 6, 7, -5], "fail": [-1, -1, -1, 0, 1, 2, 3, 4, 5, 6, 7]},
    "convert": {"amount": [1, 2.5, "3"], "unit": ["m", "ft"], "names": [None, ["a"], '["b"]']},
    "final_answer": {"answer": ["42", "", " "]},
}
ODD: list[Any] = [
    *(None, True, -1, 1e308, 10**30, "", "\x00", "\ud83d", "x" * 3000, "{'a': 1}"),
    *([], {}, [[1]], {"a": None}),
]
BROKEN = [
    *("", "{", "[", "null", "3", '"text"', '{"a": }', "{'a'", "{" * 5000, "\x00", "NaN"),
    *("```json\n{}\n```", '{"a":1}}'),
]
NAMES = ["python", "runcode", "RUN_CODE", "", " ", "read file", "\x1b[2J", "x" * 500, "tools.run_code", "naïve"]


def generated(chance: random.Random) -> tuple[str, str]:
    """Make one call: about half of them are as they should be."""
    name = chance.choice(list(FIELDS))
    values = {field: chance.choice(choices) for field, choices in FIELDS[name].items()}
    kind = chance.random()
    if kind < 0.55:
        return name, json.dumps(values)
    if kind < 0.65:
        values[chance.choice(list(values))] = chance.choice(ODD)
    elif kind < 0.72:
        del values[chance.choice(list(values))]
    elif kind < 0.8:
        values[chance.choice(["extra", "self", "__class__", "context", "code", "0"])] = chance.choice(ODD)
    elif kind < 0.9:
        return name, chance.choice(BROKEN)
    elif kind < 0.95:
        return chance.choice(NAMES), json.dumps(values)
    else:
        text = json.dumps(values)
        at = chance.randrange(len(text))
        return name, text[:at] + chance.choice(["", "\\", '"', "}", "\n", "…"]) + text[at + 1 :]
    return name, json.dumps(values)


def names_the_fault(name: str, text: str) -> bool:
    """Whether an answer to a call that was not run says what is wrong with it."""
    words = ("not valid JSON", "There is no tool", "Its arguments are: ", f"{name}: ", "answer is empty")
    return any(word in text for word in words)


@pytest.mark.parametrize(
    "count", [400, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
async def test_no_call_escapes_and_each_answer_names_the_fault(tmp_path: Path, count: int) -> None:
    (tmp_path / "a.txt").write_text("a word\n" * 50)
    desk = Desk(tmp_path, user=User(Approval(False, "user")))
    tools: list[Tool] = [Dry(tmp_path), read_file, search_files, shaky, convert, FinalAnswer()]
    gateway = desk.gateway(*tools, breaker=BreakerLimits(faults=10**9, calls=10**9))
    chance, statuses, ran = random.Random(20261201), Counter[str](), 0
    for number in range(count):
        name, arguments = generated(chance)
        result, text = await gateway.call(Action(f"c{number}", name, arguments), desk.context, desk.user)
        events, desk.context.events = desk.context.events, []
        assert [type(event) for event in events[-2:]] == [ActionFinished, Observed], (name, arguments)
        assert {event.call_id for event in events} == {f"c{number}"}
        assert isinstance(events[-2], ActionFinished)
        assert events[-2].tool == name
        assert text
        assert len(text) < 9000, (name, arguments[:200])
        started = any(isinstance(event, ActionStarted) for event in events)
        assert started or result.status in ("invalid", "denied"), (result.status, name, arguments)
        if result.status == "invalid" and not started:
            assert names_the_fault(name, text), (name, arguments[:200], text)
        statuses[result.status] += 1
        ran += started
    print(f"\n{count} calls: {ran} reached a tool; {dict(statuses)}")
    assert ran >= count / 3
    assert {"ok", "error", "invalid", "denied"} <= set(statuses)
