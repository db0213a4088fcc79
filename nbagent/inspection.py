"""Tells about a value in some lines: its type, shape, size, ranges, missing values and a few of its parts.

It runs where glance.py runs, and as it does: no code of a class that it does not know is called, no repr, no len,
no property. What is lazy stays lazy, what can be read only once is not read, and a look has a time limit that also
ends endless code.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from nbagent.glance import TooLong, describe, is_a, number, shown, size, within, word

LONGEST_TEXT = 6000  #: characters of one look
MOST_COLUMNS = 30  #: of a table, that are told one by one
MOST_PARTS = 20  #: items or attributes that are told
MOST_ROWS = 1_000_000  #: that ranges and missing values are taken from
FEW_ROWS = 3
LOOK_SECONDS = 1.0


def look(name: str, value: Any, seconds: float = LOOK_SECONDS) -> str:
    """Tell about a value in some lines; says so where the time did not suffice or its code raised."""
    kind, summary = describe(value)
    lines = [f"{name}: {kind} {summary}".rstrip()]

    def tell() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a mean of infinities and the like: nobody asked for it
            for line in _teller(type(value))(value):  # what was told before the time is over is kept
                lines.append(line)
                if sum(map(len, lines)) > LONGEST_TEXT:
                    lines.append("…")
                    break

    try:
        within(seconds, tell)
    except TooLong:
        lines.append(f"(not all is told: looking took longer than {seconds:g} s)")
    except Exception as error:  # noqa: BLE001 - a broken value is told as far as it went
        lines.append(f"(not all is told: looking at it raised {type(error).__name__})")
    return "\n".join(lines)


def _teller(kind: type) -> Callable[[Any], Iterator[str]]:
    """Choose who tells about values of a type."""
    for module, names, teller in (
        ("pandas", ("DataFrame",), _pandas_table),
        ("pandas", ("Series", "Index"), _pandas_column),
        ("polars", ("DataFrame",), _polars_table),
        ("polars", ("Series",), _polars_column),
        ("polars", ("LazyFrame",), _lazy),
        ("numpy", ("ndarray",), _numpy),
        ("torch", ("Tensor",), _torch),
        ("pyarrow", ("Table",), _arrow),
    ):
        if is_a(kind, module, *names):
            return teller
    if issubclass(kind, str | bytes | bytearray):
        return _text
    if issubclass(kind, dict):
        return _mapping
    if issubclass(kind, list | tuple | set | frozenset | deque):
        return _items
    if kind in (types.FunctionType, types.MethodType):
        return _function
    if issubclass(kind, types.GeneratorType | types.CoroutineType):
        return _lazy
    if issubclass(kind, types.ModuleType | type):
        return _plain_names
    return _plain


def _first(count: int) -> str:
    return f" (of the first {MOST_ROWS:,} rows)" if count > MOST_ROWS else ""


# -- tables --


def _pandas_table(table: Any) -> Iterator[str]:
    rows, columns = table.shape
    yield f"{rows} rows x {columns} columns, {size(int(table.memory_usage(index=True).sum()))}"
    yield f"index: {word(type(table.index).__name__)} {table.index.dtype}"
    for position in range(min(columns, MOST_COLUMNS)):
        column = table.iloc[:, position]
        yield f"- {word(table.columns[position])}: {column.dtype}{_pandas_values(column)}"
    if columns > MOST_COLUMNS:
        more = ", ".join(word(name) for name in table.columns[MOST_COLUMNS : MOST_COLUMNS * 4])
        yield f"- and {columns - MOST_COLUMNS} more: {more}"
    shown_columns = min(columns, MOST_COLUMNS)
    few = [table.iloc[:FEW_ROWS, position].tolist() for position in range(shown_columns)]
    yield from _rows(few, min(rows, FEW_ROWS))


def _rows(columns: list[list[Any]], count: int) -> Iterator[str]:
    if columns and count:
        yield "first rows:"
        for row in range(count):
            yield "  " + " | ".join(shown(column[row]) for column in columns)


def _pandas_values(column: Any) -> str:
    """Tell the range and the missing values of one column."""
    part = column.iloc[:MOST_ROWS] if len(column) > MOST_ROWS else column
    if not len(part):
        return ""
    missing = int(part.isna().sum())
    told = f", {missing} missing" if missing else ""
    kind = getattr(part.dtype, "kind", "O")
    if kind in "iufMmb" and missing < len(part):
        low, high = part.min(), part.max()
        told = f" {number(low)} to {number(high)}" + (f", mean {part.mean():.6g}" if kind in "iuf" else "") + told
    elif kind == "O" or str(part.dtype) in ("str", "string", "category"):
        head = part.iloc[:1000].tolist()
        if all(type(item) is str or item is None or item != item for item in head if type(item) in (str, float)):
            told = _different(part, head) + told
    return told + _first(len(column))


def _different(part: Any, head: list[Any]) -> str:
    texts = list(dict.fromkeys(item for item in head if type(item) is str))
    if not texts or any(type(item) not in (str, float, type(None)) for item in head):
        return ""
    sample = part.iloc[:100_000]
    count = f"{int(sample.nunique())} different" + (" in the first 100,000" if len(part) > 100_000 else "")
    return f" {count}: {', '.join(shown(text) for text in texts[:4])}"


def _pandas_column(column: Any) -> Iterator[str]:
    yield f"{column.dtype}, {len(column)} values, {size(int(column.memory_usage()))}"
    series = column if hasattr(column, "iloc") else column.to_series()
    if told := _pandas_values(series):
        yield told.strip(" ,")
    yield "first values: " + ", ".join(shown(item) for item in series.iloc[:MOST_PARTS].tolist())


def _polars_table(table: Any) -> Iterator[str]:
    yield f"{table.height} rows x {table.width} columns, {size(table.estimated_size())}"
    for name in table.columns[:MOST_COLUMNS]:
        column = table.get_column(name)
        yield f"- {word(name)}: {column.dtype}{_polars_values(column)}"
    if table.width > MOST_COLUMNS:
        yield f"- and {table.width - MOST_COLUMNS} more"
    few = [table.get_column(name).head(FEW_ROWS).to_list() for name in table.columns[:MOST_COLUMNS]]
    yield from _rows(few, min(table.height, FEW_ROWS))


def _polars_values(column: Any) -> str:
    part = column.head(MOST_ROWS) if len(column) > MOST_ROWS else column
    missing = part.null_count()
    told = f", {missing} missing" if missing else ""
    if part.dtype.is_float() and (no_numbers := int(part.is_nan().sum())):
        told += f", {no_numbers} NaN"
    if (part.dtype.is_numeric() or part.dtype.is_temporal()) and missing < len(part):
        told = f" {number(part.min())} to {number(part.max())}" + told
    return told + _first(len(column))


def _polars_column(column: Any) -> Iterator[str]:
    yield f"{column.dtype}, {len(column)} values{_polars_values(column)}"
    yield "first values: " + ", ".join(shown(item) for item in column.head(MOST_PARTS).to_list())


def _arrow(table: Any) -> Iterator[str]:
    yield f"{table.num_rows} rows x {table.num_columns} columns, {size(table.nbytes)}"
    for field in islice(table.schema, MOST_COLUMNS):
        missing = table.column(field.name).null_count
        yield f"- {word(field.name)}: {field.type}" + (f", {missing} missing" if missing else "")


# -- arrays --


def _numpy(array: Any) -> Iterator[str]:
    numpy = sys.modules["numpy"]
    masked = numpy.ma.getmaskarray(array) if is_a(type(array), "numpy.ma", "MaskedArray") else None
    if masked is not None and (count := int(masked.sum())):
        yield f"{count} masked; of the others:"
        array = array.compressed()
    array = array.view(numpy.ndarray)  # a subclass's own methods are not called
    yield f"shape {array.shape}, {array.dtype}, {size(array.nbytes)}"
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel()[:MOST_ROWS]
    part = flat[:MOST_ROWS]
    if part.size and array.dtype.kind in "iufb":
        missing = int(numpy.isnan(part).sum()) if array.dtype.kind == "f" else 0
        known = part[~numpy.isnan(part)] if missing else part
        if known.size:
            yield (
                f"{number(known.min().item())} to {number(known.max().item())}, mean {known.mean():.6g}"
                + (f", {missing} NaN" if missing else "")
                + (
                    f" (of the first {MOST_ROWS:,} values)"
                    if flat.size > MOST_ROWS or array.size > part.size
                    else ""
                )
            )
    yield "first values: " + ", ".join(shown(item) for item in part[:MOST_PARTS].tolist())


def _torch(tensor: Any) -> Iterator[str]:
    torch = sys.modules["torch"]
    yield f"shape {tuple(tensor.shape)}, {tensor.dtype}, on {tensor.device}, requires_grad={tensor.requires_grad}"
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return  # to look would make the device wait
    with torch.no_grad():
        part = tensor.detach().reshape(-1)[:MOST_ROWS]
        if part.is_floating_point():
            part = part.double()  # the small types can do little
        missing = int(part.isnan().sum()) if part.is_floating_point() else 0
        known = part[~part.isnan()] if missing else part
        if known.numel() and not part.is_complex():
            told = f", {missing} NaN" if missing else ""
            yield f"{number(known.min().item())} to {number(known.max().item())}{told}"
        yield "first values: " + ", ".join(shown(item) for item in part[:MOST_PARTS].tolist())


# -- plain values --


def _text(value: Any) -> Iterator[str]:
    base = str if isinstance(value, str) else bytes if isinstance(value, bytes) else bytearray
    length = base.__len__(value)
    if length <= 2000:
        yield base.__repr__(value)
        return
    yield f"{length} {'characters' if base is str else 'bytes'}"
    yield f"begins: {base.__getitem__(value, slice(800))!r}"
    yield f"ends: {base.__getitem__(value, slice(-400, None))!r}"


def _mapping(value: Any) -> Iterator[str]:
    yield f"{dict.__len__(value)} items"
    for key, item in islice(dict.items(value), MOST_PARTS):
        yield f"- {shown(key)}: {shown(item)}"
    if dict.__len__(value) > MOST_PARTS:
        yield f"- and {dict.__len__(value) - MOST_PARTS} more"


def _items(value: Any) -> Iterator[str]:
    base: Any = next(kind for kind in (list, tuple, set, frozenset, deque) if isinstance(value, kind))
    length = base.__len__(value)
    kinds: dict[str, int] = {}
    for item in islice(base.__iter__(value), 10_000):
        kind = type.__getattribute__(type(item), "__name__")
        kinds[kind] = kinds.get(kind, 0) + 1
    of = ", ".join(f"{count} {kind}" for kind, count in list(kinds.items())[:5])
    yield f"{length} items" + (f": {of}" if of else "") + (" (in the first 10,000)" if length > 10_000 else "")
    yield "first: " + ", ".join(shown(item) for item in islice(base.__iter__(value), MOST_PARTS))


def _function(value: Any) -> Iterator[str]:
    code = getattr(value, "__code__", None) or getattr(value.__func__, "__code__", None)
    if isinstance(code, types.CodeType):
        count = code.co_argcount + code.co_kwonlyargcount
        yield f"({', '.join(code.co_varnames[:count])}) from {code.co_filename}, line {code.co_firstlineno}"
    if type(value.__doc__) is str:
        yield value.__doc__.strip().partition("\n")[0][:200]


def _lazy(value: Any) -> Iterator[str]:
    yield "(lazy: nothing of it is computed to look at it)"


def _plain_names(value: Any) -> Iterator[str]:
    names = list(type.__getattribute__(value, "__dict__")) if isinstance(value, type) else list(vars(value))
    yield "names: " + ", ".join(
        name for name in names[:100] if isinstance(name, str) and not name.startswith("__")
    )


def _plain(value: Any) -> Iterator[str]:
    """Tell the attributes that a value holds, read past its class's own code."""
    kind = type(value)
    yield (
        f"of class {type.__getattribute__(kind, '__module__')}.{kind.__qualname__}"
        if _is_named(kind)
        else "of its own class"
    )
    if is_a(kind, "torch.nn", "Module"):
        yield from _network(value)
    attributes = sorted(_attributes(value), key=lambda attribute: attribute[0].startswith("_"))
    for name, item in attributes[:MOST_PARTS]:
        told = f"tuple {shown(item)}" if type(item) is tuple else " ".join(filter(None, describe(item)))
        yield f"- {word(name)}: {told}"
    if len(attributes) > MOST_PARTS:
        yield f"- and {len(attributes) - MOST_PARTS} more"


