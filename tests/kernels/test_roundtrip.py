"""What our execute costs beside jupyter_client's own, measured in turns in the same run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from nbagent.kernels.process import ProcessKernel
from tests.kernels.running import run

CODE = "x = x + 1; print(x)"
TIMES = 60


@pytest.fixture
def plain_client() -> Iterator[Any]:
    manager, client = start_new_kernel(extra_arguments=["--IPKernelApp.log_level=50"])
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def plain_seconds(client: Any) -> list[float]:
    """Time jupyter_client's blocking `execute_interactive`."""
    seconds = []
    for _ in range(TIMES // 2):
        started = time.perf_counter()
        client.execute_interactive(CODE, store_history=True, allow_stdin=False, output_hook=lambda message: None)
        seconds.append(time.perf_counter() - started)
    return seconds


async def our_seconds(kernel: ProcessKernel) -> list[float]:
    seconds = []
    for _ in range(TIMES):
        started = time.perf_counter()
        await run(kernel, CODE)
        seconds.append(time.perf_counter() - started)
    return seconds


async def test_a_round_trip_costs_at_most_a_tenth_more(own_kernel: ProcessKernel, plain_client: Any) -> None:
    await run(own_kernel, "x = 0")
    await asyncio.to_thread(plain_client.execute_interactive, "x = 0")
    theirs = await asyncio.to_thread(plain_seconds, plain_client)
    ours = await our_seconds(own_kernel)
    theirs += await asyncio.to_thread(plain_seconds, plain_client)
    our, their = statistics.median(ours), statistics.median(theirs)
    ratio = our / their
    print(f"ours {our * 1e3:.2f} ms, theirs {their * 1e3:.2f} ms, {ratio:.2f}")
    assert ratio <= 1.1
