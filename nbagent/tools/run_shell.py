"""The `run_shell` tool: runs a program of the system beside the kernel, held like the kernel's code."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from nbagent.events import ActionStatus, FilesChanged, Risk
from nbagent.programs import ProgramEnded
from nbagent.protocols import Executed, ToolContext, ToolResult, ToolSpec
from nbagent.tool_traits import ToolTraits
from nbagent.tools.definition import terse_schema
from nbagent.tools.failing_tests import failing_tests
from nbagent.tools.file_changes import Watch, files_line
from nbagent.tools.findings import words
from nbagent.tools.installing import install, installs_of, packages_line
from nbagent.tools.own_files import OwnFiles
from nbagent.tools.risk import Grader
from nbagent.tools.shape import tell
from nbagent.tools.streaming import Streaming

LONGEST_COMMAND = 20_000  #: characters
LONGEST_TIMEOUT = 3600.0  #: seconds
#: The first line by which a cell of a notebook does the same.
_CELL = "%%bash\n"
#: What only a shell understands; without any of it the words are run as they are.
_NEEDS_A_SHELL = re.compile(r"[|&;<>()$`*?\[\]{}~!#\n]|^\s*\w+\+?=")
_BUILT_IN = words(
    "cd exit export source . alias eval exec set unset ulimit umask read type command time if for while"
)


class RunShellArguments(BaseModel):
    """What `run_shell` takes."""

    model_config = ConfigDict(extra="forbid")

    command: str
    timeout: float = Field(60, description="Seconds.")

    @field_validator("timeout")
    @classmethod
    def _is_a_time(cls, seconds: float) -> float:
        if not 0 < seconds <= LONGEST_TIMEOUT:
            raise ValueError(f"it has to be more than 0 and at most {LONGEST_TIMEOUT:g} seconds")
        return seconds

    @field_validator("command")
    @classmethod
    def _parses(cls, command: str) -> str:
        command = command.strip().removeprefix("!").removeprefix("$ ").strip()
        if not command:
            raise ValueError("there is no command in it")
        if len(command) > LONGEST_COMMAND or "\0" in command:
            raise ValueError("it is too long to be run, or holds null bytes")
        if not _NEEDS_A_SHELL.search(command):
            try:
                shlex.split(command)
            except ValueError as error:
                raise ValueError(f"it does not parse, so it was not run: {error}") from None
        return command


class RunShell:
    """Runs one command line. What the user allows with "always" is allowed by what it does, e.g. "runs pytest"."""

    name = "run_shell"
    arguments: type[BaseModel] = RunShellArguments
    spec = ToolSpec(
        name=name,
        description=(
            "Run a command line in the working folder, e.g. git, tests or ruff; nobody can type into it. Python is"
            ' for run_code. A folder or variable set here is gone afterwards. Example: {"command": "pytest -q"}.'
        ),
        schema=terse_schema(RunShellArguments),
    )

    def __init__(self) -> None:
        self.traits = ToolTraits(
            tags=("shell",),
            patterns=lambda values: Grader().reasons(as_cell(values)),
            code=as_cell,
            with_code=lambda values, code: {**values, "command": code.removeprefix(_CELL.rstrip()).strip()},
        )

    def grade(self, arguments: dict[str, Any], context: ToolContext) -> tuple[Risk, str]:
        """Grade the command by its words."""
        return _grader(context).grade(as_cell(arguments))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run it, emitting what it prints as it comes, and tell how it ended."""
        command = str(arguments["command"])
        paths, anything = _grader(context).touches(as_cell(arguments))
        watch = await asyncio.to_thread(
            Watch, context.folder, context.session_folder, paths=paths, anything=anything, words=command
        )
        streaming = Streaming(context)
        changed: FilesChanged | None = None
        try:
            limit = min(float(arguments["timeout"]), context.cell_timeout)
            ended = await _run(command, limit, context, streaming)
        finally:
            streaming.flush()
            if (changed := watch.changes()) is not None:
                context.emit(changed)
                context.kept(OwnFiles).took(changed)
        text = tell(streaming.outputs, Executed("ok", ended.seconds))
        return ToolResult(
            _status(ended),
            "\n".join(filter(None, [text, failing_tests(text, context.folder)])),
            summary=" ".join(filter(None, [_ending(ended, command), files_line(changed)])),
            notice=_ending(ended, command) if _status(ended) != "ok" or ended.left_running else "",
            changes="\n".join(filter(None, [packages_line(ended.packages), files_line(changed), ended.advice])),
        )


async def _run(command: str, limit: float, context: ToolContext, streaming: Streaming) -> ProgramEnded:
    """Run it as a program, or have installed what is all that it does."""
    for arguments in (wanted := installs_of(f"{_CELL}{command}").commands):
        ended = await install(arguments, context, streaming, limit)
        if arguments is wanted[-1] or _status(ended) != "ok":
            return ended
    async with aclosing(context.kernel.run_program(words_of(command), timeout=limit)) as items:
        async for item in items:
            if isinstance(item, ProgramEnded):
                return item
            streaming.add(item)
    raise AssertionError("a program ends with ProgramEnded")


def as_cell(arguments: dict[str, Any]) -> str:
    """Give the cell of a notebook that does the same: it is graded, shown and exported so."""
    return f"{_CELL}{arguments['command']}"


def words_of(command: str) -> list[str]:
    """Give the words to run: the command's own, or a shell's with the command as its program."""
    if not _NEEDS_A_SHELL.search(command):
        given = shlex.split(command)
        if given[0] not in _BUILT_IN:
            return given
    if os.name == "nt":
        return ["cmd", "/c", command]
    return [shutil.which("bash") or "/bin/sh", "-c", command]


def _grader(context: ToolContext) -> Grader:
    own, folder = context.kept(OwnFiles), context.folder
    return Grader(exists=lambda path: (folder / path).exists(), owns=lambda path: own.has(path, folder))


def _status(ended: ProgramEnded) -> ActionStatus:
    if ended.status == "timeout":
        return "timeout"
    return "ok" if ended.code == 0 and not ended.not_started else "error"


def _ending(ended: ProgramEnded, command: str) -> str:
    """Say in a line how it ended."""
    if ended.not_started:
        program = command.split(maxsplit=1)[0][:60]
        missing = ended.not_started == os.strerror(2)
        return f"There is no program {program}." if missing else f"{program} was not started: {ended.not_started}."
    if ended.status == "timeout":
        told = f"Stopped after {ended.seconds:.3g} s: the time limit."
    elif ended.code < 0:
        told = f"It was ended by signal {-ended.code}."
    else:
        told = f"Exit status {ended.code}."
    return told + (" What it left running in the background was ended." if ended.left_running else "")
