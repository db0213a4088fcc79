"""Real sessions with what is hard to slice or to compare: each is distilled, and the distilled notebook verifies.

A long suite: `pytest -m long -n 0 tests/notebook/test_odd_sessions.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nbagent import Agent
from nbagent.notebook.request import ExportRequest, export_session
from tests.scripted_server import ScriptedServer, final, run_code

#: Cells, the answer, and the steps (from 1) that a distilled notebook does without.
CASES: dict[str, tuple[list[str], str, list[int]]] = {
    "figures": (
        [
            "import pandas as pd, matplotlib.pyplot as plt\n%matplotlib inline\ndf = pd.DataFrame({'a': [3, 1, 2]})",
            "df.a.plot()",
            "junk = df.describe()",
            "fig, ax = plt.subplots()\nax.bar(df.index, df.a)\nax.set_title('t');",
            "plt.savefig('x.png')",
            "print(df.a.sum())",
        ],
        "6",
        [3],
    ),
    "shell": (
        ["!printf 'a,b\\n1,2\\n' > t.csv", "rows = open('t.csv').readlines()", "!rm t.csv", "rows", "print(rows[1])"],
        "1,2",
        [4],
    ),
    "folders": (
        [
            "import os\nos.makedirs('sub', exist_ok=True)\nos.chdir('sub')",
            "open('q.txt', 'w').write('5');",
            "x = 4",
            "print(open('q.txt').read())",
        ],
        "5",
        [3],
    ),
    "a folder made, then gone to": (
        ["import os\nos.makedirs('sub dir')", "%cd 'sub dir'", "open('a.txt', 'w').write('7');", "z = 3", "%cd ..", "print(open('sub dir/a.txt').read())"],
        "7",
        [4],
    ),
    "a failure that changed a table under another name": (
        ["import pandas as pd\ndf = pd.DataFrame({'a': [1]})\nt = df", "t['z'] = 5\n1 / 0", "k = 1", "print(df.z.sum())"],
        "5",
        [3],
    ),
    "a value that no output shows": (
        ["import pandas as pd\ndf = pd.DataFrame({'a': [1.5, 2]})", "total = df.a.sum()", "junk = df.T"],
        "The total is 3.5.",
        [3],
    ),
    "await": (
        ["import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3", "v = await f()", "w = await f()", "print(v)"],
        "3",
        [3],
    ),
    "database": (
        [
            "import sqlite3\ncon = sqlite3.connect(':memory:')\ncur = con.cursor()",
            "cur.execute('create table t (a int)');",
            "cur.executemany('insert into t values (?)', [(1,), (5,)]);",
            "n = 3",
            "print(cur.execute('select sum(a) from t').fetchone())",
        ],
        "6",
        [4],
    ),
    "tables as HTML, addresses and sets": (
        [
            "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})",
            "df.style.highlight_max()",
            "df.info()",
            "print(set(df.columns) | {'b', 'c'}, object(), df.style)",
            "df.describe()",
        ],
        "done",
        [],
    ),
    "dataclass": (
        [
            "from dataclasses import dataclass, field\n@dataclass\nclass P:\n    x: int = 0\n    log: list = field(default_factory=list)",
            "p = P()",
            "p.x += 4\np.log.append(p.x)",
            "q = P(1)",
            "q.x = 9",
            "print(p)",
        ],
        "4",
        [4, 5],
    ),
    "times": (
        [
            "import time, sys\nfor i in range(3):\n    sys.stderr.write(f'\\r{i}')\nt = time.perf_counter()",
            "%%time\nz = sum(range(10))",
            "%timeit -n1 -r1 z",
            "print('elapsed', f'{time.perf_counter() - t:.3f} s', z)",
        ],
        "45",
        [3],
    ),
    "modules": (["%%writefile helper.py\ndef f(): return 8", "import helper", "x = 1", "print(helper.f())"], "8", [3]),
    "pickles": (
        ["import pickle\npickle.dump({'a': 1}, open('o.pkl', 'wb'))", "y = 3", "print(pickle.load(open('o.pkl', 'rb')))"],
        "1",
        [2],
    ),
    "environment": (["import os\nos.environ['MODE'] = 'xyz'", "import json", "print(os.environ['MODE'])"], "xyz", [2]),
    "seeds": (
        [
            "import numpy as np, random\nnp.random.seed(1)\nrandom.seed(1)",
            "np.random.normal(size=3)",
            "a = 5",
            "print(np.random.normal())",
        ],
        "It is so.",
        [3],
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_the_distilled_notebook_verifies(name: str, tmp_path: Path) -> None:
    cells, answer, left_out = CASES[name]
    (tmp_path / "work").mkdir()
    with (
        ScriptedServer([*map(run_code, cells), final(answer)]) as server,
        Agent(model="stub", base_url=server.base_url, folder=str(tmp_path / "work"), approve="off") as agent,
    ):
        assert agent.run_sync("go").reason == "answered"
        assert agent.session is not None
        request = ExportRequest(distill=True, verify=True)
        exported = export_session(agent.session.events, tmp_path / "a.ipynb", request)
    assert exported.report.rung == "distilled", exported.lines
    assert [dropped.step for dropped in exported.report.dropped][: len(left_out)] == left_out
