"""A session log as the ordered things that a notebook is made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from nbagent.events import (
    ActionEdited,
    ActionFinished,
    ActionProposed,
    ActionStarted,
    ApprovalAsked,
    CheckpointMade,
    Event,
    KernelDied,
    KernelStarted,
    Observed,
    Output,
    OutputAdded,
    PlanMade,
    PlanUpdated,
    Reasoning,
    RunFinished,
    RunStarted,
    Shared,
    StateLost,
    Thought,
    Undone,
    UsersCells,
)
from nbagent.needed_cells import Candidate, needed_failures

#: What ends a run and hands variables over has no cell of its own: the answer and the data stand for them.
_WITHOUT_CELL = frozenset({"final_answer", "bring_variable"})


#: Code that would ask a model: a notebook that runs, and a session that is made again, must not.
_AGENT = re.compile(
    r"""^\s*%{1,2}agent\b|^\s*(?:import|from)\s+nbagent\b|_magic\(\s*['"]agent['"]""", re.MULTILINE
)
_LOADS_THE_AGENT = re.compile(r"^\s*%(?:re)?load_ext\s+nbagent\s*$", re.MULTILINE)


def calls_the_agent(code: str) -> bool:
    """Whether a cell uses nbagent itself."""
    return bool(_AGENT.search(code))


@dataclass
class Step:
    """One action: its code, what it gave and how it ended. `status` is "" where it never ended."""

    run: int
    step: int
    call_id: str
    tool: str
    arguments: str
    code: str = ""
    started: bool = False
    status: str = ""
    seconds: float = 0.0
    summary: str = ""
    outputs: list[Output] = field(default_factory=list)
    observed: str = ""  #: what the model was told of it
    died: bool = False
    state_lost_before: bool = False
    placed: bool = False
    seq: int = 0  #: of its `ActionStarted`
    mark: str = ""  #: of the kernel's state before it
    undone: bool = False
    gone: bool = False  #: what it did went with a kernel that died: an earlier state was gone back to
    needed: bool = False  #: it failed, but a later cell needs what it bound

    @property
    def holds(self) -> bool:
        """Whether what it did is still there, as far as the kernel's end and undo are concerned."""
        return not (self.died or self.undone or self.gone)

    @property
    def raised(self) -> bool:
        """Whether its code ran and raised; what failed in another way is not to be run again."""
        return self.status == "error" and any(output.get("output_type") == "error" for output in self.outputs)

    @property
    def runs(self) -> bool:
        """Whether it is a code cell of the export."""
        if not self.started or not self.code or not self.holds or calls_the_agent(self.code):
            return False
        return self.status == "ok" or self.needed

    @property
    def shown(self) -> bool:
        """Whether it has a place in the export at all."""
        return self.tool not in _WITHOUT_CELL or self.status not in ("ok", "")


@dataclass
class Lost:
    """The kernel's variables were gone from here on."""

    run: int
    step: int
    why: str = ""
    names: list[str] = field(default_factory=list)


@dataclass
class Yours:
    """One of the user's own cells, before the agent's code that follows."""

    run: int
    step: int
    code: str


@dataclass
class Given:
    """The user's variables as the agent's code found them, by name, each with type and summary."""

    run: int
    step: int
    names: dict[str, str]


Item = Step | Lost | Yours | Given | RunStarted | RunFinished | Thought | Reasoning | Shared | PlanMade


class _Reader:
    """Takes events in and keeps what they add up to."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._open: list[Step] = []
        self._finished: Step | None = None
        self._kernels = 0
        self._lost = False
        self._death = ""

    def take(self, event: Event) -> None:
        match event:
            case RunStarted() | RunFinished():
                self.end()
                self.items.append(event)
            case Thought() | Reasoning() | PlanMade():
                self.items.append(event)
            case PlanUpdated():
                self._plan_stands(event)
            case Shared():
                self._share(event)
            case UsersCells():
                self.items.append(Given(event.run, event.step, event.names))
                cells = [_LOADS_THE_AGENT.sub("", cell).strip("\n") for cell in event.cells]
                mine = [cell for cell in cells if cell.strip() and not calls_the_agent(cell)]
                self.items.extend(Yours(event.run, event.step, cell) for cell in mine)
            case ActionProposed():
                self._open.append(Step(event.run, event.step, event.call_id, event.tool, event.arguments))
            case ActionEdited() | ApprovalAsked() | ActionStarted() | OutputAdded() | ActionFinished():
                step = self._step_of(event)
                if step is not None:
                    self._add(step, event)
            case Observed():
                if self._finished is not None and self._finished.call_id == event.call_id:
                    self._finished.observed = event.text
            case Undone():
                for item in self.items:
                    if isinstance(item, Step) and item.seq in event.actions:
                        item.undone = True
            case CheckpointMade():
                if (step := self._step_of(event)) is not None:
                    step.mark = event.mark
            case KernelDied():
                self._end_open()
                self._death = event.why  # no loss yet: the state before may be there again
            case StateLost():
                if not self._went_back(event.restored):
                    self._lose(Lost(event.run, event.step, self._death, event.names))
                self._death = ""
            case KernelStarted():
                self._kernels += 1
                if self._kernels > 1 and not event.resumed:
                    self._lose(Lost(event.run, event.step))
            case _:
                return

    def end(self) -> None:
        """Give the actions that never ended their place."""
        for step in self._open:
            self._place(step)
        self._open = []

    def _place(self, step: Step) -> None:
        """Give an action the place where it began to run, or was turned down."""
        if not step.placed:
            step.placed = True
            self.items.append(step)

    def _plan_stands(self, event: PlanUpdated) -> None:
        """Let the run's plan be shown as it came to stand."""
        for at in range(len(self.items) - 1, -1, -1):
            if isinstance(made := self.items[at], PlanMade):
                self.items[at] = made.model_copy(update={"items": event.items})
                return

    def _share(self, event: Shared) -> None:
        """Put a variable before the action that it was brought for."""
        step = self._step_of(event)
        if step is not None and step.placed:
            self.items.insert(next(at for at, item in enumerate(self.items) if item is step), event)
        else:
            self.items.append(event)

    def _step_of(self, event: Event) -> Step | None:
        """Find the open action of an event; servers may give two actions one id."""
        return next((step for step in self._open if step.call_id == event.call_id), None)

    def _add(self, step: Step, event: Event) -> None:
        match event:
            case ActionEdited():
                step.arguments, step.code = event.arguments, ""
            case ApprovalAsked():
                step.code = event.code
            case ActionStarted():
                self._place(step)
                step.started, step.code, step.seq = True, event.code, event.seq
                step.state_lost_before, self._lost = self._lost, False
            case OutputAdded():
                step.outputs.append(event.output)
            case ActionFinished():
                step.status, step.seconds, step.summary = event.status, event.seconds, event.summary
                self._place(step)
                self._open = [other for other in self._open if other is not step]
                self._finished = step

    def _went_back(self, mark: str) -> bool:
        """Take out what was done since the state that was gone back to; false where that is not known."""
        ran = [item for item in self.items if isinstance(item, Step) and item.started]
        marks = [step.mark for step in ran]
        if not mark or mark not in marks:
            return False
        self._end_open()
        for step in ran[len(marks) - 1 - marks[::-1].index(mark) :]:
            step.gone = True
        return True

    def _end_open(self) -> None:
        for step in self._open:
            step.died = step.died or (step.started and not step.status)

    def _lose(self, lost: Lost) -> None:
        self._end_open()
        last = self.items[-1] if self.items else None
        if self._lost and isinstance(last, Lost):
            last.why, last.names = last.why or lost.why, last.names or lost.names
        elif not self._lost:
            self.items.append(lost)
        self._lost = True


def read_items(events: Iterable[Event]) -> list[Item]:
    """Give what a notebook shows, in order, and mark the failed steps that it cannot do without."""
    reader = _Reader()
    for event in events:
        reader.take(event)
    reader.end()
    items = [item for position, item in enumerate(reader.items) if not _is_the_answer(reader.items, position)]
    ran = [item for item in items if isinstance(item, Step) and item.started and item.code]
    ran = [step for step in ran if step.holds and (step.status == "ok" or step.raised)]
    candidates = [Candidate(step.code, step.status == "ok", step.state_lost_before) for step in ran]
    for index in needed_failures(candidates):
        ran[index].needed = True
    return items


def _is_the_answer(items: list[Item], position: int) -> bool:
    """Whether this thought is what the run's answer says right after it."""
    thought = items[position]
    following = items[position + 1] if position + 1 < len(items) else None
    if isinstance(following, Step) and following.tool == "final_answer":
        following = items[position + 2] if position + 2 < len(items) else None
    return (
        isinstance(thought, Thought)
        and isinstance(following, RunFinished)
        and thought.text.strip() == following.answer.strip()
    )


def source_of(step: Step) -> tuple[str, str]:
    """Give an action's code with its language, or its arguments as they were sent."""
    if step.code:
        return step.code, "python"
    try:
        values = json.loads(step.arguments)
    except ValueError:
        return step.arguments, ""
    if isinstance(values, dict) and isinstance(values.get("code"), str):
        return values["code"], "python"
    return json.dumps(values, ensure_ascii=False, indent=1), "json"
