"""The interpreters whose kernels are tested: this one, and those named, each with an ipykernel of its own.

    TEST_KERNELS=old/bin/python:older/bin/python pytest -n 0 -m browser

Every test that has a kernel of such an interpreter runs on each, and says so in its name. They need what nbagent
needs (`pip install nbagent 'ipykernel==6.31'`); the package itself is taken from here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PYTHONS = [
    Path(sys.executable),
    *(Path(python) for python in os.environ.get("TEST_KERNELS", "").split(os.pathsep) if python),
]


def ipykernel_of(python: Path) -> str:
    """The version that a test's name says."""
    code = "import ipykernel; print(ipykernel.__version__)"
    told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return f"ipykernel-{told.stdout.strip()}"
