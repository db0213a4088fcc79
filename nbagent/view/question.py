"""A question that is answered by lines of text: yes, no, or an edited version."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable

import click

from nbagent.protocols import Approval, ApprovalRequest

_EDITORS = ("sensible-editor", "vim", "nano", "vi", "notepad")


async def ask_by_line(
    request: ApprovalRequest, read: Callable[[str], Awaitable[str]], show: Callable[[str], None]
) -> Approval:
    """Ask until there is an answer. What follows a "n" is told to the model; `show` prints edited code.

    Raises:
        asyncio.CancelledError: the user pressed Ctrl-C.
    """
    code = request.code
    choices = "[y]es / [n]o / [e]dit" if _has_editor() else "[y]es / [n]o"
    while True:
        try:
            answer = (await read(f"Approve? {choices} ")).strip()
        except (EOFError, NotImplementedError, OSError):  # the front end takes no input, or it was closed
            return Approval(approved=False, by="nobody", note="nobody is there to answer; see --approve")
        except KeyboardInterrupt:
            raise asyncio.CancelledError from None
        word, _, note = answer.partition(" ")
        if word.lower() in ("y", "yes"):
            return Approval(approved=True, by="user", code=code if code != request.code else None)
        if word.lower() in ("n", "no"):
            return Approval(approved=False, by="user", note=note.strip())
        if word.lower() in ("e", "edit") and _has_editor():
            code = await _edited(code)
            show(code)


def _has_editor() -> bool:
    return bool(os.environ.get("VISUAL") or os.environ.get("EDITOR")) or any(map(shutil.which, _EDITORS))


async def _edited(code: str) -> str:
    """Open the code in the user's editor; give it as it was where they left without saving."""
    try:
        edited = await asyncio.to_thread(click.edit, code, extension=".py", require_save=True)
    except click.ClickException as error:
        click.echo(error.format_message(), err=True)
        return code
    return code if edited is None else edited.rstrip("\n")
