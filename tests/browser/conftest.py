"""One JupyterLab for all browser tests; each test has its own notebook, kernel and scripted model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.browser.lab import Lab, Notebook
from tests.interpreters import PYTHONS, ipykernel_of
from tests.scripted_server import Response, ScriptedServer

#: Runs cells of a notebook whose `%%agent` gets these responses.
Start = Callable[[Sequence[str], Sequence[Response]], Notebook]


@pytest.fixture(scope="session", params=PYTHONS, ids=ipykernel_of)
def lab(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A running JupyterLab with an empty folder of notebooks, and kernels of one of the interpreters."""
    running = Lab(tmp_path_factory.mktemp("lab"), python=request.param)
    yield running
    running.close()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A scripted model on loopback."""
    with ScriptedServer() as made:
        yield made


@pytest.fixture
def start(lab: Lab, server: ScriptedServer, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Open a notebook of these cells, the magic loaded and the model scripted; cells are counted from 0."""
    opened: list[Notebook] = []
    lab.page_errors.clear()

    def open_notebook(cells: Sequence[str], responses: Sequence[Response]) -> Notebook:
        server.responses = list(responses)
        notebook = lab.notebook(f"{re.sub(r'[^a-z0-9]+', '-', request.node.name)}.ipynb", cells, server.base_url)
        opened.append(notebook)
        return notebook

    yield open_notebook
    told = list(lab.page_errors)  # JupyterLab complains of its own requests to a kernel that is shut down
    for notebook in opened:
        notebook.shut_down_kernel()
    lab.leave()  # what it complains of so late must not count as an error of the next test
    assert not told
