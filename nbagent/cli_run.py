"""`nbagent run`: one task from a shell."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from nbagent.agent_thread import MainThreadQueue, agent_thread
from nbagent.api import Agent, Result
from nbagent.errors import FileExistsRefused, UsageError
from nbagent.events import Event, Undone, to_json
from nbagent.notebook.replay import withdraw_runs
from nbagent.notebook.request import ExportRequest, export_session
from nbagent.project import resolve_here
from nbagent.protocols import Approval, ApprovalRequest, View
from nbagent.session import Session
from nbagent.stores.files import FileStore, default_home
from nbagent.undo import undone_in_words
from nbagent.view.terminal import TerminalView


class JsonLines:
    """A view that prints one event a line, deltas left out; nobody is there to ask."""

    def show(self, event: Event) -> None:
        """Print one event."""
        if event.stored:
            click.echo(to_json(event))

    async def ask(self, request: ApprovalRequest) -> Approval:
        """Say no: a program reads this output."""
        return Approval(approved=False, by="nobody", note="--json asks no questions; see --approve")

    def close(self) -> None:
        """Nothing is left to write."""


def terminal_view(settings: Mapping[str, Any], main: MainThreadQueue) -> TerminalView:
    """Show a run on this process's terminal, and read answers on its waiting thread."""
    quiet = resolve_here(settings, os.environ).settings.quiet
    return TerminalView(interactive=sys.stdin.isatty(), quiet=quiet, input_on_main=main.input)


def _can_be_written(path: Path, *, force: bool) -> None:
    """Refuse before the run what could only fail after it.

    Raises:
        UsageError: it is no name for a notebook, or its folder cannot be there.
        FileExistsRefused: it is there and `force` is not given.
    """
    if os.path.lexists(path) and not force:
        raise FileExistsRefused(f"{path} is there already: choose another name, or --force to overwrite it")
    if path.suffix != ".ipynb" or path.is_dir():
        raise UsageError(f"--export {path} is no name for a notebook: let it end in .ipynb")
    nearest = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise UsageError(f"--export {path} cannot be written: {nearest} is no folder that you may write to")


def run_task(
    task: str,
    data: Sequence[str],
    settings: dict[str, Any],
    *,
    export_to: str | None,
    request: ExportRequest,
    as_json: bool,
) -> Result:
    """Run one task and export it as asked, whatever the ending.

    Raises:
        NbAgentError: the task could not be begun, or the export could not be written.
        VerificationFailed: it answered, and the export did not verify.
    """
    if export_to:
        _can_be_written(Path(export_to), force=request.force)
    elif request.rungs != ("full",) or request.verify:
        raise UsageError("--clean, --distill and --verify say how to export: name the file with --export PATH")
    main = MainThreadQueue()
    view: View = JsonLines() if as_json else terminal_view(settings, main)
    with Agent(**settings) as agent:
        try:
            result = agent.run_sync(task, data=data, view=view, main=main)
        finally:
            view.close()
        if export_to and agent.session is not None:
            session = agent.session
            exported = export_session(
                session.events, Path(export_to), request, redactor=session.redactor, main=main
            )
            click.echo("\n".join(exported.lines), err=as_json)
            if result.success:  # else its own ending says more than that it is not proven
                exported.check()
    return result


def undo_steps(session: str, count: int, *, files: bool) -> str:
    """Undo steps of a session that no process has open; give what came of it in words.

    Raises:
        NbAgentError: there is no such session, it is in use, or it has not so many steps.
    """

    async def undo() -> Undone:
        resumed = Session(
            resolve_here({"session": session}, os.environ), store=FileStore(default_home(os.environ))
        )
        try:
            undone = await resumed.undo(JsonLines().ask, count, files=files)
            runs = {event.run for event in resumed.events if event.seq in undone.actions}
            withdraw_runs(default_home(os.environ), resumed.id, runs)
            return undone
        finally:
            await resumed.close()

    return undone_in_words(agent_thread().run(undo()))
