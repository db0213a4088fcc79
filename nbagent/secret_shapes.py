"""Masks what looks like a key, whoever it belongs to: a value, no I/O, knows nothing of the environment.

A rule is tried only where its literal beginning stands at the start of a word, so that long text costs little.
Whether a secret is one depends on the text up to the end of its token (or, for a key with several lines, of its
lines) and on nothing after it: a stream is held back from the first place that is still open.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property

from nbagent.secret_rules import RULES

#: The longest common beginning by which rules are found.
_HEAD = 3
_TOKEN = r"[\w\-.+/=:~%!|$]"  # noqa: S105 - the characters of a token, not one


@dataclass(frozen=True)
class Shape:
    """What one kind of key looks like. The pattern's first group, where it has one, is the secret itself."""

    name: str
    starts: tuple[str, ...]
    source: str
    entropy: float = 0.0  #: bits a character, below which it is a placeholder
    still: str = ""  #: from a start to the end of the text: more text may make it a secret

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern: at first use, as most are never used."""
        return re.compile(self.source)

    @cached_property
    def _open(self) -> re.Pattern[str]:
        return re.compile(f"(?:{self.still})\\Z" if self.still else f"{_TOKEN}*\\Z")

    def open_at(self, text: str, place: int) -> bool:
        """Say whether a secret that begins at `place` could go on after the end of `text`."""
        if text.startswith(self.starts, place):
            return self._open.match(text, place) is not None
        return any(start.startswith(text[place:]) for start in self.starts if len(text) - place < len(start))

    def found_at(self, text: str, place: int) -> re.Match[str] | None:
        """Give the secret that begins at `place`, if there is one."""
        found = self.pattern.match(text, place)
        if found is not None and self.entropy and _entropy(found[0]) < self.entropy:
            return None
        return found


_QUOTE = r"""['"\s\\]*"""
_PEM_BODY = r"[A-Za-z0-9+/=\s\\:,.\-]"
_PEM = r"-----BEGIN[ A-Z0-9]*PRIVATE KEY(?: BLOCK)?-----"
#: What no service's own prefix tells: the word before it does, or the way it is written.
OURS = (
    Shape(
        "private key",
        ("-----BEGIN",),
        rf"{_PEM}(?:{_PEM_BODY}*?-----END[ A-Z0-9]*-----"
        r"|(?:\s|\\[nrt])*[A-Za-z0-9+/=]{24,}(?:(?:\s|\\[nrt])+[A-Za-z0-9+/=]{24,})*(?:(?:\n|\\n)[A-Za-z0-9+/=]+)?)",
        still=rf"-----BEGIN[ A-Z0-9]*-{{0,4}}|{_PEM}(?:(?!-----END){_PEM_BODY})*(?:-----END[ A-Z0-9]*-{{0,4}})?",
    ),
    Shape("json web token", ("eyJ",), r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"),
    Shape("api key", ("sk-",), r"sk-[A-Za-z0-9]{32,}(?![\w-])", 3.0),
    Shape("api key", ("sk-ant-",), r"sk-ant-[\w-]{32,}"),
    Shape("vault token", ("hvs.",), r"hvs\.[\w-]{24,}"),
    Shape("azure key", ("AccountKey=", "SharedAccessKey="), r"\w+Key=([A-Za-z0-9+/]{32,}={0,2})"),
    Shape("slack webhook", ("hooks.slack.com/",), r"hooks\.slack\.com/\w+/([A-Za-z0-9+/]{30,})"),
    Shape(
        "password",
        ("://",),
        r"""://[^/:@\s'"<>]{0,100}:([^/\s'"<>]{3,200})@(?=[\w\[])""",
        still=r"""://[^/\s'"<>]*""",
    ),
    Shape(
        "authorization",
        ("Authorization", "authorization", "AUTHORIZATION"),
        rf"\w+{_QUOTE}[:=,]{_QUOTE}(?:(?:Bearer|Basic|Token|bearer|basic|token)\s+)?([\w+/=.~-]{{8,}})",
        still=rf"\w*{_QUOTE}(?:[:=,]{_QUOTE}(?:\w+\s*)?{_TOKEN}*)?",
    ),
    Shape(
        "bearer token",
        ("Bearer ", "bearer "),
        r"[Bb]earer\s+((?=[\w+/=.~-]*\d)[\w+/=.~-]{20,})",
        still=rf"[Bb]earer\s*{_TOKEN}*",
    ),
    Shape(
        "aws secret key",
        ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey", "aws_secret_key"),
        rf"\w+{_QUOTE}[:=,]{_QUOTE}([A-Za-z0-9/+]{{40}})(?![\w/+=])",
        still=rf"\w*{_QUOTE}(?:[:=,]{_QUOTE}{_TOKEN}*)?",
    ),
)


class Shapes:
    """All shapes, found by their first characters."""

    def __init__(self, shapes: tuple[Shape, ...]):
        self._by_head: dict[str, list[Shape]] = {}
        for shape in shapes:
            for head in sorted({start[:_HEAD] for start in shape.starts}):
                self._by_head.setdefault(head, []).append(shape)
        by_first: dict[str, set[str]] = {}
        for head in self._by_head:
            by_first.setdefault(head[0], set()).add(re.escape(head[1:]))
        self._heads = re.compile(
            "|".join(f"{re.escape(first)}(?:{'|'.join(sorted(rest))})" for first, rest in sorted(by_first.items()))
        )
        self._beginnings = {head[:length] for head in self._by_head for length in range(1, _HEAD)}

    def text(self, text: str) -> str:
        """Mask what looks like a secret in a whole text."""
        return text if self._heads.search(text) is None else self._mask(text, 0, whole=True)[0]

    def end(self, text: str, start: int) -> str:
        """Mask `text[start:]`, after which nothing comes; before `start` is context."""
        return self._mask(text, start, whole=True)[0]

    def split(self, text: str, start: int) -> tuple[str, str]:
        """Give the masked beginning of `text[start:]` and the rest that is open; before `start` is context."""
        shown, rest, masked = self._mask(text, start, whole=False)
        if not rest:
            for length in range(min(_HEAD - 1, len(text) - masked), 0, -1):
                if text[-length:] in self._beginnings and not _within_a_word(text, len(text) - length):
                    return shown[: len(shown) - length], text[-length:]
        return shown, rest

    def _mask(self, text: str, start: int, whole: bool) -> tuple[str, str, int]:
        """Give the masked beginning, the rest that is open, and where the last masked secret ends."""
        shown: list[str] = []
        position = start
        place = start
        while (head := self._heads.search(text, place)) is not None:
            place = head.start()
            masked_before = place == position > start
            shapes = self._by_head[head[0]] if masked_before or not _within_a_word(text, place) else []
            if not whole and any(shape.open_at(text, place) for shape in shapes):
                shown.append(text[position:place])
                return "".join(shown), text[place:], position
            for shape in shapes:
                if (found := shape.found_at(text, place)) is not None:
                    group = 1 if shape.pattern.groups else 0
                    if found.end(group) > max(position, found.start(group)):
                        between = self._mask(text[: found.start(group)], place, whole=True)[0]
                        shown += [text[position:place], between, f"[masked {shape.name}]"]
                        position = found.end(group)
                        place = position - 1
                        break
            place += 1
        shown.append(text[position:])
        return "".join(shown), "", position


@cache
def known_shapes() -> Shapes:
    """Give the one table of all shapes: made at first use."""
    known = (Shape(*rule) for rule in RULES)
    return Shapes((*known, *OURS))


def _within_a_word(text: str, place: int) -> bool:
    """Whether a place lies in the middle of a word: no key begins there. A written-out `\\n` is no letter."""
    if not place or not text[place - 1].isalnum() or not text[place].isalnum():
        return False
    return not (place > 1 and text[place - 2] == "\\" and text[place - 1] in "nrt")


def _entropy(text: str) -> float:
    """Shannon's entropy in bits a character: low where a text repeats itself, as placeholders do."""
    size = len(text)
    return -sum(count / size * math.log2(count / size) for count in Counter(text).values())
