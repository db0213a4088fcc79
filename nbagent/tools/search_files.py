"""The `search_files` tool: lines that match a pattern, or the names of files."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbagent.places import CREDENTIALS
from nbagent.protocols import ToolContext, ToolResult
from nbagent.tools.definition import tool
from nbagent.tools.find_lines import MOST_FOUND, PatternRefused, SearchFailed, check_pattern, find_lines, ripgrep
from nbagent.tools.paths import PathRefused, locate
from nbagent.tools.text_files import size_in_words

MOST_FILES = 50_000  #: that one search looks at
MOST_SECONDS = 5.0  #: for listing them
#: Folders that hold what other programs made.
PASSED_OVER = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", "site-packages", ".ipynb_checkpoints"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".eggs"}
)
#: The parts of a name pattern, longest first.
_GLOB = re.compile(r"\*\*/|\*\*|\[[^\]]+\]|\{[^}]+\}|.", re.DOTALL)


@tool(risk="read", timeout=30, parallel_safe=True, tags=("files",))
async def search_files(
    context: ToolContext,
    pattern: str = "",
    path: str = ".",
    files: str = "*",
    most: int = 50,
) -> ToolResult:
    """Find lines of text files by a regular expression; without one, list files and sizes. (?i) ignores case.
    Example: {"pattern": "def load\\\\w+", "files": "*.py"}. Mistake: searching one big table, which run_code does.

    Args:
        path: Folder or file.
        files: Names to take, e.g. src/**/*.py.
        most: Lines to show.
    """
    try:
        place = locate(path, context.folder)
        check_pattern(pattern)
        listing = await asyncio.to_thread(_list, place.path, place.root, files)
        if pattern:
            return await _search(pattern, place.root, listing, most=most)
    except PatternRefused as refused:
        return _invalid(str(refused))
    except PathRefused as refused:
        return refused.result()
    except SearchFailed as failed:
        return ToolResult("error", "", str(failed), notice=f"The search failed: {failed}.")
    shown = [f"{name} ({size_in_words(listing.sizes[name])})" for name in sorted(listing.sizes)]
    return _told(shown, most, "file", listing)


@dataclass(slots=True)
class _Listing:
    """The files to search, with their sizes; `cut` where there were too many."""

    sizes: dict[str, int]
    cut: bool = False


def _list(place: Path, root: Path, wanted: str) -> _Listing:
    """List the regular files of a folder whose names are wanted. Raises `PathRefused`."""
    listing = _Listing({})
    fits = _name_filter(wanted)
    until = time.monotonic() + MOST_SECONDS
    if place.is_file():
        listing.sizes[place.relative_to(root).as_posix()] = place.stat().st_size
        return listing
    if not place.is_dir():
        raise PathRefused(f"There is no folder or file {place.relative_to(root).as_posix()!r}.")
    home = Path(os.path.realpath(Path.home()))
    hidden = {home / name for name in CREDENTIALS}
    for name, status in _walk(place, root, hidden):
        if len(listing.sizes) >= MOST_FILES or time.monotonic() > until:
            listing.cut = True
            break
        if fits(os.path.relpath(root / name, place).replace(os.sep, "/")):
            listing.sizes[name] = status.st_size
    return listing


def _walk(place: Path, root: Path, hidden: set[Path]) -> Iterator[tuple[str, os.stat_result]]:
    for folder, folders, names in os.walk(place):
        here = Path(folder)
        folders[:] = sorted(n for n in folders if n not in PASSED_OVER and here / n not in hidden)
        for name in sorted(names):
            try:
                status = (here / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and here / name not in hidden:
                yield (here / name).relative_to(root).as_posix(), status


def _name_filter(wanted: str) -> Callable[[str], object]:
    """Match names as git and ripgrep do: without a slash at any depth; `**` stands for any folders."""
    wanted = wanted.strip().removeprefix("./") or "*"
    where = "" if "/" in wanted.rstrip("/") else "(?:.*/)?"
    return re.compile(where + "".join(map(_glob_part, _GLOB.findall(wanted.strip("/"))))).fullmatch


def _glob_part(part: str) -> str:
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if part[0] == "[" and len(part) > 2:
        return "[" + part[1:-1].replace("\\", "").replace("!", "^", part[1] == "!") + "]"
    if part[0] == "{" and len(part) > 2:
        return "(?:" + "|".join(map(re.escape, part[1:-1].split(","))) + ")"
    return known.get(part) or re.escape(part)


async def _search(pattern: str, root: Path, listing: _Listing, *, most: int) -> ToolResult:
    found = await find_lines(pattern, root, sorted(listing.sizes), program=ripgrep())
    shown = [f"{one.path}:{one.line}: {one.text}" for one in found]
    return _told(shown, most, "matching line", listing, files=len({one.path for one in found}))


def _told(shown: list[str], most: int, what: str, listing: _Listing, files: int = 0) -> ToolResult:
    count = len(shown)
    within = f" in {files} file{'s' if files > 1 else ''}" if files else ""
    at_least = "at least " if count >= MOST_FOUND and files else ""
    notice = f"{at_least}{count:,} {what}{'s' if count != 1 else ''}{within}" if count else f"No {what}"
    if count > max(1, most):
        notice += f", the first {max(1, most)} of them"
    if listing.cut:
        notice += f"; the folder is too large: {len(listing.sizes):,} files were looked at"
    elif not listing.sizes:
        notice += "; no file has such a name"
    summary = notice
    return ToolResult("ok", "\n".join(shown[: max(1, most)]), summary, notice=f"{notice[0].upper()}{notice[1:]}.")


def _invalid(notice: str) -> ToolResult:
    return ToolResult("invalid", "", notice, notice=notice)
