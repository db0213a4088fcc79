"""Numbers in texts: whether those of an answer stand in what was observed."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_NUMBER = re.compile(
    r"(?<![\w.])(?P<sign>[-+−]?)(?P<digits>\d{1,3}(?:[,\u202f ]\d{3}){1,6}(?!\d)|\d+)(?P<part>\.\d+)?"
    r"(?P<power>[eE][-+]?\d+)?(?P<unit>\s?(?:%|percent\b|thousand\b|million\b|billion\b|[kKM]\b))?(?![\w])"
)
_UNITS = {
    "%": 0.01,
    "percent": 0.01,
    "thousand": 1e3,
    "k": 1e3,
    "million": 1e6,
    "m": 1e6,
    "billion": 1e9,
    "bn": 1e9,
}
#: Smaller whole numbers are counted off, or number a list, rather than observed.
LEAST_TELLING = 10
#: Figures without support that are named to the model.
FIGURES_NAMED = 5


class Figure(NamedTuple):
    """A number as it stands in a text, with how exactly it is given."""

    text: str
    value: float
    exactness: float  #: half of the last digit's place
    scale: float  #: of its unit


def figures(text: str) -> Iterator[Figure]:
    """Find the numbers of a text."""
    for found in _NUMBER.finditer(text):
        digits = re.sub(r"\D", "", found["digits"])
        part, exponent = found["part"] or "", (found["power"] or "e0")[1:]
        power = int(exponent) if len(exponent) < 5 else 1000
        if len(digits) > 300 or abs(power) > 300:
            continue
        value = float(f"{digits}{part}e{power}")
        places = 10.0 ** (power - max(0, len(part) - 1))
        unit = (found["unit"] or "").strip()
        yield Figure(found[0].strip(), value, places / 2, _UNITS.get(unit.casefold(), 1.0))


def unsupported(answer: str, observed: Iterable[str]) -> list[str]:
    """Give the answer's numbers that no text holds: neither as they are, nor rounded, nor in another unit.

    Signs do not count, since a fall of 3 and a change of -3 are the same; nor do small whole numbers.
    """
    telling = [figure for figure in figures(answer) if not _is_counted_off(figure)]
    if not telling:
        return []
    seen = sorted({figure.value for text in observed for figure in _both_ways(text)})
    missing = [
        figure.text for figure in telling if not any(_near(figure, scale, seen) for scale in {1.0, figure.scale})
    ]
    return list(dict.fromkeys(missing))


def _is_counted_off(figure: Figure) -> bool:
    return figure.value < LEAST_TELLING and figure.value.is_integer() and figure.exactness == 0.5


def _near(figure: Figure, scale: float, seen: list[float]) -> bool:
    value, slack = figure.value * scale, figure.exactness * scale * 1.001 + abs(figure.value * scale) * 1e-9
    at = bisect_left(seen, value - slack)
    return at < len(seen) and seen[at] <= value + slack


def _both_ways(text: str) -> Iterator[Figure]:
    """Read `1,234` as one number and as two, for it may be a list."""
    yield from figures(text)
    yield from figures(re.sub(r"[,\u202f ]", "; ", text))
