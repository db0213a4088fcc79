"""Run All in JupyterLab: a recorded notebook gives what it gave, and an export gives the same answer."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Start
from tests.browser.lab import Lab, Notebook
from tests.scripted_server import ScriptedServer, final, run_code

pytestmark = pytest.mark.browser

STEPS = [run_code("total = sum(prices)\nprint(total)"), run_code("total / 0"), run_code("print(total / 2)")]


def run_all(notebook: Notebook, last: int) -> None:
    """Restart the kernel and run all cells, as the toolbar's button does."""
    notebook.page.evaluate(
        "async () => { const panel = window.jupyterapp.shell.currentWidget;"
        " await panel.sessionContext.session.kernel.restart();"
        " for (const cell of panel.content.widgets)"
        "   if (cell.model.type === 'code') cell.model.sharedModel.execution_count = null; }"
    )
    notebook.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    notebook.wait(last, 120)


def test_a_recorded_notebook_gives_what_it_gave_without_a_model(
    start: Start, lab: Lab, server: ScriptedServer
) -> None:
    notebook = start(
        ["%load_ext nbagent\nprices = [2, 4]", "%%agent\nhalf of their sum?", "print(_agent.answer)"],
        [*STEPS, final("It is 3.0.")],
    )
    for index in range(3):
        notebook.run(index)
    assert notebook.text(2).strip() == "It is 3.0."
    asked = len(server.requests)
    (first,) = notebook.outputs(1)
    assert "record" in first["metadata"]["nbagent"]
    notebook.save()
    lab.until(lambda: "record" in nbformat.read(notebook.path, as_version=4).cells[1].outputs[0].metadata.nbagent)

    run_all(notebook, 2)
    expect(notebook.cell(1)).to_contain_text("Replayed from the record of")
    assert notebook.text(2).strip() == "It is 3.0."
    assert len(server.requests) == asked
    (again,) = notebook.outputs(1)
    assert again["metadata"] == first["metadata"]
    for expected in ("print(total)", "ZeroDivisionError", "3.0"):
        assert expected in again["data"]["text/plain"]

    server.responses += [final("Asked anew.")]
    notebook.run(1)  # executed once more in the same kernel
    expect(notebook.cell(1)).to_contain_text("Asked anew.")


def test_an_export_opened_in_lab_gives_the_same_answer(lab: Lab, start: Start, server: ScriptedServer) -> None:
    notebook = start(
        ["prices = [2, 4]", "%%agent\nhalf of their sum?", "%agent export half.ipynb"],
        [*STEPS, final("It is 3.0.")],
    )
    for index in range(3):
        notebook.run(index)
    asked = len(server.requests)
    notebook.shut_down_kernel()
    exported = Notebook(lab, "half.ipynb")
    exported.open()
    kinds = exported.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.widgets.map(w => w.model.type)"
    )
    code = [index for index, kind in enumerate(kinds) if kind == "code"]
    recorded = {index: exported.text(index).strip() for index in code}
    run_all(exported, code[-1])
    assert {index: exported.text(index).strip() for index in code} == recorded
    assert recorded[code[-1]] == "3.0"
    assert len(server.requests) == asked
    expect(exported.cell(kinds.index("markdown"))).to_contain_text("half of their sum?")
    exported.shut_down_kernel()
