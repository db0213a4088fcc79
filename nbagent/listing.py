"""Plain-text listings that the magic and the command line share, and pulling weights with a progress line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbagent.errors import WeightsError
from nbagent.models import weights
from nbagent.models.weights_catalogue import Progress, in_units
from nbagent.session_store import SessionSummary
from nbagent.settings import Settings
from nbagent.tools.breaker import Breakers
from nbagent.tools.permission import Permission
from nbagent.tools.quota import Quotas
from nbagent.tools.registry import Offered, Registry


def sessions_table(summaries: Sequence[SessionSummary]) -> str:
    """List sessions, newest first, a line each."""
    if not summaries:
        return "No sessions yet."
    lines = []
    for summary in summaries:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.started))
        task = " ".join(summary.task.split())
        task = task if len(task) <= 60 else task[:59] + "…"
        lines.append(
            f"{summary.id}  {when}  {summary.reason or ('unfinished' if summary.runs else 'no run'):13}  {task}"
        )
    return "\n".join(lines)


def weights_table() -> str:
    """List the embedded models and whether they are here."""
    lines = []
    for entry in weights.list_weights():
        try:
            found = weights.find(entry.name)
            state = f"here: {found}" if found else "not here: nbagent model pull " + entry.name
        except WeightsError as error:
            state = str(error)
        default = " (default)" if entry.name == weights.default_name() else ""
        size = in_units(entry.size)
        lines.append(f"local:{entry.name}{default}  {size}, {entry.license}  {state}")
    return "\n".join(lines)


def tools_table(registry: Registry, settings: Settings, kept: Mapping[type[Any], Any]) -> str:
    """List tools, a line each; `kept` is what the session keeps for them, e.g. breakers."""
    permission = Permission(settings.allow_tools, settings.deny_tools)
    offered = kept.get(Offered, Offered())
    breakers, quotas = kept.get(Breakers, Breakers()), kept.get(Quotas, Quotas())
    rows = [("TOOL", "FROM", "RISK", "STATE")]
    for entry in registry.entries():
        tool = entry.tool
        if tool is None or entry.fault:
            rows.append((entry.name, entry.origin, "", f"not usable: {entry.fault}"))
            continue
        state = (
            permission.of_tool(tool)
            or offered.state(tool.name)
            or breakers.state(tool.name, tool)
            or quotas.state(tool)
            or "ready"
        )
        rows.append((entry.name, entry.origin, tool.traits.risk or "call by call", state))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    )


def pull_weights(name: str | None, say: Callable[[str], None]) -> None:
    """Download and check the weights of `name` (the default ones without), telling how it goes.

    Raises:
        WeightsError: they cannot be had; the message says what to do.
    """
    name = name or weights.default_name()
    path = weights.pull(name, progress=_ProgressLine(say))
    say(f"Ready: {path}")


class _ProgressLine:
    """One line that is written over on a terminal; elsewhere a line each tenth."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._shown = -1
        self._rewrites = sys.stdout.isatty()

    def __call__(self, progress: Progress) -> None:
        if progress.message:
            self._say(progress.message)
        if not progress.total:
            return
        percent = int(100 * progress.done / progress.total)
        step = 1 if self._rewrites else 10
        if percent // step == self._shown // step and self._shown >= 0:
            return
        self._shown = percent
        done, total = in_units(progress.done), in_units(progress.total)
        if self._rewrites:
            sys.stdout.write(f"\r  {percent:3d} %  {done} of {total}   " + ("\n" if percent == 100 else ""))
            sys.stdout.flush()
        else:
            self._say(f"  {percent} %  {done} of {total}")
