"""Listening to a reply: what is kept of it, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from nbagent.events import Event
from nbagent.listening import Listener
from nbagent.redaction import Redactor
from nbagent.reply import Finish, ReplyPart, Text


async def test_a_stop_that_a_connection_lost_ends_the_reply_with_its_next_part() -> None:
    shown: list[Event] = []
    listener = Listener(shown.append, Redactor({}))
    waiting = asyncio.Event()

    async def parts() -> AsyncGenerator[ReplyPart, None]:
        yield Text("Let me ")
        try:
            waiting.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass  # as asyncio loses it while a connection is made
        yield Text("go on")
        yield Finish("stop")

    hearing = asyncio.create_task(listener.hear(parts()))
    await waiting.wait()
    hearing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hearing
    listener.keep_partial()
    assert listener.reply.thought == "Let me "
