"""A `%%agent` cell in JupyterLab: what is seen while it runs, and what stays."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Start
from tests.scripted_server import C, F, Gate, Response, T, final, sse

pytestmark = pytest.mark.browser

PLOT = """import time
import matplotlib.pyplot as plt
print("before the pause", flush=True)
while not __import__("os").path.exists("go-on"):
    time.sleep(0.02)
plt.plot([1, 3, 2])
plt.show()
6 * 7"""


def thinks_then_acts(thought: str, code: str, *gates: Gate) -> Response:
    """A thought and a call whose code comes in two halves, each followed by a gate."""
    arguments = json.dumps({"code": code})
    half = len(arguments) // 2
    first = C(T(index=0, id="a", type="function", function=F("run_code", arguments[:half])))
    rest = C(T(index=0, function=F(None, arguments[half:])))
    return sse(C({"content": thought}), gates[0], first, gates[1], rest, C({}, "tool_calls"))


def test_a_run_is_seen_while_it_happens_and_stays_in_the_saved_notebook(start: Start) -> None:
    said, wrote = Gate(), Gate()
    notebook = start(
        ["%%agent\nDraw **something** for me"],
        [thinks_then_acts("I will draw a line.", PLOT, said, wrote), final("The line peaks at **3**.")],
    )
    lab = notebook.lab
    notebook.run(0, wait=False)
    expect(notebook.find(".nba-thought")).to_contain_text("I will draw a line.")
    assert notebook.running(0)
    said.open()
    expect(notebook.find(".nba-code:visible")).to_contain_text("import matplotlib.pyplot")
    assert "plt.show()" not in notebook.text(0)
    wrote.open()
    expect(notebook.find(".nba-output")).to_contain_text("before the pause")
    expect(notebook.find(".nba-status")).to_contain_text("Running")
    assert notebook.running(0)
    (lab.folder / "go-on").touch()
    notebook.wait(0)
    shown = notebook.cell(0)
    expect(shown).to_contain_text("The line peaks at 3.")
    (output,) = notebook.outputs(0)
    assert sorted(output["data"]) == ["text/html", "text/plain"]

    notebook.save()
    notebook.shut_down_kernel()
    notebook.open_without_kernel()
    expect(shown).to_contain_text("The line peaks at 3.")
    assert "Error displaying widget" not in notebook.text(0)
    for step in shown.locator("summary").all():
        step.click()
    for expected in ("Draw **something** for me", "I will draw a line.", "plt.show()", "before the pause", "42"):
        expect(shown).to_contain_text(expected)
    figure = shown.locator(".jp-OutputArea-output img")
    assert figure.evaluate("image => image.complete && image.naturalWidth") > 100
