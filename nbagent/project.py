"""Settings that a project brings along, and which of its files the user trusts.

A project's files may come from a stranger. What `pyproject.toml` says under `[tool.nbagent]` counts as far as it
is harmless; base URL, key, approval, confinement, interpreter and the like wait until the user has read that
content and said yes to it (`nbagent trust`). Another content is another question.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbagent.errors import SettingsError, StoreError
from nbagent.settings import PROJECT, Resolved, Settings, resolve
from nbagent.stores.files import default_home

SETTINGS_FILE = "pyproject.toml"
SERVERS_FILE = ".mcp.json"
RECORD = "trusted.json"
#: A file longer than this is no file of settings.
LONGEST_FILE = 1_000_000

#: What counts without trust: it neither sends data elsewhere, nor starts anything, nor takes a guard away.
HARMLESS = frozenset(
    {"model", "dialect", "temperature", "max_reply_tokens", "context_window", "cells", "toolset"}
    | {"allow_tools", "deny_tools", "max_steps", "max_seconds", "max_tokens", "max_cost", "cell_timeout"}
    | {"startup_timeout", "first_token_timeout", "stream_timeout", "max_retry_seconds"}
    | {"observation_characters", "output_characters", "vision", "image_pixels"}
)
#: Values that are never shown.
_SECRET = frozenset({"api_key"})


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """One file of a project with the part of its content that concerns nbagent."""

    path: Path
    content: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """What a yes is tied to: the rest of a `pyproject.toml` may change without a new question."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def asks(self) -> list[str]:
        """What needs the user's trust, a line each."""
        if self.path.name == SERVERS_FILE:
            return [f"start {name}: {_started(server)}" for name, server in self._servers()]
        return [
            f"{name} = {'…' if name in _SECRET else json.dumps(value, default=str, ensure_ascii=False)}"
            for name, value in self.content.items()
            if name not in HARMLESS
        ]

    def _servers(self) -> list[tuple[str, Any]]:
        servers = self.content.get("mcpServers")
        return list(servers.items()) if isinstance(servers, dict) else []


class Trust:
    """What the user trusts: files by path, each with the content that they said yes to."""

    def __init__(self, home: Path) -> None:
        self._file = home / RECORD

    def holds(self, file: ProjectFile) -> bool:
        """Whether the user trusts this very content."""
        return self.known().get(str(file.path)) == file.digest

    def known(self) -> dict[str, str]:
        """Give the digests by path. A record that cannot be read trusts nothing."""
        try:
            record = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(record, dict):
            return {}
        return {path: digest for path, digest in record.items() if isinstance(digest, str)}

    def add(self, file: ProjectFile) -> None:
        """Trust this content from now on. Raises `StoreError`."""
        self._write({**self.known(), str(file.path): file.digest})

    def remove(self, path: Path) -> bool:
        """Trust that file no longer; say whether it was trusted. Raises `StoreError`."""
        known = self.known()
        was_there = known.pop(str(path), None) is not None
        if was_there:
            self._write(known)
        return was_there

    def _write(self, record: Mapping[str, str]) -> None:
        new = self._file.with_name(f"{RECORD}.{os.getpid()}.new")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
            new.replace(self._file)
        except OSError as error:
            raise StoreError(f"what you trust cannot be written to {self._file}: {error.strerror}") from None


def files_of(folder: Path) -> Iterator[ProjectFile]:
    """Give the project's files that concern nbagent: the nearest of each kind, up to the repository's root.

    Raises:
        SettingsError: one names nbagent and cannot be read.
    """
    found: set[str] = set()
    for place in _upwards(folder):
        for name in (SETTINGS_FILE, SERVERS_FILE):
            if name not in found and (file := _read(place / name)) is not None:
                found.add(name)
                yield file


def resolve_here(
    options: Mapping[str, Any], environment: Mapping[str, str], config: Mapping[str, Any] | None = None
) -> Resolved:
    """Merge all sources, the project's file of the working folder last; its notes say what waits for trust.

    Raises:
        SettingsError: as `nbagent.settings.resolve`; or the project's file cannot be read.
    """
    resolved = resolve(options, environment, config)
    try:
        folder = Path(resolved.settings.folder or ".").expanduser().resolve()
    except OSError:
        return resolved  # whoever works there says so
    file = next((file for file in files_of(folder) if file.path.name == SETTINGS_FILE), None)
    if file is None or not file.content:
        return resolved
    trusted = Trust(default_home(environment)).holds(file)
    at_once = HARMLESS | (file.content.keys() - Settings.model_fields)  # what is no setting is told at once
    values = {name: value for name, value in file.content.items() if trusted or name in at_once}
    waiting = [name for name in file.content if name not in values]
    note = f"{file.path} also sets {', '.join(waiting)}: not applied until you trust it (`nbagent trust`)."
    return resolve(
        options,
        environment,
        config,
        project=values,
        project_origin=f"{PROJECT} {file.path}",
        notes=(note,) if waiting else (),
    )


def _upwards(folder: Path) -> Iterator[Path]:
    """Give the folder and those above it, up to the repository's root; never the home folder or above."""
    try:
        home = Path.home()
    except RuntimeError:  # there is none
        home = Path(folder.anchor)
    for place in (folder, *folder.parents):
        if place == home or place in home.parents:
            return
        yield place
        if (place / ".git").exists():
            return


def _read(path: Path) -> ProjectFile | None:
    """Read a file; None where it is not there or says nothing to nbagent."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LONGEST_FILE:  # a pipe would be waited for
            return None
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if path.name == SERVERS_FILE:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return ProjectFile(path, content) if isinstance(content, dict) else None
    if "nbagent" not in text:
        return None
    try:
        table = tomllib.loads(text).get("tool", {}).get("nbagent")
    except (tomllib.TOMLDecodeError, RecursionError, AttributeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: tool.nbagent is no table of settings: write [tool.nbagent]")
    return ProjectFile(path, table)


def _started(server: Any) -> str:
    if not isinstance(server, dict):
        return json.dumps(server, default=str)
    if "url" in server:
        return str(server["url"])
    words = [server.get("command", ""), *(server.get("args") or [])]
    return " ".join(map(str, words))
