"""What is advised after the errors that data work brings again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbagent.tools.hints import hint


@pytest.mark.parametrize(
    ("error", "advised"),
    [
        ("ValueError: could not convert string to float: '630308[495000-801000]'", "str.extract"),
        ("ValueError: invalid literal for int() with base 10: '12 %'", "str.extract"),
        ("ValueError: could not convert string to float: 'Wins'", "errors='coerce'"),
        ('ValueError: Unable to parse string "n/a" at position 3', "errors='coerce'"),
        ("TypeError: Could not convert string 'ab' to numeric", "errors='coerce'"),
        ("TypeError: '<' not supported between instances of 'str' and 'int'", "errors='coerce'"),
        ("ValueError: pattern contains no capture groups", "parentheses"),
        ("AttributeError: Can only use .str accessor with string values, not floating", "without .str"),
        ("ValueError: Input X contains NaN.", "dropna"),
        ("ValueError: array must not contain infs or NaNs", "dropna"),
        ("IntCastingNaNError: Cannot convert non-finite values (NA or inf) to integer", "Int64"),
        ("ValueError: x and y must have the same length.", "together"),
        ("ValueError: The truth value of a Series is ambiguous.", "parentheses"),
        ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9", "latin-1"),
        ("ParserError: Error tokenizing data. C error: Expected 2 fields in line 3, saw 4", "sep="),
        ("ModuleNotFoundError: No module named 'statsmodels'", "not installed"),
        ("TypeError: NDFrame.fillna() got an unexpected keyword argument 'method'", "ffill"),
        ("AttributeError: 'DataFrame' object has no attribute 'append'", "pd.concat"),
        ("NameError: name 'pd' is not defined", "import pandas as pd"),
        ("NameError: name 'totals' is not defined", "make it in this code first"),
    ],
)
def test_each_kind_of_error_has_its_advice(error: str, advised: str, tmp_path: Path) -> None:
    assert advised in hint(error, (), tmp_path)


@pytest.mark.parametrize("error", ["ZeroDivisionError: division by zero", "KeyError: 'a'", "ValueError: no", ""])
def test_an_error_that_says_it_all_has_none(error: str, tmp_path: Path) -> None:
    assert hint(error, (), tmp_path) == ""


def test_a_missing_column_is_answered_with_those_that_are_there(tmp_path: Path) -> None:
    columns = ("country", "gdpPercap", " Year ")
    assert hint("KeyError: 'Gdppercap'", columns, tmp_path) == (
        "There is no such column. Use 'gdpPercap'. The columns are: 'country', 'gdpPercap', ' Year '."
    )
    told = hint("KeyError: \"['Year', 'gdp'] not in index\"", columns, tmp_path)
    assert "take them off first, df = df.rename(columns=str.strip)" in told
    many = hint("KeyError: 'x'", [f"c{i}" for i in range(100)], tmp_path)
    assert many.endswith("'c39' and 60 more.")


def test_a_missing_file_is_answered_with_those_that_are_there(tmp_path: Path) -> None:
    for name in ("shop.csv", ".hidden"):
        (tmp_path / name).touch()
    assert hint("FileNotFoundError: [Errno 2] No such file", (), tmp_path) == "The files here are: 'shop.csv'."
    assert hint("FileNotFoundError: [Errno 2] No such file", (), tmp_path / "gone") == ""
