"""A run as it is shown: a fold of its events into steps, actions and an ending.

Pure values: no rendering, no I/O. Every view and export that wants "the run so far" takes it from here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nbagent.checklist import shown
from nbagent.events import (
    ActionDelta,
    ActionEdited,
    ActionFinished,
    ActionProposed,
    ActionStarted,
    Adopted,
    ApprovalAsked,
    ApprovalGiven,
    AsideAnswered,
    CheckpointDeclined,
    Compacted,
    Event,
    KernelDied,
    KernelRestored,
    KernelStarted,
    Nudged,
    Output,
    OutputAdded,
    PlanItem,
    PlanMade,
    PlanUpdated,
    Reason,
    Reasoning,
    ReasoningDelta,
    Reflected,
    Replaced,
    Replayed,
    Retrying,
    RunFinished,
    RunStarted,
    Shared,
    StateLost,
    StepFinished,
    StepStarted,
    Thought,
    ThoughtDelta,
    Undone,
    Usage,
    WindowLearned,
)
from nbagent.models.pricing import dollars
from nbagent.summing_up import UNFINISHED

#: How a run ended, in the words that stand on screen.
ENDINGS: dict[Reason, str] = {
    "answered": "Done",
    "interrupted": "Stopped",
    "max_steps": "Step limit reached",
    "max_seconds": "Time limit reached",
    "max_tokens": "Token limit reached",
    "max_cost": "Cost limit reached",
    "repeating": "Ended: it kept repeating itself",
    "no_progress": "Ended: it made no progress",
    "empty_replies": "Ended: the model's replies were empty",
    "denied": "Ended: an action was denied",
    "model_error": "The model failed",
    "kernel_lost": "The kernel was lost",
}

#: What to do about an ending, where the run's own message does not say.
ADVICE: dict[Reason, str] = {
    "answered": "",
    "interrupted": "What was done is kept; run the cell again to go on.",
    "max_steps": "Raise --max-steps, or ask for less at once.",
    "max_seconds": "Raise --max-seconds, or ask for less at once.",
    "max_tokens": "Raise the token limit, or ask for less at once.",
    "max_cost": "Raise --max-cost, or ask for less at once.",
    "repeating": "Say the task in other words, or try a stronger model.",
    "no_progress": "Say the task in other words, or try a stronger model.",
    "empty_replies": "Try again, or try another model.",
    "denied": "Say how it should be done instead.",
    "model_error": "Check the model's settings with %agent config, then run the cell again.",
    "kernel_lost": "Its variables are gone; %agent reset starts a new kernel.",
}


@dataclass(slots=True)
class TraceAction:
    """One tool call. `code` is what is read: the kernel's code, or the call written out."""

    call_id: str
    tool: str = ""
    code: str = ""
    risk: str = ""
    why: str = ""  #: what the question to the user gave as its cause
    outputs: list[Output] = field(default_factory=list)
    status: str = "proposed"  #: proposed, waiting, running, undone, or an `ActionStatus`
    seconds: float = 0.0
    summary: str = ""
    edited: bool = False  #: the user changed it before it ran
    allowed: bool = False  #: by a yes that the user gave before, for always
    seq: int = 0  #: of its `ActionStarted`


@dataclass(slots=True)
class TraceStep:
    """One turn. `draft` is an action's text while it still arrives."""

    number: int
    reasoning_parts: list[str] = field(default_factory=list)
    thought_parts: list[str] = field(default_factory=list)
    draft_parts: list[str] = field(default_factory=list)
    draft_tool: str = ""
    actions: list[TraceAction] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    finished: bool = False

    @property
    def thought(self) -> str:
        """What the model said in this step."""
        return "".join(self.thought_parts)

    @property
    def reasoning(self) -> str:
        """What came over the hidden reasoning channel."""
        return "".join(self.reasoning_parts)

    @property
    def draft(self) -> str:
        """The action under way, as far as it has arrived."""
        return "".join(self.draft_parts)

    def action(self, call_id: str) -> TraceAction:
        """Give the action of this id, made now if it is new."""
        for action in self.actions:
            if action.call_id == call_id:
                return action
        self.actions.append(TraceAction(call_id))
        return self.actions[-1]


