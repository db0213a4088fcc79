"""One line of advice for errors that models meet again and again in data work, and often repeat."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbagent.usual_imports import import_for

MOST_COLUMNS = 40
MOST_FILES = 12


@dataclass(frozen=True, slots=True)
class Hint:
    """What to do when an error of this type says something that `message` matches."""

    error: str
    message: re.Pattern[str]
    advice: str


def _hint(error: str, message: str, advice: str) -> Hint:
    return Hint(error, re.compile(message, re.IGNORECASE | re.DOTALL), advice)


#: Looked through in order; the first that fits is told.
HINTS = (
    _hint(
        "ValueError",
        r"(could not convert string to float|invalid literal for int\(\)).*: '\s*[-+]?\d",
        "The values hold a number and more. Take the number out: "
        r"df[column].astype(str).str.extract(r'(-?\d+\.?\d*)')[0].astype(float)",
    ),
    _hint(
        "ValueError",
        r"could not convert string|invalid literal for int|unable to parse string",
        "Some values are no numbers. Make those missing: pd.to_numeric(df[column], errors='coerce'). "
        "Over all columns, take the numbers only: df.select_dtypes('number').",
    ),
    _hint(
        "TypeError",
        r"could not convert .*to numeric|unsupported operand type|not supported between instances"
        r"|dtype 'str' does not",
        "A column holds text. Convert it first: pd.to_numeric(df[column], errors='coerce').",
    ),
    _hint("ValueError", r"pattern contains no capture groups", r"Put the part to keep in parentheses: r'(\d+)'."),
    _hint(
        "AttributeError",
        r"can only use \.str accessor",
        "The column is not text: use it without .str, or .astype(str) first.",
    ),
    _hint(
        "AttributeError",
        r"can only use \.dt accessor",
        "Convert it first: df[column] = pd.to_datetime(df[column], errors='coerce').",
    ),
    _hint(
        "ValueError",
        r"contains NaN|infs or NaNs|must not contain|non-finite|NaN to integer|cannot convert float NaN",
        "Leave out rows with missing values in the columns that are used: df = df.dropna(subset=[...]).",
    ),
    _hint("IntCastingNaNError", r"", "Leave out missing values first (.dropna()), or use the dtype 'Int64'."),
    _hint(
        "ValueError",
        r"same length|inconsistent numbers of samples|must be the same size|equal length",
        "Drop the missing rows of all the columns together, then take them: d = df[[a, b]].dropna().",
    ),
    _hint("ValueError", r"truth value of a", "Use & | ~ with each comparison in parentheses, or .any() / .all()."),
    _hint("UnicodeDecodeError", r"", "Read the file with encoding='latin-1'."),
    _hint("ParserError", r"tokenizing data", "The lines differ in length: give sep=..., or on_bad_lines='skip'."),
    _hint(
        "TypeError",
        r"unexpected keyword argument 'method'",
        "That argument is gone: use .ffill() or .bfill().",
    ),
    _hint("AttributeError", r"object has no attribute 'append'", "It is gone: use pd.concat([a, b])."),
    _hint("NameError", r"is not defined", "Nothing of this name was made so far: make it in this code first."),
    _hint(
        "ModuleNotFoundError",
        r"",
        "It is not installed here. Do it with what is: numpy, pandas, or plain Python.",
    ),
)


def hint(error: str, columns: Sequence[str], workspace: Path) -> str:
    """Give the advice for an error, `Type: message`, or "".

    `columns` are those of the table that was asked for another one.
    """
    name, _, message = error.partition(": ")
    if columns:
        return _columns(message, columns)
    if needed := import_for(error):
        return f"Its import is missing: {needed}"
    if name == "FileNotFoundError" and (files := _files(workspace)):
        return f"The files here are: {', '.join(map(repr, files))}."
    return next((one.advice for one in HINTS if one.error == name and one.message.search(message)), "")


def _columns(message: str, columns: Sequence[str]) -> str:
    asked = re.findall(r"'([^']*)'", message) or [message.strip()]
    folded = {_fold(column): column for column in reversed(columns)}
    nearest = [
        folded[match]
        for name in asked
        for match in difflib.get_close_matches(_fold(name), list(folded), n=1, cutoff=0.6)
        if name not in columns
    ]
    spaced = {column.strip() for column in columns if column != column.strip()}
    strip = " Spaces stand around the names: take them off first, df = df.rename(columns=str.strip)."
    listed = ", ".join(map(repr, columns[:MOST_COLUMNS]))
    more = f" and {len(columns) - MOST_COLUMNS} more" if len(columns) > MOST_COLUMNS else ""
    use = f" Use {' and '.join(map(repr, dict.fromkeys(nearest)))}." if nearest else ""
    if spaced & {name.strip() for name in asked}:
        use = strip
    return f"There is no such column.{use} The columns are: {listed}{more}."


def _files(folder: Path) -> list[str]:
    try:
        names = sorted(
            entry.name for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith(".")
        )
    except OSError:
        return []
    return names[:MOST_FILES]


def _fold(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()
