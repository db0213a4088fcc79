"""What can be done with a finished run by clicking: insert its cells, export, continue, ask again."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Start
from tests.browser.lab import Lab, Notebook
from tests.scripted_server import C, Gate, ScriptedServer, final, run_code, sse

BUTTONS = ["Insert cells below", "Export", "Undo last step", "Continue", "Ask again"]

pytestmark = pytest.mark.browser


def sources(notebook: Notebook) -> list[str]:
    notebook.save()
    return [cell.source for cell in nbformat.read(notebook.path, as_version=4).cells]


def test_the_buttons_below_a_finished_run(start: Start, lab: Lab) -> None:
    cell = "%%agent --max-steps 5\nhow much is it?"
    notebook = start(
        [cell, "print('after')"],
        [run_code("a = 6"), run_code("1 / 0"), run_code("print(a * 7)"), final("It is 42.")],
    )
    notebook.run(0)
    expect(notebook.cell(0)).to_contain_text("It is 42.")
    bar = notebook.find(".nba-after")
    bar.wait_for()
    expect(bar.get_by_role("button")).to_have_text(BUTTONS)

    notebook.find(".nba-insert").click()
    expect(notebook.find(".nba-after-said")).to_have_text("Inserted 2 cells below.")
    assert sources(notebook)[:4] == [cell, "a = 6", "print(a * 7)", "print('after')"]
    for index in (1, 2):
        notebook.run(index)
    assert notebook.text(2).strip() == "42"

    notebook.find(".nba-export").click()
    expect(notebook.find(".nba-after-said")).to_have_text("Exported to agent.ipynb.")
    notebook.find(".nba-export").click()
    expect(notebook.find(".nba-after-said")).to_have_text("Exported to agent-2.ipynb.")
    exported = nbformat.read(lab.folder / "agent.ipynb", as_version=4)
    assert "print(a * 7)" in [one.source for one in exported.cells]

    notebook.find(".nba-again").click()
    lab.until(lambda: sources(notebook)[1] == "%%agent --max-steps 5 --again\nhow much is it?")
    notebook.find(".nba-continue").click()
    lab.until(lambda: sources(notebook)[1] == "%%agent --max-steps 5\nGo on.")
    focused = "() => document.activeElement.closest('.jp-Cell')?.innerText ?? ''"
    lab.until(lambda: "Go on." in lab.page.evaluate(focused))

    # The bar is of the page alone: it is not saved, and it does not outlive the run that it belongs to.
    assert "nba-after" not in notebook.path.read_text()
    assert notebook.outputs(0)[0]["output_type"] == "display_data"
    notebook.reload()
    expect(notebook.cell(0)).to_contain_text("It is 42.")
    expect(lab.page.locator(".nba-after")).to_have_count(0)


def test_a_run_that_is_started_again_has_its_own_bar_and_no_other(start: Start, lab: Lab) -> None:
    notebook = start(["%%agent\ngo"], [final("First."), final("Second.")])
    notebook.run(0)
    notebook.find(".nba-after").wait_for()
    notebook.run(0)
    expect(notebook.cell(0)).to_contain_text("Second.")
    notebook.find(".nba-after").wait_for()
    expect(lab.page.locator(".nba-after")).to_have_count(1)
    notebook.find(".nba-insert").click()
    expect(notebook.find(".nba-after-said")).to_contain_text("no code")


def test_code_is_copied_as_it_was_written(start: Start, lab: Lab) -> None:
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = "if True:\n    print('a  b')  # <i>"
    held = Gate()
    notebook = start(["%%agent\ngo"], [run_code(code), sse(C({"content": "Well"}), held)])
    notebook.run(0, wait=False)
    lab.until(held.reached.is_set)
    notebook.find(".nba-summary").click()  # the step is folded: the next one has begun
    notebook.find(".nba-code:visible").hover()
    notebook.find(".nba-copy:visible").click()
    expect(notebook.find(".nba-copy:visible")).to_have_text("Copied")
    assert lab.page.evaluate("() => navigator.clipboard.readText()") == code
    held.open()
    notebook.interrupt()
    notebook.wait(0)


def test_a_step_is_undone_by_a_click_while_the_run_goes_on_and_after_it(start: Start, lab: Lab) -> None:
    held = Gate()
    notebook = start(
        ["%%agent --checkpoints on\ngo", "%%agent\nand now"],
        [
            *(run_code(f"a = {number}") for number in (1, 2, 3)),
            sse(C({"content": "Well"}), held),
            run_code("print('a is', a)"),
            final("Seen."),
        ],
    )
    notebook.run(0, wait=False)
    lab.until(held.reached.is_set, 60)
    notebook.page.locator(".nba-summary").nth(1).hover()
    notebook.page.locator(".nba-back").nth(1).click()  # the second step: the first stays
    notebook.wait(0)
    assert notebook.outputs(0)[0]["data"]["text/plain"].count("undone") == 2
    notebook.run(1)
    assert "a is 1" in notebook.outputs(1)[0]["data"]["text/plain"]
    notebook.cell(1).locator(".nba-undo").click()
    expect(notebook.cell(1).locator(".nba-after-said")).to_contain_text("Undone: 1 step that ran code.")


def test_a_table_that_was_made_smaller_is_whole_again_after_undo(start: Start, server: ScriptedServer) -> None:
    drop = "df.drop(columns=['price'], index=df.index[2:], inplace=True)\nopen('left.csv', 'w').write('x')\ndf"
    notebook = start(
        [
            "import pandas as pd\ndf = pd.DataFrame({'price': range(1000), 'town': 'Rome'})",
            "%%agent --approve off\nkeep what matters",
            "%agent undo",
            "%%agent\nand now?",
            "print('mine', df.shape)",
        ],
        [
            run_code("df.describe()"),
            run_code(drop),
            final("Two rows."),
            run_code("df.tail(1)"),
            final("All there."),
        ],
    )
    for index in (0, 1):
        notebook.run(index)
    expect(notebook.cell(1)).to_contain_text("Two rows.")
    notebook.run(2)
    assert "Undone: 1 step that ran code." in notebook.text(2)
    assert "As before: df. Files removed again: left.csv." in notebook.text(2)
    assert notebook.outputs(1)[0]["data"]["text/plain"].count("undone") == 1
    for index in (3, 4):
        notebook.run(index)
    told = str(server.bodies[-1]["messages"])
    assert "The user has undone your last code cell (step 2 of run 1)." in told
    assert "999    999  Rome" in told
    assert notebook.text(4).strip() == "mine (1000, 2)"
    assert not (notebook.lab.folder / "left.csv").exists()
