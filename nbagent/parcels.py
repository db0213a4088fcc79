"""Files that variables travel in: a pickle with its large buffers beside it, read without copying them.

The text of this file is also executed in kernels whose interpreter has no nbagent: standard library only.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

SMALLEST_BUFFER = 1 << 16  #: bytes; smaller ones stay in the pickle
#: Memory that files can be in; the kernel's code may write there, confined or not.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (named by the system)
_MAGIC = b"nbagent parcel 1"
_NUMBERS = struct.Struct("<QQ")
_PAGE = 4096
_BYTES, _BYTEARRAY = b"\x8e", b"\x96"  #: opcodes: eight bytes of length follow, then the content

MakePickler = Callable[[IO[bytes], Callable[[pickle.PickleBuffer], bool]], pickle.Pickler]


def write_parcel(value: Any, path: str, make_pickler: MakePickler) -> None:
    """Write `value` to `path`; whatever pickling it raises is passed on, and no file is left then."""
    buffers: list[memoryview] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALLEST_BUFFER:
            return True  # into the pickle
        buffers.append(raw)
        return False

    try:
        with Path(path).open("wb") as file:
            file.write(_MAGIC + _NUMBERS.pack(0, 0))
            make_pickler(file, aside).dump(value)
            places = []
            for raw in buffers:
                file.seek(-file.tell() % _PAGE, os.SEEK_CUR)
                places.append((file.tell(), raw.nbytes))
                file.write(raw)
            table = file.tell()
            file.write(b"".join(_NUMBERS.pack(*place) for place in places))
            file.seek(len(_MAGIC))
            file.write(_NUMBERS.pack(table, len(places)))
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise


def read_parcel(path: str) -> Any:
    """Read what `write_parcel` wrote, or an ordinary pickle; large buffers stay where they are, ours to change.

    The file may be unlinked afterwards: the memory lasts as long as the buffers. Raises what unpickling raises.
    """
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_size < len(_MAGIC):
            return pickle.load(file)  # noqa: S301 (see the callers: the user's own variables)
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    view = memoryview(whole)
    if view[: len(_MAGIC)] != _MAGIC:
        return pickle.loads(view)  # noqa: S301
    table, count = _NUMBERS.unpack_from(view, len(_MAGIC))
    places = [_NUMBERS.unpack_from(view, table + index * _NUMBERS.size) for index in range(count)]
    stream = view[len(_MAGIC) + _NUMBERS.size : table]
    return pickle.loads(stream, buffers=[view[start : start + size] for start, size in places])  # noqa: S301


def plain_pickle(path: str) -> bytes:
    """Give what `write_parcel` wrote as an ordinary pickle, which any Python reads; nothing of it is executed."""
    data = Path(path).read_bytes()
    if not data.startswith(_MAGIC):
        return data
    table, count = _NUMBERS.unpack_from(data, len(_MAGIC))
    stream = data[len(_MAGIC) + _NUMBERS.size : table]
    if not count:
        return stream
    import pickletools

    pieces: list[bytes | memoryview] = []
    at = index = end = 0
    for opcode, _, found in pickletools.genops(stream):
        end = found or 0
        if opcode.name not in ("FRAME", "NEXT_BUFFER", "READONLY_BUFFER"):
            continue
        pieces.append(stream[at:end])
        at = end + 1
        if opcode.name == "FRAME":  # its length would be another
            at = end + 9
        elif opcode.name == "NEXT_BUFFER":
            start, size = _NUMBERS.unpack_from(data, table + index * _NUMBERS.size)
            index += 1
            kind = _BYTES if stream[at : at + 1] == pickle.READONLY_BUFFER else _BYTEARRAY
            pieces += (kind, struct.pack("<Q", size), memoryview(data)[start : start + size])
    pieces.append(stream[at : end + 1])
    return b"".join(pieces)


def link_or_copy(file: Path, place: Path) -> None:
    """Have a file in a second place."""
    try:
        os.link(file, place)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, place)
