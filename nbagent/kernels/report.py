"""What a kernel's reply and the probe in it report of an execution, beside the variables that it changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from nbagent.kernels.outputs import valid_text

LONGEST_ERROR = 2000  #: characters


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


def how_it_went(
    reply: Mapping[str, Any], shown: Mapping[str, Any]
) -> tuple[Literal["ok", "error", "timeout", "interrupted"], str]:
    """Give status and error line of an execution from its reply and the error that it showed, if any."""
    # A repr that raises is an error message, but before ipykernel 7 its reply says "ok".
    if reply.get("status") == "ok" and not shown:
        return "ok", ""
    name = str(shown.get("ename") or reply.get("ename") or "Error")
    value = str(shown.get("evalue", reply.get("evalue", "")))
    error = valid_text(f"{name}: {value}" if value else name)[:LONGEST_ERROR]
    if name == "SystemExit":
        error += " (the code asked to exit; the kernel still runs)"
    return "interrupted" if name == "KeyboardInterrupt" else "error", error
