"""The process that serves the embedded model: llama.cpp behind an OpenAI-compatible port on loopback.

Owners hold a connection to its control port; the system closes it whatever way an owner ends. The server
exits `grace` seconds after the last one is gone. The owners' side is `embedded_owner`.
"""

from __future__ import annotations

import argparse
import contextlib
import hmac
import os
import secrets
import selectors
import socket
import sys
import time
from pathlib import Path

import filelock
from pydantic import BaseModel, ConfigDict, ValidationError

#: Exit code for "a server with these parameters runs already".
ALREADY_RUNNING = 75
#: MiB of earlier prompts kept in memory beside the open one, so that owners who take turns keep theirs.
PROMPT_CACHE_MIB = 1024
LOOPBACK = "127.0.0.1"


class Record(BaseModel):
    """What a server says of itself in the file where owners look. The ports are 0 while it loads."""

    model_config = ConfigDict(frozen=True)

    pid: int
    key: str = ""
    port: int = 0  #: of the OpenAI-compatible server
    control: int = 0  #: of the owners' connections

    @classmethod
    def read(cls, file: Path) -> Record | None:
        """Read the file; None where there is none or it is torn."""
        try:
            return cls.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, file: Path) -> None:
        """Write it at once and for this user's eyes only."""
        fresh = file.with_name(f"{file.name}.{self.pid}")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(self.model_dump_json())
        fresh.replace(file)


def serve_owners(listener: socket.socket, key: str, grace: float) -> None:
    """Answer each line that is the key with "ok"; return `grace` seconds after the last owner is gone.

    A connection is an owner from its first correct line until it is closed.
    """
    listener.setblocking(False)
    owners: set[socket.socket] = set()
    with contextlib.ExitStack() as open_connections, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        deadline = time.monotonic() + grace
        while owners or time.monotonic() < deadline:
            wait = None if owners else max(0.0, deadline - time.monotonic())
            for ready, _ in selector.select(wait):
                connection = ready.fileobj
                assert isinstance(connection, socket.socket)
                if connection is listener:
                    with contextlib.suppress(OSError):  # it hung up before we answered
                        accepted = open_connections.enter_context(listener.accept()[0])
                        accepted.settimeout(1)
                        selector.register(accepted, selectors.EVENT_READ)
                elif _answer(connection, key):
                    owners.add(connection)
                else:
                    selector.unregister(connection)
                    connection.close()
                    if connection in owners:
                        owners.remove(connection)
                        deadline = time.monotonic() + grace


def _answer(connection: socket.socket, key: str) -> bool:
    """Answer an owner's line; False where the connection is over or not an owner's."""
    try:
        said = connection.recv(256)
        if not said.endswith(b"\n") or not hmac.compare_digest(said.split(b"\n")[0], key.encode()):
            return False
        connection.sendall(b"ok\n")
    except OSError:
        return False
    return True


def main(arguments: list[str]) -> int:
    """Serve until no owner is left."""
    parser = argparse.ArgumentParser(prog="nbagent.models.embedded_server", description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--grace", type=float, required=True)
    options = parser.parse_args(arguments)
    alive = filelock.FileLock(options.record.with_suffix(".alive"))
    try:
        alive.acquire(timeout=0)
    except filelock.Timeout:
        return ALREADY_RUNNING
    pid, key = os.getpid(), secrets.token_urlsafe(24)
    Record(pid=pid).write(options.record)

    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(options.model)
    parameters.model_alias = {options.model.stem}
    parameters.n_ctx = options.context
    parameters.n_parallel = 1
    parameters.cache_ram_mib = PROMPT_CACHE_MIB
    parameters.cpuparams.n_threads = options.threads
    parameters.cpuparams_batch.n_threads = options.threads
    # The weights as they are, shared with the page cache: a repacked copy costs 0.6 GB and seconds at the start,
    # and reads prompts no faster.
    parameters.no_extra_bufts = True
    parameters.hostnames = [LOOPBACK]
    parameters.port = 0
    parameters.api_keys = [key]
    parameters.ui = False
    server = xllamacpp.Server(parameters)
    port = int(server.listening_address.rpartition(":")[2])

    with socket.create_server((LOOPBACK, 0)) as listener:
        Record(pid=pid, key=key, port=port, control=listener.getsockname()[1]).write(options.record)
        serve_owners(listener, key, options.grace)
    options.record.unlink(missing_ok=True)
    # No farewell to llama.cpp: it has nothing to save, and may be at work for an owner that was killed.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
