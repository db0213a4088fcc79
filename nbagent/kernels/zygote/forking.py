"""What makes a fork of a process with libraries safe, and what a woken fork must not share with its past."""

from __future__ import annotations

import ctypes
import fcntl
import os
import queue
import re
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BUSY_WINDOW = 0.006  #: seconds over which other threads' processor time is measured
BUSY_NANOSECONDS = 1_000_000
BUSY_MOST = 0.5  #: seconds to wait for threads that would run and do not get a processor
_OMP_PAUSE_HARD = 2
_SQLITE_DENY = 1

#: Threads of their own that a fork does not have, whatever they do at the moment.
_KEEP_THREADS = {
    "tensorflow": "TensorFlow",
    "jaxlib": "JAX",
    "ray": "Ray",
    "pyspark": "Spark",
    "grpc": "gRPC",
    "torch_xla": "XLA",
}

#: Devices that a process has open as long as it uses them.
_ACCELERATOR = re.compile(r"/dev/(?:nvidia|kfd|dri/|dxg|accel|neuron)")

_openmp_known: tuple[int, list[Any]] = (0, [])  #: number of modules when it was looked for, the libraries
_keep_alive: list[Any] = []  #: what a fork must neither use nor free


# -- before a fork --------------------------------------------------------------------------------------


def obstacle() -> str:
    """Say what would not survive a fork of this process, or ""."""
    return native_obstacle("a checkpoint") or _thread_obstacle()


def native_obstacle(what: str) -> str:
    """Name the library whose threads or devices do not survive `what`, or give ""."""
    for module, name in _KEEP_THREADS.items():
        if module in sys.modules:
            return f"{name} is loaded, whose threads do not survive {what}"
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        return f"torch has initialised CUDA, which does not survive {what}"
    if device := next((link for _, link in links() if _ACCELERATOR.match(link)), ""):
        return f"a GPU is in use ({device}), which does not survive {what}"
    if _thread_named("polars"):
        return f"polars is at work with threads that do not survive {what}"
    numba = sys.modules.get("numba.np.ufunc.parallel")
    if numba is not None and getattr(numba, "_is_initialized", False):
        return f"numba has run code with parallel=True, whose threads do not survive {what}"
    return ""


def _thread_named(beginning: str) -> bool:
    for task in _tasks():
        try:
            if Path(f"/proc/self/task/{task}/comm").read_text().startswith(beginning):
                return True
        except OSError:  # it has just ended
            continue
    return False


def _thread_obstacle() -> str:
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread is threading.main_thread():
            continue
        kind = type(thread)
        if kind.__module__.startswith(("joblib.externals.loky", "tqdm.")) or _is_loky_feeder(thread):
            continue
        frame = frames.get(thread.ident or 0)
        if frame is not None and frame.f_code.co_name == "_worker" and "concurrent" in frame.f_code.co_filename:
            continue  # an executor's thread that waits for work: see `renew_executors`
        return f"a thread that code started ({thread.name}) would not survive a checkpoint"
    return ""


def _is_loky_feeder(thread: threading.Thread) -> bool:
    return "joblib.externals.loky" in sys.modules and thread.name.startswith("QueueFeederThread")


def busy_threads() -> str:
    """Name a thread that computes right now, or give "": a fork inside OpenBLAS or OpenMP never returns."""
    if len(_tasks()) < 2:
        return ""
    before = _processor_times()
    until = time.monotonic() + BUSY_MOST
    while True:
        time.sleep(BUSY_WINDOW)
        for task, nanoseconds in _processor_times().items():
            if nanoseconds - before.get(task, nanoseconds) > BUSY_NANOSECONDS:
                return _name_of(task)
        # On a busy machine a thread may be in the midst of its work and get no processor all that time.
        waiting = [task for task in before if _would_run(task)]
        if not waiting:
            return ""
        if time.monotonic() > until:
            return _name_of(waiting[0])


def _name_of(task: str) -> str:
    names = {str(thread.native_id): thread.name for thread in threading.enumerate()}
    return names.get(task, "a thread of a native library")


def _would_run(task: str) -> bool:
    try:
        status = Path(f"/proc/self/task/{task}/stat").read_text()
    except OSError:  # it has ended
        return False
    return status.rpartition(")")[2].split()[0] == "R"


def _tasks() -> list[str]:
    return os.listdir("/proc/self/task")  # noqa: PTH208 (every microsecond of it is the user's)


def _processor_times() -> dict[str, int]:
    times = {}
    me = str(threading.get_native_id())
    for task in _tasks():
        if task != me:
            try:
                times[task] = int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[0])
            except OSError:  # it has just ended
                continue
    return times


