"""Kernels started and ended two hundred times, in every way: nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from nbagent.errors import KernelLost
from nbagent.kernels.checkpoints import CheckpointKernel
from nbagent.kernels.process import ProcessKernel
from tests.kernels.running import gone, make_kernel, run, value

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
]

CYCLES = 200
FIRST = 8  #: cycles after which all that stays for good is there
STARTS = "import os, subprocess; print(os.getpid(), subprocess.Popen(['sleep', '600']).pid)"


def held() -> dict[str, list[str] | int]:
    """Give what this process holds: descriptors by what they are, children, threads, tasks."""
    me = psutil.Process()
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(descriptor.readlink()).partition(":[")[0])
    return {
        "descriptors": sorted(link for link in links if "/proc/" not in link),
        "children": sorted(child.name() for child in me.children(recursive=True)),
        "threads": me.num_threads(),
        "tasks": len(asyncio.all_tasks()),
    }


async def cycle(kernel: ProcessKernel, way: int) -> list[int]:
    """Start a kernel, have it start a program, and end it in one of five ways; give their numbers."""
    pids = [int(word) for word in (await run(kernel, STARTS)).text().split()]
    if isinstance(kernel, CheckpointKernel):
        mark = await kernel.checkpoint()
        pids += [int(word) for word in (await run(kernel, STARTS)).text().split()]
        await kernel.go_back(mark)
        pids.append(int(await value(kernel, "os.getpid()")))
    if way == 1:
        os.kill(pids[0] if pids[2:] == [] else pids[-1], signal.SIGKILL)
    elif way == 2:
        await kernel.restart()
    elif way == 3:
        await run(kernel, "import os; os._exit(1)")
    running = asyncio.create_task(run(kernel, "while True: pass", timeout=600)) if way == 4 else None
    await asyncio.sleep(0.05 if running else 0)
    await kernel.close()
    if running is not None:
        with pytest.raises(KernelLost):
            await running
    return pids


async def test_two_hundred_starts_and_ends_leave_no_process_socket_or_descriptor(
    tmp_path: Path, kernel_kind: type[ProcessKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    (rooms := Path(tempfile.mkdtemp(prefix="rooms-"))).chmod(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(rooms))
    before: dict[str, list[str] | int] = {}
    memory = 0
    for number in range(CYCLES):
        pids = await cycle(make_kernel(tmp_path, kernel_kind), number % 5)
        until = time.monotonic() + 5  # who is killed may need a moment
        while left := [pid for pid in pids if not gone(pid)]:
            assert time.monotonic() < until, f"cycle {number}: {left}"
            await asyncio.sleep(0.01)
        assert list(rooms.iterdir()) == [], f"cycle {number}"
        if number == FIRST:
            gc.collect()
            before, memory = held(), psutil.Process().memory_info().rss
    gc.collect()
    assert held() == before
    assert psutil.Process().memory_info().rss - memory < 20e6
    rooms.rmdir()
