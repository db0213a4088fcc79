"""Runs code in a kernel and gathers what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from nbagent.events import Output
from nbagent.kernels.process import ProcessKernel
from nbagent.protocols import Executed, Kernel


@dataclass
class Ran:
    outputs: list[Output]
    executed: Executed

    def text(self, *names: str) -> str:
        streams = [o for o in self.outputs if o["output_type"] == "stream" and o["name"] in (names or ("stdout",))]
        return "".join(o["text"] for o in streams)

    def rich(self, mime: str) -> list[Any]:
        return [o["data"][mime] for o in self.outputs if mime in o.get("data", {})]

    @property
    def changes(self) -> dict[str, tuple[str, str]]:
        return {v.name: (v.type, v.summary) for v in self.executed.changes}


async def run(kernel: ProcessKernel, code: str, timeout: float = 30) -> Ran:
    outputs: list[Output] = []
    executed: list[Executed] = []
    async for item in kernel.execute(code, timeout=timeout):
        assert not executed, "something came after the end"
        if isinstance(item, Executed):
            executed.append(item)
        else:
            outputs.append(item)
    return Ran(outputs, executed[0])


async def value(kernel: ProcessKernel, expression: str) -> str:
    ran = await run(kernel, f"print({expression})")
    assert ran.executed.status == "ok", ran.executed.error
    return ran.text().strip()


def make_kernel(tmp_path: Path, kind: type[ProcessKernel] = ProcessKernel, **options: Any) -> ProcessKernel:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    return kind(folder=folder, scratch=tmp_path / "scratch", **options)


def gone(pid: int) -> bool:
    """Whether a process has ended with all of its threads (a zombie has)."""
    try:
        process = psutil.Process(pid)
        return bool(process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1)
    except psutil.NoSuchProcess:
        return True


#: The protocol is kept: a type checker sees it here.
PROTOCOL: type[Kernel] = ProcessKernel
KernelMaker = Callable[..., ProcessKernel]