def pause_openmp() -> None:
    """End the idle threads of every libgomp: they are started anew when needed, on both sides of the fork."""
    global _openmp_known
    if _openmp_known[0] != len(sys.modules):
        places = {line.split(None, 5)[5].strip() for line in _maps() if "gomp" in line and "/" in line}
        libraries = [ctypes.CDLL(place) for place in sorted(places)]
        _openmp_known = (len(sys.modules), [one for one in libraries if hasattr(one, "omp_pause_resource_all")])
    for library in _openmp_known[1]:
        library.omp_pause_resource_all(_OMP_PAUSE_HARD)


def _maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


# -- in a sleeping fork, and when it wakes --------------------------------------------------------------

OpenFiles = dict[int, tuple[int, int]]  #: descriptor to flags and position


def open_files() -> OpenFiles:
    """Give flags and position of every regular file that is open: the position is shared with the parent."""
    found = {}
    for descriptor in descriptors():
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                found[descriptor] = (flags, os.lseek(descriptor, 0, os.SEEK_CUR))
        except OSError:
            continue
    return found


def own_files(files: OpenFiles) -> None:
    """Open them anew, each at the position that it had."""
    for descriptor, (flags, position) in files.items():
        wanted = flags & (os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK)
        try:
            inheritable = os.get_inheritable(descriptor)
            opened = os.open(f"/proc/self/fd/{descriptor}", wanted)
            os.lseek(opened, position, os.SEEK_SET)
            os.dup2(opened, descriptor, inheritable=inheritable)
            os.close(opened)
        except OSError:  # no right to open it again, or closed in between
            continue


def cut_connections(kept: set[int]) -> int:
    """Cut what the past went on talking to; give how many network connections that were."""
    cut = 0
    dead, other = socket.socketpair()
    other.close()
    for descriptor in descriptors():
        if descriptor in kept or descriptor == dead.fileno():
            continue
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                if not connection.getpeername():
                    continue  # a pair inside this process, or between it and its children
        except OSError:  # not connected: a server's socket is still good
            continue
        os.dup2(dead.fileno(), descriptor, inheritable=False)
        cut += 1
    dead.close()
    return cut


def deny_sqlite(files: dict[int, tuple[int, int]], names: dict[str, Any]) -> int:
    """Refuse every statement on connections to database files: their locks and journals are not ours.

    Gives how many; they have to be opened again.
    """
    if not any(is_database(descriptor) for descriptor in files):
        return 0
    return deny_connections(database_connections(names))


def database_connections(names: dict[str, Any]) -> list[Any]:
    """Give the SQLite connections to files that there are."""
    sqlite = sys.modules.get("sqlite3")
    if sqlite is None:
        return []
    import gc

    found = {id(one): one for one in [*names.values(), *gc.get_objects()] if type(one) is sqlite.Connection}
    to_files = []
    for connection in found.values():
        try:
            if any(path for _, _, path in connection.execute("PRAGMA database_list")):
                to_files.append(connection)
        except sqlite.Error:  # closed, or another thread's
            continue
    return to_files


def deny_connections(connections: list[Any]) -> int:
    """Refuse every statement on them; give how many."""
    for connection in connections:
        _keep_alive.append(connection)  # to close it would touch the file
        connection.set_authorizer(lambda *_: _SQLITE_DENY)
    return len(connections)


def is_database(descriptor: int) -> bool:
    """Whether an open file is an SQLite database."""
    try:
        return os.pread(descriptor, 15, 0) == b"SQLite format 3"
    except OSError:
        return False


def renew_executors() -> None:
    """Let thread pools start threads anew: those that they count on were not forked."""
    threads = sys.modules.get("concurrent.futures.thread")
    for thread in list(getattr(threads, "_threads_queues", {})):
        arguments = getattr(thread, "_args", ())
        executor = arguments[0]() if arguments else None
        if executor is not None:
            executor._threads.clear()
            executor._work_queue = queue.SimpleQueue()  # what waits in the old one is the past's to do
            executor._idle_semaphore = threading.Semaphore(0)
            executor._shutdown_lock = threading.Lock()
    if threads is not None:
        threads._threads_queues.clear()
    loky: Any = sys.modules.get("joblib.externals.loky.reusable_executor")
    if loky is not None:
        _keep_alive.append(loky._executor)
        loky._executor = None
        loky._executor_lock = threading.RLock()


def forget_children() -> None:
    """Let multiprocessing and subprocess forget processes that are not this one's children."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes._children.clear()
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    if tracker is not None:
        tracker._resource_tracker._fd = tracker._resource_tracker._pid = None
        tracker._resource_tracker._lock = threading.RLock()
    subprocess: Any = sys.modules.get("subprocess")
    if subprocess is not None:
        _keep_alive.append(list(subprocess._active or ()))
        subprocess._active = []


def links() -> Iterator[tuple[int, str]]:
    """Give every open file's number and what it is."""
    for descriptor in descriptors():
        try:
            yield descriptor, os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 (a text, also where it is no path)
        except OSError:
            continue


def descriptors() -> Iterator[int]:
    """Give the numbers of all open files."""
    yield from sorted(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
