"""Stopping a run from the page: the widget's Stop and the toolbar's Interrupt."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Start
from tests.browser.lab import Notebook
from tests.scripted_server import C, Gate, ScriptedServer, final, run_code, sse

pytestmark = pytest.mark.browser

LIMIT = 1000  #: milliseconds from the click to the end of the cell
SLEEP = "import time\nprint('asleep', flush=True)\ntime.sleep(60)"


@pytest.mark.parametrize("way", ["button", "toolbar"])
def test_stop_ends_the_cell_at_once_and_the_next_cells_work(
    start: Start, server: ScriptedServer, way: str
) -> None:
    held = Gate()
    notebook = start(
        ["%%agent\nthink", "%%agent\nsleep", "print('next', _agent.reason)", "%%agent\nanswer"],
        [sse(C({"content": "Let me think"}), held), run_code(SLEEP), final("Still here.")],
    )
    notebook.run(0, wait=False)
    expect(notebook.find(".nba-thought")).to_contain_text("Let me think")
    streaming = stopped_after(notebook, 0, way)
    assert server.disconnected.wait(2)
    notebook.run(1, wait=False)
    expect(notebook.find(".nba-output")).to_contain_text("asleep")
    working = stopped_after(notebook, 1, way)
    print(f"\nstopped by the {way} after {streaming} ms while streaming, {working} ms in running code")
    assert max(streaming, working) < LIMIT
    for index, kept in ((0, "Let me think"), (1, "asleep")):
        text = notebook.text(index)
        assert "Stopped" in text
        assert kept in text
        assert [output["output_type"] for output in notebook.outputs(index)] == [
            "display_data"
        ]  # no error below it
    notebook.run(2)
    assert notebook.text(2).split() == ["next", "interrupted"]
    notebook.run(3)
    assert "Still here." in notebook.text(3)
    assert len(server.requests) == 3


def test_what_was_stopped_stops_a_run_all(start: Start, server: ScriptedServer) -> None:
    held = Gate()
    notebook = start(["%%agent\nthink", "print('next')"], [sse(C({"content": "Let me think"}), held)])
    notebook.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    expect(notebook.find(".nba-thought")).to_contain_text("Let me think")
    stopped_after(notebook, 0, "button")
    notebook.wait(0)
    assert notebook.outputs(1) == []
    notebook.run(1)
    assert notebook.text(1).strip() == "next"


def stopped_after(notebook: Notebook, index: int, way: str) -> int:
    """Stop the running cell and give the milliseconds until it has ended."""
    if way == "button":
        return notebook.ended_after(index, "document.querySelector('.nba-stop').click()")
    return notebook.ended_after(index, "window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
