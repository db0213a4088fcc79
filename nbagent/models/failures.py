"""What went wrong on the wire, in our words: refused for good, or worth another attempt, and how many.

Nothing of the SDK or of the HTTP library below it gets past `translated`.
"""

from __future__ import annotations

import importlib
import json
import random
import re
import ssl
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import Any, Literal

from nbagent.errors import (
    ContextOverflow,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelStalled,
    ModelUnreachable,
    ReplyBroken,
)
from nbagent.models.refusals import overflow, refused_field, stated_window
from nbagent.reply import Attempt

Kind = Literal["busy", "broken", "stalled", "unreachable"]

#: How often a request is sent again for each kind of trouble.
RETRIES: dict[Kind, int] = {"busy": 8, "broken": 3, "stalled": 1, "unreachable": 2}
FIRST_WAIT: dict[Kind, float] = {"busy": 0.5, "broken": 0.1, "stalled": 0.0, "unreachable": 0.5}  #: seconds
LONGEST_WAIT = 20.0  #: seconds between two attempts, where the server names no time
LONGEST_REASON = 300  #: characters of a server's own words
LONGEST_PLAIN_REASON = 120  #: where they are no JSON: often an error page
SHORTEST_KEY_SHOWN = 12  #: of shorter keys, four characters would be too much

#: Error codes that no waiting helps against, although they come with status 429.
_OUT_OF_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
#: Errors in mid-stream that would come again.
_FINAL = _OUT_OF_QUOTA | {"invalid_request_error", "context_length_exceeded", "model_not_found", "invalid_api_key"}


class Trouble(Exception):
    """An attempt failed, and another may not. `error` is what to raise when there is no other."""

    def __init__(self, kind: Kind, why: str, error: ModelError, wait: float | None = None):
        super().__init__(why)
        self.kind = kind
        self.why = why
        self.error = error
        self.wait = wait  #: seconds that the server asks for


@dataclass
class Retries:
    """Decides on further attempts of one request within `max_seconds` of waiting."""

    max_seconds: float
    number: int = 1
    waited: float = 0.0
    _counts: dict[Kind, int] = field(default_factory=dict)

    def after(self, trouble: Trouble) -> Attempt:
        """Give the next attempt.

        Raises:
            ModelError: there is none; the trouble's own error.
        """
        count = self._counts.get(trouble.kind, 0)
        wait = trouble.wait
        if wait is None:
            wait = min(FIRST_WAIT[trouble.kind] * 2**count, LONGEST_WAIT) * random.uniform(0.8, 1.0)  # noqa: S311
        if count >= RETRIES[trouble.kind] or self.waited + wait > self.max_seconds:
            raise trouble.error from trouble
        self._counts[trouble.kind] = count + 1
        self.waited += wait
        self.number += 1
        return Attempt(self.number, wait, trouble.why)


