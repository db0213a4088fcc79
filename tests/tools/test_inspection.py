"""inspect_variable and post_mortem between a real IPython shell and a real kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from nbagent.host import IPythonHost
from nbagent.protocols import Approval
from nbagent.reply import Action
from nbagent.tools.code import RunCode
from nbagent.tools.gateway import Gateway
from nbagent.tools.inspection import inspect_variable, post_mortem
from tests.tools.conftest import Context, User

NO = User(Approval(False, "user"))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IPythonHost]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    shell: Any = InteractiveShell(config=config)

    def at_once(function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function())
        return future

    shell.run_cell("rows = [1, 2]\nboth = 'theirs'", store_history=True)
    shell.run_cell("def half(n):\n    return n / 0\nhalf(4)", store_history=True)
    yield IPythonHost(shell, at_once)
    shell.restore_sys_module_state()


async def test_variables_of_both_kernels_and_the_users_exception_are_looked_at(
    context: Context, workspace: Path, host: IPythonHost
) -> None:
    context.host = host
    gate = Gateway([RunCode(workspace), inspect_variable, post_mortem], approve="ask")

    async def call(tool: str, arguments: str) -> tuple[str, str]:
        result, text = await gate.call(Action("c1", tool, arguments), context, NO)
        return result.status, text

    await call("run_code", '{"code": "both = 1\\nmine = {\'k\': 2}"}')
    assert await call("inspect_variable", '{"name": "mine"}') == (
        "ok",
        "<output 3fa9c1>\nmine: dict 1 item\n1 items\n- 'k': 2\n</output 3fa9c1>",
    )
    assert "both: int 1" in (await call("inspect_variable", '{"name": "both"}'))[1]
    status, text = await call("inspect_variable", '{"name": "rows"}')
    assert status == "ok"
    assert text.startswith(
        "rows is the user's; it is not in your kernel yet.\n<output 3fa9c1>\nrows: list 2 items\n"
    )
    assert await call("inspect_variable", '{"name": "row"}') == (
        "invalid",
        "There is no variable 'row'. Nearest: rows.",
    )
    status, text = await call("post_mortem", "{}")
    assert status == "ok"
    assert text.startswith("<output 3fa9c1>\nZeroDivisionError: division by zero\n")
    assert "  n: int 4" in text


async def test_without_a_host_there_is_no_exception_and_only_the_kernels_variables(context: Context) -> None:
    gate = Gateway([inspect_variable, post_mortem], approve="ask")
    result, text = await gate.call(Action("c1", "post_mortem", "{}"), context, NO)
    assert (result.status, text) == ("invalid", "The user's code has raised no exception.")
    result, text = await gate.call(Action("c2", "inspect_variable", '{"name": "x"}'), context, NO)
    assert (result.status, text) == ("invalid", "There is no variable 'x'. There are no variables yet.")
