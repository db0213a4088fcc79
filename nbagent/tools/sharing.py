"""Which of the user's variables are in the agent's kernel, and bringing those that code is about to use.

A variable is copied when it is first needed. Each run looks once whether the user has changed it since, bound
anew or in place, and copies it again then. What the agent bound itself is never replaced by the user's variable
of the same name.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nbagent.errors import NoRoom, TransferError
from nbagent.events import Shared
from nbagent.parcels import SHARED_MEMORY
from nbagent.protocols import Executed, Host, Kernel, ToolContext
from nbagent.tools.cell_names import names_of

MOST_CELLS, LONGEST_CELL = 500, 2000  #: of the user's, in which it is looked for what made a variable; characters
_PIECE = 1 << 20  #: bytes that are compared at once


class Sharing:
    """What was copied from the user's kernel, for as long as the session lives."""

    def __init__(self) -> None:
        self._brought: dict[str, Path] = {}  # name -> the file with what was copied
        self._own: set[str] = set()  # names that the agent's code bound
        self._looked_at: set[str] = set()  # names that were compared, or found not to travel, in this run
        self._storing: set[asyncio.Task[None]] = set()  # copies on their way from memory to the session
        self._at: dict[str, tuple[dict[str, Path], set[str]]] = {}  # mark of a checkpoint -> what was so then

    def keep(self, mark: str) -> None:
        """Take note of what is so at a checkpoint."""
        self._at[mark] = (dict(self._brought), set(self._own))

    def go_back(self, mark: str) -> None:
        """Take note that the kernel went back to a checkpoint."""
        brought, own = self._at.get(mark, ({}, set()))
        self._brought, self._own = dict(brought), set(own)
        self._looked_at.clear()

    def start_anew(self) -> None:
        """Take note that the kernel has no variables."""
        self.go_back("")

    def run_begins(self) -> None:
        """Look anew at what the user has: between runs it may have changed."""
        self._looked_at.clear()

    async def bring(self, name: str, context: ToolContext) -> str:
        """Copy one variable and record it; give its summary. Raises `TransferError`."""
        assert context.host is not None
        self._looked_at.add(name)
        parcel = await self._dump(name, context.host, context.session_folder)
        await self._hand_over(name, parcel, context)
        return parcel.summary

    async def bring_needed(self, code: str, context: ToolContext) -> list[str]:
        """Copy what `code` uses of the user's and the kernel does not have; say what was copied, or why not."""
        host = context.host
        names = names_of(code)
        used = (names.needs | names.built_in) - self._own - self._looked_at
        if host is None or not used:
            return []
        told = []
        for name in [variable.name for variable in await host.call(host.variables) if variable.name in used]:
            self._looked_at.add(name)
            try:
                summary = await self._bring_changed(name, host, context)
            except TransferError as error:
                told.append(
                    f"{name} could not be copied from the user's kernel: {error}{await made_by(name, host)}"
                )
            else:
                if summary is not None:
                    told.append(f"{name} was copied from the user's kernel: {summary}.")
        return told

    async def _bring_changed(self, name: str, host: Host, context: ToolContext) -> str | None:
        """Copy a variable unless the kernel has it as it is; give the summary of what was copied."""
        brought = self._brought.get(name)
        parcel = await self._dump(name, host, context.session_folder)
        try:
            if brought is not None:
                await self.stored()
                if await asyncio.to_thread(_same, brought, parcel.file):
                    parcel.file.unlink()
                    return None
            await self._hand_over(name, parcel, context)
        finally:
            parcel.let_go()
        return parcel.summary

    async def stored(self) -> None:
        """Wait until all that was brought is kept in the session."""
        while self._storing:
            await asyncio.wait(self._storing)

    async def _dump(self, name: str, host: Host, session_folder: Path) -> _Parcel:
        """Pickle a variable: into memory, from which a kernel takes it without copying it, where there is room."""
        folder = session_folder / "shared"
        folder.mkdir(parents=True, exist_ok=True)
        # A file of its own for each copy: an earlier Shared event still points to what was shared then.
        kept = folder / f"{name}-{len(list(folder.iterdir())) + 1}.pkl"
        parcels = [_Parcel(kept, kept)]
        if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK):
            parcels.insert(0, _Parcel(SHARED_MEMORY / f"nbagent-{secrets.token_hex(8)}", kept))
        for parcel in parcels:
            try:
                await host.call(lambda parcel=parcel: parcel.fill(name, host))  # type: ignore[misc]
            except NoRoom:
                if parcel is parcels[-1]:
                    raise
            except asyncio.CancelledError:
                parcel.let_go()  # the main thread may be at it yet
                raise
            else:
                return parcel
        raise AssertionError("the last place raises")

    async def _hand_over(self, name: str, parcel: _Parcel, context: ToolContext) -> None:
        try:
            await context.kernel.bring(name, parcel.file)
            if parcel.file != parcel.kept:
                self._store(parcel.file.open("rb"), parcel.kept)
        finally:
            parcel.let_go()
        self._brought[name] = parcel.kept
        self._own.discard(name)
        context.emit(Shared(name=name, summary=parcel.summary, file=str(parcel.kept)))

    def _store(self, opened: BinaryIO, kept: Path) -> None:
        """Keep what is in memory in the session: a later process may need it. A large one takes its time."""
        part = kept.with_suffix(".part")
        part.touch()  # its number is taken
        if os.fstat(opened.fileno()).st_size <= _PIECE:
            _copy(opened, part, kept)
            return
        storing = asyncio.create_task(asyncio.to_thread(_copy, opened, part, kept))
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)

    async def bring_again(self, name: str, file: Path, kernel: Kernel) -> None:
        """Give a new kernel what was copied into an earlier one. Raises `TransferError`."""
        await kernel.bring(name, file)
        self._brought[name] = file
        self._own.discard(name)

    def executed(self, code: str, executed: Executed) -> None:
        """Take note of what an execution bound or lost."""
        if executed.state_lost or executed.restored:
            self.go_back(executed.restored)
            return
        bound = {variable.name for variable in executed.changes} & names_of(code).stored
        for name in (*bound, *executed.gone):
            self._brought.pop(name, None)
        self._looked_at -= set(executed.gone)
        self._own |= bound
        self._own -= set(executed.gone)


