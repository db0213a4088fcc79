"""From the click on Stop to the end of the cell, in a real JupyterLab in Chromium: medians and the best, in ms.

python -m tests.benchmarks.stop [TIMES]

Beside it stands what the toolbar's Interrupt of a plain cell that sleeps takes in the same page.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.lab import Lab, Notebook
from tests.scripted_server import C, Gate, Response, ScriptedServer, run_code, sse

TIMES = 10
REST = 0.5  #: seconds in which the page comes to rest before the click
WAYS = {
    "button": "document.querySelector('.nba-stop').click()",
    "toolbar": "window.jupyterapp.commands.execute('notebook:interrupt-kernel')",
}
PANDAS = (
    "import pandas as pd\nframe = pd.DataFrame({'a': range(1000)})\nprint('under way', flush=True)\n"
    "while True: frame.groupby('a').a.sum()"
)


@dataclass(frozen=True)
class Stopped:
    """What is stopped; without code, a stream of text."""

    name: str
    budget: int  #: milliseconds
    code: str = ""
    kernel: str = "fresh"

    @property
    def place(self) -> str:
        """Where the page shows that it is under way: the code alone, which holds the words too, is too early."""
        return ".nba-output" if self.code else ".nba-thought"

    def response(self) -> Response:
        """Give what the model says."""
        return run_code(self.code) if self.code else sse(C({"content": "under way"}), Gate())


SLEEP = "import time\nprint('under way', flush=True)\ntime.sleep(600)"
CELLS = [
    Stopped("streaming", 150),
    Stopped("time.sleep", 250, SLEEP),
    Stopped("while True", 250, "print('under way', flush=True)\nwhile True: pass"),
    Stopped("pandas", 250, PANDAS),
    Stopped("time.sleep, kernel live", 250, SLEEP, "live"),
]


def milliseconds(notebook: Notebook, index: int, way: str, place: str = ".jp-OutputArea-output") -> int:
    """Run a cell, stop it once words stand in this place, and give the time from the click to its end."""
    notebook.page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    notebook.run(index, wait=False)
    expect(notebook.cell(index).locator(place).first).to_contain_text("under way", timeout=60_000)
    time.sleep(REST)
    return notebook.ended_after(index, WAYS[way])


def told(name: str, found: list[int], budget: int = 0) -> str:
    """Write one line."""
    within = f" (budget {budget})" if budget else ""
    return f"{name:32} {statistics.median(found):5.0f} ms, best {min(found)}{within}"


def main() -> None:
    """Take turns, so that whatever else the machine does falls on all alike."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else TIMES
    lab = Lab(Path(tempfile.mkdtemp(prefix="nbagent-bench-")))
    try:
        for kernel in ("fresh", "live"):
            stopped = [one for one in CELLS if one.kernel == kernel]
            sources = [f"%%agent --again --kernel {kernel}\n{one.name}" for one in stopped]
            found: dict[str, list[int]] = {}
            with ScriptedServer() as server:
                notebook = lab.notebook(f"{kernel}.ipynb", [*sources, SLEEP], server.base_url)
                for _ in range(times):
                    found.setdefault("a plain cell, toolbar", []).append(
                        milliseconds(notebook, len(stopped), "toolbar")
                    )
                    for way in WAYS:
                        for index, one in enumerate(stopped):
                            server.responses.append(one.response())
                            found.setdefault(f"{one.name}, {way}", []).append(
                                milliseconds(notebook, index, way, one.place)
                            )
            budgets = {f"{one.name}, {way}": one.budget for one in stopped for way in WAYS}
            for name, values in found.items():
                print(told(name, values, budgets.get(name, 0)), flush=True)
            notebook.shut_down_kernel()
    finally:
        lab.close()


if __name__ == "__main__":
    main()
