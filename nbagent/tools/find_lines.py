"""Finds lines that match a pattern: with ripgrep where there is one, else with Python, and with the same result.

Both get the same list of files. Python's matching runs in a process of its own, as a pattern can take it for ever
and nothing else could stop it: `python -m nbagent.tools.find_lines` reads one request as JSON and answers in
lines of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from nbagent.tools.text_files import SAMPLE, encoding_of

MOST_FOUND = 2000  #: lines that are taken in; more are not counted
LARGEST_FILE = 50_000_000  #: bytes of a file that is searched
LARGEST_OUTPUT = 30_000_000  #: bytes that are taken in of what a search prints
LONGEST_SHOWN = 240  #: characters of a line that are told
ARGUMENTS = 100_000  #: characters of file names handed to one process
#: What ripgrep calls the encodings that it can read.
_RIPGREP_ENCODINGS = {"utf-8": "auto", "utf-8-sig": "auto", "utf-16": "auto", "cp1252": "windows-1252"}
#: What Python and ripgrep both accept and take for different things.
_TAKEN_DIFFERENTLY = re.compile(r"\\[<>AZ]|\[\[|&&|--|~~|\{,|\(\?[a-wyzL-]*[xuaL]|\\b\{|\n")


@dataclass(frozen=True, slots=True)
class Found:
    """One line that matches; `path` is relative to the folder that was searched."""

    path: str
    line: int
    text: str


class SearchFailed(Exception):
    """The search could not be done; the message says why."""


class PatternRefused(Exception):
    """The pattern cannot be searched for; the message says why and what to do."""


def check_pattern(pattern: str) -> None:
    """Raise `PatternRefused` for what is no regular expression."""
    try:
        pattern.encode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constructs that a later Python may take otherwise
            re.compile(pattern)
        if "\0" in pattern:
            raise PatternRefused(r"The pattern holds a null byte: write it as \x00.")
    except UnicodeEncodeError:
        raise PatternRefused("The pattern holds half characters (lone surrogates).") from None
    except (re.error, OverflowError, RecursionError) as error:
        hint = "Put a backslash before ( [ . * + ? that stand for themselves"
        raise PatternRefused(f"The pattern is no regular expression: {error}. {hint}.") from None


def ripgrep() -> str | None:
    """Give the path of ripgrep, or None where there is none."""
    return shutil.which("rg")


async def find_lines(pattern: str, folder: Path, files: Sequence[str], *, program: str | None) -> list[Found]:
    """Find matching lines in the text files among `files` of `folder`, by path and line; at most `MOST_FOUND`.

    `program` is ripgrep, or None for Python. Cancelling ends the processes.

    Raises:
        SearchFailed: neither could search.
    """
    by_encoding = await asyncio.to_thread(_sorted_by_encoding, folder, files)
    found: list[Found] = []
    if program is not None and not _TAKEN_DIFFERENTLY.search(pattern):
        for encoding in sorted(set(by_encoding) & set(_RIPGREP_ENCODINGS)):
            try:
                found += await _with_ripgrep(program, pattern, folder, by_encoding[encoding], encoding)
            except SearchFailed:  # a pattern that is none for ripgrep may be one for Python
                break
            del by_encoding[encoding]
    if by_encoding:
        found += await _with_python(pattern, folder, by_encoding)
    return sorted(found, key=lambda one: (one.path, one.line))[:MOST_FOUND]


def _sorted_by_encoding(folder: Path, files: Sequence[str]) -> dict[str, list[str]]:
    """Give the names of text files that are not too large by their encoding."""
    names: dict[str, list[str]] = {}
    for name in files:
        with suppress(OSError), (folder / name).open("rb") as opened:
            if os.fstat(opened.fileno()).st_size <= LARGEST_FILE:
                sample = opened.read(SAMPLE)
                if (encoding := encoding_of(sample, whole=not opened.read(1))) is not None:
                    names.setdefault(encoding.name, []).append(name)
    return names


async def _with_ripgrep(
    program: str, pattern: str, folder: Path, files: Sequence[str], encoding: str
) -> list[Found]:
    options = ["--no-config", "--no-messages", "--null", "--line-number", "--with-filename", "--no-heading"]
    options += ["--color=never", "--text", "--crlf", "--column", f"--max-count={MOST_FOUND}", "--sort=path"]
    options += [f"--encoding={_RIPGREP_ENCODINGS[encoding]}"]
    found: list[Found] = []
    for some in _portions(files):
        words = [program, *options, f"--regexp={pattern}", "--", *(f"./{name}" for name in some)]
        code, output = await _run(words, folder, b"")
        if code > 1 and not output:  # it found nothing and failed
            raise SearchFailed("ripgrep did not take the pattern")
        found += _of_ripgrep(output)
    return found


def _of_ripgrep(output: bytes) -> Iterator[Found]:
    """Read `PATH NUL LINE:COLUMN:TEXT`; the column counts bytes from 1."""
    for whole in output.split(b"\n"):
        path, null, rest = whole.partition(b"\0")
        numbers = rest.split(b":", 2)
        if null and len(numbers) == 3 and numbers[0].isdigit() and numbers[1].isdigit():
            line, column, text = int(numbers[0]), int(numbers[1]), numbers[2]
            start = len(text[: column - 1].decode("utf-8", "replace"))
            shown = _shown(text.decode("utf-8", "replace").rstrip("\r"), start)
            yield Found(os.fsdecode(path).removeprefix("./"), line, shown)


async def _with_python(pattern: str, folder: Path, files: Mapping[str, Sequence[str]]) -> list[Found]:
    request = {"pattern": pattern, "folder": str(folder), "files": files}
    start = f"import sys; sys.path[:] = {sys.path!r}; from nbagent.tools.find_lines import main; main()"
    code, output = await _run([sys.executable, "-I", "-c", start], folder, json.dumps(request).encode())
    if code != 0:
        raise SearchFailed("the search came to no end")
    return [Found(*json.loads(line)) for line in output.decode("utf-8", "replace").splitlines()]


async def _run(words: Sequence[str], folder: Path, given: bytes) -> tuple[int, bytes]:
    """Run a program to its end and give its exit code and what it printed; ends it when cancelled."""
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    output = bytearray()
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(given)
            await process.stdin.drain()
            process.stdin.close()
        while (piece := await process.stdout.read(1 << 18)) and len(output) < LARGEST_OUTPUT:
            output += piece
    finally:
        if len(output) >= LARGEST_OUTPUT or sys.exc_info()[0] is not None:
            with suppress(ProcessLookupError):
                process.kill()
        code = await process.wait()
    return code, bytes(output)


def _portions(files: Sequence[str]) -> Iterator[list[str]]:
    """Split a list of names so that each part fits a command line."""
    some: list[str] = []
    room = ARGUMENTS
    for name in files:
        if some and room < len(name) * 4:
            yield some
            some, room = [], ARGUMENTS
        some.append(name)
        room -= len(os.fsencode(name)) + 3
    if some:
        yield some


def _shown(line: str, start: int) -> str:
    """Give a line, or the part of a long one around the match that begins at `start`."""
    if len(line) <= LONGEST_SHOWN:
        return line
    first = max(0, min(start - LONGEST_SHOWN // 3, len(line) - LONGEST_SHOWN))
    last = first + LONGEST_SHOWN
    return f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"


def matches(request: Mapping[str, Any]) -> Iterator[Found]:
    """Find matching lines in this process; `request` has the arguments of `find_lines`, files by encoding."""
    expression = re.compile(request["pattern"])
    for encoding, names in request["files"].items():
        for name in names:
            with suppress(OSError):
                path = Path(request["folder"]) / name
                with path.open(encoding=encoding, errors="replace", newline="\n") as lines:
                    for number, line in enumerate(lines, 1):
                        line = line.removesuffix("\n").removesuffix("\r")
                        if match := expression.search(line):
                            yield Found(name, number, _shown(line, match.start()))


def main() -> None:
    """Answer the request on standard input."""
    for one in islice(matches(json.load(sys.stdin)), MOST_FOUND):
        sys.stdout.write(json.dumps([one.path, one.line, one.text]) + "\n")
