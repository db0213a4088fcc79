"""Masks secrets wherever they would be shown, logged, sent or exported. Code may still use what is masked here.

Secrets are the values of the environment whose name says so, what looks like a key of a known service (see
secret_shapes.py), and what the user's own patterns match. A value, no I/O: the environment is passed in.
"""

from __future__ import annotations

import base64
import html
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from nbagent.secret_shapes import known_shapes

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|\w*PASSWORD|PASSWD|PASSPHRASE|PAT|CREDENTIAL)S?(?:$|_)", re.IGNORECASE
)
#: Variables whose value is an address, where only the password in `//user:password@host` is secret.
_ADDRESS_NAME = re.compile(r"(?:^|_)(?:URL|URI|DSN|PROXY)$", re.IGNORECASE)
_ADDRESS_PASSWORD = re.compile(r"://[^/:@\s]*:(?P<password>[^/\s]+)@")
#: Shorter values are ordinary words too often: masking them would turn plain text into stars.
SHORTEST_SECRET = 8
#: Lines of a secret with several (a PEM key) that are masked also on their own.
_SHORTEST_LINE = 32
_HEAD = 4
#: Of a secret that was cut by who showed it (`sk-abc...`), this many characters are enough to know it; a secret
#: that is not much longer is left: so short a beginning could be anything's.
_CUT_HEAD, _SHORTEST_CUT = 16, 24
_CUTS = ("...", "…")
_LONGEST_TAIL = 64
#: Shorter texts hold no key.
_SHORTEST_SHAPE = 12
#: Of the short texts, the names of fields and tools come again and again: so many that hold no secret are known.
_SHORT, _MOST_HARMLESS = 40, 2000
#: Characters of what was shown that a shape looks back at.
_CONTEXT = 2


