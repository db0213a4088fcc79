"""The session log on disk: what is appended is there, whatever happens afterwards."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import SessionBusy, StoreError
from nbagent.events import (
    Observed,
    OutputAdded,
    RunFinished,
    RunStarted,
    SessionStarted,
    StepStarted,
    Thought,
    ThoughtDelta,
    UnknownEvent,
)
from nbagent.session_store import SessionLog, SessionStore
from nbagent.stores.files import FileStore, default_home


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "home")


def log_file(store: FileStore, session: str) -> Path:
    return store.home / "sessions" / session / "events.jsonl"


def write_session(store: FileStore, task: str, reason: Any = "answered", runs: int = 1) -> str:
    log = store.create()
    log.append(SessionStarted(nonce="n", versions={}, folder="/data"))
    for run in range(1, runs + 1):
        log.append(RunStarted(task=task, message=task, model="m", run=run))
        if reason:
            log.append(RunFinished(reason=reason, run=run))
    log.close()
    return log.id


def stream(text: str) -> OutputAdded:
    return OutputAdded(output={"output_type": "stream", "name": "stdout", "text": text})


# -- appending and reading ------------------------------------------------------------------------------


def test_it_is_what_the_loop_expects_of_a_store(store: FileStore) -> None:
    as_store: SessionStore = store
    log: SessionLog = as_store.create()
    log.close()


def test_what_was_appended_is_read_back_in_order_with_its_envelope(store: FileStore) -> None:
    log = store.create()
    before = time.time()
    given = [log.append(Thought(text=str(n), run=1, step=n)) for n in range(3)]
    log.close()
    assert store.read(log.id) == given
    assert [event.seq for event in given] == [1, 2, 3]
    assert [event.step for event in given] == [0, 1, 2]
    assert {event.session for event in given} == {log.id}
    assert all(before <= event.time <= time.time() for event in given)


def test_an_event_can_be_read_by_another_process_as_soon_as_append_returns(store: FileStore) -> None:
    log = store.create()
    log.append(Thought(text="now"))
    code = "import sys; print(open(sys.argv[1]).read().count('now'))"
    seen = subprocess.run(
        [sys.executable, "-c", code, str(log_file(store, log.id))], capture_output=True, text=True
    )
    log.close()
    assert seen.stdout.strip() == "1"


def test_deltas_are_stamped_and_given_back_but_not_written(store: FileStore) -> None:
    log = store.create()
    delta = log.append(ThoughtDelta(text="He", step=1))
    thought = log.append(Thought(text="Hello", step=1))
    log.close()
    assert (delta.session, delta.seq) == (log.id, 1)
    assert store.read(log.id) == [thought]


def test_numbers_go_on_where_they_stopped_when_a_session_is_opened_again(store: FileStore) -> None:
    log = store.create()
    log.append(Thought(text="a"))
    log.close()
    again = store.open(log.id)
    assert again.append(Thought(text="b")).seq == 2
    again.close()
    assert [event.seq for event in store.read(log.id)] == [1, 2]


@pytest.mark.parametrize("text", ["line\nline\r\n", "\ud800 alone", "\u2028\u2029\x85\x0c\x1c", "\0", "é✓🎉", ""])
def test_no_text_can_break_its_line(store: FileStore, text: str) -> None:
    log = store.create()
    log.append(Thought(text=text))
    log.append(Thought(text="next"))
    log.close()
    first, second = store.read(log.id)
    assert isinstance(first, Thought)
    assert first.text == text.replace("\ud800", "?")
    assert isinstance(second, Thought)


def test_numbers_that_are_not_finite_do_not_break_a_line(store: FileStore) -> None:
    log = store.create()
    log.append(
        OutputAdded(output={"output_type": "display_data", "data": {"application/json": [math.nan, math.inf]}})
    )
    log.close()
    (event,) = store.read(log.id)
    assert isinstance(event, OutputAdded)
    assert math.isnan(event.output["data"]["application/json"][0])


def test_a_value_that_json_cannot_hold_is_refused_and_the_log_goes_on(store: FileStore) -> None:
    log = store.create()
    with pytest.raises(StoreError, match="OutputAdded"):
        log.append(OutputAdded(output={"output_type": "display_data", "data": {"image/png": b"\x89PNG"}}))
    kept = log.append(Thought(text="goes on"))
    log.close()
    assert store.read(log.id) == [kept]


def test_events_of_a_newer_version_are_kept(store: FileStore) -> None:
    log = store.create()
    log.append(UnknownEvent.model_validate({"type": "Dreamt", "about": "sheep"}))
    log.close()
    (event,) = store.read(log.id)
    assert event.model_dump()["about"] == "sheep"


def test_a_large_output_lies_beside_the_log_and_comes_back_whole(store: FileStore) -> None:
    log = store.create()
    large, small = log.append(stream("x" * 200_000)), log.append(stream("y"))
    log.close()
    assert log_file(store, log.id).stat().st_size < 1000
    assert len(list((log.folder / "outputs").iterdir())) == 1
    assert store.read(log.id) == [large, small]


def test_a_large_output_whose_file_is_gone_is_named_in_its_place(store: FileStore) -> None:
    log = store.create()
    log.append(stream("x" * 200_000))
    log.close()
    for file in (log.folder / "outputs").iterdir():
        file.unlink()
    (event,) = store.read(log.id)
    assert isinstance(event, OutputAdded)
    assert "lost" in event.output["text"]


def test_a_reference_cannot_reach_outside_of_the_session(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "private.json").write_text('{"output_type": "stream", "text": "private"}')
    log = store.create()
    log.append(OutputAdded(output={"output_type": "stream", "nbagent_stored_output": "../../../../private.json"}))
    log.close()
    (event,) = store.read(log.id)
    assert 'private"' not in json.dumps(event.model_dump())
    assert isinstance(event, OutputAdded)
    assert "lost" in event.output["text"]


async def test_sync_waits_off_the_loop_and_after_close_it_does_nothing(store: FileStore) -> None:
    log = store.create()
    log.append(Thought(text="kept"))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticker = asyncio.create_task(tick())
    await log.sync()
    ticker.cancel()
    assert ticks > 0
    log.close()
    await log.sync()


def test_appending_to_a_closed_log_is_an_error(store: FileStore) -> None:
    log = store.create()
    log.close()
    log.close()
    with pytest.raises(StoreError, match="closed"):
        log.append(StepStarted())


# -- damage ---------------------------------------------------------------------------------------------


def test_a_torn_last_line_is_left_out_and_does_not_swallow_the_next_event(store: FileStore) -> None:
    log = store.create()
    first = log.append(Thought(text="first"))
    log.close()
    with log_file(store, log.id).open("ab") as file:
        file.write(b'{"type":"Thought","text":"to')
    assert store.read(log.id) == [first]
    again = store.open(log.id)
    second = again.append(Thought(text="second"))
    again.close()
    assert store.read(log.id) == [first, second]


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff\xfe\x00",
        b"null",
        b"[1]",
        b"{}",
        b'{"type":"Thought"}',
        b'{"type":7}',
        b"[" * 100_000,
        b"\0" * 4096,
    ],
)
def test_a_corrupt_line_loses_only_itself(store: FileStore, garbage: bytes) -> None:
    log = store.create()
    first, second = log.append(Thought(text="1")), log.append(Thought(text="2"))
    log.close()
    one, two = log_file(store, log.id).read_bytes().splitlines()
    log_file(store, log.id).write_bytes(one + b"\n" + garbage + b"\n" + two + b"\n")
    assert store.read(log.id) == [first, second]


def test_a_full_disk_is_one_error_and_the_log_stays_readable(tmp_path: Path) -> None:
    """A file-size limit of the process fails a write half-way, as a full disk does."""
    code = """
