"""`--kernel live`: code in the user's own kernel, everything captured, nothing of theirs touched unsaid."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faces.notebook import Cells, kernel
from tests.scripted_server import C, F, ScriptedServer, T, final, run_code, sse


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as made:
        yield made


@contextmanager
def live_kernel(server: ScriptedServer, folder: Path) -> Iterator[Cells]:
    environment = {
        "NBAGENT_BASE_URL": server.base_url,
        "NBAGENT_MODEL": "stub",
        "NBAGENT_KERNEL": "live",
        "NBAGENT_HOME": str(folder / "home"),
        "NBAGENT_APPROVE": "off",
        "NBAGENT_CACHE": str(folder),
    }
    with kernel(folder, environment) as made:
        made.run("%load_ext nbagent")
        yield made


@pytest.fixture(scope="module")
def cells(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    with live_kernel(server, tmp_path_factory.mktemp("live")) as made:
        yield made


def told(cells: Cells, server: ScriptedServer, code: str, options: str = "") -> str:
    """Have the agent run code in the user's kernel; give what the model was told of it."""
    server.responses += [run_code(code), final("done")]
    cells.run(f"%%agent {options}\ngo on")
    return str(server.bodies[-1]["messages"][-1]["content"])


def trace(cells: Cells, server: ScriptedServer, code: str) -> str:
    """Have the agent run code; give the trace as text."""
    server.responses += [run_code(code), final("done")]
    return "\n".join(str(o.get("data", {}).get("text/plain", "")) for o in cells.run("%%agent\ngo on"))


def test_code_works_on_the_users_variables_and_everything_it_shows_is_captured(
    cells: Cells, server: ScriptedServer
) -> None:
    cells.run("import pandas as pd, os, sys\ndf = pd.DataFrame({'a': range(1000)})")
    code = (
        "print('out'); print('err', file=sys.stderr); os.system('echo direct')\n"
        "import subprocess; subprocess.run(['echo', 'sub']); display({'shown': 1})\n!echo shell\n%pwd\ndf.shape"
    )
    text = told(cells, server, code)
    for word in ("out", "err", "direct", "sub", "shown", "shell", "(1000, 1)"):
        assert word in text, word
    assert "ZeroDivisionError" in told(cells, server, "1/0")
    assert "does not parse" in told(cells, server, "x = = 1")
    assert "5" in told(cells, server, "import asyncio\nawait asyncio.sleep(0.01)\n5")
    assert cells.text("import asyncio; await asyncio.sleep(0); print('loop ok')") == "loop ok\n"


def test_figures_are_captured_and_closed(cells: Cells, server: ScriptedServer) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()\nplt.figure(); _ = plt.plot([3])"
    server.responses += [run_code(code), run_code("plt.get_fignums(), plt.gcf() is None"), final("done")]
    outputs = cells.run("%%agent\nplot it")
    first, second = [str(one["messages"][-1]["content"]) for one in server.bodies[-2:]]
    assert "[figure 1: " in first
    assert "[figure 2: " in first
    assert "([], False)" in second
    (shown,) = [one["data"]["text/html"] for one in outputs if "text/html" in one.get("data", {})]
    assert shown.count("data:image/png") == 2
    assert not [one for one in outputs if "image/png" in one.get("data", {})], "the user's cell shows them itself"
    assert cells.text("import matplotlib.pyplot as plt; print(plt.get_fignums())") == "[]\n"


def test_the_last_exception_and_variables_are_told_with_their_values(cells: Cells, server: ScriptedServer) -> None:
    cells.run("import pandas as pd\nprices = pd.DataFrame({'tea': [2, 5]})\nprices['coffee']")
    look = C(T(index=0, id="a", type="function", function=F("post_mortem", "{}")))
    other = C(T(index=0, id="b", type="function", function=F("inspect_variable", '{"name": "prices"}')))
    server.responses += [sse(look, C({}, "tool_calls")), sse(other, C({}, "tool_calls")), final("done")]
    cells.run("%agent fix")
    first, second = [str(one["messages"][-1]["content"]) for one in server.bodies[-2:]]
    assert "- tea: int64 2 to 5" in first
    assert "- tea: int64 2 to 5" in second
    offered = {tool["function"]["name"] for tool in server.bodies[-1]["tools"]}
    assert {"post_mortem", "inspect_variable"} <= offered
    assert "bring_variable" not in offered


def test_an_export_begins_with_the_users_cells_that_it_needs(
    cells: Cells, server: ScriptedServer, tmp_path: Path
) -> None:
    cells.run("%agent reset")
    cells.run("import pandas as pd\nsales = pd.DataFrame({'tea': [2, 5]})\nsales['all'] = sales.tea * 2")
    cells.run("unrelated = [1, 2, 3]")
    cells.run("rate = 3")
    assert "42" in told(cells, server, "total = int(sales['all'].sum()) * rate\nprint(total)")
    cells.run("rate = 10")
    assert "140" in told(cells, server, "print(int(sales['all'].sum()) * rate)")
    for rung in ("", "--distill"):
        path = tmp_path / f"out{rung}.ipynb"
        text = cells.text(f"%agent export {path} --verify {rung}")
        assert "Verified" in text, text
        joined = sources_of(path)
        assert "Of your own variables, cells of yours here make:* rate (int 10), sales (DataFrame" in joined
        assert joined.index("sales = pd.DataFrame") < joined.index("rate = 10") < joined.index("rate)")
        assert "unrelated" not in joined
        assert "nbagent" not in joined


