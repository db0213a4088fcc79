"""Grades IPython's magics and shell escapes, once IPython has turned them into calls."""

from __future__ import annotations

import re
from dataclasses import replace

from nbagent.tools import calls
from nbagent.tools.findings import Files, Finding
from nbagent.tools.shell import GradePython, grade_shell, grade_sql

_OPTIONS = re.compile(r"\A(?:\s*-(?:[nrcqtopbslTDv]\s?[\w.]*|-[\w-]+(?:=\S+)?)(?=\s|\Z))+")


def grade_magic(method: str, words: list[str], files: Files, python: GradePython) -> list[Finding]:
    """Grade a call of a method of the IPython shell with literal arguments."""
    if method in ("system", "getoutput", "system_raw", "system_piped", "getoutput_raw"):
        return grade_shell(words[0] if words else "", replace(files), python)
    if method in ("run_cell", "ex", "ev", "run_cell_async"):
        return python(words[0]) if words else []
    if method in ("run_line_magic", "run_cell_magic", "magic"):
        if method == "magic":
            words = (words[0] if words else "").lstrip("%").split(None, 1)
        name, line, cell = [*words, "", "", ""][:3]
        return _magic(name, line, cell, files, python)
    return []


def _magic(name: str, line: str, cell: str, files: Files, python: GradePython) -> list[Finding]:
    if name in ("cd", "pushd", "popd"):
        files.moved = True
        return []
    if name in ("pip", "conda", "mamba", "micromamba", "uv"):
        return grade_shell(f"{name} {line}", replace(files), python)
    if name in calls.PYTHON_MAGICS:
        return _python_magic(name, line, cell, python)
    if name in calls.SHELL_MAGICS:
        return grade_shell(cell or line, replace(files), python)
    if name == "sc":
        return grade_shell(line.partition("=")[2], replace(files), python)
    if name in calls.SHELL_ALIASES:
        return grade_shell(f"{name} {line}", replace(files), python)
    if name == "alias":
        # What it will be called with is not known yet.
        return grade_shell(line.strip().partition(" ")[2] + " $@", replace(files), python)
    if name == "script":
        return _script(line, cell, files, python)
    if name in ("writefile", "file"):
        return [files.write(line.replace("-a ", "").strip().strip("\"'") or None)]
    if name == "sql":
        return [Finding("network", "asks a database"), *grade_sql(f"{line}\n{cell}")]
    if name in ("javascript", "js", "html", "HTML"):
        return [Finding("network", "runs in the page")]
    if name in ("markdown", "svg", "latex") and "//" in cell:
        return [Finding("network", "is fetched by the page")]
    if name == "agent" or (name == "config" and re.search(r"agent", line, re.IGNORECASE)):
        return [Finding("destructive", "changes nbagent's own settings, which are the user's", refused=True)]
    if name == "pastebin" or (name == "load" and "//" in line):
        return [Finding("network", f"%{name} {line}".strip()[:60])]
    if name == "alias_magic":
        return [Finding("destructive", "gives a magic another name")]
    if name in ("notebook", "history", "hist") and (written := _written(name, line)):
        return [files.write(written)]
    if name in calls.READ_MAGICS:
        return []
    if name in ("perl", "ruby", "R", "julia", "node"):
        return [Finding("destructive", f"runs {name}, which is not graded")]
    return [Finding("overwrite", f"runs %{name} {line}".strip()[:60])]


def _written(name: str, line: str) -> str:
    """Give the file that a magic writes its cells to, or ""."""
    if name == "notebook":
        return line.strip().strip("\"'")
    found = re.search(r"(?:^|\s)-f\s*(\S+)", line)
    return found[1].strip("\"'") if found else ""


def _python_magic(name: str, line: str, cell: str, python: GradePython) -> list[Finding]:
    if name in ("capture", "python", "python3", "pypy"):
        line = ""
    statement = _OPTIONS.sub("", line).strip()
    findings = python(statement) if statement else []
    return findings + (python(cell) if cell else [])


def _script(line: str, cell: str, files: Files, python: GradePython) -> list[Finding]:
    program = next((word for word in line.split() if not word.startswith("-")), "").rpartition("/")[2]
    if program in ("bash", "sh", "zsh", "dash"):
        return grade_shell(cell, replace(files), python)
    if program.startswith("python"):
        return python(cell)
    return [Finding("destructive", f"runs {program or 'a script'}, which is not graded")]
