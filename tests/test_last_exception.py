"""A post-mortem shows the user's frames, their source and variables, and survives whatever an exception is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from nbagent.errors import UsageError
from nbagent.host import IPythonHost
from nbagent.last_exception import LONGEST_TEXT


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    made = InteractiveShell(config=config)
    yield made
    made.restore_sys_module_state()


@pytest.fixture
def host(shell: Any) -> IPythonHost:
    def never(function: Callable[[], Any]) -> Future[Any]:
        raise AssertionError("not called here")

    return IPythonHost(shell, never)


def run(shell: Any, *cells: str) -> None:
    for cell in cells:
        shell.run_cell(cell, store_history=True)


def test_the_frames_of_the_users_last_exception_are_told_with_source_and_variables(
    shell: Any, host: IPythonHost
) -> None:
    run(
        shell,
        "import pandas as pd\ndf = pd.DataFrame({'price': [1.5, 2]})",
        "def total(table, rate=2):\n    cents = 100\n    return table['pric'].sum() * rate * cents",
        "unused = 3\nresult = total(df)",
        "fine = 1",
    )
    text = host.post_mortem()
    first, *_ = text.split("\n")
    assert first == "KeyError: 'pric'"
    assert "line 2:\n" in text
    assert " ->   2 result = total(df)" in text
    assert "  df: DataFrame (2, 1)\n" in text
    assert "unused" not in text.replace("unused = 3", "")
    assert ", line 3, in total:\n" in text
    assert "      1 def total(table, rate=2):" in text
    assert " ->   3     return table['pric'].sum() * rate * cents" in text
    assert "  rate: int 2\n  cents: int 100\n" in text
    assert text.endswith("frames in pandas]")


def test_with_values_a_variable_is_told_with_what_it_holds_once_and_bounded(shell: Any, host: IPythonHost) -> None:
    run(
        shell,
        "import pandas as pd\nprices = pd.DataFrame({'price': [1.5, 2, None]})\nlong = ['x' * 50] * 1000",
        "def total(table, rates, many):\n    words = {'a': [1]}\n    return table['pric']\n"
        "total(prices, [2, 3], long)",
    )
    assert "- price: float64" not in host.post_mortem()
    text = host.post_mortem(values=True)
    assert "  prices: DataFrame (3, 1)\n  3 rows x 1 columns, " in text
    assert "  - price: float64 1.5 to 2, mean 1.75, 1 missing\n" in text
    assert "  rates: list 2 items\n  2 items: 2 int\n  first: 2, 3\n" in text
    assert "  words: dict 1 item\n  1 items\n  - 'a': list 1 item\n" in text
    assert "  table: DataFrame (3, 1) (told above as prices)" in text
    assert text.count("- price: float64") == 1
    assert len(text) < 6000


def test_a_cause_is_told_before_what_it_led_to(shell: Any, host: IPythonHost) -> None:
    run(shell, "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('no report') from e")
    text = host.post_mortem()
    assert (
        text.index("KeyError: 'a'")
        < text.index("during or because of that:")
        < text.index("ValueError: no report")
    )


def test_a_recursion_is_told_by_its_ends(shell: Any, host: IPythonHost) -> None:
    run(shell, "def f(n):\n    if n == 60: raise ValueError(n)\n    return f(n + 1)\nf(0)")
    text = host.post_mortem()
    assert "more frames of yours]" in text
    assert text.count("in f:") <= 8
    assert len(text) <= LONGEST_TEXT + 2


def test_the_code_of_an_exception_and_of_what_it_holds_is_survived(shell: Any, host: IPythonHost) -> None:
    run(
        shell,
        "class Odd(Exception):\n"
        "    def __str__(self):\n"
        "        raise RuntimeError('no words')\n"
        "class Endless:\n"
        "    def __repr__(self):\n"
        "        while True: pass\n"
        "def g(x):\n"
        "    raise Odd\n"
        "g(Endless())",
    )
    text = host.post_mortem()
    assert "Odd" in text.partition("\n")[0]
    assert "  x: Endless" in text


def test_a_cell_that_does_not_parse_is_told_with_its_place(shell: Any, host: IPythonHost) -> None:
    run(shell, "x = (1,\ny = 2")
    assert "SyntaxError" in host.post_mortem()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), UsageError("ours")])
def test_a_stop_and_our_own_messages_are_no_exceptions_of_the_users(
    shell: Any,
    host: IPythonHost,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.last_value", error, raising=False)
    assert host.post_mortem() == ""
    assert host.last_exception() is None


def test_a_file_of_the_users_is_told_and_a_librarys_is_counted(
    shell: Any, host: IPythonHost, tmp_path: Path
) -> None:
    module = tmp_path / "mine.py"
    module.write_text("import json\ndef read(text):\n    return json.loads(text)\n")
    run(shell, f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport mine\nmine.read('x')")
    text = host.post_mortem()
    assert f"{module}, line 3, in read:" in text
    assert "frames in json]" in text
