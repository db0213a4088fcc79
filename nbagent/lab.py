"""`nbagent lab`: JupyterLab on the quickstart notebook."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click

import nbagent
from nbagent.errors import UsageError

QUICKSTART = "quickstart.ipynb"


def open_lab(folder: Path | None, *, no_browser: bool) -> int:
    """Open JupyterLab in `folder` (default: `notebooks/` here); give its exit code.

    Raises:
        UsageError: JupyterLab is not installed, or the folder cannot be written.
    """
    if find_spec("jupyterlab") is None:
        raise UsageError("JupyterLab is not installed: pip install 'nbagent[lab]'")
    folder = folder or Path("notebooks")
    notebook = folder / QUICKSTART
    if not notebook.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_bundled(), notebook)
        except OSError as error:
            raise UsageError(f"cannot write to {folder} ({error.strerror}): name another folder") from error
        click.echo(f"Copied the quickstart to {notebook}.")
    command = [sys.executable, "-m", "jupyter", "lab", str(folder), f"--LabApp.default_url=/lab/tree/{QUICKSTART}"]
    if no_browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container: JupyterLab would refuse to start
        command.append("--allow-root")
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:  # JupyterLab got it, too, and has ended
        return 130


def _bundled() -> Path:
    """The wheel carries the notebook beside the demo's data; a checkout has it in `notebooks/`."""
    package = Path(nbagent.__file__).parent
    carried = package / "demo_data" / QUICKSTART
    return carried if carried.is_file() else package.parent / "notebooks" / QUICKSTART
