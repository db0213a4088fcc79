"""Masks secrets of the environment wherever they would be shown, logged, sent or exported.

A value, no I/O: the environment is passed in. Code may still use what is masked here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PAT|CREDENTIALS?)(?:$|_)", re.IGNORECASE
)
#: Shorter values are ordinary words too often: masking them would turn plain text into stars.
SHORTEST_SECRET = 8


class Redactor:
    """Replaces each known secret by `[masked NAME]`; the same text always gives the same mask."""

    def __init__(self, secrets: Mapping[str, str]):
        self._masks: dict[str, str] = {}
        for name, secret in secrets.items():
            if len(secret) < SHORTEST_SECRET:
                continue
            for form in _forms(secret):
                self._masks.setdefault(form, f"[masked {name}]")
        longest_first = sorted(self._masks, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Redactor:
        """Take every variable whose name says that it holds a secret."""
        return cls({name: value.strip() for name, value in environment.items() if _SECRET_NAME.search(name)})

    def text(self, text: str) -> str:
        """Mask the secrets in `text`."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._masks[found[0]], text)

    def value(self, value: Any) -> Any:
        """Mask the secrets in every string of a JSON-like value; the value itself is left as it is."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.value(item) for item in value)
        return value

    def stream(self) -> StreamRedactor:
        """Give a redactor for text that comes in pieces, where a secret may lie across two of them."""
        return StreamRedactor(self)

    def held_back(self, text: str) -> int:
        """Count the characters at the end of `text` that may be the beginning of a secret."""
        most = 0
        for form in self._masks:
            for size in range(min(len(form) - 1, len(text)), most, -1):
                if text.endswith(form[:size]):
                    most = size
                    break
        return most


class StreamRedactor:
    """Masks a text that comes in pieces: keeps back what may be the beginning of a secret."""

    def __init__(self, redactor: Redactor):
        self._redactor = redactor
        self._kept = ""

    def feed(self, piece: str) -> str:
        """Give what is safe to show now."""
        text = self._redactor.text(self._kept + piece)
        held = self._redactor.held_back(text)
        self._kept = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """Give the rest: the text is over, so it was no secret."""
        rest, self._kept = self._kept, ""
        return rest


def _forms(secret: str) -> set[str]:
    """The ways a secret is usually written down: plain, URL-encoded, base64 (at each byte offset), escaped."""
    forms = {secret, quote(secret, safe=""), repr(secret)[1:-1]}
    raw = secret.encode()
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
        # The first and last characters also hold bits of the neighbours.
        inner = encoded[(0, 2, 3)[offset] : len(encoded) - (1 if (len(raw) + offset) % 3 else 0)]
        if len(inner) >= SHORTEST_SECRET:
            forms.add(inner)
    return forms
