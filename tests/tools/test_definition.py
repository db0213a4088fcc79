"""How a function becomes a tool: its schema, its checks, its call."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from nbagent.errors import ToolDefinitionError
from nbagent.protocols import Approval, ToolContext, ToolResult
from nbagent.tools.definition import FunctionTool, tool
from tests.tools.calls import Desk
from tests.tools.conftest import Context, User


class Point(BaseModel):
    x: int
    y: int = 0


@tool(risk="read", tags=["geo"])
def distance(a: Point, unit: Literal["m", "km"] = "m", title: str = "") -> str:
    """Measure how far a point is from the origin.
    Example: {"a": {"x": 3}}.

    Args:
        a: The point,
            in metres.
        unit (str): Unit of the result.

    Returns:
        Not for the model.
    """
    return f"{title}{(a.x**2 + a.y**2) ** 0.5:g} {unit}"


def test_types_and_docstring_become_the_schema_without_titles() -> None:
    assert distance.spec.description == ('Measure how far a point is from the origin. Example: {"a": {"x": 3}}.')
    schema = distance.spec.schema
    assert list(schema["properties"]) == ["a", "unit", "title"]
    assert schema["properties"]["a"]["description"] == "The point, in metres."
    assert schema["properties"]["unit"] == {
        "default": "m",
        "description": "Unit of the result.",
        "enum": ["m", "km"],
        "type": "string",
    }
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["required"] == ["a"]
    assert schema["additionalProperties"] is False
    assert "title" not in schema
    assert schema["$defs"]["Point"]["properties"] == {
        "x": {"type": "integer"},
        "y": {"default": 0, "type": "integer"},
    }


def test_the_function_stays_a_function() -> None:
    assert distance(Point(x=3, y=4)) == "5 m"
    assert distance.__doc__ is not None
    assert repr(distance).startswith("<tool distance(a: ")


async def test_what_was_checked_reaches_the_function_with_its_type(context: Context) -> None:
    result = await distance.run({"a": {"x": 3, "y": 4}, "unit": "km"}, context)
    assert (result.status, result.text) == ("ok", "5 km")


async def test_the_context_is_given_and_not_told(context: Context) -> None:
    @tool
    async def where(context: ToolContext, name: str, /, *, upper: bool = False) -> str:
        """Say where we work."""
        return f"{context.folder.name} {name} {upper}"

    assert list(where.spec.schema["properties"]) == ["name", "upper"]
    assert (await where.run({"name": "x"}, context)).text == "workspace x False"


async def test_names_that_pydantic_has_itself_are_allowed(context: Context) -> None:
    @tool
    def odd(schema: str, copy: int, model_config: str, _private: bool, json: str = "") -> str:
        """Take odd names."""
        return f"{schema} {copy} {model_config} {_private}"

    arguments = {"schema": "a", "copy": 1, "model_config": "b", "_private": True}
    assert (await odd.run(arguments, context)).text == "a 1 b True"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("text", "text"),
        (3, "3"),
        ({"a": [1, 2], "d": datetime.date(2026, 1, 2)}, '{"a":[1,2],"d":"2026-01-02"}'),
        (Point(x=1), '{"x":1,"y":0}'),
        ([object], "[\"<class 'object'>\"]"),
        (Path("a"), "a"),
    ],
)
async def test_any_value_can_be_told(context: Context, value: Any, text: str) -> None:
    @tool
    def give() -> Any:
        """Give it."""
        return value

    assert (await give.run({}, context)).text == text


async def test_a_value_that_holds_itself_can_be_told(context: Context) -> None:
    loop: list[Any] = []
    loop.append(loop)

    @tool
    def give() -> list[Any]:
        """Give it."""
        return loop

    assert (await give.run({}, context)).text == "[[...]]"


async def test_a_summariser_says_what_the_model_reads(context: Context) -> None:
    @tool(summarise=lambda rows: f"{len(rows)} rows")
    def rows() -> list[int]:
        """Give rows."""
        return [1, 2, 3]

    assert (await rows.run({}, context)).text == "3 rows"


async def test_a_tool_may_say_itself_how_it_went(context: Context) -> None:
    @tool
    def judge() -> ToolResult:
        """Judge."""
        return ToolResult("error", "", "no", notice="It did not go.")

    assert (await judge.run({}, context)).notice == "It did not go."


class Adder:
    def __call__(self, a: int, b: int = 1) -> str:
        """Add."""
        return str(a + b)


async def later(a: int) -> str:
    """Answer later."""
    return f"later {a}"


def counting(a: int) -> Iterator[int]:
    """Count."""
    yield from range(a)


async def counting_later(a: int) -> AsyncIterator[int]:
    """Count."""
    for number in range(a):
        yield number


def default_of_its_own(a: Any = Adder) -> str:
    """Have a default that JSON does not know."""
    return str(a is Adder)


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (Adder(), {"a": 2}, "3"),
        (Adder().__call__, {"a": 2, "b": 5}, "7"),
        (partial(later, 4), {}, "later 4"),
        (partial(Adder(), b=3), {"a": 2}, "5"),
        (counting, {"a": 3}, "[0,1,2]"),
        (counting_later, {"a": 2}, "[0,1]"),
        (default_of_its_own, {}, "True"),
    ],
)
async def test_whatever_can_be_called_with_names_can_be_a_tool(
    tmp_path: Path, function: Any, arguments: dict[str, Any], text: str
) -> None:
    desk = Desk(tmp_path)
    made = tool(name="it", description="Do it.")(function)
    assert await desk.call(desk.gateway(made), "it", **arguments) == ("ok", fenced(text))


def fenced(text: str) -> str:
    return f"<output 3fa9c1>\n{text}\n</output 3fa9c1>"


def no_type(a) -> str:  # type: ignore[no-untyped-def]
    """Do."""
    return str(a)


def undocumented(a: int) -> int:
    return a


def many(*values: int) -> int:
    """Do."""
    return sum(values)


def socket_like(thing: asyncio.Queue[int]) -> None:
    """Do."""


def unknown(a: NotThere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Do."""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_type, "parameter a needs a type"),
        (undocumented, "no description"),
        (many, r"\*values"),
        (socket_like, "a model cannot send such a parameter"),
        (unknown, "NotThere"),
        (lambda: 1, "cannot be a tool's name"),
        (Adder, "is no function"),
        (3, "is no function"),
    ],
)
def test_what_cannot_be_a_tool_says_why_in_one_line(function: Any, words: str) -> None:
    with pytest.raises(ToolDefinitionError, match=words) as raised:
        tool(function)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"risk": "high"}, "risk is one of read, write"),
        ({"timeout": -3}, "timeout is a number from 0 up, not -3"),
        ({"quota": "5"}, "quota is a number"),
        ({"timeuot": 3}, "no 'timeuot': did you mean timeout"),
    ],
)
def test_what_is_said_of_a_tool_is_checked(declared: Any, words: str) -> None:
    with pytest.raises(ToolDefinitionError, match=words):
        tool(**declared)(undocumented_with_text)


