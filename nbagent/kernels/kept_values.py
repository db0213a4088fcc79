"""Copies of values that code may change in place, where a copy is small or cheap.

`df.drop(..., inplace=True)`, `rows.append(...)` and `array[0] = ...` leave the name where it was: such a step is
undone by binding the name to a copy that was made before it. A table of pandas with Copy-on-Write (always, since
pandas 3) shares its data with its copy until one of them changes. No code of the user's own runs here.
"""

from __future__ import annotations

import sys
from typing import Any

MOST_BYTES = 16_000_000  #: of data that is copied at once, a value
MOST_SHARED_BYTES = 256_000_000  #: of a table that shares its data: the first change copies what it changes
MOST_ITEMS = 10_000  #: of a list, a dict or a set
MOST_COLUMNS = 1000

_COLLECTIONS = (list, dict, set, bytearray)


def copy_of(value: Any) -> Any:
    """Copy a value, as deep as it is cheap; None where it is dear or of another type."""
    kind = type(value)
    if kind in _COLLECTIONS:
        return kind(value) if len(value) <= MOST_ITEMS else None
    if kind is _type("numpy", "ndarray"):
        return value.copy() if value.nbytes <= MOST_BYTES else None
    if kind in (_type("pandas", "DataFrame"), _type("pandas", "Series")):
        if value.ndim == 2 and value.shape[1] > MOST_COLUMNS:
            return None
        used = value.memory_usage()
        size = int(used if kind is _type("pandas", "Series") else used.sum())
        shares = _copies_on_write()
        return value.copy(deep=not shares) if size <= (MOST_SHARED_BYTES if shares else MOST_BYTES) else None
    return None


def differs(value: Any, copy: Any) -> bool:
    """Whether a value is another than when it was copied, as far as its copy goes; now and then wrongly true."""
    if isinstance(value, list | dict | set):
        return _items(value) != _items(copy)
    if isinstance(value, bytearray):
        return bool(value != copy)
    if type(value) is _type("numpy", "ndarray"):
        return bool(value.shape != copy.shape or value.dtype != copy.dtype or value.tobytes() != copy.tobytes())
    if value.shape != copy.shape or not all(map(_same_labels, value.axes, copy.axes)):
        return True
    if type(value) is _type("pandas", "Series"):
        return not _same_column(value, copy)
    return not all(_same_column(value.iloc[:, at], copy.iloc[:, at]) for at in range(value.shape[1]))


def _type(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _copies_on_write() -> bool:
    pandas = sys.modules["pandas"]
    return int(pandas.__version__.partition(".")[0]) >= 3 or pandas.options.mode.copy_on_write is True


def _items(value: Any) -> list[int] | set[int]:
    """Give what tells one collection from another without comparing what is in it."""
    if isinstance(value, set):
        return set(map(id, value))
    return [id(one) for pair in value.items() for one in pair] if isinstance(value, dict) else list(map(id, value))


def _same_labels(one: Any, other: Any) -> bool:
    return one is other or bool(one.identical(other))


def _same_column(one: Any, other: Any) -> bool:
    numpy = sys.modules["numpy"]
    if one.dtype != other.dtype:
        return False
    if isinstance(one.dtype, numpy.dtype):
        return bool(numpy.may_share_memory(one.to_numpy(), other.to_numpy()))
    return bool(one.equals(other))
