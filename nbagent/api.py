"""The programming interface: `Agent` and `Result`.

from nbagent import Agent
result = Agent(model="gpt-5-mini").run_sync("What is the median of price in shop.csv?")
print(result.answer)
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from nbagent.agent_thread import AgentThread, MainThreadQueue, agent_thread
from nbagent.errors import UsageError
from nbagent.events import Event, Reason, RunFinished, Undone, Usage
from nbagent.notebook.request import ExportRequest, export_session
from nbagent.project import resolve_here
from nbagent.protocols import Approval, ApprovalRequest, Host, View
from nbagent.session import Session
from nbagent.settings import Resolved
from nbagent.stores.files import FileStore, default_home
from nbagent.tools.threads import in_a_thread


@dataclass(frozen=True)
class Result:
    """How one run ended. Only `reason == "answered"` is success."""

    answer: str  #: the model's answer; "" unless it answered
    reason: Reason
    message: str  #: one line: what stopped the run and what to do; "" after an answer
    summary: str  #: what the model said of unfinished work when a limit ended the run; never an answer
    steps: int
    seconds: float
    usage: Usage
    session: str  #: the session's id
    _events: Sequence[Event] = field(repr=False, default=())

    @property
    def success(self) -> bool:
        """Whether the model answered."""
        return self.reason == "answered"

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        clean: bool = False,
        distill: bool = False,
        verify: bool = False,
        force: bool = False,
    ) -> Path:
        """Write the session so far as a notebook that runs; give its path.

        `clean` leaves out what failed, `distill` all that the answers do not need. `verify` executes it in a
        clean kernel first and compares; together with `distill` the smallest notebook that verifies is written.

        Raises:
            FileExistsRefused: the file is there and `force` is not given.
            StoreError: it cannot be written.
            VerificationFailed: it was written, and did not give the same in a clean kernel.
        """
        request = ExportRequest(clean=clean, distill=distill, verify=verify, force=force)
        exported = export_session(self._events, Path(path), request)
        exported.check()
        return exported.report.path

    def __str__(self) -> str:
        return self.answer or "\n".join(filter(None, [f"({self.reason}) {self.message}", self.summary]))


StrPath = str | os.PathLike[str]


#: Answers whether an action may run, async or not; a text other than "yes" is a no with that reason.
ApproveAction = Callable[[ApprovalRequest], bool | str | Approval | Awaitable[bool | str | Approval | None] | None]


def _approval(answer: object) -> Approval:
    """Read what a program answered; only a clear yes is one. Raises `UsageError` for what is no answer."""
    if isinstance(answer, Approval):
        fits = answer.by in ("user", "nobody", "rule") and answer.always in ("", "pattern", "session")
        if fits and isinstance(answer.note, str) and isinstance(answer.code, str | None):
            return answer
    elif isinstance(answer, str):
        said = answer.strip().lower()
        return Approval(said in ("y", "yes"), "user", "" if said in ("y", "yes", "n", "no") else answer)
    elif answer is None or isinstance(answer, int) or type(answer).__name__ == "bool_":  # numpy's
        return Approval(bool(answer), "user")
    raise UsageError(f"approve_action gave {answer!r:.80}: give True, False, a reason for a no, or an Approval")


class EventQueue:
    """A view for programs: hands each event on, asks `approve` where an action needs a yes."""

    def __init__(self, approve: ApproveAction | None = None) -> None:
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._approve = approve

    def show(self, event: Event) -> None:
        """Queue one event."""
        self.events.put_nowait(event)

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Ask the program, on a thread of its own; without a function to ask, nobody is there.

        Raises:
            UsageError: what it answered is no answer.
        """
        if self._approve is None:
            return Approval(approved=False, by="nobody", note="the program gave no approve function")
        answer = await in_a_thread(self._approve, request)
        return _approval(await answer if inspect.isawaitable(answer) else answer)

    def close(self) -> None:
        """Say that no more events come."""
        self.events.put_nowait(None)


