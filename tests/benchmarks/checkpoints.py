"""What a checkpoint and an undo cost at 10 MB, 500 MB and 2 GB: medians and the worst, in ms, and the memory.

Of a checkpoint, the system's own part is told: the fork, which copies the tables of all pages.

python -m tests.benchmarks.checkpoints [MB...]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from nbagent.kernels.checkpoints import CheckpointKernel, own_memory
from nbagent.kernels.forkable import ForkableChild
from tests.kernels.running import run

STEPS = 20


async def measure(megabytes: int) -> str:
    """Keep a state after each of `STEPS` steps that rewrite 1 % of the data, then go back five times."""
    folder = Path(tempfile.mkdtemp(prefix="nbagent-bench-"))
    kernel = CheckpointKernel(folder=folder, scratch=folder / "scratch", kept=STEPS, memory_share=0.9)
    await kernel.start()
    try:
        await run(kernel, f"import numpy as np, pandas as pd\nd = np.ones({megabytes} * 131072)")
        made, back, marks = [], [], []
        for step in range(STEPS):
            await run(kernel, f"n = len(d) // 100; d[{step} * n:({step} + 1) * n] += 1")
            started = time.perf_counter()
            marks.append(await kernel.checkpoint())
            made.append((time.perf_counter() - started) * 1000)
        assert isinstance(kernel._child, ForkableChild)
        sleepers = [sleeper.pid for sleeper in kernel._sleepers.values()]
        forks = statistics.median(sleeper.milliseconds for sleeper in kernel._sleepers.values())
        memory = own_memory(sleepers, kernel._child.worker) / 1e6
        for mark in reversed(marks[-5:]):
            started = time.perf_counter()
            await kernel.go_back(mark)
            back.append((time.perf_counter() - started) * 1000)
        return (
            f"{megabytes:5} MB: checkpoint {statistics.median(made):5.1f} (best {min(made):5.1f}, "
            f"worst {max(made):5.1f}) ms, of it the fork {forks:5.1f}, "
            f"undo {statistics.median(back):5.1f} (best {min(back):5.1f}, worst {max(back):5.1f}) ms, "
            f"{STEPS} kept take {memory:.0f} MB"
        )
    finally:
        await kernel.close()


async def main() -> None:
    for megabytes in map(int, sys.argv[1:] or (10, 500, 2000)):
        print(await measure(megabytes), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
