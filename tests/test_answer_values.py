"""Whether the values of an answer were computed: what no output shows was made up."""

from __future__ import annotations

import pytest

from nbagent.answer_values import no_value, not_among, numbers

TASK = "How many sites, over 3 years?\nFormat: @mean[number] @count[number] @years[number]"


def test_the_numbers_of_a_text_are_found_in_all_their_forms() -> None:
    assert numbers("a 1, -2.5 and 3e4; 1,234.5") >= {1.0, -2.5, 3e4, 1234.5}
    assert numbers("v1.2 x3 2015b") == set()


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("@mean[12.35]", "12.345678"),  # rounded up
        ("@mean[12.34]", "12.345678"),  # cut off
        ("@mean[6.25%]", "0.0625"),
        ("@mean[0.06]", "6.25 %"),
        ("@mean[1234]", "1,234"),
        ("@mean[123456]", "1.234560e+05"),
        ("@count[46]", "46.0"),
        ("@count[1, 2]", "0    1\n1    2"),
        ("@years[3]", ""),  # the task itself says so
        ("@mean[high]", ""),
        ("@mean[2015-07-24]", ""),
        ("@other[5]", ""),
        ("the mean is 5", ""),
    ],
)
def test_a_value_that_was_shown_is_believed_however_it_is_rounded(answer: str, shown: str) -> None:
    assert not_among(TASK, answer, numbers(shown)) == []


@pytest.mark.parametrize(
    ("answer", "shown", "unseen"),
    [
        ("@mean[0.00%]", "nan", ["0.00"]),
        ("@mean[12.35] @count[7]", "12.345 and 8", ["7"]),
        ("@count[1, 9]", "1 2", ["9"]),
        ("@mean[5] @count[5]", "", ["5"]),
    ],
)
def test_a_value_that_no_output_shows_is_named(answer: str, shown: str, unseen: list[str]) -> None:
    assert not_among(TASK, answer, numbers(shown)) == unseen


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        ("@mean[nan%] @count[3]", "nan"),
        ("@mean['None']", "None"),
        ("@mean[-inf]", "-inf"),
        ("@mean[1] @other[nan]", ""),
        ("@mean[no names]", ""),
        ("nan", ""),
    ],
)
def test_an_output_without_a_value_is_noticed_where_the_task_asks_for_it(shown: str, value: str) -> None:
    assert no_value(TASK, shown) == value
