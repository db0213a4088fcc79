"""Takes pictures of `%%agent` cells in JupyterLab: a real run of the embedded model, or every state, scripted.

python -m tests.browser.pictures notebooks   # the README's pictures
python -m tests.browser.pictures --all FOLDER   # every state, in light, dark and high contrast
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.browser.lab import Lab, Notebook
from tests.scripted_server import C, F, Gate, Item, Response, ScriptedServer, T, final, sse

DATA = """import os
os.environ.update(NBAGENT_MODEL="scripted", NBAGENT_REFLECT="off")
import numpy as np, pandas as pd
rng = np.random.default_rng(7)
rows = []
for shop, visits in (("Basel", 41000), ("Lyon", 36000), ("Turin", 28000)):
    for i, month in enumerate(pd.date_range("2023-01-01", periods=24, freq="MS")):
        seen = visits * (1 + 0.012 * i) * rng.normal(1, 0.04)
        rate = 0.031 * (0.55 if shop == "Basel" and i > 17 else 1) * rng.normal(1, 0.05)
        rows.append({"month": month, "shop": shop, "visits": int(seen), "orders": int(seen * rate)})
sales = pd.DataFrame(rows)
del rows, shop, visits, i, month, seen, rate"""
TASK = "%%agent\nOrders in `sales` fell last summer although visits grew. Where, when, and by how much?"
FIRST = """import numpy as np

rate = sales.assign(rate=100 * sales.orders / sales.visits)
half = rate.month.dt.year.astype(str) + np.where(rate.month.dt.month < 7, " I", " II")
rate.groupby(["shop", half]).rate.mean().unstack().round(2)"""
WRONG = 'basel = rate[rate.store == "Basel"]'
LAST = """import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(7.2, 2.4))
for shop, rows in rate.groupby("shop"):  # one line a shop
    ax.plot(rows.month, rows.rate, label=shop, linewidth=1.8)
ax.set_ylabel("orders per 100 visits")
ax.legend(frameon=False, ncols=3, loc="lower left")
ax.spines[["top", "right"]].set_visible(False)"""
ANSWER = """**Basel, from July 2024.** Its conversion fell from 3.1 to 1.7 orders per 100 visits and stayed \
there; Lyon and Turin held at 3.1.

- Visits to Basel grew as before: the loss is in the shop, not in its traffic.
- At the old rate, Basel would have had about **4,200 more orders** in the second half of 2024."""
OVERWRITE = """table = sales.pivot_table(index="month", columns="shop", values="orders")
table.round(1).to_csv("report.csv")  # last month's report"""
DELETE = 'import shutil\n\nshutil.rmtree("exports")  # last year\'s files'


def acts(thought: str, code: str, call: str, *, gate: Gate | None = None, reasoning: str = "") -> Response:
    """A thought and a call; the gate holds in the middle of the code."""
    arguments = json.dumps({"code": code})
    half = 2 * len(arguments) // 3
    items: list[Item] = [C({"reasoning_content": reasoning})] if reasoning else []
    items += [
        C({"content": thought}),
        C(T(index=0, id=call, type="function", function=F("run_code", arguments[:half]))),
    ]
    items += [gate] if gate else []
    return sse(*items, C(T(index=0, function=F(None, arguments[half:]))), C({}, "tool_calls"))


def story(gate: Gate | None = None) -> list[Response]:
    """An analysis: a table, an error, a figure, an answer."""
    return [
        acts(
            "I compare the shops by **orders per 100 visits**, so that growing visits do not hide the fall.",
            FIRST,
            "a",
            reasoning="Orders fell while visits grew: look at orders / visits by shop.",
        ),
        acts("Basel stands out; I look at its months.", WRONG, "b"),
        acts(
            "The column is called `shop`. I draw the rate of all three to see when it broke.", LAST, "c", gate=gate
        ),
        sse(C({"content": ANSWER}), C({}, "stop")),
    ]


def open_notebook(lab: Lab, name: str, server: ScriptedServer, cells: list[str]) -> Notebook:
    notebook = lab.notebook(f"{name}.ipynb", [DATA, *cells], server.base_url)
    notebook.run(0)
    tidy(notebook)
    return notebook


