"""Interpreters and packages for tests that install something: real ones, without a network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path


def make_environment(folder: Path) -> str:
    """Make an interpreter with all that this one has, and a place for packages of its own; give its path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
    shared = [path for path in sys.path if path.endswith("site-packages")]
    Path(own, "shared.pth").write_text("\n".join(shared))
    return python


def make_wheel(folder: Path, name: str, version: str = "1.0", code: str = "answer = 42\n") -> Path:
    """Make a wheel with one module."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", code)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files = (f"{name}.py", *(f"{about}/{part}" for part in ("METADATA", "WHEEL", "RECORD")))
        archive.writestr(f"{about}/RECORD", "".join(f"{file},,\n" for file in files))
    return path
