"""Whether the values that an answer names were computed: small models make them up where an output has none."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nbagent.answer_form import named_values

_NO_VALUE = re.compile(r"[\s\"'$]*(nan|nat|none|<na>|[-+]?inf)[\s\"'%]*", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]*\w)")
_THOUSANDS = re.compile(r"(?<![\w.,])[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)")
#: One number or a list of them, and no date.
_ONLY_NUMBERS = re.compile(r"(?!.*\d-\d)[-+\d.,eE%$\s\[\]()]*\d[-+\d.,eE%$\s\[\]()]*", re.DOTALL)
#: Shares are printed as such and asked for in per cent, or the other way round.
_SCALES = (1, 100, 0.01)


def numbers(text: str) -> set[float]:
    """Give the numbers of a text, also those with commas between thousands; inside of words are none."""
    found = {float(number) for number in _NUMBER.findall(text)}
    return found | {float(number.replace(",", "")) for number in _THOUSANDS.findall(text)}


def no_value(task: str, shown: str) -> str:
    """Give what an output has in the place of a value that the task asks for: `nan`, `None`, or ""."""
    asked = named_values(task)
    found = (_NO_VALUE.fullmatch(value) for name, value in named_values(shown).items() if name in asked)
    return next((one[1] for one in found if one), "")


def not_among(task: str, answer: str, shown: Iterable[float]) -> list[str]:
    """Give the numbers in the named values of an answer that are none of those shown, also when they are rounded.

    A number that stands in the task is no finding of the model's.
    """
    known = {*shown, *numbers(task)}
    asked = named_values(task)
    given = (value for name, value in named_values(answer).items() if name in asked)
    said = (found for value in given if _ONLY_NUMBERS.fullmatch(value) for found in _NUMBER.findall(value))
    return [one for one in dict.fromkeys(said) if not any(_rounds_to(number, one) for number in known)]


def _rounds_to(number: float, said: str) -> bool:
    places = 0 if "e" in said.lower() else len(said.partition(".")[2])
    near = max(10.0**-places, 1e-9 * abs(number))  # one of the last place: it may have been cut off there
    return any(abs(number * scale - float(said)) < near for scale in _SCALES)
