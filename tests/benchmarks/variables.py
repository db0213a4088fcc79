"""What the user's variables cost: a branch of 2 GB, the user's own speed beside it, 1 GB brought and adopted.

    python -m tests.benchmarks.variables

In a real notebook kernel with a scripted model on loopback. Needs about 6 GB of memory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.faces.notebook import Cells, kernel
from tests.scripted_server import ScriptedServer, final, run_code

MAKE = (
    "import numpy as np, pandas as pd, time, os\n"
    "big = pd.DataFrame(np.random.default_rng(0).random((2_500_000, 100)), copy=False)\n"  # 2 GB
    "column, words = np.ones(25_600_000), [str(n) for n in range(200_000)]\n"  # 205 MB
    "def took(step, times=5):\n"
    "    seconds = []\n"
    "    for _ in range(times):\n"
    "        began = time.process_time(); step(); seconds.append(time.process_time() - began)\n"
    "    return seconds\n"
    "def compute(): return sum(n * n for n in range(1_000_000))\n"
    "def read(): return float(column.sum()) + len(' '.join(words))\n"
    "def rewrite(): column[:] = 2\n"
    "def steps(): return {one.__name__: took(one) for one in (compute, read, rewrite)}\n"
    "_ = steps(); before = steps()"
)


#: Takes the time from the call until the twin answers, in the agent's own thread.
SPY = (
    "import functools; from nbagent.kernels.branch import BranchKernel\n"
    "started, launch = [], BranchKernel._launch\n"
    "async def timed(self):\n"
    "    began = time.perf_counter(); made = await launch(self)\n"
    "    started.append(time.perf_counter() - began); return made\n"
    "BranchKernel._launch = timed"
)


def settings(server: ScriptedServer, folder: Path, kind: str) -> dict[str, str]:
    return {
        "NBAGENT_BASE_URL": server.base_url,
        "NBAGENT_MODEL": "stub",
        "NBAGENT_KERNEL": kind,
        "NBAGENT_HOME": str(folder / "h"),
        "NBAGENT_APPROVE": "off",
        "NBAGENT_CACHE": str(folder),
    }


def branch(server: ScriptedServer, folder: Path) -> None:
    with kernel(folder, settings(server, folder, "branch")) as cells:
        cells.run("%load_ext nbagent")
        cells.run(MAKE, timeout=300)
        cells.run(SPY)
        for _ in range(5):
            server.responses += [run_code("total = float(big[0].sum())\nprint(total)"), final("done")]
            cells.run("%agent reset")
            cells.run("%%agent\ngo on", timeout=120)
        print("branch of 2 GB, seconds until it answers:", cells.text("print([round(one, 2) for one in started])"))
        cells.run("after = steps()")
        for name in ("compute", "read", "rewrite"):
            alone = number(cells, f"min(before[{name!r}])")
            first, again = number(cells, f"after[{name!r}][0]"), number(cells, f"min(after[{name!r}][1:])")
            print(
                f"the user's step `{name}`: {alone * 1e3:.1f} ms alone; beside a branch {first * 1e3:.1f} ms the"
                f" first time, then {again * 1e3:.1f} ms: {again / alone:.2f} times as long"
            )


def transfer(server: ScriptedServer, folder: Path) -> None:
    with kernel(folder, settings(server, folder, "fresh")) as cells:
        cells.run("%load_ext nbagent\nimport numpy as np, pandas as pd, time")
        cells.run("frame = pd.DataFrame(np.random.default_rng(0).random((1_250_000, 100)), copy=False)")  # 1 GB
        server.responses += [run_code("x = 1"), final("done")]
        cells.run("%%agent\nstart", timeout=120)
        took = "began = time.perf_counter()\n{line}\nspent = time.perf_counter() - began"
        for attempt in range(3):
            cells.run(took.format(line="%agent bring frame"), timeout=120)
            brought = number(cells, "spent")
            server.responses += [run_code(f"made{attempt} = frame * 2"), final("done")]
            cells.run("%%agent\nmake", timeout=120)
            cells.run(took.format(line=f"%agent adopt made{attempt}"), timeout=120)
            print(f"1 GB: brought in {brought:.2f} s, adopted in {number(cells, 'spent'):.2f} s")


def number(cells: Cells, expression: str) -> float:
    return float(cells.text(f"print({expression})"))


if __name__ == "__main__":
    for measure in (branch, transfer):
        with ScriptedServer() as server, tempfile.TemporaryDirectory() as place:
            measure(server, Path(place))
