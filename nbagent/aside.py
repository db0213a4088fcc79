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
from nbagent.protocols import Model
from nbagent.reply import Attempt, Text, UsageReport, whole_characters

#: What keeps a model that was told of tools from calling one, or from the object of the json dialect.
PLAIN_TEXT: dict[DialectName, dict[str, Any]] = {
    "tools": {"tool_choice": "none"},
    "json": {"response_format": None},
    "fenced": {},
}
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
    _refused: set[str] = field(default_factory=set)

    async def ask(self, purpose: Purpose, question: str, parameters: Mapping[str, Any] | None = None) -> str:
        """Give the reply's text, or "" where nothing usable came.

        `parameters` are fields of the request, such as `temperature`. One that the server refuses is left out
        from then on; what the budgets of the run do not allow is not asked.
        """
        if not self.meter.affords(self.conversation.estimated_tokens):
            return ""
        wanted = {**PLAIN_TEXT[self.conversation.dialect], **(parameters or {})}
        while True:
            fields = {name: value for name, value in wanted.items() if self._takes(name)}
            try:
                async with asyncio.timeout(SECONDS) as limit:
                    return await self._once(purpose, question, fields)
            except TimeoutError:
                if not limit.expired():
                    raise
                self.emit(AsideAnswered(purpose=purpose, text="", failed=f"no whole answer within {SECONDS:g} s"))
                return ""
            except ModelError as error:
                if not self._gives_way(error, fields):
                    self.emit(AsideAnswered(purpose=purpose, text="", failed=str(error)))
                    return ""

    def _takes(self, name: str) -> bool:
        return name not in self._refused and self.conversation.takes(name)

    def _gives_way(self, error: ModelError, fields: Mapping[str, Any]) -> bool:
        """Leave out what the server refused: the field that it names, else all of ours; False for none."""
        if not isinstance(error, ModelRefused) or isinstance(error, ContextOverflow):
            return False
        ours = {name for name, value in fields.items() if value is not None}
        refused = ours & {error.field} or ours
        self._refused |= refused
        return bool(refused)

    async def _once(self, purpose: Purpose, question: str, fields: dict[str, Any]) -> str:
        self.emit(AsideAsked(purpose=purpose, question=question, parameters=fields))
        text, usage = "", Usage()
        async with aclosing(self.model.stream(self.conversation.aside())) as parts:
            async for part in parts:
                match part:
                    case Text(more):
                        text += more
                        if len(text) > LONGEST_REPLY:
                            break
                    case UsageReport(usage):
                        pass
                    case Attempt(number, wait, why):
                        text = ""
                        self.emit(Retrying(attempt=number, wait=wait, why=why, aside=True))
                    case _:
                        pass
        text = whole_characters(text).strip()
        usage = self.meter.add(usage, self.conversation.estimated_tokens)
        self.emit(AsideAnswered(purpose=purpose, text=text, usage=usage))
        return text
