"""The form that a task demands of its answer is read off the task, and kept without asking the model again."""

from __future__ import annotations

import re

import pytest

from nbagent.answer_form import completed, contradicted, missing, no_value, outside, rounded, said_as_asked

ONE = 'Is it normal?\nAnswer format: @status[status], where "status" is either "Normal" or "Not Normal".'
YES = 'Answer format: @is_normal[answer], where "answer" is either "Yes" or "No".'
TWO = "Answer format: @mean_wage[mean_value] @std_wage[std_value], numbers rounded to two decimal places."
MIXED = (
    "Round the intermediate results to five decimal places.\n"
    "@r[r_value] @p_value[p_value] @rows[n] @share[number, rounded to 1 decimal place] @name[text]\n"
    'where "r_value" is a number between -1 and 1, rounded to two decimal places, "p_value" is a number, '
    'rounded to four decimals, and "n" is a positive integer.'
)


@pytest.mark.parametrize(
    ("task", "answer", "shown", "wanted"),
    [
        (ONE, "Not Normal", "@status[False]", "@status[Not Normal]"),
        (ONE, "Normal.", "", "@status[Normal]"),
        (ONE, "0.0132", "p = 0.0132", "@status[0.0132]"),
        (ONE, "It is not normal.", "p = 0.0132", "It is not normal."),
        (ONE, "0.01", "p = 0.0132", "0.01"),  # not what the output says
        (ONE, "@status[Normal]", "@status[Not Normal]", "@status[Normal]"),  # its own word stands
        (TWO, "6.31", "mean 6.31", "6.31"),  # of two values it is not known which
        (TWO, "mean_wage: 6.31\n- **std_wage**: 4.66", "", "@mean_wage[6.31] @std_wage[4.66]"),
        (TWO, "mean_wage: 6.31", "", "mean_wage: 6.31"),
        (TWO, "6.31\n4.66", "4.66 is the sd, 6.31 the mean", "@mean_wage[6.31] @std_wage[4.66]"),
        (TWO, "@6.31 [4.66].", "6.31 4.66", "@mean_wage[6.31] @std_wage[4.66]"),
        (TWO, "@6.31 @-4.66. It is normal.", "mean 6.31, sd: -4.66", "@mean_wage[6.31] @std_wage[-4.66]"),
        (TWO, "6.31, 4.66, 10", "6.31 4.66 10", "6.31, 4.66, 10"),
        (TWO, "6.31 4.67", "6.31 4.66", "6.31 4.67"),  # not what the output says
        (TWO, "6.31 and 4.66", "6.31 4.66", "6.31 and 4.66"),
        ("What is the mean?", "6.31", "6.31", "6.31"),
    ],
)
def test_a_value_without_its_form_is_put_into_it_where_it_is_known_for_certain(
    task: str, answer: str, shown: str, wanted: str
) -> None:
    given = completed(task, answer, shown)
    assert given.splitlines()[-1] == wanted.splitlines()[-1]
    assert (given == answer) is (wanted == answer)
    assert all(word in given for word in re.findall(r"[\w.]*\w", answer.splitlines()[0].partition(". ")[0]))


@pytest.mark.parametrize(
    ("task", "answer", "shown", "wanted"),
    [
        (ONE, "Normal", "@status[Not Normal]", "@status[Not Normal]"),
        (YES, "Yes", "@is_normal[False]", "@is_normal[No]"),
    ],
)
def test_of_two_words_the_one_that_was_computed_counts(task: str, answer: str, shown: str, wanted: str) -> None:
    assert completed(task, answer, shown) == wanted


@pytest.mark.parametrize(
    ("task", "answer", "wanted"),
    [
        (TWO, "@mean_wage[6.314159] @std_wage[4.66]", "@mean_wage[6.31] @std_wage[4.66]"),
        (TWO, "@mean_wage[2.0, 6.314159] @std_wage[4.6]", "@mean_wage[2.0, 6.31] @std_wage[4.6]"),
        (MIXED, "@r[0.23456] @p_value[0.123456] @rows[312.0]", "@r[0.23] @p_value[0.1235] @rows[312]"),
        (MIXED, "@share[12.345] @name[v1.2345]", "@share[12.3] @name[v1.2345]"),
        (MIXED, "The mean is 6.314159.", "The mean is 6.314159."),  # prose is the model's
        ("@mean[value]", "@mean[6.314159]", "@mean[6.314159]"),
    ],
)
def test_named_values_are_rounded_as_the_task_says(task: str, answer: str, wanted: str) -> None:
    assert rounded(task, answer) == wanted


