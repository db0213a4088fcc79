"""Time limits and cancelling: the code stops, the kernel stays, and nothing of it reaches the next code."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator

import pytest

from nbagent.kernels.checkpoints import CheckpointKernel
from nbagent.kernels.process import ProcessKernel
from tests.kernels.running import run, value

pytestmark = pytest.mark.asyncio(loop_scope="module")
own_loop = pytest.mark.asyncio(loop_scope="function")  #: for the kernels that a test makes for itself

STUBBORN = """
import time
print("begun", flush=True)
while True:
    try: time.sleep(0.2)
    except BaseException: print("no")
"""
SWALLOWS_ONCE = """
import time
try: time.sleep(30)
except BaseException: print("no")
"""


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(CheckpointKernel, marks=pytest.mark.skipif(sys.platform != "linux", reason="forks kernels")),
        ProcessKernel,
    ],
    ids=["checkpoints", "plain"],
)
def kernel_kind(request: pytest.FixtureRequest) -> type[ProcessKernel]:
    """Both in every run: stopping is what users must be able to rely on."""
    kind: type[ProcessKernel] = request.param
    return kind


@pytest.fixture
def kernel(shared_kernel: ProcessKernel) -> Iterator[ProcessKernel]:
    before = shared_kernel.generation
    yield shared_kernel
    assert shared_kernel.generation == before, "the shared kernel died"


async def test_a_time_limit_interrupts_and_keeps_state_and_output(kernel: ProcessKernel) -> None:
    await run(kernel, "kept = 1")
    ran = await run(kernel, "import time\nprint('begun')\ninside = 2\ntime.sleep(60)", timeout=1)
    assert ran.executed.status == "timeout"
    assert ran.executed.error.startswith("KeyboardInterrupt")
    assert not ran.executed.state_lost
    assert 1 <= ran.executed.seconds < 30
    assert ran.text() == "begun\n"
    assert "inside" in ran.changes
    assert await value(kernel, "kept") == "1"


async def test_the_traceback_of_an_interrupt_names_the_codes_own_lines_and_takes_no_time(
    kernel: ProcessKernel,
) -> None:
    """However many modules are loaded, each of which IPython's own would look at."""
    many = "import sys, types\nfor n in range(6000):\n  m = sys.modules[f'm{n}'] = types.ModuleType(f'm{n}')\n"
    await run(kernel, f"{many}  m.__file__ = f'/nowhere/{{n}}/m.py'\nimport subprocess, time")
    code = "def wait(): subprocess.run(['sleep', '60'])\nbegun = time.process_time()\nwait()"
    ran = await run(kernel, code, timeout=0.3)
    assert ran.executed.error == "KeyboardInterrupt"
    count = ran.executed.execution_count
    text = "\n".join(ran.outputs[-1]["traceback"])
    assert (
        f"Cell In[{count}], line 3\n----> 3 wait()\nCell In[{count}], line 1, in wait()\n----> 1 def wait" in text
    )
    assert re.search(r"File .*subprocess\.py:\d+, in run\(\)", text)
    assert "interactiveshell" not in text
    assert float(await value(kernel, "time.process_time() - begun")) < 0.15
    await run(kernel, "for n in range(6000): del sys.modules[f'm{n}']")


async def test_an_interrupt_that_comes_when_the_code_has_ended_hits_nothing(kernel: ProcessKernel) -> None:
    await run(kernel, "kept = 1")
    child = kernel._child
    assert child is not None
    for _ in range(3):
        await child.interrupt()
        assert await value(kernel, "kept") == "1"


async def test_a_swallowed_interrupt_is_still_a_timeout(kernel: ProcessKernel) -> None:
    ran = await run(kernel, SWALLOWS_ONCE, timeout=0.5)
    assert ran.executed.status == "timeout"
    assert ran.text() == "no\n"
    assert not ran.executed.state_lost


async def test_a_shell_command_that_is_too_slow_is_a_timeout(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "!sleep 60", timeout=0.5)
    assert ran.executed.status == "timeout"
    assert ran.executed.seconds < 30
    assert await value(kernel, "'free'") == "free"


async def test_awaiting_code_is_interrupted_too(kernel: ProcessKernel) -> None:
    ran = await run(kernel, "import asyncio\nawait asyncio.sleep(60)", timeout=0.5)
    assert ran.executed.status == "timeout"
    assert ran.executed.seconds < 30


SLOW_IMPORT = "import time\nprint('begun', flush=True)\nfor _ in range({rounds}): time.sleep(0.02)\nwhole = True"


def importing(name: str, place: str, rounds: int) -> str:
    """Make a module that takes `rounds` times 20 ms to import, import it, and wait."""
    return (
        f"import pathlib, sys\nplace = pathlib.Path({place!r}).resolve()\nplace.mkdir(exist_ok=True)\n"
        f"place.joinpath('{name}.py').write_text({SLOW_IMPORT.format(rounds=rounds)!r})\n"
        f"sys.path.insert(0, str(place))\nimport {name}, time\ntime.sleep(60)\nafter = 1"
    )


async def test_a_library_that_is_being_imported_is_whole_before_the_code_is_interrupted(
    kernel: ProcessKernel,
) -> None:
    ran = await run(kernel, importing("slow_library", "site-packages", rounds=50), timeout=0.5)
    assert ran.text() == "begun\n"
    assert (ran.executed.status, ran.executed.error) == ("timeout", "KeyboardInterrupt")
    assert ran.executed.seconds < 3
    assert await value(kernel, "slow_library.whole, 'after' in globals()") == "True False"


