"""A branch: a fork of the user's live kernel that is cut off from all that the user's kernel holds, and confined.

The fork becomes the keeper of a family (see keeper.py) whose first worker is the user's own shell, its names
and all, behind a kernel without threads and without zmq. The order of what is cut matters: nothing may close
or unregister what is shared with the user's kernel, so each inherited descriptor is written over in its place.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import functools
import gc
import json
import os
import signal
import socket
import stat
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipykernel.kernelbase import Kernel
from ipykernel.zmqshell import ZMQInteractiveShell
from traitlets.config import Application

from nbagent.kernels import launch
from nbagent.kernels.zygote import forking, keeper, preflight, worker
from nbagent.kernels.zygote.wire import Wire

_PROT_READ_WRITE, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS = 3, 2, 0x10, 0x20
_FIRST_TO_GO = "300"  #: for the system, short of memory: before anything of the user's

_keep_alive: list[Any] = []  #: what must neither be used nor freed in the fork


@dataclass(frozen=True)
class Plan:
    """What the fork is made with."""

    descriptors: tuple[int, int, int, int]  #: control, wire, stdout, stderr (see keeper.main)
    folder: Path  #: where it works
    environment: Mapping[str, str]
    confinement: Mapping[str, Any]  #: see launch.hold
    log: int  #: an open file for its own words
    outcome: Path  #: where it says what came of the confinement


def fork(plan: Plan, shell: Any, forked: Callable[[int], None]) -> None:
    """Fork the process that `shell` is in, on its main thread; the process number goes to `forked`.

    Nothing else of ours may run meanwhile. Returns in the user's process only.
    """
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(Exception):
            stream.flush()  # type: ignore[union-attr]  # what waits would be said twice
    connections = preflight.connections(shell)
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: they were looked at
        forking.pause_openmp()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        pid = os.fork()
        if pid == 0:
            _be_the_fork(plan, shell, parent, connections)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        forked(pid)


def _be_the_fork(plan: Plan, shell: Any, parent: int, connections: list[Any]) -> None:
    """Never returns: what is above on the stack is the user's."""
    try:
        gc.freeze()  # a collection would copy every page
        _keep_alive.append((sys.stdout, sys.stderr))
        _leave_the_family(parent)
        _take_log(plan.log)
        isolate({0, 1, 2, *plan.descriptors})
        own_maps()
        _forget(connections)
        os.environ.clear()
        os.environ.update(plan.environment)
        os.chdir(plan.folder)
        refused = launch.hold(dict(plan.confinement))
        plan.outcome.write_text(json.dumps({"ipykernel": True, "refused": refused}), encoding="utf-8")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        keeper.main(*plan.descriptors, functools.partial(_be_the_kernel, shell))
    except BaseException:  # noqa: BLE001 (whatever it is: nothing of it may reach the user's code)
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(70)


# -- cutting off ----------------------------------------------------------------------------------------


def _leave_the_family(parent: int) -> None:
    """Have signals, exit handlers and the event loop of the user's kernel no more."""
    os.setsid()
    launch.die_with(parent)
    signal.set_wakeup_fd(-1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGINT}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit._clear()
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(None)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)


