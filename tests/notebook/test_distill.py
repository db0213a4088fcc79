"""The distilled notebook: what the answer needs, imports first, and why the rest is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbagent.events import Adopted
from nbagent.notebook.distill import distill
from nbagent.notebook.export import export_notebook
from nbagent.notebook.slicing.flow import Flow
from nbagent.notebook.slicing.state import Source
from nbagent.steps import Step, read_items
from tests.notebook.clean_kernel import execute_clean
from tests.notebook.logs import Log, stream

FIGURE = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo="}, "metadata": {}}


def kept(log: Log) -> list[str]:
    """Distil and give the sources of the steps that are kept, imports first."""
    items = read_items(log.events)
    result = distill(items, log.events)
    steps = [result.kept[id(item)] for item in items if isinstance(item, Step) and id(item) in result.kept]
    return [*result.imports, *steps]


@pytest.mark.parametrize(
    ("cells", "left"),
    [
        (["d = {}", "d['a'] = 1", "del d['a']", "e = d.copy()", "e['b'] = 2", "print(d)"], [0, 1, 2, 5]),
        (["a = []", "b = a", "b.append(1)", "c = [5]", "c.append(3)", "print(a)"], [0, 1, 2, 5]),
        (["class A: pass", "a = A()", "a.x = 1", "b = A()", "b.x = 2", "print(a.x)"], [0, 1, 2, 5]),
        (["n = 0", "def f():\n    global n\n    n += 1", "f()", "f", "print(n)"], [0, 1, 2, 4]),
        (["k = 2", "ys = list(map(lambda x: x + k, [1]))", "k2 = 3", "print(ys)"], [0, 1, 3]),
        (["k = 2", "ys = [x + k for x in range(3)]", "x = 9", "print(ys)"], [0, 1, 3]),
        (["x = 1", "x = 2", "del x", "x = 3", "print(x)"], [3, 4]),
        (["it = iter([1, 2])", "next(it)", "len('it')", "print(next(it))"], [0, 1, 3]),
        (["x = 1", "exec('x = 5')", "y = 2", "print(x)"], [0, 1, 3]),
        (["x = 1", "globals()['x'] = 5", "y = 2", "print(x)"], [0, 1, 3]),
        (["import random\nrandom.seed(1)", "random.random()", "x = 1", "print(random.random())"], [0, 1, 3]),
        (["import random", "random.random()", "random.seed(1)", "print(random.random())"], [0, 2, 3]),
        (["x = 1", "class A:\n    x = 5\n    def f(self): return 2", "y = 2", "print(x)"], [0, 3]),
        (["T = int", "def f(a: T) -> T: return a", "y = 2", "print(f(1))"], [0, 1, 3]),
        (
            ["D = 1\ndef d(f): return f", "class A:\n    @d\n    def f(self, n=D): return n", "y = 2", "print(A)"],
            [0, 1, 3],
        ),
        (["import warnings\nwarnings.filterwarnings('ignore')", "x = 2", "print(1)"], [0, 2]),
        (["import numpy as np\nnp.set_printoptions(precision=2)", "x = 2", "print(np.pi)"], [0, 2]),
        (["import matplotlib.pyplot as plt\nplt.rcParams['font.size'] = 9", "x = 2", "print(1)"], [0, 2]),
        (["import os\nos.environ['A'] = '1'", "x = 2", "print(1)"], [0, 2]),
        (["%matplotlib inline", "%time x = 2", "%whos", "print(x)"], [0, 1, 3]),
        (["name = 'x'", "!echo {name}", "y = 1", "out = !echo $name", "print(out)"], [0, 3, 4]),
        (["x = 6", "x * 2", "y = 1", "print(_)"], [0, 1, 2, 3]),
        (["%%time\nx = 3", "%%timeit\ny = 4", "print(x)"], [0, 2]),
        (["from math import *", "y = 1", "print(pi)"], [0, 2]),
        (["df = load()", "df.fit()", "df2 = df", "df.head()", "print(df)"], [0, 1, 4]),
        (["df = make()", "df.drop('a', inplace=True)", "df.drop('b')", "print(df)"], [0, 1, 3]),
        (["df = make()", "sub = df[df.a > 1]", "sub['b'] = 1", "df['c'] = 2", "print(df)"], [0, 3, 4]),
        (["a = [1]", "def f(x=a):\n    x.append(1)", "f()", "print(a)"], [0, 1, 2, 3]),
        (["def f(): return g()", "def g(): return 1", "def h(): return 2", "print(f())"], [0, 1, 3]),
    ],
)
def test_a_cell_depends_on_what_made_and_changed_what_it_uses(cells: list[str], left: list[int]) -> None:
    flow = Flow([Source(cell) for cell in cells], hoist=False)
    assert sorted(flow.needed_by({len(cells) - 1})) == left


def test_imports_come_first_and_exploration_goes() -> None:
    log = Log().task().ran("import pandas as pd\ndf = pd.read_csv('a.csv')\ndf.head()", stream("a\n1"))
    log.ran("import os\nos.listdir()", stream("[...]")).ran("df.describe()", stream("..."))
    log.ran("# by hand\nfrom math import (\n    sqrt,\n    pi,\n)\nm = sqrt(df.a.mean())").ran(
        "print(m)", stream("2.5\n")
    )
    assert kept(log.answer("It is 2.5.")) == [
        "import pandas as pd",
        "from math import sqrt, pi",
        "df = pd.read_csv('a.csv')\ndf.head()",
        "# by hand\nm = sqrt(df.a.mean())",
        "print(m)",
    ]


def test_an_import_stays_where_it_is_when_it_means_something_else_there() -> None:
    cells = ["import sys\nsys.path.insert(0, 'lib')", "import mine\nx = mine.f()", "print(x)"]
    log = Log().task().ran(cells[0]).ran(cells[1]).ran(cells[2], stream("7"))
    assert kept(log.answer("7")) == cells
    log = Log().task().ran("from a import f\nx = f()").ran("from b import f\ny = f()").ran("print(x)", stream("7"))
    assert kept(log.answer("7")) == ["from a import f\nx = f()", "print(x)"]
    log = (
        Log()
        .task()
        .ran("import numpy as np, os\nimport json\nx = os.sep")
        .ran("print(x)", stream("7"))
        .answer("7")
    )
    assert kept(log) == ["import numpy as np, os", "x = os.sep", "print(x)"]
    log = Log().task().ran("import hvplot.pandas\nimport json").ran("print(7)", stream("7")).answer("7")
    assert kept(log) == ["import hvplot.pandas", "print(7)"]


def test_roots_are_what_the_answer_rests_on_figures_files_and_what_was_adopted() -> None:
    log = Log().task().ran("a = 1\nprint(a)", stream("1\n")).ran("b = 4\nprint(b)", stream("4.449\n"))
    log.ran("c = 5").ran("draw()", FIGURE).ran("open('x.txt', 'w').close()").ran("e = 6").ran(
        "print('end')", stream("end")
    )
    log.ran("!mkdir kept").ran("!ls")
    log.answer("It is 4.45.").add(Adopted(name="e", summary="int"))
    assert kept(log) == ["b = 4\nprint(b)", "draw()", "open('x.txt', 'w').close()", "e = 6", "!mkdir kept"]


def test_the_last_output_that_shows_the_most_of_the_answer_is_the_root() -> None:
    log = Log().task("Of 3 rows?").ran("print(1)", stream("3 7.5")).ran("print(2)", stream("7.5 and 12"))
    log.ran("print(3)", stream("3 rows")).answer("3 rows: 7.5, 12")
    assert kept(log) == ["print(2)"]
    log = (
        Log()
        .task("Which?")
        .ran("print(1)", stream("Kuwait\n"))
        .ran("print(2)", stream("5"))
        .answer("It is Kuwait.")
    )
    assert kept(log) == ["print(1)"]
    log = Log().task("Which?").ran("print(1)", stream("5")).ran("x = 1").answer("Unclear.")
    assert kept(log) == ["print(1)"]
    log = Log().task().ran("print(1)", stream("5")).ran("x = 7.5").observed("Changed: x float 7.5").ran("y = 1")
    assert kept(log.answer("It is 7.5, of 5.")) == ["print(1)", "x = 7.5"]


def test_every_run_that_answered_keeps_what_it_needs(tmp_path: Path) -> None:
    log = (
        Log()
        .task()
        .ran("a = 2\nprint(a)", stream("2"))
        .answer("2")
        .task()
        .ran("junk = 1")
        .ran("print(a + 1)", stream("3"))
    )
    assert kept(log.answer("3").task().ran("x = 9").ended("max_steps")) == ["a = 2\nprint(a)", "print(a + 1)"]
    log = (
        Log()
        .task()
        .shared("rows", [1], tmp_path)
        .shared("other", [1], tmp_path)
        .ran("print(len(rows))", stream("1"))
    )
    items = read_items(log.answer("1").events)
    result = distill(items, log.events)
    assert [getattr(item, "name", "step") for item in items if id(item) in result.kept] == ["rows", "step"]


def test_after_lost_state_nothing_of_before_is_needed() -> None:
    log = Log().task().kernel().ran("a = 1").died("boom()").kernel().ran("a = 2").ran("print(a)", stream("2"))
    assert kept(log.answer("2")) == ["a = 2", "print(a)"]


def test_a_needed_failed_cell_stays(tmp_path: Path) -> None:
    log = Log().task().failed("a = 1\nb = a / 0", "ZeroDivisionError: division by zero").failed("nope")
    log.ran("print(a)", stream("1\n")).answer("1")
    path = tmp_path / "a.ipynb"
    export_notebook(log.events, path, rung="distilled")
    assert execute_clean(path)[-1][1] == "1\n"


def exported(log: Log, path: Path) -> Any:
    report = export_notebook(log.events, path, rung="distilled")
    return report, nbformat.read(path, as_version=4)


def test_the_notebook_says_what_is_kept_and_what_was_left_out_and_why(tmp_path: Path) -> None:
    log = Log().task().thought("look").ran("import math").thought("see").ran("print(3)", stream("3"))
    log.thought("try").ran("z = 1").thought("do").ran("x = math.sqrt(4)").ran("print(x)", stream("2.0")).answer(
        "2.0"
    )
    report, notebook = exported(log, tmp_path / "a.ipynb")
    whys = [(dropped.step, dropped.why) for dropped in report.dropped]
    assert whys == [
        (1, "it only imports, and imports come first now"),
        (2, "it only looks: nothing that is kept depends on it"),
        (3, "nothing that is kept uses its z"),
    ]
    assert [dict(dropped) for dropped in notebook.metadata.nbagent.dropped] == [vars(d) for d in report.dropped]
    kinds = [cell.metadata.nbagent.kind for cell in notebook.cells]
    assert kinds == ["task", "imports", "thought", "action", "action", "ending"]
    assert notebook.cells[2].source == "do"
    assert notebook.cells[4].metadata.nbagent.kept == "its output supports the answer"
    assert all({"kind", "run", "step"} <= set(cell.metadata.nbagent) for cell in notebook.cells)
