"""The words that the model is sent: a byte-stable system prompt, and the message that opens a run.

The texts are package data in `prompts/`. Nothing volatile stands in the system prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from nbagent.events import DialectName
from nbagent.protocols import ToolSpec, Variable

#: More variables than these are counted, not listed.
MOST_VARIABLES = 40
CELL_CHARACTERS = 1200


@cache
def text_named(name: str) -> str:
    """Give one of the texts in `prompts/`."""
    return files("nbagent").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()


def system_prompt(dialect: DialectName, tools: Sequence[ToolSpec]) -> str:
    """Build the system prompt; the tools are named in it where the request itself does not carry them."""
    if dialect != "json":
        return text_named(dialect)
    listed = "\n".join(f"- {_signature(tool)}: {tool.description}" for tool in tools)
    return f"{text_named(dialect)}\n\nTools:\n{listed}"


def closing_line(dialect: DialectName, task: str) -> str:
    """Give what ends each observation in the text dialects: small models forget what was asked, and how."""
    return "" if dialect == "tools" else text_named("after_output").replace("{task}", _shorten(task.strip()))


def _signature(tool: ToolSpec) -> str:
    return f"{tool.name}({', '.join(tool.schema.get('properties', {}))})"


@dataclass(frozen=True)
class HostContext:
    """What the model is told of the place it works in."""

    variables: Sequence[Variable] = ()
    cells: Sequence[str] = ()
    last_error: str = ""
    files: Sequence[str] = field(default_factory=tuple)  #: one description a data file
    news: str = ""  #: what is otherwise in the kernel than the model knows


def run_message(
    task: str, context: HostContext, nonce: str, *, can_bring: bool, dialect: DialectName = "tools"
) -> str:
    """Build the message that opens a run: the host's context, fenced as data, then the task verbatim.

    Small models, which the text dialects are for, answer from the examples in a digest unless they are told
    once more, last, to compute.
    """
    reminder = f"\n\n{text_named('reminder')}" if dialect != "tools" else ""
    blocks = [context.news] if context.news else []
    if context.variables:
        how = "; bring_variable copies one into your kernel" if can_bring else ""
        blocks.append(f"The user's live variables{how}:\n" + "\n".join(variable_lines(context.variables)))
    if context.cells:
        cells = "\n---\n".join(_shorten(cell) for cell in context.cells)
        blocks.append(f"The user's last cells, oldest first:\n{cells}")
    if context.last_error:
        blocks.append(f"The user's last error:\n{context.last_error}")
    if context.files:
        blocks.append("Files in your working folder:\n" + "\n".join(context.files))
    if not blocks:
        return f"Task: {task}{reminder}"
    data = "\n\n".join(blocks).replace(nonce, "")
    return f"<context {nonce}>\n{data}\n</context {nonce}>\n\nTask: {task}{reminder}"


def variable_lines(variables: Sequence[Variable]) -> list[str]:
    """List variables, a line each; more than `MOST_VARIABLES` are counted."""
    listed = [f"- {one.name}: {one.type} {one.summary}".rstrip() for one in variables[:MOST_VARIABLES]]
    if len(variables) > MOST_VARIABLES:
        listed.append(f"- and {len(variables) - MOST_VARIABLES} more")
    return listed


def _shorten(text: str) -> str:
    if len(text) <= CELL_CHARACTERS:
        return text
    half = CELL_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - CELL_CHARACTERS} characters left out ...\n{text[-half:]}"
