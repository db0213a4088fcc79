"""What every step writes to is copied right after a fork, and nothing else is."""

from __future__ import annotations

import platform
import re
import subprocess
import sys

import pytest

RELEASE = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or RELEASE < (5, 14), reason="the system cannot copy pages ahead"
)

#: Each round is a step between two forks: it writes to `work` every time, to `once` in the third round only.
PROGRAM = """
import mmap, os, resource, signal
from nbagent.kernels.zygote.hot_pages import HotPages

PAGES = 600
work, once = (mmap.mmap(-1, PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2))

def write(memory):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for page in range(PAGES):
        memory[page * mmap.PAGESIZE] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

hot, faults, sleepers = HotPages(), [], []
write(work), write(once)
for number in range(5):
    hot.learn()
    if not (pid := os.fork()):
        signal.pause()
    sleepers.append(pid)
    hot.copy()
    faults.append(write(work))
    faults.append(write(once) if number == 4 else 0)
    if number == 2:
        write(once)
for pid in sleepers:
    os.kill(pid, signal.SIGKILL)
print(*faults[::2], faults[-1])
"""


def test_the_pages_that_two_steps_wrote_to_are_copied_before_the_next_one() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    *work, once = map(int, done.stdout.split())
    assert work[0] > 500, "the first write after a fork copies the page"
    assert max(work[3:]) < 100, "they were copied before"
    assert once > 500, "what one step wrote to is no rule"