def _take_log(log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(nothing)


def isolate(kept: set[int]) -> None:
    """Write over every inherited descriptor through which something could reach the user's kernel or files.

    Sockets are dead, files are read-only with a position of their own, folders stay, the rest is nothing.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    dead, other = socket.socketpair()
    other.close()
    kept = kept | {nothing, dead.fileno()}
    for descriptor in list(forking.descriptors()):
        if descriptor in kept:
            continue
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:  # the list's own
            continue
        if stat.S_ISDIR(mode):
            continue
        if stat.S_ISREG(mode) and _reopen(descriptor):
            continue
        os.dup2(dead.fileno() if stat.S_ISSOCK(mode) else nothing, descriptor, inheritable=False)
    dead.close()
    os.close(nothing)


def _reopen(descriptor: int) -> bool:
    try:
        opened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no right to read it
        return False
    os.lseek(opened, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
    os.dup2(opened, descriptor, inheritable=False)
    os.close(opened)
    return True


def own_maps() -> None:
    """Make memory that is shared with other processes a private copy at its place, which is copied on write."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, offset, _, _, *name = line.split(None, 5)
        if rights[1] != "w" or rights[3] != "s":
            continue
        begin, end = (int(address, 16) for address in place.split("-"))
        path = name[0].strip() if name else ""
        if path.startswith("/dev/") and not path.startswith(("/dev/shm/", "/dev/zero")):  # noqa: S108
            continue
        private = _MAP_PRIVATE | _MAP_FIXED
        try:
            file = os.open(path, os.O_RDONLY) if Path(path).is_file() else -1
        except OSError:
            file = -1
        if file >= 0:
            libc.mmap(begin, end - begin, _PROT_READ_WRITE, private, file, int(offset, 16))
            os.close(file)
        else:  # it has no name any more
            content = ctypes.string_at(begin, end - begin)
            libc.mmap(begin, end - begin, _PROT_READ_WRITE, private | _MAP_ANONYMOUS, -1, 0)
            ctypes.memmove(begin, content, end - begin)


def _forget(connections: list[Any]) -> None:
    utilities = sys.modules.get("multiprocessing.util")
    if utilities is not None:
        utilities._finalizer_registry.clear()
        utilities._run_after_forkers()
        utilities.process.current_process()._config.pop("tempdir", None)  # the user's may not be written to
    forking.renew_executors()
    forking.forget_children()
    forking.deny_connections(connections)
    temporary: Any = sys.modules.get("tempfile")
    if temporary is not None:
        temporary.tempdir = None  # it is looked for again, where it may be written to


# -- the kernel -----------------------------------------------------------------------------------------


def _be_the_kernel(shell: Any, wire: Wire, out: int, err: int, life: int) -> None:
    try:
        old = (sys.stdout, sys.stderr)
        worker.take_streams(wire, out, err)
        _redirect(old, shell)
        kernel = _kernel_of(shell, wire)
        worker.serve(kernel, life)
        atexit._run_exitfuncs()
        os._exit(0)
    except BaseException:  # noqa: BLE001 (see _be_the_fork)
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(70)


def _redirect(old: tuple[Any, Any], shell: Any) -> None:
    """Have the inherited streams, which log handlers and others hold, say to the agent what they are given.

    What ipykernel does in a fork would bring it into the user's notebook.
    """
    threads = [getattr(getattr(shell, "kernel", None), "iopub_thread", None)]
    for before, now in zip(old, (sys.stdout, sys.stderr), strict=True):
        if (thread := getattr(before, "pub_thread", None)) is not None:
            threads.append(thread)
            before.write, before.flush = now.write, now.flush
    for thread in threads:
        if thread is not None:
            thread.schedule = thread.send_multipart = _nowhere


def _nowhere(*_: Any, **__: Any) -> None:
    """Take a message that the user's front end must not get."""


def _kernel_of(shell: Any, wire: Wire) -> worker.WorkerKernel:
    """Make the kernel around the user's shell, or around a new one with the same names."""
    for single in (Application._instance, Kernel._instance):
        if single is not None:
            type(single).clear_instance()
    if not isinstance(shell, ZMQInteractiveShell):  # a terminal's
        type(shell).clear_instance()
    kernel = worker.make_kernel(
        wire,
        worker.new_loop(),
        profile_dir=shell.profile_dir,
        user_ns=shell.user_ns,
        user_module=shell.user_module,
    )
    _settle(kernel.shell, kernel)
    if kernel.shell is not shell:
        _detach_history(shell)
    return kernel


def _settle(shell: Any, kernel: worker.WorkerKernel) -> None:
    shell.kernel = shell.parent = kernel
    shell.displayhook.cache_size = 0  # Out and _ stay the user's
    shell.display_pub._thread_local = threading.local()  # hooks of widgets of the user's
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("agent", None)
    _detach_history(shell)
    comm: Any = sys.modules.get("comm")
    if comm is not None:
        for one in list(getattr(comm.get_comm_manager(), "comms", {}).values()):
            one.kernel = None


def _detach_history(shell: Any) -> None:
    """Have its database, which is the user's, used no more; not even closed."""
    history = shell.history_manager
    if history is None:
        return
    _keep_alive.append((history, getattr(history, "db", None), getattr(history, "save_thread", None)))
    history.enabled = False
    history.save_thread, history.using_thread = None, False
    history.db_input_cache_lock, history.db_output_cache_lock = threading.Lock(), threading.Lock()
    history.db_input_cache, history.db_output_cache = [], []
