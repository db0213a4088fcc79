"""A scripted OpenAI-compatible HTTP server on loopback, for sync and async tests.

    with ScriptedServer([sse(C({"content": "ok"}), C({}, "stop"))]) as server:
        ... server.base_url ... server.requests[0].body ...

Each `POST .../chat/completions` takes the next response. A request beyond the script gets status 418 and is
named by `server.unexpected`.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


def C(delta: Any, fr: str | None = None) -> dict[str, Any]:  # noqa: N802
    """One chunk."""
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, "delta": delta, "finish_reason": fr}],
    }


def T(**fragment: Any) -> dict[str, Any]:  # noqa: N802
    """A delta with one tool-call fragment."""
    return {"tool_calls": [fragment]}


def F(name: str | None = None, args: Any = None) -> dict[str, Any]:  # noqa: N802
    """The `function` member, absent keys left out."""
    return {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}


class Gate:
    """Holds a response until `open()`; `reached` is set once the server waits here."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def open(self) -> None:
        self.opened.set()


@dataclass(frozen=True)
class Delay:
    """Seconds to wait in mid-stream."""

    seconds: float


class _Reset:
    """Breaks the connection with a TCP reset."""


RESET = _Reset()

#: One item of a stream: an event, raw bytes, text (one `data:` line), or something that happens.
Item = dict[str, Any] | bytes | str | Gate | Delay | _Reset


@dataclass
class Response:
    """One scripted response. `done` adds the end mark; `headers_first` off: nothing but the items is sent."""

    items: Sequence[Item] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    done: bool = True
    stream: bool = True
    headers_first: bool = True


@dataclass
class Recorded:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]  #: names in lower case
    raw: bytes
    time: float  #: monotonic

    @property
    def body(self) -> dict[str, Any]:
        value = json.loads(self.raw)
        assert isinstance(value, dict)
        return value


def sse(*items: Item, done: bool = True) -> Response:
    """A stream of events."""
    return Response(items, done=done)


def plain(status: int, body: Any, headers: dict[str, str] | None = None) -> Response:
    """A response that is no stream: JSON for objects and lists, else text as it is."""
    if isinstance(body, dict | list):
        content, kind = json.dumps(body).encode(), "application/json"
    else:
        content, kind = body if isinstance(body, bytes) else str(body).encode(), "text/plain"
    return Response([content], status, {"Content-Type": kind, **(headers or {})}, stream=False)


def final(text: str = "ok") -> Response:
    """The model's answer."""
    return sse(C({"role": "assistant", "content": text}), C({}, "stop"))


def run_code(code: str, call_id: str = "a") -> Response:
    """One call of `run_code`."""
    arguments = json.dumps({"code": code})
    return sse(C(T(index=0, id=call_id, type="function", function=F("run_code", arguments))), C({}, "tool_calls"))


class ScriptedServer:
    """Serves `responses` in order under `prefix`; other paths get a plain 404.

    `answer`, where given, makes the response from the request once the script is used up.
    """

    def __init__(
        self,
        responses: Sequence[Response] = (),
        *,
        prefix: str = "/v1",
        models: Sequence[str] = ("stub",),
        answer: Callable[[Recorded], Response] | None = None,
    ) -> None:
        self.responses = list(responses)
        self.prefix = prefix
        self.models = list(models)
        self.answer = answer
        self.requests: list[Recorded] = []  #: of chat completions
        self.others: list[Recorded] = []  #: of anything else
        self.unexpected: list[str] = []
        self.disconnected = threading.Event()  #: a client left in mid-stream
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.root = f"http://127.0.0.1:{self._server.server_port}"
        self.base_url = self.root + prefix
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join(5)

    def begin_again(self) -> None:
        """Forget the script and what was asked, for the next test that shares this server."""
        with self._lock:
            for kept in (self.responses, self.requests, self.others, self.unexpected):
                kept.clear()
            self.answer = None
            self.disconnected.clear()

    @property
    def connections(self) -> int:
        """Connections that were made so far."""
        return self._server.made

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of the chat requests."""
        return [request.body for request in self.requests]

    def assert_complete(self) -> None:
        """Check that the script was followed to its end and not beyond."""
        assert not self.unexpected, self.unexpected
        assert len(self.requests) >= len(self.responses), (
            f"{len(self.requests)} of {len(self.responses)} asked for"
        )

    def respond(self, request: Recorded) -> Response:
        """Choose the response to a request."""
        with self._lock:
            if request.method == "GET" and request.path == f"{self.prefix}/models":
                self.others.append(request)
                return plain(200, {"object": "list", "data": [{"id": name} for name in self.models]})
            if request.method != "POST" or request.path != f"{self.prefix}/chat/completions":
                self.others.append(request)
                return plain(404, "404 page not found")
            self.requests.append(request)
            if len(self.requests) <= len(self.responses):
                return self.responses[len(self.requests) - 1]
            if self.answer is not None:
                return self.answer(request)
            self.unexpected.append(f"request {len(self.requests)} is beyond the script")
            return plain(418, {"error": {"message": self.unexpected[-1], "code": "beyond_the_script"}})

    def hold(self, seconds: float, connection: socket.socket, opened: threading.Event | None = None) -> None:
        """Wait for a gate or a delay; raises ConnectionError when the client leaves or the server closes."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (opened and opened.is_set()):
            if self._closing.is_set():
                raise ConnectionError("the server closes")
            readable, _, _ = select.select([connection], [], [], min(0.01, max(0, deadline - time.monotonic())))
            if readable and not connection.recv(1, socket.MSG_PEEK):
                raise ConnectionError("the client left")


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._connections: set[socket.socket] = set()
        self.made = 0

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        self.made += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Wake the handlers that wait for another request."""
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are part of the tests."""


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 0

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            raw = self.rfile.read(length)
            if len(raw) < length:
                raise ConnectionError("the client was killed while it sent")
            headers = {name.lower(): value for name, value in self.headers.items()}
            recorded = Recorded(self.command, self.path.split("?")[0], headers, raw, time.monotonic())
            response = server.respond(recorded)
            try:
                self._send(response)
            except ConnectionError:
                self.close_connection = True
                server.disconnected.set()

        def _send(self, response: Response) -> None:
            head = {"Content-Type": "text/event-stream", **response.headers}
            if response.stream:
                head["Transfer-Encoding"] = "chunked"
            else:
                head["Content-Length"] = str(sum(len(item) for item in response.items if isinstance(item, bytes)))
            lines = [f"HTTP/1.1 {response.status} Scripted", *(f"{name}: {value}" for name, value in head.items())]
            if response.headers_first:
                self.wfile.write("\r\n".join([*lines, "", ""]).encode())
            for item in response.items:
                self._item(item, response.stream)
                if self.close_connection:
                    return
            if response.stream:
                self._chunk(b"data: [DONE]\n\n" if response.done else b"")
                self.wfile.write(b"0\r\n\r\n")

        def _item(self, item: Item, stream: bool) -> None:
            if isinstance(item, Gate):
                item.reached.set()
                server.hold(60, self.connection, item.opened)
            elif isinstance(item, Delay):
                server.hold(item.seconds, self.connection)
            elif isinstance(item, _Reset):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
            elif isinstance(item, bytes):
                self._chunk(item) if stream else self.wfile.write(item)
            else:
                text = item if isinstance(item, str) else json.dumps(item)
                self._chunk(f"data: {text}\n\n".encode())

        def _chunk(self, data: bytes) -> None:
            if data:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    return Handler
