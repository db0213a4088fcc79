"""`%agent tools` and `nbagent tools`: where each tool is from, its risk, and whether it can be used now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nbagent
from nbagent.cli import main
from nbagent.listing import tools_table
from nbagent.settings import resolve
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
