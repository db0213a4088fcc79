"""What stands in the data files of a task, told in a few lines without running any code.

Small models guess column names; a digest at the start keeps them from it. Text tables are read with the
standard library; other files are named with their size.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from nbagent.text_columns import Column, column, is_number

TABLES = (".csv", ".tsv")
DATA = (*TABLES, ".parquet", ".xlsx", ".xls", ".json", ".jsonl", ".feather", ".txt", ".db", ".sqlite", ".pkl")
#: Rows read for the digest: enough to see types and gaps, little enough to take no time.
ROWS_READ = 2000
MOST_COLUMNS = 40
MOST_LISTED = 12
LONGEST_NAME = 255  #: characters
ROWS_LOOKED_AT = 20  #: for what a file is like
MOST_TITLES = 5  #: lines among which the names of the columns stand


def named_files(task: str, folder: Path) -> list[Path]:
    """Give the data files in `folder` that the task names."""
    words = [word for word in re.split(r"[\s'\"`,;:()]+", task) if len(word) <= LONGEST_NAME]
    found = dict.fromkeys(folder / word.strip(".") for word in words if word.lower().strip(".").endswith(DATA))
    return [path for path in found if _is_file(path)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no name that a file can have
        return False


def describe(paths: Iterable[Path], folder: Path) -> list[str]:
    """Describe each file; the first few data files of the folder are named where none is given."""
    paths = list(paths)
    if paths:
        return [describe_file(path, folder) for path in paths]
    try:
        others = sorted(path for path in folder.iterdir() if path.suffix.lower() in DATA and path.is_file())
    except OSError:
        return []
    listed = [f"- {path.name} ({_size(path)})" for path in others[:MOST_LISTED]]
    if len(others) > MOST_LISTED:
        listed.append(f"- and {len(others) - MOST_LISTED} more")
    return listed


def describe_file(path: Path, folder: Path) -> str:
    """Describe one file: for a text table its columns with type, gaps and examples."""
    name = path.relative_to(folder) if path.is_relative_to(folder) else path
    title = f"- {str(name)!r}"
    try:
        title += f" ({_size(path)})"
        if path.suffix.lower() not in TABLES:
            return title
        delimiter, rows, more = _read(path)
    except (OSError, csv.Error) as error:
        return f"{title}: cannot be read ({error})"
    if len(rows) < 2:
        return f"{title}: {len(rows)} rows"
    return "\n".join(_table(title, str(name), delimiter, rows, more=more))


def values_of(path: Path, name: str, *, whole: bool = False) -> list[str]:
    """Give the first values of a text table's column, trimmed; none where there is no such table or column.

    `whole`: none either where there are more of them than are read.
    """
    if path.suffix.lower() not in TABLES:
        return []
    try:
        _, rows, more = _read(path)
    except (OSError, csv.Error):
        return []
    above = _lines_above_names(rows) if rows else 0
    header = [word.strip() for word in rows[above]] if rows else []
    if name.strip() not in header or (whole and more):
        return []
    at = header.index(name.strip())
    return [row[at].strip() for row in rows[above + 1 :] if at < len(row)]


def _read(path: Path) -> tuple[str, list[list[str]], bool]:
    """Give a text table's separator, its first rows, and whether there are more."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        sample = file.read(65536)
        file.seek(0)
        dialect = _sniff(sample)
        rows = [
            row for row in islice(csv.reader(file, dialect), ROWS_READ + 1) if len(row) > 1 or "".join(row).strip()
        ]
        return dialect.delimiter, rows, next(file, None) is not None


def _table(title: str, name: str, delimiter: str, rows: Sequence[Sequence[str]], *, more: bool) -> Iterator[str]:
    above = _lines_above_names(rows)
    header, body = rows[above], rows[above + 1 :]
    count = f"over {len(body)}" if more else str(len(body))
    shown = header[:MOST_COLUMNS]
    columns = [column([row[at].strip() for row in body if at < len(row)]) for at in range(len(shown))]
    how_to_read = _how_to_read(name, delimiter, above, header, columns)
    yield f"{title}: {count} rows, {len(header)} columns{how_to_read}"
    yield from (f"  - {word!r}: {one.told}" for word, one in zip(shown, columns, strict=True))
    if len(header) > MOST_COLUMNS:
        yield f"  - and {len(header) - MOST_COLUMNS} more columns"


def _lines_above_names(rows: Sequence[Sequence[str]]) -> int:
    """Count the lines above the names of the columns: titles, which leave most of their cells empty."""
    usual = statistics.median(map(len, rows[:ROWS_LOOKED_AT]))
    figures = any(is_number(word) for row in rows[1:ROWS_LOOKED_AT] for word in row)
    for above, row in enumerate(rows[:MOST_TITLES]):
        filled = [word for word in row if word.strip()]
        if len(filled) * 2 > usual:
            return 0 if above and (any(map(is_number, filled)) or not figures) else above
    return 0


def _how_to_read(name: str, delimiter: str, above: int, header: Sequence[str], columns: Sequence[Column]) -> str:
    """Give the call that reads a table with odd separators, names or values: a mere mention is passed over."""
    options = [] if delimiter == "," else [f"sep={delimiter!r}"]
    if above:
        options.append(f"header={above}")
    if delimiter != "," and any(one.decimal_comma for one in columns):
        options.append("decimal=','")
    elif any(one.thousands for one in columns) and not any(one.decimal_comma for one in columns):
        options.append("thousands=','")
    gaps = {word: [one.placeholder] for word, one in zip(header, columns, strict=False) if one.placeholder}
    if gaps:  # by column: in another one the same word may be a value
        options.append(f"na_values={gaps!r}")
    spaced = any(word != word.strip() for word in header)
    if not options and not spaced:
        return ""
    why = "; spaces stand around column names" if spaced else ""
    why += f"; titles stand above the column names (line {above + 1})" if above else ""
    strip = ".rename(columns=str.strip)" if spaced else ""
    return f"{why}; read it with pd.read_csv({', '.join([repr(name), *options])}){strip}"


def _sniff(sample: str) -> type[csv.Dialect] | csv.Dialect:
    lines = sample.split("\n", ROWS_LOOKED_AT)[:ROWS_LOOKED_AT]
    delimiter = max(",;\t|", key=lambda mark: (sum(mark in line for line in lines), lines[0].count(mark)))

    class Found(csv.excel):
        pass

    Found.delimiter = delimiter
    return Found


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, size // 1000)} kB"
