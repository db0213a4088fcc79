from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from nbagent.errors import TransferError
from nbagent.host import LONGEST_ERROR, IPythonHost
from nbagent.protocols import Variable


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    made = InteractiveShell(config=config)
    yield made
    made.restore_sys_module_state()


def at_once(function: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(function())
    except ValueError as error:
        future.set_exception(error)
    return future


@pytest.fixture
def host(shell: Any) -> IPythonHost:
    return IPythonHost(shell, at_once)


def run(shell: Any, *cells: str) -> None:
    for cell in cells:
        shell.run_cell(cell, store_history=True)


async def test_a_call_runs_on_the_thread_that_serves_the_queue(shell: Any) -> None:
    items: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()

    def submit(function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        items.put((function, future))
        return future

    def serve() -> None:
        function, future = items.get(timeout=10)
        future.set_result(function())

    server = threading.Thread(target=serve)
    server.start()
    assert await IPythonHost(shell, submit).call(threading.get_ident) == server.ident
    server.join(10)


async def test_what_a_call_raises_reaches_the_caller(host: IPythonHost) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await host.call(lambda: int("x"))


def test_variables_are_told_with_shapes_and_short_values(shell: Any, host: IPythonHost) -> None:
    run(
        shell,
        "import numpy as np, pandas as pd, os",
        "df = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']}); wide = pd.DataFrame({i: [0] for i in range(40)})",
        "s = df.a; arr = np.zeros((2, 3)); items = [1]; d = {}; n = 5; word = 'hi'; long = 'x' * 100; _hidden = 1",
        "def f(): pass\nclass C: pass\nc = C()",
    )
    found = {v.name: (v.type, v.summary) for v in host.variables()}
    text = str(pd.Series(["x"]).dtype)
    assert found == {
        "df": ("DataFrame", f"(2, 2) a int64, b {text}"),
        "wide": ("DataFrame", "(1, 40)"),
        "s": ("Series", "(2,) int64"),
        "arr": ("ndarray", "(2, 3) float64"),
        "items": ("list", "1 item"),
        "d": ("dict", "0 items"),
        "n": ("int", "5"),
        "word": ("str", "'hi'"),
        "long": ("str", "100 characters"),
        "f": ("function", ""),
        "C": ("class", ""),
        "c": ("C", ""),
    }


def test_no_code_of_unknown_objects_runs_when_variables_are_listed(shell: Any, host: IPythonHost) -> None:
    run(
        shell,
        "called = []\n"
        "class Trap:\n"
        "    def __getattr__(self, name): called.append(name); raise RuntimeError(name)\n"
        "    def __repr__(self): called.append('repr'); raise RuntimeError\n"
        "    def __len__(self): called.append('len'); raise RuntimeError\n"
        "    @property\n"
        "    def __class__(self): called.append('class'); raise RuntimeError\n"
        "trap = Trap()",
        "import pandas as pd\nclass Broken(pd.DataFrame):\n    shape = None\nbroken = Broken({'a': [1]})",
    )
    found = {v.name: v for v in host.variables()}
    assert found["trap"] == Variable("trap", "Trap", "")
    assert found["broken"] == Variable("broken", "Broken", "")
    assert shell.user_ns["called"] == []


def test_recent_cells_are_the_users_own_without_the_running_one(shell: Any, host: IPythonHost) -> None:
    seen: list[list[str]] = []
    shell.register_magic_function(lambda line, cell: seen.append(host.recent_cells(2)), "cell", "agent")
    run(shell, "a = 1", "b = 2", "%%agent\nfirst task", "c = 3", "%%agent\nsecond task")
    assert seen == [["a = 1", "b = 2"], ["b = 2", "c = 3"]]
    assert host.recent_cells(0) == []
    assert host.recent_cells(10) == ["a = 1", "b = 2", "c = 3"]


def test_the_last_error_is_told_plain_only_if_the_last_cell_failed(
    shell: Any, host: IPythonHost, capsys: pytest.CaptureFixture[str]
) -> None:
    assert host.last_error() == ""
    run(shell, "def f(x):\n    return 1 / x", "f(0)")
    text = host.last_error()
    assert text.endswith("ZeroDivisionError: division by zero")
    assert "line 2, in f: return 1 / x" in text
    assert "\x1b" not in text
    assert "interactiveshell" not in text
    run(shell, "ok = 1")
    assert host.last_error() == ""
    run(shell, "def f(:")
    assert host.last_error().endswith("SyntaxError: invalid syntax")
    run(shell, "raise ValueError('x' * 9000 + 'the end')")
    assert len(host.last_error()) == LONGEST_ERROR
    assert host.last_error().endswith("the end")


def test_a_variable_travels_by_value(shell: Any, host: IPythonHost, tmp_path: Path) -> None:
    run(shell, "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})")
    file = tmp_path / "df.pkl"
    assert host.dump("df", file) == "DataFrame (2, 1) a int64"
    host.load("copy", file)
    assert shell.user_ns["copy"].equals(shell.user_ns["df"])
    assert shell.user_ns["copy"] is not shell.user_ns["df"]


@pytest.mark.parametrize(
    ("code", "name", "reason"),
    [
        ("x = (i for i in ())", "x", "generator"),
        ("x = lambda: 1", "x", "defined in the notebook only"),
        ("pass", "nothing", "there is no variable nothing"),
    ],
)
def test_what_cannot_travel_is_told_in_one_line(
    shell: Any, host: IPythonHost, tmp_path: Path, code: str, name: str, reason: str
) -> None:
    run(shell, code)
    with pytest.raises(TransferError, match=reason) as caught:
        host.dump(name, tmp_path / "x.pkl")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "x.pkl").exists()


def test_a_broken_pickle_or_a_bad_name_is_a_transfer_error(host: IPythonHost, tmp_path: Path) -> None:
    file = tmp_path / "x.pkl"
    file.write_bytes(b"no pickle")
    with pytest.raises(TransferError, match="cannot be taken over"):
        host.load("x", file)
    with pytest.raises(TransferError, match="not a name"):
        host.load("not a name", file)


def test_names_and_classes_that_no_one_expects_do_no_harm(shell: Any, host: IPythonHost) -> None:
    shell.run_cell(
        "class Homeless: pass\n"
        "Homeless.__module__ = None\n"
        "class Meta(type):\n"
        "    @property\n"
        "    def __module__(cls): raise RuntimeError\n"
        "class Hostile(metaclass=Meta): pass\n"
        "homeless, hostile = Homeless(), Hostile()\n"
        "globals()[1] = 2\n"
        "globals()['two words'] = 2\n"
    )
    listed = [variable.name for variable in host.variables()]
    assert listed[-2:] == ["homeless", "hostile"]
