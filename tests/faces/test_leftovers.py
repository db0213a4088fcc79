"""What is left of the agent's kernels when the user's own kernel is restarted, ends or is killed: nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from tests.faces.notebook import Cells
from tests.scripted_server import Recorded, Response, ScriptedServer, final, run_code

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="elsewhere programs may stay")]

TIMES = 10
START = "import subprocess; print('pid', subprocess.Popen(['sleep', '300']).pid)"


def starts_a_program(request: Recorded) -> Response:
    return final("ok") if request.body["messages"][-1]["role"] == "tool" else run_code(START)


@pytest.mark.parametrize("way", ["restart", "restart at once", "shut down", "kill"])
@pytest.mark.parametrize("checkpoints", ["on", "off"])
def test_neither_kernels_nor_programs_nor_files_are_left(
    tmp_path: Path, way: str, checkpoints: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ScriptedServer(answer=starts_a_program) as server:
        for name, value in {"BASE_URL": server.base_url, "MODEL": "stub", "CHECKPOINTS": checkpoints}.items():
            monkeypatch.setenv(f"NBAGENT_{name}", value)
        manager = KernelManager()
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        manager._kernel_spec = KernelSpec(argv=argv, display_name="Python", language="python")
        manager.start_kernel(cwd=str(tmp_path))
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        cells = Cells(client, lambda: None)
        cells.run("%load_ext nbagent")
        for number in range(TIMES):
            cells.run(f"%%agent --approve off --again\ntask {number}")
        mine = psutil.Process(manager.provisioner.pid)
        (agents,) = mine.children()
        family = [agents, *agents.children(recursive=True)]
        assert sum(one.name() == "sleep" for one in family) == TIMES
        end(manager, way)
        left = psutil.wait_procs(family, timeout=15)[1]
        if checkpoints == "off" and way in ("restart at once", "kill"):
            left = [one for one in left if one.name() != "sleep"]  # nobody is there to end them
        assert left == []
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
    for one in psutil.process_iter(["name", "cwd"]):
        if one.info["name"] == "sleep" and one.info["cwd"] == str(tmp_path):
            one.kill()
    assert list(tmp_path.glob("**/*.json")) == []


def end(manager: Any, way: str) -> None:
    if way == "kill":
        psutil.Process(manager.provisioner.pid).kill()
    elif way == "shut down":
        manager.shutdown_kernel()
    else:
        manager.restart_kernel(now=way == "restart at once")
