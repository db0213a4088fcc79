"""The embedded model without its weights: whom the server serves, and what is said when something is missing."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nbagent.errors import ModelUnreachable, NoModelError, WeightsError
from nbagent.models.embedded import EmbeddedModel, physical_cores
from nbagent.models.embedded_owner import ServerOwner, ServerParameters
from nbagent.models.embedded_server import Record, serve_owners

GRACE = 0.3


@contextmanager
def owners_served() -> Iterator[tuple[tuple[str, int], threading.Thread]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_owners, args=(listener, "the-key", GRACE))
        thread.start()
        yield listener.getsockname(), thread
        thread.join(10)
        assert not thread.is_alive()


def test_a_server_that_nobody_owns_ends_after_the_grace_time() -> None:
    began = time.monotonic()
    with owners_served() as (_, thread):
        thread.join(10)
    assert time.monotonic() - began >= GRACE


def test_a_server_lives_while_any_owner_is_connected() -> None:
    with owners_served() as (address, thread):
        first, second = socket.create_connection(address), socket.create_connection(address)
        with second:
            with first:
                for owner in (first, second):
                    owner.sendall(b"the-key\n")
                    assert owner.recv(16) == b"ok\n"
            thread.join(2 * GRACE)
            assert thread.is_alive()
            second.sendall(b"the-key\n")
            assert second.recv(16) == b"ok\n"
        left = time.monotonic()
        thread.join(10)
        assert time.monotonic() - left >= GRACE * 0.9


def test_who_does_not_know_the_key_is_no_owner() -> None:
    with owners_served() as (address, thread), socket.create_connection(address) as stranger:
        stranger.sendall(b"a-guess\n")
        assert stranger.recv(16) == b""
        thread.join(10)
        assert not thread.is_alive()


def test_who_says_nothing_is_no_owner() -> None:
    with owners_served() as (address, thread), socket.create_connection(address):
        thread.join(10)
        assert not thread.is_alive()


def test_what_a_server_says_of_itself_is_for_this_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    Record(pid=1, key="secret", port=2, control=3).write(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert Record.read(file) == Record(pid=1, key="secret", port=2, control=3)


def test_a_torn_record_is_no_record(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    file.write_text('{"pid": 1, "ke')
    assert Record.read(file) is None
    assert Record.read(tmp_path / "nothing.json") is None


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NBAGENT_WEIGHTS", raising=False)
    monkeypatch.setenv("NBAGENT_CACHE", str(tmp_path / "cache"))


def test_a_model_is_named_and_labelled_before_anything_starts(empty_cache: None) -> None:
    model = EmbeddedModel()
    assert (model.name, model.label, model.host) == (
        "local:qwen2.5-coder-1.5b",
        "local 1.5B: check it",
        "this machine",
    )
    assert EmbeddedModel("local:qwen2.5-coder-0.5b").label == "local 0.5B: check it"


def test_an_unknown_model_is_refused(empty_cache: None) -> None:
    with pytest.raises(WeightsError, match="no weights named 'gpt-9'"):
        EmbeddedModel("local:gpt-9")


async def test_missing_weights_are_one_line_that_says_how_to_get_them(empty_cache: None) -> None:
    model = EmbeddedModel()
    with pytest.raises(NoModelError, match=r"`nbagent model pull qwen2\.5-coder-1\.5b` \(1\.1 GB\), or set a key"):
        await model.warm_up()
    await model.close()


def test_missing_llama_cpp_is_one_line_that_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(NoModelError, match=r"pip install 'nbagent\[local\]'"):
        ServerOwner(tmp_path / "run").acquire(broken_weights(tmp_path))


def test_a_server_that_cannot_start_is_quoted(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    with pytest.raises(ModelUnreachable) as caught:
        ServerOwner(tmp_path / "run").acquire(broken_weights(tmp_path))
    message = str(caught.value)
    assert message.startswith("the embedded model's server ended with code 1: ")
    assert "Failed to init server" in message or "model loading error" in message  # whichever was said last
    assert "\n" not in message


def test_the_cores_are_those_that_this_process_may_use() -> None:
    assert physical_cores() >= 1


def broken_weights(folder: Path) -> ServerParameters:
    file = folder / "broken.gguf"
    file.write_bytes(b"not a model")
    return ServerParameters(file, context=2048, threads=1, grace=0.1)
