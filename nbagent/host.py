"""The user's own IPython process, seen by the agent: its variables, cells and last error; nothing is changed.

Everything here but `IPythonHost.call` runs on the host's main thread.
"""

from __future__ import annotations

import asyncio
import keyword
import pickle
import re
import sys
import traceback
import types
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from nbagent.errors import TransferError
from nbagent.protocols import Variable

LONGEST_VALUE = 60  #: characters of a value that is shown as it is
MOST_COLUMNS = 24  #: of a table, that are named with their types
LONGEST_ERROR = 2000  #: characters of the user's last traceback

_AGENT_LINE = re.compile(r"^\s*%{1,2}agent\b.*\n?", re.MULTILINE)
_NOT_THE_USERS = frozenset({"In", "Out", "exit", "quit", "get_ipython"})
_LIBRARY = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python\d|[/\\]Lib[/\\]|<frozen")

T = TypeVar("T")


class IPythonHost:
    """Implements `protocols.Host` over an IPython shell.

    `submit` has a function executed by the shell's main thread, which waits while the agent works.
    """

    def __init__(self, shell: Any, submit: Callable[[Callable[[], Any]], Future[Any]]):
        self.shell = self._shell = shell
        self._submit = submit

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Have `function` run on the main thread."""
        return self._submit(function)

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the main thread and give its result, or raise what it raised."""
        result: T = await asyncio.wrap_future(self._submit(function))
        return result

    def variables(self) -> list[Variable]:
        """List the user's own live variables, in the order they were made."""
        names, hidden = self._shell.user_ns, self._shell.user_ns_hidden
        return [
            Variable(name, *described(value))
            for name, value in list(names.items())
            if isinstance(name, str)
            and name.isidentifier()
            and not name.startswith("_")
            and name not in _NOT_THE_USERS
            and not (name in hidden and hidden[name] is value)
            and not issubclass(type(value), types.ModuleType)
            and not _is_ours(type(value))
        ]

    def recent_cells(self, count: int) -> list[str]:
        """Give the source of the last cells that the user ran, oldest first; the current one is not among them."""
        cells = [_AGENT_LINE.sub("", cell).strip("\n") for cell in self._past() if not _is_the_agents(cell)]
        cells = [cell for cell in cells if cell.strip()]
        return cells[-count:] if count > 0 else []

    def last_error(self) -> str:
        """Give the traceback of the user's last cell as plain text, or "" where it did not fail."""
        result, past = self._shell.last_execution_result, self._past()
        if result is None or (past and _is_the_agents(past[-1])):
            return ""
        error = result.error_in_exec or result.error_before_exec
        if not isinstance(error, BaseException) or isinstance(error, KeyboardInterrupt):
            return ""
        text = self._traceback(error)
        return text if len(text) <= LONGEST_ERROR else f"…{text[1 - LONGEST_ERROR :]}"

    def dump(self, name: str, file: Path) -> str:
        """Pickle the user's variable `name` into `file`; give its type and summary.

        Raises:
            TransferError: there is none, or it cannot be pickled.
        """
        names = self._shell.user_ns
        if name not in names:
            raise TransferError(f"there is no variable {name}")
        value = names[name]
        try:
            with file.open("wb") as opened:
                _Pickler(opened, protocol=5).dump(value)
        except Exception as error:
            file.unlink(missing_ok=True)
            raise TransferError(f"{name} cannot be copied: {_reason(error)}") from error
        return " ".join(filter(None, described(value)))

    def load(self, name: str, file: Path) -> None:
        """Bind the user's `name` to the pickle in `file`.

        Raises:
            TransferError: `name` is no name of a variable, or the pickle cannot be read here.
        """
        if not name.isidentifier() or keyword.iskeyword(name):
            raise TransferError(f"{name!r} is not a name that a variable can have")
        try:
            with file.open("rb") as opened:
                value = pickle.load(opened)  # noqa: S301 - the user asked for this variable
        except Exception as error:
            raise TransferError(f"{name} cannot be taken over: {_reason(error)}") from error
        self._shell.user_ns[name] = value

    def _past(self) -> list[str]:
        """Give the sources of all cells before the one that is running."""
        raw = list(self._shell.history_manager.input_hist_raw)
        if len(raw) - 1 == self._shell.execution_count:  # the running cell is stored before it ends
            raw.pop()
        return [str(cell) for cell in raw[1:]]

    def _traceback(self, error: BaseException) -> str:
        told = traceback.TracebackException.from_exception(error)
        lines = []
        for frame in told.stack:
            if named := self._shell.compile.format_code_name(frame.filename):
                lines.append(f"{' '.join(named)}, line {frame.lineno}, in {frame.name}: {frame.line}")
            elif not _LIBRARY.search(frame.filename):
                lines.append(f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}")
        return "\n".join([*lines, "".join(told.format_exception_only()).rstrip()])


