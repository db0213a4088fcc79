"""The file tools over real files, through the gateway as a model's calls come in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nbagent.events import FilesChanged, SessionStarted
from nbagent.file_history import restore_files
from nbagent.kernels.process import ProcessKernel
from nbagent.protocols import Approval, ToolResult
from nbagent.reply import Action
from nbagent.tools.edit_file import edit_file
from nbagent.tools.gateway import Gateway
from nbagent.tools.paths import PathRefused, locate, open_regular, write_whole
from nbagent.tools.read_file import read_file
from nbagent.tools.write_file import write_file
from tests.tools.conftest import Context, User


class Hands:
    """Calls tools as the loop does; the user says yes to everything and is remembered."""

    def __init__(self, context: Context):
        self.context = context
        self.user = User(Approval(True, "user"))
        self.gateway = Gateway([read_file, write_file, edit_file], approve="ask")

    async def __call__(self, tool: str, **arguments: Any) -> tuple[ToolResult, str]:
        action = Action(f"c{len(self.context.events)}", tool, json.dumps(arguments))
        return await self.gateway.call(action, self.context, self.user)


@pytest.fixture
def hands(tmp_path: Path, workspace: Path) -> Hands:
    session = tmp_path / "home" / "sessions" / "s1"
    session.mkdir(parents=True)
    return Hands(Context(ProcessKernel(folder=workspace, scratch=tmp_path), session, workspace))


def inside(text: str) -> str:
    return text.partition("<output 3fa9c1>\n")[2].removesuffix("\n</output 3fa9c1>")


# -- paths -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "The path is empty"),
        ("  ", "The path is empty"),
        ("a\0b", "null byte"),
        ("x" * 5000, "too long"),
        ("x" * 300, "cannot be used as a path"),
        ("../outside.txt", "outside the working folder"),
        ("sub/../../outside.txt", "outside the working folder"),
        ("/etc/hostname", "outside the working folder"),
        ("~/notes.txt", "outside the working folder"),
        ("~nobodyknows/x", "cannot be used as a path"),
        ("//etc/hostname", "outside the working folder"),
        ("out", "outside the working folder"),
        ("outdir/outside.txt", "outside the working folder"),
        ("/dev/zero", "outside the working folder"),
        ("/proc/self/environ", "outside the working folder"),
        ("loop", "cannot be used as a path"),
        ("pipe", "is a named pipe"),
        ("sub", "is a folder"),
        (".", "is a folder"),
        ("sub/a.txt/b", "There is no file"),
        ("nowhere/a.txt", "There is no file"),
    ],
)
async def test_a_path_that_leads_nowhere_good_is_refused_by_every_tool(
    hands: Hands, workspace: Path, path: str, says: str
) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub" / "a.txt").write_text("inside")
    (workspace.parent / "outside.txt").write_text("outside")
    (workspace / "out").symlink_to(workspace.parent / "outside.txt")
    (workspace / "outdir").symlink_to(workspace.parent)
    (workspace / "loop").symlink_to("loop")
    os.mkfifo(workspace / "pipe")
    result, text = await hands("read_file", path=path)
    assert result.status == "invalid"
    assert says in text
    result, text = await hands("edit_file", path=path, old="outside", new="changed")
    assert result.status == "invalid"
    assert says in text
    if says != "There is no file":
        result, text = await hands("write_file", path=path, content="changed")
        assert result.status == "invalid"
        assert (workspace.parent / "outside.txt").read_text() == "outside"
    assert hands.user.asked == [] or path in ("pipe", "sub", ".")


async def test_links_within_the_workspace_and_absolute_paths_of_it_are_fine(hands: Hands, workspace: Path) -> None:
    (workspace / "data").mkdir()
    (workspace / "data" / "a.txt").write_text("one\n")
    (workspace / "link").symlink_to("data")
    for path in ("link/a.txt", str(workspace / "data" / "a.txt"), "./data//a.txt", "data/../data/a.txt"):
        result, text = await hands("read_file", path=path)
        assert result.status == "ok", text
        assert inside(text) == "one"
        assert text.startswith("data/a.txt, lines 1-1 of 1")
    await hands("write_file", path="link/a.txt", content="two\n")
    assert (workspace / "data" / "a.txt").read_text() == "two\n"
    assert (workspace / "link").is_symlink()


async def test_a_link_that_is_put_in_the_way_after_the_check_is_not_followed(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub" / "a.txt").write_text("inside")
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("precious")
    folder, file = locate("sub/a.txt", workspace, write=True), locate("b.txt", workspace, write=True)
    (workspace / "sub").rename(workspace / "moved")
    (workspace / "sub").symlink_to(outside)
    (workspace / "b.txt").symlink_to(outside / "a.txt")
    for act in (lambda: write_whole(folder, b"x"), lambda: open_regular(folder), lambda: open_regular(file)):
        with pytest.raises(PathRefused):
            act()
    with pytest.raises(PathRefused, match="no regular file"):
        write_whole(file, b"x")
    assert (outside / "a.txt").read_text() == "precious"
    assert [path.name for path in outside.iterdir()] == ["a.txt"]


async def test_git_and_credentials_are_not_written_or_read(
    hands: Hands, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    result, text = await hands("write_file", path=".git/hooks/pre-commit", content="#!/bin/sh\n")
    assert (result.status, list((workspace / ".git" / "hooks").iterdir())) == ("invalid", [])
    monkeypatch.setenv("HOME", str(workspace))
    (workspace / ".ssh").mkdir()
    (workspace / ".ssh" / "id_rsa").write_text("secret")
    result, text = await hands("read_file", path=".ssh/id_rsa")
    assert "holds credentials" in text
    result, text = await hands("write_file", path="a.txt", content="x")
    assert "write below nbagent-work/" in text
    assert (await hands("write_file", path="nbagent-work/a.txt", content="x"))[0].status == "ok"


async def test_a_missing_file_is_told_with_those_that_could_be_meant(hands: Hands, workspace: Path) -> None:
    (workspace / "data").mkdir()
    (workspace / "data" / "Sales_2024.csv").write_text("a\n")
    _, text = await hands("read_file", path="sales_2024.csv")
    assert text.startswith("There is no file sales_2024.csv.\n<output")
    assert inside(text) == "Nearest: data/Sales_2024.csv"


# -- read_file ---------------------------------------------------------------------------------------------


async def test_a_file_is_read_in_pages_of_whole_lines(hands: Hands, workspace: Path) -> None:
    (workspace / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    _, text = await hands("read_file", path="a.txt", start=10, lines=3)
    assert text.startswith("a.txt, lines 10-12 of 1,000 (8.9 kB). Go on with start=13.")
    assert inside(text) == "line 10\nline 11\nline 12"
    _, text = await hands("read_file", path="a.txt", start=-2)
    assert inside(text) == "line 999\nline 1000"
    _, text = await hands("read_file", path="a.txt", lines=100_000)
    last = inside(text).rpartition("\n")[2]
    assert "left out" not in text
    assert f"Go on with start={int(last.split()[1]) + 1}." in text
    assert len(text) < hands.context.observation_characters + 200
    _, text = await hands("read_file", path="a.txt", start=-(10**30), lines=10**30)
    assert text.startswith("a.txt, lines 1-")
    _, text = await hands("read_file", path="a.txt", start=10**30)
    assert "there is no line" in text
    _, text = await hands("read_file", path="a.txt", start=2000)
    assert "has 1000 lines" in text


@pytest.mark.parametrize(
    ("data", "told", "note"),
    [
        ("héllo\r\nyou\r\n".encode(), "héllo\nyou", ""),
        ("\ufeffhéllo\n".encode(), "héllo", ""),
        ("héllo\n".encode("utf-16"), "héllo", "utf-16"),
        ("h\xe9llo\n".encode("latin-1"), "héllo", "not UTF-8"),
        (b"no end", "no end", ""),
        (b"x" * 5000 + b"\nshort\n", "x" * 1000 + "… [5,000 characters]\nshort", ""),
    ],
)
async def test_text_is_read_in_its_encoding(
    hands: Hands, workspace: Path, data: bytes, told: str, note: str
) -> None:
    (workspace / "a.txt").write_bytes(data)
    result, text = await hands("read_file", path="a.txt")
    assert (result.status, inside(text)) == ("ok", told)
    assert note in text


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"PAR1\x15\0", "pd.read_parquet"),
        (b"SQLite format 3\0", "sqlite3"),
        (bytes(range(256)) * 8, "binary data"),
        (b"\x01\x02\x03\xff\xfe" * 50, "binary data"),
    ],
)
async def test_a_binary_file_is_named_for_what_it_is(
    hands: Hands, workspace: Path, data: bytes, kind: str
) -> None:
    (workspace / "a.bin").write_bytes(data)
    result, text = await hands("read_file", path="a.bin")
    assert result.status == "invalid"
    assert kind in text
    assert "Use run_code" in text


async def test_an_empty_and_a_huge_file_are_read(hands: Hands, workspace: Path) -> None:
    (workspace / "empty").touch()
    assert (await hands("read_file", path="empty"))[1] == "empty is empty."
    with (workspace / "huge").open("wb") as opened:
        opened.write(b"first\n" + b"words\n" * 20_000)
        opened.seek(5_000_000_000)
        opened.write(b"\nlast\n")
    result, text = await hands("read_file", path="huge", lines=1)
    assert (result.status, inside(text)) == ("ok", "first")
    assert "5.0 GB" in text


async def test_a_notebook_is_read_as_cells(hands: Hands, workspace: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {"cell_type": "code", "source": "1/0", "outputs": [{"output_type": "error", "ename": "E", "evalue": "v"}]},
        {
            "cell_type": "code",
            "source": "x",
            "outputs": [{"data": {"text/plain": ["5"], "image/png": "A" * 9999}}],
        },
    ]
    (workspace / "n.ipynb").write_text(json.dumps({"cells": cells}))
    _, text = await hands("read_file", path="n.ipynb")
    assert inside(text) == (
        "[1] markdown\n# Title\nwords\n\n[2] code\n1/0\n[output] E: v\n\n[3] code\nx\n[output] 5"
    )
    (workspace / "n.ipynb").write_text("[1, 2")
    assert inside((await hands("read_file", path="n.ipynb"))[1]) == "[1, 2"


# -- write_file --------------------------------------------------------------------------------------------


async def test_a_new_file_is_written_unasked_and_one_of_the_users_is_not(hands: Hands, workspace: Path) -> None:
    (workspace / "users.txt").write_text("one\ntwo\n")
    (workspace / "users.txt").chmod(0o640)
    _, text = await hands("write_file", path="new/deep/a.txt", content="hello\n")
    assert text == "Wrote new/deep/a.txt: 1 line, 6 bytes, a new file."
    await hands("write_file", path="new/deep/a.txt", content="again\n")
    assert hands.user.asked == []
    _, text = await hands("write_file", path="users.txt", content="one\n2\n")
    assert [(asked.risk, asked.why) for asked in hands.user.asked] == [("overwrite", "overwrites users.txt")]
    assert text.startswith("Wrote users.txt: 2 lines, 6 bytes; it replaced 2 lines, 8 bytes.\n<output")
    assert inside(text) == "@@ -1,2 +1,2 @@\n one\n-two\n+2"
    assert (workspace / "users.txt").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in workspace.rglob("*")) == ["a.txt", "deep", "new", "users.txt"]


async def test_the_user_is_shown_what_would_be_written_and_a_yes_for_always_is_for_that_file(
    hands: Hands, workspace: Path
) -> None:
    for name in ("a.txt", "b.txt"):
        (workspace / name).write_text("mine")
    hands.user.answer = Approval(True, "user", always="pattern")
    await hands("write_file", path="a.txt", content="one\n  two\n")
    content = 'write_file\npath: "a.txt"\ncontent:\n    one\n      two\n'
    assert hands.user.asked[0].code == f"{content}\nWhat it changes:\n@@ -1 +1,2 @@\n-mine\n+one\n+  two"
    (workspace / "a.txt").write_text("mine again")
    await hands("edit_file", path="b.txt", old="mine", new="theirs")
    assert [asked.always for asked in hands.user.asked] == ["overwrites a.txt", "overwrites b.txt"]
    await hands("write_file", path="a.txt", content="x")
    (workspace / "b.txt").write_text("mine")
    await hands("write_file", path="b.txt", content="x")
    assert [asked.tool for asked in hands.user.asked] == ["write_file", "edit_file", "write_file"]


async def test_a_file_that_the_user_changed_since_is_the_users_again(hands: Hands, workspace: Path) -> None:
    await hands("write_file", path="a.txt", content="agent")
    (workspace / "a.txt").write_text("user's own words")
    await hands("write_file", path="a.txt", content="agent again")
    assert len(hands.user.asked) == 1


async def test_a_refused_write_leaves_the_file(hands: Hands, workspace: Path) -> None:
    (workspace / "a.txt").write_text("mine")
    hands.user.answer = Approval(False, "user")
    assert (await hands("write_file", path="a.txt", content="theirs"))[0].status == "denied"
    hands.user.answer = Approval(True, "user")
    (workspace / "a.txt").chmod(0o444)
    assert "write-protected" in (await hands("write_file", path="a.txt", content="theirs"))[1]
    assert "half characters" in (await hands("write_file", path="b.txt", content="\udc80"))[1]
    assert (workspace / "a.txt").read_text() == "mine"
    assert [path.name for path in workspace.iterdir()] == ["a.txt"]


async def test_code_and_json_that_do_not_parse_are_written_and_told(hands: Hands) -> None:
    _, text = await hands("write_file", path="a.py", content="def f(:\n")
    assert "It does not parse as Python: SyntaxError" in text
    _, text = await hands("write_file", path="a.json", content="{")
    assert "It is no valid JSON" in text
    _, text = await hands("write_file", path="b.py", content="%magic\n")
    assert "does not parse" in text


async def test_every_write_can_be_undone(hands: Hands, workspace: Path) -> None:
    (workspace / "users.txt").write_text("one\ntwo\n")
    await hands("write_file", path="users.txt", content="1")
    await hands("edit_file", path="users.txt", old="1", new="2")
    await hands("write_file", path="new.txt", content="x")
    events = [event.model_copy(update={"seq": n}) for n, event in enumerate(hands.context.events, 1)]
    assert len([event for event in events if isinstance(event, FilesChanged)]) == 3
    started = SessionStarted(nonce="n", versions={}, folder=str(workspace))
    restore_files([started, *events], hands.context.session_folder, since=1)
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"users.txt": "one\ntwo\n"}


# -- edit_file ---------------------------------------------------------------------------------------------

LOAD = "def load(path):\n    data = read(path)\n"
CODE = f"{LOAD}    return data\n\n\ndef save(path):\n    data = read(path)\n    return None\n"


async def test_an_edit_replaces_what_stands_once_and_shows_the_difference(hands: Hands, workspace: Path) -> None:
    (workspace / "a.py").write_text(CODE)
    result, text = await hands("edit_file", path="a.py", old="return None", new="return path")
    assert result.status == "ok"
    assert text.startswith("Edited a.py.\n<output")
    assert "-    return None\n+    return path" in inside(text)
    assert (workspace / "a.py").read_text() == CODE.replace("return None", "return path")
    result, text = await hands("edit_file", path="a.py", old="read(path)", new="open(path)")
    assert result.status == "invalid"
    assert "stands 2 times in a.py (lines 2, 7)" in text
    result, text = await hands("edit_file", path="a.py", old="read(path)", new="open(path)", replace_all=True)
    assert "in 2 places" in text
    assert "read" not in (workspace / "a.py").read_text()


@pytest.mark.parametrize(
    ("old", "says", "shows"),
    [
        ("", "`old` is empty", ""),
        ("return data", "are the same", ""),
        ("  2\t    data = read(path)\n  3\t    return data", "Without the line numbers", ""),
        (
            "\tdata = read(path)\n\treturn data",
            "only in spaces from lines 2-3",
            "    data = read(path)\n    return data",
        ),
        (
            "def load(file):\n    data = read(file)",
            "Most like it are lines 1-2",
            "def load(path):\n    data = read(path)",
        ),
        ("completely different words", "Nothing there is like it", ""),
    ],
)
async def test_a_near_miss_is_told_with_what_stands_there(
    hands: Hands, workspace: Path, old: str, says: str, shows: str
) -> None:
    (workspace / "a.py").write_text(CODE)
    result, text = await hands("edit_file", path="a.py", old=old, new="return data")
    assert result.status == "invalid"
    assert says in text
    assert inside(text) == shows
    assert (workspace / "a.py").read_text() == CODE


@pytest.mark.parametrize(
    ("data", "after"),
    [
        (b"one\r\ntwo\r\nthree\r\n", b"1\r\n2\r\nthree\r\n"),
        ("\ufeffone\ntwo\nh\xe9".encode(), "\ufeff1\n2\nh\xe9".encode()),
        ("one\ntwo\nh\xe9".encode("latin-1"), "1\n2\nh\xe9".encode("latin-1")),
        ("one\ntwo\nh\xe9".encode("utf-16"), "1\n2\nh\xe9".encode("utf-16")),
    ],
)
async def test_an_edit_keeps_line_ends_and_encoding(
    hands: Hands, workspace: Path, data: bytes, after: bytes
) -> None:
    (workspace / "a.txt").write_bytes(data)
    result, text = await hands("edit_file", path="a.txt", old="one\ntwo", new="1\n2")
    assert result.status == "ok", text
    assert (workspace / "a.txt").read_bytes() == after


async def test_an_edit_that_could_harm_is_refused(hands: Hands, workspace: Path) -> None:
    files = {"a.bin": b"\0\1one", "odd.txt": b"one \x81 \xff caf\xe9", "be.txt": b"\xfe\xff\0o\0n\0e"}
    for name, data in files.items():
        (workspace / name).write_bytes(data)
        result, text = await hands("edit_file", path=name, old="one", new="two")
        assert result.status == "invalid", text
        assert (workspace / name).read_bytes() == data
    (workspace / "latin.txt").write_bytes("one é".encode("latin-1"))
    _, text = await hands("edit_file", path="latin.txt", old="one", new="漢")
    assert "cannot hold" in text


async def test_a_folder_that_the_user_opened_is_open_to_the_file_tools(
    hands: Hands, workspace: Path, tmp_path: Path
) -> None:
    opened, closed = tmp_path / "opened", tmp_path / "closed"
    for folder in (opened, closed):
        folder.mkdir()
        (folder / "a.txt").write_text("one\n")
    (opened / "way").symlink_to(closed)
    hands.context.allow_write = (opened,)
    hands.user.answer = Approval(True, "user")
    assert inside((await hands("read_file", path=str(opened / "a.txt")))[1]) == "one"
    await hands("edit_file", path=str(opened / "a.txt"), old="one", new="two")
    await hands("write_file", path=f"{workspace}/../opened/b.txt", content="new")
    assert ((opened / "a.txt").read_text(), (opened / "b.txt").read_text()) == ("two\n", "new")
    assert [asked.why for asked in hands.user.asked] == [f"overwrites {opened / 'a.txt'}"]
    for path in (closed / "a.txt", opened / "way" / "a.txt"):
        refused, text = await hands("edit_file", path=str(path), old="one", new="two")
        assert (refused.status, "lies outside the working folder" in text) == ("invalid", True)
