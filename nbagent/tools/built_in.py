"""The tools that come with nbagent: a new one is one file and one line here."""

from __future__ import annotations

from pathlib import Path

from nbagent.protocols import Tool
from nbagent.tools.answer import FinalAnswer
from nbagent.tools.ask_user import AskUser
from nbagent.tools.code import RunCode
from nbagent.tools.edit_file import edit_file
from nbagent.tools.inspection import inspect_variable, post_mortem
from nbagent.tools.read_file import read_file
from nbagent.tools.read_output import read_output
from nbagent.tools.run_shell import RunShell
from nbagent.tools.search_files import search_files
from nbagent.tools.sharing import Sharing
from nbagent.tools.variables import BringVariable
from nbagent.tools.write_file import write_file

#: Names that are nbagent's own: no tool of a user's or a package's may take one.
RESERVED = frozenset(
    {"run_code", "bring_variable", "inspect_variable", "read_file", "write_file", "edit_file", "search_files"}
    | {"run_shell", "read_output", "post_mortem", "ask_user", "final_answer"}
)


def built_in(folder: Path, sharing: Sharing) -> list[Tool]:
    """Give the built-in tools of one session, in the order in which the model is told of them.

    Those made by `nbagent.tools.definition.tool` are listed as they are; what they keep for the session comes
    from `ToolContext.kept`.
    """
    return [
        RunCode(folder, sharing),
        BringVariable(sharing),
        inspect_variable,
        post_mortem,
        read_file,
        write_file,
        edit_file,
        search_files,
        RunShell(),
        read_output,
        AskUser(),
        FinalAnswer(),
    ]