async def test_a_module_of_the_users_is_interrupted_while_it_is_imported(kernel: ProcessKernel) -> None:
    ran = await run(kernel, importing("slow_script", ".", rounds=500), timeout=0.5)
    assert (ran.executed.status, ran.executed.error) == ("timeout", "KeyboardInterrupt")
    assert ran.executed.seconds < 2
    assert await value(kernel, "'slow_script' in sys.modules") == "False"


async def test_a_library_that_is_imported_for_too_long_is_cut_off_and_named(kernel: ProcessKernel) -> None:
    ran = await run(kernel, importing("endless_library", "site-packages", rounds=5000), timeout=0.3)
    assert ran.executed.status == "timeout"
    assert "importing endless_library, which may not load again" in ran.executed.error


@own_loop
async def test_code_that_ignores_interrupts_loses_its_kernel(own_kernel: ProcessKernel) -> None:
    await run(own_kernel, "rows = [1, 2, 3]")
    ran = await run(own_kernel, STUBBORN, timeout=1)
    assert ran.executed.status == "timeout"
    assert ran.executed.state_lost
    assert ran.executed.lost_names == ("rows",)
    assert ran.executed.error == "the code did not react to interrupts; its kernel was ended"
    assert ran.text().startswith("begun\nno\n")
    assert own_kernel.generation == 1
    started = time.monotonic()
    assert await value(own_kernel, "'free'") == "free"
    assert time.monotonic() - started < 30


async def start_and_cancel(kernel: ProcessKernel, code: str, word: str) -> list[str]:
    """Run code in a task, cancel the task once `word` is out, and give the texts that came."""
    texts: list[str] = []
    seen = asyncio.Event()

    async def consume() -> None:
        async for item in kernel.execute(code, timeout=60):
            texts.append(str(item))
            if word in texts[-1]:
                seen.set()

    task = asyncio.create_task(consume())
    await asyncio.wait_for(seen.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return texts


async def test_cancelling_interrupts_the_code_and_keeps_the_kernel(kernel: ProcessKernel) -> None:
    started = time.monotonic()
    code = "import time\nmine = 1\nwhile True: print('OLD', flush=True); time.sleep(0.01)"
    await start_and_cancel(kernel, code, "OLD")
    ran = await run(kernel, "print(mine)")
    assert time.monotonic() - started < 30
    assert ran.text() == "1\n"
    assert ran.text("stderr") == ""
    assert "mine" in ran.changes


async def test_closing_the_iteration_interrupts_the_code(kernel: ProcessKernel) -> None:
    outputs = kernel.execute("import time\nprint('OLD', flush=True)\ntime.sleep(60)", timeout=60)
    assert (await anext(outputs))["text"] == "OLD\n"  # type: ignore[index]
    await outputs.aclose()
    started = time.monotonic()
    assert await value(kernel, "'free'") == "free"
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("code", "rounds"),
    [("import time\nprint('OLD', flush=True)\ntime.sleep(60)", 60), ("!echo OLD; sleep 60", 12)],
    ids=["python", "shell"],
)
async def test_no_answer_is_lost_however_soon_and_often_code_is_stopped(
    kernel: ProcessKernel, code: str, rounds: int
) -> None:
    """The teardown says whether the kernel had to be replaced."""
    for _ in range(rounds):
        outputs = kernel.execute(code, timeout=60)
        await anext(outputs)
        await outputs.aclose()
    assert await value(kernel, "'free'") == "free"


async def test_the_next_code_waits_for_cancelled_code_that_ends_slowly(kernel: ProcessKernel) -> None:
    code = (
        "import time\nended = None\ntry:\n  print('OLD', flush=True); time.sleep(60)\n"
        "finally:\n  time.sleep(0.4); print('OLD END'); ended = time.monotonic()"
    )
    task = asyncio.create_task(start_and_cancel(kernel, code, "OLD"))
    await task
    ran = await run(kernel, "import time\nprint(ended is not None and ended < time.monotonic())")
    assert ran.text() == "True\n"


async def test_cancelling_twice_does_not_let_the_next_code_overtake(kernel: ProcessKernel) -> None:
    code = (
        "import time\ntry:\n  print('OLD', flush=True); time.sleep(60)\nfinally:\n  time.sleep(0.4); over = True"
    )
    seen = asyncio.Event()

    async def consume() -> None:
        async for _ in kernel.execute(code, timeout=60):
            seen.set()

    await run(kernel, "over = False")
    task = asyncio.create_task(consume())
    await asyncio.wait_for(seen.wait(), 20)
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await value(kernel, "over") == "True"


async def test_code_that_was_cancelled_before_its_turn_never_runs(kernel: ProcessKernel) -> None:
    first = asyncio.create_task(run(kernel, "import time; time.sleep(0.5); ran = []"))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(run(kernel, "ran.append('second')"))
    await asyncio.sleep(0.05)
    second.cancel()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await value(kernel, "ran") == "[]"


@own_loop
async def test_cancelled_code_that_ignores_interrupts_loses_its_kernel(own_kernel: ProcessKernel) -> None:
    await start_and_cancel(own_kernel, STUBBORN, "begun")
    assert await value(own_kernel, "'free'") == "free"
    assert own_kernel.generation == 1