@dataclass(frozen=True)
class Server:
    """Whom we talk to, for messages. The key is shown by its last four characters at most."""

    host: str
    url: str
    key: str = field(repr=False)
    proxy: str = ""  #: the variable that sends requests through a proxy

    def clean(self, text: Any, limit: int = LONGEST_REASON) -> str:
        """Make one short line of a server's words, without the key."""
        line = " ".join(str(text).split())
        if self.key:
            line = line.replace(self.key, "[key]")
        return line if len(line) <= limit else line[: limit - 1] + "…"

    def unreachable(self, cause: BaseException) -> Trouble:
        """Nothing answered."""
        through = f" through the proxy of {self.proxy}" if self.proxy else ""
        why = self.clean(cause, 120) or type(cause).__name__
        message = f"nothing answers at {self.url}{through} ({why}): is the server running, is the address right?"
        return Trouble("unreachable", "connection failed", ModelUnreachable(message))

    def broken(self, why: str) -> Trouble:
        """The reply broke off."""
        why = self.clean(why)
        return Trouble("broken", why, ReplyBroken(f"the reply of {self.host} broke off again and again: {why}"))

    def stalled(self, seconds: float, what: str) -> Trouble:
        """Nothing came for too long."""
        setting = "first_token_timeout" if what == "first" else "stream_timeout"
        why = f"no {what} token within {seconds:g} s"
        return Trouble("stalled", why, ModelStalled(f"{self.host} gave {why}: try again, or raise {setting}"))

    def not_openai(self, text: str) -> ReplyBroken:
        """The answer is something else altogether."""
        return ReplyBroken(f"what {self.url} gave is not an OpenAI-compatible answer: {self.clean(text, 80)}")

    def status(self, status: int, body: Any, headers: Any = None) -> ModelError | Trouble:
        """Judge an HTTP status with its body."""
        reason, code = self._reason(body)
        said = f": {reason}" if reason else ""
        if status in (401, 403):
            return ModelRefused(self._refused_key(status, said), status=status)
        if code in _OUT_OF_QUOTA or status == 402:
            return ModelRefused(f"{self.host} says that the quota is used up{said}", status=status)
        if overflow(status, reason, code):
            message = f"the conversation is longer than {self.host} takes ({status}){said}"
            return ContextOverflow(message, status=status, window=stated_window(reason, body))
        field = refused_field(status, reason, body)
        if status in (408, 409, 425, 429) or (status >= 500 and not field):
            why = "rate limit" if status == 429 else f"server error {status}"
            message = f"{self.host} is busy ({status}){said}; try again later"
            return Trouble("busy", why, ModelBusy(message), _retry_after(headers))
        return ModelRefused(self._refusal(status, said, body, headers), status=status, field=field)

    def _refusal(self, status: int, said: str, body: Any, headers: Any) -> str:
        if 300 <= status < 400:
            target = self.clean((headers or {}).get("location", "nowhere"))
            return f"{self.url} redirects ({status}) to {target}: give the address behind that as base URL"
        if status == 404 and isinstance(body, dict):
            return f"{self.host} answered 404{said} (asked at {self.url})"
        if status == 404:
            return f"there is nothing at {self.url} (404): base URLs usually end in /v1"
        setting = "; the setting for it is max_reply_tokens" if "max_tokens" in said else ""
        if re.search(r"image|vision|multimodal", said, re.IGNORECASE):
            setting += "; to a model that takes no figures send none: --vision off"
        return f"{self.host} refused the request ({status}){said}{setting}"

    def event(self, error: Any) -> ModelError | Trouble:
        """Judge an error that came as an event of the stream."""
        fields = error if isinstance(error, dict) else {"message": error}
        codes = [fields.get(name) for name in ("code", "status", "type")]
        status = next((code for code in codes if isinstance(code, int)), 0)
        if status >= 400:
            return self.status(status, error)
        reason, code = self._reason(error)
        if any(code in _FINAL for code in codes if isinstance(code, str)) or overflow(400, reason, code):
            return self.status(400, error)
        return self.broken(reason or "the server reported an error")

    def _reason(self, body: Any) -> tuple[str, str]:
        if isinstance(body, dict) and isinstance(body.get("error"), dict | str):
            body = body["error"]
        if not isinstance(body, dict):
            return ("" if body is None else self.clean(body, LONGEST_PLAIN_REASON)), ""
        reason = body.get("message") or body.get("detail") or body.get("error")
        code = body.get("code") if isinstance(body.get("code"), str) else body.get("type")
        return self.clean(reason or json.dumps(body)), str(code or "")

    def _refused_key(self, status: int, said: str) -> str:
        if not self.key:
            return f"{self.host} wants a key ({status}){said}; set NBAGENT_API_KEY beside NBAGENT_BASE_URL"
        tail = f" ending in …{self.key[-4:]}" if len(self.key) >= SHORTEST_KEY_SHOWN else ""
        return f"{self.host} refused the key{tail} ({status}){said}"


class _Translation:
    """What `translated` gives.

    It stands around each piece of a stream, so it costs nothing as long as all goes well.
    """

    __slots__ = ("_server",)

    def __init__(self, server: Server) -> None:
        self._server = server

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and (meant := _meant(error, self._server)) is not None:
            raise meant from error


def translated(server: Server) -> _Translation:
    """Turn every exception of the SDK and the libraries below it into a `ModelError` or `Trouble`."""
    return _Translation(server)


def _meant(error: Exception, server: Server) -> Exception | None:
    """Give what an exception of the SDK or a library below it means; None for one of nobody's there."""
    import anyio
    import openai

    http, core = http_libraries()
    never_connected = (http.ConnectError, http.ConnectTimeout, http.UnsupportedProtocol, http.ProxyError)
    broken = (
        *(http.HTTPError, http.StreamError, http.CookieConflict),
        *(core.ProtocolError, core.NetworkError, core.TimeoutException, core.ConnectionNotAvailable),
        *(core.ProxyError, core.UnsupportedProtocol),
        *(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError),
        *(ssl.SSLError, OSError, EOFError, json.JSONDecodeError, UnicodeError),
    )
    if isinstance(error, openai.APIStatusError):
        return server.status(error.status_code, error.body, error.response.headers)
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        if isinstance(cause, never_connected):
            return server.unreachable(cause)
        return server.broken(f"connection lost ({type(cause).__name__})")
    if isinstance(error, openai.OpenAIError):
        return server.broken(str(error))
    if isinstance(error, (*never_connected, http.InvalidURL, core.ConnectError, core.ConnectTimeout)):
        return server.unreachable(error)
    return server.broken(f"connection lost ({type(error).__name__})") if isinstance(error, broken) else None


def http_libraries() -> tuple[ModuleType, ModuleType]:
    """Give the HTTP library that this version of the SDK is built on, and the one below that."""
    import openai

    name = openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]
    return importlib.import_module(name), importlib.import_module(name.replace("httpx", "httpcore"))


def _retry_after(headers: Any) -> float | None:
    """The seconds that a server asks us to wait, from either form of `Retry-After`."""
    if headers is None:
        return None
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        return max(0.0, float(milliseconds) / 1000 if milliseconds else float(value))
    except (TypeError, ValueError):
        pass
    try:
        return max(0.0, parsedate_to_datetime(value or "").timestamp() - time.time())
    except (TypeError, ValueError):
        return None
