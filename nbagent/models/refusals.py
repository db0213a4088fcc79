"""Reads why a server will not serve a request: too long for the window, or a field that it does not take.

No standard covers either, so wordings have to be known: each pattern names who says it. Only a server's words
are read this way, never ours, and nothing is concluded from a status that means "wait" (429).
"""

from __future__ import annotations

import re
from typing import Any

#: Codes and types that say it without words.
_OVERFLOW_CODES = {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"}
_TOO_LARGE = 413
_OVERFLOW = re.compile(
    r"maximum (context|prompt|input|sequence) (length|size|window)"  # OpenAI, xAI
    r"|exceed\w*.{0,60}\b(context|model token limit)"  # llama.cpp, Anthropic, Moonshot
    r"|context (length|size|window|limit).{0,40}(exceed|is only|of only|overflow)"  # vLLM, LM Studio
    r"|context (the )?overflows|context shift is disabled"  # LM Studio, llama.cpp
    r"|longer than the (model's|maximum|allowed) (context|input|sequence)?"  # SGLang
    r"|input (token count|length|tokens?)\b.{0,60}exceed"  # Gemini, TensorRT-LLM
    r"|(prompt|input|request|conversation|messages?) (is |are )?too (long|large|many tokens)"  # Anthropic
    r"|prompt contains .{0,20}tokens.{0,40}(too large|exceed)"  # Mistral
    r"|reduce the (length|size|number) of (the|your) (messages?|prompt|input|tokens)"
    r"|too many (input |prompt )?tokens"  # Cohere
    r"|`?inputs`? (tokens \+ `?max_new_tokens`? )?must (be <=|have less than)"  # TGI
    r"|range of input length should be"  # DashScope
    r"|max_tokens must be at least 1, got -"  # vLLM: nothing of the window is left for a reply
    r"|(prompt|上下文|输入|内容|请求|消息).{0,12}(超长|过长|超出|超过|太长)|超(出|过).{0,12}(上下文|长度|token)",
    re.IGNORECASE | re.DOTALL,
)
#: Words of a throttle, which looks similar and must never cost the history.
_THROTTLE = re.compile(
    r"please (wait|retry|slow)|per (minute|second|day|hour)|rate.?limit|\b[rt]pm\b", re.IGNORECASE
)
_NUMBER = r"(\d[\d,_]{2,})"
#: Where a window's size stands, the surest first.
_WINDOWS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\+ ?\d+ ?> ?{_NUMBER}",
        rf"tokens ?> ?{_NUMBER} maximum",
        rf"model with {_NUMBER} maximum context",
        rf"(?:context|prompt|sequence)[ _-](?:length|size|window|limit)[^\d.]{{0,40}}{_NUMBER}",
        rf"maximum (?:number of |input )?tokens? (?:allowed|count|limit)?[^\d.]{{0,12}}{_NUMBER}",
        rf"model token limit[^\d]{{0,6}}{_NUMBER}",
        rf"(?:less than|must be <=|cannot exceed|\[1, ?) ?{_NUMBER}",
    )
)
SMALLEST_WINDOW = 256

#: Fields of a request that can be left out, and what else servers call them.
DROPPABLE = {
    "stream_options": r"stream_options|include_usage",
    "response_format": r"response[_ ]format|json_schema|structured (output|decoding)|guided (json|decoding)",
    "max_completion_tokens": r"max_completion_tokens",
    "max_tokens": r"max_tokens",
    "temperature": r"temperature",
    "tools": r"\btools?\b|\btool[_ -](use|calls?|calling|choice)|function[_ ]call",
}
_UNSUPPORTED_CODES = {"unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden"}
_UNSUPPORTED = re.compile(
    r"(not|n't|never) (currently |yet |be )*(support|permit|allow|accept|recogni[sz]|implement|available|enabled)"
    r"|unsupported|un(recogni[sz]ed|known|expected|available) |extra (inputs?|fields?|param)"
    r"|no endpoints? found|\brequires? (the )?-|only the default|only supports",
    re.IGNORECASE,
)


def overflow(status: int, reason: str, code: str) -> bool:
    """Say whether the request was too long for the model."""
    if status == 429:
        return False
    if status == _TOO_LARGE or code in _OVERFLOW_CODES:
        return True
    return bool(_OVERFLOW.search(reason)) and not _THROTTLE.search(reason)


def stated_window(reason: str, body: Any) -> int | None:
    """Give the window in tokens, where the server names it."""
    error = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(error, dict) and isinstance(given := error.get("n_ctx"), int):  # llama.cpp
        return given if given >= SMALLEST_WINDOW else None
    for pattern in _WINDOWS:
        if found := pattern.search(reason):
            window = int(re.sub(r"\D", "", found[1]))
            return window if window >= SMALLEST_WINDOW else None
    return None


def refused_field(status: int, reason: str, body: Any) -> str:
    """Name the field of the request that the server does not take, or ""."""
    if status not in (400, 404, 422, 500, 501):
        return ""
    error = body.get("error", body) if isinstance(body, dict) else {}
    given = error if isinstance(error, dict) else {}
    code, named = str(given.get("code") or given.get("type") or ""), str(given.get("param") or "")
    if code not in _UNSUPPORTED_CODES and not _UNSUPPORTED.search(reason):
        return ""
    if (field := named.partition(".")[0].partition("[")[0]) in DROPPABLE:
        return field
    found = [(match.start(), name) for name, words in DROPPABLE.items() if (match := _word(words, reason))]
    return min(found)[1] if found else ""


def _word(words: str, reason: str) -> re.Match[str] | None:
    return re.search(words, reason, re.IGNORECASE)
