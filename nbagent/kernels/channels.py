"""The requests to a kernel that are under way, by nbclient's rules, and the two sockets to an ordinary one.

A request is over when its reply *and* its `idle` are in. What belongs to no request under way is dropped:
text that a thread prints after its cell went idle is nobody's output and never mixed into the next cell's.
All of it runs on one event loop, whose thread owns the sockets.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.session import Session
from zmq.error import ZMQError

from nbagent.kernels.outputs import Outputs

COALESCE = 0.03  #: seconds for which stream pieces are gathered
FAIR = 500_000  #: bytes after which others on the event loop get their turn in a flood
LEAST = 10_000  #: bytes that a message counts for at least


class Conversation:
    """One request and what the kernel says about it."""

    def __init__(self, outputs: Outputs | None = None):
        self.reply: dict[str, Any] = {}
        self.error: dict[str, Any] = {}  #: content of the last error message
        self.idle = False
        self.heard = 0.0  #: when the last message came, by the loop's clock
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outputs = outputs
        self._flush: asyncio.TimerHandle | None = None

    def take_reply(self, content: dict[str, Any]) -> None:
        """Take in the reply."""
        self.reply = content
        self._check()

    def take_published(self, kind: str, content: dict[str, Any]) -> None:
        """Take in one message of the iopub channel."""
        if kind == "status":
            self.idle = self.idle or content.get("execution_state") == "idle"
            self._check()
            return
        if kind == "error":
            self.error = content
        if self._outputs is None:
            return
        self._outputs.take(kind, content)
        if self._outputs.waiting and self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(COALESCE, self._flush_now)

    def close(self) -> None:
        """Hand on what is left of the outputs."""
        if self._flush is not None:
            self._flush.cancel()
        if self._outputs is not None:
            self._outputs.finish()
            self._outputs = None

    def expression(self, name: str) -> dict[str, Any]:
        """Give the JSON that a user expression of the request came to; {} where it failed."""
        value = (self.reply.get("user_expressions") or {}).get(name) or {}
        found = value.get("data", {}).get("application/json")
        return dict(found) if isinstance(found, Mapping) else {}

    def _flush_now(self) -> None:
        self._flush = None
        if self._outputs is not None:
            self._outputs.flush()

    def _check(self) -> None:
        if self.idle and self.reply and not self.over.done():
            self.over.set_result(None)


class Channels(ABC):
    """Sends requests and sorts what comes back to their conversations."""

    def __init__(self, session: Session):
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._conversations: dict[str, Conversation] = {}
        self._heard = 0.0

    def execute(
        self, code: str, *, silent: bool, expression: str = "", outputs: Outputs | None = None
    ) -> Conversation:
        """Ask the kernel to run `code` and then, if that went well, to evaluate `expression`."""
        content = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {"probe": expression} if expression else {},
            "allow_stdin": False,
            "stop_on_error": False,  # there is never a second request to stop, but one about the error
        }
        return self._begin("execute_request", content, outputs)

    def greet(self) -> Conversation:
        """Ask the kernel who it is, to learn whether it listens."""
        return self._begin("kernel_info_request", {}, None)

    def ask_to_exit(self) -> None:
        """Ask the kernel to end, its exit handlers and open files included."""
        self._send(self._session.msg("shutdown_request", {"restart": False}))

    def forget(self, conversation: Conversation) -> None:
        """Drop what may still come for a conversation."""
        self._conversations = {key: one for key, one in self._conversations.items() if one is not conversation}

    async def silence(self, quiet: float, most: float) -> None:
        """Wait until nothing came for `quiet` seconds, `most` seconds at the longest."""
        until = self._loop.time() + most
        self._heard = self._loop.time()
        while (now := self._loop.time()) < min(self._heard + quiet, until):  # noqa: ASYNC110 (it moves)
            await asyncio.sleep(min(self._heard + quiet, until) - now)

    @abstractmethod
    async def close(self) -> None:
        """Stop reading and close the sockets."""

    @abstractmethod
    def _send(self, message: dict[str, Any]) -> None: ...

    def _read_message(self, parts: list[bytes]) -> tuple[str, Any]:
        """Give kind and content of a message. Raises `ValueError` where it is not signed with our key."""
        message = self._session.deserialize(parts)
        return message["msg_type"], message["content"]

    @abstractmethod
    def _catch_up(self) -> None:
        """Take in what came some other way before a conversation is over."""

    def _begin(self, kind: str, content: dict[str, Any], outputs: Outputs | None) -> Conversation:
        message = self._session.msg(kind, content)
        conversation = self._conversations[message["header"]["msg_id"]] = Conversation(outputs)
        self._send(message)
        return conversation

    def _sort(self, parts: list[bytes]) -> None:
        self._heard = self._loop.time()
        try:
            _, rest = self._session.feed_identities(parts)
            # The parent is looked at first: a stray message is not worth unpacking.
            parent = json.loads(rest[2]).get("msg_id")
            conversation = self._conversations.get(parent)
            if conversation is None:
                return
            kind, content = self._read_message(rest)
        except (ValueError, TypeError, IndexError, KeyError, AttributeError, RecursionError):
            return  # not a message of this protocol, or not signed with our key
        if not isinstance(content, dict):
            return
        conversation.heard = self._heard
        if kind == "status" and content.get("execution_state") == "idle":
            self._catch_up()
        if kind in ("execute_reply", "kernel_info_reply"):
            conversation.take_reply(content)
        else:
            conversation.take_published(kind, content)


class SocketChannels(Channels):
    """The two zmq sockets to an ordinary kernel."""

    def __init__(self, client: AsyncKernelClient):
        super().__init__(client.session)
        self._client = client
        self._readers = [
            asyncio.create_task(self._read(client.shell_channel.socket)),
            asyncio.create_task(self._read(client.iopub_channel.socket)),
        ]

    async def close(self) -> None:
        """Stop reading and close the sockets."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._client.stop_channels()

    def _catch_up(self) -> None:
        pass  # everything comes over the sockets

    def _send(self, message: dict[str, Any]) -> None:
        self._client.shell_channel.send(message)

    async def _read(self, socket: Any) -> None:
        weight = 0
        while True:
            try:
                parts = await socket.recv_multipart()
            except ZMQError:  # closed under us
                return
            weight += max(LEAST, sum(map(len, parts)))
            self._sort(parts)
            del parts  # up to many MB, while we wait for the next one
            if weight > FAIR:
                weight = 0
                await asyncio.sleep(0)
