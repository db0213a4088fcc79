"""How a program of the system ended that ran beside the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """How a program ended. `code` is negative for a signal; `not_started` says why there was none to run."""

    status: Literal["ended", "timeout"]
    code: int
    seconds: float
    left_running: bool = False  #: it left something in the background, which was ended
    not_started: str = ""
    held: str = ""  #: what held it, in words; "" where nothing did
