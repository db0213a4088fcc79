"""Becomes a kernel: dies with its host, confines itself with Landlock, then executes the kernel in place.

A script for the kernel's interpreter (`-I -S`), which may be another than the host's: standard library only, for
whatever else is loaded before the process is held, code of the agent's may have put there. The
plan is a JSON file; what came of it is left in another one beside it.

PDEATHSIG is tied to the *thread* that started this process: it has to live as long as the kernel shall.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import json
import os
import signal
import site
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  #: the same numbers on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38

_SCOPE_ABSTRACT_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1
_PR_CAPBSET_DROP = 24
#: Load modules, raw input and output, another root, trace, administer, boot, make devices, observe performance.
_CAPABILITIES = (16, 17, 18, 19, 21, 22, 27, 38)
_CAPABILITIES_VERSION = 0x20080522
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
#: By machine: its name in an audit, and its number of the call `socket`.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP = 425  #: could make sockets without that call
_X32 = 0x40000000  #: the other numbers of x86-64
_UNIX, _NETLINK = 1, 16  #: families of sockets that stay within the machine

WRITE_FILE, READ_FILE, REFER, TRUNCATE = 1 << 1, 1 << 2, 1 << 13, 1 << 14
#: Remove directory and file; make device, directory, file, socket, pipe, block device, link.
_CHANGE_TREE = sum(1 << bit for bit in range(4, 13))


def landlock_abi() -> int:
    """Give the version of Landlock that this system offers; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    version = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(int(version), 0)


def confine(writable: list[str], hidden: list[str], abi: int) -> None:
    """Let this process and its children write below `writable` only and read nothing below `hidden`.

    Only rights that version `abi` of Landlock knows are asked for. Since version 6 they also send no signals to
    processes outside, nor reach sockets there that have no file; the host, which is outside, still interrupts by
    signal.

    Raises:
        OSError: the system refused; nothing is confined then.
    """
    write_file = WRITE_FILE | (TRUNCATE if abi >= 3 else 0)
    write = write_file | _CHANGE_TREE | (REFER if abi >= 2 else 0)
    read = READ_FILE if hidden else 0
    scopes = _SCOPE_ABSTRACT_SOCKET | _SCOPE_SIGNAL
    asked = [write | read, 0, scopes] if abi >= 6 else [write | read]  # files, network, scopes
    handled = (ctypes.c_uint64 * len(asked))(*asked)
    size = ctypes.c_size_t(ctypes.sizeof(handled))
    ruleset = _checked(_libc().syscall(_CREATE_RULESET, ctypes.byref(handled), size, ctypes.c_uint32(0)))
    try:
        for path in writable:
            _allow(ruleset, path, (write if Path(path).is_dir() else write_file) | read)
        if read:
            for path in _readable("/", set(hidden)):
                _allow(ruleset, path, read)
        _checked(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(_libc().syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def cut_network() -> None:
    """Let this process and its children make no sockets but those within the machine.

    Raises:
        OSError: the system refused, or its machine is not known here.
    """
    if os.uname().machine not in _MACHINES:
        raise OSError(errno.ENOTSUP, f"the network cannot be cut on {os.uname().machine}")
    audit, socket = _MACHINES[os.uname().machine]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    allow, unreachable = 0x7FFF0000, 0x00050000 | errno.ENETUNREACH
    refuse, unknown = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    # Each step: what to do, how many steps to skip where it holds and where not, with what.
    steps = (
        (load, 0, 0, 4), (equal, 1, 0, audit), (give, 0, 0, refuse),
        (load, 0, 0, 0), (at_least, 0, 1, _X32), (give, 0, 0, refuse),
        (equal, 0, 1, _IO_URING_SETUP), (give, 0, 0, unknown),
        (equal, 1, 0, socket), (give, 0, 0, allow),
        (load, 0, 0, 16), (equal, 1, 0, _UNIX), (equal, 0, 1, _NETLINK), (give, 0, 0, allow),
        (give, 0, 0, unreachable),
    )  # fmt: skip
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    filters = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
    _checked(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc().prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.create_string_buffer(filters), 0, 0))


def drop_capabilities() -> None:
    """Have none of root's ways round the rest, nor let what is executed have them; who is not root has none."""
    for capability in _CAPABILITIES:
        _libc().prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITIES_VERSION, 0), 8)
    held = ctypes.create_string_buffer(24)  # twice (effective, permitted, inheritable), 32 of each
    _checked(_libc().capget(header, held))
    words = list(struct.unpack("=6I", held.raw))
    for capability in _CAPABILITIES:
        for number in range(3):
            words[3 * (capability // 32) + number] &= ~(1 << capability % 32)
    _checked(_libc().capset(header, struct.pack("=6I", *words)))


def hold(plan: dict[str, Any]) -> str:
    """Confine this process as a plan says; give why the system would not, or ""."""
    if plan["confine"]:
        try:
            limit(plan["memory"], plan["processors"])
            confine(plan["writable"], plan["hidden"], landlock_abi())
            drop_capabilities()
            if plan["cut_network"]:
                cut_network()
        except OSError as error:
            return error.strerror or "refused"
    return ""


def limit(memory: int, processors: int) -> None:
    """Bound what a process may take: bytes of memory of its own, and processors; 0 is no bound."""
    if memory:
        import resource

        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        memory = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if processors:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-processors:])