def tidy(notebook: Notebook) -> None:
    """Take away what is not the cells."""
    notebook.page.add_style_tag(content=".jp-cell-toolbar { display: none; }")
    notebook.page.evaluate(
        "async () => { const app = window.jupyterapp;"
        " if (!app.shell.leftCollapsed) await app.commands.execute('application:toggle-left-area'); }"
    )


def picture(notebook: Notebook, path: Path, first: int, last: int) -> None:
    """Take the cells from `first` to `last`."""
    notebook.cell(first).scroll_into_view_if_needed()
    notebook.page.wait_for_timeout(400)
    upper, lower = (notebook.cell(index).bounding_box() for index in (first, last))
    assert upper is not None
    assert lower is not None
    height = lower["y"] + lower["height"] - upper["y"]
    clip = {"x": upper["x"], "y": upper["y"], "width": upper["width"], "height": height}
    notebook.page.screenshot(path=str(path), clip=clip)  # type: ignore[arg-type]  # FloatRect


LOCAL = """import os
os.environ["NBAGENT_CACHE"] = {cache!r}
os.environ["NBAGENT_MODEL"] = "local:qwen2.5-coder-1.5b"
from importlib.resources import files
import pandas as pd
gdp = pd.read_csv(files("nbagent") / "demo_data" / "gapminder_gdp_asia.csv")"""
QUESTION = """%%agent
Print the five countries of gdp with the highest gdpPercap_2007. Which one is first?"""


def readme(path: Path) -> None:
    """A real run: the embedded model, the user's own table, a figure and the answer."""
    from nbagent.models.weights import cache_folder

    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder), width=1040, height=1700)
        notebook = lab.notebook("gdp.ipynb", [LOCAL.format(cache=str(cache_folder())), QUESTION], "")
        tidy(notebook)
        notebook.run(0)
        notebook.run(1, wait=False)
        notebook.wait(1, timeout=400)
        notebook.page.evaluate(
            "document.querySelectorAll('.jp-OutputArea details').forEach(d => { d.open = true; })"
        )
        picture(notebook, path, 1, 1)
        lab.close()


def series(folder: Path) -> None:
    """A longer analysis while it runs, when it asks, and finished: only the model's replies are scripted."""
    with tempfile.TemporaryDirectory() as scratch, ScriptedServer() as server:
        lab = Lab(Path(scratch), width=1040, height=1700)
        (lab.folder / "exports").mkdir()
        streaming = Gate()
        server.responses = [*story(streaming), acts("The old exports are in the way.", DELETE, "d")]
        notebook = open_notebook(lab, "sales", server, [TASK, TASK])
        notebook.run(1, wait=False)
        lab.until(streaming.reached.is_set, 60)
        picture(notebook, folder / "running.png", 1, 1)
        streaming.open()
        notebook.wait(1)
        notebook.find(".nba-after").wait_for()
        picture(notebook, folder / "analysis.png", 1, 1)
        notebook.run(2, wait=False)
        notebook.find(".nba-approve").wait_for()
        picture(notebook, folder / "asking.png", 2, 2)
        notebook.find(".nba-stop").click()
        notebook.wait(2)
        lab.close()


LOOKS = [("Light", 1200), ("Dark", 1200), ("Dark High Contrast", 1200), ("Light", 600), ("Dark", 400)]
PLAN = {
    "steps": ["Compare orders per visit by shop", "Find the month of the break", "Say how many orders were lost"]
}
TASKS = [
    TASK,
    TASK,
    TASK,
    "%%agent --plan\nWhy did orders fall last summer?",
    "%%agent --max-cost 0.001 --price 5,15\nWhy did orders fall last summer?",
    "%%agent\nWhat is a typical month?",
]


def asks(question: str) -> Response:
    """A question in words."""
    call = T(index=0, id="q", type="function", function=F("ask_user", json.dumps({"question": question})))
    return sse(C({"content": "There are two ways to count."}), C(call), C({}, "tool_calls"))


