"""A look at a variable in the agent's kernel, whatever its code does."""

from __future__ import annotations

import pytest

from nbagent.errors import TransferError
from nbagent.kernels.process import ProcessKernel
from tests.kernels.running import run, value

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_variable_is_told_and_nothing_is_left_behind(shared_kernel: ProcessKernel) -> None:
    await run(shared_kernel, "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, None]})\nbefore = set(dir())")
    text = await shared_kernel.inspect("df")
    assert text.startswith("df: DataFrame (3, 1)\n3 rows x 1 columns")
    assert "- a: float64 1 to 2, mean 1.5, 1 missing" in text
    ran = await run(
        shared_kernel, "print([n for n in dir() if n not in before and n != 'before' and not n.startswith('_i')])"
    )
    assert ran.text() == "[]\n"
    assert ran.changes == {}


async def test_endless_and_broken_reprs_are_survived_in_a_look_and_in_the_list_of_changes(
    shared_kernel: ProcessKernel,
) -> None:
    ran = await run(
        shared_kernel,
        "class Endless:\n"
        "    def __repr__(self):\n"
        "        while True: pass\n"
        "    __len__ = __str__ = __repr__\n"
        "class Hanging(pd.DataFrame):\n"
        "    @property\n"
        "    def shape(self):\n"
        "        while True: pass\n"
        "e = Endless()\nh = Hanging({'a': [1]})\nmany = [e] * 3",
    )
    assert {"e", "h", "many"} <= set(ran.changes)
    assert await shared_kernel.inspect("e") == "e: Endless\nof class __main__.Endless"
    assert "first: Endless, Endless, Endless" in await shared_kernel.inspect("many")
    assert "looking took longer than 1 s" in await shared_kernel.inspect("h")
    assert await value(shared_kernel, "len(many)") == "3"


async def test_what_is_not_there_is_told(shared_kernel: ProcessKernel) -> None:
    with pytest.raises(TransferError, match="nowhere cannot be looked at: there is no such variable"):
        await shared_kernel.inspect("nowhere")


async def test_only_what_changed_is_told_after_the_first_time(shared_kernel: ProcessKernel) -> None:
    await run(shared_kernel, "kept = [1, 2]")
    assert (await run(shared_kernel, "other = 1")).changes == {"other": ("int", "1")}
    assert (await run(shared_kernel, "kept.append(3)")).changes == {"kept": ("list", "3 items")}
    assert (await run(shared_kernel, "len(kept)")).changes == {}
