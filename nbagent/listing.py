"""Plain-text listings that the magic and the command line share, and pulling weights with a progress line."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbagent.errors import WeightsError
from nbagent.models import weights
from nbagent.models.weights_catalogue import Progress, in_units
from nbagent.options import Option
from nbagent.session_store import SessionSummary
from nbagent.settings import Resolved, Settings
from nbagent.tools.breaker import Breakers
from nbagent.tools.permission import Permission
from nbagent.tools.quota import Quotas
from nbagent.tools.registry import Offered, Registry

PAGE = 100  #: characters of a line where nothing says how many there are, as in a notebook
#: The settings that most people change.
EVERYDAY = ("model", "base_url", "kernel", "approve", "confine", "max_steps", "max_cost", "plan", "cells", "quiet")
MODEL_SETTINGS = (
    *("model", "base_url", "api_key", "key_env"),
    *("dialect", "temperature", "max_reply_tokens", "context_window", "vision"),
)


def width() -> int:
    """Give how many characters a line may have."""
    return shutil.get_terminal_size((PAGE, 24)).columns if sys.stdout.isatty() else PAGE


def explained(rows: Iterable[tuple[str, str]]) -> str:
    """Lay out words with what they mean; a long meaning goes on below itself."""
    rows = list(rows)
    column = max((len(word) for word, _ in rows if len(word) <= 32), default=0) + 2
    lines = []
    for word, meaning in rows:
        wrapped = textwrap.wrap(meaning, max(30, width() - column), break_on_hyphens=False)
        fits = wrapped and len(word) + 2 <= column
        lines.append(word.ljust(column) + wrapped.pop(0) if fits else word)
        lines += [" " * column + line for line in wrapped]
    return "\n".join(lines)


def options_table(shown: Iterable[Option]) -> str:
    """Explain options, with the values that they may have."""
    rows = []
    for option in shown:
        choices = f" ({' | '.join(option.choices)})" if len(option.choices) > 1 else ""
        rows.append((f"  {option.flag}", option.help + choices))
    return explained(rows)


def settings_table(resolved: Resolved, names: Sequence[str] = tuple(Settings.model_fields)) -> str:
    """List settings: first what was set, with where that was, then what is so by default. A key is not shown."""
    given = [name for name in names if resolved.origins.get(name, "default") != "default"]
    lines = [f"{name:22} {_value(resolved, name):28} {resolved.origins[name]}" for name in given]
    rest = [f"{name:22} {_value(resolved, name)}" for name in names if name not in given]
    half = (len(rest) + 1) // 2
    if width() >= 2 * 44:
        rest = [f"{left:44}{right}" for left, right in zip(rest, [*rest[half:], ""], strict=False)][:half]
    return "\n".join([*lines, *(["", "By default:"] if lines and rest else []), *(line.rstrip() for line in rest)])


def _value(resolved: Resolved, name: str) -> str:
    value = getattr(resolved.settings, name)
    if name == "api_key":
        secret = value.get_secret_value()
        value = f"…{secret[-4:]}" if len(secret) > 8 else "set" if secret else ""
    if isinstance(value, tuple):
        value = ", ".join(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "–" if value in (None, "") else f"{value:g}" if isinstance(value, float) else str(value)


def sessions_table(summaries: Sequence[SessionSummary]) -> str:
    """List sessions, newest first, a line each."""
    if not summaries:
        return "No sessions yet."
    lines = []
    for summary in summaries:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.started))
        task = " ".join(summary.task.split())
        ending = summary.reason or ("unfinished" if summary.runs else "no run")
        line = f"{summary.id}  {when}  {ending:13}  "
        room = max(20, width() - len(line))
        lines.append(f"{line}{task if len(task) <= room else task[: room - 1] + '…'}".rstrip())
    return "\n".join(lines)


def weights_table() -> str:
    """List the embedded models and whether they are here."""
    rows = []
    for entry in weights.list_weights():
        try:
            found = weights.find(entry.name)
            state = f"here: {_short(found)}" if found else "not here: nbagent model pull " + entry.name
        except WeightsError as error:
            state = str(error)
        default = " (default)" if entry.name == weights.default_name() else ""
        rows.append((f"local:{entry.name}{default}", f"{in_units(entry.size)}, {entry.license}", state))
    return _table(rows)


def _short(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows in columns; the last one may be of any length."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(wide) for cell, wide in zip(row, widths, strict=False)), row[-1]]) for row in rows
    )


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
    return _table(rows)


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
