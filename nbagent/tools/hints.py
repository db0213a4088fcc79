"""One line of advice for errors that models meet again and again in data work, and often repeat."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbagent.text_columns import TAKE_NUMBER
from nbagent.usual_imports import import_for

MOST_COLUMNS = 40
MOST_FILES = 12


@dataclass(frozen=True, slots=True)
class Hint:
    """What to do when an error of a type that `error` matches says something that `message` matches."""

    error: re.Pattern[str]
    message: re.Pattern[str]
    advice: str


def _hint(error: str, message: str, advice: str) -> Hint:
    return Hint(re.compile(error), re.compile(message, re.IGNORECASE | re.DOTALL), advice)


#: A column that code takes from a table: `df['price']`.
_COLUMN = re.compile(r"\b[A-Za-z_]\w*\[(?:'[^'\n]+'|\"[^\"\n]+\")\]")

NUMBERS_FIRST = (
    "A column holds text. Convert it before that line: df[column] = pd.to_numeric(df[column], errors='coerce')"
)
GAPS_IN_TEXT = "Missing values stand among the texts: leave them out, .dropna(), or use .astype(str) first."
ONE_VALUE = "It is one value already: use it as it is."

#: Looked through in order; the first that fits is told.
HINTS = (
    _hint(
        "ValueError",
        r"(could not convert string to float|invalid literal for int\(\)).*: '\s*[-+]?\d{1,3}(,\d{3})+(\.\d+)?'",
        "Commas stand between thousands: df[column].astype(str).str.replace(',', '').astype(float)",
    ),
    _hint(
        "ValueError",
        r"(could not convert string to float|invalid literal for int\(\)).*: '\s*[-+]?\d+(\.\d+)?[^-\d.,:/]",
        f"The values hold a number and more. Take the number out: df[column]{TAKE_NUMBER}",
    ),
    _hint(
        "ValueError",
        r"could not convert string|invalid literal for int|unable to parse string",
        "Some values are no numbers. Make those missing: pd.to_numeric(df[column], errors='coerce'). "
        "Over all columns, take the numbers only: df.select_dtypes('number').",
    ),
    _hint(
        "TypeError",
        r"could not convert .*to numeric|unsupported operand type.*'str'|not supported between instances"
        r"|dtype 'str' does not|with string dtype|agg function failed|operation '\w+' not supported for dtype"
        r"|can only concatenate str|cannot perform \w+ with type str|ufunc .* did not contain a loop"
        r"|dtype=str and|loop of ufunc does not|ufunc '\w+' not supported for the input|has dtype str, cannot use",
        NUMBERS_FIRST,
    ),
    _hint("ArrowNotImplementedError|DTypePromotionError", r"str", NUMBERS_FIRST),
    _hint("ValueError", r"pattern contains no capture groups", r"Put the part to keep in parentheses: r'(\d+)'."),
    _hint(
        "AttributeError",
        r"can only use \.str accessor",
        "The column is not text: use it without .str, or .astype(str) first.",
    ),
    _hint(
        "AttributeError",
        r"can only use \.dt accessor",
        "Convert it first: dates with pd.to_datetime(df[column], errors='coerce'), lengths like 00:01:30"
        " with pd.to_timedelta(df[column]).",
    ),
    _hint(
        "AttributeError",
        r"'DatetimeProperties' object has no attribute '(total_seconds|seconds|days)'",
        "Those are dates. Lengths of time are pd.to_timedelta(df[column]), then .dt.total_seconds().",
    ),
    _hint(
        "AttributeError",
        r"'Series' object has no attribute '(total_seconds|year|month|day|hour|minute|weekday|dayofweek|quarter"
        r"|date|time|strftime|to_period|month_name|day_name|isocalendar|days|seconds)'",
        "For a column of dates or times it stands behind .dt: series.dt.year, series.dt.total_seconds().",
    ),
    _hint(
        "AttributeError",
        r"'Series' object has no attribute '(lower|upper|strip|split|contains|startswith|endswith|title|len"
        r"|extract|match|zfill|isdigit|join)'",
        "For a column of text it stands behind .str: series.str.lower().",
    ),
    _hint(
        "AttributeError",
        r"'(numpy\.)?ndarray' object has no attribute",
        "It is a NumPy array: make a series of it first, pd.Series(x).",
    ),
    _hint(
        "AttributeError",
        r"'float' object has no attribute '(lower|upper|strip|split|replace|startswith|endswith|find|isdigit)'",
        GAPS_IN_TEXT,
    ),
    _hint(
        "TypeError",
        r"'float' (object )?is not iterable|argument of type 'float'|expected string or bytes-like"
        r"|'float' has no len",
        GAPS_IN_TEXT,
    ),
    _hint(
        "AttributeError",
        r"'(int|float|str|numpy\.(float|int)64)' object has no attribute '(?!dtype)",
        ONE_VALUE,
    ),
    _hint("KeyError", r"^-?\d+$", "For a position use .iloc: series.iloc[0], df.iloc[0]."),
    _hint("TypeError", r"'(numpy\.)?(Period|Timestamp|int\d*|float\d*)' object is not subscriptable", ONE_VALUE),
    _hint("IndexError", r"invalid index to scalar", ONE_VALUE),
    _hint(
        "TypeError",
        r"'[\w.]+' object is not callable",
        "That is no function: a variable may have its name, or a list stands where {old: new} is needed.",
    ),
    _hint("TypeError", r"not 'Series'|cannot convert the series", "Take one value of it first: series.iloc[0]."),
    _hint("TypeError", r"concat\(\) takes", "Give them as a list: pd.concat([a, b])."),
    _hint("TypeError", r"tz-naive|, UTC\]", "Take the time zone off first: .dt.tz_localize(None)."),
    _hint("TypeError", r"dtype=datetime64", "Compare dates with dates: pd.Timestamp('2020-01-01')."),
    _hint("TypeError", r"integers and integer-arrays with", "Add a length of time: pd.Timedelta(days=3)."),
    _hint("TypeError", r"only valid with DatetimeIndex", "First: df = df.set_index(pd.to_datetime(df[column]))."),
    _hint(
        "ValueError",
        r"contains NaN|infs or NaNs|must not contain|non-finite|NaN to integer|cannot convert float NaN",
        "Leave out rows with missing values in the columns that are used: df = df.dropna(subset=[...]).",
    ),
    _hint("IntCastingNaNError", r"", "Leave out missing values first (.dropna()), or use the dtype 'Int64'."),
    _hint(
        "ValueError", r"cannot set a (row|frame)|columns must be same length", "Assign one column: df['a'] = ..."
    ),
    _hint(
        "ValueError",
        r"same length|must be broadcastable|inconsistent numbers of samples|must be the same size|equal length",
        "Drop the missing rows of all the columns together, then take them: d = df[[a, b]].dropna().",
    ),
    _hint(
        "ValueError",
        r"expected 2D array|expected a 2-dimensional|reshape your data",
        "Take the columns with double brackets: X = df[['a']], y = df['b'].",
    ),
    _hint("ValueError", r"truth value of a", "Use & | ~ with each comparison in parentheses, or .any() / .all()."),
    _hint(
        "ValueError",
        r"time data .*(doesn't|does not) match format|unconverted data remains|unknown datetime|likely a datetime",
        "Let pandas find the form: pd.to_datetime(df[column], format='mixed', errors='coerce').",
    ),
    _hint(
        "ValueError", r"can only compare identically", "Give both the same labels first: .reset_index(drop=True)."
    ),
    _hint("ValueError", r"trying to merge on", "The keys differ in type: make both text, a[key].astype(str)."),
    _hint(
        "ValueError", r"invalid frequency", "Months, quarters and years are 'ME', 'QE', 'YE' now; hours are 'h'."
    ),
    _hint(
        "ValueError", r"mix of .* targets", "Predict classes, or take a metric for numbers (mean_squared_error)."
    ),
    _hint("ValueError", r"bin labels must be", "Give as many labels as there are bins."),
    _hint(
        "ValueError", r"cannot set a (row|frame)|columns must be same length", "Assign one column: df['a'] = ..."
    ),
    _hint("ValueError", r"unknown label type", "The target is a number: use a regressor, or make classes of it."),
    _hint("ValueError", r"cannot reindex|duplicate labels", "Labels occur twice: df = df.reset_index(drop=True)."),
    _hint(
        "IndexError", r"out.of.bounds|out of range", "It is shorter than that: print its length and first values."
    ),
    _hint("OSError", r"non-existent directory", "Make the folder first: os.makedirs(folder, exist_ok=True)."),
    _hint("AttributeError", r"\.cat accessor", "Convert it first: df[column].astype('category')."),
    _hint("UnicodeDecodeError", r"", "Read the file with encoding='latin-1'."),
    _hint("ParserError", r"tokenizing data", "The lines differ in length: give sep=..., or on_bad_lines='skip'."),
    _hint(
        "TypeError",
        r"unexpected keyword argument 'method'",
        "That argument is gone: use .ffill() or .bfill().",
    ),
    _hint("TypeError", r"unexpected keyword argument '(squared)'", "It is gone: take the root, mse ** 0.5."),
    _hint(
        "TypeError", r"unexpected keyword argument", "That argument does not exist in this version: leave it out."
    ),
    _hint("AttributeError", r"object has no attribute 'append'", "It is gone: use pd.concat([a, b])."),
    _hint(
        "AttributeError", r"object has no attribute '(iteritems|mad|ix|applymap)'", "It is gone: items, map, loc."
    ),
    _hint("NameError", r"is not defined", "Nothing of this name was made so far: make it in this code first."),
    _hint("ImportError", r"cannot import name", "That name is not there: do it with NumPy, pandas or SciPy."),
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
    if name == "FileNotFoundError" and (files := _files(workspace)):
        return f"The files here are: {', '.join(map(repr, files))}."
    return advice(error)


def advice(error: str, line: str = "") -> str:
    """Give what the table of hints and the customs of import say to an error, or "".

    Where the line of code that failed takes one column, that one is named; all other words are ours.
    """
    told = _general_advice(error)
    columns = set(_COLUMN.findall(line))
    return told.replace("df[column]", columns.pop()) if len(columns) == 1 else told


def _general_advice(error: str) -> str:
    if needed := import_for(error):
        return f"Its import is missing: {needed}"
    name, _, message = error.partition(": ")
    return next((one.advice for one in HINTS if one.error.fullmatch(name) and one.message.search(message)), "")


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
