"""How replies in each dialect become thought and action, and how they go back into the history."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.events import DialectName
from nbagent.models.assembler import CUT
from nbagent.models.dialects import FencedDialect, JsonDialect, ToolsDialect, dialect_named
from nbagent.models.dialects.fenced import UNDECIDED
from nbagent.models.dialects.json_object import NOT_THE_OBJECT
from nbagent.protocols import Dialect, Observation, ToolSpec
from nbagent.reply import (
    Action,
    ActionPart,
    Attempt,
    Finish,
    Malformed,
    Raw,
    ReasoningText,
    ReplyPart,
    Text,
    UsageReport,
)

SPECS = [
    ToolSpec("run_code", "Run it.", {"type": "object", "properties": {"code": {"type": "string"}}}),
    ToolSpec("final_answer", "End.", {"type": "object", "properties": {"answer": {"type": "string"}}}),
]


async def wire(parts: list[ReplyPart]) -> AsyncIterator[ReplyPart]:
    for part in parts:
        yield part


async def read(dialect: Dialect, *texts: str, reason: Literal["stop", "length"] = "stop") -> list[ReplyPart]:
    return await read_parts(dialect, [*map(Text, texts), Finish(reason)])


async def read_parts(dialect: Dialect, parts: list[ReplyPart]) -> list[ReplyPart]:
    return [part async for part in dialect.read(wire(parts))]


def actions(parts: list[ReplyPart]) -> list[tuple[str, dict[str, Any]]]:
    return [(part.tool, json.loads(part.arguments)) for part in parts if isinstance(part, Action)]


def code(parts: list[ReplyPart]) -> str:
    ((tool, arguments),) = actions(parts)
    assert tool == "run_code"
    found = arguments["code"]
    assert isinstance(found, str)
    return found


def text(parts: list[ReplyPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def shown(parts: list[ReplyPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, ActionPart))


def raw(parts: list[ReplyPart]) -> str:
    (found,) = [part.text for part in parts if isinstance(part, Raw)]
    assert isinstance(parts[-2], Raw)
    return found


def corrections(parts: list[ReplyPart]) -> list[str]:
    return [part.correction for part in parts if isinstance(part, Malformed)]


@pytest.mark.parametrize("name", ["tools", "json", "fenced"])
def test_dialects_are_found_by_name(name: DialectName) -> None:
    assert dialect_named(name).name == name


@pytest.mark.parametrize("name", ["tools", "json", "fenced"])
def test_no_message_is_ever_empty(name: DialectName) -> None:
    """CTX-02."""
    message = dialect_named(name).assistant("", "", [])
    assert message["content"].strip()


class TestTools:
    async def test_parts_pass_as_they_are(self) -> None:
        parts: list[ReplyPart] = [Text("a"), Action("1", "run_code", "{}"), Finish("stop")]
        assert await read_parts(ToolsDialect(), parts) == parts

    def test_parameters(self) -> None:
        assert ToolsDialect().parameters(SPECS)["tools"][0] == {
            "type": "function",
            "function": {"name": "run_code", "description": "Run it.", "parameters": SPECS[0].schema},
        }
        assert ToolsDialect().parameters([]) == {}

    def test_a_call_goes_back_with_its_arguments_as_they_were(self) -> None:
        arguments = '{"code":  "1"}'
        message = ToolsDialect().assistant("", "", [Action("a", "run_code", arguments)])
        assert message == {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "run_code", "arguments": arguments}}
            ],
        }

    @pytest.mark.parametrize("arguments", ['{"code": print(1)}', "", "[1]", '"x"', "{"])
    def test_arguments_that_are_no_object_go_back_as_one(self, arguments: str) -> None:
        """LOOP-06: every later request must parse."""
        message = ToolsDialect().assistant("x", "", [Action("a", "run_code", arguments)])
        assert message["content"] == "x"
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {}

    def test_each_observation_is_a_tool_message(self) -> None:
        seen = [Observation("a", "run_code", "1"), Observation("b", "run_code", "2")]
        assert ToolsDialect().observations(seen) == [
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
        ]


class TestJson:
    REPLY = '{"thought": "I \\"look\\".", "action": "run_code", "action_input": {"code": "a = 1\\nprint(a)"}}'

    async def test_one_object_is_thought_and_action(self) -> None:
        parts = await read(JsonDialect(), self.REPLY)
        assert text(parts) == 'I "look".'
        assert code(parts) == shown(parts) == "a = 1\nprint(a)"
        assert raw(parts) == self.REPLY

    async def test_thought_and_code_stream(self) -> None:
        parts = await read(JsonDialect(), *self.REPLY)
        assert [part for part in parts if isinstance(part, Text)][:3] == [Text("I"), Text(" "), Text('"')]
        assert shown(parts) == "a = 1\nprint(a)"

    @pytest.mark.parametrize(
        "around",
        [
            "```json\n%s\n```",
            "Here is {it}, as you said:\n%s",
            '%s\nObservation: {"thought": "made up"}',
            '{"a": 1} %s',
        ],
    )
    async def test_what_stands_around_the_object_is_left_out(self, around: str) -> None:
        parts = await read(JsonDialect(), *(around % self.REPLY))
        assert code(parts) == "a = 1\nprint(a)"
        assert raw(parts) == self.REPLY

    async def test_trailing_commas_and_raw_line_breaks_are_forgiven(self) -> None:
        reply = '{"thought": "x", "action": "run_code", "action_input": {"code": "a\nb, }",},}'
        assert code(await read(JsonDialect(), reply)) == "a\nb, }"

    async def test_the_answer_streams_too(self) -> None:
        reply = '{"thought": "", "action": "final_answer", "action_input": {"answer": "It is 4."}}'
        parts = await read(JsonDialect(), reply)
        assert actions(parts) == [("final_answer", {"answer": "It is 4."})]
        assert ActionPart("final_answer", "It is 4.") in parts

    @pytest.mark.parametrize(
        "reply", ["It is 4.", "{}", '{"thought": "x"}', '{"thought": "x", "action": 3}', "{'a': 1}"]
    )
    async def test_anything_else_is_corrected(self, reply: str) -> None:
        parts = await read(JsonDialect(), reply)
        assert not actions(parts)
        assert corrections(parts) == [NOT_THE_OBJECT]
        assert raw(parts) == reply

    @pytest.mark.parametrize("reason", ["stop", "length"])
    async def test_half_an_object_was_cut(self, reason: Literal["stop", "length"]) -> None:
        parts = await read(JsonDialect(), self.REPLY[:-10], reason=reason)
        assert not actions(parts)
        assert corrections(parts) == [CUT]

    async def test_a_new_attempt_starts_afresh(self) -> None:
        half, attempt = Text(self.REPLY[:50]), Attempt(2, 0.1, "reset")
        parts = await read_parts(JsonDialect(), [half, attempt, Text(self.REPLY), Finish("stop")])
        after = parts[parts.index(attempt) :]
        assert text(after) == 'I "look".'
        assert code(after) == "a = 1\nprint(a)"

    async def test_reasoning_and_calls_of_the_server_s_own_pass(self) -> None:
        call = Action("a", "run_code", '{"code":"1"}')
        parts: list[ReplyPart] = [ReasoningText("hm"), call, Finish("stop")]
        assert await read_parts(JsonDialect(), parts) == parts

    def test_the_schema_keeps_the_order_and_allows_nothing_else(self) -> None:
        schema = JsonDialect().parameters(SPECS)["response_format"]["json_schema"]["schema"]
        assert [choice["properties"]["action"]["enum"] for choice in schema["anyOf"]] == [
            ["run_code"],
            ["final_answer"],
        ]
        for choice in schema["anyOf"]:
            assert list(choice["properties"]) == choice["required"] == ["thought", "action", "action_input"]
            assert choice["additionalProperties"] is False

    def test_definitions_move_to_where_their_references_point(self) -> None:
        schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "string"}}}
        body = JsonDialect().parameters([ToolSpec("t", "", schema)])["response_format"]["json_schema"]["schema"]
        assert body["$defs"] == {"X": {"type": "string"}}
        assert "$defs" in schema

    def test_history(self) -> None:
        dialect = JsonDialect()
        assert dialect.assistant("x", self.REPLY, []) == {"role": "assistant", "content": self.REPLY}
        rebuilt = dialect.assistant("x", "", [Action("a", "run_code", '{"code": "1"}')])
        assert json.loads(rebuilt["content"]) == {
            "thought": "x",
            "action": "run_code",
            "action_input": {"code": "1"},
        }
        seen = [Observation("a", "run_code", "1"), Observation("b", "run_code", "2")]
        assert dialect.observations(seen) == [{"role": "user", "content": "1\n\n2"}]


INNER = 's = """\n```\ninner\n```\n"""\nprint(len(s))'


class TestFenced:
    async def test_prose_then_a_block(self) -> None:
        parts = await read(FencedDialect(), "I look.\n\n```python\na = 1\nprint(a)\n```")
        assert text(parts) == "I look.\n\n"
        assert code(parts) == "a = 1\nprint(a)"
        assert shown(parts) == "a = 1\nprint(a)\n"

    async def test_a_fence_inside_a_string_belongs_to_the_program(self) -> None:
        """STR-08."""
        reply = f"```python\n{INNER}\n```\n"
        parts = await read(FencedDialect(), reply)
        assert code(parts) == INNER
        assert raw(parts) == reply

    async def test_an_unmarked_fence_is_an_example(self) -> None:
        """STR-08."""
        reply = 'Like this:\n```\nraise SystemExit("example")\n```\nbut now:\n```python\nprint("real")\n```\n'
        parts = await read(FencedDialect(), reply)
        assert code(parts) == 'print("real")'
        assert 'raise SystemExit("example")' in text(parts)

    @pytest.mark.parametrize(
        "fence", ["```py", "```python3", "``` python", "```Python", "~~~python", "````python", "```{python}"]
    )
    async def test_marks(self, fence: str) -> None:
        end = "".join(mark for mark in fence if mark in "`~")
        assert code(await read(FencedDialect(), f"x\n{fence}\n1\n{end}\n")) == "1"

    @pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", " {}\n"])
    async def test_the_object_of_the_json_dialect_is_understood(self, form: str) -> None:
        step = json.dumps({"thought": "t", "action": "run_code", "action_input": {"code": "print(1)"}})
        assert code(await read(FencedDialect(), form.format(step))) == "print(1)"
        for answer in ('{"code": "print(1)"}', f"Send {step}", '{"action": "run_code", "action_input": 7}'):
            assert not actions(await read(FencedDialect(), answer))

    @pytest.mark.parametrize("fence", ["```", "```bash", "```text", "~~~", "```output"])
    async def test_a_reply_without_a_marked_block_is_the_answer(self, fence: str) -> None:
        reply = f"It is 4:\n{fence}\nrm -rf x\n{fence[:3]}\n"
        parts = await read(FencedDialect(), *reply)
        assert not actions(parts)
        assert not corrections(parts)
        assert text(parts) == raw(parts) == reply

    @pytest.mark.parametrize(
        "made_up",
        [
            "Observation: 4\n",
            "Output:\n```\n4\n```\n",
            "```output\n4\n```\nIt is 4.",
            "```python\nprint(2)\n```\n",
        ],
    )
    async def test_what_follows_the_block_is_cut(self, made_up: str) -> None:
        block = "Go.\n```python\nprint(1)\n```\n"
        parts = await read(FencedDialect(), *(block + made_up))
        assert code(parts) == "print(1)"
        assert raw(parts) == block
        assert text(parts) == "Go.\n"

    async def test_a_program_that_does_not_parse_ends_at_the_first_fence(self) -> None:
        parts = await read(FencedDialect(), "```python\nprint(1\n```\nObservation:\n```output\n4\n```\n")
        assert code(parts) == "print(1"
        assert raw(parts) == "```python\nprint(1\n```\n"

    @pytest.mark.parametrize("program", ["%pip list\n!ls\nx = 1", "await f()", "if x:\n    %time y()"])
    async def test_notebook_syntax_is_a_program(self, program: str) -> None:
        assert code(await read(FencedDialect(), f"```python\n{program}\n```\n\n```python\n2\n```")) == program

    async def test_an_indented_block_loses_its_indent(self) -> None:
        reply = "1. do\n   ```python\n   if a:\n       b\n   ```\n"
        assert code(await read(FencedDialect(), reply)) == "if a:\n    b"

    async def test_a_block_may_open_at_the_end_of_a_line(self) -> None:
        parts = await read(FencedDialect(), *"I count: ```python\nprint(1)\n```\n")
        assert code(parts) == "print(1)"
        assert text(parts) == "I count: "

    async def test_marks_in_the_middle_of_a_line_are_text(self) -> None:
        reply = "Write ```python blocks``` or `x`, and ``` too.\nDone ``"
        parts = await read(FencedDialect(), *reply)
        assert not actions(parts)
        assert text(parts) == reply

    async def test_a_forgotten_end_is_forgiven(self) -> None:
        assert code(await read(FencedDialect(), "```python\nprint(1)")) == "print(1)"

    async def test_a_block_cut_by_the_limit_is_not_run(self) -> None:
        """LOOP-06."""
        parts = await read(FencedDialect(), "```python\nopen('o', 'w').write('x')\nopen('p", reason="length")
        assert not actions(parts)
        assert corrections(parts) == [CUT]

    async def test_a_whole_block_before_the_limit_is_run(self) -> None:
        parts = await read(FencedDialect(), "```python\n1\n```\nObservation: and so on", reason="length")
        assert code(parts) == "1"

    async def test_a_block_in_an_example_that_never_ends_is_not_run(self) -> None:
        """STR-08: what cannot be decided is not run, and the model is told why."""
        parts = await read(FencedDialect(), "So:\n```\nexample\n```python\nprint(1)\n")
        assert not actions(parts)
        assert corrections(parts) == [UNDECIDED]

    async def test_prose_streams_and_fences_are_held_back(self) -> None:
        parts = await read(FencedDialect(), "I lo", "ok ``x``.\n`", "``py", "thon\npri", "nt(1)\n``", "`")
        assert parts[:2] == [Text("I lo"), Text("ok ``x``.\n")]
        assert [part.text for part in parts if isinstance(part, ActionPart)] == ["pri", "nt(1)\n"]

    async def test_a_new_attempt_starts_afresh(self) -> None:
        parts = await read_parts(
            FencedDialect(),
            [Text("```python\nbroken("), Attempt(2, 0.1, "reset"), Text("```python\n1\n```"), Finish("stop")],
        )
        assert code(parts) == "1"
        assert raw(parts) == "```python\n1\n```"

    def test_history(self) -> None:
        dialect = FencedDialect()
        assert dialect.parameters(SPECS) == {}
        assert dialect.assistant("x", "x\n```python\n1\n```", []) == {
            "role": "assistant",
            "content": "x\n```python\n1\n```",
        }
        rebuilt = dialect.assistant("x", "", [Action("a", "run_code", '{"code": "1"}')])
        assert rebuilt["content"] == "x\n```python\n1\n```"
        assert dialect.observations([Observation("a", "run_code", "1")]) == [{"role": "user", "content": "1"}]


@pytest.mark.parametrize(
    ("name", "action"), [("json", TestJson.REPLY), ("fenced", "Go.\n```python\na = 1\nprint(a)\n```\n")]
)
async def test_a_model_that_goes_on_behind_its_action_is_not_waited_for(
    name: Literal["json", "fenced"], action: str
) -> None:
    closed = False

    async def endless() -> AsyncIterator[ReplyPart]:
        nonlocal closed
        try:
            yield Text(action)
            while True:
                yield Text("Observation: ")
        finally:
            closed = True

    parts = [part async for part in dialect_named(name).read(endless())]
    assert closed
    assert code(parts) == "a = 1\nprint(a)"
    assert raw(parts) == action
    assert parts[-1] == Finish("stop")
    (report,) = [part for part in parts if isinstance(part, UsageReport)]
    assert report.usage.estimated


@pytest.mark.parametrize("name", ["tools", "json", "fenced"])
async def test_who_stops_reading_closes_the_wire(name: Literal["tools", "json", "fenced"]) -> None:
    closed = False

    async def endless() -> AsyncIterator[ReplyPart]:
        nonlocal closed
        try:
            while True:
                yield ReasoningText("hm")
        finally:
            closed = True

    parts = dialect_named(name).read(endless())
    assert await anext(parts) == ReasoningText("hm")
    assert isinstance(parts, AsyncGenerator)
    await parts.aclose()
    assert closed


# -- properties -----------------------------------------------------------------------------------------

PROSE = st.text('ab `~\n{"', max_size=30)


async def _outcome(dialect: Dialect, texts: list[str]) -> tuple[Any, ...]:
    parts = await read(dialect, *texts)
    found = [part.text for part in parts if isinstance(part, Raw)]
    return actions(parts), text(parts), shown(parts), found, corrections(parts)


@pytest.mark.parametrize("name", ["json", "fenced"])
@given(data=st.data())
async def test_any_chunking_reads_the_same(name: Literal["json", "fenced"], data: st.DataObject) -> None:
    block = f"```python\n{INNER}\n```\n" if name == "fenced" else TestJson.REPLY
    reply = data.draw(PROSE) + "\n" * data.draw(st.integers(0, 1)) + block + data.draw(PROSE)
    reply = reply[: data.draw(st.integers(1, len(reply)))]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(reply)), max_size=12)) | {0, len(reply)})
    pieces = [reply[a:b] for a, b in itertools.pairwise(cuts)]
    assert await _outcome(dialect_named(name), pieces) == await _outcome(dialect_named(name), [reply])


@pytest.mark.parametrize("cut", range(1, 30))
async def test_a_block_that_was_begun_for_the_model_is_read_whole(cut: int) -> None:
    rest = " Add them up\nprint(40 + 2)\n```\nIt prints 42."
    opening = "```python\n#"

    async def wire_of() -> AsyncIterator[ReplyPart]:
        for part in (
            Text(rest[:cut]),
            Attempt(2, 0.0, "again"),
            Text(rest[:cut]),
            Text(rest[cut:]),
            Finish("stop"),
        ):
            yield part

    parts = [part async for part in dialect_named("fenced").read(wire_of(), opening)]
    assert code(parts) == "# Add them up\nprint(40 + 2)"
    ((raw,),) = [[part.text] for part in parts if isinstance(part, Raw)]
    assert raw == opening + " Add them up\nprint(40 + 2)\n```\n"
    shown = parts[parts.index(Attempt(2, 0.0, "again")) :]
    assert "".join(part.text for part in shown if isinstance(part, ActionPart)) == "# Add them up\nprint(40 + 2)\n"
