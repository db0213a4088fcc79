"""A context for tools over a real kernel, recording what is emitted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nbagent.events import Event
from nbagent.kernels.process import ProcessKernel
from nbagent.protocols import Approval, ApprovalRequest, Host, Kept, Kernel
from nbagent.redaction import Redactor

E = TypeVar("E", bound=Event)


@dataclass
class Context:
    """Implements `protocols.ToolContext`."""

    kernel: Kernel
    session_folder: Path
    folder: Path
    host: Host | None = None
    allow_write: tuple[Path, ...] = ()
    redactor: Redactor = field(default_factory=lambda: Redactor({}))
    nonce: str = "3fa9c1"
    cell_timeout: float = 30
    observation_characters: int = 4000
    image_pixels: int = 0
    events: list[Event] = field(default_factory=list)
    things: dict[type[Any], Any] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def kept(self, kind: type[Kept]) -> Kept:
        thing: Kept = self.things.setdefault(kind, kind())
        return thing

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class User:
    """Answers every question in one way and remembers what was asked."""

    answer: Approval
    asked: list[ApprovalRequest] = field(default_factory=list)

    async def __call__(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        return self.answer


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
async def context(tmp_path: Path, workspace: Path) -> AsyncIterator[Context]:
    """The kernel starts with the first code that runs."""
    kernel = ProcessKernel(folder=workspace, scratch=tmp_path / "scratch")
    session = tmp_path / "session"
    session.mkdir()
    yield Context(kernel, session, workspace)
    await kernel.close()
