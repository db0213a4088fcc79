"""From the bytes of a response to parsed chunks, whatever its headers say that it is."""

from __future__ import annotations

import json
from typing import Any

from nbagent.models.failures import Server
from nbagent.models.sse import SseDecoder

#: Bytes of an answer without events that are looked at.
LONGEST_PLAIN = 4_000_000


class ReplyReader:
    """Decodes one response. An answer that is one JSON object (no streaming) is taken as one chunk."""

    def __init__(self, server: Server) -> None:
        self.done = False  #: the end mark came
        self._server = server
        self._events = SseDecoder()
        self._head = b""  #: what came before the first event
        self._kind = ""  #: "events" or "plain", once known
        self._any_event = False

    def feed(self, received: bytes) -> list[Any]:
        """Take bytes; give the chunks that are complete.

        Raises:
            ModelError: the server reports an error that another attempt does not heal.
            Trouble: the stream is broken, or the server reports a passing error.
        """
        if not self._any_event and len(self._head) < LONGEST_PLAIN:
            self._head += received
        if not self._kind and self._head.strip():
            self._kind = "plain" if self._head.lstrip()[:1] in b"{[<" else "events"
            received = self._head
        if self._kind != "events":
            return []
        return self._chunks(self._events.feed(received))

    def finish(self) -> list[Any]:
        """Give what is left at the end of the response. Raises as `feed` does."""
        text = self._head.decode("utf-8", "replace")
        if self._kind == "plain":
            try:
                chunk = json.loads(text)
            except ValueError:
                raise self._server.not_openai(text) from None
            if not isinstance(chunk, dict) or not ({"choices", "error"} & set(chunk)):
                raise self._server.not_openai(text)
            self._raise_error(chunk)
            self.done = True
            return [chunk]
        chunks = self._chunks(self._events.finish())
        if not self._any_event and text.strip() and not text.lstrip().startswith(":"):
            raise self._server.not_openai(text)
        return chunks

    def _chunks(self, events: list[str]) -> list[Any]:
        chunks = []
        for data in events:
            self._any_event = True
            if self.done or not data.strip():
                continue
            if data.strip() == "[DONE]":
                self.done = True
                continue
            try:
                chunk = json.loads(data)
            except ValueError as error:
                raise self._server.broken(f"a line that is not JSON: {data[:60]}") from error
            self._raise_error(chunk)
            chunks.append(chunk)
        return chunks

    def _raise_error(self, chunk: Any) -> None:
        if not isinstance(chunk, dict):
            return
        error = chunk.get("error")
        if not error and "error" in (chunk.get("object"), chunk.get("type")):
            error = chunk  # some servers send the error itself
        if not error:
            return
        raise self._server.event(error)
