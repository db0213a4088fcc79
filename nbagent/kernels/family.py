"""The processes below a keeper: what the kernel's code started since a moment, and its end. Linux only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_START = 19  #: of the fields of /proc/PID/stat that follow the name: when it began, in ticks since the system did


def end_younger(keeper: int, than: int, spared: set[int]) -> list[str]:
    """End every process below the keeper that began after the process `than`; give their names.

    Those that began in the same hundredth of a second are left: they may be older. The kernel's own are spared.
    """
    moment = _began(than)
    if moment is None:
        return []
    ended = []
    for pid in list(_below(keeper)):  # before any ends: the children of one that has ended hang elsewhere
        if pid in spared:
            continue
        with suppress(OSError):  # it has ended by itself
            held = os.pidfd_open(pid)  # from here on the number is its own
            try:
                began = _began(pid)
                if began is not None and began > moment:
                    name = Path(f"/proc/{pid}/comm").read_text().strip()
                    signal.pidfd_send_signal(held, signal.SIGKILL)
                    ended.append(name)
            finally:
                os.close(held)
    return ended


def _below(pid: int) -> Iterator[int]:
    """Give all descendants, each before its own."""
    children: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += map(int, listed.read_text().split())
    for child in children:
        yield child
        yield from _below(child)


def _began(pid: int) -> int | None:
    """Give when a living process began."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[_START])