import resource, signal, sys
from pathlib import Path
from nbagent.errors import StoreError
from nbagent.events import Thought
from nbagent.stores.files import FileStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = FileStore(Path(sys.argv[1])).create()
log.append(Thought(text="before"))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    log.append(Thought(text="x" * 5000))
except StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(log.append(Thought(text="after")).seq)
log.close()
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    message, seq = done.stdout.splitlines()
    assert "events.jsonl: File too large" in message
    assert seq == "2"
    store = FileStore(tmp_path)
    (summary,) = store.summaries()
    assert [getattr(event, "text", "") for event in store.read(summary.id)] == ["before", "after"]


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_after_kill_9_at_any_moment_the_log_is_a_prefix_of_what_was_appended(tmp_path: Path) -> None:
    """A real process appends numbered events and reports each; it is killed at a random event or within one."""
    code = """
import sys
from pathlib import Path
from nbagent.events import OutputAdded
from nbagent.stores.files import FileStore
store = FileStore(Path(sys.argv[1]))
log = store.open(sys.argv[2]) if len(sys.argv) > 2 else store.create()
print(log.id, flush=True)
for number in range(100_000):
    text = f"{number} " + "x" * (number % 5 * 20_000)
    log.append(OutputAdded(output={"output_type": "stream", "name": "stdout", "text": text}))
    print(number, flush=True)
"""
    store, chance, session, kept = FileStore(tmp_path), random.Random(7), "", 0
    for _ in range(8):
        arguments = [sys.executable, "-c", code, str(tmp_path), *([session] if session else [])]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            session = process.stdout.readline().strip()
            reported = -1
            for _ in range(chance.randrange(0, 60)):
                reported = int(process.stdout.readline())
            select.select([], [], [], chance.random() / 500)
            process.send_signal(signal.SIGKILL)
            reported = max([reported, *(int(line) for line in process.stdout.read().split("\n")[:-1])])
        events = store.read(session)[kept:]
        texts = [event.output["text"] for event in events if isinstance(event, OutputAdded)]
        assert [int(text.split()[0]) for text in texts] == list(range(len(texts)))
        assert all(len(text.split(" ")[1]) == n % 5 * 20_000 for n, text in enumerate(texts))
        assert reported + 1 <= len(texts) <= reported + 2
        kept += len(events)


