"""Session logs as plain files: one folder a session, one line of JSON an event.

    HOME/sessions/20261130-214512-k3f9/
        events.jsonl      the log; every event is written through before `append` returns
        outputs/12.json   outputs that are too large for a line
        lock, owner.json  held while a process writes the session, and who that is

A torn or corrupt line loses itself only. The lock goes with its process, also at `kill -9`.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_data_path

from nbagent.errors import SessionBusy, StoreError
from nbagent.events import (
    Event,
    Output,
    OutputAdded,
    RunFinished,
    RunStarted,
    SessionStarted,
    from_json,
    to_json,
)
from nbagent.session_store import SessionSummary

#: Outputs whose JSON is longer than this many bytes are stored beside the log.
LARGEST_INLINE_OUTPUT = 64_000
#: The key that stands for such an output in its line.
_STORED_OUTPUT = "nbagent_stored_output"
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would write "\r\n" else
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def default_home(environment: Mapping[str, str]) -> Path:
    """Give the folder that sessions live in: `NBAGENT_HOME`, or the system's place for user data."""
    named = environment.get("NBAGENT_HOME", "").strip()
    return Path(named).expanduser() if named else user_data_path("nbagent", appauthor=False)


class FileLog:
    """One session's log, open for writing by this process alone. Made by `FileStore`."""

    def __init__(self, folder: Path, lock: FileLock):
        """Open the log in `folder`, whose `lock` is held already. Raises `StoreError`."""
        self.id = folder.name
        self.folder = folder
        self._lock = lock
        self._path = folder / "events.jsonl"
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _BINARY, 0o600)
            size = os.fstat(self._descriptor).st_size
            # A line that a dying process left half-written must not swallow the next one.
            self._torn = size > 0 and _last_byte(self._path) != b"\n"
            self._seq = max((event.seq for event in _read(folder)), default=0)
        except OSError as error:
            lock.release()
            raise StoreError(f"cannot open {self._path}: {error.strerror}") from error
        self._closed = False

    def append(self, event: Event) -> Event:
        """Stamp `seq`, `time` and `session` on an event and write it (deltas are stamped only).

        Raises:
            StoreError: it could not be written; the log stays readable and the event is not in it.
        """
        if self._closed:
            raise StoreError(f"session {self.id} is closed")
        stamped = event.model_copy(
            update={"seq": self._seq + 1, "time": time.time(), "session": self.id},
        )
        if stamped.stored:
            self._write(self._line(stamped))
        self._seq += 1
        return stamped

    async def sync(self) -> None:
        """Make sure that what was appended survives a power cut; waits on a thread of its own.

        Raises:
            StoreError: the system could not.
        """
        if self._closed:
            return
        try:
            await asyncio.to_thread(_sync_and_close, os.dup(self._descriptor))
        except OSError as error:
            raise StoreError(f"cannot save {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Save it, close it and let another process have it; closing twice is harmless.

        Uses no thread: this also runs while the interpreter shuts down, when none can be started.
        """
        if self._closed:
            return
        self._closed = True
        with suppress(OSError):
            os.fsync(self._descriptor)
        os.close(self._descriptor)
        (self.folder / "owner.json").unlink(missing_ok=True)
        self._lock.release()

    def _line(self, event: Event) -> bytes:
        try:
            line = to_json(event).encode()
            if isinstance(event, OutputAdded) and len(line) > LARGEST_INLINE_OUTPUT:
                reference = self._store_output(event)
                line = to_json(event.model_copy(update={"output": reference})).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"{event.type} holds what JSON cannot: {error}") from error
        return line + b"\n"

    def _store_output(self, event: OutputAdded) -> Output:
        name = f"{event.seq}.json"
        text = json.dumps(event.output, ensure_ascii=False, separators=(",", ":"))
        try:
            outputs = self.folder / "outputs"
            outputs.mkdir(mode=0o700, exist_ok=True)
            (outputs / name).write_bytes(text.encode("utf-8", "replace"))
        except OSError as error:
            raise StoreError(f"cannot write {outputs / name}: {error.strerror}") from error
        return {"output_type": event.output.get("output_type", ""), _STORED_OUTPUT: name}

    def _write(self, line: bytes) -> None:
        data = b"\n" + line if self._torn else line
        try:
            while data:
                written = os.write(self._descriptor, data)
                self._torn = True  # until the whole line is there
                data = data[written:]
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}") from error
        self._torn = False


class FileStore:
    """Session logs in a folder of files (`protocols.SessionStore`)."""

    def __init__(self, home: Path):
        self.home = home
        self._sessions = home / "sessions"

    def create(self) -> FileLog:
        """Begin a new session. Raises `StoreError` where the home folder cannot be written to."""
        while True:
            stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
            tail = "".join(secrets.choice(_ALPHABET) for _ in range(4))
            folder = self._sessions / f"{stamp}-{tail}"
            try:
                self._sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.mkdir(mode=0o700)
            except FileExistsError:
                if self._sessions.is_dir():
                    continue
                raise StoreError(f"{self._sessions} is not a folder; set NBAGENT_HOME to one") from None
            except OSError as error:
                raise StoreError(
                    f"cannot write sessions to {self.home} ({error.strerror}); set NBAGENT_HOME to another folder"
                ) from error
            return FileLog(folder, _lock(folder))

    def open(self, session: str) -> FileLog:
        """Open a session for writing, by its id or the beginning of it.

        Raises:
            SessionBusy: another process (or this one) has it open; the message says which.
            StoreError: there is none, or more than one id begins so.
        """
        folder = self._find(session)
        return FileLog(folder, _lock(folder))

    def read(self, session: str) -> list[Event]:
        """Read a session by its id or the beginning of it; torn and corrupt lines are left out.

        Raises:
            StoreError: there is none, more than one id begins so, or it cannot be read.
        """
        folder = self._find(session)
        try:
            return _read(folder)
        except OSError as error:
            raise StoreError(f"cannot read session {folder.name}: {error.strerror}") from error

    def summaries(self) -> list[SessionSummary]:
        """List the sessions, newest first. Reads the beginning and the end of each log only."""
        found = [summary for folder in self._folders() if (summary := _summary(folder)) is not None]
        return sorted(found, key=lambda summary: (summary.started, summary.id), reverse=True)

    def _folders(self) -> list[Path]:
        try:
            return [folder for folder in self._sessions.iterdir() if _ID.fullmatch(folder.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"cannot read {self._sessions} ({error.strerror}); set NBAGENT_HOME") from error

    def _find(self, session: str) -> Path:
        if not _ID.fullmatch(session):
            raise StoreError(f"{session!r} is not a session id; see `nbagent sessions`")
        names = sorted(folder.name for folder in self._folders() if folder.name.startswith(session))
        if session in names:
            return self._sessions / session
        if not names:
            raise StoreError(f"there is no session {session!r}; see `nbagent sessions`")
        if len(names) > 1:
            raise StoreError(
                f"{len(names)} sessions begin with {session!r}: {', '.join(names[:3])}; write more of it"
            )
        return self._sessions / names[0]


def _lock(folder: Path) -> FileLock:
    lock = FileLock(folder / "lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise SessionBusy(f"session {folder.name} is in use{_owner(folder)}") from error
    except OSError as error:
        raise StoreError(f"cannot lock {folder}: {error.strerror}") from error
    try:
        (folder / "owner.json").write_text(json.dumps({"pid": os.getpid(), "since": time.time()}))
    except OSError as error:
        lock.release()
        raise StoreError(f"cannot write to {folder}: {error.strerror}") from error
    return lock


def _owner(folder: Path) -> str:
    """Say who holds the lock, as far as its owner wrote it down."""
    try:
        owner = json.loads((folder / "owner.json").read_text())
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["since"]))
        return f" by process {owner['pid']} since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _read(folder: Path) -> list[Event]:
    events = []
    path = folder / "events.jsonl"
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        event = _parse(line)
        if isinstance(event, OutputAdded) and _STORED_OUTPUT in event.output:
            event = event.model_copy(update={"output": _restore(folder, event.output)})
        if event is not None:
            events.append(event)
    return events


def _restore(folder: Path, reference: Output) -> Output:
    name = Path(str(reference[_STORED_OUTPUT])).name
    try:
        output = json.loads((folder / "outputs" / name).read_bytes())
    except (OSError, ValueError):
        output = None
    if isinstance(output, dict):
        return output
    return {"output_type": "stream", "name": "stderr", "text": f"[the stored output {name} is lost]\n"}


def _parse(line: bytes) -> Event | None:
    try:
        return from_json(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _summary(folder: Path) -> SessionSummary | None:
    try:
        with (
            (folder / "events.jsonl").open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log,
        ):
            head = _parse(_line_at(log, 0))
            first_begun = log.find(b'\n{"type":"RunStarted",')
            first = _parse(_line_at(log, first_begun + 1)) if first_begun >= 0 else None
            begun = log.rfind(b'\n{"type":"RunStarted",')
            last = _parse(_line_at(log, begun + 1)) if begun >= 0 else None
            ended = log.rfind(b'\n{"type":"RunFinished",', max(begun, 0))
            finish = _parse(_line_at(log, ended + 1)) if ended >= 0 else None
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None
    return SessionSummary(
        id=folder.name,
        started=head.time if head is not None else 0.0,
        folder=head.folder if isinstance(head, SessionStarted) else "",
        task=first.task if isinstance(first, RunStarted) else "",
        runs=max(event.run if event is not None else 0 for event in (first, last, finish)),
        reason=finish.reason if isinstance(finish, RunFinished) else "",
        model=last.model if isinstance(last, RunStarted) else "",
    )


def _line_at(log: mmap.mmap, start: int) -> bytes:
    end = log.find(b"\n", start)
    return log[start : end if end >= 0 else len(log)]


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _sync_and_close(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
