"""A strict scripted model, for tests, demos and docs: it says what it was told to, and nothing else.

model = ScriptedModel([call("run_code", code="1 + 1"), say("The answer is 2.")])
...
model.assert_complete()
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from typing import Any

from nbagent.events import Usage
from nbagent.models.assembler import made_up_id
from nbagent.protocols import Request
from nbagent.reply import Action, ActionPart, Finish, ReplyPart, Text, UsageReport

#: Usage of every scripted reply, so that sums can be checked.
SCRIPTED_USAGE = Usage(prompt_tokens=10, completion_tokens=5)


class ScriptError(AssertionError):
    """The script and what was asked of the model differ."""


class Pause:
    """Holds a scripted reply in mid-stream until it is released. Any thread may wait and release."""

    def __init__(self) -> None:
        self._reached: Future[None] = Future()
        self._released: Future[None] = Future()

    async def reached(self) -> None:
        """Wait until the reply is held here."""
        await asyncio.shield(asyncio.wrap_future(self._reached))

    def wait(self, timeout: float) -> None:
        """Block this thread until the reply is held here. Raises `TimeoutError` after `timeout` seconds."""
        self._reached.result(timeout)

    def release(self) -> None:
        """Let the reply go on; also before it gets here."""
        if not self._released.done():
            self._released.set_result(None)

    async def hold(self) -> None:
        """Called by the model."""
        if not self._reached.done():
            self._reached.set_result(None)
        await asyncio.shield(asyncio.wrap_future(self._released))


Reply = Sequence[ReplyPart | Pause] | Exception


class ScriptedModel:
    """Gives the replies in order; a reply that is an exception is raised.

    `bodies` holds every request's body, parsed; `raw_bodies` the bytes.
    """

    def __init__(
        self, replies: Sequence[Reply], *, name: str = "scripted", host: str = "scripted://", label: str = ""
    ) -> None:
        self.name = name
        self.host = host
        self.label = label
        self.raw_bodies: list[bytes] = []
        self.closed = False
        self._replies = list(replies)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Every request so far, parsed."""
        return [json.loads(body) for body in self.raw_bodies]

    async def stream(self, request: Request) -> AsyncGenerator[ReplyPart, None]:
        """Give the next reply.

        Raises:
            ScriptError: there is none.
            Exception: the script says so.
        """
        self.raw_bodies.append(request.body)
        if len(self.raw_bodies) > len(self._replies):
            raise ScriptError(f"request {len(self.raw_bodies)} is more than the script's {len(self._replies)}")
        reply = self._replies[len(self.raw_bodies) - 1]
        if isinstance(reply, Exception):
            raise reply
        for part in reply:
            if isinstance(part, Pause):
                await part.hold()
            else:
                yield part

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True

    def assert_complete(self) -> None:
        """Check that every reply was asked for. Raises `ScriptError`."""
        left = len(self._replies) - len(self.raw_bodies)
        if left > 0:
            raise ScriptError(f"{left} of the script's {len(self._replies)} replies were never asked for")


def say(text: str, *, pause: Pause | None = None) -> list[ReplyPart | Pause]:
    """Give a reply of text alone, word by word; `pause` holds it after the first."""
    words = [Text(word) for word in text.replace(" ", " \0").split("\0") if word]
    held: list[ReplyPart | Pause] = [pause] if pause else []
    return [*words[:1], *held, *words[1:], UsageReport(SCRIPTED_USAGE), Finish("stop")]


def call(
    tool: str, /, *, thought: str = "", call_id: str = "", pause: Pause | None = None, **arguments: Any
) -> list[ReplyPart | Pause]:
    """Give a reply that calls one tool; `pause` holds it before the call is whole."""
    text = json.dumps(arguments, ensure_ascii=False)
    shown = arguments["code"] if tool == "run_code" and isinstance(arguments.get("code"), str) else text
    parts: list[ReplyPart | Pause] = [Text(thought)] if thought else []
    parts.append(ActionPart(tool, shown))
    if pause:
        parts.append(pause)
    return [*parts, Action(call_id or made_up_id(), tool, text), UsageReport(SCRIPTED_USAGE), Finish("stop")]
