"""A plan is made before the work, changed by the user, ticked while it goes on, revised by what is observed."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent import checklist
from nbagent.events import PlanItem, PlanMade, PlanUpdated
from nbagent.notebook.export import draft_notebook
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.stores.files import FileStore, default_home
from nbagent.view import static
from nbagent.view.trace import Trace
from tests.scripted_server import Recorded, Response, ScriptedServer, final, plain, run_code
from tests.test_long_runs import NOISY, rebuilt
from tests.test_session import Recorder, Work


def steps(*texts: str) -> Response:
    return final(json.dumps({"steps": texts}))


def done(*numbers: int, changed: list[str] | None = None, why: str = "") -> Response:
    return final(json.dumps({"done": numbers, "changed": changed, "why": why}))


@pytest.fixture
async def work(tmp_path: Path) -> AsyncIterator[Work]:
    folder = tmp_path / "work"
    folder.mkdir()
    made = Work(folder)
    yield made
    for session in made.sessions:
        await session.close()


def texts(items: list[PlanItem]) -> list[str]:
    return [item.text for item in items]


TEXTS = st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=60).filter(
    lambda text: any(letter.isalpha() for letter in text[:1]) and text == text.strip()
)


@given(st.lists(st.builds(PlanItem, text=TEXTS, done=st.booleans()), max_size=checklist.MOST_ITEMS))
def test_what_is_written_is_read_back(items: list[PlanItem]) -> None:
    assert checklist.read(checklist.written(items)) == items
    assert checklist.read(checklist.shown(items)) == items


@pytest.mark.parametrize(
    "reply",
    [
        '{"steps": ["Load", "Count"]}',
        'Here it is:\n```json\n{"steps": ["Load", "Count"],}\n```',
        "My plan:\n1. Load\n2. Count\nThat is all.",
        "- [ ] Load\n* Count",
        '{"steps": ["1. Load", 7, null, "  Count  ", ""]}',
    ],
)
def test_a_plan_is_read_out_of_what_models_write(reply: str) -> None:
    assert texts(checklist.proposed(reply)) == ["Load", "Count"]


@given(st.text())
def test_no_reply_breaks_the_reading(reply: str) -> None:
    assert len(checklist.proposed(reply)) <= checklist.MOST_ITEMS


async def test_a_plan_is_ticked_and_revised_and_shown_by_every_view(work: Work) -> None:
    finished = await work.run(
        steps("Load a.csv", "Count the rows", "Plot them"),
        run_code("print('no a.csv, but b.csv')"),
        done(changed=["Load b.csv", "Count its rows"], why="There is no a.csv."),
        run_code("print('rows', 4)", "b"),
        final('{"done": ["1", true, null, 99, -1], "changed": "no"}'),
        final("Four rows."),
        done(1, 2),
        plan=True,
    )
    assert finished.answer == "Four rows."
    (made,) = work.view.of(PlanMade)
    assert texts(made.items) == ["Load a.csv", "Count the rows", "Plot them"]
    changed, ticked, last = work.view.of(PlanUpdated)
    assert texts(changed.items) == ["Load b.csv", "Count its rows"]
    assert [item.done for item in ticked.items] == [True, False]
    assert [item.done for item in last.items] == [True, True]
    task = work.bodies[1]["messages"][1]["content"]
    assert task.startswith("Task: count\n\nThe plan for this task, made by you and not seen by the user")
    assert "2. [ ] Count the rows" in task
    assert work.bodies[3]["messages"][-1]["content"].startswith("The plan was changed")
    assert "ticks" not in str(work.bodies[5]["messages"][2:]), "ticks are for people"
    events = FileStore(default_home(os.environ)).read(work.sessions[0].id)
    assert rebuilt(events) == work.raw
    trace = Trace(work.view.shown)
    for shown, ticked in (
        (static.text(trace), "[x] Load b.csv\n[x] Count its rows"),
        (static.html(trace), "☑ Load b.csv<br>☑ Count its rows"),
    ):
        assert ticked in shown
        assert "There is no a.csv." in shown
        assert "Plan: 1 of 2 done. Next: Count its rows" in shown
    cells = draft_notebook(events, Path("x.ipynb")).notebook["cells"]
    assert any("- [x] Load b.csv\n- [x] Count its rows" in str(cell["source"]) for cell in cells)


class Editor(Recorder):
    """A user who gives these answers to the questions on the plan."""

    def __init__(self, *answers: Approval) -> None:
        super().__init__()
        self.answers = list(answers)

    async def ask(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        return self.answers.pop(0)


async def test_the_user_may_change_the_plan_before_the_work(work: Work) -> None:
    edited = "1. [ ] Load a.csv\n- Count the *valid* rows\n\n"
    work.view = Editor(Approval(approved=True, by="user", code=edited))
    await work.run(steps("Load", "Count"), final("ok"), done(1, 2), plan=True)
    assert work.view.asked[0].code == "1. [ ] Load\n2. [ ] Count"
    (made,) = work.view.of(PlanMade)
    assert made.edited
    assert texts(made.items) == ["Load a.csv", "Count the *valid* rows"]
    assert "changed by the user" in work.bodies[1]["messages"][1]["content"]


async def test_a_word_on_the_plan_has_it_made_again(work: Work) -> None:
    work.view = Editor(
        Approval(approved=False, by="user", note="use polars"), Approval(approved=True, by="user", code=None)
    )
    await work.run(steps("Use pandas"), steps("Use polars"), final("ok"), done(1), plan=True)
    assert "use polars" in work.bodies[1]["messages"][-1]["content"]
    assert texts(work.view.of(PlanMade)[0].items) == ["Use polars"]
    assert "approved by the user" in work.bodies[2]["messages"][1]["content"]


async def test_a_plan_that_is_refused_is_not_followed(work: Work) -> None:
    work.view = Editor(Approval(approved=False, by="user"))
    finished = await work.run(steps("Load"), final("ok"), plan=True)
    assert finished.answer == "ok"
    assert not work.view.of(PlanMade)
    assert work.bodies[1]["messages"][1]["content"] == "Task: count"


@pytest.mark.parametrize("reply", [final("I would rather not."), plain(400, {"error": {"message": "no"}})])
async def test_without_a_plan_the_run_goes_on(work: Work, reply: Response) -> None:
    again = [reply] if reply.status == 400 else []
    finished = await work.run(reply, *again, final("ok"), plan=True)
    assert finished.answer == "ok"
    assert not work.view.of(PlanMade)


async def test_a_summed_up_history_keeps_the_plan_as_it_stands(work: Work) -> None:
    count = 0

    def answer(request: Recorded) -> Response:
        nonlocal count
        question = request.body["messages"][-1]["content"]
        if "Plan the work first" in question:
            return steps("Count rows", "Say how many")
        if "The plan as it stands" in question and "Do not go on" in question:
            return done(1)
        if question.startswith("(From nbagent"):
            return final("Rows are counted in seen.")
        count += 1
        return run_code(NOISY, f"c{count}") if count < 6 else final("six")

    with ScriptedServer(answer=answer) as server:
        session = work.session(server, context_window=16_500, observation_characters=10_000, plan=True)
        assert (await session.run("count", view=work.view)).answer == "six"
    notes = [event.note for event in work.view.shown if event.type == "Compacted" and hasattr(event, "note")]
    assert notes
    assert all("1. [x] Count rows\n2. [ ] Say how many" in note for note in notes)


async def test_small_models_read_last_that_they_are_to_compute(work: Work) -> None:
    def fenced(request: Any) -> Response:
        question = request.body["messages"][-1]["content"]
        if "Plan the work first" in question:
            assert request.body["response_format"] == {"type": "json_object"}
            return steps("Add")
        if "The plan as it stands" in question:
            return done(1)
        told = question.rpartition("\n")[2]
        if len(request.body["messages"]) == 2:
            assert told.startswith("Go on: compute")
            return final("I add.\n```python\nprint(1 + 1)\n```")
        return final("2")

    with ScriptedServer(answer=fenced) as server:
        finished = await work.session(server, dialect="fenced", plan=True).run("add", view=work.view)
    assert finished.answer == "2"