def _is_named(kind: type) -> bool:
    return isinstance(type.__getattribute__(kind, "__dict__").get("__module__"), str)


def _attributes(value: Any) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for kind in type.__getattribute__(type(value), "__mro__"):
        for name, member in list(type.__getattribute__(kind, "__dict__").items()):
            if type(member) is types.MemberDescriptorType:  # a slot
                try:
                    found[name] = member.__get__(value)
                except AttributeError:
                    continue
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        held = {}
    if isinstance(held, dict):
        found.update((name, item) for name, item in list(dict.items(held)) if isinstance(name, str))
    return list(found.items())


def _network(module: Any) -> Iterator[str]:
    """Tell the layers of a torch module and how many parameters it has."""
    count, waiting = 0, [module]
    while waiting:
        held = object.__getattribute__(waiting.pop(), "__dict__")
        count += sum(
            parameter.numel() for parameter in held.get("_parameters", {}).values() if parameter is not None
        )
        waiting += [child for child in held.get("_modules", {}).values() if child is not None]
    yield f"{count:,} parameters"
    children = object.__getattribute__(module, "__dict__").get("_modules", {})
    for name, child in list(children.items())[:MOST_PARTS]:
        yield f"- layer {word(name)}: {type.__getattribute__(type(child), '__name__')}"
