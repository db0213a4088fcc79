"""Outputs as kernels made them, brought into the form that nbformat allows.

Every output is kept in a valid form or replaced by a one-line note; none goes missing silently.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nbagent.events import Output

#: Characters of one text, or of one image's base64, that an export keeps.
LARGEST_VALUE = 2_000_000
#: Characters of all outputs together; what comes after is replaced by notes.
LARGEST_TOTAL = 50_000_000
_JSON_TYPE = re.compile(r"application/(.*\+)?json")

TextFilter = Callable[[str], str]


class OutputCleaner:
    """Turns the outputs of one notebook's cells into valid ones, in order.

    `clean_text` is applied to each text that people read (streams, tracebacks, `text/*`), `mask` to every
    other string.
    """

    def __init__(self, clean_text: TextFilter, mask: TextFilter):
        self._clean_text = clean_text
        self._mask = mask
        self._left = LARGEST_TOTAL
        self._displays: dict[str, list[Output]] = {}

    def cell(self, outputs: Iterable[Output], execution_count: int) -> list[Output]:
        """Give the valid outputs of one cell."""
        kept: list[Output] = []
        clear = False
        for output in outputs:
            kind = output.get("output_type")
            if kind == "clear_output":
                clear = bool(output.get("wait"))
                kept = kept if clear else []
                continue
            if clear:
                kept, clear = [], False
            if kind == "update_display_data" and self._update(output):
                continue
            self._add(kept, output, execution_count)
        for output in kept:
            if output["output_type"] == "stream":
                output["text"] = self._fit(self._clean_text(output["text"]))
        return kept

    def _add(self, kept: list[Output], output: Output, execution_count: int) -> None:
        kind = output.get("output_type")
        if kind == "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            text = _text(output.get("text", ""))
            if kept and kept[-1]["output_type"] == "stream" and kept[-1]["name"] == name:
                kept[-1]["text"] += text
            else:
                kept.append({"output_type": "stream", "name": name, "text": text})
        elif kind in ("display_data", "update_display_data", "execute_result"):
            made: Output = {"output_type": "display_data", **self._bundle(output)}
            if kind == "execute_result":
                made |= {"output_type": "execute_result", "execution_count": execution_count}
            self._remember(output, made)
            kept.append(made)
        elif kind == "error":
            traceback = output.get("traceback", [])
            lines = traceback if isinstance(traceback, list) else [traceback]
            kept.append(
                {
                    "output_type": "error",
                    "ename": self._clean_text(_text(output.get("ename", ""))),
                    "evalue": self._fit(self._clean_text(_text(output.get("evalue", "")))),
                    "traceback": [self._fit(self._clean_text(_text(line))) for line in lines],
                }
            )
        else:
            kept.append(_note(f"[an output of type {str(kind)[:80]!r} was left out]"))

    def _bundle(self, output: Output) -> dict[str, Any]:
        data = output.get("data")
        metadata = output.get("metadata")
        kept = {}
        for mime, value in data.items() if isinstance(data, Mapping) else ():
            kept[str(mime)] = self._value(str(mime), value)
        notes = [f"[{mime} was left out: too large]" for mime, value in kept.items() if value is None]
        kept = {mime: value for mime, value in kept.items() if value is not None}
        if notes or not kept:
            kept["text/plain"] = (
                "\n".join([*filter(None, [kept.get("text/plain")]), *notes]) or "[an empty output]"
            )
        return {"data": kept, "metadata": self._json(metadata) if isinstance(metadata, Mapping) else {}}

    def _value(self, mime: str, value: Any) -> Any:
        """Give a valid value for a MIME type, or `None` where it is too large to keep and cannot be cut."""
        if _JSON_TYPE.fullmatch(mime):
            cleaned = self._json(value)
            size = len(json.dumps(cleaned))
            return cleaned if self._take(size) else None
        if isinstance(value, bytes | bytearray):
            value = base64.b64encode(value).decode()
        elif isinstance(value, Mapping) or (isinstance(value, list) and not _are_strings(value)):
            value = json.dumps(self._json(value), ensure_ascii=False)
        text = _text(value)
        if mime.startswith("text/"):
            text = self._clean_text(text)
            return self._fit(text) if mime == "text/plain" else (text if self._take(len(text)) else None)
        if mime.startswith("image/") and not mime.endswith("+xml"):
            text = "".join(text.split())
        else:
            text = self._mask(text)
        return text if self._take(len(text)) else None

    def _take(self, size: int) -> bool:
        if size > LARGEST_VALUE or size > self._left:
            return False
        self._left -= size
        return True

    def _fit(self, text: str) -> str:
        """Cut a text in its middle where it is too large, and say so."""
        limit = min(LARGEST_VALUE, max(self._left, 200))
        if len(text) > limit:
            half = limit // 2
            text = f"{text[:half]}\n[{len(text) - 2 * half} characters were left out]\n{text[-half:]}"
        self._left -= len(text)
        return text

    def _json(self, value: Any) -> Any:
        """Give a strict-JSON copy: no NaN, no bytes, string keys."""
        if isinstance(value, str):
            return self._mask(_text(value))
        if isinstance(value, Mapping):
            return {self._mask(_text(key)): self._json(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._json(item) for item in value]
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if value is None or isinstance(value, bool | int):
            return value
        return _text(value)

    def _remember(self, output: Output, made: Output) -> None:
        display = _display_id(output)
        if display:
            self._displays.setdefault(display, []).append(made)

    def _update(self, output: Output) -> bool:
        """Bring an update to the displays it is for; False where there are none."""
        shown = self._displays.get(_display_id(output), [])
        bundle = self._bundle(output) if shown else {}
        for made in shown:
            made.update(bundle)
        return bool(shown)


def _display_id(output: Output) -> str:
    transient = output.get("transient")
    return str(transient.get("display_id", "")) if isinstance(transient, Mapping) else ""


def _are_strings(value: list[Any]) -> bool:
    return all(isinstance(item, str) for item in value)


def _text(value: Any) -> str:
    """Give a string (nbformat's lists of lines joined) that UTF-8 can hold."""
    if isinstance(value, list | tuple):
        value = "".join(map(str, value))
    elif isinstance(value, bytes | bytearray):
        value = value.decode("utf-8", "replace")
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _note(text: str) -> Output:
    return {"output_type": "stream", "name": "stderr", "text": text + "\n"}
