"""What makes a result doubtful although its code ran: no number came out, or a conversion lost many values.

Both happen in silence, and the answer that follows is wrong. The words here are nbagent's own, with names that
the code itself uses: they stand outside of the data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nbagent.data_files import values_of
from nbagent.protocols import Variable
from nbagent.text_columns import MISSING, column, is_number
from nbagent.tools.source import parse

#: How often the same is said in one session: it may be meant so.
MOST_SAID = 2
MOST_NAMES = 5
#: From this share of a column's values on, a conversion that makes them missing is told.
LOST = 0.1


@dataclass(slots=True)
class Doubts:
    """The doubts of one session."""

    _said: dict[str, int] = field(default_factory=dict)

    def look(self, code: str, changes: Sequence[Variable], files: Sequence[Path]) -> str:
        """Say what is doubtful about what this code has left, or ""; `files` are those that the data came from."""
        found = "\n".join(filter(None, (no_number(code, changes, files), *lost_values(code, files))))
        self._said[found] = self._said.get(found, 0) + 1
        return found if self._said[found] <= MOST_SAID else ""


def no_number(code: str, changes: Sequence[Variable], files: Sequence[Path]) -> str:
    """Name the code's variables that are nan, and why: a comparison that finds nothing, no rows left, gaps."""
    used = {node.id for node in ast.walk(parse(code)) if isinstance(node, ast.Name)}
    own = [variable for variable in changes if variable.name in used]
    names = [one.name for one in own if one.type.startswith("float") and one.summary == "nan"]
    if not names:
        return ""
    told = f"No number came out for {', '.join(names[:MOST_NAMES])}"
    for name, word in _compared(code):
        values = [value for path in files for value in values_of(path, name, whole=True)]
        if values and word.strip() not in values and name not in _assigned(code):
            return (
                f"{told}: in the files no value of {name!r} is {word!r}. Look how they are written, "
                f"print(df[{name!r}].unique()[:10]), then compare with such a value and run the whole code again."
            )
    empty = [one.name for one in own if one.type in ("DataFrame", "Series") and one.summary.startswith("(0,")]
    if empty:
        return (
            f"{told}: no rows are left in {', '.join(empty[:MOST_NAMES])}. Find the step that takes them all out: "
            "dropna() on a table drops every row in which any column is empty, and a comparison may find nothing."
        )
    return (
        f"{told}: there may be missing values. Leave those of the column out, such as x = df['a'].dropna() (not"
        " those of the whole table), and run the whole code again."
    )


def lost_values(code: str, files: Sequence[Path]) -> Iterator[str]:
    """Tell of columns whose texts, as they stand in the files, `to_numeric(errors='coerce')` makes missing."""
    if ".str." in code or ".replace(" in code or "thousands=" in code:  # somebody cares for it
        return
    for name in _coerced(code):
        values = _values(name, files)
        present = [value for value in values if value not in MISSING]
        lost = [value for value in present if not is_number(value)]
        if len(lost) <= LOST * len(present):
            continue
        take = column(values).take
        way_out = (
            f"Use this instead: df[{name!r}]{take}" if take else f"Look at them: print(df[{name!r}].unique()[:20])"
        )
        yield (
            f"As the file has them, pd.to_numeric makes {len(lost)} of {len(present)} values of {name!r} missing:"
            f" they are numbers with more around them, or words. {way_out} Then run the whole code again."
        )


def _values(name: str, files: Sequence[Path]) -> list[str]:
    return next(filter(None, (values_of(path, name) for path in reversed(files))), [])


def _assigned(code: str) -> set[str]:
    """Give the columns that code itself writes."""
    targets = (t for node in ast.walk(parse(code)) if isinstance(node, ast.Assign) for t in node.targets)
    return {name for target in targets if (name := _column_of(target)) is not None}


def _compared(code: str) -> Iterator[tuple[str, str]]:
    """Give the columns that code compares with a text, and the text."""
    tree = parse(code)
    texts = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)):
            continue
        name = _column_of(node.left)
        other = node.comparators[0]
        word = texts.get(other.id) if isinstance(other, ast.Name) else getattr(other, "value", None)
        if name is not None and isinstance(word, str):
            yield name, word


def _column_of(node: ast.expr) -> str | None:
    """Give the name in `table['name']`."""
    name = node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else None
    return name if isinstance(name, str) else None


def _coerced(code: str) -> list[str]:
    """Give the columns that code converts so that what is no number becomes missing."""
    found = []
    for node in ast.walk(parse(code)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        coerces = any(
            word.arg == "errors" and isinstance(word.value, ast.Constant) and word.value.value == "coerce"
            for word in node.keywords
        )
        if node.func.attr == "to_numeric" and coerces and (name := _column_of(node.args[0])) is not None:
            found.append(name)
    return list(dict.fromkeys(found))
