"""The session's own kernel with checkpoints: its states can be gone back to, after an undo and after a death."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path
from typing import Any, Literal

from nbagent.errors import CheckpointDeclined, KernelError, KernelNotStarted
from nbagent.kernels.child import Child, Launch
from nbagent.kernels.forkable import ForkableChild, Sleeper
from nbagent.kernels.process import ProcessKernel
from nbagent.protocols import Executed, Variable, WentBack

BUSY_TRIES = 4
BUSY_PAUSE = 0.2  #: seconds until threads that only wait spin no more

WEIGH_SECONDS = 5.0  #: at least, between two looks at the memory: each reads all of the page tables
LEAST_OF_A_FORK = 2_000_000  #: bytes: page tables and what the kernel keeps of a process

_CGROUP = Path("/sys/fs/cgroup")


class CheckpointKernel(ProcessKernel):
    """Forks itself to keep a state; implements `protocols.Kernel` and `protocols.Checkpoints`. Linux only.

    At most `kept` states, of at most `memory_share` of the memory that is free, are kept; the oldest go first.
    Where a kernel that can be forked does not start, an ordinary one does, and `no_checkpoints` says why.
    """

    def __init__(self, *, kept: int = 20, memory_share: float = 0.25, **options: Any):
        super().__init__(**options)
        self.checkpoints = self
        self.no_checkpoints = ""
        self._kept, self._memory_share = kept, memory_share
        self._mark = ""  # of the state as it is
        self._before = ""  # of the state before the code that runs, or ran last
        self._known_at: dict[str, dict[str, Variable]] = {}
        self._weighed = 0.0  # when the memory of the checkpoints was looked at

    async def checkpoint(self) -> str:
        """Keep the state as it is (see `protocols.Checkpoints`)."""
        why = ""
        for attempt in range(BUSY_TRIES):
            if attempt:
                await asyncio.sleep(BUSY_PAUSE)
            async with self._turn:
                answer = await self._keep()
            if not answer:
                return self._mark
            if "declined" in answer:
                raise CheckpointDeclined(answer["declined"])
            why = f"{answer['busy']} was computing"
        raise CheckpointDeclined(why)

    def checkpoint_soon(self) -> None:
        """Begin to keep the state: what comes of it is asked for later."""
        self._spawn(self.checkpoint())

    def has(self, mark: str) -> bool:
        """Whether a checkpoint is still kept."""
        return mark in self._sleepers

    async def go_back(self, mark: str) -> WentBack:
        """Go back to a checkpoint (see `protocols.Checkpoints`)."""
        return await self._in_turn(self._go_back(mark))

    # -----------------------------------------------------------------------------------------------------

    @property
    def _sleepers(self) -> dict[str, Sleeper]:
        return self._child.sleepers if isinstance(self._child, ForkableChild) else {}

    async def _keep(self) -> dict[str, Any]:
        """Take a checkpoint unless there is one of this state; give {}, or why not."""
        child = await self._ensure()
        if not isinstance(child, ForkableChild):
            return {"declined": self.no_checkpoints}
        if how := await child.death():
            return {"declined": f"the kernel process {how}"}
        if self.has(self._mark):
            return {}
        mark = uuid.uuid4().hex[:8]
        try:
            answer = await child.checkpoint(mark)
        except KernelError as error:
            return {"declined": str(error)}
        if "pid" not in answer:
            return answer
        self._mark = mark
        self._known_at[mark] = dict(self._known)
        _first_to_go(answer["pid"], True)
        while len(child.sleepers) > self._kept:
            self._drop_oldest(child)
        if time.monotonic() - self._weighed > WEIGH_SECONDS:
            self._weighed = time.monotonic()
            self._spawn(self._weigh(child))
        return {}

    def _drop_oldest(self, child: ForkableChild) -> None:
        mark = next(iter(child.sleepers))
        child.drop(mark)
        del self._known_at[mark]

    async def _weigh(self, child: ForkableChild) -> None:
        """Drop the oldest checkpoints while all of them take too much memory; the last one stays."""
        while len(child.sleepers) > 1:
            pids = [sleeper.pid for sleeper in child.sleepers.values()]
            if await asyncio.to_thread(_within, pids, child.worker, self._memory_share):
                return
            async with self._turn:
                if child is not self._child or len(child.sleepers) < 2:
                    return
                self._drop_oldest(child)

    async def _go_back(self, mark: str) -> WentBack:
        async with self._turn:
            child = self._child
            if not isinstance(child, ForkableChild) or not self.has(mark):
                raise CheckpointDeclined("that checkpoint is not kept any more")
            before = self._known
            woken = await self._wake(child, mark)
            gone = tuple(sorted(before.keys() - self._known.keys()))
            differ = [name for name, one in self._known.items() if before.get(name) != one]
            return WentBack(tuple(sorted(differ)), gone, _cut(woken), tuple(sorted(woken["ended"])))

    async def _wake(self, child: ForkableChild, mark: str) -> dict[str, Any]:
        woken = await child.wake(mark)
        self._known_at = {kept: known for kept, known in self._known_at.items() if kept in child.sleepers}
        self._known = dict(self._known_at[mark])
        self._mark = mark
        _first_to_go(woken["pid"], False)
        return woken

    def _state_changes(self) -> None:
        self._before, self._mark = self._mark, ""

    def _begin_anew(self) -> None:
        """No state is kept: a new process begins."""
        self._mark = self._before = ""
        self._known_at.clear()

    async def _start_child(self, plan: Launch) -> Child:
        self._begin_anew()
        try:
            child: Child = await ForkableChild.start(plan)
        except KernelNotStarted as error:
            child = await super()._start_child(plan)
            self.no_checkpoints = f"a kernel that can be forked did not start: {error}"
        return child

    async def _restarted(
        self, status: Literal["died", "timeout", "interrupted"], started: float, why: str
    ) -> Executed:
        """Go back to the newest checkpoint; only where there is none, begin anew."""
        child, known, before = self._child, self._known, self._before
        seconds = time.monotonic() - started
        for mark in reversed(list(self._sleepers)):
            assert isinstance(child, ForkableChild)
            try:
                await self._wake(child, mark)
            except KernelError:
                continue
            self._count_loss(status, why)
            back = tuple(sorted(self._known))
            if mark == before:
                return Executed(status, seconds, error=why, restored=mark, back_names=back)
            lost = tuple(sorted(name for name, one in known.items() if self._known.get(name) != one))
            return Executed(
                status,
                seconds,
                error=why,
                state_lost=True,
                lost_names=lost,
                restored=mark,
                back_names=tuple(name for name in back if name not in lost),
            )
        return await super()._restarted(status, started, why)


def _cut(woken: dict[str, Any]) -> str:
    """Say what has to be opened anew."""
    words = []
    if woken["connections"]:
        words.append(f"{woken['connections']} network connections")
    if woken["databases"]:
        words.append(f"{woken['databases']} SQLite connections")
    return " and ".join(words)


def _first_to_go(pid: int, first: bool) -> None:
    """Let the system, short of memory, end a checkpoint before anything of the user's."""
    try:
        Path(f"/proc/{pid}/oom_score_adj").write_text("500" if first else "0")
    except OSError:  # it has ended, or the system does not let us
        return


def _within(sleepers: list[int], worker: int, share: float) -> bool:
    """Whether what the sleepers take beyond the worker's own memory is within a share of what is free."""
    limit = share * _free_memory()
    if sum(map(_resident, sleepers)) <= limit:
        return True
    return own_memory(sleepers, worker) <= limit


def own_memory(sleepers: list[int], worker: int) -> int:
    """Give what the sleepers take beyond the memory that they share with the worker, in bytes."""
    family = sum(_anonymous(pid, "Pss_Anon") for pid in [*sleepers, worker])
    return max(0, family - _anonymous(worker, "Anonymous")) + len(sleepers) * LEAST_OF_A_FORK


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


def _anonymous(pid: int, field: str) -> int:
    """Give a process's memory that is no file's, in bytes: all of it, or its part of what is shared."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def _free_memory() -> int:
    """Give the memory that is free for us, in bytes: a container may have less than the machine."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    try:
        most = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if most == "max" else max(0, min(free, int(most) - used))
