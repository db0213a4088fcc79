"""Commands that only tell, unless their arguments have them write or set something."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from nbagent.tools.findings import Files, Finding, words

#: Flags with which a command writes to the file that follows.
WRITING_FLAGS = {
    "sort": ("-o", "--output"), "less": ("-o", "-O", "--log-file"), "tree": ("-o",),
    "find": ("-fprint", "-fprint0", "-fprintf", "-fls"),
}  # fmt: skip
#: What sed's program does beside editing: `w` writes to a file, `e` runs a command.
_SED_ACTS = re.compile(r"(?:^|[;}\d$])\s*(?:w\s|e\b)|/[gpI\d]*[we][gpI\d]*(?:$|[;}\s])")
_AWK_ACTS = re.compile(r"print[^|>]*[|>]")
#: What of nbagent's own command line changes nothing.
_TELLS = words("doctor sessions tools")


def what_else(command: str, rest: list[str], files: Files) -> list[Finding]:
    """Give what a command of those that tell does beside telling."""
    plain = [word for word in rest if not word.startswith("-")]
    if "awk" in command and _AWK_ACTS.search(" ".join(rest)):
        return [Finding("overwrite", f"{command} writes or runs what its program names")]
    if command == "uniq" and len(plain) > 1:
        return [files.write(plain[1])]
    if (command == "hostname" and plain) or (
        command == "date" and any(word.startswith(("-s", "--set")) for word in rest)
    ):
        return [Finding("destructive", f"{command} sets the system's")]
    return [files.write(path) for path in _written(rest, WRITING_FLAGS.get(command, ()))]


def sed_acts(program: str) -> list[Finding]:
    """Give what sed does that edits no file in place."""
    return [Finding("overwrite", "sed writes or runs what its program names")] if _SED_ACTS.search(program) else []


def nbagent_itself(plain: list[str]) -> Finding:
    """Grade a run of nbagent by what nbagent runs: its settings and the user's trust are the user's alone."""
    said = " ".join(["nbagent", *plain[:1]])
    if plain[:1] == ["trust"]:
        return Finding("destructive", f"{said} is for the user to say", refused=True)
    return Finding("read" if not plain or plain[0] in _TELLS else "destructive", f"runs {said}")


def _written(rest: list[str], flags: tuple[str, ...]) -> Iterator[str | None]:
    """Give what stands behind a flag, also where it is one word with it."""
    for word, following in itertools.zip_longest(rest, rest[1:]):
        for flag in flags:
            if word == flag:
                yield following
            elif word.startswith(f"{flag}=") or (len(flag) == 2 and word.startswith(flag)):
                yield word.removeprefix(flag).removeprefix("=")
