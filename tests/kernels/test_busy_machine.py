"""A process on a machine that is busy with other things: what does not get a processor is not idle."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are Linux's")

COMPUTES_WITHOUT_A_PROCESSOR = """
import hashlib, os, signal, threading
from nbagent.kernels.zygote.forking import busy_threads

idle = threading.Thread(target=threading.Event().wait, name="idle", daemon=True)
idle.start()
print(busy_threads() or "nobody")
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
parent = os.getpid()
if not (other := os.fork()):
    signal.alarm(60)
    while os.getppid() == parent:
        pass
burner = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 10**9), name="burner", daemon=True)
burner.start()
os.sched_setscheduler(burner.native_id, os.SCHED_IDLE, os.sched_param(0))
print(busy_threads() or "nobody", flush=True)
os.kill(other, signal.SIGKILL)
os._exit(0)
"""


def test_a_thread_that_computes_is_busy_though_others_have_the_processor() -> None:
    """A fork in the midst of native code would freeze the user's kernel."""
    done = subprocess.run(
        [sys.executable, "-c", COMPUTES_WITHOUT_A_PROCESSOR],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["nobody", "burner"], done.stderr
