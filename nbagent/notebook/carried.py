"""The user's variables that a session started from, carried along so that its export runs alone."""

from __future__ import annotations

import base64
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nbagent.errors import StoreError
from nbagent.events import Shared
from nbagent.parcels import plain_pickle
from nbagent.redaction import Redactor

#: Pickles up to this many bytes stand in the notebook itself; larger ones lie beside it.
LARGEST_EMBEDDED = 64_000
_PIECE = 8_000_000


@dataclass
class Carried:
    """The code that brings variables back, and the files that it reads, by name."""

    lines: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def code(self) -> str:
        """The cell; it stops with a clear message where data is missing."""
        head = ["# Variables of the user's that the steps below start from.", "import base64", "import pickle", ""]
        return "\n".join([*head, *self.lines])


def carry(
    shared: Sequence[Shared], data_folder: str, redactor: Redactor | None, *, taken: Container[str] = ()
) -> Carried:
    """Make the cell that brings `shared` back in a clean kernel. File names in `taken` are not used.

    Raises:
        StoreError: a pickle is there and cannot be read.
    """
    carried = Carried()
    for event in shared:
        if not event.name.isidentifier():
            continue
        what = f"{event.name} ({event.summary})" if event.summary else event.name
        data = _read(Path(event.file))
        if data is None:
            carried.missing.append(f"{what}, whose data is no longer in the session")
        elif redactor is not None and _holds_secret(data, redactor):
            carried.missing.append(f"{what}, whose data holds a secret and was not exported")
        elif len(data) <= LARGEST_EMBEDDED:
            carried.lines += _embedded(event, data)
        else:
            name = _free_name(event.name, taken)
            carried.files[name] = data
            carried.lines += [
                f'with open({f"{data_folder}/{name}"!r}, "rb") as file:  # {_comment(event.summary)}',
                f"    {event.name} = pickle.load(file)",
            ]
    if carried.missing:
        needs = "; ".join(_comment(line) for line in carried.missing)
        message = f"this notebook needs {needs}: define it here, in place of this line"
        carried.lines.append(f"raise NameError({message!r})")
    return carried


def _embedded(event: Shared, data: bytes) -> list[str]:
    encoded = base64.b64encode(data).decode()
    rows = [encoded[start : start + 100] for start in range(0, len(encoded), 100)]
    text = f'"{rows[0]}"' if len(rows) == 1 else '"""\n' + "\n".join(rows) + '\n"""'
    return [f"# {event.name}: {_comment(event.summary)}", f"{event.name} = pickle.loads(base64.b64decode({text}))"]


def _comment(text: str) -> str:
    return re.sub(r"\s+", " ", text)[:200]


def _free_name(name: str, taken: Container[str]) -> str:
    number, free = 2, f"{name}.pickle"
    while free in taken:
        number, free = number + 1, f"{name}-{number}.pickle"
    return free


def _read(path: Path) -> bytes | None:
    try:
        return plain_pickle(str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read the shared variable in {path}: {error.strerror}") from error


def _holds_secret(data: bytes, redactor: Redactor) -> bool:
    for start in range(0, len(data), _PIECE):
        piece = data[max(0, start - 10_000) : start + _PIECE].decode("latin-1")
        if redactor.text(piece) != piece:
            return True
    return False
