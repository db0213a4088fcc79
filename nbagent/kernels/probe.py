"""Runs inside the agent's kernel: tells what changed, moves variables, keeps the kernel tidy.

The text of this file is executed there as a module of its own, after those that it imports from (the kernel's
interpreter may not have nbagent), so it uses the standard library and IPython only. It never calls code
of unknown objects: no repr, no len, no attribute of a type that it does not know.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import importlib.metadata
import os
import pickle
import signal
import site
import sys
import time
import types
from pathlib import Path
from typing import Any

from nbagent.glance import GLANCE_SECONDS, LONGEST_VALUE, Effort, TooLong, describe, is_a, within
from nbagent.importing import ImportGuard
from nbagent.inspection import look
from nbagent.interrupted import handle
from nbagent.parcels import read_parcel, write_parcel

MOST_NAMES = 2000
MOST_SECONDS = 0.05  #: for one look; names that were not reached count as unchanged until the next one
MOST_COLUMNS = 30  #: of a table that is shown, whose dtypes are told
OURS = frozenset({"In", "Out", "exit", "quit", "get_ipython", "open"})

_slow: set[type] = set()  #: classes of the code's own whose values hang when they are looked at
_known: dict[str, tuple[Any, ...]] = {}
#: What was there before any code of the agent's ran is not what it imported.
_packages: dict[str, Any] = {"modules": 0, "known": {name.partition(".")[0] for name in list(sys.modules)}}


class Report:
    """Travels to the host as JSON, as the value of a user expression."""

    def __init__(self, values: dict[str, Any]):
        self._values = values

    def __repr__(self) -> str:
        return ""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"application/json": self._values}


class _Seen(int):
    """An exit status that was reported; a fresh one is a plain int."""


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython()


# -- what there is --------------------------------------------------------------------------------------


def _glance(value: Any) -> tuple[tuple[str, str], tuple[Any, ...], float]:
    """Describe a value, one of a class that was slow before by its type alone; and the seconds that it hung."""
    kind = type(value)
    if kind in _slow:
        described = (type.__getattribute__(kind, "__name__"), "")
        return described, (id(value), *described), 0.0
    effort = Effort()
    described = describe(value)
    token = _token(value, described)
    seconds = effort.seconds()
    if seconds < GLANCE_SECONDS / 2 or type.__getattribute__(kind, "__module__") != "__main__":
        return described, token, 0.0
    _slow.add(kind)
    return described, token, seconds


def _token(value: Any, described: tuple[str, str]) -> tuple[Any, ...]:
    columns: Any = ()
    if is_a(type(value), "pandas", "DataFrame") or is_a(type(value), "polars", "DataFrame"):
        try:
            columns = within(GLANCE_SECONDS, lambda: hash(tuple(map(str, value.columns[:200]))))
        except (Exception, TooLong):  # noqa: BLE001 (a subclass of a table, or a column's name, may do anything)
            columns = ()
    return (id(value), *described, columns)


def token_of(value: Any) -> tuple[Any, ...]:
    """Give what differs where a variable was bound anew, or changed in a way that can be seen from outside."""
    return _token(value, describe(value))


def is_a_variable(name: str, value: Any) -> bool:
    """Whether a name of a shell's is somebody's variable, and not the shell's own or a module."""
    # By type: isinstance would ask the object for its __class__.
    return not name.startswith("_") and name not in OURS and not issubclass(type(value), types.ModuleType)


def changes() -> Report:
    """Give what is new or differs since the last look, what is gone, and a command's exit status."""
    shell = _shell()
    names = shell.user_ns
    effort, most = Effort(), MOST_SECONDS
    changed = []
    current = [name for name in list(names) if isinstance(name, str)]
    gone = [name for name in _known if name not in names or not is_a_variable(name, names[name])]
    for name in gone:
        del _known[name]
    for name in current:
        value = names.get(name)
        if not is_a_variable(name, value) or (name not in _known and len(_known) >= MOST_NAMES):
            continue
        if effort.seconds() > most:
            break
        described, token, seconds = _glance(value)
        most += seconds  # what hangs takes no time from the others
        if _known.get(name) != token:
            _known[name] = token
            changed.append([name, *described])
    report = {"changes": changed, "gone": gone, "exit": _exit_status(names), "imported": _imported()}
    report["table"] = _shown_table(shell)
    _let_go(shell)
    return Report(report)


def _shown_table(shell: Any) -> str:
    """Give the dimensions and the columns by dtype of the table that is the last line's value, or ""."""
    value: Any = getattr(shell.last_execution_result, "result", None)
    if not is_a(type(value), "pandas", "DataFrame") or type(value).__module__.partition(".")[0] != "pandas":
        return ""
    try:
        return within(GLANCE_SECONDS, lambda: _dtypes(value))
    except (Exception, TooLong):  # noqa: BLE001 (a column's name may be any object)
        return ""


