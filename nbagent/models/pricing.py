"""What tokens cost, where that is known: a bundled table with a date, or the user's own figures.

A price belongs to a model at a host: the same name at a reseller may cost anything. What is not in the table
has no price, and nothing is guessed from names that look alike.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from nbagent.events import Usage

MILLION = 1_000_000
#: The day of a snapshot at the end of a model's name: it costs what the name without it does.
_SNAPSHOT = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")


@dataclass(frozen=True)
class Price:
    """US dollars for a million tokens. `long` holds for requests of more than `long_from` tokens, where set."""

    input: float
    cached: float
    output: float
    long_from: int = 0
    long: tuple[float, float, float] | None = None

    def of(self, usage: Usage) -> float:
        """Give what one request cost, in dollars."""
        fresh, cached, output = self.input, self.cached, self.output
        if self.long is not None and usage.prompt_tokens > self.long_from:
            fresh, cached, output = self.long
        read_again = min(usage.cached_tokens, usage.prompt_tokens)
        dollars = (usage.prompt_tokens - read_again) * fresh + read_again * cached
        return (dollars + usage.completion_tokens * output) / MILLION


FREE = Price(0.0, 0.0, 0.0)


def price_of(model: str, base_url: str) -> Price | None:
    """Look up a model at a host. None where its price is not known."""
    models = _table()["hosts"].get(urlsplit(base_url).hostname or "", {})
    name = model.removeprefix("models/")  # as Google names them
    row = models.get(name) or models.get(_SNAPSHOT.sub("", name))
    if row is None:
        return None
    fresh, cached, output, *more = row
    if not more:
        return Price(fresh, cached, output)
    long_from, *long = more[0]
    return Price(fresh, cached, output, long_from, (long[0], long[1], long[2]))


def checked() -> str:
    """Give the day on which the table was last compared with its source, as YYYY-MM-DD."""
    return str(_table()["checked"])


def dollars(amount: float) -> str:
    """Write an amount for people: two figures that count, cents where there are dollars."""
    if amount == 0:
        return "$0"
    if amount >= 0.095:
        return f"${amount:,.2f}"
    return f"${amount:.2g}" if amount >= 0.0001 else "under $0.0001"


@cache
def _table() -> dict[str, Any]:
    text = resources.files("nbagent.models").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
