"""The line commands: `%agent status`, `%agent export PATH`, and so on. One small function each."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nbagent.agent_thread import MainThreadQueue
from nbagent.cell_sessions import ShellSessions
from nbagent.errors import TransferError, UsageError
from nbagent.events import RunFinished, RunStarted, Undone
from nbagent.listing import (
    EVERYDAY,
    MODEL_SETTINGS,
    explained,
    options_table,
    pull_weights,
    sessions_table,
    settings_table,
    tools_table,
    weights_table,
)
from nbagent.notebook.clean_cells import clean_cells
from nbagent.notebook.request import ExportRequest, export_session
from nbagent.options import AGAIN, Option, options
from nbagent.session import Session
from nbagent.settings import Resolved
from nbagent.spending import in_words, spending, total
from nbagent.stores.files import FileStore, default_home
from nbagent.tools.built_in import built_in
from nbagent.tools.registry import Registry
from nbagent.tools.sharing import Sharing
from nbagent.undo import making_cell, undoable, undone_in_words
from nbagent.view.choose import CellView
from nbagent.view.insert import Where
from nbagent.view.trace import ENDINGS


class NotebookAgent(Protocol):
    """What the commands need of the notebook's agent."""

    sessions: ShellSessions
    main: MainThreadQueue

    @property
    def session(self) -> Session | None:
        """The current session."""
        ...

    @property
    def views(self) -> Iterable[CellView]:
        """What shows the runs of the last cells."""
        ...

    def insert(self, cells: list[str]) -> Where:
        """Insert cells below the last run's own; say where they are."""
        ...

    def wait(self, coroutine: Any) -> Any:
        """Run a coroutine on the agent thread and wait."""
        ...

    def withdraw(self, session: Session, undone: Undone) -> None:
        """Let no cell replay what was undone."""
        ...

    def run(self, line: str, task: str) -> None:
        """Work on a task; `line` holds the options."""
        ...

    def last_exception(self) -> BaseException | None:
        """Give the last exception that the user's code ended with."""
        ...

    def resolve(self, words: list[str]) -> Resolved:
        """Settings from the words of a line."""
        ...


@dataclass(frozen=True)
class Command:
    """One line command: its usage, one sentence, and what it does with the words after its name."""

    usage: str
    help: str
    run: Callable[[NotebookAgent, list[str]], None]


def _session(magics: NotebookAgent) -> Session:
    if magics.session is None:
        raise UsageError("there is no session yet: run a %%agent cell first")
    return magics.session


def _status(magics: NotebookAgent, words: list[str]) -> None:
    _no_more(words)
    session = magics.session
    if session is None:
        _say("No session yet: run a %%agent cell.")
        return
    runs = [event for event in session.events if isinstance(event, RunFinished)]
    started = [event for event in session.events if isinstance(event, RunStarted)]
    there = undoable(session.events)
    kept = session.kernel.checkpoints
    at_once = sum(not one.in_kernel or (kept is not None and kept.has(one.mark)) for one in there)
    restarted = session.kernel.generation
    anew = f"; started anew {_many(restarted, 'time')}" if restarted else ""
    rows = [
        ("session", f"{session.id}: {_many(len(runs), 'run')}, {_many(sum(run.steps for run in runs), 'step')}"),
        ("model", f"{started[-1].model} at {started[-1].host}" if started else "not chosen yet"),
        ("tokens", in_words(total(session.events))),
        ("kernel", session.kernel.confinement + anew),
        ("undo", f"{_many(len(there), 'step')} ran code; {at_once} can be undone without running cells again"),
        ("folder", str(session.folder)),
    ]
    if runs:
        rows.append(("last run", f"{ENDINGS[runs[-1].reason]}. {runs[-1].message}".rstrip()))
    _say(explained(rows))


def _usage(magics: NotebookAgent, words: list[str]) -> None:
    _no_more(words)
    _say(spending(_session(magics).events))


