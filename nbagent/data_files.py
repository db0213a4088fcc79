"""What stands in the data files of a task, told in a few lines without running any code.

Small models guess column names; a digest at the start keeps them from it. Text tables are read with the
standard library; other files are named with their size.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

TABLES = (".csv", ".tsv")
DATA = (*TABLES, ".parquet", ".xlsx", ".xls", ".json", ".jsonl", ".feather", ".txt", ".db", ".sqlite", ".pkl")
#: Rows read for the digest: enough to see types and gaps, little enough to take no time.
ROWS_READ = 2000
MOST_COLUMNS = 40
MOST_LISTED = 12
VALUE_CHARACTERS = 24
#: From this share of numbers on, a column of text is told to hold them: it has to be converted with care.
MIXED = 0.2


def named_files(task: str, folder: Path) -> list[Path]:
    """Give the data files in `folder` that the task names."""
    words = re.findall(r"[^\s'\"`,;:()]+\.\w+", task)
    found = dict.fromkeys(folder / word.strip(".") for word in words if word.lower().strip(".").endswith(DATA))
    return [path for path in found if path.is_file()]


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
    title = f"- {str(name)!r} ({_size(path)})"
    if path.suffix.lower() not in TABLES:
        return title
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            sample = file.read(65536)
            file.seek(0)
            dialect = _sniff(sample)
            rows = list(islice(csv.reader(file, dialect), ROWS_READ + 1))
            more = next(file, None) is not None
    except (OSError, csv.Error) as error:
        return f"{title}: cannot be read ({error})"
    if len(rows) < 2:
        return f"{title}: {len(rows)} rows"
    header, body = rows[0], rows[1:]
    count = f"over {len(body)}" if more else str(len(body))
    lines = [f"{title}: {count} rows, {len(header)} columns{_how_to_read(str(name), dialect.delimiter, header)}"]
    for index, column in enumerate(header[:MOST_COLUMNS]):
        values = [row[index].strip() for row in body if index < len(row)]
        lines.append(f"  - {column!r}: {_column(values)}")
    if len(header) > MOST_COLUMNS:
        lines.append(f"  - and {len(header) - MOST_COLUMNS} more columns")
    return "\n".join(lines)


def _how_to_read(name: str, delimiter: str, header: Sequence[str]) -> str:
    """Give the call that reads a table with odd separators or names: a mere mention is passed over."""
    separator = "" if delimiter == "," else f", sep={delimiter!r}"
    spaced = any(column != column.strip() for column in header)
    if not separator and not spaced:
        return ""
    why = "; spaces stand around column names" if spaced else ""
    strip = ".rename(columns=str.strip)" if spaced else ""
    return f"{why}; read it with pd.read_csv({name!r}{separator}){strip}"


def _sniff(sample: str) -> type[csv.Dialect] | csv.Dialect:
    first = sample.split("\n", 1)[0]
    delimiter = max(",;\t|", key=first.count)

    class Found(csv.excel):
        pass

    Found.delimiter = delimiter
    return Found


def _column(values: Sequence[str]) -> str:
    present = [value for value in values if value and value.lower() not in ("nan", "na", "null")]
    gaps = len(values) - len(present)
    missing = f", {gaps} missing" if gaps else ""
    others = [value for value in present if not _is_number(value)]
    if not others:  # a small model takes the examples of numbers for results
        return f"{'number' if present else 'empty'}{missing}"
    numbers = len(present) - len(others)
    mixed = f", {numbers} of {len(present)} are numbers, the others" if numbers > len(present) * MIXED else ""
    examples = ", ".join(_clip(value) for value in list(dict.fromkeys(others))[:3])
    return f"text{missing}{mixed}, e.g. {examples}"


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _clip(value: str) -> str:
    return value if len(value) <= VALUE_CHARACTERS else value[: VALUE_CHARACTERS - 1] + "…"


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, size // 1000)} kB"
