"""Undo: the kernel's variables as they were before the last actions that ran code, and their files with them.

Where a checkpoint of that moment is kept, the kernel goes back to it. Else the cells before it would run again
in a new kernel: that is said, and done only when it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nbagent.errors import UsageError
from nbagent.events import ActionStarted, Event, FilesChanged, KernelStarted, RunStarted, StateLost, Undone
from nbagent.file_history import Restored, restore_files
from nbagent.protocols import Kernel, WentBack
from nbagent.states import CheckpointDeclined, CheckpointMade
from nbagent.steps import Step, read_items
from nbagent.tools.cell_names import names_of
from nbagent.tools.code import RunCode
from nbagent.tools.sharing import Sharing

MOST_NAMED = 5
NO_CHECKPOINTS = "none was kept (--checkpoints on, Linux only)"


@dataclass(frozen=True)
class Undoable:
    """One action that ran code in the kernel, or that changed files beside it.

    `mark` is that of the kernel's state before it, "" where `why` says why there is none.
    """

    started: int  #: seq of its `ActionStarted`
    run: int
    step: int
    mark: str
    why: str
    in_kernel: bool = True


def undoable(events: Sequence[Event]) -> list[Undoable]:
    """Give the actions that could be undone, oldest first: what ran in the kernel that lives, or changed files."""
    found: list[Undoable] = []
    calls: list[str] = []
    beside: dict[str, ActionStarted] = {}  # calls of other tools
    undone = {seq for event in events if isinstance(event, Undone) for seq in event.actions}
    for event in events:
        if isinstance(event, StateLost) or (isinstance(event, KernelStarted) and not event.resumed):
            restored = event.restored if isinstance(event, StateLost) else ""
            there = next((at for at, one in enumerate(found) if restored and one.mark == restored), 0)
            found = found[:there] + [one for one in found[there:] if not one.in_kernel]
            calls.clear()
        elif isinstance(event, ActionStarted) and event.code and event.tool == RunCode.name:
            found.append(Undoable(event.seq, event.run, event.step, "", NO_CHECKPOINTS))
            calls.append(event.call_id)
        elif isinstance(event, ActionStarted):
            beside[event.call_id] = event
        elif isinstance(event, FilesChanged) and (action := beside.pop(event.call_id, None)) is not None:
            found.append(Undoable(action.seq, action.run, action.step, "", "", in_kernel=False))
        elif isinstance(event, CheckpointMade) and calls[-1:] == [event.call_id]:
            found[-1] = replace(found[-1], mark=event.mark, why="")
        elif isinstance(event, CheckpointDeclined) and calls[-1:] == [event.call_id]:
            found[-1] = replace(found[-1], why=event.why)
    return [one for one in found if one.started not in undone]


def steps_since(events: Sequence[Event], step: int) -> int:
    """Count the actions of the last run that could be undone, from this step on."""
    there = undoable(events)
    return sum(one.run == there[-1].run and one.step >= step for one in there) if there else 0


def news_of_undo(events: Sequence[Event]) -> list[str]:
    """Give what the model has not been told yet of what was undone: it is told with the next task."""
    news: list[str] = []
    for event in events:
        if isinstance(event, RunStarted):
            news.clear()
        elif isinstance(event, Undone):
            news.append(event.message)
    return news


@dataclass
class Undo:
    """Undoes for one session. After a re-run was asked for, its kernel is a new one without variables."""

    events: Sequence[Event]
    kernel: Kernel
    sharing: Sharing
    session_folder: Path
    emit: Callable[[Event], None]
    begun: bool = True  #: false where the session was resumed and its variables are not made yet

    async def __call__(self, count: int, *, rerun: bool, files: bool) -> Undone:
        """Undo the last `count` actions.

        Raises:
            UsageError: there are not so many, or it takes a re-run that was not asked for.
        """
        targets = self._targets(count)
        first = next((one for one in targets if one.in_kernel), None)
        if first is None:
            return await self._files_only(targets)
        checkpoints = self.kernel.checkpoints
        kept = checkpoints is not None and bool(first.mark) and checkpoints.has(first.mark)
        if not kept and not self.kernel.restartable:
            raise UsageError("what your names meant then is not kept any more: it cannot be undone")
        if not kept and not rerun and self.begun:
            raise UsageError(self._would_run_again(first, count))
        went = WentBack((), ())
        if kept:
            assert checkpoints is not None
            went = await checkpoints.go_back(first.mark)
            self.sharing.go_back(first.mark)
        restored = await self._files(targets[0]) if files else Restored()
        if restored.event is not None:
            self.emit(restored.event)
        undone = _undone(targets, went, restored.words(), kept=kept)
        self.emit(undone)
        if not kept and self.begun:
            self.sharing.start_anew()
            await self.kernel.restart()
        return undone

    async def _files_only(self, targets: Sequence[Undoable]) -> Undone:
        """Put files back that were changed beside the kernel, which stays as it is."""
        restored = await self._files(targets[0])
        if restored.event is not None:
            self.emit(restored.event)
        message = f"The user has undone what you did to files last. {restored.words()}.".replace(". .", ".")
        undone = Undone(
            actions=[one.started for one in targets], how="files", message=message, files=restored.words()
        )
        self.emit(undone)
        return undone

    def _targets(self, count: int) -> list[Undoable]:
        if count < 1:
            raise UsageError("write how many steps to undo: 1 or more")
        there = undoable(self.events)
        if not there:
            raise UsageError("there is nothing to undo: no step has run code in this kernel or changed files")
        if count > len(there):
            did = "ran code in this kernel" + ("" if all(one.in_kernel for one in there) else " or changed files")
            raise UsageError(f"only {len(there)} steps {did}: {count} cannot be undone")
        return there[-count:]

    def _would_run_again(self, first: Undoable, count: int) -> str:
        cells = _cells_before(self.events, first)
        why = first.why or "it is not kept any more"
        return (
            f"there is no checkpoint before step {first.step} of run {first.run}: {why}. Undo would start a new "
            f"kernel and run {len(cells)} earlier {'cell' if len(cells) == 1 else 'cells'} again, asking before "
            f"those with effects outside it: `%agent undo {count} --rerun` does so"
        )

    async def _files(self, first: Undoable) -> Restored:
        return await asyncio.to_thread(restore_files, self.events, self.session_folder, since=first.started)


def _cells_before(events: Sequence[Event], first: Undoable) -> list[Step]:
    before = [event for event in events if event.seq < first.started]
    return [item for item in read_items(before) if isinstance(item, Step) and item.runs]


def making_cell(events: Sequence[Event], name: str) -> str:
    """Give the code of the last cell that bound a variable and still counts, or ""."""
    cells = [item.code for item in read_items(events) if isinstance(item, Step) and item.runs]
    return next((code for code in reversed(cells) if name in names_of(code).stored), "")


def _undone(targets: Sequence[Undoable], went: WentBack, files: str, *, kept: bool) -> Undone:
    steps = ", ".join(f"step {one.step} of run {one.run}" for one in targets)
    which = "last code cell" if len(targets) == 1 else f"last {len(targets)} actions"
    told = [f"The user has undone your {which} ({steps})."]
    how = "Your variables are as they were" if went.inside is None else "Each name means what it did"
    told.append(f"{how} before." if kept else "Your kernel is a new one.")
    if went.gone:
        told.append(f"Gone: {', '.join(went.gone)}.")
    if went.back:
        told.append(f"Back as they were: {', '.join(went.back)}.")
    note = _note(went)
    if note:
        told.append(note)
    told.append(f"{files}." if files else "Files and other systems are as the undone cells left them.")
    return Undone(
        actions=[one.started for one in targets],
        how="checkpoint" if kept else "rerun",
        message=" ".join(told),
        back=list(went.back),
        gone=list(went.gone),
        files=files,
        note=note,
    )


def _note(went: WentBack) -> str:
    """Say what became of connections and of programs that had been started, and what did not go back."""
    words = [f"To be opened anew: {went.cut}."] if went.cut else []
    if went.inside is not None:
        words += [f"Changed inside, and still so: {', '.join(went.inside)}."] if went.inside else []
        words += [f"Changed in other cells since, and left so: {', '.join(went.yours)}."] if went.yours else []
        words.append("What was changed in other objects, or deeper inside, stays.")
    if went.ended:
        more = f" and {len(went.ended) - MOST_NAMED} more" if len(went.ended) > MOST_NAMED else ""
        words.append(f"Programs that they had started were ended: {', '.join(went.ended[:MOST_NAMED])}{more}.")
    return " ".join(words)


def undone_in_words(undone: Undone) -> str:
    """Say to the user what came of it."""
    count = len(undone.actions)
    did = "changed files" if undone.how == "files" else "ran code"
    parts = [f"Undone: {count} step{'' if count == 1 else 's'} that {did}."]
    if undone.gone:
        parts.append(f"Gone: {', '.join(undone.gone)}.")
    if undone.back:
        parts.append(f"As before: {', '.join(undone.back)}.")
    parts.append(f"{undone.files}." if undone.files else "They changed no file that is known of.")
    if undone.note:
        parts.append(undone.note)
    if undone.how != "files":
        parts.append("What they did to databases or over the network stays.")
    return " ".join(parts)
