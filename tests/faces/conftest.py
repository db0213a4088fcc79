"""One kernel of a user's and one server for all tests that load the magics in it: what they leave there goes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faces.notebook import Cells, kernel
from tests.scripted_server import ScriptedServer

#: `%reset` collects garbage again and again: what the imports made need not be gone through each time.
_LEAVE = """%unload_ext nbagent
import gc, sys
for name in ("last_type", "last_value", "last_traceback"): vars(sys).pop(name, None)
gc.freeze()
%reset -f"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the notebook lies."""
    made = tmp_path_factory.mktemp("magic") / "notebooks"
    made.mkdir()
    return made


@pytest.fixture(scope="session")
def notebook(folder: Path) -> Iterator[tuple[Cells, ScriptedServer]]:
    """Give the kernel and the server, which is the one that the kernel's environment names."""
    with ScriptedServer() as server:
        environment = {
            "NBAGENT_BASE_URL": server.base_url,
            "NBAGENT_MODEL": "stub",
            "NBAGENT_CACHE": str(folder.parent),
        }
        with kernel(folder, environment) as made:
            yield made, server


@pytest.fixture
def server(notebook: tuple[Cells, ScriptedServer]) -> ScriptedServer:
    """Give the server with an empty script."""
    notebook[1].begin_again()
    return notebook[1]


@pytest.fixture
def cells(notebook: tuple[Cells, ScriptedServer]) -> Iterator[Cells]:
    """The magics just loaded in a kernel without variables and cells; sessions and records are the test's own."""
    made = notebook[0]
    made.run(f"import os; os.environ['NBAGENT_HOME'] = {os.environ['NBAGENT_HOME']!r}; del os\n%load_ext nbagent")
    yield made
    made.run(_LEAVE)
    assert made.status == "ok"