# -- one writer -----------------------------------------------------------------------------------------


def test_a_session_that_is_open_elsewhere_is_busy_and_its_owner_is_named(store: FileStore) -> None:
    code = """
import sys
from pathlib import Path
from nbagent.stores.files import FileStore
log = FileStore(Path(sys.argv[1])).create()
print(log.id, flush=True)
sys.stdin.read()
"""
    arguments = [sys.executable, "-c", code, str(store.home)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        session = owner.stdout.readline().strip()
        with pytest.raises(SessionBusy, match=rf"in use by process {owner.pid} since \d{{4}}-"):
            store.open(session)
        assert store.read(session) == []
        owner.kill()
    store.open(session).close()


def test_the_same_process_cannot_open_a_session_twice(store: FileStore) -> None:
    log = store.create()
    with pytest.raises(SessionBusy, match=str(os.getpid())):
        store.open(log.id)
    log.close()
    store.open(log.id).close()


# -- names and places -----------------------------------------------------------------------------------


def test_ids_are_short_and_sort_by_time(store: FileStore) -> None:
    log = store.create()
    log.close()
    date, clock, tail = log.id.split("-")
    assert (len(date), len(clock), len(tail)) == (8, 6, 4)
    assert date == time.strftime("%Y%m%d", time.gmtime(log.folder.stat().st_mtime))


def test_the_beginning_of_an_id_is_enough_where_only_one_begins_so(store: FileStore) -> None:
    first = write_session(store, "t")
    assert store.read(first[:-4])[0].session == first
    store.open(first[:-4]).close()
    second = write_session(store, "t")
    assert store.read(second)[0].session == second
    with pytest.raises(StoreError, match="2 sessions begin with '20'"):
        store.read("20")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc", "a\\b", "x" * 200, "a b", "é", "-x", "x\n", "*"]
)
def test_an_id_cannot_name_another_place(store: FileStore, name: str) -> None:
    write_session(store, "t")
    with pytest.raises(StoreError, match="not a session id"):
        store.read(name)
    with pytest.raises(StoreError, match="not a session id"):
        store.open(name)


