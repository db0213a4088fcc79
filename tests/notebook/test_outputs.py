"""Kernel messages of every odd kind become valid outputs or a note, never nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook

from nbagent.events import Output
from nbagent.notebook.outputs import LARGEST_VALUE, OutputCleaner


def same(text: str) -> str:
    return text


def cleaned(*outputs: Output) -> list[Output]:
    """Clean, and check what must always hold."""
    made = OutputCleaner(same, same).cell(outputs, 3)
    cell = new_code_cell("", outputs=[nbformat.from_dict(output) for output in made])
    nbformat.validate(new_notebook(cells=[cell]))
    json.dumps(made, allow_nan=False).encode()
    return made


def display(data: dict[str, Any], **more: Any) -> Output:
    return {"output_type": "display_data", "data": data, "metadata": {}, **more}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (display({"text/plain": "x"}, transient={"display_id": "d"}), {"data": {"text/plain": "x"}}),
        (display({"application/x.foo": {"a": [1]}}), {"data": {"application/x.foo": '{"a": [1]}'}}),
        (display({"application/vnd.v+json": {"a": math.nan}}), {"data": {"application/vnd.v+json": {"a": None}}}),
        (display({"application/json": [math.inf, b"x"]}), {"data": {"application/json": [None, "x"]}}),
        (display({"image/png": b"\x89PNG"}), {"data": {"image/png": "iVBORw=="}}),
        (display({"image/png": "iVBO\nRw==\n"}), {"data": {"image/png": "iVBORw=="}}),
        (display({"text/plain": "a\ud800"}), {"data": {"text/plain": "a?"}}),
        (display({"text/html": ["<b>", "x"]}), {"data": {"text/html": "<b>x"}}),
        (display({"text/plain": 7}), {"data": {"text/plain": "7"}}),
        (display({}), {"data": {"text/plain": "[an empty output]"}}),
        ({"output_type": "display_data"}, {"data": {"text/plain": "[an empty output]"}}),
        ({"output_type": "execute_result", "data": {"text/plain": "1"}}, {"execution_count": 3}),
        ({"output_type": "stream", "name": "log", "text": ["a", "b"]}, {"name": "stdout", "text": "ab"}),
        ({"output_type": "error", "ename": "E", "evalue": "v", "traceback": "one"}, {"traceback": ["one"]}),
        ({"output_type": "error"}, {"ename": "", "evalue": "", "traceback": []}),
        ({"output_type": "surprise", "x": 1}, {"output_type": "stream"}),
        ({"output_type": "update_display_data", "data": {"text/plain": "u"}}, {"output_type": "display_data"}),
    ],
)
def test_odd_outputs_become_valid(output: Output, expected: dict[str, Any]) -> None:
    (made,) = cleaned(output)
    assert made.items() >= expected.items()


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=4)
    | st.text(st.characters(), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
MIMES = st.sampled_from(
    ["text/plain", "text/html", "image/png", "image/svg+xml", "application/json", "a/b+json", "x", ""]
)
KINDS = st.sampled_from(
    ["stream", "display_data", "update_display_data", "execute_result", "error", "clear_output", "odd"]
)
ODD = st.fixed_dictionaries(
    {"output_type": KINDS | ANYTHING},
    optional={
        "data": st.dictionaries(MIMES, ANYTHING, max_size=3) | ANYTHING,
        **dict.fromkeys(
            ("metadata", "text", "name", "transient", "ename", "evalue", "traceback", "wait"), ANYTHING
        ),
    },
)


NBFORMAT_KINDS = ("stream", "display_data", "execute_result", "error")


@given(st.lists(ODD, max_size=4))
def test_whatever_a_kernel_sends_the_notebook_is_valid(outputs: list[Output]) -> None:
    assert all(output["output_type"] in NBFORMAT_KINDS for output in cleaned(*outputs))


def test_consecutive_streams_of_one_name_are_one() -> None:
    made = cleaned(
        *({"output_type": "stream", "name": name, "text": name[-1]} for name in ("stdout", "stdout", "stderr"))
    )
    assert [output["text"] for output in made] == ["tt", "r"]


def test_clear_output_takes_back_what_was_there() -> None:
    first, second = display({"text/plain": "1"}), display({"text/plain": "2"})
    clear: Output = {"output_type": "clear_output", "wait": False}
    assert cleaned(first, clear) == []
    assert len(cleaned(first, {**clear, "wait": True})) == 1
    (made,) = cleaned(first, {**clear, "wait": True}, second)
    assert made["data"] == {"text/plain": "2"}


def test_an_update_changes_the_display_it_is_for_also_in_an_earlier_cell() -> None:
    cleaner = OutputCleaner(same, same)
    (shown,) = cleaner.cell([display({"text/plain": "10 %"}, transient={"display_id": "bar"})], 1)
    update = {
        "output_type": "update_display_data",
        "data": {"text/plain": "99 %"},
        "transient": {"display_id": "bar"},
    }
    assert cleaner.cell([update], 2) == []
    assert shown["data"] == {"text/plain": "99 %"}


def test_a_large_text_is_cut_in_its_middle_and_a_large_figure_left_out_with_a_note() -> None:
    (text,) = cleaned({"output_type": "stream", "name": "stdout", "text": "a" * 30_000_000})
    assert len(text["text"]) < LARGEST_VALUE + 100
    assert "28000000 characters were left out" in text["text"]
    (figure,) = cleaned(display({"image/png": "A" * 30_000_000}))
    assert figure["data"] == {"text/plain": "[image/png was left out: too large]"}
    (both,) = cleaned(display({"image/png": "A" * 30_000_000, "text/plain": "<Figure>"}))
    assert both["data"]["text/plain"] == "<Figure>\n[image/png was left out: too large]"


def test_all_outputs_together_stay_below_the_limit() -> None:
    cleaner = OutputCleaner(same, same)
    size = 0
    for count in range(40):
        made = cleaner.cell(
            [display({"text/html": "h" * 1_900_000}), display({"text/plain": "p" * 1_900_000})], count
        )
        size += len(json.dumps(made))
    assert size < 51_000_000


def test_every_string_is_masked_or_cleaned() -> None:
    cleaner = OutputCleaner(lambda text: text.replace("K", "*"), lambda text: text.replace("K", "#"))
    outputs: list[Output] = [
        {"output_type": "stream", "name": "stdout", "text": "K"},
        {"output_type": "error", "ename": "K", "evalue": "K", "traceback": ["K"]},
        display({"text/html": "K", "application/json": {"K": ["K"]}, "application/x": "K"}, metadata={"K": "K"}),
    ]
    assert "K" not in json.dumps(cleaner.cell(outputs, 1))


def test_a_secret_that_was_printed_in_two_writes_is_masked() -> None:
    cleaner = OutputCleaner(lambda text: text.replace("secret", "***"), same)
    made = cleaner.cell([{"output_type": "stream", "name": "stdout", "text": text} for text in ("se", "cret")], 1)
    assert made[0]["text"] == "***"
