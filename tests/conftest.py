"""What every test shares: a clean environment and no network but loopback."""

from __future__ import annotations

import itertools
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The fast suite tries the same examples every time, and no clock decides: what it finds holds on any machine.
# `--hypothesis-profile=explore` looks for more.
settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=list(HealthCheck))
settings.load_profile("same")

# No key, no proxy and no setting of the developer's reaches a test.
for _name in list(os.environ):
    ours = _name.startswith(("NBAGENT_", "OPENAI_")) and _name != "NBAGENT_WEIGHTS"
    if ours or _name.upper() in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        del os.environ[_name]

# The processes that tests start, dozens of them, share what one has compiled.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Nor do they load what nothing here needs (see there).
_WITHOUT = str(Path(__file__).parent / "without")
sys.path.insert(0, _WITHOUT)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_WITHOUT, os.environ.get("PYTHONPATH", ""))))

_HOMES = itertools.count()


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A folder whose tests are all deselected is not even imported."""
    name = collection_path.name
    deselected = name in ("browser", "local") and f"not {name}" in str(config.option.markexpr)
    return True if deselected and collection_path.parent == Path(__file__).parent else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Sessions go to a scratch folder of the test's own, made when something is kept there."""
    # No fixture: thousands run, and most keep nothing.
    base = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    os.environ["NBAGENT_HOME"] = str(base / f"home-{next(_HOMES)}")


@pytest.fixture(autouse=True, scope="session")
def only_loopback() -> Iterator[None]:
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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield
