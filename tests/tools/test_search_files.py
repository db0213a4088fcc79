"""search_files: the same lines with ripgrep and without, and only what lies in the workspace."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from nbagent.kernels.process import ProcessKernel
from nbagent.protocols import ToolResult
from nbagent.tools import find_lines as finding
from nbagent.tools.find_lines import find_lines, matches, ripgrep
from nbagent.tools.search_files import search_files
from tests.tools.conftest import Context


@pytest.fixture
def tree(workspace: Path) -> Path:
    files: dict[str, bytes] = {
        "a.py": b"import os\n\n\ndef load(path):\n    return path\n",
        "src/b.py": "def Load_it(path):\r\n    naïve = 'load'\r\n".encode(),
        "src/deep/c.txt": b"first load\nlast load without end",
        "data.csv": b"name,load\nx,1\n",
        "odd name [1].txt": b"load: here\n",
        "bom.txt": "\ufeffload at the start\n".encode(),
        "utf16.txt": "über load\n".encode("utf-16"),
        "latin.txt": "caf\xe9 load\n".encode("latin-1"),
        "long.json": b'{"x": "' + b"y" * 5000 + b'load"}\n',
        "binary.bin": b"load\0load\n",
        "empty.txt": b"",
        ".hidden": b"load hidden\n",
        ".git/config": b"load\n",
        "node_modules/m.js": b"load\n",
        "-dash.txt": b"load -- dash\n",
    }
    for name, data in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_bytes(data)
    (workspace.parent / "outside.txt").write_text("load outside\n")
    (workspace / "link.txt").symlink_to(workspace.parent / "outside.txt")
    (workspace / "out").symlink_to(workspace.parent)
    return workspace


@pytest.fixture
def context(tmp_path: Path, workspace: Path) -> Context:
    return Context(ProcessKernel(folder=workspace, scratch=tmp_path), tmp_path, workspace)


async def search(context: Context, **arguments: Any) -> ToolResult:
    return await search_files.run(arguments, context)


PATTERNS = [
    *("load", "^load", "load$", r"\bload\b", r"def \w+\(", "(first|last) load", "na.ve", r"caf. load", "über"),
    *("end$", "^$", r"\d", r"[[:alpha:]]", r"\<load", "--", r"(?<=first )load", r"(l)oad.*\1", ".", "y{20}l"),
    *(r"\w+,\w+", "path\\)", "lo{,2}ad", "(?i)LOAD", "café", "[^a]$", r"\s$", r"\Aload", "a&&b", "[a&&b]"),
]


@pytest.mark.skipif(ripgrep() is None, reason="ripgrep is not installed")
@pytest.mark.filterwarnings("ignore::FutureWarning")
async def test_ripgrep_and_python_find_the_same(tree: Path) -> None:
    files = {
        "utf-8": ["a.py", "src/b.py", "src/deep/c.txt", "data.csv", "long.json", "-dash.txt", "odd name [1].txt"],
        "utf-8-sig": ["bom.txt"],
        "utf-16": ["utf16.txt"],
        "cp1252": ["latin.txt"],
    }
    every = sorted([*(name for names in files.values() for name in names), "binary.bin"])
    for pattern in [*PATTERNS, *(f"(?i){pattern}" for pattern in PATTERNS if not pattern.startswith("(?"))]:
        request = {"pattern": pattern, "folder": str(tree), "files": files}
        expected = sorted(matches(request), key=lambda one: (one.path, one.line))
        found = await find_lines(pattern, tree, every, program=ripgrep())
        assert found == expected, pattern


@pytest.mark.parametrize("installed", [True, False])
async def test_lines_are_told_with_file_and_number(
    tree: Path, context: Context, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    result = await search(context, pattern=r"def \w+", files="*.py")
    assert result.text == "a.py:4: def load(path):\nsrc/b.py:1: def Load_it(path):"
    assert result.notice == "2 matching lines in 2 files."
    result = await search(context, pattern="load", path="src")
    assert result.text.split("\n")[0] == "src/b.py:2:     naïve = 'load'"
    result = await search(context, pattern="load", most=2)
    assert result.text.count("\n") == 1
    assert result.notice.endswith(", the first 2 of them.")
    assert "outside" not in (await search(context, pattern="load")).text
    long = (await search(context, pattern="load", path="long.json")).text
    assert 'yyyload"}' in long
    assert len(long) < 300
    result = await search(context, pattern="nowhere to be found")
    assert (result.status, result.text, result.notice) == ("ok", "", "No matching line.")


async def test_without_a_pattern_files_are_listed(tree: Path, context: Context) -> None:
    result = await search(context, files="*.py")
    assert result.text == "a.py (44 bytes)\nsrc/b.py (41 bytes)"
    assert result.notice == "2 files."
    names = {line.rpartition(" (")[0] for line in (await search(context, most=100)).text.split("\n")}
    assert names == {
        *("a.py", "src/b.py", "src/deep/c.txt", "data.csv", "odd name [1].txt", "bom.txt", "utf16.txt"),
        *("latin.txt", "long.json", "binary.bin", "empty.txt", ".hidden", "-dash.txt"),
    }


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (
            "*.txt",
            ["-dash.txt", "bom.txt", "empty.txt", "latin.txt", "odd name [1].txt", "src/deep/c.txt", "utf16.txt"],
        ),
        ("src/*.py", ["src/b.py"]),
        ("src/**", ["src/b.py", "src/deep/c.txt"]),
        ("**/*.py", ["a.py", "src/b.py"]),
        ("src/**/*.txt", ["src/deep/c.txt"]),
        ("{a,b}.py", ["a.py", "src/b.py"]),
        ("[ab].py", ["a.py", "src/b.py"]),
        ("[!a].py", ["src/b.py"]),
        ("./a.py", ["a.py"]),
        ("?.csv", []),
        ("[", []),
    ],
)
async def test_names_are_matched_as_ripgrep_does(
    tree: Path, context: Context, wanted: str, names: list[str]
) -> None:
    result = await search(context, files=wanted)
    assert [line.rpartition(" (")[0] for line in result.text.split("\n") if line] == names


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pattern": "load("}, "no regular expression"),
        ({"pattern": "a{99999999999}"}, "no regular expression"),
        ({"pattern": "\udc80"}, "half characters"),
        ({"pattern": "a\0b"}, "null byte"),
        ({"pattern": "x", "path": "../"}, "outside the working folder"),
        ({"pattern": "x", "path": "out"}, "outside the working folder"),
        ({"pattern": "x", "path": "nowhere"}, "There is no folder or file 'nowhere'"),
    ],
)
async def test_a_search_that_cannot_be_is_told(
    tree: Path, context: Context, arguments: dict[str, str], says: str
) -> None:
    result = await search(context, **arguments)
    assert result.status == "invalid"
    assert says in result.notice


async def test_credentials_are_neither_listed_nor_searched(
    tree: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree.parent / "home").symlink_to(tree)
    monkeypatch.setenv("HOME", str(tree.parent / "home"))
    for name in (".ssh/id_rsa", ".netrc", ".config/gcloud/key.json"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("load secret\n")
    assert "secret" not in (await search(context, pattern="load", most=100)).text
    listed = (await search(context, most=100)).text
    assert not any(name in listed for name in ("id_rsa", ".netrc", "key.json"))


async def test_a_pattern_that_takes_for_ever_can_be_stopped(context: Context, workspace: Path) -> None:
    (workspace / "a.txt").write_text("a" * 40 + "!\n")
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await find_lines("(a+)+$", workspace, ["a.txt"], program=None)
    assert time.monotonic() - started < 5


async def test_many_files_fit_no_single_command_line(
    context: Context, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "ARGUMENTS", 50)
    for number in range(30):
        (workspace / f"{number:02}.txt").write_text(f"load {number}\n")
    result = await search(context, pattern="load", most=100)
    assert result.text.count("\n") == 29
