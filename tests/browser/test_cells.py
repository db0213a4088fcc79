"""`%agent cells` in JupyterLab: the clean cells of the run, below its own cell, and nowhere twice."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Start
from tests.browser.lab import Lab, Notebook
from tests.scripted_server import final, run_code

pytestmark = pytest.mark.browser


CELLS = ".jp-Notebook .jp-Cell"


def sources(notebook: Notebook) -> list[str]:
    """The cells but the last, which set the notebook up."""
    notebook.save()
    return [cell.source for cell in nbformat.read(notebook.path, as_version=4).cells[:-1]]


def test_the_clean_cells_are_inserted_below_the_agents_cell(start: Start, lab: Lab) -> None:
    before = ["x = 3", "%%agent\nsquare it", "print('between')", "%agent cells", "print('after')"]
    notebook = start(before, [run_code("y = x ** 2"), run_code("1 / 0"), run_code("print(y)"), final("It is 9.")])
    for index in (0, 1):
        notebook.run(index)
    notebook.run(3, wait=False)
    expect(lab.page.locator(CELLS)).to_have_count(8)
    notebook.wait(5)
    lab.until(lambda: sources(notebook) == [*before[:2], "y = x ** 2", "print(y)", *before[2:]])
    assert "Inserted 2 cells below the %%agent cell." in notebook.text(5)
    assert "Error displaying widget" not in notebook.text(5)
    for index in (2, 3):
        notebook.run(index)
    assert notebook.text(3).strip() == "9"

    notebook.run(5)
    assert "stand below its %%agent cell already" in notebook.text(5)
    assert len(sources(notebook)) == 7


def test_cells_become_one_next_input_where_the_agents_cell_is_gone(start: Start, lab: Lab) -> None:
    notebook = start(["%%agent\ngo", "%agent cells"], [run_code("a = 1"), run_code("a"), final("1")])
    notebook.run(0)
    lab.page.evaluate(
        "() => { const n = window.jupyterapp.shell.currentWidget.content; n.activeCellIndex = 0; n.deselectAll();"
        " return window.jupyterapp.commands.execute('notebook:delete-cell'); }"
    )
    expect(lab.page.locator(CELLS)).to_have_count(2)
    notebook.run(0, wait=False)
    expect(lab.page.locator(CELLS)).to_have_count(3)
    notebook.wait(0)
    lab.until(lambda: sources(notebook) == ["%agent cells", "a = 1\n\na"])
    assert "next input" in notebook.text(0)