class Redactor:
    """Replaces each secret by `[masked NAME]`; the same text always gives the same mask.

    `patterns` are the user's own regular expressions, looked for within a line.
    """

    def __init__(self, secrets: Mapping[str, str], patterns: Sequence[str] = ()):
        self.patterns = tuple(re.compile(pattern) for pattern in patterns)
        masks: dict[str, str] = {}
        for name, secret in secrets.items():
            for form in _forms(secret) if len(secret) >= SHORTEST_SECRET else ():
                masks.setdefault(form, f"[masked {name}]")
        # A "secret" that is a part of a mask is a placeholder, and masking it would mask the masks.
        names = "".join(masks.values())
        self._masks = {form: mask for form, mask in masks.items() if form not in names}
        self._longest_first = sorted(self._masks, key=len, reverse=True)
        self._sorted = sorted(self._masks)
        self._long = [form for form in self._longest_first if len(form) >= _SHORTEST_CUT]
        heads = sorted({form[:_HEAD] for form in self._masks})
        self._harmless: set[str] = set()
        self._head = re.compile(f"(?={'|'.join(map(re.escape, heads))})")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], patterns: Sequence[str] = ()) -> Redactor:
        """Take every variable whose name says that it holds a secret, and passwords within addresses."""
        secrets = {}
        for name, value in environment.items():
            if _SECRET_NAME.search(name):
                secrets[name] = value.strip()
            elif _ADDRESS_NAME.search(name) and (found := _ADDRESS_PASSWORD.search(value)):
                secrets[name] = unquote(found["password"])
        return cls(secrets, patterns)

    def text(self, text: str) -> str:
        """Mask the secrets in `text`."""
        if text in self._harmless:
            return text
        masked = self._masked(text)
        if len(text) <= _SHORT and masked == text:
            if len(self._harmless) >= _MOST_HARMLESS:
                self._harmless.clear()
            self._harmless.add(text)
        return masked

    def _masked(self, text: str) -> str:
        text = self.known(text)
        if len(text) >= _SHORTEST_SHAPE:
            text = known_shapes().text(text)
        return self.by_patterns(text) if self.patterns else text

    def by_patterns(self, text: str) -> str:
        """Mask what the user's own patterns match."""
        lines = text.splitlines(keepends=True)
        for pattern in self.patterns:
            lines = [pattern.sub(lambda found: "[masked]" if found[0] else "", line) for line in lines]
        return "".join(lines)

    def value(self, value: Any) -> Any:
        """Mask the secrets in every string of a JSON-like value; the value itself is left as it is."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                # By chance an image's base64 may look like any key: only what is known is looked for in it.
                self.value(key): self.known(item) if _is_image(key, item) else self.value(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)(self.value(item) for item in value)
        return value

    def stream(self) -> StreamRedactor:
        """Give a redactor for text that comes in pieces, where a secret may lie across two of them."""
        return StreamRedactor(self)

    def known(self, text: str) -> str:
        """Mask the secrets whose value is known."""
        there = self._there(text)
        return _matching(there).sub(lambda found: there[found[0]], text) if there else text

    def split(self, text: str) -> tuple[str, str]:
        """Mask known secrets: give the masked beginning, and the rest that more text could turn into one."""
        if not self._masks:
            return text, ""
        there, shown, position = self._there(text), [], 0
        pattern = _matching(there) if there else None
        while True:
            # Whatever comes next, nothing before `open_from` can be part of a secret that is not whole.
            open_from = self._open_from(text, position)
            found = None if pattern is None else pattern.search(text, position)
            if found is None or found.start() >= open_from:
                shown.append(text[position:open_from])
                return "".join(shown), text[open_from:]
            shown += [text[position : found.start()], there[found[0]]]
            position = found.end()

    def _there(self, text: str) -> dict[str, str]:
        """Give the secrets that are in `text`, the longest first, also where one is cut, each with its mask.

        To look for each of them is faster than one large pattern.
        """
        there = {form: self._masks[form] for form in self._longest_first if form in text}
        cut = {found: self._masks[form] for form in self._long for found in _cut_short(form, text)}
        return dict(sorted({**cut, **there}.items(), key=lambda item: -len(item[0]))) if cut else there

    def _open_from(self, text: str, start: int) -> int:
        """Give the first position from which all the rest of `text` is the beginning of a secret."""
        low = max(start, len(text) - len(self._longest_first[0]) - _LONGEST_TAIL - len(_CUTS[0]))
        for position in self._candidates(text, low):
            rest = text[position:]
            if any(_may_be_cut(form, rest) for form in self._long):
                return position
            following = bisect_right(self._sorted, rest)
            if following < len(self._sorted) and self._sorted[following].startswith(rest):
                return position
        return len(text)

    def _candidates(self, text: str, low: int) -> Iterator[int]:
        for found in self._head.finditer(text, low):
            if found.start() <= len(text) - _HEAD:
                yield found.start()
        yield from range(max(low, len(text) - _HEAD + 1), len(text))


class StreamRedactor:
    """Masks a text that comes in pieces: keeps back what may be the beginning of a secret.

    However the text is cut, what is given is what `Redactor.text` gives for the whole. The user's patterns may
    match anything, so where there are some, whole lines are given.
    """

    def __init__(self, redactor: Redactor):
        self._redactor = redactor
        self._kept = ""  # may become a known secret
        self._open = ""  # may become one of a known shape
        self._before = ""
        self._line = ""

    def feed(self, piece: str) -> str:
        """Give what is safe to show now."""
        shown, self._kept = self._redactor.split(self._kept + piece)
        return self._lines(self._shapes(shown, over=False), over=False)

    def flush(self) -> str:
        """Give the rest: the text is over, so what was kept back is as whole as it will be."""
        rest, self._kept = self._kept, ""
        return self._lines(self._shapes(self._redactor.known(rest), over=True), over=True)

    def _shapes(self, piece: str, over: bool) -> str:
        text, start = self._before + self._open + piece, len(self._before)
        if over:
            shown, self._open, self._before = known_shapes().end(text, start), "", ""
            return shown
        shown, self._open = known_shapes().split(text, start)
        self._before = (self._before + shown)[-_CONTEXT:]
        return shown

    def _lines(self, piece: str, over: bool) -> str:
        if not self._redactor.patterns:
            return piece
        text = self._line + piece
        end = len(text) if over else text.rfind("\n") + 1
        self._line = text[end:]
        return self._redactor.by_patterns(text[:end])


def _matching(there: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, there)))


def _cut_short(secret: str, text: str) -> Iterator[str]:
    """Give the places where a secret stands cut: its beginning, `...`, and perhaps its end."""
    start = text.find(secret[:_CUT_HEAD])
    while start >= 0:
        head = start + _alike(secret, text[start : start + len(secret)])
        dots = next((dots for dots in _CUTS if text.startswith(dots, head)), "")
        if dots and head - start < len(secret):
            end = head + len(dots)
            tails = range(min(_LONGEST_TAIL, len(secret) - 1), 1, -1)
            yield text[start : end + next((n for n in tails if text.startswith(secret[-n:], end)), 0)]
        start = text.find(secret[:_CUT_HEAD], start + 1)


def _alike(first: str, second: str) -> int:
    """Give the number of characters with which both begin."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


def _may_be_cut(secret: str, rest: str) -> bool:
    """Say whether `rest` could be the beginning of a secret that stands cut."""
    if not rest.startswith(secret[:_CUT_HEAD]) or rest.startswith(secret):
        return False
    after = rest[_alike(secret, rest) :]
    dots = next((dots for dots in _CUTS if after.startswith(dots)), "")
    return after in ("", ".", "..") or (bool(dots) and after[len(dots) :] in secret[-_LONGEST_TAIL:])


def _is_image(kind: object, value: object) -> bool:
    return isinstance(kind, str) and kind.startswith("image/") and "svg" not in kind and isinstance(value, str)


def _forms(secret: str) -> set[str]:
    """The ways a secret is usually written down: plain, in URLs, in strings, in HTML, in base64."""
    plain = {secret, *(line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE)}
    forms = set(plain)
    for text in plain:
        forms |= {quote(text, safe="", errors="replace"), quote(text, errors="replace")}
        forms |= {quote_plus(text, errors="replace"), repr(text)[1:-1]}
        forms |= {json.dumps(text)[1:-1], html.escape(text), html.escape(text, quote=False)}
    raw = secret.encode("utf-8", "replace")
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
        # The first and last characters also hold bits of the neighbours.
        inner = encoded[(0, 2, 3)[offset] : len(encoded) - (1 if (len(raw) + offset) % 3 else 0)]
        if len(inner) >= SHORTEST_SECRET:
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return forms
