"""The host's thread waits for the agent thread, does what it submits, and hands interrupts on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable

import pytest

from nbagent.agent_thread import MainThreadQueue, agent_thread, interrupts_held


def _interrupted() -> None:
    raise KeyboardInterrupt


def test_who_waits_for_interrupted_work_is_stopped_before_it_can_go_on_to_something_else() -> None:
    main, thread = MainThreadQueue(), agent_thread()
    running: list[asyncio.Task[None]] = []
    stops_when_it_went_on: list[int] = []
    went_on = threading.Event()

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        running.append(task)
        try:
            await asyncio.wrap_future(main.submit(_interrupted))
        except asyncio.CancelledError:
            stops_when_it_went_on.append(task.cancelling())
            went_on.set()

    def stop() -> None:
        went_on.wait(0.2)  # the chance to go on too early
        thread.loop.call_soon_threadsafe(running[0].cancel)

    thread.run(work(), main=main, on_interrupt=stop)
    assert stops_when_it_went_on == [1]


def test_an_interrupt_between_two_waits_is_passed_on_as_any_other() -> None:
    thread = agent_thread()
    work: list[asyncio.Task[None]] = []
    stops: list[int] = []

    class Pressed(MainThreadQueue):
        def run_one(self, on_interrupt: Callable[[], None]) -> None:
            if len(stops) < 2 and work:
                raise KeyboardInterrupt
            super().run_one(on_interrupt)

    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        work.append(task)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    def stop() -> None:
        stops.append(1)
        if len(stops) == 1:
            raise KeyboardInterrupt  # pressed again while the first is passed on
        thread.loop.call_soon_threadsafe(work[0].cancel)

    thread.run(wait(), main=Pressed(), on_interrupt=stop)
    assert len(stops) == 2


def test_an_interrupt_while_something_is_made_whole_comes_afterwards() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():  # noqa: PT012 (that it goes on is the point)
        signal.raise_signal(signal.SIGINT)
        done.append("whole")
    assert done == ["whole"]


def test_an_interrupt_that_leaves_nothing_to_give_reaches_the_caller() -> None:
    main = MainThreadQueue()

    async def work() -> None:
        await asyncio.wrap_future(main.submit(_interrupted))

    with pytest.raises(KeyboardInterrupt):
        agent_thread().run(work(), main=main)
