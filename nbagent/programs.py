"""How a program of the system ended that ran beside the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class PackageChange:
    """A package that an installer brought, replaced or took away; a version is "" where there is none."""

    name: str
    before: str
    now: str


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """How a program ended. `code` is negative for a signal; `not_started` says why there was none to run."""

    status: Literal["ended", "timeout"]
    code: int
    seconds: float
    left_running: bool = False  #: it left something in the background, which was ended
    not_started: str = ""
    advice: str = ""  #: what may have stopped it and how to allow that; "" where nothing held it
    packages: tuple[PackageChange, ...] = ()  #: of an installer: what changed in the environment
    folders: tuple[Path, ...] = ()  #: of an installer: where modules are imported from
