"""What is done to every text of a session before it goes into a file that may be passed on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from nbagent.redaction import Redactor


class Texts:
    """Masks secrets, and shows the session's folder as `.` and the home folder as `~`."""

    def __init__(self, redactor: Redactor | None, folders: Iterable[str], home: Path):
        self.redactor = redactor
        self._folders = [_path_pattern(folder) for folder in sorted(set(folders), key=len, reverse=True) if folder]
        self._home = _path_pattern(str(home))

    def mask(self, text: str) -> str:
        """Mask the secrets of code and data."""
        valid = text.encode("utf-8", "replace").decode("utf-8")
        return valid if self.redactor is None else self.redactor.text(valid)

    def clean(self, text: str) -> str:
        """Mask the secrets of text that people read, and shorten its paths."""
        text = self.mask(text)
        for folder in self._folders:
            text = folder.sub(lambda found: "" if found["slash"] else ".", text)
        return self._home.sub(lambda found: "~" + (found["slash"] or ""), text)


def _path_pattern(folder: str) -> re.Pattern[str]:
    folder = folder.rstrip("/\\")
    if not folder:  # the root is part of every path: nothing private
        return re.compile(r"(?!)(?P<slash>)")
    return re.compile(rf"(?<![\w.~-]){re.escape(folder)}(?:(?P<slash>[/\\])|(?![\w-]|\.\w))")
