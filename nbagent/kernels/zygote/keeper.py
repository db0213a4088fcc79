"""The process that a host starts: parent, sooner or later, of every worker, and the first to know how one ended.

It imports ipykernel once, forks the first worker and from then on only waits: as a subreaper it inherits the
workers whose parents are gone. It ends with its host, whatever is below it first; if it is killed, every worker
dies with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from nbagent.kernels.zygote import worker as first_worker
from nbagent.kernels.zygote.wire import Wire

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


Worker = Callable[[Wire, int, int, int], None]


def main(control: int, wire: int, out: int, err: int, worker: Worker = first_worker.main) -> None:
    """Fork the first worker and keep the family; all arguments but the last are inherited descriptors."""
    for descriptor in (control, wire, out, err):
        os.set_inheritable(descriptor, False)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    life, lives = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(lives)
        os.close(control)
        worker(Wire(socket.socket(fileno=wire)), out, err, life)
    else:
        for descriptor in (wire, out, err, life):
            os.close(descriptor)
        # Told of the host's end; SIGKILL would end this process alone, and not what the code started.
        signal.signal(signal.SIGTERM, lambda *_: _end_family())
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        _keep(socket.socket(fileno=control), pid)


def _keep(control: socket.socket, first: int) -> None:
    """Tell the host of the first worker and of every end, and end whom it names; ends with the host.

    A line to the host is a process number and how it ended, null while it lives.
    """
    control.sendall(json.dumps([first, None]).encode() + b"\n")
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    asked = b""
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _tell_of_ends(control)
        if control in ready:
            data = control.recv(4096)
            if not data:
                _end_family()
            *lines, asked = (asked + data).split(b"\n")
            for line in lines:
                _kill(int(line))


def _tell_of_ends(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        control.sendall(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode() + b"\n")


def _end_family() -> None:
    """End every process that is left, waiting for each, so that no dead one stays behind; then end."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        for child in map(int, children.read_text().split()):
            os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)  # whose own children are ours then
        except ChildProcessError:
            os._exit(0)


def _kill(pid: int) -> None:
    """End a worker that is a child of ours: its number is its own until we have waited for it."""
    try:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            os.kill(pid, signal.SIGKILL)
    except ChildProcessError:
        return
