"""What servers say when a request is too long, or holds a field that they do not take: CTX-06 and its kind."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused
from nbagent.models.failures import Server, Trouble

SERVER = Server("http://h", "http://h/v1/chat/completions", "")


def judged(status: int, body: Any) -> ModelError:
    """Judge as the wire does: the SDK hands on what stands under `error`."""
    body = body.get("error", body) if isinstance(body, dict) else body
    found = SERVER.status(status, body)
    return found.error if isinstance(found, Trouble) else found


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("message", "window"),
    [
        ("This model's maximum context length is 8192 tokens. However, you requested 9001", 8192),
        ("the request exceeds the available context size. try increasing the context size", None),
        ("the request exceeds the available context size (4096 tokens), try increasing it", 4096),
        ("The input token count (9001) exceeds the maximum number of tokens allowed (8192).", 8192),
        ("Prompt 超长", None),
        ("输入内容过长,请缩短后重试", None),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200000),
        ("input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000, decrease them", 200000),
        ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131072),
        ("Invalid request: Your request exceeded model token limit: 8192", 8192),
        ("The input (9001 tokens) is longer than the model's context length (8192 tokens).", 8192),
        ("You passed 9001 input tokens. However, the model's context length is only 8192 tokens", 8192),
        ("Trying to keep the first 5000 tokens when context the overflows. The model is loaded with "
         "context length of only 4096 tokens", 4096),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000", 4096),
        ("Range of input length should be [1, 129024]", 129024),
        ("too many tokens: total number of tokens in the prompt cannot exceed 4081", 4081),
        ("Please reduce the length of the messages or completion.", None),
        ("Prompt contains 40,001 tokens, too large for model with 32,768 maximum context length", 32768),
        ("context shift is disabled", None),
        ("max_tokens must be at least 1, got -805", None),
    ],
)  # fmt: skip
def test_a_request_too_long_is_known_in_any_wording(message: str, window: int | None) -> None:
    error = judged(400, said(message))
    assert isinstance(error, ContextOverflow)
    assert error.window == window


def test_codes_and_the_status_say_it_without_words() -> None:
    assert isinstance(judged(400, said("no such luck", code="context_length_exceeded")), ContextOverflow)
    assert isinstance(judged(413, "<html>Request Entity Too Large</html>"), ContextOverflow)
    error = judged(400, said("too long", type="exceed_context_size_error", n_prompt_tokens=9001, n_ctx=4096))
    assert isinstance(error, ContextOverflow)
    assert error.window == 4096


@pytest.mark.parametrize(
    "message",
    ["Too many tokens, please wait before trying again", "Request too large for gpt-4o on tokens per min (TPM)"],
)
def test_a_throttle_is_never_taken_for_it(message: str) -> None:
    assert isinstance(judged(429, said(message)), ModelBusy)
    assert not isinstance(judged(400, said(message)), ContextOverflow)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens must be at most 4096",
        "max_tokens is too large: 9000. This model supports at most 4096 completion tokens.",
        "Invalid 'messages[1].content': string too short",
        "Image is too large",
        "the context of your request is unclear",
    ],
)
def test_other_refusals_are_neither_overflow_nor_a_field(message: str) -> None:
    error = judged(400, said(message))
    assert type(error) is ModelRefused
    assert (error.status, error.field) == (400, "")
    assert message in str(error)


def test_too_long_a_reply_names_our_setting() -> None:
    assert "max_reply_tokens" in str(judged(400, said("max_tokens must be at most 4096")))


@pytest.mark.parametrize(
    ("status", "body", "field"),
    [
        (400, said("Unsupported parameter: 'max_tokens' is not supported with this model. "
                   "Use 'max_completion_tokens' instead.", param="max_tokens", code="unsupported_parameter"),
         "max_tokens"),
        (400, said("Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) "
                   "value is supported.", param="temperature", code="unsupported_value"), "temperature"),
        (400, said("Unrecognized request argument supplied: stream_options"), "stream_options"),
        (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"],
                           "msg": "Extra inputs are not permitted"}]}, "stream_options"),
        (400, said("registry.ollama.ai/library/gemma:latest does not support tools"), "tools"),
        (400, said('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'), "tools"),
        (404, said("No endpoints found that support tool use. Try disabling tools."), "tools"),
        (500, said("tools param requires --jinja flag"), "tools"),
        (500, said("Unsupported param: tools"), "tools"),
        (400, said("`tool calling` is not supported with this model"), "tools"),
        (400, said("This response_format type is unavailable now"), "response_format"),
        (400, said("This model does not support response format `json_schema`."), "response_format"),
    ],
)  # fmt: skip
def test_the_field_that_a_server_does_not_take_is_named(status: int, body: Any, field: str) -> None:
    error = judged(status, body)
    assert isinstance(error, ModelRefused)
    assert error.field == field


def test_an_overflow_in_mid_stream_is_one() -> None:
    assert isinstance(
        SERVER.event({"message": "context shift is disabled", "type": "server_error"}), ContextOverflow
    )
    assert isinstance(SERVER.event({"message": "overloaded"}), Trouble)
