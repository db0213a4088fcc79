"""Approve, Deny and edit while the cell runs; and the ways that need no callback."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Start
from tests.browser.lab import Lab, Notebook
from tests.scripted_server import C, F, Gate, Response, ScriptedServer, T, final, run_code, sse

pytestmark = pytest.mark.browser

OVERWRITE = "from pathlib import Path\nPath('results.csv').write_text('new')"


@pytest.fixture(autouse=True)
def results(lab: Lab) -> None:
    (lab.folder / "results.csv").write_text("old")


def content(lab: Lab) -> str:
    return (lab.folder / "results.csv").read_text()


def asked(notebook: Notebook, index: int) -> None:
    notebook.run(index, wait=False)
    expect(notebook.find(".nba-card")).to_contain_text("results.csv")
    expect(notebook.find(".nba-status")).to_have_text("Waiting for you")
    assert notebook.running(index)


def test_approve_edit_and_deny_by_clicking_while_the_cell_runs(
    start: Start, lab: Lab, server: ScriptedServer
) -> None:
    act = run_code(OVERWRITE)
    notebook = start(
        ["%%agent\nedit", "%%agent\ndeny", "%%agent\napprove"],
        [act, final("Edited."), act, final("Left alone."), act, final("Written.")],
    )
    asked(notebook, 0)
    notebook.find(".nba-change").click()
    notebook.find(".nba-edit").fill(OVERWRITE.replace("new", "edited"))
    notebook.find(".nba-approve").click()
    notebook.wait(0)
    assert content(lab) == "edited"
    assert "edited by you" in str(notebook.outputs(0))

    asked(notebook, 1)
    notebook.find(".nba-reply").fill("write to another file")
    notebook.find(".nba-deny").click()
    notebook.wait(1)
    assert content(lab) == "edited"
    assert "denied" in notebook.outputs(1)[0]["data"]["text/plain"]
    assert "write to another file" in json.dumps(server.bodies[3]["messages"])

    asked(notebook, 2)
    notebook.find(".nba-approve").click()
    notebook.wait(2)
    assert content(lab) == "new"
    assert "Written." in notebook.text(2)


def test_a_plan_is_changed_before_the_work_and_ticked_while_it_runs(start: Start, server: ScriptedServer) -> None:
    def told(**words: object) -> Response:
        return final(json.dumps(words))

    notebook = start(
        ["%%agent --plan\ncount"],
        [
            told(steps=["Load", "Count"]),
            run_code("print(4)"),
            told(done=[1], changed=None),
            final("Four."),
            told(done=[1, 2], changed=None),
        ],
    )
    notebook.run(0, wait=False)
    expect(notebook.find(".nba-card")).to_contain_text("Count")
    notebook.find(".nba-change").click()
    notebook.find(".nba-edit").fill("1. [ ] Load a.csv\n2. [ ] Count its rows")
    notebook.find(".nba-approve").click()
    notebook.wait(0)
    assert "2. [ ] Count its rows" in server.bodies[1]["messages"][1]["content"]
    left = notebook.outputs(0)[0]["data"]
    assert "[x] Load a.csv\n[x] Count its rows" in left["text/plain"]
    assert "Plan: 1 of 2 done. Next: Count its rows" in left["text/html"]


def test_always_is_one_click_and_what_it_allows_is_not_asked_again(
    start: Start, lab: Lab, server: ScriptedServer
) -> None:
    notebook = start(
        ["%%agent\nwrite", "%%agent\nwrite once more"],
        [run_code(OVERWRITE), final("Written."), run_code(OVERWRITE.replace("new", "newer")), final("Again.")],
    )
    asked(notebook, 0)
    expect(notebook.find(".nba-always-pattern")).to_have_text("Always: overwrites results.csv")
    expect(notebook.find(".nba-always-session")).to_have_text("Always: any code that overwrites files")
    notebook.find(".nba-always-pattern").click()
    notebook.wait(0)
    assert content(lab) == "new"
    notebook.run(1)
    assert content(lab) == "newer"
    assert "Again." in notebook.text(1)


#: As where the kernel is another one than ipykernel.
NO_LOOKING = "from nbagent.view.mail import Mail\nMail.look = lambda mail: None"


@pytest.fixture
def no_callbacks(lab: Lab) -> Iterator[None]:
    """Messages of widgets come on the main thread only, as in kernels before ipykernel 7."""
    lab.setting("@jupyterlab/apputils-extension", "kernels-settings", {"commsOverSubshells": "disabled"})
    yield
    lab.setting("@jupyterlab/apputils-extension", "kernels-settings", {})


@pytest.mark.usefixtures("no_callbacks")
def test_where_the_page_cannot_call_back_a_line_answers_and_stop_interrupts(start: Start, lab: Lab) -> None:
    held = Gate()
    notebook = start(
        ["%%agent\nwrite", "%%agent\nthink", NO_LOOKING],
        [run_code(OVERWRITE), final("Written."), sse(C({"content": "Let me think"}), held)],
    )
    notebook.run(2)
    notebook.run(0, wait=False)
    line = notebook.find(".jp-Stdin-input")
    expect(line).to_be_visible(timeout=15_000)
    expect(notebook.find(".nba-card")).to_contain_text("results.csv")
    expect(notebook.find(".nba-approve")).to_be_hidden()
    line.fill("y")
    line.press("Enter")
    notebook.wait(0)
    assert content(lab) == "new"
    assert "Written." in notebook.text(0)
    notebook.run(1, wait=False)
    expect(notebook.find(".nba-thought")).to_contain_text("Let me think")
    taken = notebook.ended_after(1, "document.querySelector('.nba-stop').click()")
    print(f"\nstopped by the button without callbacks after {taken} ms")
    assert taken < 1500
    assert "Stopped" in notebook.text(1)


def test_a_question_in_words_is_answered_in_the_page(start: Start, server: ScriptedServer) -> None:
    arguments = json.dumps({"question": "Net or <b>gross</b>?"})
    call = T(index=0, id="q", type="function", function=F("ask_user", arguments))
    ask = sse(C(call), C({}, "tool_calls"))
    notebook = start(["%%agent\nprices", "%%agent\nagain"], [ask, final("Net it is."), ask, final("As you like.")])
    notebook.run(0, wait=False)
    expect(notebook.find(".nba-question")).to_have_text("The agent asksNet or <b>gross</b>?")
    notebook.find(".nba-words").fill("net")
    notebook.find(".nba-words").press("Enter")
    notebook.wait(0)
    assert "The user answers: net" in json.dumps(server.bodies[1]["messages"])
    notebook.run(1, wait=False)
    notebook.find(".nba-deny").click()
    notebook.wait(1)
    assert "The user leaves it to you." in json.dumps(server.bodies[3]["messages"])
