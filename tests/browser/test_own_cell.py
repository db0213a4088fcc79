"""Everything of a run stands under its own cell; widgets of the agent's kernel are told, not shown broken."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Start
from tests.browser.lab import Lab
from tests.scripted_server import C, Gate, run_code, sse

pytestmark = pytest.mark.browser

WIDGETS = """import ipywidgets as w
from IPython.display import display
bar = w.IntProgress()
display(bar)
bar.value = 50
print("after the bar")
w.IntSlider(3)"""


def test_output_and_widgets_of_a_run_stay_in_its_cell(start: Start, lab: Lab) -> None:
    held = Gate()
    notebook = start(
        ["%%agent\nshow a slider", "print('mine')"],
        [run_code(WIDGETS), sse(C({"content": "Here "}), held, C({"content": "it is."}), C({}, "stop"))],
    )
    notebook.run(0, wait=False)
    notebook.run(1, wait=False)  # the user goes on while the run streams from its own thread
    lab.until(held.reached.is_set, 60)
    expect(notebook.cell(0)).to_contain_text("Here")
    held.open()
    notebook.wait(1)
    for index in (0, 1):
        assert "Error displaying widget" not in notebook.text(index)
        assert "model not found" not in notebook.text(index).lower()
    expect(notebook.cell(0)).to_contain_text("Here it is.")
    told = notebook.outputs(0)[0]["data"]["text/plain"]
    assert "after the bar" in told
    assert told.count("a live widget") + told.count("live widgets of the agent's kernel") >= 2
    assert [output.get("text") for output in notebook.outputs(1)] == ["mine\n"]
    assert len(notebook.outputs(0)) == 1