def _readable(path: str, hidden: set[str]) -> Iterator[str]:
    """Everything but `hidden`, in as few paths as can be: a rule holds for all that is below its path."""
    if path in hidden:
        return
    inside = path.rstrip("/") + "/"
    if not any(other.startswith(inside) for other in hidden):
        yield path
        return
    try:
        names = [entry.name for entry in os.scandir(path) if not entry.is_symlink()]
    except PermissionError:
        return
    for name in names:
        yield from _readable(inside + name, hidden)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not there, or behind a folder that is closed to us anyway
        return
    try:
        rule = ctypes.create_string_buffer(
            access.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder), 12
        )
        _checked(_libc().syscall(_ADD_RULE, ctypes.c_int(ruleset), _PATH_BENEATH, rule, ctypes.c_uint32(0)))
    finally:
        os.close(place)


def die_with(host: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the system end this process when the thread of its parent `host` that started it ends."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != host:  # it died before the line above
            os._exit(1)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


def _has_ipykernel() -> bool:
    """Look where the kernel will look; what is there may run code (.pth files), so it is held already."""
    sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    site.main()
    return importlib.util.find_spec("ipykernel_launcher") is not None


def _watch_over(program: list[str], host: int, outcome: dict[str, Any], outcome_file: str) -> None:
    """Run a program of the system and end as it ends; where the host dies first, end all that it started.

    Where it cannot be started, the outcome says why.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the program itself, in the same group
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGUSR1, lambda *_: os.killpg(os.getpgrp(), signal.SIGKILL))
    die_with(host, signal.SIGUSR1)
    Path(outcome_file).write_text(json.dumps(outcome), encoding="utf-8")
    try:
        code = subprocess.Popen(program).wait()
    except OSError as error:
        outcome["not_started"] = error.strerror or "it cannot be started"
        Path(outcome_file).write_text(json.dumps(outcome), encoding="utf-8")
        code = 127
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    sys.exit(code)


def main(plan_file: str, outcome_file: str) -> None:
    """Carry out the plan: become the kernel, or run the program that it names."""
    plan = json.loads(Path(plan_file).read_text(encoding="utf-8"))
    die_with(plan["host"])
    if os.getpgrp() != os.getpid():
        os.setsid()
    program = plan.get("program")
    refused = hold(plan)
    outcome = {"ipykernel": not program and _has_ipykernel(), "refused": refused, "not_started": ""}
    if program:
        _watch_over(program, plan["host"], outcome, outcome_file)
    Path(outcome_file).write_text(json.dumps(outcome), encoding="utf-8")
    if outcome["ipykernel"]:
        os.execv(sys.executable, [sys.executable, *plan["arguments"]])  # noqa: S606


if __name__ == "__main__":
    main(*sys.argv[1:])
