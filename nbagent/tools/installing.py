"""Finds what a cell installs with pip, and has it installed before the rest of the cell runs.

The kernel's own code may not write where packages are kept. What the user let pass is installed beside it, into
the environment of its interpreter, in every form in which it is commonly written; other forms stay in the kernel.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from nbagent.programs import PackageChange, ProgramEnded
from nbagent.protocols import ToolContext
from nbagent.tools.source import parse, to_python
from nbagent.tools.streaming import Streaming

#: What may follow the command in a shell without changing what it does.
_HARMLESS_END = re.compile(r"(?:\s*(?:2>&1|[12&]?>\s*/dev/null|\|\s*(?:tail|head)(?:\s+-n?\s*\d+)?))+\s*$")
_PIP_INSTALL = re.compile(
    r"(?:(?:\{sys\.executable\}|\"\{sys\.executable\}\"|python3?)\s+-m\s+)?(?:uv\s+)?pip3?\s+install\s+"
)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_FILLED_IN = re.compile(r"[$`{}\n]")  #: by IPython or the shell, quoted or not
_MEANS_MORE = re.compile(r"[|&;<>()*?~#\\]")  #: to a shell, where it is not quoted
#: Folders of the caller's choice are no part of the environment.
_ELSEWHERE = ("--target", "-t", "--prefix", "--root", "--python")
_RUNS = {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output")}
_SHELL_CELL = re.compile(r"\A\s*%%(?:bash|sh)[ \t]*\n")


@dataclass(frozen=True)
class Installs:
    """What a cell installs: pip's arguments, command by command, and the code without these commands."""

    commands: tuple[tuple[str, ...], ...]
    rest: str


def installs_of(code: str) -> Installs:
    """Find what a cell installs; `rest` is the code itself where there is nothing."""
    nothing = Installs((), code)
    if "pip" not in code:
        return nothing
    if _SHELL_CELL.match(code):
        lines = [line.strip() for line in _SHELL_CELL.sub("", code).splitlines()]
        found = [_arguments(line) for line in lines if line and not line.startswith("#")]
        known = tuple(arguments for arguments in found if arguments is not None)
        return Installs(known, "pass") if known and None not in found else nothing
    try:
        tree, text = parse(code), to_python(code)
    except SyntaxError:
        return nothing
    commands, lines = [], text.splitlines()
    for node, statement in _that_run(tree.body):
        command = _command(node)
        arguments = None if command is None else _arguments(command)
        if arguments is None:
            continue
        commands.append(arguments)
        whole = isinstance(statement, ast.Expr) and statement.lineno == statement.end_lineno
        if whole and _name(node.func).startswith("get_ipython()"):
            lines[statement.lineno - 1] = f"{' ' * statement.col_offset}pass"
    return Installs(tuple(commands), "\n".join(lines)) if commands else nothing


def _that_run(body: list[ast.stmt]) -> Iterator[tuple[ast.Call, ast.Expr | ast.Assign]]:
    """Give the calls that are statements, or whose value is kept, wherever they run in the cell itself."""
    for statement in body:
        if isinstance(statement, ast.Expr | ast.Assign) and isinstance(statement.value, ast.Call):
            yield statement.value, statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for part in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(statement, part, ()):
                    yield from _that_run(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _command(node: ast.Call) -> str | None:
    """Give the command line that a call runs."""
    name = _name(node.func)
    given = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    if name == "get_ipython().run_line_magic" and given[:1] in (["pip"], ["uv"]) and len(given) == 2:
        return f"{given[0]!s} {given[1]!s}"
    if name in ("get_ipython().system", "get_ipython().getoutput", "os.system") and len(given) == 1:
        return str(given[0])
    if name in _RUNS and node.args:
        if isinstance(node.args[0], ast.List | ast.Tuple):
            words = [_word(item) for item in node.args[0].elts]
            return None if None in words else shlex.join(word for word in words if word is not None)
        return str(given[0]) if given and isinstance(given[0], str) else None
    return None


def _word(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "python" if _name(node) == "sys.executable" else None


def _name(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _arguments(command: str) -> tuple[str, ...] | None:
    """Give what pip is to install and how; None where it is another command, or more than one."""
    command = _HARMLESS_END.sub("", command.strip())
    named = _PIP_INSTALL.match(command)
    if named is None:
        return None
    given = command[named.end() :]
    if _FILLED_IN.search(given) or _MEANS_MORE.search(_QUOTED.sub("", given)):
        return None
    try:
        arguments = tuple(shlex.split(given))
    except ValueError:
        return None
    elsewhere = any(word == one or word.startswith(f"{one}=") for word in arguments for one in _ELSEWHERE)
    return arguments if arguments and not elsewhere else None


# -- doing it -------------------------------------------------------------------------------------------


async def install(
    arguments: Sequence[str], context: ToolContext, streaming: Streaming, timeout: float
) -> ProgramEnded:
    """Install what one command names, showing what the installer prints."""
    async with aclosing(context.kernel.install(arguments, timeout=timeout)) as items:
        async for item in items:
            if isinstance(item, ProgramEnded):
                return item
            streaming.add(item)
    raise AssertionError("an installer ends with ProgramEnded")


def what_failed(arguments: Sequence[str], ended: ProgramEnded) -> str:
    """Say why an installation did not come to its end; "" where it did."""
    if ended.status == "ended" and ended.code == 0 and not ended.not_started:
        return ""
    how = ended.not_started or (
        f"it took longer than {ended.seconds:.3g} s" if ended.status == "timeout" else f"exit status {ended.code}"
    )
    advice = f"; {ended.advice}" if ended.advice else ""
    return f"pip install {' '.join(arguments)} failed ({how}){advice}"


def packages_line(changes: Sequence[PackageChange]) -> str:
    """Say what changed in the environment, and what needs a new kernel to be seen; "" where nothing did."""
    new = [f"{one.name} {one.now}" for one in changes if not one.before]
    other = [f"{one.name} {one.before} -> {one.now or 'gone'}" for one in changes if one.before]
    told = f"Installed in the user's environment: {', '.join(new)}." if new else ""
    if other:
        told += f" Replaced there: {', '.join(other)}; a kernel that has imported one of them keeps the old one."
    return told.strip()
