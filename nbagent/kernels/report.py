"""What the probe in the kernel reports of an execution, beside the variables that it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class Beside(TypedDict):
    """Fields of `Executed`."""

    table: str
    columns: tuple[str, ...]
    imported: tuple[tuple[str, str], ...]


def told_beside(report: Mapping[str, Any]) -> Beside:
    """Read a report, of which anything may be missing."""
    return {
        "table": str(report.get("table", "")),
        "columns": tuple(map(str, report.get("columns", ()))),
        "imported": tuple((str(name), str(version)) for name, version in report.get("imported", ())),
    }
