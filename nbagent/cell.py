"""What `%%agent` and `%agent` do: parse, hand over to the session, show. State lives in the session."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, NoReturn

from IPython.core.error import UsageError as CellUsageError

from nbagent.agent_thread import MainThreadQueue, agent_thread
from nbagent.api import result_of
from nbagent.cell_sessions import ShellSessions
from nbagent.errors import NbAgentError, UsageError
from nbagent.magic_commands import COMMANDS, Command
from nbagent.notebook.atomic import free_path
from nbagent.notebook.clean_cells import clean_cells
from nbagent.notebook.export import export_notebook
from nbagent.options import add_to
from nbagent.session import Session
from nbagent.settings import Resolved, resolve
from nbagent.view.choose import choose_view
from nbagent.view.widget import AfterWord

RESULT_NAME = "_agent"


class RunStopped(KeyboardInterrupt):
    """The user stopped the run: later cells of a Run All do not run, and no traceback is shown."""

    def _render_traceback_(self) -> list[str]:
        return ["Stopped."]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `%agent help`")


def _cell_parser() -> _Parser:
    parser = _Parser(prog="%%agent", add_help=False, allow_abbrev=False)
    add_to(parser)
    return parser


class NotebookAgent:
    """The agent of one shell, and its session. `config` gives what `%config` set, when it is asked."""

    def __init__(self, shell: Any, config: Callable[[], dict[str, Any]]) -> None:
        self.shell = shell
        self.main = MainThreadQueue()
        self.sessions = ShellSessions(shell, self.main)
        self._config = config

    @property
    def session(self) -> Session | None:
        """The current session."""
        return self.sessions.current

    def agent(self, line: str, cell: str | None) -> None:
        """Work on a task, or do one of the line commands."""
        try:
            if cell is None:
                self._command(line)
            else:
                self._run(line, cell)
        except NbAgentError as error:
            raise CellUsageError(str(error)) from None
        except (KeyboardInterrupt, CancelledError):  # from a key, and from the page
            raise RunStopped from None

    def _run(self, line: str, task: str) -> None:
        resolved = self.resolve(_words(line))
        if not task.strip():
            raise UsageError("the task is empty: write below %%agent what you want to know or have done")
        if resolved.settings.session:
            session = self.sessions.resume(resolved, print)
        else:
            session = self.session or self.sessions.begin(resolved)
        view = choose_view(
            self.shell,
            on_stop=session.stop,
            input_on_main=self.main.input,
            after=lambda name: after_run(session, name),
            quiet=resolved.settings.quiet,
        )
        view.open()
        try:
            finished = agent_thread().run(
                session.run(task, view=view, resolved=resolved), main=self.main, on_interrupt=session.stop
            )
        finally:
            view.close()
        self.shell.user_ns[RESULT_NAME] = result_of(finished, session)
        if finished.reason == "interrupted":
            raise RunStopped

    def resolve(self, words: list[str]) -> Resolved:
        """Settings from the words of a line, over those of the environment."""
        given = vars(_cell_parser().parse_args(words))
        return resolve(given, os.environ, self._config())

    def wait(self, coroutine: Any) -> Any:
        """Run a coroutine on the agent thread and wait, doing the host's part meanwhile."""
        return agent_thread().run(coroutine, main=self.main)

    def _command(self, line: str) -> None:
        words = _words(line)
        name = words[0] if words else "help"
        command: Command | None = COMMANDS.get(name)
        if command is None:
            raise UsageError(f"there is no `%agent {name}`; there is: {', '.join(COMMANDS)}")
        command.run(self, words[1:])


def after_run(session: Session, name: str) -> AfterWord:
    """Do what a button below a finished run asks for."""
    try:
        if name == "cells":
            cells = clean_cells(session.events)
            return AfterWord(f"Inserted {len(cells)} cell{'' if len(cells) == 1 else 's'} below.", cells)
        path = free_path(session.folder / "agent.ipynb")
        export_notebook(session.events, path, redactor=session.redactor)
        return AfterWord(f"Exported to {path.name}.")
    except NbAgentError as error:
        return AfterWord(str(error))


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"the line cannot be read: {error}") from None
