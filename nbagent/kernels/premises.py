"""Where a kernel's code and the programs beside it work: the folder, what holds them, the environment they get."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nbagent.errors import KernelNotStarted
from nbagent.events import Output
from nbagent.kernels.confinement import Confinement, limited, surroundings
from nbagent.kernels.own_folder import OwnFolder
from nbagent.kernels.packages import install
from nbagent.kernels.programs import Place, run_program
from nbagent.parcels import SHARED_MEMORY
from nbagent.programs import ProgramEnded

#: Characters of a folder for temporary files in which sockets of multiprocessing and torch still find room.
LONGEST_TEMPORARY = 60


@dataclass
class Premises:
    """What one kernel was given to work with; `scratch` is its own."""

    python: str
    folder: Path
    scratch: Path
    confine: Literal["workspace", "strict", "off"] = "workspace"
    max_memory: float = 0
    allow_write: Sequence[Path] = ()
    hidden_environment: Sequence[str] = ()
    output_characters: int = 200_000
    _short: OwnFolder | None = field(default=None, init=False)

    def surroundings(self) -> tuple[Confinement, dict[str, str]]:
        """Give what holds code that is started now, and its environment. Raises `KernelNotStarted`."""
        if not self.folder.is_dir():
            raise KernelNotStarted(f"{self.folder} is not a folder that a kernel could work in")
        held, environment = surroundings(
            self.confine, self.folder, self.scratch, self.allow_write, self.hidden_environment
        )
        if held.active:
            environment["TMPDIR"] = str(self._temporary(Path(environment["TMPDIR"])))
        return limited(held, self.confine, self.max_memory), environment

    def run_program(self, words: Sequence[str], *, timeout: float) -> AsyncGenerator[Output | ProgramEnded, None]:
        """Run a program of the system here. Raises `KernelNotStarted`."""
        return run_program(words, self._place(), timeout=timeout)

    def install(self, arguments: Sequence[str], *, timeout: float) -> AsyncGenerator[Output | ProgramEnded, None]:
        """Install packages into the interpreter's environment. Raises `KernelNotStarted`."""
        return install(arguments, self._place(), timeout=timeout)

    def parcel(self, beside: Path = Path()) -> Path:
        """Give a new file that the kernel's code may read and write, in memory where `beside` is."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        folder = SHARED_MEMORY if beside.parent == SHARED_MEMORY else self.scratch
        return folder / f"{uuid.uuid4().hex}.pickle"

    def leave(self) -> None:
        """Take away what lies outside of `scratch`."""
        short, self._short = self._short, None
        if short is not None:
            short.remove()

    def _place(self) -> Place:
        held, environment = self.surroundings()
        return Place(self.python, self.folder, self.scratch, environment, held, self.output_characters)

    def _temporary(self, folder: Path) -> Path:
        """Give a short way to the folder of temporary files: the system takes no long names of sockets."""
        if len(str(folder)) <= LONGEST_TEMPORARY or len(tempfile.gettempdir()) > LONGEST_TEMPORARY // 2:
            return folder
        if self._short is None:
            self._short = OwnFolder()
            (self._short.path / "t").symlink_to(folder, target_is_directory=True)
        return self._short.path / "t"
