"""Ordinary data science works under confinement as it does without: 25 named pieces and more (long suite)."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio

from nbagent.kernels.launch import landlock_abi
from nbagent.kernels.process import ProcessKernel
from nbagent.programs import ProgramEnded
from tests.environments import make_environment, make_wheel
from tests.kernels.running import make_kernel, run

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not landlock_abi(), reason="this system has no Landlock"),
]

WORK = {
    "a table from a file and back": "import pandas as pd\n"
    "pd.DataFrame({'a': [1, 2]}).to_csv('t.csv', index=False)\n"
    "assert pd.read_csv('t.csv').a.sum() == 3",
    "parquet": "df = pd.DataFrame({'a': range(99)}); df.to_parquet('t.parquet')\n"
    "assert pd.read_parquet('t.parquet').equals(df)",
    "pickle and numpy files": "import numpy as np; df = pd.DataFrame({'a': range(99)})\n"
    "df.to_pickle('t.pkl'); np.save('a.npy', df.a)\n"
    "assert np.load('a.npy').sum() == pd.read_pickle('t.pkl').a.sum()",
    "a memory map": "m = np.memmap('m.dat', dtype='f8', mode='w+', shape=(1000,)); m[:] = 1; m.flush()\n"
    "assert np.memmap('m.dat', dtype='f8', mode='r').sum() == 1000",
    "a plot and its caches": "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.title('é')\n"
    "plt.savefig('p.png'); plt.show()",
    "a seaborn figure": "import seaborn as sns\nsns.scatterplot(df.assign(b=df.a ** 2), x='a', y='b')\n"
    "plt.savefig('s.pdf')",
    "sqlite": "import sqlite3\nc = sqlite3.connect('d.db'); df.to_sql('t', c, if_exists='replace')\n"
    "assert pd.read_sql('select count(*) n from t', c).n[0] == 99; c.close()",
    "duckdb in memory and in a file": "import duckdb\n"
    "assert duckdb.sql('select sum(a) from df').fetchall()[0][0] == 4851\n"
    "d = duckdb.connect('d.duck'); d.execute('create or replace table t as select 1 x'); d.close()",
    "polars, lazily": "import polars as pl\n"
    "assert pl.scan_parquet('t.parquet').select(pl.col('a').sum()).collect().item() == 4851",
    "arrow datasets": "import pyarrow as pa, pyarrow.dataset as ds\n"
    "ds.write_dataset(pa.table({'k': [1, 2], 'v': [3, 4]}), 'parts', format='parquet', partitioning=['k'],"
    " existing_data_behavior='overwrite_or_ignore')\nassert ds.dataset('parts').count_rows() == 2",
    "seaborn's data sets, of which one is there": "assert len(sns.load_dataset('tips')) == 2",
    "scikit-learn's bundled data": "from sklearn.datasets import load_iris, load_digits\n"
    "X, y = load_iris(return_X_y=True); assert len(load_digits().images) == 1797\n"
    "from sklearn.datasets import get_data_home; import os; assert os.access(get_data_home(), os.W_OK)",
    "a model fitted on all processors": "from sklearn.ensemble import RandomForestClassifier\n"
    "assert RandomForestClassifier(20, n_jobs=-1).fit(X, y).score(X, y) > 0.9",
    "cross-validation in processes": "from sklearn.linear_model import LogisticRegression\n"
    "from sklearn.model_selection import cross_val_score\n"
    "assert len(cross_val_score(LogisticRegression(max_iter=500), X, y, cv=3, n_jobs=2)) == 3",
    "joblib, with its cache": "import joblib\nf = joblib.Memory('cache', verbose=0).cache(lambda x: x * 2)\n"
    "assert f(2) == 4\nassert joblib.Parallel(2)(joblib.delayed(abs)(-n) for n in range(4)) == [0, 1, 2, 3]",
    "a model saved and loaded": "joblib.dump(LogisticRegression(max_iter=500).fit(X, y), 'm.joblib')\n"
    "assert joblib.load('m.joblib').n_features_in_ == 4",
    "multiprocessing by fork and by spawn": "import multiprocessing as mp\n"
    "for how in ('fork', 'spawn'):\n"
    "    with mp.get_context(how).Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]",
    "shared memory and a manager": "from multiprocessing.shared_memory import SharedMemory\n"
    "s = SharedMemory(create=True, size=10); s.close(); s.unlink()\n"
    "with mp.Manager() as m: assert m.list([1])[0] == 1",
    "threads and futures": "from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor\n"
    "with ThreadPoolExecutor(4) as t: assert sum(t.map(abs, range(9))) == 36\n"
    "with ProcessPoolExecutor(2, mp.get_context('fork')) as t: assert sum(t.map(abs, range(9))) == 36",
    "a subprocess with pipes": "import subprocess\n"
    "assert subprocess.run('cat | wc -c', shell=True, input=b'abc', capture_output=True).stdout.strip() == b'3'",
    "shell commands and a terminal": "files = !ls *.csv\nassert files == ['t.csv']\n!echo hello > h.txt\n"
    "import pty, os; os.close(pty.openpty()[0])",
    "temporary files and folders": "import tempfile\n"
    "with tempfile.TemporaryDirectory() as d: open(d + '/f', 'w').write('x')\n"
    "tempfile.NamedTemporaryFile(suffix='.csv').write(b'a')",
    "archives": "import zipfile, tarfile, shutil\nzipfile.ZipFile('z.zip', 'w').write('t.csv')\n"
    "shutil.make_archive('all', 'gztar', '.', 'parts'); tarfile.open('all.tar.gz').getnames()",
    "torch: training, saving, loading": "import torch; from sklearn.datasets import load_iris\n"
    "X, y = load_iris(return_X_y=True)\n"
    "net = torch.nn.Linear(4, 3); opt = torch.optim.SGD(net.parameters(), 0.1)\n"
    "loss = torch.nn.functional.cross_entropy(net(torch.tensor(X, dtype=torch.float)), torch.tensor(y))\n"
    "loss.backward(); opt.step(); torch.save(net.state_dict(), 'n.pt'); net.load_state_dict(torch.load('n.pt'))",
    "a torch DataLoader with workers": "from torch.utils.data import DataLoader, TensorDataset\n"
    "loader = DataLoader(TensorDataset(torch.arange(100.)), batch_size=10, num_workers=2)\n"
    "assert sum(float(b[0].sum()) for b in loader) == 4950",
    "a notebook that is executed": "import nbformat, nbclient\n"
    "nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell('6 * 7')])\n"
    "nbformat.write(nb, 'n.ipynb'); done = await nbclient.NotebookClient(nb).async_execute()\n"
    "assert done.cells[0].outputs[0].data['text/plain'] == '42'",
    "asyncio, and await at the top": "import asyncio\nawait asyncio.sleep(0.01)\n"
    "p = await asyncio.create_subprocess_exec('true'); assert await p.wait() == 0",
    "a module of one's own, written and imported": "with open('helpers_of_mine.py', 'w') as f:\n"
    "    f.write('def double(x): return 2 * x')\n"
    "import sys, importlib; sys.path.insert(0, '.'); importlib.invalidate_caches()\n"
    "import helpers_of_mine; assert helpers_of_mine.double(2) == 4",
}  # fmt: skip


NEEDS = {
    "parquet": "pyarrow",
    "a seaborn figure": "seaborn",
    "duckdb in memory and in a file": "duckdb",
    "polars, lazily": "polars",
    "arrow datasets": "pyarrow",
    "archives": "pyarrow",
    "seaborn's data sets, of which one is there": "seaborn",
    "scikit-learn's bundled data": "sklearn",
    "a model fitted on all processors": "sklearn",
    "cross-validation in processes": "sklearn",
    "joblib, with its cache": "joblib",
    "a model saved and loaded": "sklearn",
    "torch: training, saving, loading": "torch",
    "a torch DataLoader with workers": "torch",
}
TALKS_BY_NETWORK = {"a notebook that is executed"}  #: to a kernel of its own, which `strict` forbids


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["workspace", "strict"])
async def confined(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ProcessKernel]:
    mode: Literal["workspace", "strict"] = request.param
    place = tmp_path_factory.mktemp("a-long-name-as-home-folders-and-projects-have-them")
    cache = place / "home" / ".cache" / "seaborn"
    cache.mkdir(parents=True)
    (cache / "tips.csv").write_text("total_bill,tip,day,time,sex,smoker\n9,1,Sat,Lunch,x,No\n8,2,Sun,Lunch,x,No\n")
    python = make_environment(place / "environment")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(place / "home"))
        kernel = make_kernel(place, confine=mode, python=python)
        await kernel.start()
        yield kernel
        await kernel.close()


@pytest.mark.parametrize("piece", WORK)
async def test_a_piece_of_ordinary_work_passes(confined: ProcessKernel, piece: str) -> None:
    if (module := NEEDS.get(piece)) and importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    if piece in TALKS_BY_NETWORK and "no network" in confined.confinement:
        pytest.skip("it needs the network")
    ran = await run(confined, WORK[piece], timeout=240)
    assert ran.executed.status == "ok", ran.executed.error + ran.text("stderr")
    assert "blocked" not in ran.text("stderr")


async def test_an_approved_pip_install_passes(confined: ProcessKernel, tmp_path: Path) -> None:
    assert (await run(confined, "import tinylib")).executed.error.startswith("ModuleNotFoundError")
    wheel = make_wheel(tmp_path, "tinylib")
    ended = [item async for item in confined.install(["--no-index", str(wheel)], timeout=120)][-1]
    assert isinstance(ended, ProgramEnded)
    assert (ended.code, [(one.name, one.now) for one in ended.packages]) == (0, [("tinylib", "1.0")])
    assert (await run(confined, "import tinylib; print(tinylib.answer)")).text() == "42\n"


async def test_the_list_has_what_was_promised() -> None:
    assert len(WORK) + 1 >= 25
