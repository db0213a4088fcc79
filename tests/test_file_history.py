"""What actions do to files is known, copied and can be put back: real files, no kernel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nbagent.events import Event, FilesChanged, SessionStarted, from_json, to_json
from nbagent.file_history import Restored, files_changed, restore_files
from nbagent.tools import file_changes
from nbagent.tools.file_changes import Watch


class Work:
    """A workspace whose steps are ordinary functions; the log holds what a session would log."""

    def __init__(self, folder: Path):
        self.folder = folder / "work"
        self.session = folder / "home" / "sessions" / "s1"
        self.folder.mkdir()
        self.session.mkdir(parents=True)
        self.events: list[Event] = []
        self.log(SessionStarted(nonce="n", versions={}, folder=str(self.folder)))

    def log(self, event: Event) -> None:
        self.events.append(from_json(to_json(event.model_copy(update={"seq": len(self.events) + 1}))))

    def step(self, act: Callable[[], object], *paths: str, anything: bool = False, words: str = "") -> int:
        """Do something as an action would; give the number to go back to."""
        since = len(self.events) + 1
        watch = Watch(self.folder, self.session, paths=paths, anything=anything, words=words)
        act()
        if (event := watch.changes()) is not None:
            self.log(event)
        return since

    def undo(self, since: int) -> Restored:
        restored = restore_files(self.events, self.session, since=since)
        if restored.event is not None:
            self.log(restored.event)
        return restored

    def last(self) -> dict[str, str]:
        event = self.events[-1]
        assert isinstance(event, FilesChanged)
        return {change.path: change.change for change in event.changes}

    def state(self) -> dict[str, bytes]:
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_made_changed_and_deleted_files_are_told_and_put_back(work: Work) -> None:
    a, b = work.folder / "a.csv", work.folder / "sub" / "b.bin"
    b.parent.mkdir()
    a.write_text("x\n1\n")
    b.write_bytes(b"\0\1")
    b.chmod(0o640)
    before = work.state()

    def act() -> None:
        a.write_text("other")
        b.unlink()
        (work.folder / "new" / "deep").mkdir(parents=True)
        (work.folder / "new" / "deep" / "c.txt").write_text("c")

    since = work.step(act, "a.csv", "sub/b.bin")
    assert work.last() == {"a.csv": "changed", "sub/b.bin": "deleted", "new/deep/c.txt": "made"}
    assert files_changed(work.events, since=since) == ["a.csv", "new/deep/c.txt", "sub/b.bin"]
    restored = work.undo(since)
    assert work.state() == before
    assert b.stat().st_mode & 0o777 == 0o640
    assert restored.words() == "Files put back: a.csv, sub/b.bin; removed again: new/deep/c.txt"
    assert work.undo(since).words() == ""


def test_several_steps_are_undone_together_and_again_after_more_steps(work: Work) -> None:
    a = work.folder / "a.txt"
    a.write_text("0")
    first = work.step(lambda: a.write_text("1"), "a.txt")
    second = work.step(lambda: a.write_text("22"), "a.txt")
    work.undo(second)
    assert a.read_text() == "1"
    third = work.step(a.unlink, "a.txt")
    work.step(lambda: a.write_text("again"), "a.txt")
    work.undo(third)
    assert a.read_text() == "1"
    work.undo(first)
    assert a.read_text() == "0"


def test_what_somebody_changed_since_is_left_alone_and_named(work: Work) -> None:
    a, b = work.folder / "a.txt", work.folder / "b.txt"
    a.write_text("mine")
    since = work.step(lambda: (a.write_text("agent"), b.write_text("agent")), "a.txt")
    a.write_text("mine again")
    b.unlink()
    b.mkdir()
    restored = work.undo(since)
    assert restored.left == [
        ("a.txt", "it was changed since"),
        ("b.txt", "something else stands there now"),
    ]
    assert a.read_text() == "mine again"


def test_what_an_undo_takes_away_is_kept(work: Work) -> None:
    since = work.step(lambda: (work.folder / "out.txt").write_text("result"))
    undone = len(work.events) + 1
    work.undo(since)
    assert work.state() == {}
    work.undo(undone)
    assert work.state() == {"out.txt": b"result"}


def test_code_that_may_overwrite_anything_has_all_files_copied_first(work: Work) -> None:
    for name in ("a", "b", "c"):
        (work.folder / name).write_text(name * 10)
    before = work.state()

    def act() -> None:
        (work.folder / "b").write_text("gone")
        os.utime(work.folder / "c")

    since = work.step(act, anything=True)
    assert work.last() == {"b": "changed"}
    assert len(list((work.session / "files").iterdir())) == 1  # what was not needed is let go
    work.undo(since)
    assert work.state() == before


def test_a_folder_that_is_deleted_comes_back_whole(work: Work) -> None:
    for name in ("x/1", "x/y/2", "x/.hidden/3"):
        (work.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (work.folder / name).write_text(name)
    since = work.step(lambda: shutil.rmtree(work.folder / "x"), "x")
    work.undo(since)
    assert {"x/1", "x/y/2"} <= set(work.state())


def test_a_change_that_nothing_foretold_is_told_without_a_copy(work: Work) -> None:
    (work.folder / "a").write_text("1")
    since = work.step(lambda: (work.folder / "a").write_text("22"))
    assert work.last() == {"a": "changed"}
    assert work.undo(since).left == [("a", "there is no copy: it was not known that it would be written")]


def test_a_file_too_large_is_told_without_a_copy(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_changes, "LARGEST_COPY", 100)
    (work.folder / "a").write_text("x" * 101)
    since = work.step(lambda: (work.folder / "a").write_text("22"), "a")
    assert "there is no copy: over" in work.undo(since).words()


def test_a_notebook_that_its_page_saves_is_not_the_actions_doing(work: Work) -> None:
    book = work.folder / "mine.ipynb"
    book.write_text("{}")
    work.step(lambda: book.write_text('{"cells": []}'), anything=True, words="df.to_csv(p)")
    assert len(work.events) == 1
    work.step(lambda: book.write_text("[]"), anything=True, words="p = 'mine.ipynb'; open(p, 'w')")
    assert work.last() == {"mine.ipynb": "changed"}


def test_a_workspace_too_large_to_look_at_whole_tells_what_it_read(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_changes, "MOST_ENTRIES", 10)
    for folder in ("p", "q"):
        (work.folder / folder).mkdir()
        for index in range(12):
            (work.folder / folder / f"{index}.txt").write_text("x")

    def act() -> None:
        (work.folder / "top.txt").write_text("new")
        (work.folder / "p" / "0.txt").write_text("changed")
        (work.folder / "q" / "0.txt").write_text("not read")

    work.step(act)
    assert work.last() == {"top.txt": "made", "p/0.txt": "changed"}


def test_links_devices_and_the_sessions_own_files_are_no_files_of_the_workspace(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.session = work.folder / ".nbagent" / "sessions" / "s1"
    work.session.mkdir(parents=True)
    os.mkfifo(work.folder / "pipe")
    (work.folder / "link").symlink_to("/etc/hostname")

    def act() -> None:
        (work.session / "events.jsonl").write_text("x")
        (work.folder / "link2").symlink_to("/etc/passwd")

    work.step(act, "pipe", "link", anything=True)
    assert len(work.events) == 1
