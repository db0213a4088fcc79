"""Any OpenAI-compatible server as a `Model`: chat completions, streamed.

The request's bytes are sent as they are, and the stream is read as plain JSON: the SDK's walk over the
messages and its object for every chunk would cost more than the rest of a step.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from nbagent.errors import ModelError, ModelRefused, ModelUnreachable
from nbagent.models.address import goes_direct, host_of, normalise, proxy_variable
from nbagent.models.assembler import Assembler
from nbagent.models.failures import Retries, Server, Trouble, translated
from nbagent.models.inflow import Inflow
from nbagent.models.reading import ReplyReader
from nbagent.protocols import Request
from nbagent.reply import ReplyPart, joined
from nbagent.settings import OPENAI_URL

if TYPE_CHECKING:
    import openai

CONNECT_SECONDS = 10.0
MODELS_SECONDS = 10.0
#: Seconds to wait for the usage and the end mark once the server said why it stopped.
CLOSING_SECONDS = 5.0
#: Seconds to read on after the end mark, so that the connection can be used again.
DRAIN_SECONDS = 0.1
IDS_LISTED = 10


class OpenAIChat:
    """A model behind an OpenAI-compatible server.

    Time limits are in seconds: `first_token_timeout` from sending to the first token, `stream_timeout`
    between two tokens, `max_retry_seconds` for all waits of one request together. An empty key means that
    none is sent.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str = "",
        *,
        first_token_timeout: float,
        stream_timeout: float,
        max_retry_seconds: float,
        label: str = "",
        host: str = "",
    ) -> None:
        self.name = name
        self.label = label
        self._base = normalise(base_url)
        self.host = host or host_of(self._base)
        self._key = api_key.strip()
        self._first_token_timeout = first_token_timeout
        self._stream_timeout = stream_timeout
        self._max_retry_seconds = max_retry_seconds
        self._client: openai.AsyncOpenAI | None = None
        self._making = asyncio.Lock()
        self._reached = False  #: it answered before, so that a failed connection is worth another attempt

    def __repr__(self) -> str:
        return f"OpenAIChat({self.name!r}, {self._base!r})"

    async def warm_up(self) -> None:
        """Load the SDK and make the client, so that the first request need not; never fails."""
        with suppress(ModelError, Trouble):
            await self._connected()

    async def stream(self, request: Request) -> AsyncGenerator[ReplyPart, None]:
        """Send one request and yield its reply's parts; `Attempt` voids the parts before it.

        A stream that ends cleanly but without finish reason and end mark is taken for whole where all its
        calls are, and there is a call or some text; else it is sent again.

        Raises:
            ModelUnreachable: nothing answers, or the proxy settings cannot be used.
            ModelRefused: the server will not serve this request.
            ModelBusy: it asked us to wait longer or more often than the limits allow.
            ModelStalled: no token came within the limits, twice.
            ReplyBroken: the reply broke off again and again, or was no OpenAI-compatible answer.
        """
        retries, patience = Retries(self._max_retry_seconds), 1
        while True:
            try:
                async with aclosing(self._attempt(request.body, patience)) as parts:
                    async for part in parts:
                        yield part
                return
            except Trouble as trouble:
                if trouble.kind == "unreachable" and not self._reached:
                    raise trouble.error from trouble
                attempt = retries.after(trouble)
                if trouble.kind == "stalled":
                    patience *= 2  # a model that thinks in silence would only be cut off again
            yield attempt
            await asyncio.sleep(attempt.wait)

    async def models(self) -> list[str]:
        """List the names of the server's models. Raises `ModelError`."""
        listing = await self.fetch("/models")
        rows = listing.get("data") or listing.get("models") if isinstance(listing, dict) else listing
        if not isinstance(rows, list):
            raise self._server("/models").not_openai(str(listing))
        names = [row.get("id") or row.get("name") if isinstance(row, dict) else row for row in rows]
        return [name for name in names if isinstance(name, str)]

    async def fetch(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Get a path below the base URL, or post `body` to it; give the JSON that comes back.

        A path that begins with `//` is taken from the server's root. Raises `ModelError`.
        """
        clock = _Clock(MODELS_SECONDS, "first")

        async def send(server: Server) -> Any:
            client = await self._connected()
            options: openai.RequestOptions = {"headers": self._headers(), "timeout": None}
            if body is None:
                return await clock.wait(client.get(server.url, cast_to=object, options=options), server)
            return await clock.wait(client.post(server.url, cast_to=object, body=body, options=options), server)

        try:
            if path.startswith("//"):
                root = urlunsplit((*urlsplit(self._base)[:2], "", "", ""))
                server = self._server(path[1:], root)
                with translated(server):
                    return await send(server)
            return await self._at_base(path, send)
        except Trouble as trouble:
            raise trouble.error from trouble

    async def close(self) -> None:
        """Let go of the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # -- one attempt --

    async def _attempt(self, body: bytes, patience: int) -> AsyncGenerator[ReplyPart, None]:
        clock = _Clock(self._first_token_timeout * patience, "first")
        assembler = Assembler(len(body))
        response = await self._open(body, clock)
        server = self._server("/chat/completions")
        reader = ReplyReader(server)
        inflow = Inflow(response)
        try:
            while not reader.done:
                try:
                    with translated(server):
                        data = await clock.wait(inflow.take(), server)
                    chunks = reader.finish() if data is None else reader.feed(data)
                except Trouble:
                    if assembler.finished:
                        break  # the reply itself is whole
                    raise
                before = assembler.received
                for part in joined(part for chunk in chunks for part in assembler.feed(chunk)):
                    yield part
                if assembler.received != before:
                    clock.token(self._stream_timeout * patience)
                if assembler.finished:
                    clock.token(min(CLOSING_SECONDS, self._stream_timeout))
                if data is None:
                    break
            if not (reader.done or assembler.finished or assembler.acceptable):
                raise server.broken("the connection was closed in the middle of the reply")
            if reader.done:
                await _drain(inflow, server)
            for part in assembler.finish():
                yield part
        finally:
            with suppress(Trouble), translated(server):
                await inflow.close()

    async def _open(self, body: bytes, clock: _Clock) -> Any:
        """Send the request; give the response once its status is known to be good."""
        client = await self._connected()

        async def send(server: Server) -> Any:
            return await clock.wait(self._post(client, server.url, body), server)

        try:
            response = await self._at_base("/chat/completions", send)
        except ModelRefused as refused:
            raise await self._with_model_names(refused) from refused.__cause__
        self._reached = True
        return response

    async def _at_base(self, path: str, send: Callable[[Server], Awaitable[Any]]) -> Any:
        """Send to the base URL; where that has no path and answers 404, try its /v1 and keep what works."""
        base = self._base  # another request may find the /v1 meanwhile
        server = self._server(path, base)
        try:
            with translated(server):
                return await send(server)
        except ModelRefused as refused:
            if refused.status != 404 or urlsplit(base).path:
                raise
            first = refused
        server = self._server(path, base + "/v1")
        try:
            with translated(server):
                answer = await send(server)
        except ModelRefused as second:
            if second.status != 404 or (_says_why(second) and not _says_why(first)):
                self._base = base + "/v1"
                raise
            raise first from first.__cause__
        self._base = base + "/v1"
        return answer

    async def _post(self, client: openai.AsyncOpenAI, url: str, body: bytes) -> Any:
        import openai

        stream = await client.post(
            url,
            cast_to=object,
            content=body,
            stream=True,
            stream_cls=openai.AsyncStream[object],
            options={
                "headers": {**self._headers(), "Accept": "text/event-stream"},
                "timeout": openai.Timeout(None, connect=CONNECT_SECONDS),
            },
        )
        return stream.response

    async def _with_model_names(self, refused: ModelRefused) -> ModelRefused:
        """Add the server's models to a refusal that says that ours is not one of them."""
        body = getattr(refused.__cause__, "body", None)
        code = body.get("code") if isinstance(body, dict) else None
        if code != "model_not_found" and not (refused.status == 404 and _says_why(refused)):
            return refused
        try:
            names = await self.models()
        except ModelError:
            return refused
        if not names or self.name in names:
            return refused
        more = f" and {len(names) - IDS_LISTED} more" if len(names) > IDS_LISTED else ""
        return ModelRefused(f"{refused}; it offers {', '.join(names[:IDS_LISTED])}{more}", status=refused.status)

    # -- the client --

    def _server(self, path: str, base: str = "") -> Server:
        url = (base or self._base) + path
        return Server(self.host, url, self._key, proxy_variable(self._base, os.environ))

    def _headers(self) -> dict[str, Any]:
        """Set our headers, and keep back what the SDK takes from the environment for somebody else.

        `OPENAI_ORG_ID`, `OPENAI_PROJECT_ID` and `OPENAI_CUSTOM_HEADERS` go to OpenAI's own address and to
        that of `OPENAI_BASE_URL` only.
        """
        import openai

        headers: dict[str, Any] = {}
        own = normalise(os.environ.get("OPENAI_BASE_URL", "") or OPENAI_URL)
        if not self._base.startswith((own, OPENAI_URL)):
            lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines()
            names = ["OpenAI-Organization", "OpenAI-Project", *(line.partition(":")[0].strip() for line in lines)]
            headers = {name: openai.Omit() for name in names if name}
        headers["Content-Type"] = "application/json"
        headers["Authorization"] = f"Bearer {self._key}" if self._key else openai.Omit()
        return headers

    async def _connected(self) -> openai.AsyncOpenAI:
        async with self._making:
            if self._client is None:
                if not self._key.isascii() or not self._key.isprintable():
                    raise ModelRefused("the API key holds characters that no key has: copy it again")
                server = self._server("")
                self._client = await asyncio.to_thread(self._make_client, server)
            return self._client

    def _make_client(self, server: Server) -> openai.AsyncOpenAI:
        """Import the SDK and make its client: most of a second, so not on the loop's thread."""
        import openai

        encrypted = self._base.startswith("https:")
        try:
            with translated(server):
                transport = openai.DefaultAsyncHttpxClient(
                    trust_env=not goes_direct(self._base, os.environ),
                    # The key goes to the given host only, and reading certificates takes 0.1 s.
                    follow_redirects=False,
                    verify=encrypted,
                )
                return openai.AsyncOpenAI(
                    api_key=self._key or "none", base_url=self._base, http_client=transport, max_retries=0
                )
        except (ImportError, ValueError) as error:
            raise ModelUnreachable(f"the proxy of {server.proxy} cannot be used: {server.clean(error)}") from error


class _Clock:
    """Counts the time spent waiting for the server since the last token; the reader's own time is not its."""

    def __init__(self, limit: float, what: str) -> None:
        self._limit = limit
        self._what = what
        self._waited = 0.0

    def token(self, limit: float) -> None:
        """A token came: the next one may take `limit` seconds."""
        self._limit, self._what, self._waited = limit, "further", 0.0

    async def wait(self, awaitable: Any, server: Server) -> Any:
        """Await something of the server's within the limit. Raises `Trouble`."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, self._limit - self._waited)) as limit:
                return await awaitable
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise server.stalled(self._limit, self._what) from error
        finally:
            self._waited += time.monotonic() - began


async def _drain(inflow: Inflow, server: Server) -> None:
    """Read what follows the end mark: usually nothing but the end of the body."""
    with suppress(Trouble):
        clock = _Clock(DRAIN_SECONDS, "further")
        with translated(server):
            while await clock.wait(inflow.take(), server) is not None:
                pass


def _says_why(refused: ModelRefused) -> bool:
    return isinstance(getattr(refused.__cause__, "body", None), dict)
