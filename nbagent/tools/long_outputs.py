"""Keeps what was too long for an observation, under a handle that `read_output` takes."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = "observations"  #: within the session folder
_HANDLE = re.compile(r"o\d{1,9}")


def keep(text: str, session_folder: Path) -> str:
    """Store a text and give its handle, e.g. `o3`; "" where it cannot be stored."""
    folder = session_folder / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = max((int(file.stem[1:]) for file in folder.glob("o*.txt") if file.stem[1:].isdigit()), default=0)
        handle = f"o{number + 1}"
        (folder / f"{handle}.txt").write_text(text, encoding="utf-8", errors="replace", newline="\n")
    except OSError:
        return ""
    return handle


def file_of(handle: str, session_folder: Path) -> Path | None:
    """Give the file that holds a text; None where there is no such handle."""
    handle = handle.strip().strip("\"'`[]").lower()
    file = session_folder / FOLDER / f"{handle}.txt"
    return file if _HANDLE.fullmatch(handle) and file.is_file() else None


def handles(session_folder: Path) -> list[str]:
    """Give the handles there are, oldest first."""
    files = (session_folder / FOLDER).glob("o*.txt")
    return [file.stem for file in sorted(files, key=lambda file: (len(file.stem), file.stem))]
