"""Kernels that die, do not start, or have to end: noticed, told, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nbagent.errors import KernelLost, KernelNotStarted
from nbagent.kernels.process import ProcessKernel
from tests.kernels.running import KernelMaker, gone, run, value

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and process groups")
shared_loop = pytest.mark.asyncio(loop_scope="module")  #: for the kernel that tests share, and kill


def wait_until_gone(pid: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not gone(pid):
        assert time.monotonic() < until, f"process {pid} is still alive"
        time.sleep(0.02)


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the private folders of kernels are made."""
    place = Path(tempfile.mkdtemp(prefix="rooms-"))  # short: a socket's path is limited
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    shutil.rmtree(place)


@shared_loop
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("os._exit(7)", "the kernel process exited with code 7"),
        ("os.kill(os.getpid(), 9)", "the kernel process was killed by signal 9 (SIGKILL)"),
    ],
)
async def test_a_death_is_noticed_soon_and_told_with_what_was_printed(
    shared_kernel: ProcessKernel, code: str, error: str
) -> None:
    before = shared_kernel.generation
    await run(shared_kernel, "rows = [1, 2, 3]")
    started = time.monotonic()
    ran = await run(shared_kernel, f"import os; print('before', flush=True); {code}", timeout=600)
    assert time.monotonic() - started < 60
    assert ran.executed.status == "died"
    assert ran.executed.error == error
    assert ran.executed.state_lost
    assert ran.executed.lost_names == ("rows",)
    assert ran.text() == "before\n"
    assert shared_kernel.generation == before + 1


@shared_loop
async def test_after_a_death_nothing_is_run_again(shared_kernel: ProcessKernel) -> None:
    await run(shared_kernel, "rows = [1, 2, 3]")
    await run(shared_kernel, "f = open('log.txt', 'a'); f.write('once\\n'); f.close(); import os; os._exit(9)")
    ran = await run(shared_kernel, "print(open('log.txt').read()); print(rows)")
    assert ran.text() == "once\n\n"
    assert ran.executed.status == "error"
    assert ran.executed.error == "NameError: name 'rows' is not defined"


@shared_loop
async def test_a_death_between_two_executions_is_told_by_the_next_one(shared_kernel: ProcessKernel) -> None:
    pid = int(await value(shared_kernel, "__import__('os').getpid()"))
    await run(shared_kernel, "rows = 1")
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid, 5)
    ran = await run(shared_kernel, "print('not run')")
    assert ran.executed.status == "died"
    assert ran.executed.error == (
        "the kernel process was killed by signal 9 (SIGKILL) before this code, which was not run"
    )
    assert ran.executed.lost_names == ("rows",)
    assert ran.outputs == []
    assert await value(shared_kernel, "'new'") == "new"


async def test_three_deaths_in_a_row_are_the_end_and_what_the_kernel_survives_starts_the_count_anew(
    own_kernel: ProcessKernel,
) -> None:
    die = "import os; os._exit(1)"
    for survived in (True, False, False):
        assert (await run(own_kernel, die)).executed.status == "died"
        if survived:
            assert (await run(own_kernel, "1/0")).executed.status == "error"
    with pytest.raises(KernelLost, match="died 3 times in a row, at last: the kernel process exited with code 1"):
        await run(own_kernel, die)


async def test_a_kernel_that_cannot_be_started_again_is_the_end(kernel_maker: KernelMaker, tmp_path: Path) -> None:
    once = f'[ -e {tmp_path}/used ] && {{ echo "no more" >&2; exit 2; }}; exec {sys.executable} "$@"'
    kernel = kernel_maker(python=interpreter(tmp_path, once))
    await run(kernel, "1")
    (tmp_path / "used").touch()
    with pytest.raises(KernelLost) as raised:
        await run(kernel, "import os; os._exit(7)")
    assert str(raised.value) == (
        "the kernel process exited with code 7, and no new one could be started: "
        "the kernel process exited with code 2 while it was starting: no more"
    )


# -- start ----------------------------------------------------------------------------------------------


def interpreter(tmp_path: Path, script: str) -> str:
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


async def test_a_failed_start_quotes_the_kernels_own_words(
    kernel_maker: KernelMaker, tmp_path: Path, rooms: Path
) -> None:
    kernel = kernel_maker(python=interpreter(tmp_path, "echo 'the disk is on fire' >&2; exit 3"))
    with pytest.raises(KernelNotStarted) as raised:
        await kernel.start()
    assert str(raised.value) == (
        "the kernel process exited with code 3 while it was starting: the disk is on fire"
    )
    await kernel.close()
    assert list(rooms.iterdir()) == []


