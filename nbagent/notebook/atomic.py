"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from nbagent.errors import FileExistsRefused, StoreError


def refuse_existing(path: Path) -> None:
    """Raise `FileExistsRefused` where something, be it a broken link, is at `path`."""
    if path.exists() or path.is_symlink():
        raise FileExistsRefused(f"{path} is there already: choose another name, or overwrite it with --force")


def write_whole(path: Path, content: bytes, *, force: bool) -> None:
    """Write a file in one step; with `force` in place of what is there (a link itself, not its target).

    Raises:
        FileExistsRefused: something is there and `force` was not given.
        StoreError: it cannot be written; nothing has changed and nothing is left over.
    """
    temporary = path.with_name(f".{path.stem[:40]}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if force:
            temporary.replace(path)
        else:
            _put_new(temporary, path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _put_new(temporary: Path, path: Path) -> None:
    """Give the file its name unless another took the name meanwhile."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        refuse_existing(path)
        raise
    except OSError:  # a file system without links
        refuse_existing(path)
        temporary.replace(path)


def free_path(path: Path) -> Path:
    """Number the file rather than overwrite one."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free
