"""The bytes of a response as they come: all that is there is given at once.

A server that is faster than we are, or a proxy that gathers, sends many tokens together: to wait, watch the clock
and show something for each of them would take longer than what they say.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any


class Inflow:
    """Reads a response on a task of its own; `close` it."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._pieces: list[bytes] = []
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(lambda _: self._news.set())

    async def take(self) -> bytes | None:
        """Give what has come since, waiting where nothing has; None at the end.

        Raises:
            Exception: what reading raised, once all that came before it was given.
        """
        await self._news.wait()
        self._news.clear()
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            if self._reading.done():
                self._news.set()  # for the end
            return b"".join(pieces)
        self._news.set()  # whoever asks again gets the same
        await self._reading
        return None

    async def close(self) -> None:
        """Stop reading and let the connection be used again where all was read. Raises what closing raises."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        if not self._reading.cancelled():
            self._reading.exception()  # who asked for more was told
        await self._response.aclose()

    async def _read(self) -> None:
        async with aclosing(self._response.aiter_bytes()) as received:
            async for piece in received:
                self._pieces.append(piece)
                self._news.set()
