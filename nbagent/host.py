"""The user's own IPython process, seen by the agent: its variables, cells and last error; nothing is changed.

Everything here but `IPythonHost.call` runs on the host's main thread.
"""

from __future__ import annotations

import asyncio
import errno
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

from IPython.core.error import UsageError as CellUsageError

from nbagent.errors import NbAgentError, NoRoom, TransferError
from nbagent.glance import GLANCE_SECONDS, TooLong, describe, is_a, within
from nbagent.inspection import look
from nbagent.last_exception import post_mortem
from nbagent.parcels import read_parcel, write_parcel
from nbagent.protocols import Variable

MOST_COLUMNS = 24  #: of a table, that are named with their types
LONGEST_ERROR = 2000  #: characters of the user's last traceback

_FIX = re.compile(r"\s*%agent\s+fix\b")
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
        """Give the traceback of the user's last cell as plain text, or "" where it did not fail.

        In a cell that says `%agent fix`, it is the last one that failed, however long ago.
        """
        if _FIX.match(self._running()):
            error = self.last_exception()
        else:
            past = self._past()
            error = None if past and _is_the_agents(past[-1]) else self._error_of_the_last_cell()
        if error is None:
            return ""
        text = self._traceback(error)
        return text if len(text) <= LONGEST_ERROR else f"…{text[1 - LONGEST_ERROR :]}"

    def last_exception(self) -> BaseException | None:
        """Give the last exception that the user's code ended with, though other cells ran since."""
        return self._error_of_the_last_cell() or _the_users(getattr(sys, "last_value", None))

    def post_mortem(self, *, values: bool = False) -> str:
        """Tell the frames, locals and sources of the user's last exception, or give "".

        A variable is told in one line or, with `values`, with some of what it holds.
        """
        error = self.last_exception()
        return "" if error is None else post_mortem(error, self._place, values=values)

    def inspect(self, name: str) -> str:
        """Tell about the user's variable `name` in some lines.

        Raises:
            TransferError: there is none.
        """
        names = self._shell.user_ns
        if name not in names:
            raise TransferError(f"there is no variable {name}")
        return look(name, names[name])

    def dump(self, name: str, file: Path) -> str:
        """Pickle the user's variable `name` into `file`; give its type and summary.

        Raises:
            NoRoom: there is no room for it there.
            TransferError: there is none, or it cannot be pickled.
        """
        names = self._shell.user_ns
        if name not in names:
            raise TransferError(f"there is no variable {name}")
        value = names[name]
        try:
            write_parcel(
                value, str(file), lambda opened, aside: _Pickler(opened, protocol=5, buffer_callback=aside)
            )
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise NoRoom(f"{name} cannot be copied: {_reason(error)}") from error
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
            value = read_parcel(str(file))  # the user asked for this variable
        except Exception as error:
            raise TransferError(f"{name} cannot be taken over: {_reason(error)}") from error
        self._shell.user_ns[name] = value

    def _error_of_the_last_cell(self) -> BaseException | None:
        result = self._shell.last_execution_result
        return None if result is None else _the_users(result.error_in_exec or result.error_before_exec)

    def _running(self) -> str:
        """Give the source of the cell that is running, "" where none is."""
        raw, last = self._shell.history_manager.input_hist_raw, self._shell.last_execution_result
        # It is stored before it ends, and only then is the last result its own.
        over = last is not None and last.execution_count == len(raw) - 1
        return "" if over or not raw else str(raw[-1])

    def _place(self, file: str) -> str:
        """Name a cell or a file of the user's; "" for a library's."""
        if named := self._shell.compile.format_code_name(file):
            return " ".join(named)
        return "" if _LIBRARY.search(file) else file

    def _past(self) -> list[str]:
        """Give the sources of all cells before the one that is running."""
        raw = list(self._shell.history_manager.input_hist_raw)
        if self._running():
            raw.pop()
        return [str(cell) for cell in raw[1:]]

    def _traceback(self, error: BaseException) -> str:
        told = traceback.TracebackException.from_exception(error)
        lines = [
            f"{place}, line {frame.lineno}, in {frame.name}: {frame.line}"
            for frame in told.stack
            if (place := self._place(frame.filename))
        ]
        return "\n".join([*lines, "".join(told.format_exception_only()).rstrip()])


def _the_users(error: object) -> BaseException | None:
    """Give an exception back unless it is a stop, or a message of nbagent or of a magic."""
    ours = isinstance(error, KeyboardInterrupt | SystemExit | NbAgentError | CellUsageError)
    return error if isinstance(error, BaseException) and not ours else None


def _is_ours(kind: type) -> bool:
    # `__module__` may be anything in a class of the user's, or code that raises: only a plain text counts.
    home = type.__getattribute__(kind, "__dict__").get("__module__")
    return isinstance(home, str) and home.partition(".")[0] == "nbagent"


def described(value: Any) -> tuple[str, str]:
    """Give type and summary of a value; of a table, its columns with their types too."""
    name, summary = describe(value)
    if not summary:
        return name, ""
    try:
        return name, within(GLANCE_SECONDS, lambda: _with_types(value, summary))
    except (Exception, TooLong):  # noqa: BLE001 - a subclass of a known table may do anything
        return name, summary


def _with_types(value: Any, summary: str) -> str:
    kind = type(value)
    if is_a(kind, "pandas", "DataFrame") or is_a(kind, "polars", "DataFrame"):
        return f"{summary} {_columns(value)}".rstrip()
    if is_a(kind, "pandas", "Series", "Index") or is_a(kind, "polars", "Series"):
        return f"{summary} {value.dtype}"
    return summary


def _columns(table: Any) -> str:
    if len(table.columns) > MOST_COLUMNS:
        return ""
    return ", ".join(f"{column} {dtype}" for column, dtype in zip(table.columns, table.dtypes, strict=True))


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
