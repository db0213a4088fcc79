"""Speaks to a worker of a kernel that can be forked: a unix socket, and pipes for what it prints directly."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_client.session import Session

from nbagent.kernels.channels import Channels, Conversation
from nbagent.kernels.outputs import Outputs
from nbagent.kernels.zygote.wire import (
    CHECKPOINT,
    CHUNK,
    KEY,
    SHELL,
    STREAM,
    Frame,
    Unpacker,
    pack,
    receive,
)

MOST_CAUGHT_UP = 64  #: chunks of direct output that are read before a request counts as over


class _Printed:
    """What code wrote to a descriptor directly, or a subprocess of it."""

    def __init__(self, name: str, take: Callable[[str, str], None]):
        self._name, self._take = name, take
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._loop = asyncio.get_running_loop()
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self.read)

    def read(self, most: int = 1) -> None:
        """Take in at most so many chunks of what is there."""
        for _ in range(most):
            try:
                data = os.read(self._reading, CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._reading)
                return
            if text := self._decoder.decode(data):
                self._take(self._name, text)

    def close(self) -> None:
        """Stop reading."""
        self._loop.remove_reader(self._reading)
        os.close(self._reading)


class WireChannels(Channels):
    """Speaks to a worker over one unix socket; the two pipes carry what was written to descriptors 1 and 2."""

    def __init__(self, sock: socket.socket):
        super().__init__(Session(key=KEY))
        self.printed = [_Printed(name, self._print) for name in ("stdout", "stderr")]
        self._answers: dict[str, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._speaker: Conversation | None = None
        self._socket: socket.socket | None = None
        self.replace(sock)

    def replace(self, sock: socket.socket) -> None:
        """Speak to another worker from here on."""
        self._drop()
        self._conversations.clear()
        self._unpacker, self._unsent, self._descriptors = Unpacker(), bytearray(), list[int]()
        self._socket = sock
        sock.setblocking(False)
        self._loop.add_reader(sock, self._read)

    @contextmanager
    def checkpoint(self, mark: str) -> Iterator[asyncio.Future[tuple[dict[str, Any], list[int]]]]:
        """Ask for a fork, at once; what comes of it is the worker's answer and the descriptors with it."""
        answer = self._answers[mark] = self._loop.create_future()
        self._write(pack(CHECKPOINT, [json.dumps({"id": mark}).encode()]))
        try:
            yield answer
        finally:
            del self._answers[mark]

    async def close(self) -> None:
        """Close the sockets."""
        self._drop()
        for printed in self.printed:
            printed.close()

    def _drop(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
            sock.close()

    def _read_message(self, parts: list[bytes]) -> tuple[str, Any]:
        """Give kind and content: nobody else can write to our socket, and no date in it is of use."""
        _, header, _, _, content, *_ = parts
        return json.loads(header)["msg_type"], json.loads(content)

    def _begin(self, kind: str, content: dict[str, Any], outputs: Outputs | None) -> Conversation:
        conversation = super()._begin(kind, content, outputs)
        if outputs is not None:
            self._speaker = conversation
        return conversation

    def _print(self, name: str, text: str) -> None:
        if self._speaker is not None:
            self._speaker.heard = self._heard = self._loop.time()
            self._speaker.take_published("stream", {"name": name, "text": text})

    def _catch_up(self) -> None:
        for printed in self.printed:
            printed.read(MOST_CAUGHT_UP)

    def _send(self, message: dict[str, Any]) -> None:
        self._write(pack(SHELL, self._session.serialize(message)))

    def _write(self, data: bytes) -> None:
        if self._socket is None:
            return
        self._unsent += data
        self._flush()
        if self._unsent:
            self._loop.add_writer(self._socket, self._flush)

    def _flush(self) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:  # it has ended, which is noticed elsewhere
            sent = len(self._unsent)
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data, descriptors = receive(self._socket)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data, descriptors = b"", []
        if not data:
            self._loop.remove_reader(self._socket)
            return
        self._descriptors += descriptors
        self._sort_frames(self._unpacker.feed(data))

    def _sort_frames(self, frames: list[Frame]) -> None:
        texts: list[bytes] = []
        speaking: list[bytes] = []  # the name and the parent of `texts`
        for kind, parts in [*frames, (b"", [])]:
            if kind == STREAM and parts[:2] == speaking:
                texts.append(parts[2])
                continue
            if texts:
                self._take_text(speaking[0], speaking[1], b"".join(texts))
                texts, speaking = [], []
            if kind == STREAM:
                speaking, texts = parts[:2], [parts[2]]
            elif kind == CHECKPOINT:
                self._take_answer(json.loads(parts[0]))
            elif kind:
                self._sort(parts)

    def _take_text(self, name: bytes, parent: bytes, data: bytes) -> None:
        self._heard = self._loop.time()
        if (conversation := self._conversations.get(parent.decode())) is not None:
            conversation.heard = self._heard
            text = data.decode("utf-8", "replace")
            conversation.take_published("stream", {"name": name.decode(), "text": text})

    def _take_answer(self, answer: dict[str, Any]) -> None:
        passed = [self._descriptors.pop(0)] if "pid" in answer else []
        waiting = self._answers.get(answer["id"])
        if waiting is not None and not waiting.done():
            waiting.set_result((answer, passed))
        else:
            for descriptor in passed:
                os.close(descriptor)
