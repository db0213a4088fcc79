"""`%agent fix` in a real kernel: a run on the notebook's last exception."""

from __future__ import annotations

from tests.faces.notebook import Cells
from tests.scripted_server import C, F, ScriptedServer, T, final, run_code, sse


def test_the_last_exception_is_looked_at_mended_and_answered(cells: Cells, server: ScriptedServer) -> None:
    assert "there is no error to fix" in cells.text("%agent fix")
    cells.run("prices = {'tea': 2}\ndef total(rate):\n    return prices['coffee'] * rate\ntotal(3)")
    assert "there is no `%agent fox`" in cells.text("%agent fox")  # our own error does not take its place
    cells.run("fine = 1")
    look = C(T(index=0, id="a", type="function", function=F("post_mortem", "{}")))
    server.responses = [
        sse(look, C({}, "tool_calls")),
        run_code("print(prices.get('coffee', 0) * 3)"),
        final("The key is missing: use prices.get('coffee', 0)."),
    ]
    text = cells.text("%agent fix --max-steps 4 only the cause")
    assert cells.status == "error"
    assert "unrecognized arguments" in text
    assert len(server.responses) == 3
    text = cells.text("%agent fix in one line")
    assert "use prices.get('coffee', 0)" in text
    first, second, third = [request.body["messages"] for request in server.requests]
    opening = first[-1]["content"]
    assert opening.endswith("and answer with the cause and the corrected code. in one line")
    assert "My last code failed with KeyError." in opening
    assert "The user's last error:\n" in opening
    assert "KeyError: 'coffee'" in opening
    assert "return prices['coffee'] * rate" in second[-1]["content"]
    assert "  rate: int 3" in second[-1]["content"]
    assert "prices was copied from the user's kernel" in third[-1]["content"]


def test_a_run_after_a_cell_that_failed_is_told_its_error_and_after_another_is_not(
    cells: Cells, server: ScriptedServer
) -> None:
    server.responses = [final("One."), final("Two.")]
    cells.run("1/0")
    cells.run("%%agent\nWhat?")
    cells.run("%%agent\nAnd now?")
    first, second = [request.body["messages"] for request in server.requests]
    assert "ZeroDivisionError: division by zero" in first[-1]["content"]
    assert "The user's last error" not in second[-1]["content"]