def _dtypes(value: Any) -> str:
    columns: dict[str, list[str]] = {}
    for name, dtype in zip(value.columns[:MOST_COLUMNS], value.dtypes[:MOST_COLUMNS], strict=True):
        columns.setdefault(str(dtype), []).append(str(name)[:LONGEST_VALUE])
    rows, width = value.shape
    more = f"; and {width - MOST_COLUMNS} more columns" if width > MOST_COLUMNS else ""
    dtypes = "; ".join(f"{dtype}: {', '.join(names)}" for dtype, names in columns.items())
    return f"{rows} rows x {width} columns; {dtypes}{more}"


def _imported() -> list[list[str]]:
    """Give the packages that are new since the last look, with their versions; the standard library has none."""
    if len(sys.modules) == _packages["modules"]:
        return []
    _packages["modules"] = len(sys.modules)
    names = {name.partition(".")[0] for name in list(sys.modules)} - _packages["known"]
    _packages["known"] |= names
    effort = Effort()
    found = []
    for name in sorted(names - sys.stdlib_module_names):
        version = vars(sys.modules.get(name, types)).get("__version__")
        if type(version) is not str and not name.startswith("_") and effort.seconds() < MOST_SECONDS:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError):
                version = importlib.metadata.version(name)
        if type(version) is str:
            found.append([name, version])
    return found


def _exit_status(names: dict[str, Any]) -> int:
    status = names.get("_exit_code")
    if type(status) is not int:
        return 0
    names["_exit_code"] = _Seen(status)
    return status


def _let_go(shell: Any) -> None:
    """IPython keeps the last result and the texts of all of them: a big one would stay in memory."""
    if shell.last_execution_result is not None:
        shell.last_execution_result.result = None
    shell.history_manager.output_hist_reprs.clear()
    outputs = getattr(shell.history_manager, "outputs", None)  # since IPython 9
    if outputs is not None:
        outputs.clear()


def _columns_asked(error: BaseException) -> list[str]:
    """Give the columns of the table that was asked for one that it has not, if that was the error."""
    table: Any = None
    if isinstance(error, AttributeError):
        table = error.obj
    elif isinstance(error, KeyError):
        trace = error.__traceback__
        while trace is not None:
            asked = trace.tb_frame.f_locals.get("self")
            table = asked if is_a(type(asked), "pandas", "DataFrame") else table
            trace = trace.tb_next
    if not is_a(type(table), "pandas", "DataFrame"):
        return []
    return [str(name)[:LONGEST_VALUE] for name in table.columns[:MOST_NAMES]]


def after_error() -> Report:
    """Give the changes too after code that raised, and what it asked for in vain: a path, a column."""
    report = changes()
    error = getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        report._values["columns"] = _columns_asked(error)
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        if limit := _limit(error):
            report._values["limit"] = limit
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EXDEV):
            paths = [os.fsdecode(p) for p in (error.filename, error.filename2) if isinstance(p, (str, bytes))]
            report._values["refused"] = [_as_from_outside(Path.cwd() / path) for path in paths]
            break
        error = error.__cause__ or error.__context__
    return report


def _as_from_outside(path: Path) -> str:
    """Give a path as another process finds it: what lies below these is each one's own."""
    own = str(path).startswith(("/proc/self/", "/proc/thread-self/", "/dev/fd/"))
    return os.path.realpath(path) if own else str(path)


