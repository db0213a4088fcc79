"""What looks like a key is masked wherever it stands and however it is cut; hashes and names are not."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import uuid
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.redaction import Redactor
from nbagent.secret_rules import RULES
from nbagent.secret_shapes import known_shapes

REDACTOR = Redactor({})


def made_from(pattern: Any, chance: random.Random) -> str:
    """Make a text that a parsed pattern matches."""
    made = ""
    for code, value in pattern:
        if code is codes.LITERAL:
            made += chr(value)
        elif code is codes.IN:
            kind, item = chance.choice([one for one in value if one[0] is not codes.LITERAL] or value)
            if kind is codes.LITERAL:
                made += chr(item)
            elif kind is codes.RANGE:
                made += chr(chance.randint(*item))
            else:
                made += chance.choice(
                    "0123456789" if item is codes.CATEGORY_DIGIT else "aBcDeFgHiJkLmNoPqR34567890"
                )
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = value
            for _ in range(min(most, max(least, 1 if least == 0 and most == 1 else least + 2))):
                made += made_from(inner, chance)
        elif code is codes.SUBPATTERN:
            made += made_from(value[3], chance)
        elif code is codes.BRANCH:
            made += made_from(chance.choice(value[1]), chance)
    return made


def sample(name: str) -> str:
    """Make a key of a service that a person could be given."""
    pattern = next(rule[2] for rule in RULES if rule[0] == name)
    return made_from(parser.parse(pattern), random.Random(name))


NAMES = sorted({rule[0] for rule in RULES})
GITHUB, GOOGLE, STRIPE = sample("github-pat"), sample("gcp-api-key"), sample("stripe-access-token")
JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "MIIEpAIBAAKCAQEA7bq98rrP2oV+Yx0Zp3a1Jm/K\n" * 4
    + "-----END RSA PRIVATE KEY-----"
)


def test_a_key_of_each_known_service_is_masked() -> None:
    shown = []
    for name in NAMES:
        key = sample(name)
        for text in (key, f"key = {key!r}", f"[{key}, 1]", f"0  {key}   3.5\n", f"'a\\n{key}'", f"x={key}&y"):
            masked = REDACTOR.text(text)
            if key in masked or not re.search(r"\[masked [\w -]+\]", masked):
                shown.append(f"{name}: {text!r} became {masked!r}")
    assert not shown, "\n".join(shown)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"Authorization: Bearer {'abc1' * 8}", "Authorization: Bearer [masked authorization]"),
        ("{'authorization': 'Basic dXNlcjpwYXNz'}", "{'authorization': 'Basic [masked authorization]'}"),
        (f"curl -H 'X: bearer {'aB3x' * 8}'", "curl -H 'X: bearer [masked bearer token]'"),
        ("postgresql://me:hunter2@db.example:5432/x", "postgresql://me:[masked password]@db.example:5432/x"),
        (f"token {JWT}.", "token [masked json web token]."),
        (PEM, "[masked private key]"),
        (f"cut {PEM[:120]} said", "cut [masked private key] said"),
        (json.dumps({"private_key": PEM}), '{"private_key": "[masked private key]"}'),
        ("sk-" + "a1B2c3D4e5F6" * 4, "[masked api key]"),
        (f"aws_secret_access_key = {'aB3/' * 10}\n", "aws_secret_access_key = [masked aws secret key]\n"),
        (f"https;AccountKey={'aB3+' * 21}ab==;E", "https;AccountKey=[masked azure key];E"),
        (f"https://{GITHUB}:x-oauth@github.com", "https://[masked github-pat]:[masked password]@github.com"),
    ],
)  # fmt: skip
def test_a_secret_that_its_surroundings_tell_is_masked_alone(text: str, left: str) -> None:
    assert REDACTOR.text(text) == left


@pytest.mark.parametrize(
    "text",
    [
        hashlib.sha256(b"x").hexdigest(),
        hashlib.md5(b"x").hexdigest(),
        str(uuid.UUID(int=2**127 + 12345)),
        "commit 9c1d8d3f0aa7b1c2d3e4f5a6b7c8d9e0f1a2b3c4",
        base64.b64encode(random.Random(1).randbytes(200_000)).decode(),
        "AKIAXXXXXXXXXXXXXXXX ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "sk-learn sk-learn-pipeline-with-a-column-transformer-and-more sklearn.pipeline",
        "hf_hub_download re_order_level_per_quarter pat_id_of_the_first_visit",
        "df['pypi_downloads'].mean() glc_values xai-explanations dapi",
        "http://localhost:8888/lab?x=1 http://example.com:80/a@b https://a:b",
        "Authorization is needed. Bearer of news, basic internationalisation",
        '"-----BEGIN PRIVATE KEY-----" in text or text.startswith("-----BEGIN CERTIFICATE-----")',
        f"-----BEGIN CERTIFICATE-----\n{'MIIEpAIBAAKCAQEA' * 4}\n-----END CERTIFICATE-----",
        "eyJ0 eyJust a word.eyJ",
    ],
)
def test_hashes_ids_placeholders_and_ordinary_names_are_left(text: str) -> None:
    assert REDACTOR.text(text) == text


def test_an_image_is_left_though_its_base64_holds_what_could_be_a_key() -> None:
    output = {"data": {"image/png": f"iVBORw0KGgo/{GOOGLE}/", "text/plain": GOOGLE}}
    assert REDACTOR.value(output) == {
        "data": {"image/png": output["data"]["image/png"], "text/plain": "[masked gcp-api-key]"}
    }


PIECES = st.lists(
    st.sampled_from(
        [
            *(GITHUB, GOOGLE, STRIPE, JWT, PEM, "://me:hunter2@db", "Authorization: Bearer "),
            *("a1B2c3D4e5F6" * 3, "sk-"),
            *("ordinary words ", "\n", "'", "_", "\\n", "-----BEGIN", " PRIVATE KEY-----", "https", "x", " ", "."),
        ]
    ),
    max_size=7,
)


@given(PIECES.map("".join), st.lists(st.integers(0, 900), max_size=14))
def test_any_cut_of_a_stream_gives_the_same_masked_text(text: str, places: list[int]) -> None:
    bounds = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    stream = REDACTOR.stream()
    pieces = [stream.feed(text[start:end]) for start, end in pairwise(bounds)]
    assert "".join([*pieces, stream.flush()]) == REDACTOR.text(text)


@pytest.mark.parametrize("secret", [GITHUB, GOOGLE, STRIPE, JWT, PEM, "sk-" + "a1B2c3D4e5F6" * 4])
def test_nothing_of_a_key_is_shown_before_it_is_whole(secret: str) -> None:
    stream = REDACTOR.stream()
    shown = ["".join(stream.feed(character) for character in secret[:-1])]
    assert shown == [""]
    rest = stream.feed(secret[-1] + " .") + stream.flush()
    assert re.fullmatch(r"\[masked [\w -]+\] \.", rest)


def test_ordinary_words_are_held_back_no_longer_than_they_could_begin_a_key() -> None:
    stream = REDACTOR.stream()
    assert stream.feed("The sum of all prices is ") == "The sum of all prices is "
    assert stream.feed("s") == ""
    assert stream.feed("mall") == "small"


@given(PIECES.map(" ".join))
def test_masking_twice_is_masking_once(text: str) -> None:
    once = REDACTOR.text(text)
    assert REDACTOR.text(once) == once


def test_the_users_own_patterns_are_masked_within_a_line_in_streams_too() -> None:
    redactor = Redactor({}, patterns=[r"EMP-\d{5}", r"(?i)project zeus"])
    text = "EMP-12345 of Project Zeus,\nEMP-1\n2345 project zeus"
    assert redactor.text(text) == "[masked] of [masked],\nEMP-1\n2345 [masked]"
    stream = redactor.stream()
    assert "".join(stream.feed(character) for character in text) + stream.flush() == redactor.text(text)


def test_a_long_ordinary_text_costs_little() -> None:
    text = "self.model.fit(x, y)  # the state of the github issue, sk-learn\n" * 5000
    assert known_shapes().text(text) == text
