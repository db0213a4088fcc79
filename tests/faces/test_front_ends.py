"""Front ends without the live view, or whose page cannot call back: VS Code, Colab, a console on a kernel.

What they can do is found out in the running cell: does the request allow questions, does the page say hello?
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces.notebook import Cells, plain
from tests.scripted_server import C, Gate, ScriptedServer, final, run_code, sse

WIDGET = "application/vnd.jupyter.widget-view+json"
DELETE = run_code("import os\nos.remove('old.txt')")


@pytest.fixture
def cells(cells: Cells) -> Iterator[Cells]:
    """A front end that says hello at once or never."""
    cells.run("from nbagent.view import widget\nusual, widget.HELLO_TIMEOUT = widget.HELLO_TIMEOUT, 0.3")
    cells.run("%config NbAgent.replay = 'off'")
    yield cells
    cells.run("widget.HELLO_TIMEOUT = usual")
    assert cells.status == "ok"


def nobody(prompt: str) -> str:
    raise AssertionError(f"nothing was to be asked: {prompt}")


def static_trace(outputs: list[dict[str, Any]]) -> str:
    """The one output that stays: it needs no widget, and no kernel."""
    (left,) = [output for output in outputs if output["output_type"] == "display_data"]
    assert set(left["data"]) == {"text/html", "text/plain"}
    assert left["data"]["text/html"].startswith("<div class=")
    return plain(left)


def test_a_page_that_never_says_hello_is_asked_by_a_line_and_left_with_the_trace(
    cells: Cells, server: ScriptedServer, folder: Path
) -> None:
    (folder / "old.txt").write_text("x")
    asked = []

    def yes(prompt: str) -> str:
        asked.append(prompt)
        return "y"

    server.responses += [DELETE, final("gone")]
    outputs = cells.run("%%agent\ndelete it", answer=yes)
    assert len(asked) == 1
    assert "os.remove('old.txt')" in asked[0], "the whole code stands in the question"
    assert not (folder / "old.txt").exists()
    assert "Answer: gone" in static_trace(outputs)


def test_its_no_with_a_reason_reaches_the_model(cells: Cells, server: ScriptedServer, folder: Path) -> None:
    (folder / "old.txt").write_text("x")
    server.responses += [DELETE, final("kept")]
    cells.run("%%agent\ndelete it", answer=lambda _: "n move it instead")
    assert (folder / "old.txt").exists()
    assert "move it instead" in server.bodies[-1]["messages"][-1]["content"]


def test_while_it_works_a_front_end_without_widgets_reads_what_to_expect(
    cells: Cells, server: ScriptedServer
) -> None:
    server.responses += [final("done")]
    cells.run("%%agent\ngo", answer=nobody)
    assert WIDGET in cells.displayed[0]
    assert "no live view; the trace comes at the end" in cells.displayed[0]["text/plain"]


def test_the_front_ends_own_interrupt_stops_the_run_and_the_trace_says_so(
    cells: Cells, server: ScriptedServer
) -> None:
    gate = Gate()
    server.responses += [sse(C({"content": "I think"}), gate, C({}, "stop"))]
    text = cells.text_when_stopped("%%agent\ngo", begun=gate.reached.wait)
    gate.open()
    assert "Stopped" in text
    server.responses = server.responses[: len(server.requests)]


def test_where_nobody_can_be_asked_there_is_no_widget_and_no_wait(
    cells: Cells, server: ScriptedServer, folder: Path
) -> None:
    (folder / "old.txt").write_text("x")
    server.responses += [DELETE, final("kept")]
    assert "Answer: kept" in static_trace(cells.run("%%agent\ndelete it"))
    assert (folder / "old.txt").exists()
