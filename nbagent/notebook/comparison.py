"""Whether a cell gave again what it gave before: the rules for what may differ.

Times, durations, addresses, process numbers, temporary paths, the order of sets and the width of columns may;
so may the last digits of a float, and a picture's bytes as long as it has the same size and looks the same.
What goes to stderr (warnings, progress) is not compared.
"""

from __future__ import annotations

import ast
import base64
import binascii
import io
import re
import struct
from collections.abc import Sequence
from html.parser import HTMLParser
from importlib.util import find_spec
from typing import Any

#: How far two floats may lie apart, relative to the larger: sums in another order, other builds of a library.
RELATIVE = 1e-9
#: Bits of a picture's perceptual hash (of 64) that may differ.
MOST_BITS = 6
#: Sides of two pictures may differ by this share: fonts differ from machine to machine.
SIDE_SHARE = 0.02
LONGEST_SHOWN = 120

_REPLACED = (
    (re.compile(r"\x1b\[[0-9;]*[A-Za-z]"), ""),
    (re.compile(r"^(CPU times|Wall time): .*$|^.* per loop \(.*\)$", re.MULTILINE), "[timing]"),
    (re.compile(r"\b0x[0-9a-fA-F]{6,}\b"), "0x…"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "[time]"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b"), "[time]"),
    (
        re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?\s?(?:ns|µs|us|μs|ms|s|sec|secs|seconds|min|minutes)\b"),
        "[duration]",
    ),
    (re.compile(r"(?<=[±+-] )\[duration\]"), "[duration]"),
    (re.compile(r"\b(?:pid|PID|process|thread)[ =:]+\d+"), "[process]"),
    (re.compile(r"ipykernel_\d+"), "ipykernel"),
    (re.compile(r"/tmp/[\w./-]+|/var/folders/[\w./-]+"), "[temporary]"),  # noqa: S108 - a pattern
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "[uuid]"),
    (re.compile(r"\bdisplay_id='?[0-9a-f]{32}"), "display_id="),
    (re.compile(r"\bT_[0-9a-f]{5,}"), "T_"),
    (re.compile(r"(?<=In \[)\d+(?=\])|(?<=Cell )In\s?\[\d+\]"), "…"),
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
_SET = re.compile(r"\{[^{}]*\}")
_RULE = re.compile(r"[-─━=_]{3,}")


def difference(before: Sequence[Any], now: Sequence[Any]) -> str:
    """Say in one line how the outputs of a cell differ; "" where they do not."""
    expected, given = _told(before), _told(now)
    for kind in ("error", "text", "result", "image"):
        olds, news = expected.get(kind, []), given.get(kind, [])
        if len(olds) != len(news):
            return f"gave {len(news)} {_many(kind, len(news))} in place of {len(olds)}"
        for old, new in zip(olds, news, strict=True):
            found = _image_difference(old, new) if kind == "image" else _text_difference(old, new)
            if found:
                return found
    return ""


def _told(outputs: Sequence[Any]) -> dict[str, list[Any]]:
    """Sort outputs by what is compared: the text of stdout as one, values, pictures, the error."""
    told: dict[str, list[Any]] = {}
    printed = ""
    for output in outputs:
        kind = output.get("output_type")
        if kind == "stream":
            printed += "" if output.get("name") == "stderr" else _joined(output.get("text", ""))
        elif kind == "error":
            told.setdefault("error", []).append(f"{output.get('ename', '')}: {output.get('evalue', '')}")
        elif kind in ("display_data", "execute_result"):
            data = output.get("data", {})
            pictures = {mime: data[mime] for mime in data if mime.startswith("image/")}
            if pictures:
                told.setdefault("image", []).append(pictures)
            elif "text/plain" in data:
                told.setdefault("result", []).append(_joined(data["text/plain"]))
            elif "text/html" in data:
                told.setdefault("result", []).append(_plain(_joined(data["text/html"])))
            else:
                told.setdefault("result", []).append(repr(sorted(data)))
    if printed.strip():
        told["text"] = [printed]
    return told


def _text_difference(old: str, new: str) -> str:
    before, now = _lines(old), _lines(new)
    for first, second in zip(before, now, strict=False):
        if not _same_line(first, second):
            return f"gave {_short(second)} in place of {_short(first)}"
    if len(before) != len(now):
        return f"gave {len(now)} {_many('line', len(now))} in place of {len(before)}"
    return ""


def _lines(text: str) -> list[str]:
    """Give the lines that count, each with what may differ replaced."""
    for pattern, stand_in in _REPLACED:
        text = pattern.sub(stand_in, text)
    text = _SET.sub(_sorted_set, text)
    lines = (" ".join(_RULE.sub("---", line).split()) for line in text.splitlines())
    return [line for line in lines if line]


def _sorted_set(found: re.Match[str]) -> str:
    """Write a set in one order; a dictionary keeps its own."""
    try:
        value = ast.literal_eval(found[0])
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return found[0]
    return "{" + ", ".join(sorted(map(repr, value))) + "}" if isinstance(value, set) else found[0]


def _same_line(first: str, second: str) -> bool:
    if first == second:
        return True
    if _NUMBER.sub("#", first) != _NUMBER.sub("#", second):
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    return all(one == other or _close(one, other) for one, other in pairs)


def _close(one: str, other: str) -> bool:
    """Whether two figures differ in the last digits of a float only; whole numbers have none."""
    if not {".", "e", "E"} & set(one + other):
        return False
    first, second = float(one), float(other)
    return abs(first - second) <= RELATIVE * max(abs(first), abs(second))


def _image_difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    mimes = [mime for mime in old if mime in new]
    if not mimes:
        return f"gave a picture as {', '.join(new)} in place of {', '.join(old)}"
    for mime in mimes:
        if mime == "image/svg+xml":
            continue  # identifiers and coordinates differ from run to run; that there is one has been seen
        first, second = _bytes(old[mime]), _bytes(new[mime])
        if first == second:
            continue
        sizes = _size(first), _size(second)
        if sizes[0] and sizes[1]:
            (wide, high), (now_wide, now_high) = sizes[0], sizes[1]
            if abs(wide - now_wide) > SIDE_SHARE * wide or abs(high - now_high) > SIDE_SHARE * high:
                return f"gave a picture of {now_wide}x{now_high} in place of {wide}x{high}"
        hashes = _look(first), _look(second)
        if hashes[0] is not None and hashes[1] is not None and (hashes[0] ^ hashes[1]).bit_count() > MOST_BITS:
            return "gave a picture that looks different"
    return ""


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_joined(value))
    except (binascii.Error, ValueError):
        return _joined(value).encode()


