"""Copies, right after a fork, the memory that every execution writes to.

After a fork the first write to each page stops for the page to be copied, and an execution writes to hundreds of
the interpreter's own: so they are copied at once, while nobody waits for the kernel.
"""

from __future__ import annotations

import array
import ctypes
import os
from pathlib import Path

#: A larger mapping holds data, and of more pages than these some are data: a step that wrote it is no rule.
LARGEST_MAPPING = 1 << 26  #: bytes
MOST_PAGES = 4000
#: Pages between two that are copied along: one call for both costs less than two.
NEAR = 0

_POPULATE_WRITE = 23  #: MADV_POPULATE_WRITE, since Linux 5.14
_PRESENT_AND_OWN = 0x81  #: of the upper byte of a page's entry in pagemap: in memory, and no other process has it
_PAGE = os.sysconf("SC_PAGE_SIZE")


class HotPages:
    """The pages that two steps in a row wrote to; call `learn` before each fork and `copy` after it."""

    def __init__(self) -> None:
        self._forks = 0
        self._written: set[int] = set()
        self._ranges: list[tuple[int, int]] = []
        self._system = ctypes.CDLL(None)
        self._system.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def learn(self) -> None:
        """See what was written since the last fork: it takes a moment, so ever more rarely."""
        self._forks += 1
        if self._forks == 1 or (self._forks & (self._forks - 1) and (self._forks - 1) & (self._forks - 2)):
            return
        before, self._written = self._written, _written_pages()
        hot = sorted(before & self._written)
        if len(hot) <= MOST_PAGES:
            self._ranges = _ranges(hot)

    def copy(self) -> None:
        """Copy them. What is no longer there is left out by the system."""
        for start, end in self._ranges:
            self._system.madvise(start, end - start, _POPULATE_WRITE)


def _written_pages() -> set[int]:
    """Give the addresses of the pages that were written since the last fork, which shared every page."""
    found: set[int] = set()
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:  # noqa: PTH123 (a file to seek in, unbuffered)
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights, *_ = line.split(None, 2)
            start, end = (int(number, 16) for number in place.split("-"))
            if not rights.startswith("rw") or not rights.endswith("p") or end - start > LARGEST_MAPPING:
                continue
            entries = array.array("Q")
            entries.frombytes(os.pread(pages.fileno(), (end - start) // _PAGE * 8, start // _PAGE * 8))
            found.update(
                start + number * _PAGE
                for number, entry in enumerate(entries)
                if entry >> 56 & _PRESENT_AND_OWN == _PRESENT_AND_OWN
            )
    return found


def _ranges(pages: list[int]) -> list[tuple[int, int]]:
    """Join pages that lie next to each other, or nearly so."""
    joined: list[tuple[int, int]] = []
    for page in pages:
        if joined and page - joined[-1][1] <= NEAR * _PAGE:
            joined[-1] = joined[-1][0], page + _PAGE
        else:
            joined.append((page, page + _PAGE))
    return joined
