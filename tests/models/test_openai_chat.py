"""The wire to a real socket: what servers do, and what the user is told of it."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from nbagent.errors import (
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelStalled,
    ModelUnreachable,
    ReplyBroken,
    SettingsError,
)
from nbagent.events import Usage
from nbagent.models.address import host_of, is_loopback, normalise, proxy_variable
from nbagent.models.failures import Server, Trouble, http_libraries, translated
from nbagent.models.openai_chat import OpenAIChat
from nbagent.protocols import Model, Request
from nbagent.reply import (
    Action,
    ActionPart,
    Attempt,
    Finish,
    Malformed,
    ReasoningText,
    ReplyPart,
    Text,
    UsageReport,
    joined,
)
from tests.scripted_server import (
    RESET,
    C,
    Delay,
    F,
    Gate,
    Item,
    Response,
    ScriptedServer,
    T,
    final,
    plain,
    run_code,
    sse,
)

KEY = "sk-test-real-0123456789abcd"
REQUEST = Request(json.dumps({"model": "stub", "messages": [{"role": "user", "content": "héllo"}]}).encode())


def chat(base_url: str, key: str = "", **limits: Any) -> OpenAIChat:
    limits = {"first_token_timeout": 10.0, "stream_timeout": 10.0, "max_retry_seconds": 5.0} | limits
    return OpenAIChat("stub", base_url, key, **limits)


async def reply(model: OpenAIChat) -> list[ReplyPart]:
    """One reply, the connection closed behind it."""
    try:
        return [part async for part in model.stream(REQUEST)]
    finally:
        await model.close()


async def failure(model: OpenAIChat) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await reply(model)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert KEY not in message
    return caught.value


def kept(parts: list[ReplyPart]) -> list[ReplyPart]:
    """What counts: the parts behind the last attempt, without the usage."""
    last = max((at for at, part in enumerate(parts) if isinstance(part, Attempt)), default=-1)
    return [part for part in parts[last + 1 :] if not isinstance(part, UsageReport)]


def attempts(parts: list[ReplyPart]) -> list[Attempt]:
    return [part for part in parts if isinstance(part, Attempt)]


class TestRequests:
    async def test_the_body_goes_out_as_it_is(self) -> None:
        with ScriptedServer([final("ok")]) as server:
            model: Model = chat(server.base_url)
            assert isinstance(model, OpenAIChat)
            assert kept(await reply(model)) == [Text("ok"), Finish("stop")]
            assert server.requests[0].raw == REQUEST.body
            assert server.requests[0].headers["content-type"] == "application/json"
            assert model.host == server.root

    async def test_what_comes_together_is_given_together(self) -> None:
        words = [C({"content": f"{number} "}) for number in range(400)]
        whole = b"".join(f"data: {json.dumps(word)}\n\n".encode() for word in words)
        with ScriptedServer([sse(whole, C({}, "stop"))]) as server:
            parts = kept(await reply(chat(server.base_url)))
        texts = [part.text for part in parts if isinstance(part, Text)]
        assert "".join(texts) == "".join(f"{number} " for number in range(400))
        assert len(texts) < 100

    def test_only_what_continues_each_other_is_joined(self) -> None:
        parts: list[ReplyPart] = [
            Text("a"),
            Text("b"),
            ActionPart("f", "1"),
            ActionPart("f", "2"),
            ActionPart("g", "3"),
        ]
        rest: list[ReplyPart] = [ReasoningText("c"), Text("d"), Finish("stop"), Text("e")]
        joined_parts = [Text("ab"), ActionPart("f", "12"), ActionPart("g", "3"), *rest]
        assert list(joined([*parts, *rest])) == joined_parts

    async def test_one_connection_serves_many_requests(self) -> None:
        with ScriptedServer([final("a"), final("b"), run_code("1")]) as server:
            model = chat(server.base_url)
            await model.warm_up()
            for _ in range(3):
                assert [part async for part in model.stream(REQUEST)][-1] == Finish("stop")
            await model.close()
            assert server.connections == 1

    async def test_warming_up_twice_makes_one_client(self) -> None:
        with ScriptedServer([final("a")]) as server:
            model = chat(server.base_url)
            await asyncio.gather(model.warm_up(), model.warm_up(), model.models())
            await reply(model)
            assert server.connections == 1

    async def test_odd_chunks_and_usage(self) -> None:
        """STR-06."""
        items: list[Item] = [
            b": keepalive\n\n",
            {"id": "c1", "choices": [], "prompt_filter_results": []},
            C({"content": "Hi"}),
            {"id": "c1", "choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]},
            {"id": "c1", "choices": None},
            {"id": "c1", "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}},
        ]
        with ScriptedServer([sse(*items)]) as server:
            assert await reply(chat(server.base_url)) == [
                Text("Hi"),
                UsageReport(Usage(prompt_tokens=11, completion_tokens=2)),
                Finish("stop"),
            ]

    async def test_lines_end_at_line_ends_only(self) -> None:
        said = "a\u2028b\x0cc\x85d"
        event = f"data: {json.dumps(C({'content': said}), ensure_ascii=False)}\r\n\r\n".encode()
        with ScriptedServer([sse(event[:100], event[100:], C({}, "stop"))]) as server:
            assert kept(await reply(chat(server.base_url))) == [Text(said), Finish("stop")]

    async def test_a_server_that_does_not_stream_is_read_too(self) -> None:
        body = {
            "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1},
        }
        with ScriptedServer([plain(200, body)]) as server:
            assert await reply(chat(server.base_url)) == [
                Text("Hi"),
                UsageReport(Usage(prompt_tokens=3, completion_tokens=1)),
                Finish("stop"),
            ]

    async def test_a_cut_call_is_malformed(self) -> None:
        """LOOP-06."""
        half = C(T(index=0, id="a", function=F("run_code", '{"code":"open(')))
        with ScriptedServer([sse(half, C({}, "tool_calls"))]) as server:
            parts = kept(await reply(chat(server.base_url)))
            assert not [part for part in parts if isinstance(part, Action)]
            assert [part for part in parts if isinstance(part, Malformed)]

    async def test_cancelling_closes_the_stream_at_once(self) -> None:
        gate = Gate()
        with ScriptedServer([sse(C({"content": "I will"}), gate)]) as server:
            model = chat(server.base_url)
            first = asyncio.Event()

            async def consume() -> None:
                async for _ in model.stream(REQUEST):
                    first.set()

            task = asyncio.create_task(consume())
            await asyncio.wait_for(first.wait(), 5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.disconnected.wait, 30)
            await model.close()

    async def test_closing_the_iteration_closes_the_stream(self) -> None:
        with ScriptedServer([sse(C({"content": "I will"}), Gate())]) as server:
            model = chat(server.base_url)
            async with aclosing(model.stream(REQUEST)) as parts:
                assert await anext(parts) == Text("I will")
            assert await asyncio.to_thread(server.disconnected.wait, 5)
            await model.close()

    def test_importing_it_does_not_load_the_sdk(self) -> None:
        heavy = "{'openai', 'httpx', 'httpx2'}"
        code = f"import sys, nbagent.models.openai_chat; print(sorted({heavy} & set(sys.modules)))"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


class TestKeys:
    """CFG-01."""

    async def test_no_key_means_that_none_is_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "project-mine")
        with ScriptedServer([final("ok")]) as server:
            monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: mine\nAuthorization: Bearer mine")
            await reply(chat(server.base_url))
            headers = server.requests[0].headers
            assert "authorization" not in headers
            assert KEY not in str(headers)
            assert "mine" not in str(headers)

    async def test_what_belongs_to_openais_address_goes_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with ScriptedServer([final("ok")]) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
            await reply(chat(server.base_url, KEY))
            headers = server.requests[0].headers
            assert headers["openai-organization"] == "org-mine"
            assert headers["authorization"] == f"Bearer {KEY}"

    async def test_a_key_is_trimmed(self) -> None:
        with ScriptedServer([final("ok")]) as server:
            await reply(chat(server.base_url, f" {KEY}\n"))
            assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"

    async def test_a_refused_key_is_named_by_its_last_characters(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        body = {"error": {"message": f"Incorrect API key provided: {KEY}.", "code": "invalid_api_key"}}
        with ScriptedServer([plain(401, body)]) as server:
            model = chat(server.base_url, KEY)
            error = await failure(model)
            assert isinstance(error, ModelRefused)
            assert "…abcd" in str(error)
            assert server.root in str(error)
            assert len(server.requests) == 1
            assert KEY not in repr(model) + repr(error) + caplog.text

    async def test_a_missing_key_is_asked_for(self) -> None:
        with ScriptedServer([plain(401, {"error": {"message": "no key"}})]) as server:
            assert "NBAGENT_API_KEY" in str(await failure(chat(server.base_url)))

    async def test_a_key_with_odd_characters_is_refused_before_it_is_sent(self) -> None:
        with ScriptedServer() as server:
            assert isinstance(await failure(chat(server.base_url, "sk-“quoted”")), ModelRefused)
            assert not server.requests


class TestAddresses:
    """CFG-02."""

    @pytest.mark.parametrize("form", ["{root}", "{root}/", "{root}/v1/", "{root}/v1/chat/completions", "{bare}"])
    async def test_usual_misspellings_work(self, form: str) -> None:
        with ScriptedServer([final("a"), final("b")]) as server:
            model = chat(form.format(root=server.root, bare=server.root.removeprefix("http://")))
            assert [part async for part in model.stream(REQUEST)][-1] == Finish("stop")
            tried = len(server.others)
            assert await model.models() == ["stub"]
            assert (await reply(model))[-1] == Finish("stop")
            assert tried <= 1
            assert len(server.others) == tried + 1, "what worked is remembered"

    async def test_models_find_v1_by_themselves(self) -> None:
        with ScriptedServer() as server:
            model = chat(server.root)
            assert await model.models() == ["stub"]
            await model.close()

    async def test_a_path_is_never_changed(self) -> None:
        with ScriptedServer([final("ok")], prefix="/custom/api") as server:
            assert (await reply(chat(server.base_url)))[-1] == Finish("stop")
            assert not server.others
            error = await failure(chat(server.root + "/custom"))
            assert isinstance(error, ModelRefused)
            assert [request.path for request in server.others] == ["/custom/chat/completions"]

    async def test_nothing_there_at_all_says_how_base_urls_end(self) -> None:
        with ScriptedServer(prefix="/elsewhere") as server:
            assert "/v1" in str(await failure(chat(server.root)))

    @pytest.mark.parametrize("where", ["{root}", "{root}/v1"])
    async def test_an_unknown_model_lists_those_that_there_are(self, where: str) -> None:
        names = [f"model-{number}" for number in range(12)]
        missing = plain(404, {"error": {"message": "model 'gpt-x' not found"}})
        with ScriptedServer([missing], models=names) as server:
            error = await failure(chat(where.format(root=server.root)))
            assert isinstance(error, ModelRefused)
            assert "model 'gpt-x' not found" in str(error)
            assert "model-9 and 2 more" in str(error)
            assert "model-10" not in str(error)

    async def test_a_login_page_is_called_no_answer(self) -> None:
        page = "<!DOCTYPE html>\n<html><title>Sign in</title>" + "x" * 200
        with ScriptedServer([plain(200, page, {"Content-Type": "text/html"})]) as server:
            error = await failure(chat(server.base_url))
            assert isinstance(error, ReplyBroken)
            assert "not an OpenAI-compatible answer: <!DOCTYPE html> <html><title>Sign in" in str(error)
            assert "x" * 80 not in str(error)

    @pytest.mark.parametrize("body", ["hello", '{"ok": true}', "[]"])
    async def test_other_answers_too(self, body: str) -> None:
        with ScriptedServer([plain(200, body)]) as server:
            assert "not an OpenAI-compatible answer" in str(await failure(chat(server.base_url)))

    @pytest.mark.parametrize(
        ("given", "meant"),
        [
            ("localhost:8000", "http://localhost:8000"),
            ("10.0.0.5:1/v1/", "http://10.0.0.5:1/v1"),
            ("api.example.com/v1", "https://api.example.com/v1"),
            (" https://api.example.com/v1/chat/completions/ ", "https://api.example.com/v1"),
            ("http://h/chat/completions", "http://h"),
            ("http://h/custom/api", "http://h/custom/api"),
        ],
    )
    def test_normalised(self, given: str, meant: str) -> None:
        assert normalise(given) == meant

    def test_hosts_are_named_without_passwords(self) -> None:
        assert host_of("https://me:secret@h:1/v1") == "https://h:1"
        assert [is_loopback(f"http://{h}/") for h in ("127.0.0.1:1", "[::1]:1", "localhost", "10.0.0.1", "h")] == [
            True,
            True,
            True,
            False,
            False,
        ]

    async def test_nothing_listens(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
            began = time.monotonic()
            error = await failure(chat(url))
            assert isinstance(error, ModelUnreachable)
            assert url in str(error)
            assert time.monotonic() - began < 20
            with pytest.raises(ModelUnreachable):
                await chat(url).models()

    async def test_a_redirect_is_not_followed_with_the_key(self) -> None:
        moved = plain(301, "", {"Location": "https://elsewhere.example/v1"})
        with ScriptedServer([moved]) as server:
            error = await failure(chat(server.base_url, KEY))
            assert isinstance(error, ModelRefused)
            assert "https://elsewhere.example/v1" in str(error)

    @pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "http://[bad", "http://h:port/v1", "http://", ""])
    def test_an_address_that_is_none(self, url: str) -> None:
        with pytest.raises(SettingsError, match="is no address"):
            chat(url)

    async def test_certificates_that_cannot_be_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/certificates.pem")
        model = chat("https://localhost:9/v1")
        await model.warm_up()
        assert isinstance(await failure(model), ModelError)


class TestProxies:
    """CFG-03."""

    @pytest.mark.parametrize("exempt", ["", "localhost,127.0.0.1"])
    @pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", "http_proxy"])
    @pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks://127.0.0.1:9"])
    async def test_this_machine_is_reached_directly(
        self, monkeypatch: pytest.MonkeyPatch, variable: str, proxy: str, exempt: str
    ) -> None:
        monkeypatch.setenv(variable, proxy)
        if exempt:
            monkeypatch.setenv("NO_PROXY", exempt)
        with ScriptedServer([final("ok")]) as server:
            assert (await reply(chat(server.base_url)))[-1] == Finish("stop")

    async def test_a_scheme_that_cannot_be_used_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:9")
        model = chat("https://api.example.com/v1")
        await model.warm_up()
        error = await failure(model)
        assert isinstance(error, ModelUnreachable)
        assert "ALL_PROXY" in str(error)
        assert "socks://" in str(error)

    async def test_a_dead_proxy_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        error = await failure(chat("https://api.example.com/v1"))
        assert isinstance(error, ModelUnreachable)
        assert "HTTPS_PROXY" in str(error)

    def test_exempted_hosts_have_no_proxy(self) -> None:
        environment = {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example.com, other.org:8443"}
        assert proxy_variable("https://api.example.com/v1", environment) == ""
        assert proxy_variable("https://other.org:8443/v1", environment) == ""
        assert proxy_variable("https://notexample.com/v1", environment) == "HTTPS_PROXY"
        assert proxy_variable("https://api.example.org/v1", environment) == "HTTPS_PROXY"


class TestBusy:
    """CFG-04."""

    async def test_retry_after_is_honoured_and_said(self) -> None:
        with ScriptedServer(
            [plain(429, {"error": {"message": "slow"}}, {"Retry-After": "1"}), final("ok")]
        ) as server:
            parts = await reply(chat(server.base_url))
            assert attempts(parts) == [Attempt(2, 1.0, "rate limit")]
            assert kept(parts) == [Text("ok"), Finish("stop")]
            assert server.requests[1].time - server.requests[0].time >= 1

    @pytest.mark.parametrize("status", [429, 503])
    async def test_an_empty_account_is_not_asked_again(self, status: int) -> None:
        body = {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}
        with ScriptedServer([plain(status, body)]) as server:
            error = await failure(chat(server.base_url))
            assert isinstance(error, ModelRefused)
            assert "You exceeded your current quota" in str(error)
            assert len(server.requests) == 1

    async def test_three_503_and_then_ok(self) -> None:
        busy = plain(503, "upstream", {"Retry-After": "0"})
        with ScriptedServer([busy, busy, busy, final("ok")]) as server:
            parts = await reply(chat(server.base_url))
            assert [attempt.number for attempt in attempts(parts)] == [2, 3, 4]
            assert kept(parts) == [Text("ok"), Finish("stop")]

    async def test_a_wait_beyond_the_limit_ends_at_once(self) -> None:
        with ScriptedServer([plain(429, {"error": {"message": "later"}}, {"Retry-After": "3600"})]) as server:
            began = time.monotonic()
            error = await failure(chat(server.base_url))
            assert isinstance(error, ModelBusy)
            assert "later" in str(error)
            assert time.monotonic() - began < 30

    async def test_429_for_ever_ends_within_the_limit(self) -> None:
        with ScriptedServer(answer=lambda _: plain(429, {"error": {"message": "later"}})) as server:
            began = time.monotonic()
            assert isinstance(await failure(chat(server.base_url, max_retry_seconds=1.2)), ModelBusy)
            assert time.monotonic() - began < 20
            assert 2 <= len(server.requests) <= 4

    async def test_waiting_can_be_cancelled(self) -> None:
        with ScriptedServer([plain(429, "", {"Retry-After": "4"})]) as server:
            model = chat(server.base_url)
            parts = model.stream(REQUEST)
            assert isinstance(await anext(parts), Attempt)
            waiting = asyncio.ensure_future(anext(parts))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await model.close()

    @pytest.mark.parametrize(
        "body",
        [
            {"error": {"message": "max_tokens must be at most 4096", "type": "invalid_request_error"}},
            {"error": "max_tokens must be at most 4096"},
            {"message": "max_tokens must be at most 4096"},
            {"detail": "max_tokens must be at most 4096"},
            "max_tokens must be at most 4096",
        ],
    )
    async def test_a_bad_request_gives_the_servers_reason(self, body: Any) -> None:
        with ScriptedServer([plain(400, body)]) as server:
            error = await failure(chat(server.base_url))
            assert isinstance(error, ModelRefused)
            assert "max_tokens must be at most 4096" in str(error)
            assert len(server.requests) == 1


CALL = C(T(index=0, id="a", type="function", function=F("run_code", '{"code":"1"}')))
SAID = C({"content": "The answer is 4"})
BREAKS: dict[str, list[Item]] = {
    "reset": [RESET],
    "error event": [{"error": {"message": "overloaded", "code": 503}}],
    "broken line": ['{"id": '],
    "error itself": [{"object": "error", "message": "overloaded", "code": 503}],
    "error of no number": [{"error": {"message": "overloaded"}}],
}


class TestBreaks:
    """CFG-06."""

    @pytest.mark.parametrize("how", BREAKS)
    async def test_nothing_of_a_broken_attempt_counts(self, how: str) -> None:
        broken = sse(CALL, *BREAKS[how], done=False)
        with ScriptedServer([broken, run_code("1")]) as server:
            parts = await reply(chat(server.base_url))
            assert len(attempts(parts)) == 1
            before = parts[: parts.index(attempts(parts)[0])]
            assert not [part for part in before if isinstance(part, Action)]
            assert [part for part in kept(parts) if isinstance(part, Action)] == [
                Action("a", "run_code", '{"code": "1"}')
            ]

    @pytest.mark.parametrize("how", BREAKS)
    async def test_broken_text_is_void(self, how: str) -> None:
        with ScriptedServer([sse(SAID, *BREAKS[how], done=False), final("The answer is 4")]) as server:
            parts = await reply(chat(server.base_url))
            assert len(attempts(parts)) == 1
            assert kept(parts) == [Text("The answer is 4"), Finish("stop")]

    @pytest.mark.parametrize("chunk", [CALL, SAID])
    async def test_a_clean_end_after_something_whole_is_accepted(self, chunk: dict[str, Any]) -> None:
        with ScriptedServer([sse(chunk, done=False)]) as server:
            parts = await reply(chat(server.base_url))
            assert not attempts(parts)
            assert parts[-1] == Finish("stop")
            assert len(server.requests) == 1

    async def test_a_clean_end_in_the_middle_of_a_call_is_not(self) -> None:
        half = C(T(index=0, id="a", function=F("run_code", '{"code":"1')))
        with ScriptedServer([sse(half, done=False), run_code("1")]) as server:
            parts = await reply(chat(server.base_url))
            assert len(attempts(parts)) == 1
            assert any(isinstance(part, Action) for part in kept(parts))

    async def test_a_break_after_the_finish_reason_takes_nothing_away(self) -> None:
        with ScriptedServer([sse(CALL, C({}, "tool_calls"), RESET, done=False)]) as server:
            parts = await reply(chat(server.base_url))
            assert not attempts(parts)
            assert any(isinstance(part, Action) for part in parts)

    async def test_breaking_for_ever_ends(self) -> None:
        with ScriptedServer(answer=lambda _: sse(SAID, RESET)) as server:
            assert isinstance(await failure(chat(server.base_url)), ReplyBroken)
            assert len(server.requests) == 4

    async def test_a_reset_before_the_answer_is_tried_again(self) -> None:
        reset = Response([RESET], headers_first=False)
        with ScriptedServer([reset, final("ok")]) as server:
            parts = await reply(chat(server.base_url))
            assert len(attempts(parts)) == 1
            assert kept(parts) == [Text("ok"), Finish("stop")]

    async def test_a_server_that_was_there_before_is_tried_again(self) -> None:
        with ScriptedServer([final("ok")]) as server:
            model = chat(server.base_url)
            async with aclosing(model.stream(REQUEST)) as first:
                assert await anext(first) == Text("ok")
        parts = model.stream(REQUEST)
        assert isinstance(await anext(parts), Attempt)
        with pytest.raises(ModelUnreachable):
            assert [part async for part in parts]
        await model.close()

    @pytest.mark.parametrize(
        "fields", [{"code": "insufficient_quota"}, {"type": "invalid_request_error"}, {"code": 400}]
    )
    async def test_an_error_event_that_no_waiting_heals_is_final(self, fields: dict[str, Any]) -> None:
        event: Item = {"error": {"message": "You exceeded it", **fields}}
        with ScriptedServer([sse(event, done=False)]) as server:
            assert isinstance(await failure(chat(server.base_url)), ModelRefused)
            assert len(server.requests) == 1


class TestStalls:
    async def test_no_first_token_is_tried_once_more(self) -> None:
        silent = sse(C({"role": "assistant", "content": ""}), Gate())
        with ScriptedServer([silent, silent]) as server:
            error = await failure(chat(server.base_url, first_token_timeout=0.3))
            assert isinstance(error, ModelStalled)
            assert "first_token_timeout" in str(error)
            assert len(server.requests) == 2

    async def test_a_model_that_thinks_in_silence_is_given_twice_the_time(self) -> None:
        slow = sse(Delay(0.8), C({"content": "ok"}), C({}, "stop"))
        with ScriptedServer([slow, slow]) as server:
            parts = await reply(chat(server.base_url, first_token_timeout=0.6))
            assert len(attempts(parts)) == 1
            assert kept(parts) == [Text("ok"), Finish("stop")]

    async def test_pings_are_no_tokens(self) -> None:
        pings: list[Item] = [item for _ in range(40) for item in (b": ping\n\n", Delay(0.05))]
        with ScriptedServer([sse(*pings), sse(C({"content": "x"}), *pings)]) as server:
            model = chat(server.base_url, first_token_timeout=0.4, stream_timeout=0.3, max_retry_seconds=0)
            error = await failure(model)
            assert isinstance(error, ModelStalled)
            assert "stream_timeout" in str(error)

    async def test_a_slow_stream_with_tokens_goes_on(self) -> None:
        slow: list[Item] = [item for word in "abcdef" for item in (C({"content": word}), Delay(0.2))]
        with ScriptedServer([sse(*slow, C({}, "stop"))]) as server:
            parts = await reply(chat(server.base_url, first_token_timeout=1, stream_timeout=1))
            assert not attempts(parts)
            assert len([part for part in parts if isinstance(part, Text)]) == 6

    async def test_a_slow_reader_is_not_the_servers_fault(self) -> None:
        with ScriptedServer(
            [sse(*(C({"content": word}) for word in "abc"), Delay(0.05), C({}, "stop"))]
        ) as server:
            model = chat(server.base_url, first_token_timeout=0.5, stream_timeout=0.5)
            parts = []
            async for part in model.stream(REQUEST):
                parts.append(part)
                await asyncio.sleep(0.3)
            assert not attempts(parts)
            await model.close()


def foreign_exceptions() -> Iterator[type[BaseException]]:
    http, core = http_libraries()
    for module in (http, core):
        for name in dir(module):
            found = getattr(module, name)
            if inspect.isclass(found) and issubclass(found, Exception):
                yield found
    yield from (ssl.SSLError, ssl.SSLCertVerificationError, ConnectionResetError, BrokenPipeError, OSError)
    yield from (TimeoutError, EOFError, socket.gaierror)


def made(kind: type[BaseException]) -> BaseException:
    """Make an exception whatever its constructor wants."""
    http, _ = http_libraries()
    request = http.Request("POST", "http://h/v1")
    forms: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("it broke",), {}),
        ((), {}),
        (("it broke",), {"request": request, "response": http.Response(500, request=request)}),
    ]
    for arguments, named in forms:
        try:
            return kind(*arguments, **named)
        except TypeError:
            continue
    raise AssertionError(f"no way to make a {kind}")


SERVER = Server("http://h", "http://h/v1/chat/completions", KEY)


class TestForeignExceptions:
    def test_none_gets_through(self) -> None:
        for kind in foreign_exceptions():
            error = made(kind)
            with pytest.raises((ModelError, Trouble)) as caught, translated(SERVER):
                raise error
            assert caught.value.__cause__ is error

    def test_the_sdks_own(self) -> None:
        import openai

        http, _ = http_libraries()
        request = http.Request("POST", "http://h/v1")
        response = http.Response(418, request=request)
        for error in (
            openai.APIConnectionError(request=request),
            openai.APITimeoutError(request=request),
            openai.APIStatusError("x", response=response, body=None),
            openai.APIError("x", request, body=None),
            openai.OpenAIError("x"),
        ):
            with pytest.raises((ModelError, Trouble)), translated(SERVER):
                raise error

    def test_our_own_mistakes_are_not_hidden(self) -> None:
        with pytest.raises(KeyError), translated(SERVER):
            raise KeyError("x")
