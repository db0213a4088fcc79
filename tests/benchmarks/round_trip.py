"""What nbagent's `execute` costs beside jupyter_client's own, in turns in the same run.

python -m tests.benchmarks.round_trip
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

from nbagent.kernels.process import ProcessKernel

CODE = "x = x + 1; print(x)"
TIMES = 200


def plain_seconds(client: Any) -> float:
    """Time jupyter_client's blocking `execute_interactive` once."""
    started = time.perf_counter()
    client.execute_interactive(CODE, allow_stdin=False, output_hook=lambda message: None)
    return time.perf_counter() - started


async def our_seconds(kernel: ProcessKernel, code: str = CODE) -> float:
    """Time ours once."""
    started = time.perf_counter()
    async for _ in kernel.execute(code, timeout=60):
        pass
    return time.perf_counter() - started


async def main() -> None:
    """Take turns of ten, print the medians and their ratio."""
    manager, client = start_new_kernel(extra_arguments=["--IPKernelApp.log_level=50"])
    with tempfile.TemporaryDirectory() as scratch:
        kernel = ProcessKernel(folder=Path(scratch), scratch=Path(scratch))
        await our_seconds(kernel, "x = 0")
        await asyncio.to_thread(client.execute_interactive, "x = 0")
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(TIMES // 10):
            theirs += [await asyncio.to_thread(plain_seconds, client) for _ in range(10)]
            ours += [await our_seconds(kernel) for _ in range(10)]
        await kernel.close()
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    our, their = 1000 * statistics.median(ours), 1000 * statistics.median(theirs)
    print(f"nbagent {our:.2f} ms, jupyter_client {their:.2f} ms, ratio {our / their:.2f} (budget 1.1)")


if __name__ == "__main__":
    asyncio.run(main())