async def test_a_silent_start_ends_at_the_limit(kernel_maker: KernelMaker, tmp_path: Path, rooms: Path) -> None:
    kernel = kernel_maker(python=interpreter(tmp_path, "exec sleep 60"), startup_timeout=0.5)
    with pytest.raises(KernelNotStarted, match=r"did not answer within 0\.5 s and said nothing"):
        await kernel.start()
    await kernel.close()
    assert list(rooms.iterdir()) == []


async def test_a_missing_interpreter_is_named(kernel_maker: KernelMaker) -> None:
    with pytest.raises(KernelNotStarted, match="there is no interpreter /nowhere/python"):
        await kernel_maker(python="/nowhere/python").start()


async def test_an_interpreter_without_ipykernel_is_told_what_to_install(
    kernel_maker: KernelMaker, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = bare / "bin" / "python"
    with pytest.raises(KernelNotStarted) as raised:
        await kernel_maker(python=str(python)).start()
    assert str(raised.value) == f"{python} has no ipykernel: run `{python} -m pip install ipykernel`"


async def test_a_broken_ipykernel_is_quoted(kernel_maker: KernelMaker, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "modules" / "ipykernel").mkdir(parents=True)
    (tmp_path / "modules" / "ipykernel" / "__init__.py").write_text("raise RuntimeError('half installed')")
    python = interpreter(tmp_path, f'PYTHONPATH={tmp_path}/modules exec {sys.executable} "$@"')
    with pytest.raises(KernelNotStarted, match="RuntimeError: half installed"):
        await kernel_maker(python=python).start()


# -- end ------------------------------------------------------------------------------------------------


async def test_nothing_is_left_after_closing(kernel_maker: KernelMaker, rooms: Path) -> None:
    kernel = kernel_maker()
    code = "import os, subprocess; print(os.getpid(), subprocess.Popen(['sleep', '300']).pid)"
    pids = [int(word) for word in (await run(kernel, code)).text().split()]
    descriptors = psutil.Process().num_fds()
    started = time.monotonic()
    await kernel.close()
    assert time.monotonic() - started < 30
    assert [pid for pid in pids if not gone(pid)] == []
    assert list(rooms.iterdir()) == []
    assert psutil.Process().num_fds() < descriptors
    await kernel.close()  # no harm


async def test_open_files_are_written_out_when_the_kernel_is_closed(
    own_kernel: ProcessKernel, tmp_path: Path
) -> None:
    await run(own_kernel, "f = open('out.txt', 'w'); f.write('all of it'); None")
    await own_kernel.close()
    assert (tmp_path / "work" / "out.txt").read_text() == "all of it"


async def test_closing_ends_running_code(own_kernel: ProcessKernel) -> None:
    task = asyncio.create_task(run(own_kernel, "while True: pass", timeout=60))
    await asyncio.sleep(0.3)
    started = time.monotonic()
    await own_kernel.close()
    assert time.monotonic() - started < 30
    with pytest.raises(KernelLost, match="the kernel was closed while it ran code"):
        await task
    with pytest.raises(KernelLost, match="the kernel was closed"):
        await run(own_kernel, "1")


async def test_the_sockets_are_private_and_gone_once_the_kernel_runs(
    kernel_maker: KernelMaker, rooms: Path
) -> None:
    def listening() -> set[object]:
        connections = psutil.Process().net_connections("inet")
        return {connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN}

    kernel, before = kernel_maker(), listening()
    starting = asyncio.create_task(kernel.start())
    modes = set()
    while not starting.done():
        modes |= {room.stat().st_mode & 0o777 for room in rooms.iterdir()}
        await asyncio.sleep(0.01)
    await starting
    assert modes == {0o700}
    assert [room for room in rooms.iterdir() if not (room / "t").is_symlink()] == []
    assert await value(kernel, "1") == "1"
    assert listening() <= before


async def test_a_kernel_dies_with_its_host(tmp_path: Path) -> None:
    script = """
import asyncio, os, sys
from pathlib import Path
from nbagent.kernels.process import ProcessKernel
async def main():
    folder = Path(sys.argv[1])
    kernel = ProcessKernel(folder=folder, scratch=folder / "scratch")
    async for item in kernel.execute("import os; print(os.getpid())", timeout=30):
        if isinstance(item, dict): print(item["text"].strip(), flush=True)
    await asyncio.sleep(300)
asyncio.run(main())
"""
    host = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        assert not gone(pid)
        host.kill()
        wait_until_gone(pid, 5)


async def test_hidden_variables_do_not_reach_the_kernel(
    kernel_maker: KernelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBAGENT_API_KEY", "sk-very-secret")
    monkeypatch.setenv("DATABASE_TOKEN", "usable")
    kernel = kernel_maker(hidden_environment=["NBAGENT_API_KEY"])
    code = "import os; print(os.environ.get('NBAGENT_API_KEY'), os.environ.get('DATABASE_TOKEN'))"
    assert (await run(kernel, code)).text() == "None usable\n"
