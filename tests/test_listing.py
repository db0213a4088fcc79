"""`%agent tools` and `nbagent tools`: where each tool is from, its risk, and whether it can be used now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nbagent
from nbagent.cli import main
from nbagent.listing import explained, settings_table, tools_table
from nbagent.settings import Settings, resolve
from nbagent.tools.breaker import BreakerLimits, Breakers
from nbagent.tools.built_in import built_in
from nbagent.tools.definition import FunctionTool
from nbagent.tools.quota import Quotas
from nbagent.tools.registry import Offered, Registry, unregister
from nbagent.tools.sharing import Sharing


@pytest.fixture
def fetch() -> Iterator[FunctionTool]:
    @nbagent.tool(risk="network", quota=2, tags=["web"])
    def fetch(url: str) -> str:
        """Fetch a page."""
        return url

    yield fetch
    unregister("fetch")


def line(kept: dict[type[Any], Any], **settings: Any) -> str:
    registry, chosen = Registry(built_in(Path.cwd(), Sharing())), resolve(settings, {}).settings
    (found,) = [line for line in tools_table(registry, chosen, kept).splitlines() if line.startswith("fetch ")]
    return " ".join(found.split())


def test_a_tool_is_listed_with_its_state(fetch: FunctionTool) -> None:
    assert line({}) == "fetch session network ready, 2 of 2 calls left"
    assert line({}, deny_tools="tag:web") == "fetch session network denied by setting (deny_tools=tag:web)"
    quotas = Quotas({"fetch": 2})
    assert line({Quotas: quotas}) == "fetch session network quota of 2 calls used up"
    breakers, now = Breakers(), [0.0]
    breaker = breakers.of("fetch", fetch, BreakerLimits(faults=1, cooldown=30), lambda: now[0])
    ticket = breaker.begin()
    assert ticket is not None
    breaker.end(ticket, fault=True)
    now[0] = 12.0
    assert line({Breakers: breakers}) == (
        "fetch session network breaker open: 1 fault in a row; it may be tried again in 18 s"
    )
    offered = Offered(frozenset({"run_code"}), "dialect fenced")
    assert line({Offered: offered}) == "fetch session network not offered to this model (dialect fenced)"
    now[0] = 30.0
    assert line({Breakers: breakers}) == "fetch session network ready, 2 of 2 calls left"


def test_the_command_line_lists_what_the_settings_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBAGENT_ALLOW_TOOLS", "run_code, risk:read")
    listed = CliRunner().invoke(main, ["tools"])
    assert listed.exit_code == 0
    lines = {words[0]: " ".join(words) for words in map(str.split, listed.output.splitlines())}
    assert lines["run_code"] == "run_code built in call by call ready"
    assert lines["read_file"] == "read_file built in read ready"
    monkeypatch.setenv("NBAGENT_ALLOW_TOOLS", "run_code")
    listed = CliRunner().invoke(main, ["tools"])
    assert "denied by setting (allow_tools=run_code)" in listed.output


def test_settings_that_were_set_stand_first_and_say_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbagent.listing.width", lambda: 60)
    given = resolve({"deny_tools": "a, b"}, {"NBAGENT_MAX_COST": "0.5", "NBAGENT_PLAN": "yes"})
    lines = [line.split(maxsplit=2) for line in settings_table(given).splitlines()]
    assert sorted(lines[:3]) == [
        ["deny_tools", "a,", "b                         option"],
        ["max_cost", "0.5", "environment NBAGENT_MAX_COST"],
        ["plan", "on", "environment NBAGENT_PLAN"],
    ]
    assert {words[0]: words[1] for words in lines[5:]}["temperature"] == "–"
    assert {words[0] for words in [*lines[:3], *lines[5:]]} == set(Settings.model_fields)


def test_two_columns_where_there_is_room_lose_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbagent.listing.width", lambda: 100)
    words = settings_table(resolve({}, {})).split()
    assert [name for name in Settings.model_fields if name not in words] == []
    assert max(map(len, settings_table(resolve({}, {})).splitlines())) <= 100


def test_what_explains_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbagent.listing.width", lambda: 40)
    rows = [
        ("word", "it means this and more than a line holds"),
        ("a" * 33, "of any length"),
        ("none", ""),
    ]
    assert explained(rows).splitlines() == [
        "word  it means this and more than a line",
        "      holds",
        "a" * 33,
        "      of any length",
        "none",
    ]