async def test_a_tools_own_functions_may_fail(tmp_path: Path) -> None:
    desk = Desk(tmp_path, user=User(Approval(True, "user", always="pattern")))

    def broken(*_: Any) -> Any:
        raise KeyError("risk")

    made = tool(risk=broken, patterns=broken)(undocumented_with_text)
    for _ in range(2):
        assert (await desk.call(desk.gateway(made), made.name, a=1))[0] == "ok"
        assert desk.last.risk == "destructive"
    assert desk.last.approved_by == "rule"
    odd = tool(risk=lambda *_: "high")(undocumented_with_text)  # type: ignore[arg-type]
    await desk.call(desk.gateway(odd), odd.name, a=1)
    assert desk.last.risk == "destructive"
    mute = tool(summarise=broken)(undocumented_with_text)
    status, text = await desk.call(desk.gateway(mute), mute.name, a=1)
    assert status == "error"
    assert "KeyError: 'risk'" in text


@pytest.mark.parametrize(
    ("traits", "timeout", "retries"),
    [
        ({}, 5, 0),
        ({"risk": "read"}, 5, 2),
        ({"risk": "network"}, 15, 0),
        ({"risk": "read", "tags": ["http"]}, 15, 2),
        ({"tags": ["external"]}, 30, 0),
        ({"timeout": 2, "retries": 1}, 2, 1),
        ({"timeout": None}, None, 0),
    ],
)
def test_limits_follow_from_what_the_tool_says_of_itself(
    traits: dict[str, Any], timeout: float | None, retries: int
) -> None:
    made: FunctionTool = tool(**traits)(undocumented_with_text)
    assert (made.traits.timeout, made.traits.retries) == (timeout, retries)


def undocumented_with_text(a: Annotated[int, Field(description="A number.")]) -> int:
    """Do."""
    return a


def test_an_annotation_may_describe_a_parameter() -> None:
    assert tool(undocumented_with_text).spec.schema["properties"]["a"]["description"] == "A number."


async def test_risk_may_follow_from_the_arguments(context: Context) -> None:
    @tool(risk=lambda arguments, context: ("network", "far") if arguments["far"] else "read")
    def go(far: bool) -> None:
        """Go."""

    assert go.traits.risk is None
    assert go.grade({"far": True}, context) == ("network", "far")
    assert go.grade({"far": False}, context) == ("read", "as its author says")
