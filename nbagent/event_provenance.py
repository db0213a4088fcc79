"""Events of what a result came from: packages that code imported, files that it found, the user's own cells."""

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


class UsersCells(Event):
    """The user's cells that ran in the kernel which the agent's code works in, or in the one it is a copy of.

    Those that the event before told are left out, unless `anew`: then the copy is a new one.
    """

    type: Literal["UsersCells"] = "UsersCells"
    cells: list[str]
    names: dict[str, str]  #: the variables that there are, each with type and summary
    anew: bool = False


ProvenanceEvent = PackagesImported | DataFilesSeen | UsersCells
