"""The `run_code` tool: runs a cell in the agent's kernel."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from nbagent.events import (
    ActionStatus,
    DataFile,
    DataFilesSeen,
    FilesChanged,
    KernelDied,
    Output,
    PackagesImported,
    Replaced,
    Risk,
    StateLost,
)
from nbagent.programs import PackageChange
from nbagent.protocols import Executed, ToolContext, ToolResult, ToolSpec
from nbagent.tool_traits import ToolTraits
from nbagent.tools.checkpoint import keep_state, keep_state_soon
from nbagent.tools.definition import terse_schema
from nbagent.tools.doubtful import Doubts
from nbagent.tools.failing_tests import failing_tests
from nbagent.tools.file_changes import Watch, files_line
from nbagent.tools.hints import hint
from nbagent.tools.inputs import Inputs
from nbagent.tools.installing import install, installs_of, packages_line, what_failed
from nbagent.tools.own_files import OwnFiles
from nbagent.tools.pictures import pictures
from nbagent.tools.risk import Grader
from nbagent.tools.shape import notice, tell, variables_line
from nbagent.tools.sharing import Sharing
from nbagent.tools.source import parse, syntax_error, without_fences
from nbagent.tools.streaming import Streaming

#: Checking the code takes time with its length, and no cell that a person would read comes near this.
LONGEST_CODE = 200_000

_STATUS: dict[str, ActionStatus] = {"died": "error"}


class RunCodeArguments(BaseModel):
    """What `run_code` takes: code that does not parse is answered before it reaches the kernel."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(description="Python for one cell, as typed in a notebook; magics and ! work.")

    @field_validator("code")
    @classmethod
    def _parses(cls, code: str) -> str:
        code = without_fences(code)
        if not code.strip():
            raise ValueError("there is no code in it")
        if len(code) > LONGEST_CODE:
            raise ValueError(
                f"it is too long to be run: {len(code):,} characters of at most {LONGEST_CODE:,}. "
                "Read data from a file, or make it in a loop"
            )
        if fault := syntax_error(code):
            raise ValueError(f"it does not parse, so it was not run.\n{fault}")
        if not parse(code).body:
            raise ValueError("it holds comments only, so nothing was run. Send the code itself")
        return code


