"""What a column of a text table holds, told by its values, and what `pd.read_csv` has to be told to read it so.

Numbers written as text are the trap of data work: "5,350,380" or "4.2 %" becomes a missing value, or text, in
silence. Dates as text are compared as words. All of it is seen here before any code runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

VALUE_CHARACTERS = 24
#: From this share of numbers on, a column of text is told to hold them: it has to be converted with care.
MIXED = 0.2
#: What pandas itself reads as missing: https://pandas.pydata.org/docs/reference/api/pandas.read_csv.html
MISSING = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"} | {
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null")
}
#: Words for a missing value that pandas takes for text; any mark without a letter or a digit is one, too.
_PLACEHOLDER = re.compile(r"[^\w\s]+|undefined|missing|unknown|not available|none|na|nil", re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_AMOUNT = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_SIGNED = re.compile(rf"[-+]?[$€£¥]\s?{_AMOUNT}|[-+]?{_AMOUNT}\s?[%$€£¥]")
_UNIT = re.compile(r"[-+]?\d+(?:\.\d+)?\s?([A-Za-z]{1,6})")
_NUMBER_AND_MORE = re.compile(r"[-+]?\d+(?:\.\d+)?(?![-–\s,.:/]*\d)\D.*")
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_CLOCK = r"(?: +\d{1,2}:\d{2}.*)?"
_DATES = (
    re.compile(r"\d{4}[-/.](?:0?\d|1[0-2])[-/.]\d{1,2}(?:[ T]\d{1,2}:\d{2}.*)?"),
    re.compile(rf"\d{{1,2}}([-/.])\d{{1,2}}\1(?:\d\d|[12]\d{{3}}){_CLOCK}"),
    re.compile(rf"\d{{1,2}}[- ]{_MONTH}[-, ]+\d{{2,4}}{_CLOCK}", re.IGNORECASE),
    re.compile(rf"{_MONTH}\.? +\d{{1,2}},? +\d{{4}}{_CLOCK}", re.IGNORECASE),
)
_TIME = re.compile(r"\d{1,3}:[0-5]\d:[0-5]\d(?:\.\d+)?")
_DAY_FIRST = re.compile(r"(?:1[3-9]|2\d|3[01])[-/.]\d")
TAKE_NUMBER = r".astype(str).str.extract(r'(-?\d+\.?\d*(?:e-?\d+)?)')[0].astype(float)"
TAKE_COMMAS_OUT = ".astype(str).str.replace(',', '').astype(float)"
TAKE_DECIMAL_COMMA = ".astype(str).str.replace(',', '.').astype(float)"
TAKE_SIGN_OFF = r".astype(str).str.replace(r'[$€£¥%,\s]', '', regex=True).astype(float)"


@dataclass(frozen=True, slots=True)
class Column:
    """What a column holds, in words, and what reads it right."""

    told: str
    thousands: bool = False
    decimal_comma: bool = False
    placeholder: str = ""  #: stands for a missing value among numbers
    take: str = ""  #: what makes numbers of a series of its texts


def column(values: Sequence[str]) -> Column:
    """Tell what these values, trimmed, are."""
    present = [value for value in values if value not in MISSING]
    gaps = len(values) - len(present)
    missing = f", {gaps} missing" if gaps else ""
    others = [value for value in present if not is_number(value)]
    if not others:  # a small model takes the examples of numbers for results
        return Column(f"{'number' if present else 'empty'}{missing}")
    numbers = len(present) - len(others)
    distinct = list(dict.fromkeys(others))
    if numbers >= len(others) and len(distinct) == 1 and _PLACEHOLDER.fullmatch(distinct[0]):
        gaps += len(others)
        return Column(f"number, {gaps} missing ({distinct[0]!r} or empty)", placeholder=distinct[0])
    examples = f", e.g. {', '.join(_clip(value) for value in distinct[:3])}"
    if _all(_THOUSANDS, others):
        return Column(
            f"number with commas between thousands{missing}{examples}", thousands=True, take=TAKE_COMMAS_OUT
        )
    if _all(_DECIMAL_COMMA, others):
        return Column(
            f"number with a decimal comma{missing}{examples}", decimal_comma=True, take=TAKE_DECIMAL_COMMA
        )
    mixed = numbers > len(present) * MIXED
    counted = f", {numbers} of {len(present)} are numbers, the others" if mixed else ""
    kind, take = _kind(others, mixed=mixed)
    return Column(f"{kind}{missing}{counted}{examples}", take=take)


def _kind(others: Sequence[str], *, mixed: bool) -> tuple[str, str]:
    """Say what texts are, with the way to numbers, and what makes numbers of them."""
    if any(_all(pattern, others) for pattern in _DATES):
        day_first = ", dayfirst=True" if any(_DAY_FIRST.match(value) for value in others) else ""
        return f"date as text (pd.to_datetime(df[column]{day_first}))", ""
    if _all(_TIME, others):
        return "time as text (pd.to_timedelta(df[column]), then .dt.total_seconds())", ""
    if _all(_SIGNED, others):
        return f"number with a sign (take it off: df[column]{TAKE_SIGN_OFF})", TAKE_SIGN_OFF
    units = {found[1] for value in others if (found := _UNIT.fullmatch(value))}
    if (len(units) == 1 and _all(_UNIT, others)) or (mixed and _all(_NUMBER_AND_MORE, others)):
        return f"text that begins with a number (take it out: df[column]{TAKE_NUMBER})", TAKE_NUMBER
    return "text", ""


def _all(pattern: re.Pattern[str], values: Sequence[str]) -> bool:
    return all(map(pattern.fullmatch, values))


def is_number(value: str) -> bool:
    """Whether Python reads a number there."""
    try:
        float(value)
    except ValueError:
        return False
    return True


def _clip(value: str) -> str:
    value = " ".join(value.split())  # no line of its own
    return value if len(value) <= VALUE_CHARACTERS else value[: VALUE_CHARACTERS - 1] + "…"
