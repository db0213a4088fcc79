"""Drives a real JupyterLab in a real Chromium, the way a person would.

    lab = Lab(folder); lab.write("a.ipynb", ["1 + 1"]); lab.open("a.ipynb"); lab.run(0); lab.text(0); lab.close()

One server and one browser serve many notebooks; each `open` is a fresh Lab workspace.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Locator, Page, sync_playwright

ROOT = Path(__file__).parent.parent.parent
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_CELL = "window.jupyterapp.shell.currentWidget.content.widgets[i]"


class Lab:
    """A JupyterLab server with private settings in `folder`, and one page that shows it."""

    def __init__(
        self, folder: Path, *, width: int = 1200, height: int = 900, environment: dict[str, str] | None = None
    ):
        self.folder = folder / "notebooks"
        self.folder.mkdir(parents=True)
        self.console: list[str] = []  #: errors that the page reported
        self._server, self.address = _start_server(folder, self.folder, environment or {})
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"), args=FLAGS
        )
        self.page: Page = self._browser.new_page(viewport={"width": width, "height": height})
        self.page.on("pageerror", lambda error: self.console.append(str(error)))

    def close(self) -> None:
        """End the browser, the server and the kernels that the server started."""
        self._browser.close()
        self._playwright.stop()
        self._server.terminate()
        try:
            self._server.wait(20)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def write(self, name: str, cells: Sequence[str]) -> Path:
        """Make a notebook of code cells."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        path = self.folder / name
        nbformat.write(notebook, path)
        return path

    def open(self, name: str, *, kernel: bool = True) -> None:
        """Show a notebook in a new workspace and wait for its kernel."""
        suffix = "" if kernel else "?reset"
        self.page.goto(f"{self.address}/lab/workspaces/w{time.time_ns()}/tree/{name}{suffix}")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        if kernel:
            self.page.wait_for_function(
                "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
                timeout=60_000,
            )

    def run(self, index: int, *, wait: bool = True, timeout: float = 60) -> None:
        """Run one cell; with `wait`, until it has ended."""
        self.page.evaluate(
            "i => { const n = window.jupyterapp.shell.currentWidget.content; n.activeCellIndex = i; n.deselectAll();"
            " n.widgets[i].model.sharedModel.execution_count = null;"
            " window.jupyterapp.commands.execute('notebook:run-cell'); return null; }",
            index,
        )
        if wait:
            self.wait(index, timeout)

    def wait(self, index: int, timeout: float = 60) -> None:
        """Wait until a cell that was started has ended."""
        self.page.wait_for_function(
            f"i => {{ const c = {_CELL}; return c.model.executionCount !== null && c.model.executionState !== 'running'"
            " && window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'; }",
            arg=index,
            timeout=timeout * 1000,
        )

    def running(self, index: int) -> bool:
        """Say whether a cell still runs."""
        return bool(self.page.evaluate(f"i => {_CELL}.model.executionState === 'running'", index))

    def until(self, condition: Callable[[], bool], timeout: float = 15) -> None:
        """Wait until a condition of the test's own holds."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "what was waited for did not happen"
            self.page.wait_for_timeout(20)

    def cell(self, index: int) -> Locator:
        """Give the place of a cell in the page."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """Give a cell's outputs as nbformat has them."""
        outputs: list[dict[str, Any]] = self.page.evaluate(f"i => {_CELL}.model.toJSON().outputs", index)
        return outputs

    def text(self, index: int) -> str:
        """Give what stands under a cell, as it is read."""
        return str(self.page.evaluate(f"i => {_CELL}.outputArea.node.innerText", index))

    def interrupt(self) -> None:
        """Press the toolbar's Interrupt."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:interrupt-kernel')")

    def save(self) -> None:
        """Save the notebook and wait until it is on disk."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save()")

    def shut_down_kernel(self) -> None:
        """End the notebook's kernel."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    def theme(self, name: str) -> None:
        """Choose `JupyterLab Light` or `JupyterLab Dark`."""
        self.page.evaluate("t => window.jupyterapp.commands.execute('apputils:change-theme', {theme: t})", name)
        self.page.wait_for_function("t => document.body.dataset.jpThemeName === t", arg=name)

    def size(self, width: int, height: int = 900) -> None:
        """Resize the window."""
        self.page.set_viewport_size({"width": width, "height": height})

    def screenshot(self, path: Path) -> None:
        """Take a picture of the window."""
        self.page.screenshot(path=str(path))


def _start_server(
    folder: Path, notebooks: Path, environment: dict[str, str]
) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    private = {
        name: str(folder / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "NBAGENT_HOME")
    }
    clean = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    log = (folder / "server.log").open("wb")
    options = {
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.root_dir": notebooks,
        "ServerApp.allow_root": True,
        "IdentityProvider.token": "",
        "LabApp.expose_app_in_browser": True,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.news_url": None,
        "LabApp.workspaces_dir": folder / "workspaces",
        "LabApp.user_settings_dir": folder / "settings",
    }
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        stdout=log,
        stderr=log,
        env=clean | private | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""} | environment,
    )
    log.close()
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while True:
        assert server.poll() is None, (folder / "server.log").read_text()
        try:
            with urllib.request.urlopen(f"{address}/api", timeout=5):
                return server, address
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < deadline, "JupyterLab did not start"
            time.sleep(0.1)
