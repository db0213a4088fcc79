"""Secrets of the environment are masked in every usual spelling, and ordinary text stays what it is."""

from __future__ import annotations

import base64
import html
import json
import string
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbagent.redaction import SHORTEST_SECRET, Redactor

KEY = "sk-test-ABCDEFGHIJKLMNOPQRSTUVWX"
AWS = "wJalrTESTKEY/EXAMPLE+abcdefghijklmnop"
LONG = "tk_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0z" * 4
REDACTOR = Redactor.from_environment({"OPENAI_API_KEY": KEY, "AWS_SECRET_ACCESS_KEY": AWS})

SECRETS = st.text(
    alphabet=string.ascii_letters + string.digits + "-_+/=.~!&'\"\\ é", min_size=SHORTEST_SECRET
).filter(lambda text: text == text.strip() and len(text) >= SHORTEST_SECRET)


def cut(text: str, places: list[int]) -> list[str]:
    bounds = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


# -- which variables ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *(
            "OPENAI_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "GITHUB_TOKEN",
            "GH_PAT",
            "PGPASSWORD",
            "APIKEY",
        ),
        *(
            "api_key",
            "MY_SECRET_2",
            "TWINE_PASSWORD",
            "GPG_PASSPHRASE",
            "SMTP_PASSWD",
            "AZURE_CREDENTIALS",
            "API_KEYS",
        ),
    ],
)
def test_a_variable_whose_name_says_secret_is_masked(name: str) -> None:
    assert Redactor.from_environment({name: "abcdef-123456"}).text("x abcdef-123456 y") == f"x [masked {name}] y"


@pytest.mark.parametrize(
    "name", ["HOME", "PWD", "PATH", "KEYBOARD", "MONKEY", "TOKENIZERS_PARALLELISM", "PATTERN"]
)
def test_other_variables_are_not(name: str) -> None:
    assert Redactor.from_environment({name: "abcdef-123456"}).text("abcdef-123456") == "abcdef-123456"


@pytest.mark.parametrize("value", ["", "a", "true", "1234567", "  a  \n"])
def test_short_values_are_ordinary_words(value: str) -> None:
    redactor = Redactor.from_environment({"DB_PASSWORD": value})
    assert redactor.text("a true banana 1234567") == "a true banana 1234567"


@pytest.mark.parametrize(
    ("name", "address", "password"),
    [
        ("DATABASE_URL", "postgres://me:hunter2hunter2@db.example/x", "hunter2hunter2"),
        ("DATABASE_URL", "postgres://me:p%40ss%2Fword1@db/x", "p%40ss%2Fword1"),
        ("DATABASE_URL", "postgres://me:p%40ss%2Fword1@db/x", "p@ss/word1"),
        ("REDIS_URI", "redis://:hunter2@hunter2@db/0", "hunter2@hunter2"),
        ("HTTP_PROXY", "http://me:hunter2hunter2@proxy:8080", "hunter2hunter2"),
    ],
)
def test_of_an_address_only_the_password_is_masked(name: str, address: str, password: str) -> None:
    redactor = Redactor.from_environment({name: address})
    assert redactor.text(f"<{password}>") == f"<[masked {name}]>"
    shown = redactor.text(address)
    assert shown.startswith(address[:5])
    assert f":[masked {name}]@" in shown


def test_an_address_without_a_password_stays() -> None:
    redactor = Redactor.from_environment({"BASE_URL": "http://user@host.example/a:b@c"})
    assert redactor.text("http://user@host.example/a:b@c") == "http://user@host.example/a:b@c"


def test_spaces_around_a_value_are_not_part_of_it() -> None:
    assert Redactor.from_environment({"A_TOKEN": "abcdef-123456\n"}).text("abcdef-123456") == "[masked A_TOKEN]"


# -- which spellings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", [KEY, AWS])
@pytest.mark.parametrize(
    "spell",
    [
        str,
        quote,
        quote_plus,
        lambda text: quote(text, safe=""),
        repr,
        json.dumps,
        html.escape,
        lambda text: str({"key": text}),
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
        lambda text: base64.b64encode(f"u:{text}\n".encode()).decode(),
        lambda text: base64.urlsafe_b64encode(f"{text}:".encode()).decode(),
    ],
)
def test_a_secret_is_masked_in_every_usual_spelling(secret: str, spell: object) -> None:
    assert callable(spell)
    shown = REDACTOR.text(f"before {spell(secret)} after")
    assert "[masked " in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert len(shown) < len("before [masked AWS_SECRET_ACCESS_KEY] after") + 12


@given(SECRETS, st.binary(max_size=5), st.binary(max_size=5))
def test_no_spelling_of_any_secret_survives(secret: str, before: bytes, after: bytes) -> None:
    redactor = Redactor({"S": secret})
    encoded = base64.b64encode(before + secret.encode() + after).decode()
    spellings = [
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret),
        repr(secret),
    ]
    for spelling in [*spellings, html.escape(secret), f"\x00{secret}\x00", encoded]:
        shown = redactor.text(spelling)
        assert spelling.strip("\"'\x00") not in shown
        assert "[masked S]" in shown


