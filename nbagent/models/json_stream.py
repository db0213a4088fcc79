"""Reads JSON that is still arriving: what its strings say so far, and whether it is cut, whole or wrong."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_STRING_BODY = re.compile(r'[^"\\]+')
_LITERAL = re.compile(r"true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?")
_LITERAL_SO_FAR = re.compile(r"t(r(ue?)?)?|f(a(l(se?)?)?)?|n(u(ll?)?)?|-?\d*(\.\d*)?([eE][+-]?\d*)?")
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)

Piece = tuple[tuple[str, ...], str]


class JsonScanner:
    """An incremental scanner of one JSON value.

    `feed` gives the decoded pieces of string values, each with the path of object keys that leads to it
    (items of an array share their array's path). It forgives raw line breaks in strings and trailing
    commas, which models write and a strict parser refuses.
    """

    def __init__(self) -> None:
        self.state: Literal["open", "complete", "invalid"] = "open"
        self.consumed = 0  #: characters up to the end of the value
        self._expect = "value"
        self._containers: list[str] = []
        self._path: list[str] = []
        self._key = ""
        self._literal = ""
        self._escape: str | None = None
        self._high_surrogate = ""

    def feed(self, text: str) -> list[Piece]:
        """Read more text; give the pieces of string values in it. Text after the value is ignored."""
        pieces: list[Piece] = []
        at = 0
        while at < len(text) and self.state == "open":
            at = self._string(text, at, pieces) if "string" in self._expect else self._structure(text, at)
        self.consumed += at
        return pieces

    # -- strings --

    def _string(self, text: str, at: int, pieces: list[Piece]) -> int:
        if self._escape is not None:
            self._add(self._unescape(text[at]), pieces)
            return at + 1
        body = _STRING_BODY.match(text, at)
        if body:
            self._add(self._lone_surrogate() + body[0], pieces)
            return body.end()
        if text[at] == "\\":
            self._escape = ""
            return at + 1
        self._add(self._lone_surrogate(), pieces)
        if self._expect == "key string":
            self._path[-1] = self._key
            self._expect = "colon"
        else:
            self._value_done()
        return at + 1

    def _add(self, piece: str, pieces: list[Piece]) -> None:
        if not piece:
            return
        if self._expect == "key string":
            self._key += piece
            return
        path = tuple(self._path)
        if pieces and pieces[-1][0] == path:
            pieces[-1] = (path, pieces[-1][1] + piece)
        else:
            pieces.append((path, piece))

    def _unescape(self, character: str) -> str:
        escape = (self._escape or "") + character
        self._escape = None
        if escape in _ESCAPES:
            return self._lone_surrogate() + _ESCAPES[escape]
        if escape[0] != "u" or not re.fullmatch("[0-9a-fA-F]*", escape[1:]):
            self.state = "invalid"
            return ""
        if len(escape) < 5:
            self._escape = escape
            return ""
        code = int(escape[1:], 16)
        if 0xDC00 <= code < 0xE000 and self._high_surrogate:
            high, self._high_surrogate = ord(self._high_surrogate), ""
            return chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00))
        before = self._lone_surrogate()
        if 0xD800 <= code < 0xDC00:
            self._high_surrogate = chr(code)
            return before
        return before + chr(code)

    def _lone_surrogate(self) -> str:
        lone, self._high_surrogate = self._high_surrogate, ""
        return lone

    # -- everything else --

    def _structure(self, text: str, at: int) -> int:
        character = text[at]
        if self._expect == "literal":
            return self._literal_part(character, at)
        if character in " \t\r\n":
            return at + 1
        if self._expect in ("value", "item or end") and not (character == "]" and self._expect == "item or end"):
            self._value_start(character)
        elif self._expect == "key or end" and character == '"':
            self._key, self._expect = "", "key string"
        elif self._expect == "colon" and character == ":":
            self._expect = "value"
        elif self._expect == "comma or end" and character == ",":
            self._expect = "key or end" if self._containers[-1] == "{" else "item or end"
        elif character == ("}" if self._containers and self._containers[-1] == "{" else "]"):
            self._close(character)
        else:
            self.state = "invalid"
        return at + 1

    def _value_start(self, character: str) -> None:
        if character == '"':
            self._expect = "string"
        elif character == "{":
            self._containers.append("{")
            self._path.append("")
            self._expect = "key or end"
        elif character == "[":
            self._containers.append("[")
            self._expect = "item or end"
        elif _LITERAL_SO_FAR.fullmatch(character):
            self._literal, self._expect = character, "literal"
        else:
            self.state = "invalid"

    def _literal_part(self, character: str, at: int) -> int:
        if _LITERAL_SO_FAR.fullmatch(self._literal + character):
            self._literal += character
            return at + 1
        if _LITERAL.fullmatch(self._literal):
            self._value_done()
        else:
            self.state = "invalid"
        return at

    def _close(self, character: str) -> None:
        if not self._containers or self._expect in ("value", "colon"):
            self.state = "invalid"
            return
        self._containers.pop()
        if character == "}":
            self._path.pop()
        self._value_done()

    def _value_done(self) -> None:
        if self._containers:
            self._expect = "comma or end"
        else:
            self.state = "complete"


def parse_liberally(text: str) -> Any:
    """Parse JSON, forgiving raw line breaks in strings and trailing commas.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return json.loads(_TRAILING_COMMA.sub(lambda found: found[1] or "", text), strict=False)


def is_cut(text: str) -> bool:
    """Say whether `text` is the beginning of a JSON object, array or string whose end is missing."""
    if not text.lstrip().startswith(("{", "[", '"')):
        return False
    scanner = JsonScanner()
    scanner.feed(text)
    return scanner.state == "open"
