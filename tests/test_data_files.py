"""The digest of data files: real names and types at the start, nothing run, nothing that can break it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbagent.data_files import describe, describe_file, named_files


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding)
    return path


def test_a_table_is_told_by_its_columns_types_gaps_and_examples(tmp_path: Path) -> None:
    table = write(tmp_path / "shop.csv", "name,price\napple,1.5\npear,\nplum,2\n")
    text = describe_file(table, tmp_path)
    assert "'shop.csv'" in text
    assert "3 rows, 2 columns" in text
    assert "'name': text, e.g. apple, pear, plum" in text
    assert "'price': number, 1 missing" in text


def test_spaces_around_column_names_are_visible_and_taken_off_by_the_call_that_reads_it(tmp_path: Path) -> None:
    text = describe_file(write(tmp_path / "t.csv", "A; DIR\n1;2\n"), tmp_path)
    assert "' DIR'" in text
    assert "read it with pd.read_csv('t.csv', sep=';').rename(columns=str.strip)" in text


def test_other_separators_are_noticed_and_said(tmp_path: Path) -> None:
    text = describe_file(write(tmp_path / "t.csv", "a;b;c\n1;2;3\n"), tmp_path)
    assert "3 columns; read it with pd.read_csv('t.csv', sep=';')" in text


@pytest.mark.parametrize("content", ["", "a\n", "a,b\n1\n1,2,3\n", "\x00\x01\x02", 'a,"b\n1,2\n'])
def test_broken_tables_are_told_in_a_line_and_raise_nothing(tmp_path: Path, content: str) -> None:
    assert "t.csv" in describe_file(write(tmp_path / "t.csv", content), tmp_path)


def test_files_in_any_encoding_are_read(tmp_path: Path) -> None:
    assert "Größe" in describe_file(write(tmp_path / "a.csv", "Größe,b\n1,2\n", "utf-8-sig"), tmp_path)
    assert "b" in describe_file(write(tmp_path / "b.csv", "Größe,b\n1,2\n", "latin-1"), tmp_path)


def test_only_files_that_are_there_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a b.csv", "x\n1\n")
    table = write(tmp_path / "sales_2024.csv", "x\n1\n")
    assert named_files("Use sales_2024.csv, not other.csv.", tmp_path) == [table]


def test_without_a_named_file_the_folder_is_listed(tmp_path: Path) -> None:
    for n in range(15):
        write(tmp_path / f"{n:02}.csv", "x\n1\n")
    lines = describe([], tmp_path)
    assert lines[0].startswith("- 00.csv")
    assert lines[-1] == "- and 3 more"


def test_a_folder_that_cannot_be_listed_is_no_error(tmp_path: Path) -> None:
    assert describe([], tmp_path / "nowhere") == []


def test_wide_tables_are_cut_and_it_is_said(tmp_path: Path) -> None:
    header = ",".join(f"c{n}" for n in range(100))
    text = describe_file(write(tmp_path / "w.csv", f"{header}\n{header}\n"), tmp_path)
    assert "and 60 more columns" in text


def test_a_column_of_numbers_with_other_values_among_them_is_told_as_such(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("wins,name\n" + "".join(f"{n},p{n}\n" for n in range(8)) + "Wins,p8\n-,p9\n,p10\n")
    (told,) = describe([table], tmp_path)
    assert "- 'wins': text, 1 missing, 8 of 10 are numbers, the others, e.g. Wins, -" in told
    assert "- 'name': text, e.g. p0, p1, p2" in told


def test_titles_above_the_names_of_the_columns_are_passed_over_by_the_call_that_reads_it(tmp_path: Path) -> None:
    text = "SALES 2024;;\n\nregion;sold;price\nnorth;3;1,5\nsouth;4;2,25\n"
    told = describe_file(write(tmp_path / "t.csv", text), tmp_path)
    call = "pd.read_csv('t.csv', sep=';', header=1, decimal=',')"
    assert f"2 rows, 3 columns; titles stand above the column names (line 2); read it with {call}" in told
    assert "- 'price': number with a decimal comma, e.g. 1,5, 2,25" in told
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(tmp_path / "t.csv", sep=";", header=1, decimal=",")
    assert [list(table.columns), table["price"].sum()] == [["region", "sold", "price"], 3.75]


def test_columns_without_names_are_no_title(tmp_path: Path) -> None:
    told = describe_file(write(tmp_path / "t.csv", "a,,\n1,2,3\n4,5,6\n"), tmp_path)
    assert "2 rows, 3 columns\n" in told
    assert "- 'a': number" in told


def test_the_call_that_reads_a_table_takes_its_numbers_as_numbers(tmp_path: Path) -> None:
    text = 'day,volume,change\n"Sep 17, 2017","5,350,380",1\n"Sep 16, 2017","683,580",-\n"Sep 15, 2017","9",2\n'
    told = describe_file(write(tmp_path / "t.csv", text), tmp_path)
    assert "read it with pd.read_csv('t.csv', thousands=',', na_values={'change': ['-']})" in told
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(tmp_path / "t.csv", thousands=",", na_values={"change": ["-"]})
    assert [table["volume"].sum(), table["change"].sum()] == [6_033_969, 3]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name;len;w\na;0,123;2,5\nb;1,456;3,75\n", "sep=';', decimal=','"),
        ('id,"lo;mid;hi;top"\n1,2\n', ""),
        ("id,text\nu1,hello, this, is, fine\nu2,ok\nu3,bye\n", ""),
        ("name,,,,\nann,x,y,z,q\nbob,x,y,z,r\n", ""),
        ("Title,,\n   \na,b,c\n1,2,3\n", "header=1"),
        ("age,smoker\n1,yes\n2,unknown\nunknown,no\n4,no\n", "na_values={'age': ['unknown']}"),
    ],
)
def test_the_call_that_is_told_is_right_for_this_table(tmp_path: Path, text: str, told: str) -> None:
    line = describe_file(write(tmp_path / "t.csv", text), tmp_path).splitlines()[0]
    assert ("read it with" in line) is bool(told)
    assert f"'t.csv', {told})" in line or not told


def test_no_task_is_too_long_or_too_odd_to_be_searched_for_files(tmp_path: Path) -> None:
    assert named_files("a" * 200_000 + " " + "x" * 5000 + ".csv", tmp_path) == []
    assert "gone.csv" in describe_file(tmp_path / "gone.csv", tmp_path)
