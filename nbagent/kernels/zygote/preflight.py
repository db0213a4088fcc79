"""Looks at the user's kernel before it is forked: what forbids it, and what will be otherwise in the fork.

A fork inside a native library may freeze the user's own kernel for ever, so that nothing here is left to luck.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import stat
import sys
import tempfile
import threading
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from nbagent.kernels.own_folder import PREFIX
from nbagent.kernels.zygote import forking

BRANCH = "a fork of your kernel"
LOADING = "the agent itself is still loading a module"  #: which it will not do for long

#: Threads of the kernel itself and of the agent: the fork does without them.
_OWN_THREADS = re.compile(
    r"IOPub|Heartbeat|Control|Shell channel|IPythonHistorySavingThread|HistorySavingThread|_watch_pipe_fd|"
    r"ParentPoller|Tornado selector|pydevd|debugpy|subshell|nbagent|asyncio_\d+$",
    re.IGNORECASE,
)
#: Libraries of graphics drivers: once one is loaded, what it keeps of the device may be anywhere.
_DRIVERS = re.compile(r"/(?:libcuda|libamdhip64|libze_loader|libhsa-runtime64)\.so[\w.]*$", re.MULTILINE)


def refusal(shell: Any) -> str:
    """Say why this process must not be forked, whatever the moment, or ""."""
    if threading.current_thread() is not threading.main_thread():
        return "the agent was not called on your kernel's main thread"
    if why := forking.native_obstacle(BRANCH):
        return why
    if driver := _DRIVERS.search(Path("/proc/self/maps").read_text()):
        return f"a GPU's driver is loaded ({driver[0][1:]}), which does not survive {BRANCH}"
    if any(connection.in_transaction for connection in connections(shell)):
        return "an SQLite connection of yours is in a transaction: commit it or roll it back first"
    return ""


def busy() -> str:
    """Say what this process should not be forked in the middle of, or ""; a little later that may be over."""
    me = threading.get_ident()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        inner: Any = frame
        while ident != me and inner is not None:
            if inner.f_code.co_filename == "<frozen importlib._bootstrap>":
                ours = _OWN_THREADS.search(names.get(ident, ""))
                return LOADING if ours else "a thread of yours is importing a module"
            inner = inner.f_back
    if name := forking.busy_threads():
        return f"{name} is computing"
    return ""


def differences(shell: Any, own: Path, own_sockets: Container[int] = ()) -> list[str]:
    """Say what of the user's will not be in the fork as it is here.

    Files below `own`, and in folders of ours for temporary files, are not the user's, nor are `own_sockets`.
    """
    threads = [one.name for one in threading.enumerate() if _is_the_users(one)]
    cut = sum(descriptor not in own_sockets for descriptor, _ in _foreign_sockets())
    temporary = os.path.join(os.path.realpath(tempfile.gettempdir()), PREFIX)  # noqa: PTH118 (the beginning of a name)
    others = (_history_file(shell), str(own), temporary, *_where_the_kernel_prints())
    files = sorted({Path(link).name for link in _written(others)})
    found = []
    if threads:
        found.append(f"these threads do not run in it: {', '.join(threads[:5])}")
    if tasks := _tasks():
        found.append(f"{tasks} asyncio tasks do not run in it")
    if cut:
        found.append(f"{cut} network connections are cut in it")
    if connections(shell):
        found.append("SQLite connections have to be opened anew in it")
    if files:
        found.append(f"these open files are read-only in it: {', '.join(files[:5])}")
    return found


def _is_the_users(thread: threading.Thread) -> bool:
    if thread is threading.main_thread():
        return False
    target = getattr(getattr(thread, "_target", None), "__qualname__", "")
    names = (thread.name, target, type(thread).__name__)
    executor = target == "_worker" and "concurrent" in type(thread).__module__ + str(
        getattr(getattr(thread, "_target", None), "__module__", "")
    )
    return not executor and not any(_OWN_THREADS.search(name) for name in names)


def _tasks() -> int:
    """Count what runs on the main thread's event loop beside what handles the cell."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return 0
    ours = ("ipykernel", "tornado", "zmq", "nbagent", "IPython", "jupyter_client")
    homes = []
    for task in asyncio.all_tasks(loop):
        frame = getattr(task.get_coro(), "cr_frame", None)
        homes.append("ipykernel" if frame is None else str(frame.f_globals.get("__name__", "")))
    return sum(home.partition(".")[0] not in ours for home in homes)


def _foreign_sockets() -> list[tuple[int, str]]:
    """Give the connections to other machines and ports but those of the kernel to its own front end."""
    table: dict[str, tuple[str, str]] = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == "01":  # established
                table[f"socket:[{words[9]}]"] = (words[1].rpartition(":")[2], words[2].rpartition(":")[2])
    own = {f"{port:04X}" for port in _kernel_ports()}
    return [(one, link) for one, link in forking.links() if link in table and not own & set(table[link])]


def _kernel_ports() -> set[int]:
    application: Any = sys.modules.get("ipykernel.kernelapp")
    if application is None or not application.IPKernelApp.initialized():
        return set()
    app = application.IPKernelApp.instance()
    names = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
    return {getattr(app, name, 0) for name in names} | {getattr(app.iopub_thread, "_pipe_port", 0)}


def _written(others: tuple[str, ...]) -> Iterator[str]:
    """Name the files that are open for writing, but for those that begin like `others`."""
    for descriptor, link in forking.links():
        try:
            writes = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        except OSError:
            continue
        if descriptor > 2 and writes and regular and not link.startswith(others):
            yield link


def _where_the_kernel_prints() -> Iterator[str]:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # ipykernel keeps what it was started with
            yield os.readlink(f"/proc/self/fd/{getattr(stream, '_original_stdstream_copy', 1)}")  # noqa: PTH115


def _history_file(shell: Any) -> str:
    return os.path.realpath(str(getattr(shell.history_manager, "hist_file", "") or "-"))


def connections(shell: Any) -> list[Any]:
    """Give the user's SQLite connections: every object is looked at only where a database is open."""
    history = _history_file(shell)
    databases = [one for one, link in forking.links() if not link.startswith(history) and forking.is_database(one)]
    if not databases:
        return []
    history_manager = shell.history_manager
    own = (history_manager.db, getattr(history_manager.save_thread, "db", None))
    return [one for one in forking.database_connections(shell.user_ns) if one not in own]
