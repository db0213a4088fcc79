"""A run over a wire that fails: CFG-04, CFG-06 and their kind; a real kernel, and a file as witness.

Every fault strikes at the third step of a run whose first two had results.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from nbagent.events import Retrying, StepFinished, Thought
from nbagent.view import static
from nbagent.view.trace import Trace
from tests.fault_server import FINAL, PASSING
from tests.one_session import Notebook, open_notebook
from tests.scripted_server import final, plain, run_code
from tests.test_session import Recorder

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS: dict[str, Any] = {"max_retry_seconds": 2.0}
IMPATIENT: dict[str, Any] = {"first_token_timeout": 0.5, "stream_timeout": 0.5}
SILENT = ("stall before the first token", "stall in mid-stream", "pings for ever")
WRITE = run_code("with open('n.txt', 'a') as file: print('once', file=file)", "w")
BEFORE = (run_code("first = 1", "a"), run_code("second = first + 1", "b"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def notebook(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notebook]:
    async with open_notebook(tmp_path_factory.mktemp("work")) as made:
        yield made


@pytest.fixture(autouse=True)
def witness(notebook: Notebook) -> None:
    (notebook.folder / "n.txt").unlink(missing_ok=True)


def written(notebook: Notebook) -> str:
    file = notebook.folder / "n.txt"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("name", PASSING)
async def test_a_passing_fault_is_said_and_healed_and_nothing_runs_twice(notebook: Notebook, name: str) -> None:
    limits = {**LIMITS, **IMPATIENT} if name in SILENT else LIMITS
    finished = await notebook.cell(*BEFORE, PASSING[name](WRITE), WRITE, final("done"), **limits)
    assert (finished.reason, finished.answer) == ("answered", "done")
    assert written(notebook) == "once\n"
    (retrying,) = notebook.view.of(Retrying)
    assert (retrying.step, retrying.attempt) == (3, 2)
    assert retrying.why in static.text(Trace(notebook.view.shown))


@pytest.mark.parametrize("name", ["reset in mid-stream", "error event in mid-stream", "broken line in mid-stream"])
async def test_text_that_broke_off_stands_neither_in_the_page_twice_nor_in_the_history(
    notebook: Notebook, name: str
) -> None:
    finished = await notebook.cell(*BEFORE, PASSING[name](final("The answer is 4")), final("The answer is 4"))
    assert finished.answer == "The answer is 4"
    assert [event.text for event in notebook.view.of(Thought)] == ["The answer is 4"]
    assert static.text(Trace(notebook.view.shown)).count("The answer is 4") == 1


@pytest.mark.parametrize("name", FINAL)
async def test_a_final_fault_is_asked_once_and_leaves_what_was_done(notebook: Notebook, name: str) -> None:
    before = len(notebook.server.requests)
    began = time.monotonic()
    finished = await notebook.cell(*BEFORE, FINAL[name](WRITE), **LIMITS)
    assert finished.reason == "model_error"
    assert len(notebook.server.requests) == before + 3
    assert time.monotonic() - began < 5
    assert finished.message
    assert "\n" not in finished.message
    assert not [word for word in ("Traceback", "httpx", "openai.", "JSONDecode") if word in finished.message]
    assert len(notebook.view.of(StepFinished)) == 2
    assert not written(notebook)


async def test_the_next_run_goes_on_from_what_was_done_before_the_fault(notebook: Notebook) -> None:
    finished = await notebook.cell(*BEFORE, FINAL["no money left"](WRITE))
    assert finished.reason == "model_error"
    finished = await notebook.cell(run_code("print('second', second)"), final("goes on"))
    assert finished.answer == "goes on"
    assert "second 2" in notebook.last(1)[0]["messages"][-1]["content"]


async def test_429_for_ever_ends_within_the_bounded_wait(notebook: Notebook) -> None:
    began = time.monotonic()
    busy = [plain(429, {"error": {"message": "later"}}, {"Retry-After": "0.3"})] * 4
    finished = await notebook.cell(*BEFORE, *busy, max_retry_seconds=1.0)
    assert (finished.reason, "later" in finished.message) == ("model_error", True)
    assert time.monotonic() - began < 5
    assert [event.wait for event in notebook.view.of(Retrying)] == [0.3] * 3


async def test_a_stop_while_it_waits_is_heard_at_once(notebook: Notebook) -> None:
    def stop(event: object) -> bool:
        if isinstance(event, Retrying):
            assert notebook.session is not None
            notebook.session.stop()
        return False

    view = Recorder()
    view.waiting_for = stop
    began = time.monotonic()
    finished = await notebook.cell(*BEFORE, plain(429, "", {"Retry-After": "60"}), view=view)
    assert finished.reason == "interrupted"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("seed", range(3))
async def test_any_sequence_of_faults_ends_in_words_and_runs_nothing_twice(notebook: Notebook, seed: int) -> None:
    chosen = random.Random(seed)
    quick = [name for name in PASSING if name not in SILENT]
    faults = [PASSING[chosen.choice(quick)](WRITE) for _ in range(chosen.randint(1, 3))]
    last = chosen.choice([[], [FINAL[chosen.choice(list(FINAL))](WRITE)]])
    end = last or [WRITE, final("done")]
    finished = await notebook.cell(*BEFORE, *faults, *end, **LIMITS)
    assert finished.reason == ("model_error" if last else "answered"), finished.message
    assert written(notebook) == ("" if last else "once\n")
