"""The words that the model is sent: a byte-stable system prompt, and the message that opens a run.

The texts are package data in `prompts/`, in blocks: role, how to work, what is data, the answer's form. The
tools, each with when to use it, and the host's context are the other blocks. The text dialects, for small
models, have a short text with a worked example instead: with a long one these guess rather than compute.
Nothing volatile stands in the system prompt; advice for a kind of work comes with the task that asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from nbagent.events import DialectName
from nbagent.protocols import ToolSpec, Variable
from nbagent.task_reading import approach_of, language_of

#: More variables than these are counted, not listed.
MOST_VARIABLES = 40
CELL_CHARACTERS = 1200


@cache
def text_named(name: str) -> str:
    """Give one of the texts in `prompts/`."""
    return files("nbagent").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()


def system_prompt(dialect: DialectName, tools: Sequence[ToolSpec]) -> str:
    """Build the system prompt; the tools are named in it where the request itself does not carry them."""
    if dialect == "tools":
        return f"{text_named('role')}\n\n{_joined('how_to_work', 'data_is_data', 'answer')}"
    if dialect == "fenced":
        return text_named(dialect)
    listed = "\n".join(f"- {_signature(tool)}: {tool.description}" for tool in tools)
    return f"{text_named(dialect)}\n\nTools:\n{listed}"


def _joined(*names: str) -> str:
    return "\n".join(map(text_named, names))


def _signature(tool: ToolSpec) -> str:
    return f"{tool.name}({', '.join(tool.schema.get('properties', {}))})"


#: How the agent's code comes by the user's variables.
REACH = {
    "fresh": "; bring_variable copies one into your kernel",
    "live": " (your code runs in their kernel: use these as they are, and bind names of your own)",
    "branch": " (your kernel is a copy of theirs and has them all: use these as they are; what you change in them"
    " stays in your copy)",
}


@dataclass(frozen=True)
class HostContext:
    """What the model is told of the place it works in."""

    variables: Sequence[Variable] = ()
    cells: Sequence[str] = ()
    last_error: str = ""
    files: Sequence[str] = field(default_factory=tuple)  #: one description a data file
    kernel: str = "fresh"  #: the kind of the agent's kernel
    news: str = ""  #: what is otherwise in the kernel than the model knows


def advice_for(task: str, approach: str, dialect: DialectName) -> str:
    """Give advice for the kind of work that the task asks for, or "" for none.

    `approach` is the user's choice; by "auto" small models, which the text dialects are for, get none.
    """
    if approach == "auto":
        approach = approach_of(task) or "general" if dialect == "tools" else "general"
    return "" if approach == "general" else text_named(f"approach_{approach}")


def run_message(
    task: str,
    context: HostContext,
    nonce: str,
    *,
    dialect: DialectName = "tools",
    approach: str = "auto",
) -> str:
    """Build the message that opens a run: the host's context, fenced as data, advice, then the task verbatim.

    Small models, which the text dialects are for, answer from the examples in a digest unless they are told
    once more, last, to compute.
    """
    language = language_of(task) if dialect == "tools" else ""
    last = f"(Answer in {language}.)" if language else ""
    reminder = text_named("reminder") if dialect != "tools" else last
    request = "\n\n".join(filter(None, [advice_for(task, approach, dialect), f"Task: {task}", reminder]))
    blocks = [context.news] if context.news else []
    if context.variables:
        blocks.append(
            f"The user's live variables{REACH[context.kernel]}:\n" + "\n".join(variable_lines(context.variables))
        )
    if context.cells:
        cells = "\n---\n".join(shorten(cell) for cell in context.cells)
        blocks.append(f"The user's last cells, oldest first:\n{cells}")
    if context.last_error:
        blocks.append(f"The user's last error:\n{context.last_error}")
    if context.files:
        blocks.append("Files in your working folder:\n" + "\n".join(context.files))
    if not blocks:
        return request
    data = "\n\n".join(blocks).replace(nonce, "")
    return f"<context {nonce}>\n{data}\n</context {nonce}>\n\n{request}"


def variable_lines(variables: Sequence[Variable]) -> list[str]:
    """List variables, a line each; more than `MOST_VARIABLES` are counted."""
    listed = [f"- {one.name}: {one.type} {one.summary}".rstrip() for one in variables[:MOST_VARIABLES]]
    if len(variables) > MOST_VARIABLES:
        listed.append(f"- and {len(variables) - MOST_VARIABLES} more")
    return listed


def shorten(text: str) -> str:
    """Keep the beginning and the end of what is long."""
    if len(text) <= CELL_CHARACTERS:
        return text
    half = CELL_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - CELL_CHARACTERS} characters left out ...\n{text[-half:]}"
