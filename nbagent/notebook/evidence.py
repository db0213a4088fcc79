"""Which cells' outputs an answer rests on: those that show its figures, else its words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nbagent.steps import Step
from nbagent.tools.findings import words

#: Characters of a step's output that are searched: its end, where results stand.
LONGEST_TEXT = 100_000
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(r"[^\W\d_][\w'-]{2,}")
#: Words that say nothing about where an answer comes from.
_COMMON = words("the and for are was were with that this from has have not its all each per answer value")


def supporting(answer: str, task: str, steps: Sequence[Step]) -> list[Step]:
    """Give the fewest steps whose outputs show what the answer says that the task did not; later ones first.

    Figures that no output shows are looked for in what the model was told of the variables that a step changed.
    Without an answer, or where nothing shows any of it, that is the last step with an output.
    """
    shown = [_text(step)[-LONGEST_TEXT:] for step in steps]
    figures, said = _figures(answer) - _figures(task), _words(answer) - _words(task)
    by_output = [_shown_figures(text, figures) for text in shown]
    left = figures.difference(*by_output)
    told = [_shown_figures(step.observed[-LONGEST_TEXT:], left) for step in steps]
    chosen = _cover(by_output) + _cover(told) or _cover([_shown_words(text, said) for text in shown])
    if chosen:
        return [steps[index] for index in dict.fromkeys(chosen)]
    with_output = [step for step, text in zip(steps, shown, strict=True) if text.strip()]
    return (with_output or list(steps))[-1:]


def _cover(found: Sequence[set[Any]]) -> list[int]:
    """Choose few sets that hold all that any holds; of equally good ones the last."""
    left: set[Any] = set().union(*found)
    chosen = []
    while left:
        best = max(range(len(found)), key=lambda index: (len(found[index] & left), index))
        chosen.append(best)
        left -= found[best]
    return chosen


def _text(step: Step) -> str:
    parts = []
    for output in step.outputs:
        data = output.get("data")
        given = [output.get("text", "")] if not isinstance(data, dict) else [data.get("text/plain", "")]
        parts += ["".join(map(str, value)) if isinstance(value, list) else str(value) for value in given]
    return "\n".join(parts)


def _figures(text: str) -> set[str]:
    return {found.replace(",", "") for found in _NUMBER.findall(text)}


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)} - _COMMON


def _shown_figures(text: str, wanted: set[str]) -> set[str]:
    there = _figures(text) if wanted else set()
    return {figure for figure in wanted if any(_rounds_to(other, figure) for other in there)}


def _shown_words(text: str, wanted: set[str]) -> set[str]:
    return wanted & _words(text) if wanted else set()


def _rounds_to(exact: str, rounded: str) -> bool:
    """Whether a figure is another one with fewer decimals, or as a percentage of it."""
    decimals = len(rounded.partition(".")[2])
    try:
        value, wanted = float(exact), float(rounded)
    except ValueError:
        return False
    return any(abs(round(candidate, decimals) - wanted) < 1e-9 for candidate in (value, 100 * value))
