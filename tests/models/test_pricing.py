"""Prices belong to a model at a host, have a date, and are never guessed."""

from __future__ import annotations

import datetime

import pytest

from nbagent.errors import SettingsError
from nbagent.events import Usage
from nbagent.models.choose import choose_model
from nbagent.models.pricing import FREE, Price, checked, dollars, price_of
from nbagent.settings import resolve

OPENAI = "https://api.openai.com/v1"


def test_cached_tokens_cost_less_and_reasoning_is_part_of_what_comes_out() -> None:
    price = price_of("gpt-5-mini", OPENAI)
    assert price is not None
    usage = Usage(
        prompt_tokens=1_000_000, cached_tokens=800_000, completion_tokens=100_000, reasoning_tokens=90_000
    )
    assert price.of(usage) == pytest.approx(0.2 * 0.25 + 0.8 * 0.025 + 0.1 * 2)


def test_long_requests_have_their_own_price() -> None:
    price = Price(2, 0.2, 10, 1000, (4, 0.4, 20))
    assert price.of(Usage(prompt_tokens=1000)) == pytest.approx(0.002)
    assert price.of(Usage(prompt_tokens=1001)) == pytest.approx(0.004004)


def test_a_snapshot_costs_what_its_name_says_unless_it_has_a_price_of_its_own() -> None:
    assert price_of("gpt-4o-mini-2024-07-18", OPENAI) == price_of("gpt-4o-mini", OPENAI)
    assert price_of("claude-haiku-4-5-20251001", "https://api.anthropic.com/v1/") == Price(1, 0.1, 5)
    assert price_of("gpt-4o-2024-05-13", OPENAI) != price_of("gpt-4o", OPENAI)


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("gpt-5-mini", "https://reseller.example/v1"),
        ("gpt-5-mini", "http://127.0.0.1:4000/v1"),
        ("gpt-5-mini-turbo", OPENAI),
        ("gpt-5", "https://api.openai.com.evil.example/v1"),
    ],
)
def test_what_is_not_in_the_table_has_no_price(model: str, base_url: str) -> None:
    assert price_of(model, base_url) is None


def test_the_table_is_dated() -> None:
    assert datetime.date.fromisoformat(checked()) >= datetime.date(2026, 1, 1)


def test_sums_have_a_cost_only_where_every_part_has_one() -> None:
    known = Usage(prompt_tokens=1, cost=0.5)
    assert (known + known).cost == 1.0
    assert (known + Usage()).cost == 0.5
    assert (known + Usage(prompt_tokens=1)).cost is None
    assert (Usage() + Usage()).cost is None
    assert FREE.of(Usage(prompt_tokens=1000)) == 0


def test_amounts_are_written_for_people() -> None:
    said = [dollars(amount) for amount in (0, 0.00001, 0.00042, 0.0123, 0.1, 1.5, 1234.5)]
    assert said == ["$0", "under $0.0001", "$0.00042", "$0.012", "$0.10", "$1.50", "$1,234.50"]


async def test_a_limit_of_money_without_a_price_is_refused_in_a_line_that_says_how_to_give_one() -> None:
    settings = resolve({"model": "m", "base_url": "http://127.0.0.1:9/v1", "max_cost": 1}, {}).settings
    with pytest.raises(SettingsError, match=r"--price INPUT,OUTPUT.*--max-tokens"):
        await choose_model(settings)
    choice = await choose_model(settings.model_copy(update={"price": "1,0.5,2"}))
    assert choice.price == Price(1, 0.5, 2)
    await choice.model.close()
