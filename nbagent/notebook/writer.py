"""Makes a notebook's cells of what a session did, in order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from nbagent.events import Output, PlanMade, Reasoning, RunFinished, RunStarted, Shared, Thought
from nbagent.notebook.beginnings import beginnings_of
from nbagent.notebook.carried import carry
from nbagent.notebook.distill import Distilled
from nbagent.notebook.outputs import OutputCleaner
from nbagent.notebook.parameters import Parameters
from nbagent.notebook.prose import fenced, inert
from nbagent.notebook.texts import Texts
from nbagent.steps import Item, Lost, Step, Yours, source_of
from nbagent.summing_up import UNFINISHED
from nbagent.tools.cell_names import names_of

#: Characters of partial output that are shown below a step that is not executed.
NOTE_CHARACTERS = 2000
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NOT_RUN = {
    "": "did not end",
    "error": "failed",
    "timeout": "ran out of time",
    "interrupted": "was interrupted",
    "denied": "was not allowed",
    "invalid": "could not be run",
    "unavailable": "was not available",
    "skipped": "was skipped",
}


@dataclass
class Writer:
    """Makes cells of items. `distilled`, where given, says which steps and variables there are."""

    texts: Texts
    clean: bool
    reasoning: bool
    data_folder: str
    distilled: Distilled | None = None
    parameters: Parameters = field(default_factory=Parameters)
    cells: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    count: int = 0  #: code cells that were executed
    left_out: int = 0

    def __post_init__(self) -> None:
        self._outputs = OutputCleaner(self.texts.clean, self.texts.mask)
        self._ids: dict[str, int] = {}

    def write(self, items: Sequence[Item]) -> None:
        """Write all cells; variables that nothing made before they were shared come first of all."""
        self.items = list(items)
        begun = next(item for item in items if isinstance(item, RunStarted))
        first, later = _split_shared([item for item in items if self._is_kept(item)])
        self._shared(first)
        self._beginnings = beginnings_of(self.items, self._is_kept)
        label = ""
        for position, item in enumerate(items):
            match item:
                case RunStarted():
                    label = item.label
                    self._text(f"## Task\n\n{self._inert(item.task)}", "task", item)
                    if item is begun:
                        self._setup(item)
                case PlanMade():
                    lines = [f"- [{'x' if one.done else ' '}] {self._inert(one.text)}" for one in item.items]
                    self._text("\n".join(["**Plan**", "", *lines]), "plan", item)
                case Thought() if not self._thinks_of_nothing(item):
                    self._text(self._inert(item.text), "thought", item)
                case Reasoning() if self.reasoning:
                    self._text(f"*Reasoning*\n\n{self._inert(item.text)}", "reasoning", item)
                case Yours() if id(item) in self._beginnings.cells:
                    code = self.distilled.kept.get(id(item), "") if self.distilled is not None else item.code
                    self._code(self.texts.mask(code), "yours", item) if code else None
                case Shared() if any(item is other for other in later):
                    self._shared([item])
                case Step() if item.shown:
                    self._step(item)
                case Lost():
                    self._lost(item)
                case RunFinished():
                    self._ending(item, label)
                case _:
                    pass
            if _is_unfinished(items, position):
                note = "## Unfinished\n\nThe run was not over when this was exported, or was cut off."
                self._text(note, "ending", item)

    def _setup(self, origin: Item) -> None:
        """Write what the cells start from: the parameters and, in a distilled notebook, the imports."""
        self.missing += self._beginnings.unmade
        if lines := self._beginnings.notes:
            self._text(
                "\n\n".join(f"*{heading}* {self._inert(names)}" for heading, names in lines), "note", origin
            )
        if self.parameters.values:
            tags = {"tags": ["parameters"]}
            self._code(self.texts.mask(self.parameters.code), "parameters", origin, metadata=tags)
        if self.distilled is not None and self.distilled.imports:
            self._code("\n".join(self.distilled.imports), "imports", origin)

    def _is_kept(self, item: Item) -> bool:
        return not (isinstance(item, Step | Shared) and self.distilled and id(item) not in self.distilled.kept)

    def _step(self, step: Step) -> None:
        if step.runs and not self._is_kept(step):
            self.left_out += 1
            return
        if step.runs:
            if self.count == 0 and self._beginnings.unmade:
                self._code(self.texts.mask(self._beginnings.check), "yours", step)
            self.count += 1
            outputs = self._outputs.cell(step.outputs, self.count)
            tags: dict[str, Any] = {"tags": ["raises-exception"]} if step.needed else {}
            code = self.distilled.kept[id(step)] if self.distilled is not None else step.code
            told = self._told(step)
            if self.distilled is not None and id(step) in self.distilled.roots:
                told["kept"] = self.distilled.roots[id(step)]
            code = self.parameters.put_into(code)
            self._code(self.texts.mask(code), "action", step, told, self.count, outputs, tags)
            return
        if step.status == "ok" and step.holds:  # a tool without code
            how = "was used"
        else:
            self.left_out += 1
            how = "stopped with the kernel" if step.died else _NOT_RUN.get(step.status, step.status)
            how = "was lost when the kernel died" if step.gone and not step.died else how
            how = "was undone" if step.undone else how
            if self.clean:
                return
        source, language = source_of(step)
        why = f": {self._inert(step.summary)}" if step.summary else ""
        parts = [f"*`{_word(step.tool)}` {how}*{why}"]
        parts.append(fenced(self.texts.mask(source), language))
        if partial := self._partial(step):
            parts.append(fenced(partial))
        self._text("\n\n".join(parts), "action", step, self._told(step))

    def _partial(self, step: Step) -> str:
        """Give the text that a step printed before it ended."""
        outputs = self._outputs.cell(step.outputs, 1)
        text = "".join(output["text"] for output in outputs if output["output_type"] == "stream").strip("\n")
        if len(text) > NOTE_CHARACTERS:
            text = f"{text[:NOTE_CHARACTERS]}\n[{len(text) - NOTE_CHARACTERS} characters were left out]"
        others = sum(output["output_type"] not in ("stream", "error") for output in outputs)
        return f"{text}\n[{others} further outputs were left out]".strip("\n") if others else text

    def _lost(self, lost: Lost) -> None:
        names = f": {', '.join(lost.names)}" if lost.names else ""
        why = f" ({lost.why})" if lost.why else ""
        note = f"The kernel was started anew here{why}; its variables were gone{names}."
        self._text(f"*Note:* {self._inert(note)}", "note", lost)

    def _ending(self, event: RunFinished, label: str) -> None:
        if event.reason == "answered":
            caveat = f"\n\n({self._inert(label)})" if label else ""
            self._text(
                f"## Answer\n\n{self._inert(event.answer)}{caveat}", "ending", event, {"reason": event.reason}
            )
        else:
            summary = f"\n\n{UNFINISHED}\n\n{self._inert(event.summary)}" if event.summary else ""
            self._text(
                f"## Not answered: {event.reason}\n\n{self._inert(event.message)}{summary}",
                "ending",
                event,
                {"reason": event.reason},
            )

    def _shared(self, events: Sequence[Shared]) -> None:
        if not events:
            return
        carried = carry(events, self.data_folder, self.texts.redactor, taken=self.files)
        self.files |= carried.files
        self.missing += carried.missing
        self._code(carried.code, "shared", events[0])

    def _thinks_of_nothing(self, thought: Thought) -> bool:
        """Whether the thought is empty, or belongs to steps that are all left out."""
        if not thought.text.strip():
            return True
        steps = [
            item
            for item in self.items
            if isinstance(item, Step) and (item.run, item.step) == (thought.run, thought.step)
        ]
        return (
            self.clean
            and bool(steps)
            and not any((step.runs and self._is_kept(step)) or not step.shown for step in steps)
        )

    def _inert(self, text: str) -> str:
        return inert(self.texts.clean(text))

    def _told(self, step: Step) -> dict[str, Any]:
        return {
            "tool": self.texts.mask(step.tool),
            "status": "undone" if step.undone else step.status,
            "seconds": round(step.seconds, 3),
        }

    def _text(self, source: str, kind: str, of: Item, told: Mapping[str, Any] = _NOTHING) -> None:
        self._add({"cell_type": "markdown", "source": source.rstrip(), "metadata": {}}, kind, of, told)

    def _code(
        self,
        source: str,
        kind: str,
        of: Item,
        told: Mapping[str, Any] = _NOTHING,
        count: int | None = None,
        outputs: Sequence[Output] = (),
        metadata: Mapping[str, Any] = _NOTHING,
    ) -> None:
        cell = {"cell_type": "code", "source": source, "execution_count": count, "outputs": list(outputs)}
        self._add({**cell, "metadata": dict(metadata)}, kind, of, told)

    def _add(self, cell: dict[str, Any], kind: str, of: Item, told: Mapping[str, Any]) -> None:
        self._ids[kind] = self._ids.get(kind, 0) + 1
        cell["id"] = f"{kind}-{self._ids[kind]}"
        cell["metadata"]["nbagent"] = {"kind": kind, "run": of.run, "step": of.step, **told}
        self.cells.append(cell)


def _word(text: str) -> str:
    return re.sub(r"[^\w.-]", "", text)[:60] or "action"


def _is_unfinished(items: Sequence[Item], position: int) -> bool:
    """Whether a run's last item is here and it is no ending."""
    item = items[position]
    following = items[position + 1] if position + 1 < len(items) else None
    if isinstance(item, RunFinished) or not (following is None or isinstance(following, RunStarted)):
        return False
    before = [earlier for earlier in items[: position + 1] if isinstance(earlier, RunStarted | RunFinished)]
    return bool(before) and isinstance(before[-1], RunStarted)


def _split_shared(items: Sequence[Item]) -> tuple[list[Shared], list[Shared]]:
    """Part the variables that can come first from those that replace what a cell or a copy made before."""
    first: list[Shared] = []
    later: list[Shared] = []
    made: set[str] = set()
    for item in items:
        if isinstance(item, Step) and item.runs:
            made |= names_of(item.code).touches
        elif isinstance(item, Shared):
            (later if item.name in made else first).append(item)
            made.add(item.name)
    return first, later
