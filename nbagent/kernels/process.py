"""The session's own kernel: an ipykernel in a process of its own (kind `fresh`)."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, TypeVar

from nbagent.errors import KernelError, KernelLost, KernelNotStarted, NoRoom, TransferError
from nbagent.events import Output
from nbagent.kernels.channels import Conversation
from nbagent.kernels.child import POLL, Child, Launch, SocketChild, probe_call
from nbagent.kernels.confinement import Confinement
from nbagent.kernels.job import Job
from nbagent.kernels.outputs import Outputs, valid_text
from nbagent.kernels.premises import Premises
from nbagent.kernels.report import how_it_went, told_beside
from nbagent.parcels import SHARED_MEMORY, link_or_copy
from nbagent.programs import ProgramEnded
from nbagent.protocols import Checkpoints, Executed, Variable

INTERRUPT_GRACE = 2.0  #: seconds after an interrupt until the next, stronger one
IDLE_GRACE = 2.0  #: seconds of silence after a reply whose `idle` was lost in a flood
LOOK_SECONDS = 5.0  #: for a look at the variables
TRANSFER_SECONDS = 300.0  #: for one variable to be pickled or read
MOST_DEATHS = 3  #: in a row, without an execution in between that the kernel survived

_T = TypeVar("_T")


class ProcessKernel:
    """A kernel for the agent, apart from the user's; implements `protocols.Kernel`.

    Start and use it on one event loop, the one of the thread that lives as long as the session: the kernel
    process dies with that thread, and the sockets belong to it. Jobs wait for each other: nothing starts
    before what went before, interrupted or not, is over.

    `scratch` is a folder that is this kernel's own: caches, temporary files and its last words.
    `hidden_environment` names variables that its code must not see.
    """

    has_the_users = False

    def __init__(
        self,
        *,
        folder: Path,
        scratch: Path,
        python: str = "",
        confine: Literal["workspace", "strict", "off"] = "workspace",
        max_memory: float = 0,
        allow_write: Sequence[Path] = (),
        hidden_environment: Sequence[str] = (),
        startup_timeout: float = 60,
        output_characters: int = 200_000,
    ):
        self.generation = 0
        self.checkpoints: Checkpoints | None = None
        self.restartable = True
        self.confinement = ""
        self.python = python or sys.executable
        self._premises = Premises(
            *(self.python, Path(folder), Path(scratch), confine, max_memory),
            *(tuple(allow_write), tuple(hidden_environment), output_characters),
        )
        self._startup_timeout = startup_timeout
        self._confinement = Confinement(active=False, words="")
        self._child: Child | None = None
        self._known: dict[str, Variable] = {}
        self._deaths, self._closed = 0, False
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Start it (no-op when it runs). Raises `KernelNotStarted` with the kernel's own words."""
        async with self._turn:
            await self._ensure()

    async def execute(self, code: str, *, timeout: float) -> AsyncGenerator[Output | Executed, None]:
        """Run code; yield outputs as they come and one `Executed` last (see `protocols.Kernel`).

        Status `died` also tells that the kernel was found dead before the code was run; code is never
        run twice. A nonzero exit status of a shell command is told in a last stderr output.

        Raises:
            KernelNotStarted: it was not started before and cannot be.
            KernelLost: it died and could not be started again, died three times in a row, or was closed.
        """
        job = Job()
        task = self._spawn(self._execute(job, code, timeout))
        task.add_done_callback(lambda _: job.items.put_nowait(None))
        try:
            while (output := await job.items.get()) is not None:
                yield output
        finally:
            job.ask_to_stop()  # cancelled or left by the caller; the next job waits for the end anyway
            await asyncio.wait({task})
        if task.cancelled():
            raise KernelLost("the kernel was closed while it ran code")
        yield task.result()

    def known_variables(self) -> Sequence[Variable]:
        """List the variables as of the last execution, without asking the kernel."""
        return list(self._known.values())

    async def bring(self, name: str, file: Path) -> None:
        """Bind `name` to the pickle in `file`. Raises `TransferError`."""
        if not name.isidentifier():
            raise TransferError(f"{name!r} is not a name that a variable can have")
        await self._in_turn(self._bring(name, Path(file)))

    async def adopt(self, name: str, file: Path) -> str:
        """Pickle the variable `name` into `file` and give its one-line summary. Raises `TransferError`."""
        return await self._in_turn(self._adopt(name, Path(file)))

    async def inspect(self, name: str) -> str:
        """Tell about the variable `name` in some lines. Raises `TransferError`."""
        return await self._in_turn(self._inspect(name))

    async def restart(self) -> None:
        """Replace it by a new one, without variables. Raises `KernelNotStarted`."""
        async with self._turn:
            child, self._child = self._child, None
            if child is not None:
                await child.close()
            self._known.clear()
            self.generation += 1
            await self._ensure()

    async def close(self) -> None:
        """End it and all that its code started in its process group."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        async with self._turn:
            child, self._child = self._child, None
            if child is not None:
                await child.close(gentle=True)
            self._premises.leave()

    # -- jobs, one at a time ----------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it may be gone

    async def _in_turn(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Finish `work` even if the caller is cancelled: half a transfer would be in the next job's way."""
        task = self._spawn(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise TransferError("the kernel was closed before the variable had travelled") from None
            raise

    async def _execute(self, job: Job, code: str, timeout: float) -> Executed:
        started = time.monotonic()
        async with self._turn:
            if job.stop.done():
                return Executed(status="interrupted", seconds=0.0)
            self._state_changes()
            if self._child is not None and (how := await self._child.death()):
                why = f"the kernel process {how} before this code, which was not run"
                return await self._restarted("died", started, why)
            child = await self._ensure()
            outputs = Outputs(job.items.put_nowait, self._premises.output_characters)
            talk = child.channels.execute(code, silent=False, expression=probe_call("changes"), outputs=outputs)
            try:
                ending = await self._watch(child, talk, timeout, job.stop)
                if ending == "died":
                    await child.channels.silence(quiet=0.05, most=1.0)
            finally:
                child.channels.forget(talk)
                talk.close()
            if ending == "died":
                return await self._restarted("died", started, f"the kernel process {await child.death()}")
            if ending == "stuck":
                why = "the code did not react to interrupts; its kernel was ended"
                return await self._restarted("interrupted" if job.stop.done() else "timeout", started, why)
            self._deaths = 0
            executed = await self._conclude(
                child, talk, job, started, outputs.last_words, timed_out=ending == "timeout"
            )
            child.bound_log()
            return executed

    async def _watch(
        self, child: Child, talk: Conversation, timeout: float, stop: asyncio.Future[None] | None
    ) -> Literal["over", "timeout", "died", "stuck"]:
        """Wait for the end of a request; interrupt it, harder and harder, at the deadline or on `stop`."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        act_at = begun + timeout
        interrupts = 0
        timed_out = False
        while not talk.over.done():
            waiting: set[asyncio.Future[None]] = {talk.over}
            if stop is not None and not interrupts:
                waiting.add(stop)
            await asyncio.wait(
                waiting, timeout=max(0.0, min(POLL, act_at - clock())), return_when=asyncio.FIRST_COMPLETED
            )
            if talk.over.done():
                break
            if await child.death():
                return "died"
            if talk.reply and clock() - talk.heard > IDLE_GRACE:
                break
            stopped = stop is not None and stop.done()
            if clock() < act_at and not (stopped and not interrupts):
                continue
            timed_out = timed_out or not stopped
            if interrupts == 2:
                return "stuck"
            await child.interrupt()
            interrupts += 1
            act_at = clock() + INTERRUPT_GRACE
        return "timeout" if timed_out else "over"

    async def _conclude(
        self, child: Child, talk: Conversation, job: Job, started: float, printed: str, timed_out: bool
    ) -> Executed:
        """Say how an execution ended that the kernel survived."""
        count, seconds = talk.reply.get("execution_count"), time.monotonic() - started
        report = talk.expression("probe")
        status, error = how_it_went(talk.reply, talk.error)
        if timed_out:
            status = "timeout"
        elif job.stop.done():
            status = "interrupted"
        if not report and not job.stop.done():
            report = await self._look(child, probe_call("after_error"))
        # What a program printed that was refused tells of it only where a program's end is the news.
        printed = printed if status == "ok" or error.startswith("CalledProcessError") else ""
        if status == "error" or report.get("exit"):
            asked, limit = report.get("refused"), report.get("limit", "")
            why = self._confinement.explain(asked, limit, printed, self._premises.folder)
            error = "; ".join(filter(None, [error, why]))
        if status == "ok" and report.get("exit"):
            text, error = "; ".join(filter(None, [f"exit status {report['exit']}", error])), ""
            job.items.put_nowait({"output_type": "stream", "name": "stderr", "text": f"{text}\n"})
        changes, gone = self._learn(report)
        return Executed(status, seconds, count, error, changes=changes, gone=gone, **told_beside(report))

    async def _look(self, child: Child, expression: str) -> dict[str, Any]:
        talk = child.channels.execute("", silent=True, expression=expression)
        await asyncio.wait({talk.over}, timeout=LOOK_SECONDS)
        child.channels.forget(talk)
        return talk.expression("probe")

    def _learn(self, report: dict[str, Any]) -> tuple[tuple[Variable, ...], tuple[str, ...]]:
        changes = tuple(Variable(*map(valid_text, entry)) for entry in report.get("changes", ()))
        gone = tuple(map(str, report.get("gone", ())))
        self._known.update((variable.name, variable) for variable in changes)
        for name in gone:
            self._known.pop(name, None)
        return changes, gone

    # -- the process ------------------------------------------------------------------------------------

    async def _ensure(self) -> Child:
        if self._closed:
            raise KernelLost("the kernel was closed")
        if self._child is None:
            self._child = await self._launch()
        return self._child

    def run_program(self, words: Sequence[str], *, timeout: float) -> AsyncGenerator[Output | ProgramEnded, None]:
        """Run a program of the system in the kernel's place (see `protocols.Kernel`)."""
        return self._premises.run_program(words, timeout=timeout)

    async def install(
        self, arguments: Sequence[str], *, timeout: float
    ) -> AsyncGenerator[Output | ProgramEnded, None]:
        """Install packages into the interpreter's environment (see `protocols.Kernel`)."""
        async with self._turn, aclosing(self._premises.install(arguments, timeout=timeout)) as items:
            async for item in items:
                if isinstance(item, ProgramEnded) and self._child is not None and not await self._child.death():
                    await self._look(self._child, probe_call("see_packages", *map(str, item.folders)))
                yield item

    async def _launch(self) -> Child:
        held, environment = self._premises.surroundings()
        place = self._premises
        plan = Launch(self.python, place.folder, place.scratch, environment, held, self._startup_timeout)
        child = await self._start_child(plan)
        if child.refused and held.cuts_network:
            await child.close()
            raise KernelNotStarted(f"this system cannot hold code as confine=strict asks: {child.refused}")
        if child.refused:
            held = Confinement(active=False, words=f"none: the system refused it ({child.refused})")
        self._confinement, self.confinement = held, held.words
        return child

    async def _start_child(self, plan: Launch) -> Child:
        return await SocketChild.start(plan)

    async def _restarted(
        self, status: Literal["died", "timeout", "interrupted"], started: float, why: str
    ) -> Executed:
        """Replace the kernel by a new one and tell what is lost with it."""
        seconds = time.monotonic() - started
        lost = tuple(sorted(self._known))
        self._known.clear()
        child, self._child = self._child, None
        if child is not None:
            await child.close()
        self._count_loss(status, why)
        try:
            self._child = await self._launch()
        except KernelNotStarted as error:
            raise KernelLost(f"{why}, and no new one could be started: {error}") from error
        return Executed(status, seconds, error=why, state_lost=True, lost_names=lost)

    def _count_loss(self, status: str, why: str) -> None:
        self.generation += 1
        self._deaths += status == "died"
        if self._deaths >= MOST_DEATHS:
            raise KernelLost(f"the kernel died {self._deaths} times in a row, at last: {why}")

    def _state_changes(self) -> None:
        """Code is about to run that may change the variables."""

    # -- variables that travel --------------------------------------------------------------------------

    async def _bring(self, name: str, file: Path) -> None:
        async with self._turn:
            self._state_changes()
            # The file may lie where the kernel's code may not read.
            place = self._premises.parcel(file)
            try:
                await asyncio.to_thread(link_or_copy, file, place)
                report = await self._transfer(name, probe_call("load", str(place), name))
            except OSError as error:
                raise TransferError(f"{name}: {file} cannot be read: {error.strerror}") from error
            finally:
                place.unlink(missing_ok=True)
            self._learn({"changes": [report["variable"]]})

    async def _adopt(self, name: str, file: Path) -> str:
        async with self._turn:
            place = file if SHARED_MEMORY in file.parents else self._premises.parcel()
            try:
                report = await self._transfer(name, probe_call("dump", name, str(place)))
                if place != file:
                    await asyncio.to_thread(shutil.move, place, file)
            except OSError as error:
                raise TransferError(f"{name}: {file} cannot be written: {error.strerror}") from error
            finally:
                if place != file:
                    place.unlink(missing_ok=True)
            return str(report["summary"])

    async def _inspect(self, name: str) -> str:
        async with self._turn:
            report = await self._look(await self._ensure(), probe_call("inspect", name))
        if "text" not in report:
            raise TransferError(f"{name} cannot be looked at: {report.get('problem', 'it took too long')}")
        return valid_text(str(report["text"]))

    async def _transfer(self, name: str, expression: str) -> dict[str, Any]:
        try:
            child = await self._ensure()
        except KernelError as error:
            raise TransferError(f"{name} cannot travel: {error}") from error
        talk = child.channels.execute("", silent=True, expression=expression)
        try:
            ending = await self._watch(child, talk, TRANSFER_SECONDS, None)
        finally:
            child.channels.forget(talk)
        if ending == "died":
            raise TransferError(f"{name} cannot travel: the kernel process {await child.death()}")
        report = talk.expression("probe")
        if ending != "over" or not report:
            raise TransferError(f"{name} cannot travel: it took longer than {TRANSFER_SECONDS:g} s")
        if report.get("full"):
            raise NoRoom(f"{name} cannot travel: {report['problem']}")
        if "problem" in report:
            raise TransferError(f"{name} cannot travel: {report['problem']}")
        return report