def _export(magics: NotebookAgent, words: list[str]) -> None:
    flags = [word for word in words if word.startswith("--")]
    paths = [word for word in words if not word.startswith("--")]
    unknown = set(flags) - {"--clean", "--distill", "--verify", "--force"}
    if unknown or len(paths) != 1:
        raise UsageError("write `%agent export PATH [--clean|--distill] [--verify] [--force]`")
    session = _session(magics)
    request = ExportRequest(**{flag.removeprefix("--"): True for flag in flags})
    magics.wait(session.stored())
    exported = export_session(
        session.events,
        Path(paths[0]).expanduser(),
        request,
        redactor=session.redactor,
        main=magics.main,
        session_folder=session.log.folder,
    )
    _say("\n".join(exported.lines))
    exported.check()


def _adopt(magics: NotebookAgent, words: list[str]) -> None:
    names = _names(words, "adopt")
    session = _session(magics)
    for name in names:
        try:
            summary = magics.wait(session.adopt(name))
        except TransferError as error:
            if not (cell := making_cell(session.events, name)):
                raise
            magics.insert([cell])
            raise TransferError(
                f"{error}. The cell that made it is below: run it in your kernel instead"
            ) from None
        _say(f"{name} is now yours: {summary}")


def _bring(magics: NotebookAgent, words: list[str]) -> None:
    names = _names(words, "bring")
    session = _session(magics)
    for name in names:
        summary = magics.wait(session.bring(name))
        _say(f"{name} is now in the agent's kernel: {summary}")


def _undo(magics: NotebookAgent, words: list[str]) -> None:
    flags, counts = [word for word in words if word.startswith("-")], [word for word in words if word.isdigit()]
    if set(flags) - {"--rerun", "--keep-files"} or len(counts) > 1 or len(flags) + len(counts) < len(words):
        raise UsageError("write `%agent undo [N] [--rerun] [--keep-files]`")
    session, count = _session(magics), int(counts[0]) if counts else 1
    undoing = session.undo(magics.sessions.ask, count, rerun="--rerun" in flags, files="--keep-files" not in flags)
    undone = magics.wait(undoing)
    for view in magics.views:
        view.take_undone(undone)
    _say(undone_in_words(undone))
    magics.withdraw(session, undone)


def _cells(magics: NotebookAgent, words: list[str]) -> None:
    _no_more(words)
    cells = clean_cells(_session(magics).events)
    where = magics.insert(cells)
    many = _many(len(cells), "cell")
    if where == "there":
        _say(f"The {many} of the last run stand below its %%agent cell already.")
    elif where == "below":
        _say(f"Inserted {many} below the %%agent cell.")
    else:
        _say(f"The code of {many} is the next input.")


def _reset(magics: NotebookAgent, words: list[str]) -> None:
    _no_more(words)
    ended = magics.sessions.end()
    if ended:
        _say(f"Session {ended} is over, its kernel with it. The next %%agent cell begins a new one.")
    else:
        _say("There is no session to end.")


def _model(magics: NotebookAgent, words: list[str]) -> None:
    if words[:1] == ["pull"]:
        pull_weights(words[1] if len(words) > 1 else None, _say)
    elif words:
        raise UsageError("write `%agent model` or `%agent model pull [NAME]`")
    else:
        _say(f"{weights_table()}\n\n{settings_table(_resolved(magics), MODEL_SETTINGS)}")


def _sessions(magics: NotebookAgent, words: list[str]) -> None:
    _no_more(words)
    _say(sessions_table(FileStore(default_home(os.environ)).summaries()))


def _resume(magics: NotebookAgent, words: list[str]) -> None:
    if not words or words[0].startswith("-"):
        raise UsageError("write `%agent resume ID [--rerun ask|all|safe|none]`; `%agent sessions` lists the ids")
    session = magics.sessions.resume(magics.resolve(["--session", *words]), _say)
    _say(f"The next %%agent cell goes on in session {session.id}.")


