"""Frames over one unix socket: Jupyter messages, stream text and descriptors, between a host and a worker.

One socket has one worker and one host: nobody else can connect, so that the key of signatures is no secret.
"""

from __future__ import annotations

import array
import os
import signal
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterable, Sequence

Frame = tuple[bytes, list[bytes]]  #: kind (one byte), parts

SHELL, PUBLISHED, STREAM, CHECKPOINT, RESUME = b"s", b"p", b"o", b"c", b"r"
KEY = b"nbagent"
CHUNK = 1 << 18
MOST_DESCRIPTORS = 4
GATHER_SECONDS = 0.02
MOST_GATHERED = 1 << 14  #: bytes of text that wait for each other

_HEAD = struct.Struct(">QcI")  #: bytes that follow the first field, kind, number of parts
_PART = struct.Struct(">Q")
_EVERY_SIGNAL = signal.valid_signals() if hasattr(signal, "valid_signals") else set()


def pack(kind: bytes, parts: Sequence[bytes | memoryview]) -> bytes:
    """Write one frame."""
    views = [memoryview(part).cast("B") for part in parts]
    length = _HEAD.size - _PART.size + sum(_PART.size + view.nbytes for view in views)
    pieces: list[bytes | memoryview] = [_HEAD.pack(length, kind, len(views))]
    for view in views:
        pieces += (_PART.pack(view.nbytes), view)
    return b"".join(pieces)


class Unpacker:
    """Puts the pieces that a socket gives together again."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Take more bytes; give the frames that are whole now."""
        self._buffer += data
        frames: list[Frame] = []
        at, buffer = 0, self._buffer
        while len(buffer) - at >= _HEAD.size:
            length, kind, count = _HEAD.unpack_from(buffer, at)
            end = at + _PART.size + length
            if len(buffer) < end:
                break
            position, parts = at + _HEAD.size, []
            for _ in range(count):
                (size,) = _PART.unpack_from(buffer, position)
                position += _PART.size
                parts.append(bytes(buffer[position : position + size]))
                position += size
            frames.append((kind, parts))
            at = end
        if at:
            del buffer[:at]
        return frames


def receive(sock: socket.socket, flags: int = 0) -> tuple[bytes, list[int]]:
    """Read what is there, with the descriptors that came along; b"" where the other side is gone."""
    space = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, _, _ = sock.recvmsg(CHUNK, space, flags | socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors)


class Wire:
    """The worker's end.

    Text is gathered while code runs: a thread hands it on, as nobody else might. Between two requests there
    is no thread, so that the process can be forked.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.frames: deque[Frame] = deque()
        self.owner = os.getpid()
        self._reset()

    def replace(self, sock: socket.socket) -> None:
        """Go on with another socket: this process is a fork, the old one is its parent's."""
        self.socket.close()
        self.socket, self.owner = sock, os.getpid()
        self.frames.clear()
        self._reset()

    def _reset(self) -> None:
        self._unpacker = Unpacker()
        self._lock = threading.RLock()
        self._waiting: deque[tuple[memoryview, array.array[int]]] = deque()
        self._sending = False
        self._texts: list[tuple[bytes, bytes, bytes]] = []  # name, parent, text
        self._gathered = 0
        self._gathering = False
        self._over = threading.Event()
        self._flusher: threading.Thread | None = None

    def begin(self) -> None:
        """Gather text from here on."""
        self._gathering = True

    def end(self) -> None:
        """Hand on what was gathered, and go on without gathering."""
        self._gathering = False
        flusher, self._flusher = self._flusher, None
        if os.getpid() != self.owner:  # no thread came along in the fork, and nothing is to be said
            return
        if flusher is not None:
            self._over.set()
            flusher.join()
            self._over.clear()
        self.flush()

    def say(self, name: bytes, parent: bytes, text: bytes) -> None:
        """Send a piece of what was printed, soon."""
        if os.getpid() != self.owner:
            return
        with self._lock:
            self._texts.append((name, parent, text))
            self._gathered += len(text)
            if not self._gathering or self._gathered > MOST_GATHERED:
                self.flush()
            elif self._flusher is None:
                self._flusher = threading.Thread(target=self._keep_flushing, name="nbagent output", daemon=True)
                before = signal.pthread_sigmask(signal.SIG_BLOCK, _EVERY_SIGNAL)  # they are the main thread's
                try:
                    self._flusher.start()
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def flush(self) -> None:
        """Send what was gathered."""
        with self._lock:
            texts, self._texts, self._gathered = self._texts, [], 0
            at = 0
            while at < len(texts):
                name, parent, _ = texts[at]
                end = next((n for n in range(at, len(texts)) if texts[n][:2] != (name, parent)), len(texts))
                self._send(STREAM, [name, parent, b"".join(text for _, _, text in texts[at:end])])
                at = end

    def _keep_flushing(self) -> None:
        over = self._over
        while not over.wait(GATHER_SECONDS):
            self.flush()

    def send(self, kind: bytes, parts: Sequence[bytes | memoryview], descriptors: Iterable[int] = ()) -> None:
        """Send one frame whole: no signal's handler may raise in the middle of it.

        A fork that the user's code made is not the kernel, and says nothing here.
        """
        if os.getpid() != self.owner:
            return
        with self._lock:
            self.flush()
            self._send(kind, parts, descriptors)

    def _send(self, kind: bytes, parts: Sequence[bytes | memoryview], descriptors: Iterable[int] = ()) -> None:
        frame = memoryview(pack(kind, parts)), array.array("i", descriptors)
        with self._lock:
            self._waiting.append(frame)
            if self._sending:  # a finaliser that prints, run in the middle of another send
                return
            self._sending = True
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _EVERY_SIGNAL)
            try:
                while self._waiting:
                    self._send_now(*self._waiting.popleft())
            except (BrokenPipeError, ConnectionResetError):
                os._exit(0)  # the host is gone
            finally:
                self._sending = False
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _send_now(self, data: memoryview, descriptors: array.array[int]) -> None:
        if descriptors:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            data = data[self.socket.sendmsg([data], rights) :]
        while data:
            data = data[self.socket.send(data) :]

    def pump(self, *, wait: bool = False) -> None:
        """Take in what the host has sent; `wait` until there is something. Ends the process with the host."""
        while True:
            try:
                data, _ = receive(self.socket, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                os._exit(0)
            self.frames.extend(self._unpacker.feed(data))
            if wait and self.frames:
                return

    def next_frame(self) -> Frame:
        """Wait for the next frame."""
        if not self.frames:
            self.pump(wait=True)
        return self.frames.popleft()


class Channel:
    """What ipykernel takes for a zmq socket or stream."""

    def __init__(self, wire: Wire, kind: bytes) -> None:
        self._wire, self._kind = wire, kind

    def send_multipart(self, parts: Sequence[bytes], *_: object, **__: object) -> None:
        """Send one message."""
        self._wire.send(self._kind, [getattr(part, "buffer", part) for part in parts])

    def flush(self, *_: object, **__: object) -> None:
        """Nothing waits here."""
