"""A `%%agent` cell in JupyterLab: what is seen while it runs, and what stays."""

from __future__ import annotations

import json
import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Start
from tests.scripted_server import C, Delay, F, Gate, Item, Response, ScriptedServer, T, final, run_code, sse

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


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not-saved"])
def test_a_page_that_is_loaded_again_in_mid_run_shows_the_whole_run_and_goes_on_with_it(
    start: Start, saved: bool
) -> None:
    held = Gate()
    notebook = start(
        ["%%agent\ncount", "print('next')"],
        [
            run_code("print(6 * 7)"),
            sse(C({"content": "I will ask."}), held, *run_code("import shutil; shutil.rmtree('nothing')").items),
            final("It is 42."),
        ],
    )
    notebook.run(0, wait=False)
    expect(notebook.cell(0)).to_contain_text("I will ask.")
    if saved:
        notebook.save()
    notebook.reload()
    expect(notebook.cell(0)).to_contain_text("I will ask.")
    notebook.find(".nba-summary").click()
    for expected in ("print(6 * 7)", "42"):
        expect(notebook.cell(0)).to_contain_text(expected)
    held.open()
    notebook.find(".nba-deny").click()
    expect(notebook.cell(0)).to_contain_text("It is 42.")
    notebook.lab.until(lambda: sorted(notebook.outputs(0)[0]["data"]) == ["text/html", "text/plain"])
    notebook.find(".nba-after").wait_for()
    notebook.run(1)
    assert notebook.text(1).strip() == "next"
    assert len(notebook.outputs(0)) == 1


def test_a_second_view_of_the_output_shows_the_run_from_its_beginning_and_answers_too(start: Start) -> None:
    held = Gate()
    delete = run_code("import shutil; shutil.rmtree('nothing')").items
    notebook = start(
        ["%%agent\ncount"],
        [run_code("print(6 * 7)"), sse(C({"content": "I will ask."}), held, *delete), final("It is 42.")],
    )
    page = notebook.page
    notebook.run(0, wait=False)
    expect(notebook.cell(0)).to_contain_text("I will ask.")
    panel = page.evaluate("() => window.jupyterapp.shell.currentWidget.id")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:create-output-view')")
    second = page.locator(".jp-LinkedOutputView")
    expect(second.locator(".nba-thought").last).to_have_text("I will ask.")
    expect(second).to_contain_text("print(6 * 7)")
    held.open()
    for view in (notebook.cell(0), second):
        expect(view.locator(".nba-card")).to_contain_text("nothing")
    second.locator(".nba-deny").click()
    for view in (notebook.cell(0), second):
        expect(view).to_contain_text("It is 42.")
    page.evaluate("id => window.jupyterapp.shell.activateById(id)", panel)
    notebook.wait(0)
    expect(page.locator(".nba-after")).to_have_count(1)


def test_a_run_that_was_refused_leaves_its_one_line_only(start: Start) -> None:
    cells = ["%%agent --model local:nothing\ngo", "%%agent --no-such-option\ngo", "%%agent\n"]
    notebook = start(cells, [])
    for index in range(len(cells)):
        notebook.run(index)
        (output,) = notebook.outputs(index)
        assert output["output_type"] == "stream"
        assert output["text"].startswith("UsageError: ")
        assert len(output["text"].strip().splitlines()) == 1


def test_a_long_stream_arrives_whole_and_costs_few_bytes(start: Start, server: ScriptedServer) -> None:
    words = [f"{number:03} " for number in range(1000)] * 20
    for position in range(99, len(words), 100):
        words[position] = "end\n\n"[: len(words[position])]
    text = "".join(words)
    items: list[Item] = []
    for position in range(0, len(words), 20):
        items += [C({"content": word}) for word in words[position : position + 20]]
        items.append(Delay(0.018))
    held = Gate()
    notebook = start(["%%agent\nwrite"], [sse(*items, held, C({}, "stop"))])
    received, worked = notebook.lab.count_received(), notebook.lab.count_work()
    began = time.monotonic()
    notebook.run(0, wait=False)
    notebook.lab.until(held.reached.is_set, 100)
    seconds = time.monotonic() - began
    expect(notebook.find(".nba-status")).to_contain_text("Thinking")
    thought = notebook.find(".nba-thought")
    notebook.lab.until(lambda: bare(thought.text_content() or "") == bare(text))
    live, busy = received.bytes, worked()
    held.open()
    notebook.wait(0)
    print(
        f"\n{len(text)} characters in {seconds:.1f} s: {live} bytes live, {received.bytes} in all,"
        f" {received.frames} frames, the page worked {busy:.1f} s"
    )
    assert live < 500_000
    assert received.bytes < 1_000_000
    assert text.strip() in notebook.outputs(0)[0]["data"]["text/plain"]


def bare(text: str) -> str:
    """Text without its spaces, which the page may set as paragraphs."""
    return "".join(text.split())
