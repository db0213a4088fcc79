"""What a re-run of a session may depend on: the versions of Python and of the packages that matter."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

RECORDED_PACKAGES = ("nbagent", "ipykernel", "numpy", "pandas", "matplotlib", "scikit-learn", "scipy")


def versions() -> dict[str, str]:
    """Give each version by name; packages that are not installed are left out."""
    found = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
