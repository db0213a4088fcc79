"""What a run of 1,000 steps, each with a figure, costs the page: `python -m tests.benchmarks.page_memory [STEPS]`.

The view is driven in a real kernel, in a real JupyterLab in Chromium, with events as the agent would send them.
Told are the page's DOM nodes and JavaScript heap after a garbage collection, as the browser's protocol gives them;
a page without a run is the first line. Design: flat, since of old steps a line stays.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.browser.lab import Lab

MARKS = (50, 100, 250, 500, 750, 1000)
DRIVE = """
import base64, os, time
from pathlib import Path
from nbagent.view.widget import WidgetView
from tests.view.runs import acted, answered, said, shown, started, stepped, stream

def step(number):
    figure = base64.b64encode(os.urandom(20_000)).decode()
    outputs = [stream(f"{number}: 0.{number}\\n" * 20, step=number), shown({"image/png": figure}, step=number)]
    code = f"for value in range({number}):\\n    total = value * 2  # one more\\n" * 5
    thought = f"Step {number}: I look at the **next** part of `data`.\\n\\n- one\\n- two"
    return [*said(thought, step=number), *acted(code, *outputs, step=number), stepped(number)]

def drive(marks):
    view = WidgetView(on_stop=lambda: None)
    view.open()
    view.show(started())
    for number in range(1, max(marks) + 1):
        for event in step(number):
            view.show(event)
        time.sleep(0.02)
        if number in marks:
            Path("at").write_text(str(number))
            while Path("at").exists():
                time.sleep(0.05)
    view.show(answered())
    view.close()
"""


def main(steps: int) -> None:
    """Print one line a mark."""
    marks = [mark for mark in MARKS if mark < steps] + [steps]
    with tempfile.TemporaryDirectory() as scratch:
        lab = Lab(Path(scratch))
        notebook = lab.notebook("memory.ipynb", [DRIVE, f"drive({marks})"], "http://127.0.0.1:1")
        session = lab.page.context.new_cdp_session(lab.page)
        session.send("Performance.enable")

        def told(name: str) -> tuple[int, float]:
            session.send("HeapProfiler.collectGarbage")
            metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
            nodes, heap = int(metrics["Nodes"]), metrics["JSHeapUsedSize"] / 1e6
            print(f"{name:>16}{nodes:>10,}{heap:>12.1f}", flush=True)
            return nodes, heap

        print(f"{'steps':>16}{'nodes':>10}{'heap (MB)':>12}")
        notebook.run(0)
        told("none")
        notebook.run(1, wait=False)
        at = lab.folder / "at"
        for mark in marks:
            lab.until(lambda mark=mark: at.exists() and at.read_text() == str(mark), 600)  # type: ignore[misc]
            lab.page.wait_for_function("n => document.querySelectorAll('.nba-steps > *').length === n", arg=mark)
            time.sleep(0.5)
            told(str(mark))
            at.unlink()
        notebook.wait(1, 120)
        notebook.find(".nba-after").wait_for()
        told("when it is over")
        lab.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MARKS[-1])