def test_a_placeholder_is_no_value() -> None:
    assert missing(TWO, "@mean_wage[mean_value] @std_wage[4.66]") == ["mean_wage"]
    assert missing(TWO, "@mean_wage[] @std_wage[4.66]") == ["mean_wage"]
    assert missing("Mail bob@example.com", "done") == []


CHOICE = (
    'Test it at "alpha" 0.05.\nAnswer format: @p[p_value] @is_normal[str]\n'
    'where "p_value" is a number, rounded to four decimal places. where "str" is a string that can be either '
    '"yes" or "no" based on the "p_value".'
)


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("@p[0.0000] @is_normal[False]", ["is_normal"]),
        ("@p[0.0000] @is_normal[no]", []),
        ("@p[0.0000] @is_normal['no']", []),
        ("@p[0.0000]", []),  # dropped, not wrong
    ],
)
def test_a_value_is_one_of_the_choices_that_the_task_leaves(answer: str, names: list[str]) -> None:
    assert list(outside(CHOICE, answer)) == names


def test_words_in_quotes_are_no_choices_unless_the_task_says_either() -> None:
    task = '@name[text]\nwhere "text" is a name such as "Bob" or "Eve".'
    assert outside(task, "@name[Ada]") == {}
    assert outside(ONE, "@status[False]") == {"status": ["Normal", "Not Normal"]}


def test_a_truth_value_is_said_as_the_yes_or_no_that_is_asked_for() -> None:
    assert said_as_asked(CHOICE, "@p[0.1] @is_normal[False]") == "@p[0.1] @is_normal[no]"
    assert said_as_asked(CHOICE, "@p[0.1] @is_normal[True]") == "@p[0.1] @is_normal[yes]"
    assert said_as_asked(CHOICE, "@p[0.1] @is_normal[maybe]") == "@p[0.1] @is_normal[maybe]"
    assert said_as_asked(ONE, "@status[False]") == "@status[False]"  # of what, is not known


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        ("@mean_wage[nan%] @std_wage[3]", "nan"),
        ("@mean_wage['None']", "None"),
        ("@mean_wage[-inf]", "-inf"),
        ("@mean_wage[1] @other[nan]", ""),
        ("@mean_wage[no names]", ""),
        ("nan", ""),
    ],
)
def test_an_output_without_a_value_is_noticed_where_the_task_asks_for_it(shown: str, value: str) -> None:
    assert no_value(TWO, shown) == value


def test_a_word_that_the_output_has_otherwise_is_noticed() -> None:
    assert contradicted(YES, "@is_normal[Yes]", "@is_normal[No]") == {"is_normal": "No"}
    assert contradicted(YES, "@is_normal[Yes]", "@is_normal[False]") == {"is_normal": "No"}
    for answer, shown in (
        ("@is_normal[No]", "@is_normal[No]"),
        ("@is_normal[Yes]", "@is_normal[0.3]"),
        ("Yes", "No"),
    ):
        assert contradicted(YES, answer, shown) == {}


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Give @corr[r] and @n[count]. r is a correlation. count is an integer.", "@corr[0.73] @n[120]"),
        ("Give @mean[mean_age] where mean_age is the mean. Use a random integer seed 42.", "@mean[29.14]"),
        ("Report @x[v] with 3 decimal places", "@x[1.5e400]"),
    ],
)
def test_what_is_said_of_something_else_rounds_nothing(task: str, answer: str) -> None:
    assert rounded(task, answer) == answer


@pytest.mark.parametrize(
    ("shown", "answer"), [("@m[5]", "It is 15."), ("@m[4.5]", "It is 34.50."), ("@m[5]", "Not 5, but 15.")]
)
def test_a_printed_value_is_not_added_to_an_answer_that_says_another(shown: str, answer: str) -> None:
    assert completed("Give @m[x]", answer, shown) == answer
