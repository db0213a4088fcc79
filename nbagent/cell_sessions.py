"""The sessions of one shell: the current one, and those that were put aside with their kernels alive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from nbagent.agent_thread import MainThreadQueue, agent_thread
from nbagent.errors import SessionBusy
from nbagent.events import KernelRestored, RunFinished, RunStarted
from nbagent.host import IPythonHost
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.session import Session
from nbagent.settings import Resolved
from nbagent.stores.files import FileStore, default_home
from nbagent.view.outputs import visible
from nbagent.view.trace import restored_in_words
from nbagent.workplace import working_folder

LONGEST_TASK = 80  #: characters of a task that is named


class ShellSessions:
    """Begins, resumes and ends sessions; at most one is the current one."""

    def __init__(self, shell: Any, main: MainThreadQueue) -> None:
        self.current: Session | None = None
        self._shell = shell
        self._main = main
        self._aside: list[Session] = []

    def begin(self, resolved: Resolved) -> Session:
        """Make a new session, or the one that `resolved` names, the current one. Raises `NbAgentError`."""
        host = IPythonHost(self._shell, self._main.submit)
        session = Session(resolved, store=_store(), host=host, environment=os.environ)
        agent_thread().at_exit(session, session.close)
        self._make_current(session)
        return session

    def left_over(self, resolved: Resolved) -> Iterator[str]:
        """Say how to go on with what the last process left unfinished in this folder."""
        folder = str(working_folder(resolved.settings))
        store = _store()
        newest = next((one for one in store.summaries() if one.folder == folder and one.runs), None)
        if newest is None or newest.reason == "answered" or resolved.settings.session:
            return
        with suppress(SessionBusy):  # another notebook here is at work in it
            store.open(newest.id).close()
            yield f"The last session here was left unfinished: `%agent resume {newest.id}` goes on with it."

    def resume(self, resolved: Resolved, say: Callable[[str], None]) -> Session:
        """Make the session that `resolved` names the current one, its variables with it; say what came of it.

        Raises:
            NbAgentError: there is no such session, it is in use, or no kernel came up for it.
            KeyboardInterrupt: stopped while cells ran again; the session is resumed all the same.
        """
        named = resolved.settings.session
        session = next((open_ for open_ in self._open() if open_.id.startswith(named)), None)
        if session is not None:
            if session is not self.current:
                self._make_current(session)
                say(f"Session {session.id} is the current one again; its kernel has lived on.")
            return session
        session = self.begin(resolved)
        for line in _where_it_stands(session):
            say(line)
        restored = agent_thread().run(session.restore(self.ask), main=self._main)
        if restored is not None:
            say(restored_in_words(restored))
        if restored is not None and (restored.left_out or restored.missing):
            say(_how_to_run_all(session, restored))
        return session

    def end(self) -> str:
        """Close the current session, its kernel with it; give its id, or "" where there is none."""
        session, self.current = self.current, None
        if session is None:
            return ""
        agent_thread().at_exit(session, None)
        agent_thread().run(session.close(), main=self._main)
        return session.id

    def end_all(self) -> None:
        """Close every session of this shell."""
        while self.end() or self._aside:
            self.current = self._aside.pop() if self._aside else None

    def _open(self) -> Iterator[Session]:
        if self.current is not None:
            yield self.current
        yield from self._aside

    def _make_current(self, session: Session) -> None:
        if self.current is not None:
            self._aside.append(self.current)
        self._aside = [other for other in self._aside if other is not session]
        self.current = session

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Ask whether cells may run again, with `input()`."""
        try:
            line = await self._main.input(f"{visible(request.code)}\n\n{request.why}\nRun them again? [y/N] ")
        except (EOFError, NotImplementedError):  # this front end takes no questions
            return Approval(approved=False, by="nobody")
        return Approval(approved=line.strip().lower() in ("y", "yes"), by="user")


def _store() -> FileStore:
    return FileStore(default_home(os.environ))


def _where_it_stands(session: Session) -> Iterator[str]:
    begun = [event for event in session.events if isinstance(event, RunStarted)]
    ended = [event for event in session.events if isinstance(event, RunFinished)]
    runs = "1 run" if len(begun) == 1 else f"{len(begun)} runs"
    yield f"Session {session.id} goes on: {runs}, {sum(run.steps for run in ended)} steps, in {session.folder}."
    if begun and ended and ended[-1].reason != "answered":
        task = " ".join(begun[-1].task.split())
        task = task if len(task) <= LONGEST_TASK else f"{task[: LONGEST_TASK - 1]}…"
        yield f"Its last run is unfinished ({ended[-1].reason}): “{task}”. `continue` below %%agent goes on."


def _how_to_run_all(session: Session, restored: KernelRestored) -> str:
    some = "What is missing" if restored.missing else "What was left out"
    return f"{some} comes back with `%agent reset`, then `%agent resume {session.id} --rerun all`."
