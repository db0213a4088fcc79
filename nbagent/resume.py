"""Going on with a session that another process began: what its log says, and its kernel's state made again.

The conversation needs nothing of this: it is a function of the log. A kernel ends with its process, so its
variables are made anew by running again the cells that made them. Cells with effects outside the kernel, and
costly ones, run again only after a yes; what comes out otherwise than the first time is said.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nbagent.errors import KernelError, SettingsError, TransferError
from nbagent.events import (
    ActionFinished,
    ActionProposed,
    ActionStarted,
    AsideAnswered,
    Event,
    FilesChanged,
    KernelRestored,
    KernelStarted,
    Observed,
    Output,
    Risk,
    RunFinished,
    RunStarted,
    SessionResumed,
    SessionStarted,
    Shared,
    StateLost,
    StepFinished,
    StepStarted,
    Usage,
)
from nbagent.protocols import Approval, ApprovalRequest, Executed, ToolContext
from nbagent.same_outputs import is_masked, lines_of, quoted
from nbagent.settings import Resolved
from nbagent.steps import Lost, Step, read_items
from nbagent.tools.cell_names import names_of
from nbagent.tools.code import RunCode
from nbagent.tools.own_files import OwnFiles
from nbagent.tools.sharing import Sharing

#: A cell that ran longer than this, in seconds, is costly: it runs again only after a yes.
COSTLY_SECONDS = 30.0
_RISKS: tuple[Risk, ...] = ("read", "write", "overwrite", "network", "destructive")

Ask = Callable[[ApprovalRequest], Awaitable[Approval]]


@dataclass(frozen=True)
class Past:
    """What a session's log says of how it was set up and how far it came."""

    nonce: str  #: "" where the log does not say
    folder: str  #: the same
    runs: int
    generation: int  #: of the next kernel


def past_of(events: Sequence[Event]) -> Past:
    """Read it from the log; damaged lines leave their part out."""
    begun = [event for event in events if isinstance(event, SessionStarted | SessionResumed)]
    kernels = [event.generation for event in events if isinstance(event, KernelStarted)]
    return Past(
        nonce=begun[-1].nonce if begun else "",
        folder=begun[-1].folder if begun else "",
        runs=max((event.run for event in events), default=0),
        generation=max(kernels) + 1 if kernels else 0,
    )


def in_its_folder(resolved: Resolved, past: Past) -> Resolved:
    """Let the session work where it did, unless an option says otherwise. Raises `SettingsError`."""
    if resolved.origins.get("folder") == "option" or not past.folder:
        return resolved
    if not Path(past.folder).is_dir():
        raise SettingsError(f"the session's folder {past.folder} is gone: name another with --folder")
    settings = resolved.settings.model_copy(update={"folder": past.folder})
    return replace(resolved, settings=settings, origins={**resolved.origins, "folder": "the session"})


def endings_of(events: Sequence[Event]) -> list[Event]:
    """Give what is missing of a run that was cut off: an answer for each open call, and its ending.

    They are stored like any other event, so that the log alone still rebuilds every request.
    """
    begun = [position for position, event in enumerate(events) if isinstance(event, RunStarted)]
    if not begun:
        return []
    run = events[begun[-1] :]
    if any(isinstance(event, RunFinished) for event in run):
        return []
    steps = [position for position, event in enumerate(run) if isinstance(event, StepStarted)]
    where = {"run": run[0].run, "step": max(event.step for event in run)}
    in_flight = run[steps[-1] :] if steps else []
    endings: list[Event] = []
    for event in in_flight:
        if isinstance(event, ActionProposed):
            answer = _answer(event.call_id, in_flight)
            endings += [end.model_copy(update={**where, "call_id": event.call_id}) for end in answer]
    usage = sum((event.usage for event in run if isinstance(event, StepFinished | AsideAnswered)), Usage())
    message = "nbagent was ended in mid-run. What was done before is kept; `continue` goes on from there."
    finished = RunFinished(
        reason="interrupted",
        message=message,
        usage=usage,
        steps=len(steps),
        seconds=max(event.time for event in run) - run[0].time,
    )
    return [*endings, finished.model_copy(update=where)]


