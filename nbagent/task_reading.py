"""What can be read off a task without a model: the kind of work that it asks for, and its language.

Both only choose among fixed words that the model is sent; neither changes what it may do.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

Approach = Literal["debugging", "plotting", "modelling", "exploring"]

#: Characters of a task that are looked at: what follows is mostly pasted.
LONGEST_READ = 4000
_WITHOUT_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@cache
def _patterns() -> dict[Approach, re.Pattern[str]]:
    """Read the words of `prompts/approaches.toml`, the kinds of work in the order of `Approach`."""
    signs = tomllib.loads(files("nbagent").joinpath("prompts", "approaches.toml").read_text(encoding="utf-8"))
    return {approach: _pattern(" ".join(signs[approach].values())) for approach in get_args(Approach)}


def _pattern(signs: str) -> re.Pattern[str]:
    parts = [re.escape(sign) if _WITHOUT_SPACES.match(sign) else rf"\b{re.escape(sign)}" for sign in signs.split()]
    return re.compile("|".join(parts), re.IGNORECASE)


#: Code and quoted names say what the task is about, not what it asks for.
_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|[\w/\\.-]{1,200}\.(?:csv|tsv|json|parquet|xlsx?|py|ipynb)\b", re.DOTALL
)


def approach_of(task: str) -> Approach | None:
    """Name the kind of work that most of the task's words speak for; the first named where they are even."""
    words = _QUOTED.sub(" ", task[:LONGEST_READ])
    counts = {
        approach: len({found.casefold() for found in pattern.findall(words)})
        for approach, pattern in _patterns().items()
    }
    best: Approach = max(get_args(Approach), key=lambda approach: counts[approach])
    return best if counts[best] else None


#: Scripts that stand for one language, by the first word of a letter's Unicode name.
_LANGUAGES = {
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "HANGUL": "Korean",
    "CJK": "Chinese",
    "GREEK": "Greek",
    "HEBREW": "Hebrew",
    "THAI": "Thai",
}
#: A character of these scripts says as much as several letters.
_DENSE = {"HIRAGANA": 2, "KATAKANA": 2, "HANGUL": 2, "CJK": 3}
SAME_LANGUAGE = "the language of the task"


def language_of(task: str) -> str:
    """Name the task's language where its script tells it from those in Latin letters; else "".

    English prompts pull a model towards English: such a task is worth a word on its language.
    """
    scripts = Counter(
        unicodedata.name(letter, "").partition(" ")[0].partition("-")[0]
        for letter in _QUOTED.sub(" ", task[:LONGEST_READ])
        if letter.isalpha()
    )
    latin = scripts.pop("LATIN", 0)
    if sum(count * _DENSE.get(script, 1) for script, count in scripts.items()) <= latin:
        return ""
    if scripts["HIRAGANA"] + scripts["KATAKANA"]:
        return "Japanese"
    return _LANGUAGES.get(scripts.most_common(1)[0][0], SAME_LANGUAGE)
