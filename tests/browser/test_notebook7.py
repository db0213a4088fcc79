"""Notebook 7 shows a run, stops and approves it, and acts on it afterwards, as JupyterLab does."""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.scripted_server import C, Gate, ScriptedServer, final, run_code, sse

pytestmark = pytest.mark.browser


@pytest.fixture
def notebook7(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    running = Lab(tmp_path_factory.mktemp("notebook7"), app="notebook", beside=lab)
    yield running
    running.close()


def test_a_run_streams_asks_stops_and_is_acted_on(notebook7: Lab) -> None:
    (notebook7.folder / "results.csv").write_text("old")
    held, thinking = Gate(), Gate()
    act = run_code("open('results.csv', 'w').write('new')").items
    with ScriptedServer() as server:
        server.responses = [
            sse(C({"content": "I will **write** it."}), held, *act),
            final("Written."),
            sse(C({"content": "Let me think"}), thinking),
        ]
        notebook = notebook7.notebook("seven.ipynb", ["%%agent\nwrite", "%%agent\nthink"], server.base_url)
        notebook.run(0, wait=False)
        expect(notebook.find(".nba-thought")).to_contain_text("I will write it.")
        assert notebook.running(0)
        held.open()
        expect(notebook.find(".nba-card")).to_contain_text("results.csv")
        notebook.find(".nba-approve").click()
        notebook.wait(0)
        assert (notebook7.folder / "results.csv").read_text() == "new"
        expect(notebook.cell(0)).to_contain_text("Written.")
        notebook.find(".nba-insert").click()
        notebook7.until(lambda: "results.csv" in str(notebook.cell(1).text_content()))

        notebook.run(2, wait=False)
        expect(notebook.cell(2)).to_contain_text("Let me think")
        taken = notebook.ended_after(2, "document.querySelector('.nba-stop').click()")
        assert taken < 1500
        notebook.save()
        saved = nbformat.read(notebook.path, as_version=4)
        assert "Stopped" in saved.cells[2].outputs[0]["data"]["text/plain"]
        notebook.shut_down_kernel()
