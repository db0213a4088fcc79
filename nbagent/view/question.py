"""A question that is answered by lines of text: yes, no, always, or an edited version."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from typing import Literal

import click

from nbagent.meter import BUDGET
from nbagent.plan import PLAN
from nbagent.protocols import Approval, ApprovalRequest
from nbagent.tool_traits import ASK_USER
from nbagent.view.outputs import visible

_EDITORS = ("sensible-editor", "vim", "nano", "vi", "notepad")
_ALWAYS: dict[str, Literal["pattern", "session"]] = {
    **dict.fromkeys(("a", "always"), "pattern"),
    **dict.fromkeys(("s", "session"), "session"),
}


def own_question(tool: str) -> str:
    """Give the words of a question of nbagent's own, where nothing is run and graded; else ""."""
    return {PLAN: "Is this plan right?", BUDGET: "Go over the budget?"}.get(tool, "")


async def ask_by_line(
    request: ApprovalRequest,
    read: Callable[[str], Awaitable[str]],
    show: Callable[[str], None] | None,
    *,
    asked: str = "Approve?",
) -> Approval:
    """Ask until there is an answer; what follows a "n" is told to the model.

    A plan may also be answered by another one, its steps in a line.
    `show` prints edited code; without it there is no editor to offer. `asked` opens the first prompt.

    Raises:
        asyncio.CancelledError: the user pressed Ctrl-C.
    """
    if request.tool == ASK_USER:
        return await _answer_by_line(read, asked)
    code, can_edit = request.code, show is not None and request.tool != BUDGET and _has_editor()
    while True:
        try:
            answer = (await read(f"{asked} {_choices(request, can_edit)} ")).strip()
        except (EOFError, NotImplementedError, OSError):  # the front end takes no input, or it was closed
            return Approval(approved=False, by="nobody", note="nobody is there to answer; see --approve")
        except KeyboardInterrupt:
            raise asyncio.CancelledError from None
        asked = "Approve?"
        word, _, note = answer.partition(" ")
        word = word.lower()
        always: Literal["", "pattern", "session"] = _ALWAYS.get(word, "")
        offered = {"pattern": request.always, "session": request.session}
        if word in ("y", "yes") or offered.get(always):
            edited = code if code != request.code else None
            return Approval(approved=True, by="user", code=edited, always=always)
        if word in ("n", "no"):
            return Approval(approved=False, by="user", note=note.strip())
        if word in ("e", "edit") and can_edit and show is not None:
            code = await _edited(code)
            show(code)
        elif request.tool == PLAN and ";" in answer:
            code = "\n".join(step.strip() for step in answer.split(";"))
            return Approval(approved=True, by="user", code=code)


async def _answer_by_line(read: Callable[[str], Awaitable[str]], asked: str) -> Approval:
    """Take a line as the answer to a question in words; an empty one leaves it to the agent."""
    asked = "Your answer" if asked == "Approve?" else asked
    try:
        answer = (await read(f"{asked} (empty: the agent decides): ")).strip()
    except (EOFError, NotImplementedError, OSError):
        return Approval(approved=False, by="nobody", note="nobody is there to answer")
    except KeyboardInterrupt:
        raise asyncio.CancelledError from None
    return Approval(approved=bool(answer), by="user", note=answer)


def _choices(request: ApprovalRequest, can_edit: bool) -> str:
    choices = ["[y]es", "[n]o", *(["[e]dit"] if can_edit else [])]
    if request.tool == PLAN:
        choices.append("your own steps; like; this")
    if request.always:
        choices.append(f"[a]lways {_short(request.always)}")
    if request.session:
        choices.append(f"[s]ession: {_short(request.session)}")
    return " / ".join(choices)


def _short(words: str) -> str:
    line = " ".join(visible(words).split())
    return line if len(line) <= 80 else f"{line[:79]}…"


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
