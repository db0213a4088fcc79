"""A user's own tool, in one cell of a notebook: told to the model, run in parallel, listed with its state."""

from __future__ import annotations

from tests.faces.notebook import Cells
from tests.scripted_server import ScriptedServer, final
from tests.test_tools_in_a_session import calls

TOOL = '''
import nbagent

RATES = {"EUR": 1.0, "USD": 1.25}

@nbagent.tool(risk="read", parallel_safe=True, quota=5, tags=["money"])
def rate(currency: str) -> float:
    """Give the rate of a currency to the euro.

    Args:
        currency: Three letters, e.g. USD.
    """
    return RATES[currency]
'''


def test_a_users_tool_is_one_cell(cells: Cells, server: ScriptedServer) -> None:
    both = calls(("a", "rate", '{"currency": "USD"}'), ("b", "rate", '{"currency": "XXX"}'))
    server.responses = [both, final("1.25"), calls(("c", "rate", '{"currency": "USD"}')), final("1.5")]
    cells.run(TOOL)
    assert "1.25" in cells.text("%%agent\nWhat is a euro in dollars?")
    assert "rate" in [tool["function"]["name"] for tool in server.bodies[0]["tools"]]
    told = [message["content"] for message in server.bodies[1]["messages"] if message["role"] == "tool"]
    assert "1.25" in told[0]
    assert "The tool rate failed." in told[1]
    assert "KeyError: 'XXX'" in told[1]
    listed = cells.text("%agent tools").splitlines()
    assert [line.split() for line in listed if line.startswith(("rate", "run_code"))] == [
        ["run_code", "built", "in", "call", "by", "call", "ready"],
        ["rate", "session", "read", "ready,", "3", "of", "5", "calls", "left"],
    ]
    cells.run(TOOL.replace("1.25", "1.5"))
    assert "1.5" in cells.text("%%agent\nAnd now?")
    assert "1.5" in server.bodies[-1]["messages"][-1]["content"]
    assert "give the function a docstring" in cells.text(
        "import nbagent\n@nbagent.tool\ndef bare(x: int) -> int:\n    return x"
    )
    cells.run("from nbagent.tools.registry import unregister\nunregister('rate')")
    assert cells.status == "ok"
