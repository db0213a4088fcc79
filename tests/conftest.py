"""What every test shares: a clean environment and no network but loopback."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, no proxy and no setting of the developer's reaches a test; sessions go to a scratch folder."""
    for name in list(os.environ):
        if name.startswith(("NBAGENT_", "OPENAI_")) and name != "NBAGENT_WEIGHTS":
            monkeypatch.delenv(name)
        if name.upper() in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NBAGENT_HOME", str(tmp_path / "nbagent-home"))


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to anything but this machine fails the test."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and str(address[0]) not in (
            "127.0.0.1",
            "::1",
            "localhost",
        ):
            raise AssertionError(f"a test tried to reach {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
