"""The embedded model: a small open model on this machine, behind the same wire as any other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from nbagent.errors import ModelError, NoModelError
from nbagent.models import weights
from nbagent.models.embedded_owner import ServerOwner, ServerParameters
from nbagent.models.embedded_server import LOOPBACK, Record
from nbagent.models.openai_chat import OpenAIChat
from nbagent.models.weights_catalogue import in_units
from nbagent.protocols import Request
from nbagent.reply import Attempt, ReplyPart

#: The window in tokens. It costs memory (28 KB a token for the 1.5B), not time.
CONTEXT_WINDOW = 16384
#: Seconds that the server outlives its last owner.
GRACE_SECONDS = 10.0
#: Seconds to wait for the first token: a full window takes minutes to read on two cores.
FIRST_TOKEN_SECONDS = 600.0
#: How often one request is sent again because the server died under it.
RESTARTS = 2


class EmbeddedModel:
    """`local:NAME`: served by a process of this machine that sessions and owners share.

    `context` is in tokens, the limits are in seconds; nothing is started before `warm_up` or `stream`.

    Raises:
        WeightsError: there are no weights of that name.
    """

    host = "this machine"

    def __init__(
        self,
        name: str = "",
        *,
        context: int = CONTEXT_WINDOW,
        grace: float = GRACE_SECONDS,
        stream_timeout: float = 60.0,
    ):
        self._cache = weights.open_cache()
        self._entry = self._cache.entry(name or self._cache.catalogue.default)
        self.name = f"local:{self._entry.name}"
        self.label = f"local {self._entry.parameters}: check it"
        self.context = context
        self._grace = grace
        self._stream_timeout = stream_timeout
        self._owner = ServerOwner(weights.cache_folder() / "embedded")
        self._wire: tuple[Record, OpenAIChat] | None = None

    async def warm_up(self) -> None:
        """Start the server, or join the one that runs, and wait until it answers.

        Raises:
            NoModelError: the weights or llama.cpp are missing; the message says how to get them.
            ModelUnreachable: the server did not start.
            WeightsError: the weights are not what they should be.
        """
        chat = await self._connect()
        await chat.warm_up()

    async def stream(self, request: Request) -> AsyncGenerator[ReplyPart, None]:
        """Send one request and yield its reply's parts; `Attempt` voids the parts before it.

        Raises:
            NoModelError: the weights or llama.cpp are missing; the message says how to get them.
            WeightsError: the weights are not what they should be.
            ModelError: the server did not start, ended again and again, or did not serve this request.
        """
        for number in range(2, RESTARTS + 3):
            chat = await self._connect()
            try:
                async with aclosing(chat.stream(request)) as parts:
                    async for part in parts:
                        yield part
                return
            except ModelError:
                # While the server lives, sending again would not mend it.
                if number > RESTARTS + 1 or await asyncio.to_thread(self._owner.alive):
                    raise
            yield Attempt(number, 0.0, "the embedded model's server ended: it is started again")

    async def close(self) -> None:
        """Let go of the server; it ends when nobody else holds it."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire[1].close()
        self._owner.release()  # on no thread: none can be started while the interpreter shuts down

    async def _connect(self) -> OpenAIChat:
        record = await asyncio.to_thread(self._acquire)
        if self._wire is None or self._wire[0] != record:
            if self._wire is not None:
                await self._wire[1].close()
            chat = OpenAIChat(
                self.name,
                f"http://{LOOPBACK}:{record.port}/v1",
                record.key,
                first_token_timeout=FIRST_TOKEN_SECONDS,
                stream_timeout=self._stream_timeout,
                max_retry_seconds=0,  # a server that died comes back on another port: see stream
                label=self.label,
                host=self.host,
            )
            self._wire = record, chat
        return self._wire[1]

    def _acquire(self) -> Record:
        file = self._cache.find(self._entry.name)
        if file is None:
            raise NoModelError(
                f"{self.name} is not on this machine: get it with `nbagent model pull {self._entry.name}` "
                f"({in_units(self._entry.size)}), or set a key (OPENAI_API_KEY)"
            )
        return self._owner.acquire(ServerParameters(file, self.context, physical_cores(), self._grace))


def physical_cores() -> int:
    """Count the cores that this process may use: hyper-threads and a container's quota make llama.cpp slow."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    cores = {_siblings(cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota()))


def _siblings(cpu: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _quota() -> int:
    """How many whole CPUs the control group allows; very many where there is no limit."""
    unlimited = 1 << 16
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return unlimited if quota == "max" else max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return unlimited
