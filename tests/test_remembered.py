"""What worked with a server is known for a week; the file is a convenience and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbagent.remembered import DAYS, Known, Remembered

DAY = 24 * 3600


def test_what_was_learned_adds_up_and_is_forgotten_after_a_week(tmp_path: Path) -> None:
    clock = [1000.0 * DAY]
    memory = Remembered(tmp_path / "servers.json", now=lambda: clock[0])
    memory.learn("http://h m", dialect="json")
    memory.learn("http://h m", refused=("temperature",))
    memory.learn("http://h other", dialect="tools")
    known = Remembered(memory.path, now=lambda: clock[0]).known("http://h m")
    assert (known.dialect, known.refused) == ("json", ("temperature",))
    clock[0] += (DAYS + 0.1) * DAY
    assert memory.known("http://h m") == Known()
    memory.learn("http://h new", dialect="fenced")
    assert "other" not in memory.path.read_text()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"k": 1}', '{"k": {"dialect": "smoke"}}', "\x00\xff"])
def test_a_file_that_is_garbage_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "servers.json"
    path.write_text(content)
    memory = Remembered(path)
    assert memory.known("k") == Known()
    memory.learn("k", dialect="json")
    assert memory.known("k").dialect == "json"


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = Remembered(tmp_path / "file" / "servers.json")
    memory.learn("k", dialect="json")
    assert memory.known("k") == Known()