def _answer(call_id: str, step: Sequence[Event]) -> list[Event]:
    """Answer a call of the step that was cut off, as far as it got."""
    about = [event for event in step if event.call_id == call_id]
    if any(isinstance(event, Observed) for event in about):
        return []
    ended = next((event for event in about if isinstance(event, ActionFinished)), None)
    if ended is not None:
        said = f": {ended.summary}" if ended.summary else ""
        text = f"It ended ({ended.status}{said}), but nbagent was ended before its output was told. Look again."
        return [Observed(text=text)]
    if any(isinstance(event, ActionStarted) for event in about):
        text = "Interrupted: nbagent was ended while this ran. What it did to files may be there, or in part."
        finished = ActionFinished(status="interrupted", seconds=0.0, summary="nbagent was ended while it ran")
        return [finished, Observed(text=text)]
    text = "Not run: nbagent was ended before it."
    return [
        ActionFinished(status="skipped", seconds=0.0, summary="nbagent was ended before it"),
        Observed(text=text),
    ]


# -- the kernel's state ---------------------------------------------------------------------------------


@dataclass
class _Cell:
    """One cell that may run again."""

    step: Step
    name: str  #: for people: "step 3 of run 2"
    risk: Risk = "read"
    why: str = ""  #: why it needs a yes


@dataclass
class Restoration:
    """Makes a kernel's state again. `items` are variables that were shared and cells, in their order."""

    items: Sequence[Step | Shared]
    run_code: RunCode
    sharing: Sharing
    context: ToolContext
    _restored: KernelRestored = field(default_factory=lambda: KernelRestored(ran=0))
    _missing: set[str] = field(default_factory=set)
    _done: int = 0

    @classmethod
    def of(
        cls, events: Sequence[Event], run_code: RunCode, sharing: Sharing, context: ToolContext
    ) -> Restoration | None:
        """Plan it from the log; None where the kernel held nothing."""
        since_loss: list[Step | Shared] = []
        for item in read_items(events):
            if isinstance(item, Lost):
                since_loss.clear()
            elif isinstance(item, Shared) or (isinstance(item, Step) and item.runs and item.tool == RunCode.name):
                since_loss.append(item)
        for event in events:
            if isinstance(event, FilesChanged):
                context.kept(OwnFiles).took(event)
        return cls(since_loss, run_code, sharing, context) if since_loss else None

    @property
    def names(self) -> list[str]:
        """The variables that it would bring back."""
        found: set[str] = set()
        for item in self.items:
            found |= {item.name} if isinstance(item, Shared) else names_of(item.code).stored
        return sorted(found)

    async def run(self, rerun: str, ask: Ask) -> None:
        """Run the cells again, asking once for all that need a yes; `so_far` says what came of it.

        `rerun` is the setting of that name. Goes on after a cell that fails; cells that need what is missing
        are left out. The kernel is started already.

        Raises:
            asyncio.CancelledError: stopped in the middle.
        """
        cells = [self._cell(item) for item in self.items if isinstance(item, Step)]
        by_step = {id(cell.step): cell for cell in cells}
        doubtful = [cell for cell in cells if cell.why and not is_masked(cell.step.code)]
        allowed = not doubtful or rerun == "all" or (rerun == "ask" and await _yes(doubtful, ask))
        for item in self.items:
            if isinstance(item, Shared):
                await self._bring(item)
            else:
                await self._again(by_step[id(item)], allowed=allowed)
            self._done += 1

    @property
    def so_far(self) -> KernelRestored:
        """What was done up to now."""
        return self._restored.model_copy(update={"missing": sorted(self._missing)})

    def stopped(self) -> None:
        """Take note that it was stopped: the rest is not there."""
        rest = list(self.items)[self._done :]
        for item in rest:
            self._missing |= {item.name} if isinstance(item, Shared) else names_of(item.code).touches
        self._restored.left_out.append(f"the last {len(rest)} (stopped)")

    def _cell(self, step: Step) -> _Cell:
        risk, why = self.run_code.grade({"code": step.code}, self.context)
        if risk == "read":
            why = f"took {step.seconds:.0f} s" if step.seconds > COSTLY_SECONDS else ""
        return _Cell(step, f"step {step.step} of run {step.run}", risk, why)

    async def _bring(self, shared: Shared) -> None:
        file = Path(shared.file)
        if not file.is_file():  # the sessions were moved as a whole
            file = self.context.session_folder / "shared" / file.name
        try:
            await self.sharing.bring_again(shared.name, file, self.context.kernel)
        except TransferError as error:
            self._restored.left_out.append(f"{shared.name}, which was copied from the notebook ({error})")
            self._missing.add(shared.name)
        else:
            self._missing.discard(shared.name)

    async def _again(self, cell: _Cell, *, allowed: bool) -> None:
        step, names = cell.step, names_of(cell.step.code)
        needed = sorted(names.needs & self._missing)
        why = ""
        if is_masked(step.code):
            why = "its code held a secret, which is not stored"
        elif cell.why and not allowed:
            why = f"{cell.why}; nobody said yes"
        elif needed:
            why = f"it needs {', '.join(needed)}"
        if why:
            self._restored.left_out.append(f"{cell.name} ({why})")
            self._missing |= names.touches
            return
        outputs, executed = await self._execute(step.code)
        self._restored = self._restored.model_copy(update={"ran": self._restored.ran + 1})
        self._missing -= names.binds if executed.status == "ok" else set()
        if difference := _difference(step, outputs, executed):
            self._restored.differs.append(f"{cell.name} {difference}")
        if executed.status != "ok" and step.status == "ok":
            self._missing |= names.touches
        if executed.state_lost:
            self._missing |= set(executed.lost_names)

    async def _execute(self, code: str) -> tuple[list[Output], Executed]:
        try:
            return await self.run_code.run_again(code, self.context)
        except KernelError as error:
            return [], Executed("died", 0.0, error=str(error), state_lost=True)