class Agent:
    """An agent with one session; its kernel keeps the variables between runs.

    Args:
        approve_action: asked for actions that need a yes; without it they are refused. Async or not, it
            gives True or False, a text as the reason for a no, or an `Approval` with a reason, edited code, or
            what else in the session the yes is for.
        settings: any setting by name, e.g. `model`, `base_url`, `max_steps`, `approve`.

    Raises:
        SettingsError: a setting does not exist or its value does not fit.
    """

    def __init__(
        self,
        *,
        approve_action: ApproveAction | None = None,
        host: Host | None = None,
        **settings: Any,
    ) -> None:
        self._resolved: Resolved = resolve_here(settings, os.environ)
        self._approve = approve_action
        self._host = host
        self._session: Session | None = None
        self._pid = os.getpid()

    @property
    def session(self) -> Session | None:
        """The session, once the first run has begun it."""
        return self._session

    def run_sync(
        self,
        task: str,
        *,
        data: Sequence[StrPath] = (),
        view: View | None = None,
        main: MainThreadQueue | None = None,
    ) -> Result:
        """Work on a task and wait for its end; Ctrl-C stops the run, which then ends as `interrupted`.

        Works where an event loop is running already (in a notebook), too. What a view puts into `main` is
        done here while it waits.
        """
        running = self._run(task, data, view or EventQueue(self._approve))
        return self._thread.run(running, main=main, on_interrupt=self.stop)

    async def run(self, task: str, *, data: Sequence[StrPath] = (), view: View | None = None) -> Result:
        """Work on a task; cancelling it stops the run."""
        return await asyncio.wrap_future(
            self._thread.start(self._run(task, data, view or EventQueue(self._approve)))
        )

    async def stream(self, task: str, *, data: Sequence[StrPath] = ()) -> AsyncGenerator[Event, None]:
        """Work on a task and yield its events as they happen, `RunFinished` last."""
        here = asyncio.get_running_loop()
        queue = EventQueue(self._approve)
        relay = _Relay(queue, here)
        running = asyncio.ensure_future(self.run(task, data=data, view=relay))
        running.add_done_callback(lambda _: queue.close())
        try:
            while (event := await queue.events.get()) is not None:
                yield event
            await running
        finally:
            if not running.done():  # whoever listened has left: the run ends here, too
                self.stop()
                await asyncio.wait([running])

    async def undo(self, count: int = 1, *, rerun: bool = False, files: bool = True) -> Undone:
        """Undo the last `count` steps that ran code: the kernel's variables and, unless `files` is false, files.

        Raises:
            UsageError: there are not so many, or earlier cells would have to run again and `rerun` is false.
        """
        if self._session is None:
            raise UsageError("there is nothing to undo: no run has begun")
        undoing = self._session.undo(EventQueue(self._approve).ask, count, rerun=rerun, files=files)
        return await asyncio.wrap_future(self._thread.start(undoing))

    def undo_sync(self, count: int = 1, *, rerun: bool = False, files: bool = True) -> Undone:
        """Do what `undo` does, and wait for it."""
        if self._session is None:
            raise UsageError("there is nothing to undo: no run has begun")
        undoing = self._session.undo(EventQueue(self._approve).ask, count, rerun=rerun, files=files)
        return self._thread.run(undoing)

    def stop(self) -> None:
        """Stop the run under way; what was done is kept. Safe from any thread."""
        if self._session is not None:
            self._session.stop()

    async def aclose(self) -> None:
        """End the session: its kernel and everything its code started."""
        if (closing := self._closing()) is not None:
            await asyncio.wrap_future(closing)

    def close(self) -> None:
        """End the session and wait for it."""
        if (closing := self._closing()) is not None:
            closing.result()

    def _closing(self) -> Future[None] | None:
        session, self._session = self._session, None
        if session is None or self._pid != os.getpid():  # a fork must not end what its parent works with
            return None
        self._thread.at_exit(session, None)
        return self._thread.start(session.close())

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _thread(self) -> AgentThread:
        if self._session is not None and self._pid != os.getpid():
            raise UsageError("this agent's kernel belongs to the process before the fork: make a new Agent here")
        return agent_thread()

    async def _run(self, task: str, data: Sequence[StrPath], view: View) -> Result:
        if self._session is None:
            session = Session(
                self._resolved, store=FileStore(default_home(os.environ)), host=self._host, environment=os.environ
            )
            self._session, self._pid = session, os.getpid()
            self._thread.at_exit(session, session.close)
        session = self._session  # a `close` in mid-run takes it from the agent, not from here
        finished = await session.run(task, view=view, data=_data_paths(data))
        return result_of(finished, session)


def result_of(finished: RunFinished, session: Session) -> Result:
    """Give the result of a run that has ended."""
    return Result(
        answer=finished.answer,
        reason=finished.reason,
        message=finished.message,
        summary=finished.summary,
        steps=finished.steps,
        seconds=finished.seconds,
        usage=finished.usage,
        session=session.id,
        _events=list(session.events),
    )


def _data_paths(data: Sequence[StrPath]) -> list[Path]:
    paths = [Path(path).expanduser().resolve() for path in data]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"data file {path} is not there")
    return paths


class _Relay:
    """Carries events from the agent thread to the loop that streams them."""

    def __init__(self, queue: EventQueue, loop: asyncio.AbstractEventLoop) -> None:
        self._queue = queue
        self._loop = loop

    def show(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._queue.show, event)

    async def ask(self, request: ApprovalRequest) -> Approval:
        return await self._queue.ask(request)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._queue.close)
