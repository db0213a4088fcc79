"""What makes a result doubtful although its code ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nbagent.protocols import Variable
from nbagent.tools.doubtful import MOST_SAID, Doubts

NAN = Variable("p", "float64", "nan")
EMPTY = Variable("df", "DataFrame", "(0, 8)")


def doubt(code: str, *changes: Variable, files: Sequence[Path] = ()) -> str:
    return Doubts().look(code, changes, files)


def test_a_variable_of_the_code_that_holds_no_number_is_named() -> None:
    told = doubt("p = f(df)", NAN, Variable("t", "float", "1.5"))
    assert told.startswith("No number came out for p: there may be missing values.")
    assert doubt("q = f(df)", NAN) == ""  # somebody else's
    assert doubt("p = 'nan'", Variable("p", "str", "'nan'")) == ""


def test_a_table_without_rows_is_named_as_the_reason_and_is_no_fault_by_itself() -> None:
    told = doubt("df = df.dropna(); p = f(df)", NAN, EMPTY)
    assert told.startswith("No number came out for p: no rows are left in df.")
    assert doubt("df = df[df.duplicated()]", EMPTY) == ""


def test_the_same_is_not_said_for_ever() -> None:
    doubts = Doubts()
    assert [bool(doubts.look("p = f()", [NAN], ())) for _ in range(4)] == [True] * MOST_SAID + [
        False,
        False,
    ]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "b.csv").write_text("other\n1\n")
    rows = [f'"{n},{n:03}",{n} kg,{n},{"x" if n % 2 else n}' for n in range(100, 110)]
    (tmp_path / "a.csv").write_text("volume, weight,count,mixed\n" + "\n".join(rows) + "\n")
    return [tmp_path / name for name in ("a.csv", "b.csv", "c.parquet", "gone.csv")]


@pytest.mark.parametrize(
    ("column", "lost", "way_out"),
    [
        ("volume", "10 of 10", "df['volume'].astype(str).str.replace(',', '')"),
        ("weight", "10 of 10", "df['weight'].astype(str).str.extract("),
        ("mixed", "5 of 10", "print(df['mixed'].unique()[:20])"),
    ],
)
def test_values_that_a_conversion_loses_in_silence_are_counted(
    files: list[Path], column: str, lost: str, way_out: str
) -> None:
    told = doubt(f"x = pd.to_numeric(df['{column}'], errors='coerce').mean()", files=files)
    assert f"pd.to_numeric makes {lost} values of '{column}' missing" in told
    assert way_out in told


@pytest.mark.parametrize(
    "code",
    [
        "pd.to_numeric(df['count'], errors='coerce')",
        "pd.to_numeric(df['volume'])",
        "pd.to_numeric(df['nothing'], errors='coerce')",
        "pd.to_numeric(df[name], errors='coerce')",
        "df = pd.read_csv('a.csv', thousands=',')\npd.to_numeric(df['volume'], errors='coerce')",
        "df['volume'] = df['volume'].str.replace(',', '')\npd.to_numeric(df['volume'], errors='coerce')",
        "%timeit pd.to_numeric(3, errors='coerce')",
    ],
)
def test_a_conversion_that_loses_nothing_or_is_cared_for_is_no_doubt(files: list[Path], code: str) -> None:
    assert doubt(code, files=files) == ""


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"volume\n", b'volume,"\n1'])
def test_broken_files_raise_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert doubt("pd.to_numeric(df['volume'], errors='coerce')", files=[tmp_path / "a.csv"]) == ""


@pytest.mark.parametrize(
    "code",
    ["p = df[df['mixed'] == 'y']['count'].mean()", "word = 'y'\np = df[df['mixed'] == word]['count'].mean()"],
)
def test_a_comparison_that_finds_nothing_is_named_as_the_reason(files: list[Path], code: str) -> None:
    told = doubt(code, NAN, EMPTY, files=files)
    assert "No number came out for p: in the files no value of 'mixed' is 'y'." in told
    assert "print(df['mixed'].unique()[:10])" in told


@pytest.mark.parametrize("test", ["df['mixed'] == 'x'", "df['gone'] == 'y'", "df['mixed'] == f()", "name == 'y'"])
def test_a_comparison_that_finds_something_or_that_nobody_knows_is_no_reason(files: list[Path], test: str) -> None:
    assert "there may be missing values" in doubt(f"p = df[{test}]['count'].mean()", NAN, files=files)
