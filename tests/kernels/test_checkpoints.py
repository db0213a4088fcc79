"""Checkpoints: what comes back, what is refused in words, and that nothing outlives the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from nbagent.errors import CheckpointDeclined
from nbagent.kernels.checkpoints import CheckpointKernel
from nbagent.kernels.forkable import ForkableChild
from tests.kernels.running import make_kernel, run, value

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="checkpoints are forks"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CheckpointKernel]:
    made = make_kernel(tmp_path_factory.mktemp("kernel"), CheckpointKernel, kept=3)
    assert isinstance(made, CheckpointKernel)
    await made.start()
    yield made
    await made.close()


async def test_everything_in_memory_comes_back_and_can_come_back_again(kernel: CheckpointKernel) -> None:
    await run(kernel, "x = {'a': [1]}; numbers = (n for n in range(9)); next(numbers)\nimport asyncio")
    await run(kernel, "n = 0\nasync def tick():\n  global n\n  while True: n += 1; await asyncio.sleep(0.01)")
    await run(kernel, "task = asyncio.get_event_loop().create_task(tick())")
    mark = await kernel.checkpoint()
    assert await kernel.checkpoint() == mark  # nothing has run since
    for _ in range(2):
        await run(kernel, "x['a'].append(2); new = next(numbers); del asyncio; task.cancel()")
        went = await kernel.go_back(mark)
        assert went.gone == ("new",)
        assert await value(kernel, "x, next(numbers), asyncio.__name__") == "{'a': [1]} 1 asyncio"
    before = int(await value(kernel, "n"))
    await run(kernel, "await asyncio.sleep(0.2)")
    assert int(await value(kernel, "n")) > before
    await run(kernel, "task.cancel()")


async def test_only_so_many_are_kept_the_oldest_go_first(kernel: CheckpointKernel) -> None:
    marks = []
    for number in range(5):
        await run(kernel, f"x = {number}")
        marks.append(await kernel.checkpoint())
    assert [kernel.has(mark) for mark in marks] == [False, False, True, True, True]
    with pytest.raises(CheckpointDeclined, match="that checkpoint is not kept any more"):
        await kernel.go_back(marks[0])
    await kernel.go_back(marks[3])
    assert not kernel.has(marks[4])
    assert await value(kernel, "x") == "3"


async def test_when_they_take_too_much_memory_the_oldest_go_first(tmp_path: Path) -> None:
    kernel = make_kernel(tmp_path, CheckpointKernel, memory_share=1e-6)
    assert isinstance(kernel, CheckpointKernel)
    try:
        marks = []
        for number in range(2):
            await run(kernel, f"x = {number}")
            kernel._weighed = 0.0
            marks.append(await kernel.checkpoint())
        until = asyncio.get_running_loop().time() + 10
        while kernel.has(marks[0]):
            assert asyncio.get_running_loop().time() < until
            await asyncio.sleep(0.02)
        assert kernel.has(marks[1])
    finally:
        await kernel.close()


async def test_an_open_file_is_at_its_old_place_and_a_server_still_listens(
    kernel: CheckpointKernel, tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{number:07}\n" for number in range(10_000)))
    await run(kernel, f"f = open({str(file)!r}); first = f.readline()\nimport socket, threading")
    await run(kernel, "s = socket.create_server(('127.0.0.1', 0)); a, b = socket.socketpair()")
    await run(kernel, "c = socket.create_connection(s.getsockname()); d, _ = s.accept()")
    mark = await kernel.checkpoint()
    await run(kernel, "rest = f.read(); d.sendall(b'old')")
    went = await kernel.go_back(mark)
    assert went.cut == "2 network connections"
    assert await value(kernel, "f.readline().strip(), len(f.read())") == "0000001 79984"
    assert await value(kernel, "b.send(a.send(b'pair') * b'x')") == "4"
    await run(kernel, "c2 = socket.create_connection(s.getsockname()); d2, _ = s.accept(); d2.sendall(b'new')")
    assert await value(kernel, "c2.recv(3)") == "b'new'"
    assert (await run(kernel, "c.sendall(b'x')")).executed.status == "error"
    await run(kernel, "[one.close() for one in (s, c, d, a, b, c2, d2)]")


async def test_a_database_connection_is_not_used_after_going_back(
    kernel: CheckpointKernel, tmp_path: Path
) -> None:
    path = str(Path(await value(kernel, "__import__('os').getcwd()")) / "t.db")
    await run(kernel, f"import sqlite3; db = sqlite3.connect({path!r}); db.execute('create table t (x)')")
    await run(kernel, "memory = sqlite3.connect(':memory:'); _ = memory.execute('create table m (x)')")
    await run(kernel, "db.execute('insert into t values (1)')")  # its transaction is open
    mark = await kernel.checkpoint()
    await run(kernel, "db.commit()")
    went = await kernel.go_back(mark)
    assert went.cut == "1 SQLite connections"
    refused = await run(kernel, "db.execute('insert into t values (2)')")
    assert refused.executed.error == "DatabaseError: not authorized"
    assert await value(kernel, "memory.execute('select count(*) from m').fetchone()[0]") == "0"
    assert await value(kernel, f"sqlite3.connect({path!r}).execute('select * from t').fetchall()") == "[(1,)]"
    assert sqlite3.connect(path).execute("pragma integrity_check").fetchone() == ("ok",)


async def test_a_thread_of_the_codes_own_is_a_reason_to_decline(kernel: CheckpointKernel) -> None:
    await run(kernel, "import threading; go = threading.Event()")
    await run(kernel, "threading.Thread(target=go.wait, name='mine').start()")
    with pytest.raises(CheckpointDeclined, match=r"a thread that code started \(mine\) would not survive"):
        await kernel.checkpoint()
    await run(kernel, "go.set()")
    assert await kernel.checkpoint()


NESTED = """
import time
from pathlib import Path
nested = subprocess.Popen(['sh', '-c', 'sleep 300; true'])
def inner():
  children = Path(f'/proc/{nested.pid}/task/{nested.pid}/children').read_text().split()
  return [Path(f'/proc/{pid}/comm').read_text() for pid in children]
