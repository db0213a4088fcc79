"""Every event survives its line of JSON; what a newer version wrote is kept."""

from __future__ import annotations

import json
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nbagent import events
from nbagent.events import (
    Event,
    Output,
    OutputAdded,
    Thought,
    ThoughtDelta,
    UnknownEvent,
    Usage,
    from_json,
    to_json,
)

CLASSES: tuple[type[Event], ...] = typing.get_args(events.AnyEvent)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)
COUNTS = st.integers(min_value=0, max_value=2**53)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    if annotation in (dict[str, Any], Output):
        return OBJECTS
    if annotation is Usage:
        return st.builds(
            Usage, prompt_tokens=COUNTS, completion_tokens=COUNTS, cached_tokens=COUNTS, estimated=st.booleans()
        )
    if annotation is float or annotation == (float | None):
        return st.floats(allow_nan=False)
    return st.from_type(annotation)


def any_of(cls: type[Event]) -> st.SearchStrategy[Event]:
    fields = {name: values_of(field.annotation) for name, field in cls.model_fields.items()}
    return st.builds(cls, **fields)


@given(st.one_of([any_of(cls) for cls in CLASSES]))
def test_every_event_comes_back_equal_from_one_line(event: Event) -> None:
    line = to_json(event)
    assert "\n" not in line
    back = from_json(line)
    assert back == event
    assert type(back) is type(event)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_events_type_is_its_class_name(cls: type[Event]) -> None:
    assert cls.model_fields["type"].default == cls.__name__
    assert cls.__doc__


def test_every_class_of_the_vocabulary_can_be_read() -> None:
    defined = {cls for cls in vars(events).values() if isinstance(cls, type) and issubclass(cls, Event)}
    assert defined - {Event, UnknownEvent} == set(CLASSES)


def test_deltas_alone_are_not_stored() -> None:
    shown_only = {cls.__name__ for cls in CLASSES if not cls.model_construct().stored}
    assert shown_only == {"ThoughtDelta", "ReasoningDelta", "ActionDelta"}
    assert not ThoughtDelta(text="").stored


@given(OBJECTS, st.text(min_size=1).filter(lambda name: name not in {cls.__name__ for cls in CLASSES}))
def test_events_of_a_newer_version_are_kept_whole(fields: dict[str, Any], name: str) -> None:
    envelope = {"type": name, "version": 2, "seq": 7}
    values = {key: value for key, value in fields.items() if key not in Event.model_fields} | envelope
    event = from_json(json.dumps(values))
    assert isinstance(event, UnknownEvent)
    written = json.loads(to_json(event))
    assert {key: written[key] for key in values} == values


def test_fields_of_a_newer_version_are_kept() -> None:
    line = '{"type":"Thought","text":"t","mood":"glad"}'
    assert json.loads(to_json(from_json(line)))["mood"] == "glad"


@pytest.mark.parametrize(
    "line", ["", "null", "[]", "7", "{}", '{"type":1}', '{"type":"Thought"}', "{", '{"type":"Thou']
)
def test_what_is_no_event_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any: the caller leaves the line out
        from_json(line)


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert to_json(Thought(text="a\ud800b")).encode() == to_json(Thought(text="a?b")).encode()


def test_outputs_are_kept_as_the_kernel_made_them() -> None:
    output: Output = {
        "output_type": "display_data",
        "data": {"image/png": "iVBO\n"},
        "transient": {"x": [1.5, None]},
    }
    back = from_json(to_json(OutputAdded(output=output)))
    assert isinstance(back, OutputAdded)
    assert back.output == output


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Thought(text="a").text = "b"


def test_usage_adds_up_and_one_estimate_makes_the_sum_one() -> None:
    total = Usage(prompt_tokens=1, completion_tokens=2) + Usage(prompt_tokens=10, cached_tokens=3, estimated=True)
    assert total == Usage(prompt_tokens=11, completion_tokens=2, cached_tokens=3, estimated=True)
    assert total.total_tokens == 13
