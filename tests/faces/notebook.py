"""Runs cells in a real kernel, as nbclient does for papermill and continuous integration."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager


class Cells:
    """One kernel; `run` gives a cell's outputs as nbformat dicts."""

    def __init__(self, client: Any, interrupt: Callable[[], None]) -> None:
        self._client = client
        self._interrupt = interrupt

    def run(
        self, code: str, *, timeout: float = 60, answer: Callable[[str], str] | None = None
    ) -> list[dict[str, Any]]:
        """Run a cell. With `answer`, which is asked what the kernel asks, as a front end where somebody sits."""
        self.displayed: list[dict[str, Any]] = []  # as it first came, before any update
        outputs: list[dict[str, Any]] = []
        handles: dict[str, int] = {}

        def take(message: dict[str, Any]) -> None:
            content, kind = message["content"], message["msg_type"]
            display = content.get("transient", {}).get("display_id") if isinstance(content, dict) else None
            if kind == "display_data":
                self.displayed.append(content["data"])
            if kind == "update_display_data" and display in handles:
                outputs[handles[display]] = {"output_type": "display_data", **content}
            elif kind in ("stream", "display_data", "execute_result", "error"):
                if display:
                    handles[display] = len(outputs)
                before = outputs[-1] if outputs else {}
                # One stream in two messages is one output, as front ends hold it.
                if kind == "stream" and before.get("name") == content["name"]:
                    before["text"] += content["text"]
                else:
                    outputs.append({"output_type": kind, **content})

        def asked(message: dict[str, Any]) -> None:
            assert answer is not None
            self._client.input(answer(message["content"]["prompt"]))

        options = {"allow_stdin": answer is not None, "stdin_hook": asked, "timeout": timeout}
        reply = self._client.execute_interactive(code, output_hook=take, **options)
        self.status: str = reply["content"]["status"]
        return outputs

    def text_when_stopped(self, code: str, *, begun: Callable[[], object]) -> str:
        """Run a cell, interrupt it once `begun` returns, and give all its plain text."""
        return "\n".join(map(plain, self.stopped(code, begun=begun)))

    def stopped(self, code: str, *, begun: Callable[[], object]) -> list[dict[str, Any]]:
        """Run a cell, interrupt it once `begun` returns, and give its outputs."""

        def stop() -> None:
            begun()
            self._interrupt()

        with ThreadPoolExecutor(1) as other:
            stopped = other.submit(stop)
            outputs = self.run(code)
            stopped.result()
        return outputs

    def text(self, code: str, *, timeout: float = 60) -> str:
        """Run a cell and give all its plain text."""
        return "\n".join(map(plain, self.run(code, timeout=timeout)))


def plain(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return str(output["text"])
    if output["output_type"] == "error":
        return "\n".join(output["traceback"])
    return str(output["data"].get("text/plain", ""))


@contextmanager
def kernel(folder: Path, environment: dict[str, str], python: Path = Path(sys.executable)) -> Iterator[Cells]:
    """A kernel of an interpreter, by default this one, working in `folder`."""
    manager = KernelManager()
    manager._kernel_spec = KernelSpec(
        argv=[str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="Python",
        language="python",
    )
    manager.start_kernel(cwd=str(folder), env={**os.environ, **environment})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        # As the manager would, but from any thread: its own way makes an event loop in each that it never closes.
        yield Cells(client, lambda: os.kill(manager.provisioner.pid, signal.SIGINT))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)
        manager.cleanup_resources()
