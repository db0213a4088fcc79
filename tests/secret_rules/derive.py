"""Derives `nbagent/secret_rules.py` from Betterleaks' rule file: `python -m tests.secret_rules.derive FILE`.

FILE is `config/betterleaks.toml` of a Betterleaks release. Only rules for keys with a shape of their own are
taken: those that begin with a literal and hold nothing but the characters of one token. A rule that needs the word
before it ("facebook" and then any hash) would mask ordinary hashes in data, and cannot be held back in a stream.
"""

from __future__ import annotations

import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import sys
import tomllib
from pathlib import Path
from typing import Any

TOKEN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+/=:~%!|$")
#: What the rules let follow a key: quotes, spaces, the end. In a table or a call it may be anything else.
FOLLOWS, END = r"""(?:\\?['"\x60]|[\s;]|\\[nr]|$)""", r"(?![\w+/=-])"
#: Names of accounts and places, which are no secrets.
NO_SECRETS = re.compile(
    r"client-id|app-id|key-id|access-key-id|account-id|-url|public|feature-flag-client|client-sdk"
)
#: Shapes that ordinary base64 text or ordinary names have too.
TOO_COMMON = {
    "artifactory-reference-token",
    "clickhouse-cloud-api-secret-key",
    "exoscale-api-key",
    "brave-search-api-key",
}
TARGET = Path(__file__).parents[2] / "nbagent" / "secret_rules.py"


def starts(pattern: Any, most: int = 60) -> tuple[set[str], bool]:
    """Give the literal beginnings of a parsed pattern, and whether they are all of it."""
    found = {""}
    for code, value in pattern:
        if code is codes.LITERAL:
            found = {start + chr(value) for start in found}
        elif code is codes.SUBPATTERN:
            inner, whole = starts(value[3])
            found = {start + more for start in found for more in inner}
            if not whole:
                return found, False
        elif code is codes.BRANCH:
            branches = [starts(branch) for branch in value[1]]
            found = {start + more for start in found for inner, _ in branches for more in inner}
            if not all(whole for _, whole in branches):
                return found, False
        elif code is codes.IN and len(value) <= 4 and all(kind is codes.LITERAL for kind, _ in value):
            found = {start + chr(character) for start in found for _, character in value}
        elif code not in (codes.AT, codes.ASSERT, codes.ASSERT_NOT):
            return found, False
        if len(found) > most:
            return found, False
    return found, True


def within_a_token(pattern: Any) -> bool:
    """Whether a parsed pattern matches nothing but the characters of a token."""
    for code, value in pattern:
        if code is codes.LITERAL:
            fits = chr(value) in TOKEN
        elif code is codes.SUBPATTERN:
            fits = within_a_token(value[3])
        elif code is codes.BRANCH:
            fits = all(map(within_a_token, value[1]))
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            fits = within_a_token(value[2])
        elif code is codes.IN:
            fits = all(
                chr(item) in TOKEN
                if kind is codes.LITERAL
                else all(chr(c) in TOKEN for c in range(item[0], item[1] + 1))
                if kind is codes.RANGE
                else item in (codes.CATEGORY_WORD, codes.CATEGORY_DIGIT)
                for kind, item in value
            )
        else:
            fits = code in (codes.AT, codes.ASSERT, codes.ASSERT_NOT)
        if not fits:
            return False
    return True


def for_python(pattern: str) -> str:
    """Say a Go pattern in Python: a flag in mid-pattern holds to the end of its group.

    That a key begins at the start of a word is checked before: `\\b` would not see it after a written-out newline.
    """
    pattern = re.sub(r"\A(\(\?i\))?\\b", r"\1", pattern)
    pattern = pattern.replace(FOLLOWS, END).replace("[:alnum:]", "a-zA-Z0-9").replace(r"\z", r"\Z")
    at = pattern.find("(?i)")
    if at <= 0:
        return pattern
    head, tail = pattern[:at], pattern[at + 4 :]
    depth, end, in_set = 0, 0, False
    while end < len(tail):
        character = tail[end]
        if character == "\\":
            end += 2
            continue
        in_set = character == "[" or (in_set and character != "]")
        if not in_set and character in "()":
            depth += 1 if character == "(" else -1
            if depth < 0:
                break
        end += 1
    return f"{head}(?i:{tail[:end]}){tail[end:]}"


def looks_like_a_name(pattern: str, least: int) -> bool:
    """Whether an ordinary long name in code could have this shape: any length, with underscores or dashes."""
    return bool(re.search(r"\[[^\]]*[a-z][^\]]*(?:_|-)\]\{\d+,\d*\}|\[\\w-\]\{\d+,\d*\}", pattern)) and least < 40


def main(source: Path) -> None:
    """Write the module."""
    lines = []
    for rule in tomllib.loads(source.read_text(encoding="utf-8"))["rules"]:
        name, pattern = rule["id"], rule.get("regex", "")
        if rule.get("confidence") != "high" or NO_SECRETS.search(name) or name in TOO_COMMON:
            continue
        pattern = for_python(pattern)
        try:
            parsed = parser.parse(pattern)
        except re.error:
            continue
        beginnings, _ = starts(parsed)
        least = parsed.getwidth()[0]
        if min(map(len, beginnings)) < 3 or least < 12 or not within_a_token(parsed):
            continue
        if looks_like_a_name(pattern, least) and max(map(len, beginnings)) < 11:
            continue
        entropy = re.search(r"entropy\(finding\[\"secret\"\]\)\s*<=?\s*([\d.]+)", rule.get("filter", ""))
        name = re.sub(r"\.\d$", "", name)
        lines.append(
            f"    ({name!r}, {tuple(sorted(beginnings))!r}, {pattern!r}, {float(entropy[1]) if entropy else 0.0}),"
        )
    head, _, rest = TARGET.read_text(encoding="utf-8").partition("RULES: tuple")
    declaration = rest.partition("\n")[0]
    TARGET.write_text(f"{head}RULES: tuple{declaration}\n" + "\n".join(lines) + "\n)\n", encoding="utf-8")
    print(f"{len(lines)} rules")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
