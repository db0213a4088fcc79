"""Libraries with threads of their own: each is used, kept, used again, gone back on and used after that.

python -m tests.kernels.libraries

prints the table: which work after an undo, and where no state is kept, why.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nbagent.errors import CheckpointDeclined
from nbagent.kernels.checkpoints import CheckpointKernel
from tests.kernels.running import make_kernel, run, value

HANG = 200.0  #: seconds after which a use counts as hung
#: OpenMP's threads spin while they wait for each other: on a busy machine that makes seconds of milliseconds.
QUIET = {"OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True)
class Library:
    module: str
    what: str  #: in words
    make: str  #: imports it and uses it, with threads where it has any; binds `kept`
    use: str  #: an expression that makes it work again on `kept`, with threads
    declined: str = ""  #: part of the reason why no checkpoint is taken; "" where one is

    @property
    def installed(self) -> bool:
        """Whether it is there."""
        return importlib.util.find_spec(self.module) is not None

    def __str__(self) -> str:
        return f"{self.module}-{'declined' if self.declined else 'works'}"


LIBRARIES = [
    Library(
        "numpy",
        "products and decompositions with BLAS threads",
        "import numpy as np; kept = np.random.default_rng(0).random((600, 600)); _ = kept @ kept",
        "round(float((kept @ kept).sum()), 3), round(float(np.linalg.svd(kept)[1][0]), 3)",
    ),
    Library(
        "pandas",
        "groups and merges",
        "import pandas as pd; kept = pd.DataFrame({'a': range(1000), 'b': ['x', 'y'] * 500})",
        "kept.groupby('b').a.sum().tolist(), kept.merge(kept, on='a').shape",
    ),
    Library(
        "pyarrow",
        "threaded reads of parquet, computations",
        "import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq\n"
        "kept = pa.table({'a': list(range(200_000))}); pq.write_table(kept, 't.parquet', row_group_size=10_000)\n"
        "_ = pq.read_table('t.parquet', use_threads=True)",
        "pq.read_table('t.parquet', use_threads=True).num_rows, pc.sum(kept['a']).as_py()",
    ),
    Library(
        "duckdb",
        "an in-memory database, threaded queries",
        "import duckdb; kept = duckdb.connect(); _ = kept.execute('create table t as select range a from "
        "range(2000000)'); _ = kept.execute('select a % 7, sum(a) from t group by 1').fetchall()",
        "kept.execute('select sum(a), count(distinct a % 97) from t').fetchall()",
    ),
    Library(
        "sklearn",
        "forests, boosting, k-means, cross-validation",
        "import numpy as np\nfrom sklearn.cluster import KMeans\n"
        "from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier\n"
        "from sklearn.model_selection import cross_val_score\n"
        "X = np.random.default_rng(0).random((3000, 8)); y = (X[:, 0] > 0.5).astype(int)\n"
        "kept = HistGradientBoostingClassifier(random_state=0).fit(X, y); _ = KMeans(3, random_state=0).fit(X)\n"
        "_ = RandomForestClassifier(20, n_jobs=2, random_state=0).fit(X, y)\n"
        "_ = cross_val_score(RandomForestClassifier(5, random_state=0), X, y, n_jobs=2)",
        "kept.score(X, y), HistGradientBoostingClassifier(random_state=0).fit(X, y).score(X, y), "
        "KMeans(3, random_state=0).fit(X).labels_.shape, "
        "RandomForestClassifier(20, n_jobs=2, random_state=0).fit(X, y).score(X, y), "
        "cross_val_score(RandomForestClassifier(5, random_state=0), X, y, n_jobs=2).round(3).tolist()",
    ),
    Library(
        "torch",
        "training, linear algebra, data loader workers",
        "import torch; torch.manual_seed(0); kept = torch.nn.Linear(512, 512); data = torch.rand(2048, 512)\n"
        "def step():\n"
        "  kept.zero_grad(); loss = kept(data).pow(2).mean(); loss.backward()\n"
        "  return round(loss.item(), 4), round(kept.weight.grad.abs().sum().item(), 1)\n"
        "_ = step(); _ = torch.linalg.svd(data[:300, :300])",
        "step(), round(torch.linalg.svd(data[:300, :300])[1][0].item(), 2), "
        "sum(len(b[0]) for b in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), 64, "
        "num_workers=2))",
    ),
    Library(
        "numba",
        "compiled functions",
        "import numba, numpy as np\n@numba.njit\ndef f(a):\n  s = 0.0\n  for x in a: s += x\n  return s\n"
        "kept = np.arange(1000.0); _ = f(kept)",
        "f(kept), numba.njit(lambda a: a.max())(kept)",
    ),
    Library(
        "numba",
        "with `parallel=True`",
        "import numba, numpy as np\n@numba.njit(parallel=True)\ndef f(a):\n  s = 0.0\n"
        "  for i in numba.prange(len(a)): s += a[i]\n  return s\nkept = np.arange(1000.0); _ = f(kept)",
        "f(kept)",
        declined="numba has run code with parallel=True",
    ),
    Library(
        "polars",
        "groups",
        "import polars as pl; kept = pl.DataFrame({'a': range(100_000)})\n"
        "_ = kept.group_by((pl.col('a') % 7).alias('k')).agg(pl.col('a').sum())",
        "kept.group_by((pl.col('a') % 7).alias('k')).agg(pl.col('a').sum()).shape",
        declined="polars is at work",
    ),
    Library(
        "matplotlib",
        "figures",
        "import matplotlib.pyplot as plt; kept = [1, 2, 3]; plt.plot(kept); plt.show()",
        "plt.figure(), plt.plot(kept)[0].get_ydata().tolist(), plt.close('all')",
    ),
]


async def go_back_on(library: Library, folder: Path) -> str:
    """Use it, undo and use it again; give why no state is kept with it, "" where all of it works."""
    kernel = make_kernel(folder, CheckpointKernel)
    assert isinstance(kernel, CheckpointKernel)
    why = ""
    try:
        await kernel.start()
        await run(kernel, "before = 1")
        first = await kernel.checkpoint()
        made = await run(kernel, library.make, timeout=HANG)
        assert made.executed.status == "ok", made.executed.error
        try:
            mark = await kernel.checkpoint()
        except CheckpointDeclined as declined:
            why = str(declined)
            await kernel.go_back(first)  # the state before it is still there
        else:
            used = await value_within(kernel, library.use)
            await run(kernel, "del kept")
            for _ in range(2):
                await kernel.go_back(mark)
                assert await value_within(kernel, library.use) == used
            await kernel.go_back(first)
            assert (await run(kernel, library.make, timeout=HANG)).executed.status == "ok"
            assert await value_within(kernel, library.use) == used
        assert await value(kernel, "before") == "1"
    finally:
        await kernel.close()
    return why


async def value_within(kernel: CheckpointKernel, expression: str) -> str:
    ran = await run(kernel, f"print({expression})", timeout=HANG)
    assert ran.executed.status == "ok", ran.executed.error
    return "\n".join(line for line in ran.text().splitlines() if line.strip())


async def main() -> None:
    """Print the table."""
    os.environ.update(QUIET)
    distributions = importlib.metadata.packages_distributions()
    for library in LIBRARIES:
        if not library.installed:
            print(f"| {library.module} | is not installed | |", flush=True)
            continue
        version = importlib.metadata.version(distributions[library.module][0])
        with tempfile.TemporaryDirectory() as folder:
            try:
                why = await go_back_on(library, Path(folder))
                came = f"no state is kept: {why}" if why else "works"
            except AssertionError as error:
                came = f"FAILS: {error}"
        print(f"| {library.module} {version} | {library.what} | {came} |", flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
