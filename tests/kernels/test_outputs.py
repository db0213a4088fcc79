"""Whatever a kernel publishes becomes valid, bounded nbformat."""

from __future__ import annotations

import json
from typing import Any

import nbformat
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook

from nbagent.events import Output
from nbagent.kernels import outputs as room
from nbagent.kernels.outputs import Outputs


def fold(*messages: tuple[str, dict[str, Any]], limit: int = 1000) -> list[Output]:
    found: list[Output] = []
    outputs = Outputs(found.append, limit)
    for kind, content in messages:
        outputs.take(kind, content)
    outputs.finish()
    return found


def stream(text: str, name: str = "stdout") -> tuple[str, dict[str, Any]]:
    return "stream", {"name": name, "text": text}


def display(data: Any, kind: str = "display_data", **more: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"data": data, "metadata": {}, **more}


def texts(found: list[Output]) -> list[str]:
    return [o["text"] if o["output_type"] == "stream" else o["data"]["text/plain"] for o in found]


def assert_valid(found: list[Output]) -> None:
    cell = new_code_cell("", outputs=[nbformat.from_dict(o) for o in found])
    nbformat.validate(new_notebook(cells=[cell]))
    json.dumps(found, allow_nan=False).encode("utf-8")
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode("utf-8")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
mimes = st.sampled_from(
    ["text/plain", "text/html", "image/png", "application/json", "application/vnd.x+json", "application/x.foo"]
)
names = st.sampled_from(["stdout", "stderr", "log", "\ud800"])
words = st.text(st.characters(), max_size=60)
messages: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.tuples(st.just("stream"), st.fixed_dictionaries({"name": names, "text": words})),
    st.tuples(
        st.sampled_from(["display_data", "update_display_data", "execute_result"]),
        st.fixed_dictionaries(
            {"data": st.dictionaries(mimes, anything, max_size=3), "metadata": st.dictionaries(words, anything)},
            optional={"transient": st.just({"display_id": "d"}), "execution_count": st.none() | st.integers(0, 9)},
        ),
    ),
    st.tuples(
        st.just("error"),
        st.fixed_dictionaries({"ename": words, "evalue": words, "traceback": words | st.lists(words)}),
    ),
    st.tuples(st.just("clear_output"), st.fixed_dictionaries({"wait": st.booleans()})),
    st.tuples(st.just("comm_msg"), st.just({"data": {}})),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(messages, max_size=8))
def test_every_sequence_of_messages_gives_valid_outputs(sequence: list[tuple[str, dict[str, Any]]]) -> None:
    assert_valid(fold(*sequence, limit=50))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("ab\n", max_size=30)), max_size=20))
def test_stream_text_is_whole_below_the_limit_and_counted_above(pieces: list[tuple[str, str]]) -> None:
    whole = "".join(text for _, text in pieces)
    found = "".join(texts(fold(*(stream(text, name) for name, text in pieces), limit=40)))
    if len(whole) <= 40:
        assert found == whole
    else:
        assert found == f"{whole[:30]}\n[... {len(whole) - 40:,} characters left out ...]\n{whole[-10:]}"


def test_neighbouring_pieces_of_one_stream_are_one_output() -> None:
    found = fold(stream("a"), stream("b"), stream("c", "stderr"), stream("d"))
    assert [(o["name"], o["text"]) for o in found] == [("stdout", "ab"), ("stderr", "c"), ("stdout", "d")]


def test_an_unknown_stream_is_stdout() -> None:
    assert fold(stream("a", "log"))[0]["name"] == "stdout"


def test_pictures_stay_in_their_place_between_texts() -> None:
    found = fold(stream("a"), display({"image/png": "AAAA"}), stream("b"))
    assert [o["output_type"] for o in found] == ["stream", "display_data", "stream"]


def test_bytes_nan_and_lone_surrogates_become_valid() -> None:
    data = {"image/png": b"\x89PNG", "application/json": {"a": float("nan")}, "text/plain": "a\ud800"}
    (found,) = fold(display(data))
    assert found["data"] == {"image/png": "iVBORw==", "application/json": {"a": None}, "text/plain": "a?"}


def test_a_structure_under_a_type_that_holds_text_becomes_text() -> None:
    (found,) = fold(display({"application/x.foo": {"a": 1}}))
    assert found["data"] == {"application/x.foo": '{"a": 1}'}


def test_the_result_text_is_cut_in_the_middle() -> None:
    (found,) = fold(display({"text/plain": "x" * 75 + "y" * 50 + "z" * 25}, "execute_result"), limit=100)
    assert found["data"]["text/plain"] == f"{'x' * 75}\n[... 50 characters left out ...]\n{'z' * 25}"


def test_what_is_nested_too_deeply_is_replaced_by_a_note() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    (found,) = fold(display({"application/json": deep}))
    assert found["data"] == {"text/plain": "[an output was left out: it is nested too deeply]"}


def test_a_huge_rich_output_is_replaced_by_a_note() -> None:
    (found,) = fold(display({"text/plain": "a plot", "text/html": "x" * (room.LARGEST_OUTPUT + 1)}))
    assert found["data"] == {"text/plain": "a plot\n[an output of 10.0 MB was left out: text/plain, text/html]"}


def test_too_many_rich_outputs_are_counted() -> None:
    found = fold(*[display({"text/plain": str(i)}) for i in range(room.MOST_RICH_OUTPUTS + 3)])
    assert len(found) == room.MOST_RICH_OUTPUTS + 1
    assert found[-1]["text"] == "[3 more rich outputs were left out]\n"


def test_updates_are_folded_into_one_last_version() -> None:
    shown = [display({"text/plain": "0"}, transient={"display_id": "d"})]
    updates = [
        display({"text/plain": str(i)}, "update_display_data", transient={"display_id": "d"})
        for i in range(1, 1000)
    ]
    found = fold(*shown, *updates)
    assert texts(found) == ["0", "999"]
    assert all(set(o) == {"output_type", "data", "metadata"} for o in found)


def test_what_comes_after_a_clear_is_given_once_at_the_end() -> None:
    found: list[Output] = []
    outputs = Outputs(found.append, 100)
    outputs.take(*stream("before\n"))
    for i in range(3):
        outputs.take("clear_output", {"wait": True})
        outputs.take(*stream(f"{i}\n"))
        outputs.flush()
    assert texts(found) == ["before\n"]
    outputs.finish()
    assert texts(found) == ["before\n", "2\n"]


def test_a_clear_that_waits_for_an_output_that_never_comes_clears_nothing() -> None:
    assert texts(fold(stream("a"), ("clear_output", {"wait": True}))) == ["a"]


def test_a_traceback_in_one_string_becomes_lines() -> None:
    (found,) = fold(("error", {"ename": "E", "evalue": "v", "traceback": "one\ntwo"}))
    assert found == {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["one", "two"]}