def test_an_export_that_cannot_make_a_variable_of_the_users_says_so_where_it_starts(
    server: ScriptedServer, tmp_path: Path
) -> None:
    # In a kernel of its own: where no cell makes a variable for sure, all that ran before go into the export.
    with live_kernel(server, tmp_path) as cells:
        cells.run("globals().update({'strange': 7})")
        assert "7" in told(cells, server, "print(strange)")
        path = tmp_path / "missing.ipynb"
        assert "It needs, and does not hold: strange (int 7)." in cells.text(f"%agent export {path}")
        assert "no cell here makes:* strange (int 7)" in sources_of(path)
        path.write_text(path.read_text().replace("globals().update", "print"))
        assert "this notebook starts from strange, which is a variable of yours" in cells.text(
            "from nbagent.notebook.request import verify_notebook_file; from pathlib import Path\n"
            f"print(verify_notebook_file(Path({str(path)!r})).line)"
        )


def sources_of(path: Path) -> str:
    return "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])


def test_in_out_and_the_last_values_stay_the_users(cells: Cells, server: ScriptedServer) -> None:
    look = "print(len(In), sorted(Out), repr(_)[:60], get_ipython().execution_count)"
    cells.run("41 + 1")
    cells.run(look)
    before = cells.text(look).split(maxsplit=1)
    told(cells, server, "99 + 1")
    told(cells, server, "1/0")
    after = cells.text(look).split(maxsplit=1)
    assert after[1].rsplit(maxsplit=1)[0] == before[1].rsplit(maxsplit=1)[0]
    assert cells.text("print(sorted(n for n in dir() if 'nbagent' in n))") == "[]\n"


def test_exit_and_input_do_no_harm(cells: Cells, server: ScriptedServer) -> None:
    pid = cells.text("import os; print(os.getpid())")
    assert "the kernel is still up" in told(cells, server, "exit()")
    assert "the kernel is still up" in told(cells, server, "import sys; sys.exit(3)")
    assert "would end the user's own kernel" in told(cells, server, "import os; os._exit(1)")
    assert "input() is not available" in told(cells, server, "input('?')")
    assert cells.text("print(os.getpid())") == pid


def test_names_of_the_users_that_were_taken_are_told_and_brought_back_by_undo(
    cells: Cells, server: ScriptedServer
) -> None:
    cells.run("import pandas as pd; df = pd.DataFrame({'a': range(1000)}); mine = df; gone = 1")
    server.responses += [
        run_code("df = df.head(2); del gone"),
        run_code("list = [1]; print = json = log = len = None"),
        run_code("fresh = 1"),
        run_code("fresh = 2"),
        final("done"),
    ]
    shown = "\n".join(str(o.get("data", {}).get("text/plain", "")) for o in cells.run("%%agent\nbreak it"))
    assert "Names of yours mean something else now: df, gone." in shown
    assert "Names of yours mean something else now: list, print, len." in shown
    assert shown.count("Names of yours mean something else now") == 2
    assert "As before: df, gone." in cells.text("%agent undo 4")
    assert cells.text("print(df is mine, len(df), gone, list, 'fresh' in dir())").split() == (
        ["True", "1000", "1", "<class", "'list'>", "False"]
    )


def test_a_time_limit_interrupts_the_code_only(cells: Cells, server: ScriptedServer) -> None:
    started = time.monotonic()
    text = told(cells, server, "kept = 1\nprint('begun')\nwhile True: pass", "--cell-timeout 1")
    assert "Stopped after" in text
    assert "begun" in text
    swallow = "import time\ntry: time.sleep(20)\nexcept BaseException: print('no')"
    assert "Stopped after" in told(cells, server, swallow, "--cell-timeout 1")
    assert "Stopped after" in told(cells, server, "import asyncio\nawait asyncio.sleep(20)", "--cell-timeout 1")
    assert time.monotonic() - started < 30
    assert cells.text("print(kept)") == "1\n"


def test_a_library_that_is_being_imported_is_whole_before_the_code_is_interrupted(
    cells: Cells, server: ScriptedServer, tmp_path: Path
) -> None:
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "slow_library.py").write_text("import time\nfor _ in range(75): time.sleep(0.02)\nwhole = True")
    code = f"import sys, time\nsys.path.insert(0, {str(place)!r})\nimport slow_library\ntime.sleep(60)"
    assert "Stopped after" in told(cells, server, code, "--cell-timeout 1")
    assert cells.text("print(slow_library.whole)") == "True\n"


def test_the_users_interrupt_stops_the_run(cells: Cells, server: ScriptedServer, tmp_path: Path) -> None:
    mark = tmp_path / "begun"
    server.responses += [run_code(f"open({str(mark)!r}, 'w').close()\nimport time\nprint('part'); time.sleep(60)")]

    def begun() -> None:
        while not mark.exists():
            time.sleep(0.01)

    started = time.monotonic()
    text = cells.text_when_stopped("%%agent\nsleep", begun=begun)
    assert time.monotonic() - started < 20
    assert "Stopped" in text
    assert "part" in text
    server.responses = server.responses[: len(server.requests)]
    assert "fine" in trace(cells, server, "print('fine')")
