"""bring_variable between a real IPython shell and a real kernel."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from nbagent.events import Shared
from nbagent.host import IPythonHost
from nbagent.protocols import Approval
from nbagent.reply import Action
from nbagent.tools.code import RunCode
from nbagent.tools.gateway import Gateway
from nbagent.tools.variables import BringVariable
from tests.tools.conftest import Context, User

NO = User(Approval(False, "user"))


async def test_a_variable_is_brought_as_a_copy(
    context: Context, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    shell.run_cell("import pandas as pd\ndf = pd.DataFrame({'a': range(1000)})\ngen = (i for i in ())")
    with ThreadPoolExecutor(1) as main:

        def submit(function: Callable[[], Any]) -> Future[Any]:
            return main.submit(function)

        context.host = IPythonHost(shell, submit)
        gate = Gateway([RunCode(workspace), BringVariable()], approve="ask")
        result, text = await gate.call(Action("c1", "bring_variable", '{"name": "df"}'), context, NO)
        assert result.status == "ok"
        assert (
            text == "df is in your kernel now:\n<output 3fa9c1>\ndf DataFrame (1000, 1) a int64\n</output 3fa9c1>"
        )
        shared = context.of(Shared)[0]
        assert (shared.call_id, shared.name, shared.summary) == ("c1", "df", "DataFrame (1000, 1) a int64")
        assert Path(shared.file) == context.session_folder / "shared" / "df-1.pkl"
        _, text = await gate.call(Action("c2", "run_code", '{"code": "df = df.head(2); len(df)"}'), context, NO)
        assert "2\n" in text
        assert len(shell.user_ns["df"]) == 1000

        result, text = await gate.call(Action("c3", "bring_variable", '{"name": "dff"}'), context, NO)
        assert result.status == "invalid"
        assert "no variable 'dff'. Nearest: df." in text
        result, text = await gate.call(Action("c4", "bring_variable", '{"name": "gen"}'), context, NO)
        assert result.status == "error"
        assert "gen could not be brought" in text
        assert "generator" in text
    shell.restore_sys_module_state()
