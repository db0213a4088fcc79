"""Tells about a value in one line, without changing it and without calling code of a class that it does not know.

It runs in the user's process, and its text runs in the agent's kernel, whose interpreter may not have nbagent:
standard library only.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any, TypeVar

LONGEST_VALUE = 60  #: characters of a value that is shown as it is
LONGEST_NAME = 40
GLANCE_SECONDS = 0.05  #: for one line
STARVED_SECONDS = 0.5  #: for which a busy machine may not run this process at all


T = TypeVar("T")


class Effort:
    """Tells how long code takes by itself: what other processes take away is not held against it.

    Its processor time; where it waits for something, all of the time but for the seconds `starved`.
    """

    def __init__(self, starved: float = STARVED_SECONDS) -> None:
        self._starved = starved
        self._began, self._worked = time.monotonic(), time.thread_time()

    def seconds(self) -> float:
        """Give the seconds until now."""
        return max(time.thread_time() - self._worked, time.monotonic() - self._began - self._starved)


class TooLong(BaseException):
    """The time of a look is over. No `Exception`, so that code which catches those does not hold it up."""


def within(seconds: float, function: Callable[[], T]) -> T:
    """Give what a function gives; raise `TooLong` in it when it takes longer, again and again should it be caught.

    On the main thread of systems with timers only: elsewhere nothing can end foreign code. A function and no
    context manager, as an alarm between its block and its end would leave the timer running.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return function()
    armed = True
    effort = Effort()

    def over(number: int, frame: Any) -> None:
        if armed and effort.seconds() > seconds / 2:  # no more is sure when all of the time was its own
            raise TooLong

    began = time.monotonic()
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    before = signal.signal(signal.SIGALRM, over)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
            return function()
        finally:
            armed = False  # an alarm that comes now is late: it must not break into what follows
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
        if left:  # somebody's own alarm: it still comes, at the latest now
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)), interval)


# -- one line --


def describe(value: Any) -> tuple[str, str]:
    """Give type and summary of a value: its shape, its length or, where it is short, the value itself."""
    kind = type(value)
    name = type.__getattribute__(kind, "__name__")
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
        return name, within(GLANCE_SECONDS, lambda: _array(value, kind))
    except (Exception, TooLong):  # noqa: BLE001 - a subclass of a known table may do anything
        return name, ""


def _array(value: Any, kind: type) -> str:
    if is_a(kind, "pandas", "DataFrame", "Series", "Index") or is_a(kind, "polars", "DataFrame", "Series"):
        return str(tuple(value.shape))
    if is_a(kind, "numpy", "number", "bool_"):
        return repr(value.item())
    if is_a(kind, "numpy", "ndarray") or is_a(kind, "torch", "Tensor"):
        return f"{tuple(value.shape)} {value.dtype}"
    return ""


def is_a(kind: type, module: str, *names: str) -> bool:
    """Whether `kind` is one of these types or made from one; a module that nobody imported has none."""
    home = sys.modules.get(module)
    candidates = [getattr(home, name, None) for name in names] if home is not None else []
    return any(isinstance(candidate, type) and issubclass(kind, candidate) for candidate in candidates)


# -- parts of a line --


def shown(value: Any) -> str:
    """Give a value in a cell of a table or an item of a list: short, and by its type where it is not known."""
    kind = type(value)
    if kind in (bool, type(None), complex) or (kind is int and value.bit_length() < 200):
        return repr(value)
    if kind is float:
        return f"{value:.6g}"
    if is_a(kind, "numpy", "number", "bool_"):
        return shown(value.item())
    if kind is str:
        return repr(value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 1]}…")
    if kind is tuple and 0 < len(value) <= 4 and all(map(_is_simple, map(type, value))):
        text = f"({', '.join(map(shown, value))})"
        return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
    if _is_known(kind):
        text = str(value)
        return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
    return " ".join(filter(None, describe(value)))


def _is_simple(kind: type) -> bool:
    return kind in (bool, int, float, str, type(None)) or is_a(kind, "numpy", "number", "bool_")


def _is_known(kind: type) -> bool:
    """Whether `str` of such a value runs nobody's code but that of a library that can be trusted with it."""
    home = type.__getattribute__(kind, "__module__")
    if not isinstance(home, str):
        return False
    top = home.partition(".")[0]
    trusted = top in ("datetime", "decimal", "fractions", "uuid", "pathlib", "numpy", "pandas")
    # `__module__` is only a text: the class has to be the one of that name there.
    return (
        trusted
        and getattr(sys.modules.get(home), kind.__name__, None) is kind
        and not is_a(kind, "numpy", "ndarray")
    )


def word(name: Any) -> str:
    """Give a column's name: as it is where it is a plain word, in quotes where it could be taken for more."""
    text = name if type(name) is str else shown(name)
    text = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
    return text if text.isprintable() and text == text.strip() and text else repr(text)


def size(count: float) -> str:
    """Give a number of bytes for people."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def number(value: Any) -> str:
    """Give a number with six digits."""
    return f"{float(value):.6g}" if isinstance(value, float) else shown(value)
