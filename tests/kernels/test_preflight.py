"""What forbids a fork, found in real processes that have it loaded or open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="branches and checkpoints are forks")

_LOOK = """
import ctypes, sys
from IPython.core.interactiveshell import InteractiveShell
from nbagent.kernels.zygote import forking, preflight
shell = InteractiveShell.instance()
print(repr(preflight.refusal(shell)), repr(forking.native_obstacle("a checkpoint")))
{act}
print(repr(preflight.refusal(shell)), repr(forking.native_obstacle("a checkpoint")))
"""


def before_and_after(act: str, home: Path) -> list[str]:
    """Give what forbids a branch and a checkpoint in a process, before and after it did something."""
    environment = {**os.environ, "IPYTHONDIR": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", _LOOK.format(act=act)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("driver", ["libcuda.so.1", "libamdhip64.so.6.2"])
def test_a_loaded_driver_of_a_gpu_forbids_a_branch(tmp_path: Path, driver: str) -> None:
    # Any library of that name is mapped into the process as the driver's own would be.
    any_library = next(Path(psutil.__file__).parent.glob("*.so"))
    shutil.copy(any_library, tmp_path / driver)
    before, after = before_and_after(f"ctypes.CDLL({str(tmp_path / driver)!r})", tmp_path)
    assert before == "'' ''"
    assert after == f"\"a GPU's driver is loaded ({driver}), which does not survive a fork of your kernel\" ''"


@pytest.fixture
def device() -> Iterator[Path]:
    """A device file where GPUs have theirs; what it does is nothing."""
    path = Path("/dev/nvidia-of-a-test")
    try:
        os.mknod(path, 0o20600, Path("/dev/null").stat().st_rdev)
        path.open("rb").close()
    except OSError:
        pytest.skip("this system lets us make no device")
    yield path
    path.unlink()


def test_an_open_gpu_forbids_branch_and_checkpoint(device: Path, tmp_path: Path) -> None:
    before, after = before_and_after(f"held = open({str(device)!r}, 'rb')", tmp_path)
    assert before == "'' ''"
    assert after == (
        f"'a GPU is in use ({device}), which does not survive a fork of your kernel'"
        f" 'a GPU is in use ({device}), which does not survive a checkpoint'"
    )