def _is_ours(kind: type) -> bool:
    # `__module__` may be anything in a class of the user's, or code that raises: only a plain text counts.
    home = type.__getattribute__(kind, "__dict__").get("__module__")
    return isinstance(home, str) and home.partition(".")[0] == "nbagent"


def described(value: Any) -> tuple[str, str]:
    """Give type and summary of a value, without running code of a type that is not known."""
    kind = type(value)
    name = str(kind.__name__)
    if kind in (bool, type(None), float, complex) or (kind is int and value.bit_length() < 200):
        return name, repr(value)
    if kind is str:
        return name, repr(value) if len(value) <= LONGEST_VALUE else f"{len(value)} characters"
    if kind in (bytes, bytearray):
        return name, f"{len(value)} bytes"
    if kind in (list, tuple, dict, set, frozenset):
        return name, "1 item" if len(value) == 1 else f"{len(value)} items"
    if kind in (types.FunctionType, types.BuiltinFunctionType):
        return "function", ""
    if issubclass(kind, type):
        return "class", ""
    try:
        return name, _table(value, kind)
    except (AttributeError, TypeError, ValueError, KeyError, RuntimeError):
        return name, ""  # a subclass of a known table with a broken shape


def _table(value: Any, kind: type) -> str:
    """Give the shape, and the columns with their types, of a table or array."""
    if _is(kind, "pandas", "DataFrame") or _is(kind, "polars", "DataFrame"):
        shape = str(tuple(value.shape))
        if len(value.columns) > MOST_COLUMNS:
            return shape
        columns = ", ".join(f"{column} {dtype}" for column, dtype in zip(value.columns, value.dtypes, strict=True))
        return f"{shape} {columns}".rstrip()
    if _is(kind, "pandas", "Series", "Index") or _is(kind, "polars", "Series"):
        return f"{tuple(value.shape)} {value.dtype}"
    if _is(kind, "numpy", "ndarray") or _is(kind, "torch", "Tensor"):
        return f"{tuple(value.shape)} {value.dtype}"
    return ""


def _is(kind: type, module: str, *names: str) -> bool:
    """Whether `kind` is one of these types or made from one; a module that nobody imported has none."""
    home = sys.modules.get(module)
    candidates = [getattr(home, name, None) for name in names] if home is not None else []
    return any(isinstance(candidate, type) and issubclass(kind, candidate) for candidate in candidates)


class _Pickler(pickle.Pickler):
    """Names what the other side could not read, instead of writing a reference to nothing."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | types.FunctionType) and value.__module__ == "__main__":
            kind = "class" if isinstance(value, type) else "function"
            raise pickle.PicklingError(f"its {kind} {value.__qualname__} is defined in the notebook only")
        return NotImplemented


def _is_the_agents(cell: str) -> bool:
    return cell.lstrip().startswith("%%agent")


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"this interpreter has no module {error.name}"
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]