@given(st.text())
def test_text_without_a_secret_is_the_same_object(text: str) -> None:
    assert REDACTOR.text(text) is text


def test_hashes_and_ids_are_not_touched() -> None:
    text = f"{'9f86d081884c7d65' * 4} 123e4567-e89b-12d3-a456-426614174000"
    assert REDACTOR.text(text) == text


def test_a_line_of_a_key_with_several_lines_is_masked_alone() -> None:
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
    redactor = Redactor({"PEM": f"-----BEGIN KEY-----\n{line}\n-----END KEY-----"})
    assert redactor.text(f"  {line}") == "  [masked PEM]"


@given(SECRETS, st.text(alphabet="ab ", max_size=20))
def test_masking_twice_is_masking_once(secret: str, around: str) -> None:
    redactor = Redactor({"A_TOKEN": secret})
    once = redactor.text(f"{around} {secret} {around}")
    assert redactor.text(once) == once


def test_a_placeholder_that_is_part_of_a_mask_is_left() -> None:
    redactor = Redactor({"DB_PASSWORD": "PASSWORD", "A_KEY": "abcdef-123456"})
    assert redactor.text("PASSWORD abcdef-123456") == "PASSWORD [masked A_KEY]"


def test_of_two_secrets_the_longer_wins() -> None:
    redactor = Redactor({"SHORT": "abcdef-12", "LONG": "abcdef-123456"})
    assert redactor.text("abcdef-123456 abcdef-12") == "[masked LONG] [masked SHORT]"


def test_values_are_masked_through_and_through_and_stay_what_they_are() -> None:
    value = {"a": [KEY, 1, None, {"b": (KEY, 2.5)}], KEY: True}
    masked = REDACTOR.value(value)
    assert masked == {
        "a": ["[masked OPENAI_API_KEY]", 1, None, {"b": ("[masked OPENAI_API_KEY]", 2.5)}],
        "[masked OPENAI_API_KEY]": True,
    }
    assert value["a"] == [KEY, 1, None, {"b": (KEY, 2.5)}]


# -- streams --------------------------------------------------------------------------------------------


def streamed(redactor: Redactor, pieces: list[str]) -> str:
    stream = redactor.stream()
    return "".join([*map(stream.feed, pieces), stream.flush()])


PARTS = st.lists(
    st.sampled_from([KEY, AWS, KEY[:9], KEY[9:], AWS[5:], "s", "sk-", "plain words ", "\n", quote(AWS, safe="")]),
    max_size=8,
).map("".join)


@given(PARTS, st.lists(st.integers(0, 300), max_size=12))
def test_any_cut_of_a_stream_gives_the_same_masked_text(text: str, places: list[int]) -> None:
    assert streamed(REDACTOR, cut(text, places)) == REDACTOR.text(text)


@given(
    st.lists(st.text(alphabet="ab", min_size=8, max_size=12), min_size=1, max_size=4),
    st.text(alphabet="ab", max_size=60),
    st.lists(st.integers(0, 60), max_size=10),
)
@example(secrets=["aaaaaaaa", "aaaaaaaab"], text="aaaaaaaab", places=[8])
def test_also_where_secrets_overlap_and_begin_alike(secrets: list[str], text: str, places: list[int]) -> None:
    redactor = Redactor({f"S{number}": secret for number, secret in enumerate(secrets)})
    assert streamed(redactor, cut(text, places)) == redactor.text(text)


def test_nothing_of_a_secret_is_shown_before_it_is_known_to_be_none() -> None:
    stream = REDACTOR.stream()
    assert stream.feed("key: sk-test-ABCDEFGH") == "key: "
    assert stream.feed("IJKLMNOPQRSTUVWX.") == "[masked OPENAI_API_KEY]."
    assert stream.feed("sk-test-ABC") == ""
    assert stream.flush() == "sk-test-ABC"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"0  {LONG[:46]}...\n1", "0  [masked LONG_TOKEN]\n1"),  # a table's cell
        (f"{LONG[:20]}…", "[masked LONG_TOKEN]"),
        (f"input_value='{LONG[:25]}...{LONG[-24:]}', x", "input_value='[masked LONG_TOKEN]', x"),
        (f"{LONG[:25]}...and so on", "[masked LONG_TOKEN]and so on"),
        (f"{LONG[:20]}.. {LONG[:15]}... {LONG[:20]}", f"{LONG[:20]}.. {LONG[:15]}... {LONG[:20]}"),
        (f"{LONG}...", "[masked LONG_TOKEN]..."),
    ],
)
def test_a_secret_that_a_table_or_message_cut_is_masked_however_it_comes(text: str, masked: str) -> None:
    redactor = Redactor({"LONG_TOKEN": LONG})
    assert redactor.text(text) == masked
    for size in (1, 2, 7, 40):
        stream = redactor.stream()
        pieces = [stream.feed(text[start : start + size]) for start in range(0, len(text), size)]
        assert "".join(pieces) + stream.flush() == masked


def test_ordinary_text_is_not_held_back() -> None:
    stream = REDACTOR.stream()
    assert stream.feed("The mean is 4.2") == "The mean is 4.2"
