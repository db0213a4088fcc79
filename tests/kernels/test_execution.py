"""What a kernel tells of code that it ran: outputs, status, changed variables."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from nbagent.kernels.process import ProcessKernel
from nbagent.protocols import Executed
from tests.kernels.running import run, value

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def kernel(shared_kernel: ProcessKernel) -> Iterator[ProcessKernel]:
    before = shared_kernel.generation
    yield shared_kernel
    assert shared_kernel.generation == before, "the shared kernel died"


@asynccontextmanager
async def growth() -> AsyncIterator[list[float]]:
    """Measure by how many MB this process grew, at the most, while the block ran."""
    process = psutil.Process(os.getpid())
    before = process.memory_info().rss
    found = [0.0]

    async def watch() -> None:
        while True:
            found[0] = max(found[0], (process.memory_info().rss - before) / 1e6)
            await asyncio.sleep(0.005)

    task = asyncio.create_task(watch())
    yield found
    task.cancel()


# -- outputs --------------------------------------------------------------------------------------------


async def test_every_kind_of_output_is_valid_nbformat(kernel: ProcessKernel) -> None:
    code = """
import sys
import time
from IPython.display import display, Math, JSON
print("out"); print("err", file=sys.stderr)
display(Math("x"), JSON({"a": 1.5}))
display({"application/x.foo": {"a": 1}, "image/png": b"\\x89PNG"}, raw=True)
42
"""
    ran = await run(kernel, code)
    assert ran.executed.status == "ok"
    cell = new_code_cell(code, outputs=[nbformat.from_dict(o) for o in ran.outputs], execution_count=1)
    nbformat.validate(new_notebook(cells=[cell]))
    nbformat.writes(new_notebook(cells=[cell])).encode("utf-8")
    assert ran.text("stdout") == "out\n"
    assert ran.text("stderr") == "err\n"
    assert ran.outputs[-1]["output_type"] == "execute_result"
    assert ran.outputs[-1]["data"] == {"text/plain": "42"}
    assert ran.executed.execution_count == ran.outputs[-1]["execution_count"]


async def test_stream_text_comes_while_the_code_runs(kernel: ProcessKernel, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    code = f"import os, time\nprint(1, flush=True)\nwhile not os.path.exists({str(heard)!r}): time.sleep(0.01)"
    items = []
    async for item in kernel.execute(code, timeout=20):
        items.append(item)
        heard.touch()
    assert isinstance(items[-1], Executed)
    assert items[-1].status == "ok"


async def test_many_small_pieces_are_few_outputs_and_none_is_lost_on_a_host_that_is_busy(
    kernel: ProcessKernel,
) -> None:
    pieces, texts = 1500, []
    async for item in kernel.execute(f"for i in range({pieces}): print(i, flush=True)", timeout=60):
        if not isinstance(item, Executed):
            texts.append(item["text"])
            if len(texts) == 1:
                time.sleep(1)  # nothing is read meanwhile
    assert "".join(texts) == "".join(f"{i}\n" for i in range(pieces))
    assert len(texts) < 100


async def test_an_error_keeps_what_was_printed_before_it(kernel: ProcessKernel) -> None:
    ran = await run(kernel, 'print("loaded 3"); raise RuntimeError("boom")')
    assert ran.executed.status == "error"
    assert ran.executed.error == "RuntimeError: boom"
    assert ran.text() == "loaded 3\n"
    assert ran.outputs[-1]["ename"] == "RuntimeError"


async def test_a_warning_is_stderr_text_of_code_that_went_well(kernel: ProcessKernel) -> None:
    ran = await run(kernel, 'import warnings; warnings.warn("old API"); print("total=5")')
    assert ran.executed.status == "ok"
    assert ran.text("stdout") == "total=5\n"
    assert "UserWarning: old API" in ran.text("stderr")


async def test_a_broken_repr_is_an_error_and_the_next_code_works(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "class A:\n  def __repr__(self): raise ValueError('r')\nA()")
    assert ran.executed.status == "error"
    assert ran.executed.error == "ValueError: r"
    assert await value(kernel, "1") == "1"


@pytest.mark.parametrize(("code", "error"), [("import sys; sys.exit(3)", "3"), ("exit(4)", "4"), ("quit(5)", "5")])
async def test_code_that_exits_does_not_end_the_kernel(kernel: ProcessKernel, code: str, error: str) -> None:
    await run(kernel, "kept = 'still here'")
    ran = await run(kernel, code)
    assert ran.executed.status == "error"
    assert ran.executed.error == f"SystemExit: {error} (the code asked to exit; the kernel still runs)"
    await asyncio.sleep(0.3)  # ipykernel's own exit() would end it 0.1 s later
    assert await value(kernel, "kept") == "still here"


async def test_the_bare_word_exit_does_not_end_the_kernel(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "exit")
    assert ran.executed.error == "SystemExit (the code asked to exit; the kernel still runs)"


async def test_input_raises_at_once(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "input('name? ')", timeout=10)
    assert ran.executed.status == "error"
    assert ran.executed.error.startswith("StdinNotImplementedError")
    assert ran.executed.seconds < 5


async def test_the_exit_status_of_a_shell_command_is_told(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "!false")
    assert ran.executed.status == "ok"
    assert ran.outputs[-1] == {"output_type": "stream", "name": "stderr", "text": "exit status 1\n"}
    assert await value(kernel, "_exit_code == 1") == "True"
    assert (await run(kernel, "1 + 1")).text("stderr") == ""
    assert (await run(kernel, "!true")).outputs == []
    assert "exit status 1" in (await run(kernel, "!false")).text("stderr")


async def test_the_exit_status_of_a_script_cell_is_in_its_error(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "%%bash\nexit 4")
    assert ran.executed.status == "error"
    assert "returned non-zero exit status 4" in ran.executed.error


async def test_an_updated_display_is_given_again_at_the_end(kernel: ProcessKernel) -> None:
    code = (
        "from IPython.display import display\n"
        "h = display('first', display_id=True)\nfor i in range(3): h.update(i)\nprint('after')"
    )
    ran = await run(kernel, code)
    assert [o["output_type"] for o in ran.outputs] == ["display_data", "stream", "display_data"]
    assert ran.rich("text/plain") == ["'first'", "2"]
    assert all("transient" not in o for o in ran.outputs)


async def test_cleared_outputs_are_dropped(kernel: ProcessKernel) -> None:
    code = (
        "from IPython.display import clear_output\n"
        "for i in range(5):\n  clear_output(wait=True)\n  print('epoch', i)\nprint('done')"
    )
    assert (await run(kernel, code)).text() == "epoch 4\ndone\n"


async def test_top_level_await_works(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "import asyncio\nawait asyncio.sleep(0.01)\nawaited = 5")
    assert ran.executed.status == "ok"
    assert ran.changes["awaited"] == ("int", "5")


async def test_what_a_thread_prints_after_its_code_is_not_in_the_next_output(
    kernel: ProcessKernel, tmp_path: Path
) -> None:
    flag = Path(await value(kernel, "__import__('os').getcwd()")) / "go"
    late = (
        "import os, threading, time\nwritten = threading.Event()\n"
        "def talk():\n"
        f"  while not os.path.exists({str(flag)!r}): time.sleep(0.01)\n"
        f"  print('LATE', flush=True); os.remove({str(flag)!r}); written.set()\n"
        "threading.Thread(target=talk).start()"
    )
    await run(kernel, late)
    flag.touch()
    while flag.exists():
        await asyncio.sleep(0.01)
    ran = await run(kernel, "print(written.wait(10))")
    assert ran.text() == "True\n"


async def test_widgets_are_shown_as_text_with_a_hint(kernel: ProcessKernel) -> None:
    code = "import ipywidgets as w\nfrom IPython.display import display\ndisplay(w.IntProgress())\nw.IntSlider(3)"
    ran = await run(kernel, code)
    assert ran.executed.status == "ok"
    assert len(ran.outputs) == 2
    for output, name in zip(ran.outputs, ("IntProgress", "IntSlider"), strict=True):
        assert list(output["data"]) == ["text/plain"]
        assert output["data"]["text/plain"].startswith(f"{name}(value=")
        assert "a live widget" in output["data"]["text/plain"]


# -- figures --------------------------------------------------------------------------------------------


async def test_a_figure_is_shown_once_and_a_blank_one_never(kernel: ProcessKernel) -> None:
    await run(kernel, "import matplotlib.pyplot as plt", timeout=60)
    code = "fig, ax = plt.subplots(); ax.plot([1,2]); plt.show(); plt.savefig('p.png')"
    first = await run(kernel, code, timeout=60)
    assert first.executed.status == "ok"
    assert len(first.rich("image/png")) == 1
    assert len(first.outputs) == 1
    again = await run(kernel, "fig")
    assert len(again.rich("image/png")) == 1
    assert (await run(kernel, "1")).rich("image/png") == []


async def test_a_figure_that_is_open_and_the_result_is_shown_once(kernel: ProcessKernel) -> None:
    code = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(); ax.plot([1,2])\nfig"
    assert len((await run(kernel, code, timeout=60)).rich("image/png")) == 1


async def test_a_figure_left_open_is_shown_with_its_own_step(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "import matplotlib.pyplot as plt\nplt.plot([3, 1]); None", timeout=60)
    assert len(ran.rich("image/png")) == 1
    assert (await run(kernel, "None")).outputs == []


# -- floods ---------------------------------------------------------------------------------------------


async def test_endless_printing_keeps_head_and_tail(kernel: ProcessKernel) -> None:
    async with growth() as grown:
        ran = await run(kernel, "n = 0\nwhile True:\n  n += 1\n  print(n, 'x' * 1000)", timeout=2)
    assert ran.executed.status == "timeout"
    assert not ran.executed.state_lost
    text = ran.text()
    assert text.startswith("1 xxx")
    assert " characters left out ...]" in text
    assert len(text) < 210_000
    last = int(text.rstrip().splitlines()[-1].split()[0])
    assert last > 1000
    assert grown[0] < 200
    assert await value(kernel, "'free'") == "free"


@pytest.mark.parametrize(
    ("code", "most"), [("list(range(3_000_000))", 20_000), ("'a' * 50_000_000", 201_000)], ids=["list", "text"]
)
async def test_a_huge_result_is_cut_and_not_kept(kernel: ProcessKernel, code: str, most: int) -> None:
    async with growth() as grown:
        ran = await run(kernel, code)
    assert ran.executed.status == "ok"
    assert len(ran.rich("text/plain")[0]) < most
    assert grown[0] < 200
    code = (
        "import gc, sys\n"
        "big = [o for n in list(globals()) if sys.getsizeof(globals()[n]) > 10**7 for o in [n]]\n"
        "print(big, len(Out), any(type(o) is list and len(o) == 3_000_000 for o in gc.get_objects()))\n"
    )
    assert (await run(kernel, code)).text() == "[] 0 False\n"


async def test_huge_text_is_not_kept_in_the_kernel(kernel: ProcessKernel) -> None:
    code = "import psutil\nprint(psutil.Process().memory_info().rss)"
    before = int((await run(kernel, code)).text())
    await run(kernel, "'b' * 50_000_000")
    await run(kernel, "None")
    assert int((await run(kernel, code)).text()) - before < 60e6


async def test_one_huge_line_is_cut(kernel: ProcessKernel) -> None:
    async with growth() as grown:
        ran = await run(kernel, "print('a' + 'b' * 50_000_000 + 'c')")
    assert ran.text().startswith("abbb")
    assert ran.text().endswith("bbbc\n")
    assert "49,800,003 characters left out" in ran.text()
    assert grown[0] < 200


async def test_a_huge_picture_is_replaced_by_a_note(kernel: ProcessKernel) -> None:
    code = "from IPython.display import HTML\nHTML('x' * 30_000_000)"
    ran = await run(kernel, code)
    (text,) = ran.rich("text/plain")
    assert "an output of 30.0 MB was left out: text/plain, text/html" in text


# -- variables ------------------------------------------------------------------------------------------


async def test_new_and_changed_variables_are_told_once(kernel: ProcessKernel) -> None:
    code = (
        "import numpy as np, pandas as pd\n"
        "frame = pd.DataFrame({'a': [1, 2], 'b': [3, 4]})\narray = np.zeros((2, 3))\n"
        "items = [1, 2, 3]\none = {1}\nword = 'hello'\nlong = 'x' * 500\n"
        "def function(): pass\nclass Thing: pass\nthing = Thing()\n_private = 1"
    )
    changes = (await run(kernel, code, timeout=60)).changes
    assert changes == {
        "frame": ("DataFrame", "(2, 2)"),
        "array": ("ndarray", "(2, 3) float64"),
        "items": ("list", "3 items"),
        "one": ("set", "1 item"),
        "word": ("str", "'hello'"),
        "long": ("str", "500 characters"),
        "function": ("function", ""),
        "Thing": ("class", ""),
        "thing": ("Thing", ""),
    }
    assert (await run(kernel, "print(1)")).changes == {}
    assert (await run(kernel, "items.append(4); frame['c'] = 1")).changes == {
        "items": ("list", "4 items"),
        "frame": ("DataFrame", "(2, 3)"),
    }
    assert (await run(kernel, "del items, one")).executed.gone == ("items", "one")


async def test_renamed_columns_are_a_change(kernel: ProcessKernel) -> None:
    await run(kernel, "import pandas as pd\nt = pd.DataFrame({'a': [1]})", timeout=60)
    assert "t" in (await run(kernel, "t.columns = ['z']")).changes


async def test_changes_of_code_that_raised_are_told_with_it(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "made_before = 7\nraise ValueError")
    assert ran.changes == {"made_before": ("int", "7")}


async def test_looking_at_variables_runs_no_code_of_theirs(kernel: ProcessKernel) -> None:
    code = (
        "calls = []\n"
        "class Touchy(list):\n"
        "  def __repr__(self): calls.append('repr'); return ''\n"
        "  def __len__(self): calls.append('len'); return 0\n"
        "  def __getattr__(self, name): calls.append(name); raise AttributeError(name)\n"
        "  @property\n"
        "  def __class__(self): calls.append('class'); return int\n"
        "touchy = Touchy()"
    )
    assert (await run(kernel, code)).changes["touchy"] == ("Touchy", "")
    assert await value(kernel, "calls") == "[]"


async def test_the_probe_leaves_no_names(kernel: ProcessKernel) -> None:
    names = await value(kernel, "[n for n in dir() if 'nbagent' in n or n in ('changes', 'install', 'Report')]")
    assert names == "[]"


async def test_code_may_rebind_builtins_without_harm(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "list = str = open = json = dict = 1")
    assert ran.executed.status == "ok"
    assert ran.changes["list"] == ("int", "1")
    assert (await run(kernel, "del list, str, open, json, dict\nrebound = 2")).changes == {"rebound": ("int", "2")}


async def test_ten_thousand_variables_do_not_slow_the_kernel_down(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "globals().update({f'v{i}': i for i in range(10_000)})")
    assert 0 < len(ran.executed.changes) <= 2000
    before = float(await value(kernel, "__import__('time').process_time()"))
    assert float(await value(kernel, "__import__('time').process_time()")) - before < 1
    await run(kernel, "for i in range(10_000): del globals()[f'v{i}']")


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.stdout = None",
        "import sys, os\nwith open(os.devnull, 'w') as f: sys.stdout = sys.stderr = f",
        "import sys\nclass Tee:\n  def write(self, text): pass\nsys.stderr = Tee()\n1 / 0",
    ],
)
async def test_a_stream_that_code_left_broken_does_not_silence_the_kernel(
    kernel: ProcessKernel, code: str
) -> None:
    await run(kernel, code)
    assert (await run(kernel, "print('heard')")).text() == "heard\n"
