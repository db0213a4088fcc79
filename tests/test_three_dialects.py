"""The same task in all three dialects, with the bad habits of models in between; a real kernel does the work."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from nbagent.events import ActionFinished, ActionStarted, Nudged, Observed
from tests.one_session import Notebook, open_notebook
from tests.scripted_server import C, F, Response, T, final, sse

DIALECTS = ["tools", "json", "fenced"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def notebook(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notebook]:
    folder = tmp_path_factory.mktemp("work")
    (folder / "shop.csv").write_text("name,price\napple,1.25\npear,2.75\n")
    async with open_notebook(folder) as made:
        yield made


def acts(dialect: str, code: str, *, thought: str = "I look.", before: str = "", after: str = "") -> Response:
    """A reply that runs `code`, with text around the action where the dialect has a place for it."""
    if dialect == "tools":
        call = T(index=0, id="a", type="function", function=F("run_code", json.dumps({"code": code})))
        return sse(C({"content": before + thought + after}), C(call), C({}, "tool_calls"))
    if dialect == "json":
        step = {"thought": thought, "action": "run_code", "action_input": {"code": code}}
        return final(before + json.dumps(step) + after)
    return final(f"{before}{thought}\n```python\n{code}\n```\n{after}")


def answers(dialect: str, answer: str) -> Response:
    if dialect != "json":
        return final(answer)
    return final(json.dumps({"thought": "Done.", "action": "final_answer", "action_input": {"answer": answer}}))


def ran(notebook: Notebook) -> list[str]:
    return [event.code for event in notebook.view.of(ActionStarted) if event.tool == "run_code"]


def history(notebook: Notebook) -> str:
    return json.dumps(notebook.last(1)[0]["messages"], ensure_ascii=False)


READ = "import csv\nrows = list(csv.DictReader(open('shop.csv')))\nprint(rows[0])"
MEAN = "print(sum(float(row['price']) for row in rows) / len(rows))"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_same_task_is_solved_over_an_error_in_each(notebook: Notebook, dialect: str) -> None:
    finished = await notebook.cell(
        acts(dialect, READ),
        acts(dialect, MEAN.replace("'price'", "'Price'"), thought="I compute."),
        acts(dialect, MEAN, thought="The column is price."),
        answers(dialect, "2.0"),
        dialect=dialect,
    )
    assert (finished.reason, finished.answer, finished.steps) == ("answered", "2.0", 4)
    assert [event.status for event in notebook.view.of(ActionFinished)][:3] == ["ok", "error", "ok"]
    observed = [event.text for event in notebook.view.of(Observed)]
    assert "'price': '1.25'" in observed[0]
    assert "KeyError" in observed[1]
    assert "2.0" in observed[2]


@pytest.mark.parametrize("dialect", ["json", "fenced"])
@pytest.mark.parametrize(
    "made_up",
    ["Observation: 99\n", "<output a1b2c3>\n99\n</output a1b2c3>\n", "\n```output\n99\n```\nThe mean is 99."],
)
async def test_an_observation_that_the_model_made_up_is_cut_and_the_real_one_counts(
    notebook: Notebook, dialect: str, made_up: str
) -> None:
    finished = await notebook.cell(
        acts(dialect, READ), acts(dialect, MEAN, after=made_up), answers(dialect, "2.0"), dialect=dialect
    )
    assert finished.answer == "2.0"
    ours = json.dumps(notebook.last(1)[0]["messages"][-4:], ensure_ascii=False)
    assert "99" not in ours
    assert "2.0" in ours


async def test_several_calls_of_one_reply_run_in_order(notebook: Notebook) -> None:
    calls = [
        T(index=n, id=f"c{n}", type="function", function=F("run_code", json.dumps({"code": code})))
        for n, code in enumerate(["a = 1", "a += 1", "print('a', a)"])
    ]
    finished = await notebook.cell(sse(*map(C, calls), C({}, "tool_calls")), answers("tools", "2"))
    assert finished.answer == "2"
    assert ran(notebook) == ["a = 1", "a += 1", "print('a', a)"]
    tools = [message for message in notebook.last(1)[0]["messages"][-3:] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in tools] == ["c0", "c1", "c2"]
    assert "a 2" in tools[2]["content"]


@pytest.mark.parametrize("dialect", ["json", "fenced"])
async def test_of_several_actions_in_text_the_first_runs_and_the_rest_was_never_said(
    notebook: Notebook, dialect: str
) -> None:
    second: dict[str, Any] = {"thought": "", "action": "run_code", "action_input": {"code": "b = 'second'"}}
    after = json.dumps(second) if dialect == "json" else "```python\nb = 'second'\n```\n"
    await notebook.cell(
        acts(dialect, "b = 'first'", after=after),
        acts(dialect, "print(b)"),
        answers(dialect, "x"),
        dialect=dialect,
    )
    assert ran(notebook) == ["b = 'first'", "print(b)"]
    assert "second" not in json.dumps(notebook.last(1)[0]["messages"][-5:])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_example_in_the_prose_is_not_run(notebook: Notebook, dialect: str) -> None:
    example = "As in:\n```\nraise SystemExit('example')\n```\nI do:\n"
    finished = await notebook.cell(
        acts(dialect, "print('real')", before=example), answers(dialect, "ok"), dialect=dialect
    )
    assert finished.answer == "ok"
    assert ran(notebook) == ["print('real')"]


async def test_an_example_that_never_ends_is_not_run_and_the_model_is_told(notebook: Notebook) -> None:
    unclear = final("As in:\n```\nexample\n```python\nprint('perhaps')\n")
    await notebook.cell(unclear, acts("fenced", "print('sure')"), answers("fenced", "ok"), dialect="fenced")
    assert ran(notebook) == ["print('sure')"]
    assert "never closed" in notebook.view.of(Nudged)[0].text


COPIED = "rows2 = rows[0]['cost']\nprint(rows2)"


@pytest.mark.parametrize("dialect", ["json", "fenced"])
async def test_a_small_model_that_copies_its_failing_code_sees_it_no_more(
    notebook: Notebook, dialect: str
) -> None:
    finished = await notebook.cell(
        acts(dialect, READ),
        acts(dialect, COPIED),
        acts(dialect, COPIED),
        acts(dialect, MEAN),
        answers(dialect, "2.0"),
        dialect=dialect,
    )
    assert finished.answer == "2.0"
    before, after = (json.dumps(body["messages"], ensure_ascii=False) for body in notebook.last(3)[:2])
    assert "print(rows2)" in before
    assert "print(rows2)" not in after
    for words in ("taken out of this conversation", "KeyError: 'cost'", "Task: count"):
        assert words in after
