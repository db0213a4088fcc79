"""Drives a real JupyterLab in a real Chromium, the way a person would.

    lab = Lab(folder)
    notebook = lab.notebook("a.ipynb", ["%%agent\ngo"], server.base_url)
    notebook.run(0)

One server and one browser serve many notebooks; each `open` is a fresh Lab workspace.
"""

from __future__ import annotations

import json
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
from playwright.sync_api import Locator, Page, expect, sync_playwright

import nbagent

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
expect.set_options(timeout=60_000)  # a kernel starts in the middle of some of them, on a machine that is shared
_PANEL = "window.jupyterapp.shell.currentWidget"
_CELL = f"{_PANEL}.content.widgets[i]"


class Lab:
    """A JupyterLab server with private settings in `folder`, and one page that shows it; or Notebook 7's.

    One thread has one Playwright: a second server is shown in a page `beside` that of the first. The kernels are
    of the interpreter `python` (default: this one); this package need not be installed there, only what it needs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        width: int = 1200,
        height: int = 900,
        scale: float = 1,
        app: str = "jupyterlab",
        beside: Lab | None = None,
        python: Path | None = None,
    ) -> None:
        self.app = app
        self.python: Path | None = python or (beside.python if beside is not None else None)
        self.folder = folder / "notebooks"
        self.folder.mkdir(parents=True)
        self._settings = folder / "settings"
        self.setting(
            "@jupyterlab/apputils-extension", "notification", {"fetchNews": "false", "checkForUpdates": False}
        )
        self.page_errors: list[str] = []
        if self.python is not None:
            _offer_kernel(folder / "jupyter_data_dir" / "kernels" / "python3", self.python)
        self._server, self.address = _start_server(folder, self.folder, app)
        self._playwright = None if beside is not None else sync_playwright().start()
        if self._playwright is not None:
            self._browser = self._playwright.chromium.launch(
                executable_path=shutil.which("chromium") or shutil.which("chromium-browser"), args=FLAGS
            )
        else:
            assert beside is not None
            self._browser = beside._browser
        self.page: Page = self._browser.new_page(
            viewport={"width": width, "height": height}, device_scale_factor=scale
        )
        self.page.set_default_navigation_timeout(120_000)
        self.page.set_default_timeout(60_000)
        self.page.on("dialog", lambda dialog: dialog.accept())  # it asks before it leaves what was not saved
        self.page.on("pageerror", lambda error: self.page_errors.append(str(error)))

    def close(self) -> None:
        """End the browser, the server and the kernels that the server started."""
        self.page.close()
        if self._playwright is not None:
            self._browser.close()
            self._playwright.stop()
        self._server.terminate()
        try:
            self._server.wait(20)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def notebook(self, name: str, cells: Sequence[str], base_url: str) -> Notebook:
        """Make a notebook of code cells, open it and load the magic with the model at `base_url`."""
        settings = {"NBAGENT_BASE_URL": base_url, "NBAGENT_MODEL": "stub"}
        setup = f"import os\nos.environ.update({settings!r})\n%load_ext nbagent"
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (*cells, setup)])
        made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(made, self.folder / name)
        notebook = Notebook(self, name)
        notebook.open()
        notebook.run(len(cells))
        return notebook

    def leave(self) -> None:
        """Leave the page: nothing that it does is heard of any more."""
        self.page.goto("about:blank")

    def until(self, condition: Callable[[], bool], timeout: float = 60) -> None:
        """Wait until a condition of the test's own holds, and let the page work meanwhile."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "what was waited for did not happen"
            self.page.wait_for_timeout(10)

    def setting(self, package: str, plugin: str, values: dict[str, Any]) -> None:
        """Set the user's settings of one of Lab's plugins; pages that are opened later have them."""
        file = self._settings / package / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))

    def count_received(self) -> Received:
        """Count from now on what comes to the page over its websockets."""
        received = Received()
        session = self.page.context.new_cdp_session(self.page)
        session.send("Network.enable")
        session.on("Network.webSocketFrameReceived", received.take)
        return received

    def count_work(self) -> Callable[[], float]:
        """Give what tells the seconds that the page's main thread has worked from now on."""
        session = self.page.context.new_cdp_session(self.page)
        session.send("Performance.enable")

        def seconds() -> float:
            told = session.send("Performance.getMetrics")["metrics"]
            return float(next(one["value"] for one in told if one["name"] == "TaskDuration"))

        return seconds

    def theme(self, name: str) -> None:
        """Choose `JupyterLab Light` or `JupyterLab Dark`."""
        self.page.evaluate("t => window.jupyterapp.commands.execute('apputils:change-theme', {theme: t})", name)
        self.page.wait_for_function("t => document.body.dataset.jpThemeName === t", arg=name)


