"""Grades code by what it would do to files, the network and the system, from its syntax tree.

It decides what is asked, not what is possible: it is no sandbox. What it cannot read is taken for the worst
that is likely. A literal path in the workspace that is new is `write`; one that exists, and any path that the
code only works out while it runs, is `overwrite`; deleting is `overwrite` for a literal path in the workspace
and `destructive` for all else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container
from dataclasses import replace

from nbagent.events import Risk
from nbagent.tools import calls
from nbagent.tools.findings import RISKS, Files, Finding, worst
from nbagent.tools.magics import grade_magic
from nbagent.tools.names import Names
from nbagent.tools.shell import grade_shell, grade_sql, grade_words
from nbagent.tools.source import parse

#: Code that runs code that runs code: deeper than this is hiding something.
DEEPEST = 6
#: Flags of `os.open` with which nothing is written.
_QUIET_FLAGS = re.compile(r"(?:(?:\w+\.)?O_(?!WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)\w+(?: \| )?)+|0")


def grade(
    code: str, *, exists: Callable[[str], bool] | None = None, made: Container[str] = ()
) -> tuple[Risk, str]:
    """Grade one cell: how dangerous, and why in a few words.

    `exists` tells of a path relative to the workspace; `made` are paths that this session made.
    """
    return Grader(exists=exists, owns=made.__contains__).grade(code)


def refused(code: str) -> str | None:
    """Say why a cell is never run (`sudo`, `curl | sh` and their kind), or None."""
    return next((finding.why for finding in _findings(code, Names(), Files()) if finding.refused), None)


class Grader:
    """Grades the cells of one session in order; what a cell that ran imports is known in the next."""

    def __init__(self, *, exists: Callable[[str], bool] | None = None, owns: Callable[[str], bool] | None = None):
        """`exists` tells of a path relative to the workspace, `owns` whether this session made the file there."""
        self._files = Files()
        if exists is not None:
            self._files.exists = exists
        if owns is not None:
            self._files.owns = owns
        self._names = Names()

    def grade(self, code: str) -> tuple[Risk, str]:
        """Grade one cell, which may then run or not."""
        finding = worst(_findings(code, self._names.copy(), replace(self._files)))
        return finding.risk, finding.why

    def reasons(self, code: str) -> list[str]:
        """Give all that a cell does for which the user may be asked, each in a few words."""
        findings = _findings(code, self._names.copy(), replace(self._files))
        asked = RISKS[RISKS.index("overwrite") :]
        return sorted({finding.why for finding in findings if finding.risk in asked})

    def touches(self, code: str) -> tuple[set[str], bool]:
        """Give the literal paths that a cell writes to or deletes, and whether it may do so to others too."""
        findings = _findings(code, self._names.copy(), replace(self._files))
        return {finding.touched for finding in findings} - {""}, any(finding.anywhere for finding in findings)

    def ran(self, code: str, *, completed: bool) -> None:
        """Take in a cell that ran: later ones know its names. Not `completed`: it stopped somewhere."""
        names = self._names.copy()
        _findings(code, names, self._files)
        if not completed:
            names.doubt(self._names)
        self._names = names


def _findings(code: str, names: Names, files: Files, depth: int = 0) -> list[Finding]:
    """Give all that a cell does; what it does to names and folders stays in `names` and `files`."""
    if depth > DEEPEST:
        return [Finding("destructive", "code within code within code")]
    try:
        tree = parse(code)
    except SyntaxError:
        return [Finding("destructive", "does not parse")]
    names.learn(tree)
    visitor = _Visitor(names, files, depth)
    visitor.visit(tree)
    return visitor.findings


class _Visitor(ast.NodeVisitor):
    """Collects findings from calls, and from mentions of dangerous functions that are handed on."""

    def __init__(self, names: Names, files: Files, depth: int):
        self.findings: list[Finding] = []
        self._names = names
        self._files = files
        self._depth = depth

    # -- nodes --

    def visit_Call(self, node: ast.Call) -> None:
        for name in self._names.of(node.func):
            self._call(name.removeprefix("builtins."), node)
        if isinstance(node.func, ast.Attribute):
            self._method(node.func, node)
            self.visit(node.func.value)
            self._look_up(node.func)
        elif not isinstance(node.func, ast.Name):
            self.visit(node.func)
        for argument in (*node.args, *node.keywords):
            self.visit(argument)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._look_up(node)
        self._mention(node)
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Attribute) and target.attr == "__code__" for target in node.targets):
            self._add("destructive", "replaces the code of a function")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._mention(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        read = isinstance(node.ctx, ast.Load)
        if read and self._names.of(node.value) & calls.TABLES and self._names.text(node.slice) is None:
            self._add("destructive", "looks a name up that the code works out")
        self.generic_visit(node)

    def _look_up(self, node: ast.Attribute) -> None:
        powerful = any(name in calls.POWERFUL for name in self._names.of(node.value))
        if node.attr in calls.LOOK_UPS or (node.attr == "__dict__" and powerful):
            self._add("destructive", f"looks names up through {node.attr}")

    def _mention(self, node: ast.expr) -> None:
        """A dangerous function that is passed on is called somewhere with unknown arguments."""
        if isinstance(getattr(node, "ctx", None), ast.Store):
            return
        for name in self._names.of(node):
            name = name.removeprefix("builtins.")
            if name in calls.STARS | calls.RUNS_TEXT | calls.IMPORTS | {"__builtins__"}:
                self._call(name, ast.Call(node, [ast.Constant(None)] * 2, []))

    # -- calls --

    def _call(self, name: str, node: ast.Call) -> None:
        if name in calls.RUNS:
            self._runs(name, node)
        elif name in calls.DELETES:
            self.findings.append(self._files.delete(self._path(node, 0)))
        elif name in calls.DESTROYS:
            self._add("destructive", name)
        elif name in calls.MOVES:
            self.findings += [self._files.delete(self._path(node, 0)), self._files.write(self._path(node, 1))]
        elif name in calls.OPENS:
            self._open(node, node.args[1:], self._path(node, 0))
        elif name in calls.RUNS_TEXT:
            self._runs_text(name, node)
        elif name in calls.IMPORTS and self._names.text(node.args[0] if node.args else None) is None:
            self._add("destructive", "imports a module that the code works out")
        elif name == "getattr":
            self._getattr(node)
        elif name == "__builtins__" or (name == "vars" and self._first(node) & calls.POWERFUL):
            self._add("destructive", f"looks names up in {name}")
        elif name in calls.MAKES:
            self.findings.append(self._files.make(self._path(node, 0)))
        elif name == "os.chdir":
            self._files.moved = True
        elif name in ("os.chmod", "os.lchmod"):
            self._add("overwrite", name)
        elif name in calls.RUNS_FILES:
            self._add("overwrite", f"{name} runs a file")
        elif name in calls.NAMES_ATTRIBUTE:
            self._names_attribute(name, node)
        elif name == "os.open":
            self._open_flags(node)
        elif name.startswith("nbagent."):
            self._add("destructive", f"{name} works with nbagent itself")
        elif name in calls.UNPICKLES:
            self._unpickles(name, node)
        elif name.startswith(("ctypes.", "cffi.")):
            self._add("destructive", f"calls into C through {name}")
        elif name.startswith("get_ipython()."):
            self._magic(name.removeprefix("get_ipython()."), node)
        if name in calls.WRITES:
            self.findings.append(self._files.write(self._path(node, calls.WRITES[name])))
        self._network(name, node)

    def _network(self, name: str, node: ast.Call) -> None:
        module = next((m for m in calls.NETWORK_MODULES if name.startswith(f"{m}.")), None)
        if self._in_the_page(name, node):
            return
        if name in calls.NETWORK or (module and name not in calls.QUIET and not name.endswith("Error")):
            self._add("network", name.replace("()", ""))
            return
        first = self._path(node, 0) or ""
        if re.match(r"(?:https?|ftp|s3|gs|hf)://", first) and re.search(
            r"(?:^|[._])(?:read|load|scan|open)", name
        ):
            self._add("network", f"reads {first[:60]}")
        elif re.match(r"sklearn\.datasets\.fetch_", name):
            self._add("network", name)
        elif any(k.arg == "download" and getattr(k.value, "value", None) is True for k in node.keywords):
            self._add("network", f"{name.replace('()', '')} downloads")

    def _in_the_page(self, name: str, node: ast.Call) -> bool:
        """Whether it shows what the page would fetch or run."""
        given = " ".join(self._texts_in([*node.args, *(k.value for k in node.keywords)]))
        fetches = any(k.arg == "url" for k in node.keywords) or re.search(r"(?:https?:)?//|<script|<iframe", given)
        if name in calls.IN_THE_PAGE or (name in calls.BY_ADDRESS and fetches):
            self._add("network", f"{name} runs in the page")
            return True
        return False

    def _runs(self, name: str, node: ast.Call) -> None:
        arguments = node.args[:1] or [k.value for k in node.keywords if k.arg in ("args", "cmd", "command")]
        if name in ("asyncio.create_subprocess_exec", "pty.spawn") and len(node.args) > 1:
            arguments = [ast.List(list(node.args), ast.Load())]
        if not arguments:
            self._add("destructive", f"runs a command through {name}")
            return
        files = replace(self._files)
        text = self._names.text(arguments[0])
        if text is not None:
            self.findings += grade_shell(text, files, self._python)
        elif isinstance(arguments[0], ast.List | ast.Tuple) and arguments[0].elts:
            words = [self._word(item) for item in arguments[0].elts]
            self.findings += grade_words(words, files, self._python)
        else:
            self._add("destructive", "runs a command that the code works out")

    def _word(self, node: ast.expr) -> str:
        """Give a command's word; `$` stands for what only the running code knows."""
        if "sys.executable" in self._names.of(node):
            return "python"
        text = self._names.text(node)
        return "$" if text is None else text

    def _runs_text(self, name: str, node: ast.Call) -> None:
        argument = node.args[0] if node.args else None
        text = self._names.text(argument)
        if text is not None:
            self.findings += self._python(text)
            return
        fetched = self._fetched(argument)
        why = "runs what it downloads" if fetched else f"{name} of text that the code works out"
        self.findings.append(Finding("destructive", why, refused=fetched))

    def _fetched(self, node: ast.expr | None) -> bool:
        """Whether a value comes from the network, here or where a name was bound to it."""
        if node is None:
            return False
        inner = _Visitor(self._names, self._files, self._depth + 1)
        inner.visit(node)
        names = {name for part in ast.walk(node) if isinstance(part, ast.expr) for name in self._names.of(part)}
        return any(finding.risk == "network" or finding.refused for finding in inner.findings) or any(
            "()" in name and name.startswith(tuple(f"{module}." for module in calls.NETWORK_MODULES))
            for name in names
        )

    def _unpickles(self, name: str, node: ast.Call) -> None:
        argument = node.args[0] if node.args else None
        if self._fetched(argument):
            self.findings.append(Finding("destructive", "runs what it downloads", refused=True))
        elif isinstance(argument, ast.Constant) or (argument is not None and any(self._texts_in([argument]))):
            self._add("destructive", f"{name} of a program within the code")

    def _names_attribute(self, name: str, node: ast.Call) -> None:
        text = self._names.text(node.args[0]) if node.args else None
        if text is None or set(text.split(".")) & calls.DANGEROUS:
            self._add("destructive", f"{name} looks up {text or 'a name that the code works out'}")

    def _python(self, code: str) -> list[Finding]:
        return _findings(code, self._names, self._files, self._depth + 1)

    def _getattr(self, node: ast.Call) -> None:
        powerful = bool(node.args) and bool(self._names.of(node.args[0]) & calls.POWERFUL)
        if powerful and len(node.args) > 1 and self._names.text(node.args[1]) is None:
            self._add("destructive", "looks up a function while it runs")

    def _magic(self, method: str, node: ast.Call) -> None:
        texts = [self._names.text(argument) for argument in node.args]
        if None in texts:
            self._add("destructive", "runs a magic or command that the code works out")
            return
        words = [text for text in texts if text is not None]
        self.findings += grade_magic(method, words, self._files, self._python)

    # -- methods --

    def _method(self, function: ast.Attribute, node: ast.Call) -> None:
        method, owner = function.attr, self._names.text(function.value)
        if (
            any(name in calls.WRITES for name in self._names.of(function))
            or self._names.of(function) & calls.MAKES
        ):
            return
        is_path = any(name.startswith("pathlib.") for name in self._names.of(function.value))
        if method in calls.WRITE_METHODS:
            given = [k for k in node.keywords if k.arg in calls.PATH_WORDS]
            if (node.args or given) and not self._first(node) & calls.FILE_OBJECTS:
                self.findings.append(self._files.write(self._path(node, 0)))
        elif method in calls.PATH_MAKES:
            self.findings.append(self._files.make(owner))
        elif method in calls.PATH_WRITES:
            self.findings.append(self._files.write(owner))
        elif method in calls.PATH_DELETES:
            self.findings.append(self._files.delete(owner))
        elif method in ("rename", "replace") and is_path:
            self.findings += [self._files.delete(owner), self._files.write(self._path(node, 0))]
        elif method == "open" and is_path:
            self._open(node, node.args, owner)
        elif method == "to_sql":
            self._add("overwrite", "writes to a database")
        elif method in calls.UNPACKS:
            self._add("overwrite", f"{method} writes files that the code does not name")
        elif method == "from_pretrained" and not (self._path(node, 0) or "").startswith((".", "/", "~")):
            self._add("network", "from_pretrained may download")
        elif method in calls.SQL_METHODS and node.args:
            sql = self._names.text(node.args[0]) or " ".join(self._texts_in(node.args[:1]))
            self.findings += grade_sql(sql)
        elif (
            method in ("rmtree", "system", "rm", "rm_file")
            and node.args
            and not self._names.of(function) & calls.KNOWN_METHODS
        ):
            self._add("destructive", f"{method} of something unknown")

    def _open(self, node: ast.Call, modes: list[ast.expr], path: str | None) -> None:
        mode: str | None = "r"
        if given := next((k.value for k in node.keywords if k.arg == "mode"), modes[0] if modes else None):
            mode = self._names.text(given)
        if mode is not None and not re.search(r"[wax+]", mode):
            return
        finding = self._files.write(path)
        if mode is not None and "x" in mode and path is not None and finding.written == "":
            finding = replace(finding, why=f"makes {path}")
        self.findings.append(finding)

    def _open_flags(self, node: ast.Call) -> None:
        given = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "flags")]
        if not all(_QUIET_FLAGS.fullmatch(ast.unparse(flags)) for flags in given):
            self.findings.append(self._files.write(self._path(node, 0)))

    # -- arguments --

    def _path(self, node: ast.Call, position: int) -> str | None:
        arguments = node.args[position : position + 1]
        arguments = arguments or [k.value for k in node.keywords if k.arg in calls.PATH_WORDS]
        return self._names.text(arguments[0]) if arguments else None

    def _texts_in(self, nodes: list[ast.expr]) -> list[str]:
        parts = [part for node in nodes for part in ast.walk(node)]
        return [str(part.value) for part in parts if isinstance(part, ast.Constant) and part.value is not None]

    def _first(self, node: ast.Call) -> set[str]:
        return self._names.of(node.args[0]) if node.args else set()

    def _add(self, risk: Risk, why: str) -> None:
        self.findings.append(Finding(risk, why))
