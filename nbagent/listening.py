"""Takes one reply of the model in, part by part, and shows it as it comes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from nbagent.errors import ModelError
from nbagent.events import (
    ActionDelta,
    Event,
    Reasoning,
    ReasoningDelta,
    Retrying,
    Thought,
    ThoughtDelta,
    Usage,
)
from nbagent.live_text import LiveText
from nbagent.models.assembler import CHARACTERS_PER_TOKEN
from nbagent.redaction import Redactor
from nbagent.reply import (
    Action,
    ActionPart,
    Attempt,
    Finish,
    Malformed,
    Raw,
    ReasoningText,
    ReplyPart,
    Text,
    UsageReport,
    whole_characters,
    whole_escapes,
)
from nbagent.stopping import heed_stop


@dataclass(slots=True)
class Reply:
    """One reply of the model, as far as it has come."""

    thought: str = ""
    reasoning: str = ""
    raw: str = ""
    actions: list[Action] = field(default_factory=list)
    malformed: str = ""
    finish: str = ""
    usage: Usage = field(default_factory=Usage)
    lost: list[Usage] = field(default_factory=list)  #: of attempts that broke off: paid for all the same
    first_token: float | None = None  #: monotonic


@dataclass(slots=True)
class Listener:
    """Listens to one reply after the other; `reply` is the one under way, or the last one that was broken off."""

    emit: Callable[[Event], None]
    redactor: Redactor
    reply: Reply = field(default_factory=Reply)
    _live: LiveText = field(init=False)

    def __post_init__(self) -> None:
        self._live = LiveText(self.redactor, self.emit)

    async def hear(self, parts: AsyncGenerator[ReplyPart, None]) -> Reply:
        """Take a whole reply in.

        Raises:
            ModelError: it cannot be had, or the server's filter cut it.
        """
        self.reply = Reply()
        async with aclosing(parts):
            async for part in parts:
                heed_stop()
                self._take(part)
        self._live.flush()
        reply, self.reply = self.reply, Reply()
        reply.thought, reply.reasoning = whole_characters(reply.thought), whole_characters(reply.reasoning)
        if reply.reasoning:
            self.emit(Reasoning(text=reply.reasoning))
        if reply.thought or reply.raw:
            self.emit(Thought(text=reply.thought, raw=reply.raw))
        if reply.finish == "filter":
            raise ModelError("The server's content filter cut the reply; put the task in other words.")
        return reply

    def keep_partial(self) -> Usage | None:
        """Record what was said of a reply that is not going to be whole; give an estimate of its tokens."""
        reply = self.reply
        if reply.thought.strip():
            self.emit(Thought(text=whole_characters(reply.thought), raw=reply.raw))
        return self._estimate(reply)

    @staticmethod
    def _estimate(reply: Reply) -> Usage | None:
        if reply.first_token is None:
            return None
        characters = len(reply.thought) + len(reply.reasoning)
        return Usage(completion_tokens=characters // CHARACTERS_PER_TOKEN + 1, estimated=True)

    def _take(self, part: ReplyPart) -> None:
        reply = self.reply
        if reply.first_token is None and isinstance(part, Text | ReasoningText | ActionPart | Action):
            reply.first_token = time.monotonic()
        match part:
            case Text(text):
                reply.thought += text
                self._live.show(ThoughtDelta(text=whole_characters(text)))
            case ReasoningText(text):
                reply.reasoning += text
                self._live.show(ReasoningDelta(text=whole_characters(text)))
            case ActionPart(tool, text):
                self._live.show(ActionDelta(tool=tool, text=whole_characters(text)))
            case Action(call_id, tool, arguments):
                reply.actions.append(Action(call_id, tool, whole_escapes(arguments)))
            case Raw(text):
                reply.raw = whole_characters(text)
            case Malformed(correction):
                reply.malformed = correction
            case UsageReport(usage):
                reply.usage = usage
            case Attempt(number, wait, why):
                lost = self._estimate(reply)
                self.reply = Reply(lost=[*reply.lost, *([lost] if lost is not None else [])])
                self._live.flush()
                self.emit(Retrying(attempt=number, wait=wait, why=why))
            case Finish(reason):
                reply.finish = reason
