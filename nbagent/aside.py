"""Asks the model something beside the conversation, which stays as it is.

The request begins with the whole of the conversation, so that caches hold. Whatever goes wrong is no error:
the caller has another way, and the next ordinary request will say what is the matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from nbagent.context import Conversation
from nbagent.errors import ContextOverflow, ModelError, ModelRefused
from nbagent.events import AsideAnswered, AsideAsked, DialectName, Event, Retrying, Usage
from nbagent.meter import Meter
from nbagent.mind import Purpose
from nbagent.models.assembler import CHARACTERS_PER_TOKEN
from nbagent.protocols import Model
from nbagent.reply import Attempt, Text, UsageReport, whole_characters

#: What keeps a model that was told of tools from calling one, or from the object of the json dialect.
PLAIN_TEXT: dict[DialectName, dict[str, Any]] = {
    "tools": {"tool_choice": "none"},
    "json": {"response_format": None},
    "fenced": {},
}
#: Statuses by which servers refuse a field.
OF_A_FIELD = (400, 404, 422, 500, 501)
#: Seconds that a question may take, and characters of a reply that are read: some replies never end.
SECONDS = 180.0
LONGEST_REPLY = 20_000


@dataclass(slots=True)
class Aside:
    """Asks one model about one conversation."""

    model: Model
    conversation: Conversation
    meter: Meter
    emit: Callable[[Event], None]
    patience: float = 1.0  #: how much more time than others the model needs
    _refused: set[str] = field(default_factory=set)
    _text: str = ""  #: what has come of the reply under way
    _usage: Usage | None = None  #: the same

    async def ask(
        self,
        purpose: Purpose,
        question: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
    ) -> str:
        """Give the reply's text, or "" where nothing usable came.

        `parameters` are fields of the request, such as `temperature`. One that the server refuses is left out
        from then on; what the budgets of the run do not allow is not asked. It may take the time that the run
        has left; with `seconds` it may take these, and what came of the reply by then is given.
        """
        allowed = min(SECONDS, self.meter.seconds_left) if seconds is None else seconds
        if allowed <= 0 or not self.meter.affords(self.conversation.estimated_tokens):
            return ""
        wanted = {**PLAIN_TEXT[self.conversation.dialect], **(parameters or {})}
        while True:
            fields = {name: value for name, value in wanted.items() if self._takes(name)}
            try:
                async with asyncio.timeout(allowed) as limit:
                    await self._once(purpose, question, fields)
            except TimeoutError:
                if not limit.expired():
                    raise
                self._answered(purpose, f"no whole answer within {allowed:g} s", sent=True)
                return f"{self._text} …" if self._text and seconds is not None else ""
            except ModelError as error:
                if not self._gives_way(error, fields):
                    self._answered(purpose, str(error))
                    return ""
            except asyncio.CancelledError:
                self._answered(purpose, "stopped")
                raise
            else:
                self._answered(purpose)
                return self._text

    def _answered(self, purpose: Purpose, failed: str = "", *, sent: bool = False) -> None:
        """Record what came, and count what it took: a reply that broke off was paid for, too."""
        self._text = whole_characters(self._text).strip()
        usage = self._usage or Usage(completion_tokens=len(self._text) // CHARACTERS_PER_TOKEN, estimated=True)
        if self._text or sent or not failed:
            usage = self.meter.add(usage, self.conversation.estimated_tokens)
        elif self._usage is None:
            usage = Usage()
        self.emit(AsideAnswered(purpose=purpose, text=self._text, usage=usage, failed=failed))

    def _takes(self, name: str) -> bool:
        return name not in self._refused and self.conversation.takes(name)

    def _gives_way(self, error: ModelError, fields: Mapping[str, Any]) -> bool:
        """Leave out what the server refused: the field that it names, else all of ours; False for none."""
        if not isinstance(error, ModelRefused) or isinstance(error, ContextOverflow):
            return False
        if error.status not in OF_A_FIELD:
            return False  # a key or an empty account: no field is at fault
        ours = {name for name, value in fields.items() if value is not None}
        refused = ours & {error.field} or ours
        self._refused |= refused
        return bool(refused)

    async def _once(self, purpose: Purpose, question: str, fields: dict[str, Any]) -> None:
        self.emit(AsideAsked(purpose=purpose, question=question, parameters=fields))
        self._text, self._usage = "", None
        async with aclosing(self.model.stream(self.conversation.aside())) as parts:
            async for part in parts:
                match part:
                    case Text(more):
                        self._text += more
                        if len(self._text) > LONGEST_REPLY:
                            break
                    case UsageReport(usage):
                        self._usage = usage
                    case Attempt(number, wait, why):
                        if self._text:
                            lost = len(self._text) // CHARACTERS_PER_TOKEN + 1
                            broken = Usage(completion_tokens=lost, estimated=True)
                            self.meter.add(broken, self.conversation.estimated_tokens)
                        self._text = ""
                        self.emit(Retrying(attempt=number, wait=wait, why=why, aside=True))
                    case _:
                        pass
