"""Events of what a result came from: the packages that code imported and the files that it found."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from nbagent.event_base import Event


class PackagesImported(Event):
    """Code imported packages, itself or through others; a version for each name, as it is imported."""

    type: Literal["PackagesImported"] = "PackagesImported"
    packages: dict[str, str]


class DataFile(BaseModel):
    """One file as it was before a cell ran. `path` is relative to the session's folder where it lies in it."""

    model_config = ConfigDict(frozen=True)

    path: str
    size: int  #: bytes
    sha256: str  #: "" for a file that is too large to be read for this


class DataFilesSeen(Event):
    """Code that is about to run names these files, and they are there. Each is told once, and when it differs."""

    type: Literal["DataFilesSeen"] = "DataFilesSeen"
    files: list[DataFile]