def _size(picture: bytes) -> tuple[int, int] | None:
    """Give width and height of a PNG."""
    if picture[:8] != b"\x89PNG\r\n\x1a\n" or len(picture) < 24:
        return None
    wide, high = struct.unpack(">II", picture[16:24])
    return wide, high


def _look(picture: bytes) -> int | None:
    """Give a hash of what a picture looks like: of each of 8x8 fields, whether it is darker than its neighbour.

    None where Pillow, which all that draw pictures bring along, is not there, or cannot read it.
    """
    if find_spec("PIL") is None:
        return None
    from PIL import Image, UnidentifiedImageError

    try:
        small = Image.open(io.BytesIO(picture)).convert("L").resize((9, 8), Image.Resampling.LANCZOS)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):
        return None
    pixels = small.tobytes()
    bits = 0
    for row in range(8):
        for column in range(8):
            left, right = pixels[9 * row + column], pixels[9 * row + column + 1]
            bits = bits << 1 | (left > right + 2)  # a plain background is no pattern
    return bits


class _Text(HTMLParser):
    """Takes the text out of HTML, a line for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in ("style", "script")
        self.parts.append("\n" if tag in ("tr", "p", "div", "br", "li") else " ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def _plain(text: str) -> str:
    reader = _Text()
    reader.feed(text)
    return "".join(reader.parts)


def _joined(value: Any) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(text: str) -> str:
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…")


def _many(kind: str, count: int) -> str:
    word = {"text": "printed text", "image": "picture"}.get(kind, kind)
    return word if count == 1 else f"{word}s"