class RunCode:
    """Runs Python in the kernel, whose variables stay from call to call.

    `workspace` is the folder that the kernel works in: what stands there already is not overwritten unasked.
    """

    name = "run_code"
    arguments: type[BaseModel] = RunCodeArguments
    spec = ToolSpec(
        name=name,
        description=(
            "Run Python in a Jupyter kernel; variables and imports stay between calls. Use it to look, compute and"
            ' plot. Example: {"code": "df = pd.read_csv(\'a.csv\')\\ndf.head()"}. Shows prints, the last'
            " line's value, errors and changed variables. Mistakes: no print and no last expression, so nothing"
            " shows; printing whole tables."
        ),
        schema=terse_schema(RunCodeArguments),
    )

    def __init__(self, workspace: Path, sharing: Sharing | None = None):
        self._workspace = workspace
        self._sharing = sharing or Sharing()
        self._own = OwnFiles()
        self._grader = Grader(exists=self._exists, owns=lambda path: self._own.has(path, workspace))
        self.traits = ToolTraits(small=True, patterns=lambda values: self._grader.reasons(values["code"]))

    def grade(self, arguments: dict[str, Any], context: ToolContext) -> tuple[Risk, str]:
        """Grade the code from its syntax tree and shell words."""
        self._own = context.kept(OwnFiles)
        return self._grader.grade(arguments["code"])

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the code, emitting its outputs as they come."""
        code = arguments["code"]
        looking = self._look(code, context)  # while the state is kept
        try:
            if mark := await keep_state(context):
                self._sharing.keep(mark)
            copied = await self._sharing.bring_needed(code, context)
        except BaseException:
            looking.cancel()
            raise
        outputs, executed, changed, packages = await self._watched(code, context, looking, keep=True)
        _tell_of_loss(executed, context)
        # What was copied is told among the data: a summary names columns, which anyone may have named.
        variables = variables_line(executed.changes, executed.gone)
        otherwise = f"In your copy of the user's kernel: {executed.differences}." if executed.differences else ""
        told = [otherwise, *copied, packages_line(packages), variables, files_line(changed), self._hint(executed)]
        text = tell(outputs, executed)
        pixels = context.image_pixels
        return ToolResult(
            _STATUS.get(executed.status) or cast("ActionStatus", executed.status),
            "\n".join(filter(None, [text, failing_tests(text, self._workspace)])),
            summary=executed.error.partition("\n")[0] or files_line(changed),
            execution_count=executed.execution_count,
            notice=notice(outputs, executed),
            changes="\n".join(filter(None, told)),
            doubt=await self._doubt(code, executed, context),
            images=await asyncio.to_thread(pictures, outputs, pixels) if pixels else (),
        )

    async def _doubt(self, code: str, executed: Executed, context: ToolContext) -> str:
        if executed.status != "ok":
            return ""
        doubts, files = context.kept(Doubts), context.kept(Inputs).paths
        return await asyncio.to_thread(doubts.look, code, executed.changes, files)

    def _hint(self, executed: Executed) -> str:
        # It stands among the data, because it may name columns and files, which anyone may have named.
        if executed.status != "error":
            return ""
        return hint(executed.error, executed.columns, self._workspace)

    def _look(self, code: str, context: ToolContext) -> asyncio.Future[tuple[list[DataFile], Watch]]:
        """Look at the files that the code starts from, copy those that it may overwrite, and look at the others.

        On a thread: a folder may be slow to read, and a copy large.
        """
        paths, anything = self._grader.touches(code)
        inputs, own = context.kept(Inputs), context.kept(OwnFiles)
        place = self._workspace, context.session_folder

        def look() -> tuple[list[DataFile], Watch]:
            files = inputs.look(code, self._workspace, own)
            return files, Watch(*place, paths=paths, anything=anything, words=code)

        return asyncio.ensure_future(asyncio.to_thread(look))

    async def run_again(self, code: str, context: ToolContext) -> tuple[list[Output], Executed]:
        """Run code that ran in an earlier kernel of the session; nothing is brought for it or told of it."""
        outputs, executed, *_ = await self._watched(code, context, self._look(code, context))
        return outputs, executed

    async def _watched(
        self,
        code: str,
        context: ToolContext,
        looking: asyncio.Future[tuple[list[DataFile], Watch]],
        *,
        keep: bool = False,
    ) -> tuple[list[Output], Executed, FilesChanged | None, list[PackageChange]]:
        """Run it, say which files and packages it changed, and take note of what it did to names.

        `keep`: the state that it leaves is kept from here on, while what it gave is told and thought about.
        """
        files, watch = await looking
        if files:
            context.emit(DataFilesSeen(files=files))
        changed = None
        try:
            outputs, executed, packages = await _execute(code, context)
            if keep:
                keep_state_soon(context)
                await asyncio.sleep(0)  # it begins now: what follows does not wait for anything
        finally:
            if (changed := watch.changes()) is not None:
                context.emit(changed)
                context.kept(OwnFiles).took(changed)
        if executed.imported:
            context.emit(PackagesImported(packages=dict(executed.imported)))
        self._sharing.executed(code, executed)
        self._grader.ran(code, completed=executed.status == "ok")
        return outputs, executed, changed, packages

    def _exists(self, path: str) -> bool:
        return (self._workspace / path).exists()


def _tell_of_loss(executed: Executed, context: ToolContext) -> None:
    if executed.status == "died":
        context.emit(KernelDied(why=executed.error))
    if executed.replaced:
        context.emit(Replaced(names=list(executed.replaced)))
    if executed.state_lost:
        context.emit(StateLost(names=list(executed.lost_names), restored=executed.restored))


async def _execute(code: str, context: ToolContext) -> tuple[list[Output], Executed, list[PackageChange]]:
    """Run it; emit each output, masked, as it comes. What it installs is installed first."""
    streaming = Streaming(context)
    wanted, packages = installs_of(code), list[PackageChange]()
    for arguments in wanted.commands:
        ended = await install(arguments, context, streaming, context.cell_timeout)
        packages += ended.packages
        if why := what_failed(arguments, ended):
            streaming.flush()
            error = f"{why}; the rest of the cell was not run"
            return streaming.outputs, Executed("error", ended.seconds, error=error), packages
    async with aclosing(context.kernel.execute(wanted.rest, timeout=context.cell_timeout)) as results:
        async for item in results:
            if isinstance(item, Executed):
                streaming.flush()
                return streaming.outputs, item, packages
            streaming.add(item)
    raise AssertionError("a kernel ends each execution with Executed")