class Trace:
    """One run, shown. Add its events in order; those of a later run start it anew."""

    def __init__(self, events: Iterable[Event] = ()):
        self._clear()
        for event in events:
            self.add(event)

    def _clear(self) -> None:
        self.task = self.model = self.host = self.label = ""
        self.mark = ""  #: tells the run from all others, in letters that a class name may have
        self.steps: list[TraceStep] = []
        self.notes: list[str] = []  #: what happened before the first step
        self.plan: list[PlanItem] = []  #: the checklist as it stands
        self.answer = self.message = self.summary = ""
        self.reason: Reason | None = None  #: None while it runs, or where it was killed
        self.usage = Usage()
        self.seconds = 0.0

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return ENDINGS[self.reason] if self.reason else "Unfinished"

    @property
    def advice(self) -> str:
        """What stopped it and what to do; empty for an answered run."""
        if self.reason is None:
            return "The run has not ended, or its process was killed."
        if self.reason == "answered":
            return ""
        said = self.message or ADVICE[self.reason]
        return f"{said}\n\n{UNFINISHED} {self.summary}" if self.summary else said

    def add(self, event: Event) -> None:
        """Take in one event; those that nothing is shown of are skipped."""
        if isinstance(event, RunStarted):
            self._clear()
            self.task, self.model, self.host, self.label = event.task, event.model, event.host, event.label
            self.mark = mark_of(event)
            self.notes += event.notes
        elif isinstance(event, RunFinished):
            self.reason, self.answer, self.message = event.reason, event.answer, event.message
            self.summary = event.summary
            self.usage, self.seconds = event.usage, event.seconds
        elif isinstance(event, Undone):
            self.add_undone(event)
        elif note := note_of(event):
            if isinstance(event, PlanMade | PlanUpdated):
                self.plan = event.items
            (self.step(event).notes if event.step or self.steps else self.notes).append(note)
            if isinstance(event, Retrying) and not event.aside:
                self._void(self.step(event))
        else:
            self._add_to_step(event)

    def add_undone(self, undone: Undone) -> bool:
        """Mark what was undone of this run; say whether anything was."""
        actions = [action for step in self.steps for action in step.actions if action.seq in undone.actions]
        for action in actions:
            action.status = "undone"
        return bool(actions)

    def step(self, event: Event) -> TraceStep:
        """Give the step that an event belongs to, made now if it is new."""
        number = event.step or (self.steps[-1].number if self.steps else 1)
        for step in reversed(self.steps):
            if step.number == number:
                return step
        self.steps.append(TraceStep(number))
        return self.steps[-1]

    def _add_to_step(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self.step(event)
        elif isinstance(event, ThoughtDelta):
            self.step(event).thought_parts.append(event.text)
        elif isinstance(event, Thought):
            self.step(event).thought_parts = [event.text]
        elif isinstance(event, ReasoningDelta):
            self.step(event).reasoning_parts.append(event.text)
        elif isinstance(event, Reasoning):
            self.step(event).reasoning_parts = [event.text]
        elif isinstance(event, ActionDelta):
            step = self.step(event)
            step.draft_tool = event.tool or step.draft_tool
            step.draft_parts.append(event.text)
        elif isinstance(event, StepFinished):
            step = self.step(event)
            step.usage, step.seconds, step.finished = event.usage, event.seconds, True
            self.usage += event.usage
            self.seconds += event.seconds
        else:
            self._add_to_action(event)

    def _add_to_action(self, event: Event) -> None:
        if isinstance(event, ActionProposed):
            action = self._proposed(event)
            action.tool, action.code = event.tool, code_of(event.tool, event.arguments)
        elif isinstance(event, ActionEdited):
            action = self.step(event).action(event.call_id)
            action.code, action.edited = code_of(action.tool, event.arguments), True
        elif isinstance(event, ApprovalAsked):
            action = self.step(event).action(event.call_id)
            action.tool, action.risk, action.why, action.status = event.tool, event.risk, event.why, "waiting"
            action.code = event.code or action.code
        elif isinstance(event, ApprovalGiven):
            action = self.step(event).action(event.call_id)
            action.status = "proposed" if event.approved else "denied"
        elif isinstance(event, ActionStarted):
            action = self.step(event).action(event.call_id)
            action.tool, action.risk, action.status = event.tool, event.risk, "running"
            action.code, action.seq = event.code or call_text(event.tool, event.arguments), event.seq
        elif isinstance(event, OutputAdded):
            add_output(self.step(event).action(event.call_id).outputs, event.output)
        elif isinstance(event, ActionFinished):
            action = self.step(event).action(event.call_id)
            action.status, action.seconds, action.summary = event.status, event.seconds, event.summary
            action.allowed = event.approved_by == "rule"

    def _proposed(self, event: ActionProposed) -> TraceAction:
        step = self.step(event)
        step.draft_parts.clear()  # it is whole now, under its own name
        return step.action(event.call_id)

    def _void(self, step: TraceStep) -> None:
        """Forget what a broken attempt showed."""
        step.thought_parts.clear()
        step.reasoning_parts.clear()
        step.draft_parts.clear()
        step.actions = [action for action in step.actions if action.status != "proposed"]


def mark_of(event: Event) -> str:
    """Tell a run from all others."""
    return re.sub(r"[^\w-]", "", f"{event.session}-{event.run}")


def note_of(event: Event) -> str:
    """Say an event that is news of its own in one line; empty for all others."""
    if isinstance(event, Nudged):
        return f"Nudge to the model ({event.guard}): {event.text}"
    if isinstance(event, Retrying):
        return f"{event.why.rstrip('.')}. Trying again in {event.wait:.3g} s (attempt {event.attempt})."
    if isinstance(event, KernelStarted):
        return f"A new kernel was started ({event.kind})." if event.generation > 0 else ""
    if isinstance(event, Replayed):
        where = ", ".join(event.differs)
        return f"Otherwise than recorded: {where}. The answer may not hold any more; --again asks the model anew."
    if isinstance(event, KernelRestored):
        return restored_in_words(event)
    if isinstance(event, Compacted):
        counts = f"about {event.tokens_before:,} tokens, {event.tokens_after:,} now"
        return f"The conversation's older steps were summed up: {event.why} ({counts})."
    if isinstance(event, WindowLearned):
        return event.why
    if isinstance(event, PlanMade | PlanUpdated):
        return _plan_note(event)
    if isinstance(event, AsideAnswered):
        return f"No plan could be made: {event.failed}" if event.purpose == "plan" and event.failed else ""
    if isinstance(event, Reflected):
        return f"Reflection: {'enough' if event.enough else 'not enough'}. {event.reason}".rstrip()
    if isinstance(event, KernelDied):
        return f"The kernel died: {event.why}"
    if isinstance(event, StateLost):
        return f"These variables are gone: {', '.join(event.names)}." if event.names else "All variables are gone."
    if isinstance(event, Replaced):
        return f"Names of yours mean something else now: {', '.join(event.names)}. `%agent undo` brings them back."
    if isinstance(event, CheckpointDeclined):
        return f"This step cannot be undone without a re-run: {event.why}."
    if isinstance(event, Shared):
        return f"Copied into the agent's kernel: {event.name} {event.summary}".rstrip()
    if isinstance(event, Adopted):
        return f"Copied into your kernel: {event.name} {event.summary}".rstrip()
    return ""


def restored_in_words(restored: KernelRestored) -> str:
    """Say what came back of a resumed session's kernel, and what did not."""
    parts = [f"Cells that ran again: {restored.ran}"]
    parts += [f"not run again: {line}" for line in restored.left_out]
    parts += [f"otherwise than before: {line}" for line in restored.differs]
    if restored.missing:
        parts.append(f"gone: {', '.join(restored.missing)}")
    return f"{'; '.join(parts)}."


def spent(usage: Usage) -> list[str]:
    """Say what a run or step used, a fact an item: tokens, and money where the price is known."""
    if not usage.total_tokens:
        return []
    return [f"{'about ' if usage.estimated else ''}{usage.total_tokens:,} tokens", *filter(None, [cost_of(usage)])]


def cost_of(usage: Usage) -> str:
    """Give the money, e.g. `$0.012`; empty where it is not known, and for what is free."""
    return dollars(usage.cost) if usage.cost else ""


def _plan_note(event: PlanMade | PlanUpdated) -> str:
    """Say a whole plan where it is new, else how far it has come."""
    if isinstance(event, PlanMade):
        return f"Plan{' (changed by you)' if event.edited else ''}:\n{shown(event.items)}"
    if event.why:
        return f"The plan was changed: {event.why}\n{shown(event.items)}"
    done = sum(item.done for item in event.items)
    following = next((item.text for item in event.items if not item.done), "")
    return f"Plan: {done} of {len(event.items)} done." + (f" Next: {following}" if following else "")


def code_of(tool: str, arguments: str) -> str:
    """Give the readable form of a call's raw arguments: its code, the call written out, or the raw text."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(values, dict):
        return arguments
    if (
        len(values) == 1
        and isinstance(only := next(iter(values.values())), str)
        and set(values) & {"code", "command"}
    ):
        return only
    return call_text(tool, values)


def call_text(tool: str, arguments: dict[str, Any]) -> str:
    """Write a call out, e.g. `read_file(path='a.csv')`."""
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def add_output(outputs: list[Output], output: Output) -> None:
    """Append an output; a stream that goes on is joined to what came before."""
    last = outputs[-1] if outputs else {}
    if last.get("output_type") == output.get("output_type") == "stream" and last.get("name") == output.get("name"):
        outputs[-1] = {**last, "text": joined(last.get("text")) + joined(output.get("text"))}
    else:
        outputs.append(output)


def joined(text: object) -> str:
    """Give nbformat's multi-line string as one string."""
    if isinstance(text, list | tuple):
        return "".join(map(str, text))
    return "" if text is None else str(text)