def _limit(error: BaseException) -> str:
    """Name the limit that an exception tells of."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        if error.errno == errno.ENETUNREACH or type(error).__name__ == "gaierror":
            return "network"
        if error.errno == errno.ENOMEM:
            return "memory"
        if isinstance(error, PermissionError) and error.filename is None:
            return "permission"
    return ""


def inspect(name: str) -> Report:
    """Tell about one variable; the report has `text` or `problem`."""
    names = _shell().user_ns
    if name not in names:
        return Report({"problem": "there is no such variable"})
    return Report({"text": look(name, names[name])})


def see_packages(*folders: str) -> Report:
    """Let imports find what was installed into these folders since."""
    importlib.invalidate_caches()
    for folder in folders:
        if folder not in sys.path and Path(folder).is_dir():  # one of the user's own, just made
            site.addsitedir(folder)
    return Report({})


# -- variables that travel ------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Names what the other side could not read, instead of writing a reference to nothing."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            kind = "class" if isinstance(value, type) else "function"
            raise pickle.PicklingError(f"its {kind} {value.__qualname__} is defined in the notebook only")
        return NotImplemented


def dump(name: str, path: str) -> Report:
    """Pickle the variable `name` into `path`; the report has `summary` or `problem`."""
    names = _shell().user_ns
    if name not in names:
        return Report({"problem": "there is no such variable"})
    try:
        write_parcel(names[name], path, lambda file, aside: _Pickler(file, protocol=5, buffer_callback=aside))
    except OSError as error:
        return Report({"problem": _reason(error), "full": error.errno == errno.ENOSPC})
    except Exception as error:  # noqa: BLE001 (pickling runs code of any type: whatever it raises is the reason)
        return Report({"problem": _reason(error)})
    return Report({"summary": " ".join(filter(None, describe(names[name])))})


def load(path: str, name: str) -> Report:
    """Bind `name` to the pickle in `path`; the report has `variable` or `problem`."""
    try:
        value = read_parcel(path)  # the host's own variable, which the user asked to share
    except Exception as error:  # noqa: BLE001 (see dump)
        return Report({"problem": _reason(error)})
    _shell().user_ns[name] = value
    described = describe(value)
    _known[name] = _token(value, described)
    return Report({"variable": [name, *described]})


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"this interpreter has no module {error.name}"
    return f"{type(error).__name__}: {error}"[:500]


# -- a kernel without surprises -------------------------------------------------------------------------


def _close_figures() -> None:
    """Before the inline backend shows what is open: not the empty ones, nor the one that is the result."""
    helpers, figures = sys.modules.get("matplotlib._pylab_helpers"), sys.modules.get("matplotlib.figure")
    if helpers is None or figures is None or "matplotlib.pyplot" not in sys.modules:
        return
    last = _shell().last_execution_result
    for manager in helpers.Gcf.get_all_fig_managers():
        figure = manager.canvas.figure
        if (not figure.axes and not figure.lines) or (last is not None and last.result is figure):
            helpers.Gcf.destroy(manager)


def _last_words_first(end: Any, kernel: int) -> Any:
    """Let what was printed leave the process before `end` ends it: a message takes a moment to be sent."""

    @functools.wraps(end)
    def wrapper(*arguments: Any) -> None:
        if os.getpid() == kernel and (end.__name__ != "kill" or arguments[:1] == (kernel,)):
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(0.02)
        end(*arguments)

    return wrapper


def _mend_streams(out: Any, err: Any) -> Any:
    """Make what puts the kernel's own streams back where code left one that cannot be flushed.

    The kernel flushes both before it answers: it would never answer again.
    """

    def mend() -> None:
        for name, own in (("stdout", out), ("stderr", err)):
            stream = getattr(sys, name, None)
            try:
                stream.flush()  # type: ignore[union-attr]  # None is among what code may have left there
            except Exception:  # noqa: BLE001 (whatever it raises, it would stop the kernel)
                setattr(sys, name, own)

    return mend


def _kept_as_shown(error: BaseException, *_: object) -> dict[str, Any]:
    """Give what IPython keeps of an error that it has just shown: it would render it a second time."""
    shown = getattr(_shell(), "_last_traceback", None) or []
    return {"ename": type(error).__name__, "evalue": str(error), "traceback": shown}


def _lose_no_output(thread: Any) -> None:
    """Have the kernel wait with what it publishes where the host has no time: zmq would drop it in silence."""
    option = sys.modules["zmq"].XPUB_NODROP
    thread.schedule(lambda: thread.socket.setsockopt(option, 1))  # the socket is that thread's


def _wake_for_interrupts(loop: Any) -> None:
    """Have code that awaits notice an interrupt: ipykernel's handler for it does not wake the event loop.

    A message would wake it, too, but ipykernel 7 now and then loses its reply to code that was interrupted where
    one comes with the interrupt.
    """
    pipe = getattr(getattr(loop, "asyncio_loop", None), "_csock", None)
    if pipe is not None:
        signal.set_wakeup_fd(pipe.fileno(), warn_on_full_buffer=False)


def install() -> None:
    """Make `exit()` an ordinary SystemExit, let each figure be shown once and the last words be heard."""
    from IPython.core.autocall import ZMQExitAutocall

    class Exit(ZMQExitAutocall):  # type: ignore[misc]
        """Leaves the code that calls it, not the kernel."""

        def __call__(self, status: Any = None, keep_kernel: bool = True) -> None:
            raise SystemExit(*([] if status is None else [status]))

    shell = _shell()
    shell.exiter = Exit(shell)
    for name in ("exit", "quit"):
        shell.user_ns[name] = shell.user_ns_hidden[name] = shell.exiter
    shell.set_custom_exc((KeyboardInterrupt,), handle)
    ImportGuard(shell)
    if hasattr(shell, "_format_exception_for_storage"):  # since IPython 9
        shell._format_exception_for_storage = _kept_as_shown
    shell.events.register("post_execute", _close_figures)
    shell.events.register("post_execute", _mend_streams(sys.stdout, sys.stderr))
    for name in ("_exit", "abort", "kill"):
        setattr(os, name, _last_words_first(getattr(os, name), os.getpid()))
    if getattr(shell.kernel, "iopub_thread", None) is not None:  # an ordinary ipykernel
        _lose_no_output(shell.kernel.iopub_thread)
        _wake_for_interrupts(shell.kernel.io_loop)
    changes()