while inner() != ['sleep\\n']: time.sleep(0.01)
"""


async def test_programs_that_were_started_since_are_ended_and_earlier_ones_go_on(kernel: CheckpointKernel) -> None:
    start = "import subprocess; p = subprocess.Popen(['sleep', '300'], start_new_session={})"
    await run(kernel, start.format(False))
    earlier = int(await value(kernel, "p.pid"))
    await asyncio.sleep(0.03)
    mark = await kernel.checkpoint()
    for apart in (False, True):  # the second time, the state that is kept is another process
        await asyncio.sleep(0.03)
        await run(kernel, start.format(apart))
        later = int(await value(kernel, "p.pid"))
        await run(kernel, NESTED)
        went = await kernel.go_back(mark)
        assert went.ended == ("sh", "sleep", "sleep")
        assert psutil.Process(earlier).is_running()
        psutil.wait_procs([psutil.Process(later)] if psutil.pid_exists(later) else [], 5)
        assert not psutil.pid_exists(later)
        assert await value(kernel, "p.pid") == str(earlier)
        assert (await kernel.go_back(mark)).ended == ()
    os.kill(earlier, signal.SIGKILL)


async def test_a_thread_pool_that_waits_goes_on_working(kernel: CheckpointKernel) -> None:
    await run(kernel, "from concurrent.futures import ThreadPoolExecutor; pool = ThreadPoolExecutor(2)")
    assert await value(kernel, "sum(pool.map(abs, range(9)))") == "36"
    mark = await kernel.checkpoint()
    await kernel.go_back(mark)
    assert await value(kernel, "sum(pool.map(abs, range(9)))") == "36"
    await run(kernel, "pool.shutdown()")


async def test_going_back_is_interruptible_and_prints_like_before(kernel: CheckpointKernel) -> None:
    mark = await kernel.checkpoint()
    await kernel.go_back(mark)
    ran = await run(kernel, "import subprocess, time\nprint('a', flush=True)\nsubprocess.run(['echo', 'b'])")
    assert sorted(ran.text().split()) == ["a", "b"]
    assert (await run(kernel, "time.sleep(60)", timeout=0.5)).executed.status == "timeout"
    assert (await run(kernel, "import asyncio\nawait asyncio.sleep(60)", timeout=0.5)).executed.status == "timeout"
    assert await value(kernel, "'free'") == "free"


@pytest.mark.long
async def test_code_that_ignores_interrupts_costs_only_itself(kernel: CheckpointKernel) -> None:
    await run(kernel, "rows = [1, 2, 3]")
    mark = await kernel.checkpoint()
    stubborn = "while True:\n  try: rows.append(0); time.sleep(0.1)\n  except BaseException: pass"
    ran = await run(kernel, f"import time\n{stubborn}", timeout=0.5)
    assert ran.executed.status == "timeout"
    assert (ran.executed.restored, ran.executed.state_lost) == (mark, False)
    assert "rows" in ran.executed.back_names
    assert await value(kernel, "rows") == "[1, 2, 3]"


async def test_with_an_older_checkpoint_it_is_told_what_is_back_and_what_is_not(kernel: CheckpointKernel) -> None:
    await run(kernel, "a = 1; b = 1")
    mark = await kernel.checkpoint()
    await run(kernel, "b = 2; later = 3")
    ran = await run(kernel, "d = 4; import os; os.kill(os.getpid(), 9)")
    assert (ran.executed.status, ran.executed.restored) == ("died", mark)
    assert ran.executed.state_lost
    assert {"b", "later"} <= set(ran.executed.lost_names)
    assert "a" in ran.executed.back_names
    assert "b" not in ran.executed.back_names
    assert await value(kernel, "a, b, 'later' in dir()") == "1 1 False"


async def test_a_death_between_two_executions_is_waited_for_where_the_keeper_tells_of_it_late(
    kernel: CheckpointKernel,
) -> None:
    child = kernel._child
    assert isinstance(child, ForkableChild)
    assert child._process is not None
    await kernel.checkpoint()
    keeper, worker = child._process.pid, child.worker
    os.kill(keeper, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    asyncio.get_running_loop().call_later(0.2, os.kill, keeper, signal.SIGCONT)
    while psutil.Process(worker).status() != psutil.STATUS_ZOMBIE:
        await asyncio.sleep(0.005)
    ran = await run(kernel, "print('not run')")
    assert (ran.executed.status, ran.outputs) == ("died", [])
    assert ran.executed.error.endswith("(SIGKILL) before this code, which was not run")
    assert await value(kernel, "1") == "1"


async def test_a_kernel_that_dies_while_its_state_is_kept_is_not_waited_for(
    kernel: CheckpointKernel,
) -> None:
    pid = int(await value(kernel, "__import__('os').getpid()"))
    os.kill(pid, signal.SIGSTOP)  # so that it cannot answer
    keeping = asyncio.create_task(kernel.checkpoint())
    await asyncio.wait({keeping}, timeout=0.3)
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        with pytest.raises(CheckpointDeclined, match="was killed by signal 9"):
            await keeping


async def test_a_state_that_ends_slowly_is_no_program_of_the_codes(kernel: CheckpointKernel) -> None:
    await run(kernel, "x = 1")
    older = await kernel.checkpoint()
    await run(kernel, "import time; time.sleep(0.05); x = 2")  # another hundredth of a second
    slow = kernel._sleepers[await kernel.checkpoint()].pid
    os.kill(slow, signal.SIGSTOP)
    try:
        assert (await kernel.go_back(older)).ended == ()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(slow, signal.SIGCONT)


async def test_a_checkpoint_that_the_system_ended_is_passed_over(kernel: CheckpointKernel) -> None:
    await run(kernel, "x = 'older'")
    await kernel.checkpoint()
    await run(kernel, "x = 'newer'")
    newer = await kernel.checkpoint()
    os.kill(kernel._sleepers[newer].pid, signal.SIGKILL)
    ran = await run(kernel, "import os; os._exit(1)")
    assert ran.executed.restored
    assert await value(kernel, "x") == "older"


@pytest.mark.long
@pytest.mark.parametrize("victim", ["host", "keeper"])
async def test_nothing_outlives_host_or_keeper(tmp_path: Path, victim: str) -> None:
    script = """
