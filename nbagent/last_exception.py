"""Tells of an exception what a debugger would show: the frames of the user's code, their source and variables.

Values are told as glance.py and inspection.py tell them: no code of the user's is called.
"""

from __future__ import annotations

import inspect
import linecache
import time
import traceback
import types
from collections.abc import Callable, Iterator

from nbagent.glance import TooLong, describe, within
from nbagent.inspection import look

MOST_FRAMES = 8  #: of the user's, in one exception
MOST_NAMES = 25  #: of one frame
MOST_LINES = 40  #: of a function that is shown whole
AROUND = 5  #: lines before and after the line at fault, where not the whole is shown
MOST_EXCEPTIONS = 3  #: of a chain
LONGEST_TEXT = 12_000
LONGEST_VALUE = 900  #: characters of one value that is told with what it holds
VALUE_SECONDS = 0.3  #: for one value
ALL_SECONDS = 3.0  #: for all values; those that are left are told in one line

_SMALL = (bool, int, float, complex, type(None))

#: Gives the name under which the user knows a file or cell, "" where it is a library's.
PlaceOf = Callable[[str], str]


class _Values:
    """Tells of variables: each value in one line or, with `whole`, once with some of what it holds."""

    def __init__(self, whole: bool) -> None:
        self._whole = whole
        self._until = time.monotonic() + ALL_SECONDS
        self._told: dict[int, str] = {}

    def tell(self, name: str, value: object) -> Iterator[str]:
        one_line = f"{name}: {' '.join(filter(None, describe(value)))}"
        if not self._whole or time.monotonic() > self._until:
            yield f"  {one_line}"
            return
        if id(value) in self._told and type(value) not in _SMALL:
            yield f"  {one_line} (told above as {self._told[id(value)]})"
            return
        self._told[id(value)] = name
        text = one_line if type(value) in _SMALL else look(name, value, VALUE_SECONDS)
        text = text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
        yield from (f"  {line}" for line in text.split("\n"))


def post_mortem(error: BaseException, place_of: PlaceOf, *, values: bool = False) -> str:
    """Tell of an exception and what caused it, the first cause first.

    A variable is told in one line or, with `values`, with some of what it holds.
    """
    told = _Values(values)
    parts = [
        "\n".join([error_line(one), *_frames(one.__traceback__, place_of, told)])
        for one in reversed(_chain(error))
    ]
    text = "\n\nduring or because of that:\n".join(parts)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}\n…"


def error_line(error: BaseException) -> str:
    """Give the type and message of an exception, or its type alone where its message cannot be had."""
    try:
        told = within(0.5, lambda: traceback.TracebackException.from_exception(error, limit=0))
        return "".join(told.format_exception_only()).strip()
    except (Exception, TooLong):  # noqa: BLE001 - the class is the user's: its `__str__` may do anything
        return str(type(error).__name__)


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in chain and len(chain) < MOST_EXCEPTIONS:
        chain.append(following)
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)
    return chain


def _frames(trace: types.TracebackType | None, place_of: PlaceOf, values: _Values) -> Iterator[str]:
    steps = [(frame, line, place_of(frame.f_code.co_filename)) for frame, line in traceback.walk_tb(trace)]
    while steps and not steps[0][2]:  # what called the user's code
        steps.pop(0)
    mine = sum(bool(place) for *_, place in steps)
    seen, left_out, library = 0, 0, ""
    for frame, line, place in steps:
        if not place:
            left_out, library = left_out + 1, str(frame.f_globals.get("__name__", "")).partition(".")[0]
            continue
        yield from _left(left_out, library)
        left_out = 0
        seen += 1
        if MOST_FRAMES // 2 < seen <= mine - MOST_FRAMES // 2:
            if seen == MOST_FRAMES // 2 + 1:
                yield f"[{mine - MOST_FRAMES} more frames of yours]"
            continue
        yield from _frame(frame, line, place, values)
    yield from _left(left_out, library)


def _left(count: int, name: str) -> Iterator[str]:
    if count:
        yield f"[{count} frame{'' if count == 1 else 's'} in {name or 'a library'}]"


def _frame(frame: types.FrameType, line: int, place: str, values: _Values) -> Iterator[str]:
    code = frame.f_code
    within = "" if code.co_name == "<module>" else f", in {code.co_name}"
    yield f"{place}, line {line}{within}:"
    yield from _source(code, line)
    names = _variables(frame)
    for name in names[:MOST_NAMES]:
        value = frame.f_locals.get(name, frame.f_globals.get(name))
        yield from values.tell(name, value)
    if len(names) > MOST_NAMES:
        yield f"  and {len(names) - MOST_NAMES} more variables"


def _variables(frame: types.FrameType) -> list[str]:
    """Give the names that matter: all of a function's own, and those of the rest that its code reads."""
    own = [] if frame.f_code.co_name == "<module>" else list(frame.f_locals)
    read = [name for name in frame.f_code.co_names if name in frame.f_globals and name not in own]
    boring = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
    return own + [name for name in read if not issubclass(type(frame.f_globals[name]), boring)]


def _source(code: types.CodeType, line: int) -> Iterator[str]:
    lines = linecache.getlines(code.co_filename)
    if not lines:
        return
    first, last = 1, len(lines)
    if code.co_name != "<module>":
        first = code.co_firstlineno
        last = first - 1 + len(_block(lines[first - 1 :]))
    if last - first >= MOST_LINES or code.co_name == "<module>":
        first, last = max(first, line - AROUND), min(last, line + AROUND)
    for number in range(first, last + 1):
        mark = "->" if number == line else "  "
        yield f" {mark} {number:3} {lines[number - 1].rstrip()[:200]}"


def _block(lines: list[str]) -> list[str]:
    try:
        return inspect.getblock(lines)
    except (SyntaxError, IndentationError, ValueError):
        return lines[:MOST_LINES]
