"""What a column of text holds: numbers that pandas would lose in silence, and dates."""

from __future__ import annotations

import pytest

from nbagent.text_columns import TAKE_NUMBER, TAKE_SIGN_OFF, column


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["1", "2.5", "-3e4"], "number"),
        (["1", "", "NaN", "None"], "number, 3 missing"),
        (["", "nan"], "empty, 2 missing"),
        (["1", "2", "-"], "number, 1 missing ('-' or empty)"),
        (["1", "", "Missing"], "number, 2 missing ('Missing' or empty)"),
        (["1", "2", "-", "?"], "text, 2 of 4 are numbers, the others, e.g. -, ?"),
        (["-", "-", "1"], "text, 1 of 3 are numbers, the others, e.g. -, -"),
        (["1,200", "5,350,380.5", "7"], "number with commas between thousands, e.g. 1,200, 5,350,380.5"),
        (["1,5", "12,25"], "number with a decimal comma, e.g. 1,5, 12,25"),
        (["a", "b", "c", "d"], "text, e.g. a, b, c"),
        (["x" * 40], f"text, e.g. {'x' * 23}…"),
    ],
)
def test_a_column_is_told_by_its_values(values: list[str], told: str) -> None:
    assert column(values).told == told.replace("-, -", "-")


@pytest.mark.parametrize(
    "values",
    [
        ["2015-07-24", "2015-07-25"],
        ["2015-07-24 11:40:51", "2015-07-24T12:00"],
        ["10/1/2014", "10/2/2014"],
        ["01/12/2015 00:00", "01/11/2015 01:00"],
        ["19-Jan-18", "18-Jan-18"],
        ["Sep 17, 2017", "September 16, 2017"],
        ["Apr 13  2017 12:00:00 AM"],
    ],
)
def test_dates_as_text_are_told_with_what_reads_them(values: list[str]) -> None:
    assert column(values).told.startswith("date as text (pd.to_datetime(df[column])), e.g. ")
    pandas = pytest.importorskip("pandas")
    assert pandas.to_datetime(pandas.Series(values[:1])).notna().all()


def test_a_day_above_twelve_in_front_is_told() -> None:
    assert "dayfirst=True" in column(["01/12/2015", "24/12/2015"]).told
    assert "dayfirst=True" not in column(["01/12/2015", "12/24/2015"]).told


@pytest.mark.parametrize("values", [["12-13"], ["1.2.3"], ["May 5"], ["v2024-1-1"], ["09:15"], ["09:75:00"]])
def test_what_only_looks_like_a_date_is_text(values: list[str]) -> None:
    assert column(values).told.startswith("text, ")


def test_times_as_text_are_told_with_what_makes_lengths_of_them() -> None:
    assert column(["00:00:51", "1:02:03.5"]).told == (
        "time as text (pd.to_timedelta(df[column]), then .dt.total_seconds()), e.g. 00:00:51, 1:02:03.5"
    )
    pandas = pytest.importorskip("pandas")
    assert list(pandas.to_timedelta(pandas.Series(["00:00:51", "1:02:03.5"])).dt.total_seconds()) == [51, 3723.5]


@pytest.mark.parametrize(
    "values", [["12 kg", "3.5 kg"], ["12kg", "7"], ["298[110-510]", "3", "76[3-130]"], ["3+", "1"]]
)
def test_a_number_with_more_behind_it_is_told_with_what_takes_it_out(values: list[str]) -> None:
    assert f"text that begins with a number (take it out: df[column]{TAKE_NUMBER})" in column(values).told


@pytest.mark.parametrize("values", [["$1,200.50", "$3"], ["4.2%", "5 %"], ["-3 €"]])
def test_a_sign_of_currency_or_share_is_told_with_what_takes_it_off(values: list[str]) -> None:
    assert f"number with a sign (take it off: df[column]{TAKE_SIGN_OFF})" in column(values).told


@pytest.mark.parametrize("values", [["13\t741", "5"], ["12 kg", "3 m"], ["A/5 21171", "7"], ["3rd", "1st"]])
def test_numbers_that_would_come_out_wrong_are_not_taken_out(values: list[str]) -> None:
    assert column(values).told.startswith("text, ")
