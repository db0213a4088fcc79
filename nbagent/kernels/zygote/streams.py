"""The kernel's `sys.stdout` and `sys.stderr`."""

from __future__ import annotations

import io
import os
from contextvars import ContextVar, Token
from typing import Any

from nbagent.kernels.zygote.wire import Wire


class OutStream(io.TextIOBase):
    """One of the two. `descriptor` is the number that subprocesses write to."""

    def __init__(self, wire: Wire, name: str, descriptor: int) -> None:
        self._wire, self._name, self._descriptor = wire, name.encode(), descriptor
        self._parent: ContextVar[bytes] = ContextVar("parent")
        self._last_parent = b""

    encoding = "utf-8"
    errors = "replace"

    @property
    def name(self) -> str:
        """`stdout` or `stderr`."""
        return self._name.decode()

    def set_parent(self, parent: dict[str, Any]) -> None:
        """What is written from here on belongs to this request, in threads without one of their own, too."""
        self._last_parent = _id_of(parent)
        self._parent.set(self._last_parent)

    def set_thread_parent(self, parent: dict[str, Any]) -> Token[bytes]:
        """What this thread writes belongs to this request."""
        return self._parent.set(_id_of(parent))

    def reset_thread_parent(self, token: Token[bytes]) -> None:
        """Undo `set_thread_parent`."""
        self._parent.reset(token)

    def write(self, text: str) -> int:
        """Write text."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not text:
            return 0
        data = text.encode("utf-8", "replace")
        if os.getpid() != self._wire.owner:  # a fork of the user's: two processes would garble the frames
            os.write(self._descriptor, data)
        else:
            self._wire.say(self._name, self._parent.get(self._last_parent), data)
        return len(text)

    def flush(self) -> None:
        """Let what was written leave this process."""
        if not self.closed:
            self._wire.flush()

    def writable(self) -> bool:
        """It is."""
        return True

    def isatty(self) -> bool:
        """It is not."""
        return False

    def fileno(self) -> int:
        """Give the descriptor."""
        return self._descriptor


def _id_of(parent: dict[str, Any]) -> bytes:
    return str(parent.get("header", parent).get("msg_id", "")).encode()
