"""Asks the model, beside its work, whether what was observed is enough: after failures, or before an answer.

One structured question at temperature 0. Its verdict is a word to the model and never more than that: a model
that gives the same answer again has it taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from nbagent.aside import Aside
from nbagent.context import Conversation
from nbagent.events import Event, Reflected
from nbagent.figures import FIGURES_NAMED, unsupported
from nbagent.guards import Nudge
from nbagent.models.json_stream import parse_liberally
from nbagent.prompt import text_named

#: Questions in one run, of each cause.
MOST_QUESTIONS = 2
LONGEST_SENTENCE = 400  #: characters of the verdict's own words

_SCHEMA = {
    "type": "object",
    "properties": {"enough": {"type": "boolean"}, "need": {"type": "string"}, "reason": {"type": "string"}},
    "required": ["enough", "need", "reason"],
    "additionalProperties": False,
}
_RESPONSE = {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": _SCHEMA}}

FAILED = "Several actions in a row have failed."
UNSUPPORTED = "Your answer has not gone to the user yet: {figures} in it stand in nothing that was observed."
ABOUT_TO_ANSWER = "Your answer has not gone to the user yet."

Cause = Literal["failure_streak", "unsupported_answer"]


@dataclass(slots=True)
class Reflection:
    """The questions of one run. `mode`: `off` asks none, `on` asks before every answer too."""

    mode: Literal["auto", "on", "off"]
    aside: Aside
    conversation: Conversation
    emit: Callable[[Event], None]
    _failed: bool = False
    _asked: int = 0  #: before answers
    _streaks: int = 0
    _doubted: str = ""  #: the answer that was held back last

    def noticed(self, nudge: Nudge) -> None:
        """Take note of what a guard said in the step under way."""
        self._failed |= nudge.guard == "failure_streak"

    async def after_step(self) -> Nudge | None:
        """Ask after a streak of failures, once the step is closed; give what the model is told of it."""
        failed, self._failed = self._failed, False
        if not failed or self.mode == "off" or self._streaks >= MOST_QUESTIONS:
            return None
        self._streaks += 1
        verdict = await self._ask("failure_streak", FAILED)
        if verdict is None:
            return None
        if verdict.enough:
            return Nudge("reflection", "By your own judgement what was observed is enough: give the answer.")
        return Nudge("reflection", f"By your own judgement this is needed next: {verdict.need or verdict.reason}")

    async def before_answer(self, answer: str) -> Nudge | None:
        """Ask before an answer that nothing supports; give what the model is told where it is not enough."""
        if self.mode == "off" or self._asked >= MOST_QUESTIONS or answer == self._doubted:
            return None
        # A model that acts in text says that all is well: `Answers` sends it back without asking.
        small = self.conversation.dialect != "tools"
        missing = [] if small else unsupported(answer, self.conversation.observed())
        if not missing and self.mode != "on":
            return None
        self._asked += 1
        named = ", ".join(missing[:FIGURES_NAMED])
        verdict = await self._ask(
            "unsupported_answer", UNSUPPORTED.format(figures=named) if missing else ABOUT_TO_ANSWER
        )
        if verdict is None or verdict.enough:
            return None
        self._doubted = answer
        need = verdict.need or verdict.reason
        return Nudge(
            "reflection",
            f"Your answer was held back, because by your own judgement this is needed first: {need} "
            "Do that with code and print it, then answer.",
        )

    async def _ask(self, cause: Cause, words: str) -> Reflected | None:
        fields: dict[str, Any] = {"temperature": 0}
        if self.conversation.dialect != "tools":
            fields["response_format"] = _RESPONSE
        question = text_named("reflection").replace("{cause}", words)
        verdict = read_verdict(await self.aside.ask("reflection", question, fields), cause)
        if verdict is not None:
            self.emit(verdict)
        return verdict


def read_verdict(text: str, cause: Cause) -> Reflected | None:
    """Read the verdict out of a reply; None where there is none, which never holds anything up."""
    start, end = text.find("{"), text.rfind("}")
    try:
        value = parse_liberally(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("enough"), bool):
        return None
    need, reason = (_sentence(value.get(name)) for name in ("need", "reason"))
    if not value["enough"] and not (need or reason):
        return None  # a doubt that names nothing helps nobody
    return Reflected(cause=cause, enough=value["enough"], need=need, reason=reason)


def _sentence(value: Any) -> str:
    if value is None:
        return ""
    line = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return line if len(line) <= LONGEST_SENTENCE else line[: LONGEST_SENTENCE - 1] + "…"