class Received:
    """Frames that came over websockets, and their bytes."""

    def __init__(self) -> None:
        self.frames = 0
        self.bytes = 0

    def take(self, event: dict[str, Any]) -> None:
        """Count one frame, as Chromium tells of it: binary ones in base64."""
        frame = event["response"]
        self.frames += 1
        length = len(frame["payloadData"])
        self.bytes += length * 3 // 4 if frame["opcode"] == 2 else length


class Notebook:
    """A notebook in the page. Cells are counted from 0; times are seconds."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.page = lab.page
        self.name = name
        self.path = lab.folder / name

    def open(self, *, kernel: bool = True) -> None:
        """Show it in a new workspace and, with `kernel`, wait for that."""
        tree = f"lab/workspaces/w{time.time_ns()}/tree" if self.lab.app == "jupyterlab" else "notebooks"
        self.page.goto(f"{self.lab.address}/{tree}/{self.name}")
        self._shown()
        if kernel:
            self.page.wait_for_function(
                f"{_PANEL}?.sessionContext?.session?.kernel?.status === 'idle'", timeout=60_000
            )

    def open_without_kernel(self) -> None:
        """Show it as someone who only reads it."""
        metadata = nbformat.read(self.path, as_version=4)
        metadata.metadata.pop("kernelspec")
        metadata.metadata["kernelspec"] = {"name": "none-here", "display_name": "None", "language": "python"}
        nbformat.write(metadata, self.path)
        self.open(kernel=False)

    def reload(self) -> None:
        """Load the page again, as F5 does."""
        self.page.reload()
        self._shown()

    def _shown(self) -> None:
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)

    def run(self, index: int, *, wait: bool = True, timeout: float = 60) -> None:
        """Run one cell; with `wait`, until it has ended."""
        self.page.evaluate(
            f"i => {{ const n = {_PANEL}.content; n.activeCellIndex = i; n.deselectAll();"
            " n.widgets[i].model.sharedModel.execution_count = null;"
            " window.jupyterapp.commands.execute('notebook:run-cell'); return null; }",
            index,
        )
        if wait:
            self.wait(index, timeout)

    def wait(self, index: int, timeout: float = 60) -> None:
        """Wait until a cell that was started has ended."""
        self.page.wait_for_function(
            f"i => {{ const c = {_CELL}.model; return c.executionCount !== null && c.executionState !== 'running'"
            f" && {_PANEL}.sessionContext.session.kernel.status === 'idle'; }}",
            arg=index,
            timeout=timeout * 1000,
        )

    def running(self, index: int) -> bool:
        """Say whether a cell still runs."""
        return bool(self.page.evaluate(f"i => {_CELL}.model.executionState === 'running'", index))

    def ended_after(self, index: int, action: str) -> int:
        """Do something in the page; give the milliseconds until the running cell has ended."""
        script = (
            f"async i => {{ const began = performance.now(); {action};"
            f" while ({_CELL}.model.executionState === 'running') await new Promise(done => setTimeout(done, 5));"
            " return performance.now() - began; }"
        )
        return round(float(self.page.evaluate(script, index)))

    def cell(self, index: int) -> Locator:
        """Give the place of a cell in the page."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def find(self, selector: str) -> Locator:
        """Give the first place in the notebook that the selector fits."""
        return self.page.locator(f".jp-Notebook {selector}").first

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
        """Save it and wait until it is on disk."""
        self.page.evaluate(f"() => {_PANEL}.context.save()")

    def shut_down_kernel(self) -> None:
        """End its kernel, if it has one."""
        self.page.evaluate("() => window.jupyterapp?.shell.currentWidget.sessionContext.shutdown()")


def _offer_kernel(folder: Path, python: Path) -> None:
    spec = {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
        "env": {"PYTHONPATH": str(Path(nbagent.__file__).parent.parent)},
    }
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec))


def _start_server(folder: Path, notebooks: Path, app: str) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    private = {
        name: str(folder / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "NBAGENT_HOME")
    }
    environment = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    options = {
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.root_dir": notebooks,
        "ServerApp.allow_root": True,
        "IdentityProvider.token": "",
        "LabApp.expose_app_in_browser": True,
        "JupyterNotebookApp.expose_app_in_browser": True,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.news_url": None,
        "LabApp.workspaces_dir": folder / "workspaces",
        "LabApp.user_settings_dir": folder / "settings",
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", app, "--no-browser", *arguments],
            stdout=log,
            stderr=log,
            env=environment | private | {"PYTHONWARNINGS": ""},
        )
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
