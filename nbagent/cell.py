"""What `%%agent` and `%agent` do: parse, hand over to the session, show. State lives in the session."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.error import UsageError as CellUsageError

from nbagent.agent_thread import MainThreadQueue, agent_thread, interrupts_held
from nbagent.api import EventQueue, result_of
from nbagent.cell_sessions import ShellSessions
from nbagent.errors import NbAgentError, StoreError, UsageError
from nbagent.events import RunFinished, Undone
from nbagent.host import IPythonHost
from nbagent.magic_commands import COMMANDS, Command
from nbagent.notebook.atomic import free_path
from nbagent.notebook.clean_cells import clean_cells
from nbagent.notebook.export import export_notebook
from nbagent.notebook.replay import Found, Records, cell_id, in_output, key_of, withdraw_runs
from nbagent.options import AGAIN, add_to
from nbagent.project import resolve_here
from nbagent.record import Record, record_of
from nbagent.session import Session
from nbagent.settings import Resolved
from nbagent.stores.files import default_home
from nbagent.undo import steps_since, undone_in_words
from nbagent.view.choose import CellView, choose_view, takes_questions
from nbagent.view.insert import Where, insert_cells
from nbagent.view.mail import WAKE_SECONDS, Mail
from nbagent.view.widget import AfterWord

RESULT_NAME = "_agent"
VIEWS = 20  #: cells whose traces still change when steps of theirs are undone
#: What a replay has no use for.
OF_THE_MODEL = frozenset({"model", "base_url", "key_env", "dialect", "price"})
_LAST = ("last_type", "last_value", "last_traceback", "last_exc")  #: of `sys`


class RunStopped(KeyboardInterrupt):
    """The user stopped the run: later cells of a Run All do not run, and one word is shown."""

    def _render_traceback_(self) -> list[str]:
        return ["Stopped."]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `%agent help`")


def _cell_parser() -> _Parser:
    parser = _Parser(prog="%%agent", add_help=False, allow_abbrev=False)
    add_to(parser)
    parser.add_argument(AGAIN.flag, action="store_true")
    return parser


class NotebookAgent:
    """The agent of one shell, and its session. `config` gives what `%config` set, when it is asked."""

    def __init__(self, shell: Any, config: Callable[[], dict[str, Any]]) -> None:
        self.shell = shell
        self.main = MainThreadQueue(Mail(shell).look, wake_seconds=WAKE_SECONDS)
        self.sessions = ShellSessions(shell, self.main)
        self.views: deque[CellView] = deque(maxlen=VIEWS)
        self._config = config
        self._records: Records | None = None
        self._kept: dict[tuple[str, int], Path] = {}  # the records of this process's runs, by session and run
        self._stop_is_told = False  # in the trace of this cell's run: another press of Stop adds no word
        self.last_cell = ""  #: id of the cell of the last run, where the front end says it

    @property
    def session(self) -> Session | None:
        """The current session."""
        return self.sessions.current

    def agent(self, line: str, cell: str | None) -> None:
        """Work on a task, or do one of the line commands."""
        self._stop_is_told = False
        try:
            if cell is None:
                self._command(line)
            else:
                self.run(line, cell)
        except NbAgentError as error:
            self._keep_the_users_exception()
            raise CellUsageError(str(error)) from None
        except (KeyboardInterrupt, CancelledError):  # from a key, and from the page
            self._keep_the_users_exception()
            if self._stop_is_told:
                self._show_no_error()
            raise RunStopped from None

    def _keep_the_users_exception(self) -> None:
        """Put the user's last exception back after IPython has put ours in its place: `fix` looks for it."""
        before = {name: getattr(sys, name) for name in _LAST if hasattr(sys, name)}

        def restore(result: Any) -> None:
            self.shell.events.unregister("post_run_cell", restore)
            if not isinstance(getattr(sys, "last_value", None), CellUsageError | RunStopped):
                return
            for name, value in before.items():
                setattr(sys, name, value)

        self.shell.events.register("post_run_cell", restore)

    def _show_no_error(self) -> None:
        """Let the stop stand in the trace alone: the cell fails, as later ones need, and shows nothing of it."""
        before = self.shell.custom_exceptions, self.shell.CustomTB

        def restore(_: Any) -> None:
            self.shell.events.unregister("post_run_cell", restore)
            self.shell.custom_exceptions, self.shell.CustomTB = before

        self.shell.set_custom_exc((RunStopped,), lambda *_, **__: None)
        self.shell.events.register("post_run_cell", restore)

    def run(self, line: str, task: str) -> None:
        """Work on a task; `line` holds the options."""
        given = _options(_words(line))
        if not task.strip():
            raise UsageError("the task is empty: write below %%agent what you want to know or have done")
        key, again = key_of(given, task), given.pop("again")
        # A replay needs no model, so neither what the line says of one.
        resolved = self._resolve({name: value for name, value in given.items() if name not in OF_THE_MODEL})
        found = self._find_record(key, resolved, again=again)
        if found.record is None:
            resolved = self._resolve(given)
        if found.note:
            print(f"The model is asked: {found.note}.")  # noqa: T201 - the cell's own output
        finished = self._work(task, key, resolved, found.record)
        if finished.reason == "interrupted":
            raise RunStopped
        if (
            found.record is not None
            and resolved.settings.replay == "only"
            and finished.reason != found.record.reason
        ):
            raise UsageError(finished.message)

    def _work(self, task: str, key: str, resolved: Resolved, replayed: Record | None) -> RunFinished:
        """Run the task, or replay it, in the cell; keep the record."""
        if self.session is None and takes_questions(self.shell):
            resolved = replace(resolved, notes=(*resolved.notes, *self.sessions.left_over(resolved)))
        if resolved.settings.session:
            session = self.sessions.resume(resolved, print)
        else:
            session = self.session or self.sessions.begin(resolved)
        self.last_cell = cell_id(self.shell)
        view = choose_view(
            self.shell,
            on_stop=session.stop,
            input_on_main=self.main.input,
            after=lambda name: self._after_run(session, name),
            quiet=resolved.settings.quiet,
            cell=self.last_cell,
        )
        self.views.append(view)
        view.open()
        try:
            finished = agent_thread().run(
                session.run(task, view=view, resolved=resolved, record=replayed),
                main=self.main,
                on_interrupt=session.stop,
            )
            self._stop_is_told = finished.reason == "interrupted"
            if view.undo_from is not None:
                self._take_back(session, view, view.undo_from)
            record = replayed or record_of(key, [event for event in session.events if event.run == finished.run])
            view.metadata = in_output(record) if record is not None else {}
        finally:
            with interrupts_held():
                view.close()
        self.shell.user_ns[RESULT_NAME] = result_of(finished, session)
        if record is not None:
            self._keep(record, (session.id, finished.run), new=replayed is None)
        return finished

    def _find_record(self, key: str, resolved: Resolved, *, again: bool) -> Found:
        if self._records is None:
            asks = takes_questions(self.shell)
            self._records = Records(self.shell, default_home(os.environ), asks=asks)
        return self._records.find(key, resolved.settings.replay, again=again)

    def _keep(self, record: Record, run: tuple[str, int], *, new: bool) -> None:
        if self._records is None:
            return
        self._kept[run] = self._records.file_of(record)
        try:
            if new:
                self._records.keep(record, *run)
        except StoreError as error:
            print(f"This cell's record was not kept: {error}")  # noqa: T201 - the cell's own output

    def withdraw(self, session: Session, undone: Undone) -> None:
        """Let no cell replay what was undone. Raises `StoreError`."""
        runs = {event.run for event in session.events if event.seq in undone.actions}
        for run in runs:
            file = self._kept.pop((session.id, run), None)
            if file is not None and self._records is not None:
                self._records.withdraw(file)
        withdraw_runs(default_home(os.environ), session.id, runs)

    def last_exception(self) -> BaseException | None:
        """Give the last exception that the user's code ended with."""
        return IPythonHost(self.shell, self.main.submit).last_exception()

    def resolve(self, words: list[str]) -> Resolved:
        """Settings from the words of a line, over those of the environment."""
        given = _options(words)
        given.pop("again")
        return self._resolve(given)

    def _resolve(self, given: dict[str, Any]) -> Resolved:
        return resolve_here(given, os.environ, self._config())

    def insert(self, cells: list[str]) -> Where:
        """Insert cells below the last run's own; say where they are."""
        return insert_cells(self.shell, cells, self.last_cell, asks=takes_questions(self.shell))

    def wait(self, coroutine: Any) -> Any:
        """Run a coroutine on the agent thread and wait, doing the host's part meanwhile."""
        return agent_thread().run(coroutine, main=self.main)

    def _take_back(self, session: Session, view: CellView, step: int) -> None:
        """Undo what the run that was just stopped did from a step on."""
        try:
            view.show(self.wait(session.undo(view.ask, steps_since(session.events, step))))
        except NbAgentError as error:
            print(f"Not undone: {error}")  # noqa: T201 - the cell's own output

    def _after_run(self, session: Session, name: str) -> AfterWord:
        """Do what a button below a finished run asks for; called on a thread of its own."""
        try:
            if name == "cells":
                cells = clean_cells(session.events)
                return AfterWord(f"Inserted {len(cells)} cell{'' if len(cells) == 1 else 's'} below.", cells)
            if name == "undo":
                undone = agent_thread().start(session.undo(EventQueue().ask, 1)).result()
                self.withdraw(session, undone)
                return AfterWord(undone_in_words(undone))
            path = free_path(session.folder / "agent.ipynb")
            export_notebook(session.events, path, redactor=session.redactor)
            return AfterWord(f"Exported to {path.name}.")
        except NbAgentError as error:
            return AfterWord(str(error))

    def _command(self, line: str) -> None:
        words = _words(line)
        name = words[0] if words else "help"
        command: Command | None = COMMANDS.get(name)
        if command is None:
            raise UsageError(f"there is no `%agent {name}`; there is: {', '.join(COMMANDS)}")
        command.run(self, words[1:])


def _options(words: list[str]) -> dict[str, Any]:
    return vars(_cell_parser().parse_args(words))


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"the line cannot be read: {error}") from None