def _tools(magics: NotebookAgent, words: list[str]) -> None:
    _no_more(words)
    session = magics.session
    settings = _resolved(magics).settings
    registry = session.tools if session is not None else Registry(built_in(Path.cwd(), Sharing()))
    _say(tools_table(registry, settings, session.kept if session is not None else {}))


def _config(magics: NotebookAgent, words: list[str]) -> None:
    _no_more(words)
    _say(settings_table(_resolved(magics)))


def _resolved(magics: NotebookAgent) -> Resolved:
    return magics.session.resolved if magics.session is not None else magics.resolve([])


def _help(magics: NotebookAgent, words: list[str]) -> None:
    known = list(options())
    if words == ["options"]:
        _say(options_table(known))
        return
    _no_more(words)
    rows = [("%%agent [options]", "work on the task written below it, e.g. Why does the merge lose rows?")]
    rows += [(f"%agent {command.usage}", command.help) for command in COMMANDS.values()]
    _say(explained(rows))
    _say("\nOptions, here the most used:")
    everyday = sorted(_of(known, EVERYDAY), key=lambda option: EVERYDAY.index(option.name))
    _say(options_table([*everyday, AGAIN]))
    rows = [
        ("%agent help options", f"explains all {len(known)}"),
        ("%config NbAgent.max_steps = 20", "sets one for all cells"),
        ("NBAGENT_MAX_STEPS=20", "sets it in the environment"),
    ]
    _say(f"\n{explained(rows)}")


def _of(known: Iterable[Option], names: Sequence[str]) -> list[Option]:
    return [option for option in known if option.name in names]


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _names(words: list[str], command: str) -> list[str]:
    if not words:
        raise UsageError(f"write `%agent {command} NAME...`")
    return words


def _no_more(words: list[str]) -> None:
    if words:
        raise UsageError(f"unexpected: {' '.join(words)}; see `%agent help`")


def _say(line: str) -> None:
    print(line)  # noqa: T201 - the line commands answer with text


def _fix(magics: NotebookAgent, words: list[str]) -> None:
    error = magics.last_exception()
    if error is None:
        raise UsageError("there is no error to fix: run the cell that fails, then `%agent fix`")
    options = shlex.join(words) if words[:1] and words[0].startswith("-") else ""
    hint = "" if options else " ".join(words)
    # Its message may hold anything that data holds: the model is told that apart, marked as data.
    name = type(error).__name__ if type(error).__name__.isidentifier() else "an exception"
    task = (
        f"My last code failed with {name}. Find out why, run the corrected code to check it, and answer with the"
        " cause and the corrected code."
    )
    # Another error may have the same name: what was done about the last one is no answer.
    magics.run(f"--again {options}", f"{task} {hint}".strip())


COMMANDS: dict[str, Command] = {
    "status": Command("status", "session, model, tokens, kernel", _status),
    "usage": Command("usage", "tokens and money by step, by run and in all", _usage),
    "export": Command(
        "export PATH", "write a notebook that runs [--clean|--distill] [--verify] [--force]", _export
    ),
    "adopt": Command("adopt NAME...", "copy the agent's variables into your namespace", _adopt),
    "undo": Command("undo [N]", "undo the last N steps that ran code [--rerun] [--keep-files]", _undo),
    "bring": Command("bring NAME...", "copy your variables into the agent's kernel", _bring),
    "cells": Command("cells", "insert the last run's clean cells below its %%agent cell", _cells),
    "fix": Command("fix [OPTIONS|HINT]", "work on your last exception: why it happened and what helps", _fix),
    "reset": Command("reset", "end the session and its kernel", _reset),
    "model": Command(
        "model [pull]", "embedded models, and the model's settings; pull downloads the weights", _model
    ),
    "sessions": Command("sessions", "list the sessions, newest first", _sessions),
    "resume": Command("resume ID", "go on with a session, its variables made again [--rerun all|none]", _resume),
    "tools": Command("tools", "the agent's tools: where each is from, its risk, its state", _tools),
    "config": Command("config", "every setting with its value and where it came from", _config),
    "help": Command("help [options]", "this text; with `options`, all options", _help),
}
