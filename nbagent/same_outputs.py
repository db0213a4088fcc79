"""Whether code that runs a second time gives what it gave the first time.

Printed text and results are compared, without memory addresses; warnings, progress and pictures are not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from nbagent.events import Output

LONGEST_LINE = 100  #: characters of an output line that is quoted
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
_MASKED = re.compile(r"\[masked [\w -]+\]")


def lines_of(outputs: Iterable[Output]) -> list[str]:
    """Give what is compared of outputs, line by line."""
    parts = []
    for output in outputs:
        if output.get("output_type") == "stream" and output.get("name") == "stdout":
            parts.append(_joined(output.get("text")))
        elif output.get("output_type") in ("execute_result", "display_data"):
            parts.append(f"{_joined(output.get('data', {}).get('text/plain'))}\n")
    return [line.rstrip() for line in _ADDRESS.sub("0x", "".join(parts)).rstrip().splitlines()]


def digest_of(outputs: Iterable[Output]) -> str:
    """Give a hash that is the same for outputs that compare equal."""
    return hashlib.sha256("\n".join(lines_of(outputs)).encode("utf-8", "replace")).hexdigest()[:16]


def quoted(line: str) -> str:
    """Quote a line of output, cut to size."""
    text = line.strip()
    text = text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"
    return f"“{text}”" if text else "nothing"


def is_masked(code: str) -> bool:
    """Whether a secret was masked in stored code: it is not the code that ran."""
    return bool(_MASKED.search(code))


def _joined(text: object) -> str:
    """Give nbformat's multi-line string as one string."""
    return "".join(map(str, text)) if isinstance(text, list | tuple) else "" if text is None else str(text)
