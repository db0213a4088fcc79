"""One JupyterLab for all browser tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running JupyterLab with an empty folder of notebooks."""
    running = Lab(tmp_path_factory.mktemp("lab"))
    yield running
    running.close()


@pytest.fixture
def name(request: pytest.FixtureRequest, lab: Lab) -> Path:
    """A notebook name of the test's own."""
    return Path(f"{request.node.name}.ipynb")
