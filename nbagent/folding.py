"""Writes the note that stands for the older part of a conversation, from what was said and observed.

It needs no model: where one has summed up, its words take the place of the list of steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nbagent.prompt import text_named, variable_lines
from nbagent.protocols import NO_OUTPUT, Observation, Variable
from nbagent.reply import Action
from nbagent.turns import Task, Turn, message_tokens

LONGEST_THOUGHT = 160
LONGEST_NOTICE = 400
MOST_NOTICES = 3


class _Detail(NamedTuple):
    """How many characters of each thing are told."""

    task: int
    code: int
    observed: int


_DETAILS = (_Detail(2000, 600, 500), _Detail(1200, 240, 240), _Detail(600, 120, 120), _Detail(300, 60, 60))


def note_text(
    turns: Sequence[Turn],
    limit: int,
    *,
    nonce: str,
    summary: str = "",
    variables: Sequence[Variable] = (),
    plan: str = "",
) -> str:
    """Write a note of at most `limit` estimated tokens on `turns`, oldest first.

    Earlier tasks are the user's words and stand as such; all that comes from the model or from data is fenced.
    What does not fit is told in less detail first, then the oldest steps are left out and counted.
    """
    facts = [*_notices(turns), *(["Variables now:", *variable_lines(variables)] if variables else [])]
    parts = _Parts([], [], facts, plan, nonce)
    for detail in _DETAILS:
        parts.tasks = [f"- {_clip(turn.task, detail.task)}" for turn in turns if isinstance(turn, Task)]
        parts.steps = [summary] if summary else [line for turn in turns if (line := _line(turn, detail))]
        if _fits(parts.note(), limit):
            break
    while not _fits(parts.note(), limit) and parts.give_up_some():
        pass
    return parts.note()


@dataclass
class _Parts:
    """What a note is put together from; the first to go are the oldest steps."""

    tasks: list[str]
    steps: list[str]
    facts: list[str]
    plan: str
    nonce: str
    left_out: int = 0

    def note(self) -> str:
        parts = [text_named("note")]
        if self.tasks:
            parts.append("What the user asked before:\n" + "\n".join(self.tasks))
        if self.plan:
            parts.append(self.plan)
        left_out = [f"({self.left_out} older steps are left out)"] if self.left_out else []
        body = "\n".join([*left_out, *self.steps, *self.facts])
        if body:
            body = body.replace(self.nonce, "…") if self.nonce else body
            parts.append(f"<output {self.nonce}>\n{body}\n</output {self.nonce}>")
        return "\n\n".join(parts)

    def give_up_some(self) -> bool:
        """Make the note shorter; say whether there was anything left to give up."""
        if len(self.steps) > 1:
            count = max(1, len(self.steps) // 10)
            self.steps, self.left_out = self.steps[count:], self.left_out + count
        elif self.steps and len(self.steps[0]) > LONGEST_THOUGHT:
            self.steps = [_clip(self.steps[0], len(self.steps[0]) * 3 // 4)]
        elif len(self.facts) > 1:
            self.facts = self.facts[: len(self.facts) * 3 // 4]
        elif self.tasks:
            self.tasks = self.tasks[1:]
        elif self.steps or self.facts or self.plan:
            self.steps, self.facts, self.plan, self.left_out = [], [], "", 0
        else:
            return False
        return True


def _fits(note: str, limit: int) -> bool:
    return message_tokens({"role": "user", "content": note}) <= limit


def _line(turn: Turn, detail: _Detail) -> str:
    if isinstance(turn, Task):
        return (
            f"(answer to {_clip(turn.task, 60)!r}: {_clip(turn.ending, detail.observed)})" if turn.ending else ""
        )
    if not turn.actions:
        return ""  # an answer stands with its task, and notes were for their moment
    thought = _clip(turn.thought.strip().partition("\n")[0], LONGEST_THOUGHT)
    lines = [f"- {thought}" if thought else "-"]
    for action, seen in zip(turn.actions, turn.observations, strict=True):
        lines.append(_indented(_clip(_readable(action), detail.code)))
        lines.append(_indented(f"-> {_clip(_data(seen), detail.observed)}"))
    return "\n".join(lines)


def _readable(action: Action) -> str:
    try:
        values = json.loads(action.arguments)
    except ValueError:
        return f"{action.tool} {action.arguments}"
    if isinstance(values, dict) and set(values) == {"code"}:
        return str(values["code"])
    return f"{action.tool} {json.dumps(values, ensure_ascii=False)}"


def _notices(turns: Sequence[Turn]) -> list[str]:
    """Give what was said last before the data of an observation: a time limit, a death, lost variables."""
    said: dict[str, None] = {}
    for turn in turns:
        for seen in () if isinstance(turn, Task) else turn.observations:
            notice = seen.text.partition("<output ")[0].strip()
            if notice and notice != NO_OUTPUT:
                said[_clip(notice, LONGEST_NOTICE)] = None
    return [f"Said then: {notice}" for notice in list(said)[-MOST_NOTICES:]]


def _data(seen: Observation) -> str:
    """Give an observation without the marks of its fence and without what we said after it."""
    lines = seen.text.split("\n")
    ends = [at for at, line in enumerate(lines) if line.startswith("</output ")]
    kept = lines[: ends[-1]] if ends else lines
    return "\n".join(line for line in kept if not line.startswith("<output ")).strip()


def _clip(text: str, characters: int) -> str:
    text = text.strip()
    if len(text) <= characters:
        return text
    head = characters * 2 // 3
    return f"{text[:head].rstrip()} … {text[len(text) - (characters - head) :].lstrip()}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