def test_an_unknown_session_is_an_error_that_says_where_to_look(store: FileStore) -> None:
    with pytest.raises(StoreError, match="there is no session '2020'; see `nbagent sessions`"):
        store.read("2020")


def test_a_home_that_cannot_be_made_is_one_line_naming_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"set NBAGENT_HOME to another folder$"):
        FileStore(tmp_path / "file" / "home").create()


def test_session_folders_are_the_users_own(store: FileStore) -> None:
    log = store.create()
    log.close()
    assert log.folder.stat().st_mode & 0o077 == 0
    assert log_file(store, log.id).stat().st_mode & 0o077 == 0


def test_the_home_is_the_variables_or_the_systems(tmp_path: Path) -> None:
    assert default_home({"NBAGENT_HOME": str(tmp_path)}) == tmp_path
    assert default_home({"NBAGENT_HOME": "~/x"}) == Path.home() / "x"
    assert default_home({}).name == "nbagent"


# -- summaries ------------------------------------------------------------------------------------------


def test_summaries_are_newest_first_and_say_how_each_session_ended(store: FileStore) -> None:
    ids = [
        write_session(store, "first"),
        write_session(store, "second", reason="max_steps", runs=3),
        write_session(store, "third", reason=None),
    ]
    third, second, first = store.summaries()
    assert [first.id, second.id, third.id] == ids
    assert (first.task, first.runs, first.reason) == ("first", 1, "answered")
    assert (second.runs, second.reason, second.model, second.folder) == (3, "max_steps", "m", "/data")
    assert (third.runs, third.reason) == (1, "")


def test_a_run_begun_after_one_that_ended_has_no_reason_yet(store: FileStore) -> None:
    session = write_session(store, "t")
    log = store.open(session)
    log.append(RunStarted(task="more", message="more", model="m", run=2))
    log.close()
    (summary,) = store.summaries()
    assert (summary.task, summary.runs, summary.reason) == ("t", 2, "")


def test_text_in_data_cannot_pose_as_the_end_of_a_run(store: FileStore) -> None:
    log = store.create()
    log.append(SessionStarted(nonce="n", versions={}, folder="/"))
    log.append(RunStarted(task="t", message="t", model="m", run=1))
    log.append(Observed(text='\n{"type":"RunFinished","reason":"answered"}', run=1))
    log.append(OutputAdded(output={"data": {"application/json": {"type": "RunFinished", "reason": "denied"}}}))
    log.close()
    assert store.summaries()[0].reason == ""


def test_corrupt_and_empty_sessions_do_not_fail_the_list(store: FileStore) -> None:
    good = write_session(store, "good")
    sessions = store.home / "sessions"
    for name, content in {"20200101-000000-bad1": b"\xff\0\n{", "20200101-000000-bad2": b""}.items():
        (sessions / name).mkdir()
        (sessions / name / "events.jsonl").write_bytes(content)
    (sessions / "20200101-000000-bad3").mkdir()
    (sessions / "20200101-000000-bad4").write_text("a file")
    (sessions / ".DS_Store").write_text("")
    assert next(iter(store.summaries())).id == good


def test_there_are_no_sessions_before_the_first(tmp_path: Path) -> None:
    assert FileStore(tmp_path / "nothing").summaries() == []


def test_a_long_session_is_listed_by_its_ends(store: FileStore) -> None:
    log = store.create()
    log.append(SessionStarted(nonce="n", versions={}, folder="/"))
    log.append(RunStarted(task="t", message="t", model="m", run=1))
    for _ in range(300):
        log.append(Observed(text="x" * 50_000, run=1))
    log.append(RunFinished(reason="answered", run=1))
    log.close()
    assert store.summaries()[0].reason == "answered"