class Shots:
    """Pictures of a cell in each look."""

    def __init__(self, notebook: Notebook, folder: Path) -> None:
        self.notebook = notebook
        self.folder = folder

    def take(self, name: str, cell: int) -> None:
        """Take the cell as it is now."""
        page = self.notebook.page
        for theme, width in LOOKS:
            page.set_viewport_size({"width": width, "height": 1600})
            self.notebook.lab.theme(f"JupyterLab {theme}")
            file = f"{name}-{theme.lower().replace(' ', '-')}-{width}.png"
            picture(self.notebook, self.folder / file, cell, cell)
        page.set_viewport_size({"width": 1200, "height": 1600})
        self.notebook.lab.theme("JupyterLab Light")


def everything(folder: Path) -> None:
    """Every state, in light, dark and high contrast, wide and narrow."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, ScriptedServer() as server:
        lab = Lab(Path(scratch), width=1200, height=1600)
        (lab.folder / "exports").mkdir()
        (lab.folder / "report.csv").write_text("old")
        notebook = open_notebook(lab, "states", server, TASKS)
        shots = Shots(notebook, folder)
        _answered(shots, server)
        _stopped_and_failed(shots, server)
        _questions(shots, server)
        notebook.save()
        notebook.shut_down_kernel()
        notebook.open_without_kernel()
        tidy(notebook)
        notebook.find("summary >> nth=0").click()
        shots.take("reopened", 1)
        lab.close()


def _answered(shots: Shots, server: ScriptedServer) -> None:
    notebook, lab = shots.notebook, shots.notebook.lab
    streaming, late = Gate(), Gate()
    server.responses = [*story(streaming)[:3], sse(C({"content": ANSWER}), late, C({}, "stop"))]
    notebook.run(1, wait=False)
    lab.until(streaming.reached.is_set, 60)
    shots.take("running", 1)
    streaming.open()
    lab.until(late.reached.is_set, 60)
    shots.take("answering", 1)
    late.open()
    notebook.wait(1)
    notebook.find(".nba-after").wait_for()
    shots.take("finished", 1)


def _stopped_and_failed(shots: Shots, server: ScriptedServer) -> None:
    notebook, lab = shots.notebook, shots.notebook.lab
    thinking, dies = Gate(), Gate()
    server.responses += [
        acts("The old exports are in the way.", DELETE, "d"),
        sse(C({"content": "I will look at the **months** first, then at"}), thinking),
        sse(C({"content": "I will look at the table's columns"}), dies, C({}, "content_filter")),
    ]
    notebook.run(2, wait=False)
    notebook.find(".nba-approve").wait_for()
    shots.take("asking", 2)
    notebook.find(".nba-deny").click()
    lab.until(thinking.reached.is_set, 60)
    notebook.page.wait_for_timeout(300)
    notebook.ended_after(2, "document.querySelector('.nba-stop').click()")
    shots.take("stopped", 2)
    notebook.run(3, wait=False)
    lab.until(dies.reached.is_set, 60)
    dies.open()
    notebook.wait(3)
    shots.take("failed", 3)


def _questions(shots: Shots, server: ScriptedServer) -> None:
    notebook = shots.notebook
    stop = "document.querySelector('.nba-stop').click()"
    server.responses += [
        final(json.dumps(PLAN)),
        acts("I write the table out.", OVERWRITE, "w"),
        acts("I look first.", "sales.head()", "h"),
        asks("Should a typical month be the median of all shops, or of each?"),
    ]
    for name, cell, waits, click in (
        ("plan", 4, ".nba-card", ""),
        ("overwriting", 4, ".nba-always-session", ".nba-change"),
        ("budget", 5, ".nba-card", ""),
        ("question", 6, ".nba-words", ""),
    ):
        if name == "overwriting":
            notebook.find(".nba-approve").click()
        else:
            notebook.run(cell, wait=False)
        notebook.find(waits).wait_for()
        shots.take(name, cell)
        if click:
            notebook.find(click).click()
            shots.take("editing", cell)
        if name != "plan":
            notebook.ended_after(cell, stop)


if __name__ == "__main__":
    if sys.argv[1] == "--all":
        everything(Path(sys.argv[2]))
    else:
        series(Path(sys.argv[1]))
        readme(Path(sys.argv[1]) / "cell.png")
