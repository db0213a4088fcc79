"""What goes wrong on the wire, by name: each fault is one response that stands before (or for) the good one.

`PASSING` heal by sending again, `FINAL` do not; `Retry-After: 0` keeps the waits of tests short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.scripted_server import RESET, C, Delay, Item, Response, plain, sse

NOW = {"Retry-After": "0"}


def _error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def _cut(good: Response, *behind: Item) -> Response:
    """The beginning of the good response, then what happens instead of its end."""
    return sse(*good.items[:1], *behind, done=False)


Fault = Callable[[Response], Response]

PASSING: dict[str, Fault] = {
    "rate limit": lambda good: plain(429, _error("slow down"), NOW),
    "throttle that talks of tokens": lambda good: plain(429, _error("Too many tokens, please wait"), NOW),
    "overloaded": lambda good: plain(503, "upstream connect error", NOW),
    "bad gateway": lambda good: plain(502, "<html>Bad Gateway</html>", NOW),
    "server error": lambda good: plain(500, _error("internal"), NOW),
    "timeout of a gateway": lambda good: plain(504, "", NOW),
    "reset before the answer": lambda good: Response([RESET], headers_first=False),
    "reset after the headers": lambda good: sse(RESET, done=False),
    "reset in mid-stream": lambda good: _cut(good, RESET),
    "error event in mid-stream": lambda good: _cut(good, _error("overloaded", code=503)),
    "error itself in mid-stream": lambda good: _cut(
        good, {"object": "error", "message": "overloaded", "code": 503}
    ),
    "broken line in mid-stream": lambda good: _cut(good, '{"id": '),
    "stall before the first token": lambda good: sse(Delay(2.0), *good.items),
    "stall in mid-stream": lambda good: _cut(good, C({"content": ""}), Delay(2.0)),
    "pings for ever": lambda good: sse(*[item for _ in range(20) for item in (b": ping\n\n", Delay(0.1))]),
    "nothing at all": lambda good: sse(done=False),
}

FINAL: dict[str, Fault] = {
    "key refused": lambda good: plain(401, _error("Incorrect API key provided", code="invalid_api_key")),
    "forbidden": lambda good: plain(403, _error("your country is not served")),
    "no money left": lambda good: plain(429, _error("You exceeded your current quota", code="insufficient_quota")),
    "payment required": lambda good: plain(402, _error("Insufficient Balance")),
    "come back in an hour": lambda good: plain(429, _error("daily limit"), {"Retry-After": "3600"}),
    "unknown model": lambda good: plain(404, _error("model 'stub' not found", code="model_not_found")),
    "bad request": lambda good: plain(400, _error("Invalid 'messages[1].content'")),
    "reply too long": lambda good: plain(400, _error("max_tokens must be at most 4096")),
    "login page": lambda good: plain(200, "<!DOCTYPE html><title>Sign in</title>"),
    "redirect": lambda good: plain(301, "", {"Location": "https://elsewhere.example/v1"}),
    "quota event in mid-stream": lambda good: _cut(good, _error("used up", code="insufficient_quota")),
    "filtered": lambda good: sse(C({"content": "I "}), C({}, "content_filter")),
}