async def made_by(name: str, host: Host) -> str:
    """Tell the user's cell that bound a variable last: run in the agent's kernel, it may make it there. Or ""."""
    cells = await host.call(lambda: host.recent_cells(MOST_CELLS))
    cell = next((cell for cell in reversed(cells) if name in names_of(cell).stored), "")
    return f"\nThe user's cell that made it:\n{cell}" if 0 < len(cell) <= LONGEST_CELL else ""


@dataclass
class _Parcel:
    """A variable on its way: the file that a kernel takes it from, and the one that the session keeps."""

    file: Path
    kept: Path
    summary: str = ""
    over: bool = False

    def fill(self, name: str, host: Host) -> None:
        """Pickle the variable, on the host's main thread."""
        self.summary = host.dump(name, self.file)
        if self.over:
            self.let_go()

    def let_go(self) -> None:
        """Free the memory, which lasts as long as a kernel uses it."""
        self.over = True
        if self.file != self.kept:
            self.file.unlink(missing_ok=True)


def _copy(opened: BinaryIO, part: Path, kept: Path) -> None:
    """Write all of an open file to `kept`, which is there when it is whole; where there is no room it never is."""
    with opened:
        try:
            with part.open("wb") as file:
                shutil.copyfileobj(opened, file, _PIECE)
            part.replace(kept)
        except OSError:  # a later process says that it is missing
            part.unlink(missing_ok=True)


def _same(first: Path, second: Path) -> bool:
    """Whether two files hold the same."""
    try:
        if first.stat().st_size != second.stat().st_size:
            return False
        with first.open("rb") as one, second.open("rb") as other:
            while piece := one.read(_PIECE):
                if piece != other.read(_PIECE):
                    return False
    except FileNotFoundError:  # the session was cleared away meanwhile
        return False
    return True
