"""What grading finds in code, and how dangerous it is to write or delete at a path."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from nbagent.events import Risk

#: Mildest first.
RISKS: tuple[Risk, ...] = ("read", "write", "overwrite", "network", "destructive")

_GLOB = re.compile(r"[*?\[]")
#: What a shell, IPython or a format string fills in only when it runs.
_FILLED_IN = re.compile(r"[$`{}]")


def words(text: str) -> frozenset[str]:
    """Give the words of a text: a long list of names stays readable."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that code does. `refused`: it is never run."""

    risk: Risk
    why: str
    refused: bool = False
    written: str = ""  #: the literal path in the workspace that it writes to and may
    touched: str = ""  #: the literal path, wherever it lies, that it writes to or deletes

    @property
    def anywhere(self) -> bool:
        """Whether it may write to or delete files that the code does not name."""
        return self.risk in ("overwrite", "destructive") and not self.touched


@dataclass(slots=True)
class Files:
    """What is known of the workspace while grading.

    `exists` tells of a path relative to the workspace; `owns` whether this session made the file there, which it
    may overwrite and delete unasked; `downloaded` are names of files that it fetched. `moved`: the code changed
    folders, so relative paths say nothing any more.
    """

    exists: Callable[[str], bool] = lambda _: False
    owns: Callable[[str], bool] = lambda _: False
    downloaded: set[str] = field(default_factory=set)
    moved: bool = False

    def write(self, path: str | None) -> Finding:
        """Grade a write. A path that only the running code knows may be anything: `overwrite`."""
        if path is None or _FILLED_IN.search(path):
            return Finding("overwrite", "writes to a path that the code works out")
        if path == "/dev/null":
            return Finding("read", "discards output")
        name = normal(path)
        if name.startswith("/dev/") and not re.match(r"/dev/(?:stdout|stderr|tty$|fd/|shm/)", name):
            return Finding("destructive", f"writes to the device {path}", touched=name)
        if outside(name):
            return Finding("overwrite", f"writes outside the workspace: {path}", touched=_whole(name))
        if self.moved:
            return Finding("overwrite", f"writes {path} in another folder")
        if self.exists(name) and not self.owns(name):
            return Finding("overwrite", f"overwrites {path}", touched=name)
        return Finding("write", f"writes {path}", written=name, touched=name)

    def make(self, path: str | None) -> Finding:
        """Grade the making of a folder or an empty file: what stands there stays as it is."""
        name = normal(path or "")
        if outside(name) or (self.moved and path is not None):
            return Finding("overwrite", f"writes outside the workspace: {path}")
        return Finding("write", f"makes {path or 'a folder'}", written=name)

    def delete(self, path: str | None) -> Finding:
        """Grade a deletion: `overwrite` for a literal path within the workspace, else `destructive`."""
        if path is None or _FILLED_IN.search(path):
            return Finding("destructive", "deletes at a path that the code works out")
        name = normal(path)
        top = name.partition("/")[0]
        known = "" if self.moved or _GLOB.search(name) else _whole(name)
        if outside(name) or self.moved or top in ("", ".git") or _GLOB.search(top):
            return Finding("destructive", f"deletes {path}", touched=known)
        return Finding("write" if self.owns(name) else "overwrite", f"deletes {path}", touched=known)


def normal(path: str) -> str:
    """Write a path in one way: forward slashes, no `./`, no end slash. The workspace itself is ""."""
    path = re.sub(r"/+", "/", path.replace("\\", "/"))
    parts = [part for part in path.split("/") if part != "."]
    return "/".join(parts).rstrip("/") or ("/" if path.startswith("/") else "")


def outside(name: str) -> bool:
    """Say whether a path may leave the workspace: absolute, of the home folder, or going up."""
    return name.startswith(("/", "~")) or bool(re.match(r"[A-Za-z]:", name)) or ".." in name.split("/")


def _whole(name: str) -> str:
    return os.path.expanduser(name) if name.startswith("~") else name  # noqa: PTH111 (a text is wanted)


def worst(findings: list[Finding]) -> Finding:
    """Give the most dangerous finding; reading only where there is none."""
    return max(findings, key=lambda f: RISKS.index(f.risk), default=Finding("read", "only reads and computes"))
