"""What any server's stream comes to."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.events import Usage
from nbagent.models.assembler import CUT, NAMELESS, Assembler
from nbagent.models.json_stream import JsonScanner, is_cut
from nbagent.models.sse import SseDecoder
from nbagent.reply import Action, ActionPart, Finish, Malformed, ReasoningText, ReplyPart, Text, UsageReport
from tests.scripted_server import C, F, T


def assemble(*chunks: Any) -> list[ReplyPart]:
    assembler = Assembler()
    parts = [part for chunk in chunks for part in assembler.feed(chunk)]
    return parts + assembler.finish()


def actions(parts: list[ReplyPart]) -> list[Action]:
    return [part for part in parts if isinstance(part, Action)]


def text(parts: list[ReplyPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def reasoning(parts: list[ReplyPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, ReasoningText))


def shown(parts: list[ReplyPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, ActionPart))


def corrections(parts: list[ReplyPart]) -> list[str]:
    return [part.correction for part in parts if isinstance(part, Malformed)]


def usage(parts: list[ReplyPart]) -> Usage:
    return next(part.usage for part in parts if isinstance(part, UsageReport))


def codes(parts: list[ReplyPart]) -> list[str]:
    return [json.loads(action.arguments)["code"] for action in actions(parts)]


class TestCalls:
    def test_fragments_without_index_are_told_apart(self) -> None:
        """STR-01."""
        parts = assemble(
            C({"role": "assistant"}),
            C(T(id="a", type="function", function=F("run_code", '{"code":'))),
            C(T(function=F(None, '"print(1)"}'))),
            C(T(id="b", type="function", function=F("run_code", '{"code":"print(2)"}'))),
            C({}, "tool_calls"),
        )
        assert [action.call_id for action in actions(parts)] == ["a", "b"]
        assert codes(parts) == ["print(1)", "print(2)"]

    STR_03 = (
        ("call_1", F("", "")),
        ("", F("run_code", "")),
        ("call_1", F(None, '{"code":')),
        ("null", F("", '"7*6"}')),
        ("call_1", F("run_code", '{"code":"7*6"}')),
    )

    def test_repeated_empty_and_null_ids_and_an_echo_are_one_call(self) -> None:
        """STR-03."""
        parts = assemble(*(C(T(index=0, id=i, function=f)) for i, f in self.STR_03), C({}, "tool_calls"))
        assert actions(parts) == [Action("call_1", "run_code", '{"code":"7*6"}')]
        assert shown(parts) == "7*6"

    def test_a_call_without_any_id_gets_one_of_its_own(self) -> None:
        """STR-03, variant."""
        made = []
        for _ in range(2):
            parts = assemble(*(C(T(index=0, function=f)) for _, f in self.STR_03), C({}, "tool_calls"))
            assert codes(parts) == ["7*6"]
            made.append(actions(parts)[0].call_id)
        assert all(made)
        assert made[0] != made[1]

    def test_one_id_for_two_calls_is_made_two(self) -> None:
        parts = assemble(
            C(T(index=0, id="x", function=F("run_code", '{"code":"1"}'))),
            C(T(index=1, id="x", function=F("run_code", '{"code":"2"}'))),
        )
        assert codes(parts) == ["1", "2"]
        assert len({action.call_id for action in actions(parts)}) == 2

    def test_every_call_at_index_0_with_ids_of_their_own_are_calls_of_their_own(self) -> None:
        parts = assemble(
            C(T(index=0, id="a", function=F("run_code", '{"code":"1"}'))),
            C(T(index=0, id="b", function=F("run_code", '{"code":"2"}'))),
        )
        assert [action.call_id for action in actions(parts)] == ["a", "b"]

    def test_a_new_id_for_every_fragment_is_still_one_call(self) -> None:
        parts = assemble(
            C(T(index=0, id="a", function=F("run_code", ""))),
            C(T(index=0, id="b", function=F(None, '{"code":'))),
            C(T(index=0, id="c", function=F("run_code", '"1"}'))),
        )
        assert codes(parts) == ["1"]

    def test_interleaved_calls_are_kept_apart_by_index(self) -> None:
        parts = assemble(
            C(T(index=0, id="a", function=F("run_code", '{"code":'))),
            C(T(index=1, id="b", function=F("run_code", '{"code":'))),
            C(T(index=0, function=F(None, '"1"}'))),
            C(T(index=1, function=F(None, '"2"}'))),
        )
        assert codes(parts) == ["1", "2"]

    def test_id_and_name_in_chunks_of_their_own(self) -> None:
        parts = assemble(
            C(T(index=0, id="a")),
            C(T(index=0, function=F("run_code"))),
            C(T(index=0, function=F(None, '{"code":"1"}'))),
        )
        assert actions(parts) == [Action("a", "run_code", '{"code":"1"}')]

    @pytest.mark.parametrize(
        "end",
        [
            [C({"content": ""}, "stop")],
            [C({"content": ""})],
            [C({"content": ""}, "end_turn")],
            [],
        ],
        ids=["stop", "null", "end_turn", "none"],
    )
    def test_calls_count_whatever_the_finish_reason(self, end: list[Any]) -> None:
        """STR-04."""
        call = C(T(index=0, id="a", type="function", function=F("run_code", '{"code":"1"}')))
        parts = assemble(C({"role": "assistant", "content": ""}), call, *end)
        assert codes(parts) == ["1"]
        assert text(parts) == ""
        assert parts[-1] == Finish("stop")

    @pytest.mark.parametrize(
        "arguments",
        [{"code": "print('hi')"}, '{"code": "print(\'hi\')"}', json.dumps(json.dumps({"code": "print('hi')"}))],
        ids=["object", "string", "double"],
    )
    def test_arguments_are_one_json_string_however_they_came(self, arguments: Any) -> None:
        """STR-05."""
        parts = assemble(
            C(T(index=0, id="a", function={"name": "run_code", "arguments": arguments})), C({}, "stop")
        )
        (action,) = actions(parts)
        assert json.loads(action.arguments) == {"code": "print('hi')"}

    @pytest.mark.parametrize("arguments", [None, "", "null", {}])
    def test_no_arguments_are_an_empty_object(self, arguments: Any) -> None:
        """STR-05: then the gateway names the missing field."""
        function = {"name": "run_code", "arguments": arguments}
        assert actions(assemble(C(T(index=0, id="a", function=function)), C({}, "tool_calls"))) == [
            Action("a", "run_code", "{}")
        ]

    def test_legacy_function_call(self) -> None:
        parts = assemble(
            C({"function_call": {"name": "run_code", "arguments": ""}}),
            C({"function_call": {"arguments": '{"code":'}}),
            C({"function_call": {"arguments": '"1"}'}}),
            C({}, "function_call"),
        )
        assert codes(parts) == ["1"]

    def test_a_call_without_a_name_is_answered_not_run(self) -> None:
        parts = assemble(C(T(index=0, id="a", function=F(None, '{"code":"1"}'))), C({}, "tool_calls"))
        assert not actions(parts)
        assert corrections(parts) == [NAMELESS]

    def test_raw_line_breaks_in_a_string_are_forgiven(self) -> None:
        parts = assemble(C(T(index=0, id="a", function=F("run_code", '{"code":"a = 1\nb = 2"}'))))
        assert codes(parts) == ["a = 1\nb = 2"]
        json.loads(actions(parts)[0].arguments)

    def test_other_tools_show_their_raw_arguments(self) -> None:
        parts = assemble(
            C(T(index=0, id="a", function=F("read_file", '{"path":'))),
            C(T(index=0, function=F(None, ' "a.csv"}'))),
        )
        assert [part for part in parts if isinstance(part, ActionPart)] == [
            ActionPart("read_file", '{"path":'),
            ActionPart("read_file", ' "a.csv"}'),
        ]


class TestCut:
    CALL = C(T(index=0, id="a", type="function", function=F("run_code", "{\"code\":\"open('o','w').write('he")))

    @pytest.mark.parametrize("reason", ["length", "tool_calls", "stop", None])
    def test_an_unterminated_call_is_cut_whatever_the_finish_reason(self, reason: str | None) -> None:
        """LOOP-06, also where a router rewrote the reason."""
        parts = assemble(self.CALL, C({}, reason))
        assert not actions(parts)
        assert corrections(parts) == [CUT]
        assert parts[-1] == Finish("length" if reason == "length" else "stop")

    def test_whole_but_invalid_arguments_go_on_as_they_are(self) -> None:
        """LOOP-06, variant 2: the gateway says that they are not valid JSON."""
        parts = assemble(C(T(index=0, id="a", function=F("run_code", '{"code": print(1)}'))), C({}, "tool_calls"))
        assert actions(parts) == [Action("a", "run_code", '{"code": print(1)}')]
        assert not corrections(parts)

    def test_the_whole_calls_before_a_cut_one_stay(self) -> None:
        parts = assemble(
            C(T(index=0, id="w", function=F("run_code", '{"code":"1"}'))), self_call(1), C({}, "length")
        )
        assert codes(parts) == ["1"]
        assert corrections(parts) == [CUT]

    def test_a_call_cut_before_its_arguments_is_cut(self) -> None:
        parts = assemble(C(T(index=0, id="w", function=F("run_code", ""))), C({}, "length"))
        assert not actions(parts)
        assert corrections(parts) == [CUT]

    def test_text_cut_by_the_limit_says_so(self) -> None:
        parts = assemble(C({"content": "The answer"}), C({}, "length"))
        assert (text(parts), parts[-1]) == ("The answer", Finish("length"))

    @pytest.mark.parametrize(
        "cut", ['{"a": "b', '{"a"', '{"a": [1, 2', "{", '{"a": tru', '{"a": "\\u00', '["x", {"y": 1']
    )
    def test_beginnings_of_json_are_cut(self, cut: str) -> None:
        assert is_cut(cut)

    @pytest.mark.parametrize(
        "wrong", ['{"a": print(1', "{'a': 1", "{a", '{"a" 1', "code", "", "[1 2", '{"a": tro']
    )
    def test_what_is_wrong_already_is_not(self, wrong: str) -> None:
        assert not is_cut(wrong)


def self_call(index: int) -> dict[str, Any]:
    return C(T(index=index, id="cut", function=F("run_code", '{"code":"2')))


class TestText:
    def test_odd_chunks_and_closing_usage(self) -> None:
        """STR-06."""
        parts = assemble(
            {"id": "c1", "choices": [], "prompt_filter_results": []},
            C({"content": "Hi"}),
            {"id": "c1", "choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]},
            {"id": "c1", "choices": None},
            {"id": "c1"},
            None,
            {"id": "c1", "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}},
        )
        assert parts == [Text("Hi"), UsageReport(Usage(prompt_tokens=11, completion_tokens=2)), Finish("stop")]

    @pytest.mark.parametrize(
        "delta",
        [
            {"content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]},
            {"content": ["Hi"]},
            {"content": "Hi", "tool_calls": None, "function_call": None},
            {"content": "Hi", "tool_calls": [None]},
            {"content": None, "refusal": "Hi"},
        ],
    )
    def test_text_in_any_form(self, delta: Any) -> None:
        assert text(assemble(C(delta))) == "Hi"

    def test_a_server_that_does_not_stream(self) -> None:
        message = {
            "role": "assistant",
            "content": "Hi",
            "tool_calls": [{"id": "a", "function": F("list_it", "{}")}],
        }
        parts = assemble({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
        assert text(parts) == "Hi"
        assert actions(parts) == [Action("a", "list_it", "{}")]

    @pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
    def test_reasoning_is_not_text(self, name: str) -> None:
        parts = assemble(C({name: "hm", "content": None}), C({"content": "4"}))
        assert (reasoning(parts), text(parts)) == ("hm", "4")

    def test_thoughts_among_content_parts_are_reasoning(self) -> None:
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
        parts = assemble(C({"content": [thinking, {"type": "text", "text": "4"}]}))
        assert (reasoning(parts), text(parts)) == ("hm", "4")

    def test_think_tags_split_over_chunks(self) -> None:
        parts = assemble(
            *(C({"content": piece}) for piece in ("\n<th", "ink>I ", "see</thi", "nk>", "\n\nThe ", "answer"))
        )
        assert (reasoning(parts), text(parts)) == ("I see", "The answer")

    def test_a_think_tag_in_the_middle_is_text(self) -> None:
        said = "Use <think> tags: <think>so</think>."
        assert text(assemble(C({"content": said}))) == said

    def test_a_reply_cut_while_thinking_has_no_text(self) -> None:
        parts = assemble(C({"content": "<think>long </th"}), C({}, "length"))
        assert (reasoning(parts), text(parts)) == ("long </th", "")

    def test_filtered_replies_say_so(self) -> None:
        assert assemble(C({"content": "x"}), C({}, "content_filter"))[-1] == Finish("filter")


class TestUsage:
    @pytest.mark.parametrize(
        "reported",
        [
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}},
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 8},
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None, "cached_tokens": 8},
        ],
    )
    def test_cached_tokens_under_their_several_names(self, reported: dict[str, Any]) -> None:
        found = usage(assemble(C({"content": "x"}), {"choices": [], "usage": reported}))
        assert found == Usage(prompt_tokens=9, completion_tokens=1, cached_tokens=8)

    def test_the_last_count_is_the_one(self) -> None:
        parts = assemble(
            {**C({"content": "x"}), "usage": {"prompt_tokens": 5, "completion_tokens": 1}},
            {**C({"content": "y"}), "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
            {**C({}), "usage": None},
        )
        assert usage(parts) == Usage(prompt_tokens=5, completion_tokens=2)

    @pytest.mark.parametrize("count", [10**12, 1e308, -4, math.nan, "7", None, [1]])
    def test_a_count_that_no_request_can_have_is_none(self, count: object) -> None:
        reported = {"prompt_tokens": count, "completion_tokens": 3}
        assert usage(assemble(C({"content": "x"}), {"choices": [], "usage": reported})).prompt_tokens == 0

    def test_an_estimate_says_that_it_is_one(self) -> None:
        assembler = Assembler(400)
        assembler.feed(C({"content": "12345678"}))
        assert usage(assembler.finish()) == Usage(prompt_tokens=100, completion_tokens=2, estimated=True)


class TestAcceptable:
    """The rule for a clean end without finish reason and end mark."""

    def test_whole_calls_or_text_are(self) -> None:
        for delta in ({"content": "x"}, T(index=0, id="a", function=F("run_code", '{"code":"1"}'))):
            assembler = Assembler()
            assembler.feed(C(delta))
            assert assembler.acceptable

    def test_nothing_and_half_a_call_are_not(self) -> None:
        assert not Assembler().acceptable
        assembler = Assembler()
        assembler.feed(C({"content": "x"}))
        assembler.feed(C(T(index=0, id="a", function=F("run_code", '{"code":"1'))))
        assert not assembler.acceptable


# -- properties -----------------------------------------------------------------------------------------

strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def chunked(data: st.DataObject, whole: str) -> list[str]:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=12)) | {0, len(whole)})
    return [whole[a:b] for a, b in itertools.pairwise(cuts)] or [whole]


@given(
    st.data(),
    st.sampled_from(["", "<think>so\nit goes</think>\n", "<think></think>"]),
    strings,
    st.lists(strings, max_size=3),
    st.booleans(),
)
def test_any_chunking_gives_the_same_reply(
    data: st.DataObject, think: str, said: str, programs: list[str], indexed: bool
) -> None:
    def deltas(split: bool) -> list[Any]:
        whole = think + said
        found: list[Any] = [C({"content": piece}) for piece in (chunked(data, whole) if split else [whole])]
        for number, program in enumerate(programs):
            arguments = json.dumps({"code": program}, ensure_ascii=number % 2 == 0)
            pieces = chunked(data, arguments) if split else [arguments]
            for first, piece in zip([True, *[False] * len(pieces)], pieces, strict=False):
                fragment: dict[str, Any] = {"index": number} if indexed else {}
                if first:
                    fragment["id"] = f"id{number}"
                found.append(C(T(**fragment, function=F("run_code" if first else None, piece))))
        return found

    one, many = assemble(*deltas(split=False)), assemble(*deltas(split=True))
    assert actions(one) == actions(many)
    assert text(one) == text(many)
    assert reasoning(one) == reasoning(many)
    assert codes(many) == programs
    assert shown(one) == shown(many) == "".join(programs)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=12,
)


NAMES = st.sampled_from(
    [
        "choices",
        "delta",
        "message",
        "content",
        "tool_calls",
        "function",
        "function_call",
        "name",
        "arguments",
        "id",
        "index",
        "usage",
        "type",
        "text",
        "finish_reason",
        "reasoning",
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "thinking",
    ]
)
odd_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.floats()
    | st.sampled_from(["", "null", "x", "{", '{"a": 1}']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(odd_values, max_size=4), st.lists(odd_values, max_size=4))
def test_no_chunk_whatever_it_holds_is_too_much(chunks: list[Any], deltas: list[Any]) -> None:
    parts = assemble(*chunks, *(C(delta) for delta in deltas), *({"choices": delta} for delta in deltas))
    assert isinstance(parts[-1], Finish)
    assert all(isinstance(action.arguments, str) and action.call_id and action.tool for action in actions(parts))


@given(st.data(), st.dictionaries(strings, json_values, max_size=4), st.booleans())
def test_the_scanner_finds_every_json_whole_and_every_beginning_of_it_open(
    data: st.DataObject, value: dict[str, Any], escaped: bool
) -> None:
    whole = json.dumps(value, ensure_ascii=escaped, indent=data.draw(st.sampled_from([None, 1])))
    scanner = JsonScanner()
    for piece in chunked(data, whole + " trailing"):
        scanner.feed(piece)
    assert (scanner.state, scanner.consumed) == ("complete", len(whole))
    assert is_cut(whole[: data.draw(st.integers(1, len(whole) - 1))])


@given(st.data(), st.lists(strings.filter(lambda line: "\n" not in line and "\r" not in line), max_size=5))
def test_events_are_the_same_under_any_split_of_the_bytes(data: st.DataObject, texts: list[str]) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    stream = "".join(f": ping{end}{end}event: x{end}data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)) | {0, len(stream)})
    decoder = SseDecoder()
    found = [event for a, b in itertools.pairwise(cuts) for event in decoder.feed(stream[a:b])]
    assert found + decoder.finish() == texts