class Resumption:
    """What is left to do for a resumed session, and what its model has to be told."""

    def __init__(self) -> None:
        self.plan: Restoration | None = None
        self._news = ""

    def take_news(self) -> str:
        """Give, once, what the model is to be told with the next task."""
        news, self._news = self._news, ""
        return news

    async def restore(
        self, rerun: str, ask: Ask, start: Callable[[], Awaitable[None]], emit: Callable[[Event], None]
    ) -> KernelRestored | None:
        """Carry the plan out, if there is one; `start` starts the kernel.

        Raises:
            KernelError: no kernel came up; the plan stays.
            asyncio.CancelledError: stopped in the middle; what was done is told.
        """
        plan = self.plan
        if plan is None:
            return None
        if rerun == "none":
            restored = KernelRestored(ran=0, missing=plan.names)
            emit(StateLost(names=restored.missing))
        else:
            await start()
            try:
                await plan.run(rerun, ask)
            except asyncio.CancelledError:
                plan.stopped()
                raise
            finally:
                emit(restored := plan.so_far)
                self.plan, self._news = None, told(restored)
        self.plan, self._news = None, told(restored)
        return restored


async def _yes(cells: Sequence[_Cell], ask: Ask) -> bool:
    """Ask once for all cells that have effects outside the kernel or are costly."""
    worst = max((cell.risk for cell in cells), key=_RISKS.index)
    why = "to bring the variables back, these cells would run again: " + "; ".join(
        f"{cell.name} {cell.why}" for cell in cells
    )
    code = "\n\n".join(f"# {cell.name}: {cell.why}\n{cell.step.code}" for cell in cells)
    request = ApprovalRequest(secrets.token_hex(4), "", RunCode.name, code, worst, why)
    approval = await ask(request)
    # Cells that run again are those that ran: other code would make another state.
    return approval.approved and approval.code in (None, request.code)


def _difference(step: Step, outputs: Sequence[Output], executed: Executed) -> str:
    """Say what came out otherwise than the first time, or ""."""
    if executed.status != ("ok" if step.status == "ok" else "error"):
        how = executed.error.partition("\n")[0]
        return f"failed now: {how or executed.status}" if step.status == "ok" else "did not fail now"
    before, now = lines_of(step.outputs), lines_of(outputs)
    if before == now:
        return ""
    position = next(
        (at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new),
        min(len(before), len(now)),
    )
    old, new = (lines[position] if position < len(lines) else "" for lines in (before, now))
    return f"gave {quoted(new)}, and {quoted(old)} the first time"


def told(restored: KernelRestored) -> str:
    """Say to the model what its new kernel lacks; "" where it is as it was."""
    if not (restored.left_out or restored.differs or restored.missing):
        return ""
    parts = [f"Your kernel is a new one; {restored.ran} earlier cells ran again in it."]
    parts += [f"Not run again: {line}." for line in restored.left_out]
    parts += [f"Otherwise than before: {line}." for line in restored.differs]
    if restored.missing:
        parts.append(f"These variables are gone: {', '.join(restored.missing)}.")
    return "\n".join(parts)