import asyncio, os, sys
from pathlib import Path
from nbagent.kernels.checkpoints import CheckpointKernel
async def main():
    folder = Path(sys.argv[1])
    kernel = CheckpointKernel(folder=folder, scratch=folder / "scratch")
    async for item in kernel.execute("x = 1", timeout=30): pass
    await kernel.checkpoint()
    async for item in kernel.execute("x = 2", timeout=30): pass
    await kernel.checkpoint()
    print(kernel._child._process.pid, flush=True)
    code = "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)\\nwhile True: pass"
    async for item in kernel.execute(code, timeout=300): pass
asyncio.run(main())
"""
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path), stdout=-1, stderr=asyncio.subprocess.DEVNULL
    )
    assert host.stdout is not None
    keeper = int(await host.stdout.readline())
    until = time.monotonic() + 10
    family: list[psutil.Process] = []
    while not (programs := [one for one in family if one.name() == "sleep"]):
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
        family = psutil.Process(keeper).children(recursive=True)
    assert len(family) == 4
    os.kill(host.pid if victim == "host" else keeper, signal.SIGKILL)
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, 5)
    assert alive == ([] if victim == "host" else programs)  # a killed keeper's kernels end, and it can end no more
    for one in alive:
        one.kill()
    with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
        host.kill()
    await host.wait()


async def test_code_that_looks_for_the_running_kernel_finds_it(kernel: CheckpointKernel) -> None:
    """As `%matplotlib inline` does."""
    assert await value(kernel, "__import__('ipykernel.eventloops').eventloops.enable_gui('inline')") == "None"


async def test_a_fork_that_code_made_and_did_not_end_is_not_the_kernel(kernel: CheckpointKernel) -> None:
    ran = await run(kernel, "import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')")
    assert ran.executed.status == "ok"
    assert "parent" in ran.text()
    assert await value(kernel, "pid > 0") == "True"
    assert await kernel.checkpoint()


async def test_waiting_for_any_child_waits_for_the_codes_own_only(kernel: CheckpointKernel) -> None:
    await run(kernel, "import os, subprocess; p = subprocess.Popen(['sleep', '0.1']); mine = [p.pid]; waited = []")
    await kernel.checkpoint()
    ran = await run(kernel, "while True: waited.append(os.wait()[0])", timeout=10)
    assert ran.executed.error.startswith("ChildProcessError"), ran.executed
    assert await value(kernel, "mine[0] in waited") == "True"
    assert await kernel.checkpoint()


async def test_where_no_kernel_can_be_forked_an_ordinary_one_runs_and_says_why(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif any('bootstrap.py' in word for word in sys.orig_argv):\n"
        "    print('no forks here', file=sys.stderr, flush=True); os._exit(3)\n"
    )
    python.chmod(0o755)
    kernel = make_kernel(tmp_path, CheckpointKernel, python=str(python))
    assert isinstance(kernel, CheckpointKernel)
    try:
        assert await value(kernel, "1") == "1"
        with pytest.raises(CheckpointDeclined, match="no forks here"):
            await kernel.checkpoint()
    finally:
        await kernel.close()
