"""Grades shell commands by their words. It catches what careless code does; it is no sandbox."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator

from nbagent.tools.findings import Files, Finding, normal, outside
from nbagent.tools.findings import words as word_set
from nbagent.tools.telling import nbagent_itself, sed_acts, what_else

READS = word_set(
    "[ arch awk basename cat cd cmp column comm cut date df diff dirname du echo egrep exit "
    "expr false fgrep file find fold free grep groups head hexdump hostname id jq less ll ls lscpu "
    "lsblk man md5sum more nl nproc nvidia-smi od paste popd printenv printf ps pushd pwd readlink "
    "realpath rev seq set sha1sum sha256sum sleep sort stat strings tac tail test tr tree true tty "
    "type uname uniq uptime wc whereis which who whoami yes"
)
NETWORK = word_set(
    "aria2c aws az curl dig ftp gcloud gh git-lfs gsutil http https huggingface-cli lynx nc ncat "
    "nmap nslookup ping rsync scp sftp ssh telnet traceroute wget"
)
INSTALLERS = word_set(
    "apk apt apt-get brew bun cargo choco conda dnf easy_install gem go mamba micromamba npm npx "
    "pacman pip pip3 pipx pnpm poetry snap uv uvx yarn yum"
)
DESTROYS = word_set(
    "chgrp chown crontab dd diskutil fdisk format halt kill killall launchctl mkfs mount parted "
    "pkill poweroff reboot shred shutdown srm systemctl truncate umount userdel wipefs"
)
SUPERUSER = frozenset({"sudo", "su", "doas", "pkexec", "runas"})
SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish"})
#: Their programs are not graded here.
FOREIGN = word_set("perl ruby node php lua Rscript julia osascript pwsh powershell awk gawk")
INTERPRETERS = SHELLS | FOREIGN - {"awk", "gawk"} | {"python", "python3", "iex", "invoke-expression"}
DOWNLOADS = word_set("curl wget http https aria2c fetch iwr irm invoke-webrequest invoke-restmethod")
#: What an unknown program is asked to do with what there is.
DESTRUCTIVE_WORDS = word_set("delete destroy drop erase format kill prune purge rm rmi remove terminate wipe")
WRAPPERS = word_set("builtin busybox command coproc env exec nice nohup setsid stdbuf time timeout")
KEYWORDS = word_set("if then else elif do while until ! { } fi done esac")

_SUBSTITUTION = re.compile(r"[$<>]\(([^()]*)\)|`([^`]*)`")
_DROPS = re.compile(
    r"\b(drop\s+(table|database|schema|view|index)|truncate\s+table|delete\s+from)(?![\w])", re.IGNORECASE
)
_CHANGES = re.compile(
    r"\b(insert\s+into|update\s+\w+\s+set|alter\s+table|replace\s+into|create\s+or\s+replace|export\s+database)\b"
    r"|\b(copy\s)[^;]*\sto\s+'",
    re.IGNORECASE,
)
_FETCHES_BY_SQL = re.compile(r"['\"](?:https?|s3|gs|gcs|az|hf)://", re.IGNORECASE)
_SEPARATORS = word_set("; & && || ( ) ;; | |&")

#: Grades Python code: given by the caller, as `python -c` leads back to it.
GradePython = Callable[[str], list[Finding]]


def grade_shell(text: str, files: Files, python: GradePython) -> list[Finding]:
    """Give what a shell text does."""
    findings: list[Finding] = []
    for inner in _SUBSTITUTION.finditer(text):
        findings += grade_shell(inner[1] or inner[2] or "", files, python)
        if _fetches(inner[1] or inner[2] or "") and re.match(
            r"\s*(?:(?:eval|source|\S*sh|\S*python3?)\b|\.\s)", text
        ):
            findings.append(Finding("destructive", "runs what it downloads", refused=True))
    for line in text.replace("\\\n", " ").splitlines():
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.wordchars += "@%+:,^!{}[]$`#\\"
            words = list(lexer)
        except ValueError:
            findings.append(Finding("destructive", f"a shell line that does not parse: {line.strip()[:60]}"))
            continue
        findings += _line(words, files, python)
    return findings


def grade_words(words: list[str], files: Files, python: GradePython) -> list[Finding]:
    """Give what one command, as a list of words, does."""
    words = [word for word in words if word]
    while words and (words[0] in KEYWORDS or re.match(r"\w+\+?=", words[0])):
        words = words[1:]
    if not words:
        return []
    words = ["python", *words[1:]] if words[0] == "{sys.executable}" else words
    command, rest = words[0].replace("\\", "/").rpartition("/")[2].removesuffix(".exe"), words[1:]
    end = rest.index("--") if "--" in rest else len(rest)  # after it, nothing is a flag
    flags = [word for word in rest[: end + 1] if word.startswith("-")]
    plain = [word for word in rest[:end] if not word.startswith("-")] + rest[end + 1 :]
    if command in SHELLS | {"source", "."} and any(_name(word) in files.downloaded for word in plain[:1]):
        return [Finding("destructive", "runs what it downloads", refused=True)]
    if words[0].startswith(("./", "/")) and _name(words[0]) in files.downloaded:
        return [Finding("destructive", "runs what it downloads", refused=True)]
    if command in SUPERUSER:
        return [Finding("destructive", f"{command} asks for the superuser's rights", refused=True)]
    if command in WRAPPERS:
        if "-S" in flags or "--split-string" in flags:
            return grade_shell(" ".join(plain), files, python)
        return grade_words(_unwrapped(words), files, python)
    if re.search(r"[$`{]", command):
        return [Finding("destructive", "runs a command that the code works out")]
    if command == "nbagent":
        return [nbagent_itself(plain)]
    if command in ("trap", "alias"):
        texts = plain[:1] if command == "trap" else [word.partition("=")[2] + " $@" for word in plain]
        return [finding for text in texts for finding in grade_shell(text, files, python)]
    if command in _SPECIAL:
        return _SPECIAL[command](plain, flags, files)
    if command in SHELLS or command in ("eval", "xargs", "parallel", "watch") or command.startswith("python"):
        return _runs_another(command, rest, files, python)
    if command in FOREIGN and any(flag in rest for flag in ("-e", "-E", "-r", "-Command", "-c", "-ne", "-pe")):
        return [Finding("destructive", f"runs {command}, which is not graded")]
    if command in READS:
        return _reads(command, rest, files, python)
    return [_known(command, rest)]


def grade_sql(text: str) -> list[Finding]:
    """Give what SQL does to data that is there."""
    if found := _DROPS.search(text):
        return [Finding("destructive", f"SQL {' '.join(found[0].split())}")]
    if found := _CHANGES.search(text):
        return [Finding("overwrite", f"SQL {' '.join(found[0].split())[:60]}")]
    if _FETCHES_BY_SQL.search(text):
        return [Finding("network", "SQL that reads from an address")]
    return []


def _line(words: list[str], files: Files, python: GradePython) -> list[Finding]:
    findings: list[Finding] = []
    fetched = False  # whether a download stands earlier in this pipe
    for command, piped in _commands(words):
        words_only, targets, program = _without_redirections(command)
        if program and words_only and _name(words_only[0]) in INTERPRETERS and _reads_program(words_only[1:]):
            words_only = [*words_only, program]
        findings += [files.write(target) for target in targets]
        findings += grade_words(words_only, files, python)
        words_only = _unwrapped(words_only)
        name = words_only[0].rpartition("/")[2] if words_only else ""
        if piped and fetched and name.lower() in INTERPRETERS and _reads_program(words_only[1:]):
            findings.append(Finding("destructive", "runs what it downloads", refused=True))
        elif piped and name in SHELLS and _reads_program(words_only[1:]):
            findings.append(Finding("destructive", "runs what is piped into a shell"))
        fetched = (piped and fetched) or name.lower() in DOWNLOADS
        if name.lower() in DOWNLOADS:
            files.downloaded.update(_saved_as(words_only, targets))
    return findings


def _unwrapped(words: list[str]) -> list[str]:
    """Give the command that others only start, e.g. `env`."""
    while words and _name(words[0]) in WRAPPERS:
        words = words[1:]
        while words and (words[0].startswith("-") or re.fullmatch(r"[\d.]+[smhd]?|\w+=.*", words[0])):
            words = words[1:]
    return words


def _commands(words: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Split at `;`, `&&`, `|`; say of each command whether it reads a pipe."""
    command: list[str] = []
    piped = False
    for word in words:
        if word in _SEPARATORS or set(word) <= set(";&|()"):
            if command:
                yield command, piped
            command, piped = [], word in ("|", "|&")
        else:
            command.append(word)
    if command:
        yield command, piped


def _name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _saved_as(words: list[str], targets: list[str]) -> set[str]:
    """Give the names of the files that a download writes."""
    given = [word for flag, word in itertools.pairwise(words) if flag in ("-o", "-O", "--output", "-OutFile")]
    addresses = [word.partition("?")[0] for word in words[1:] if "/" in word]
    return {_name(path) for path in (*targets, *given, *addresses)} - {""}


def _without_redirections(words: list[str]) -> tuple[list[str], list[str], str]:
    """Give the words, the files that are written, and the file that is read."""
    kept: list[str] = []
    targets: list[str] = []
    source = ""
    rest = iter(words)
    for word in rest:
        if word in (">", ">>", ">|", "&>", "&>>", ">&"):
            target = next(rest, "")
            if kept and re.fullmatch(r"[12]", kept[-1]):
                kept.pop()
            if not re.fullmatch(r"\d|-", target):
                targets.append(target)
        elif word == "<":
            source = next(rest, "")
        elif word in ("<<", "<<<"):
            next(rest, "")
        else:
            kept.append(word)
    return kept, targets, source


def _reads_program(arguments: list[str]) -> bool:
    """Say whether an interpreter called so takes its program from what is piped in."""
    return all(word in ("-", "-s", "-x", "-e", "-u", "--") for word in arguments) or "-s" in arguments


def _fetches(text: str) -> bool:
    return bool(re.match(r"\s*(?:\S*/)?(?:curl|wget|fetch|aria2c)\b", text))


def _runs_another(command: str, rest: list[str], files: Files, python: GradePython) -> list[Finding]:
    if command in ("eval", "watch"):
        return grade_shell(" ".join(rest), files, python)
    if command in ("xargs", "parallel"):
        inner = [word for word in rest if not word.startswith("-")]
        return grade_words([*inner, "$"], files, python) if inner else []
    for flag, code in itertools.pairwise(rest):
        if flag.startswith("-") and not flag.startswith("--") and flag.endswith("c"):
            return grade_shell(code, files, python) if command in SHELLS else python(code)
    if command.startswith("python"):
        if rest[:1] == ["-m"] and rest[1:2] in (["pip"], ["ensurepip"]):
            return [_known("pip", rest[2:])]
        if rest[:2] == ["-m", "nbagent"]:
            return [nbagent_itself(rest[2:])]
        if not rest or set(rest) <= {"--version", "-V", "-h", "--help"}:
            return []
    return [Finding("overwrite", f"runs {' '.join([command, *rest])[:60]}")] if rest else []


def _reads(command: str, rest: list[str], files: Files, python: GradePython) -> list[Finding]:
    if command == "cd":
        files.moved = True
    if command == "find":
        if "-delete" in rest:
            return [Finding("destructive", "find -delete")]
        for flag in ("-exec", "-execdir", "-ok", "-okdir"):
            if flag in rest:
                inner = [w for w in rest[rest.index(flag) + 1 :] if w not in ("+", ";")]
                return grade_words(["$" if w == "{}" else w for w in inner], files, python)
    if "awk" in command and re.search(r"system\s*\(|getline", " ".join(rest)):
        return [Finding("destructive", f"{command} runs commands")]
    return what_else(command, rest, files)


def _known(command: str, rest: list[str]) -> Finding:
    action = next((word for word in rest if not word.startswith("-")), "")
    said = f"{command} {action}".strip()
    if command == "uv" and action == "pip":
        return _known("pip", rest[rest.index("pip") + 1 :])
    if command in INSTALLERS:
        if (
            action in ("list", "show", "freeze", "check", "config", "info", "env", "version", "")
            or "--version" in rest
        ):
            return Finding("read", f"{said} only tells")
        # A yes for always is for these packages.
        return Finding("network", " ".join([command, *rest]) if action in ("install", "add") else said)
    if command in NETWORK:
        destroys = DESTRUCTIVE_WORDS & {word.strip("-").lower() for word in rest}
        return Finding("destructive" if destroys else "network", said)
    if command in DESTROYS or command.startswith("mkfs"):
        return Finding("destructive", said)
    if command in ("psql", "mysql", "sqlite3", "duckdb", "mongosh", "redis-cli"):
        return next(iter(grade_sql(" ".join(rest))), Finding("overwrite", f"{command} on a database"))
    if DESTRUCTIVE_WORDS & {word.strip("-").lower() for word in rest}:
        return Finding("destructive", f"runs {' '.join([command, *rest])[:60]}")
    return Finding("overwrite", f"runs {said}")


# -- commands that are graded by their paths ------------------------------------------------------------


def _rm(plain: list[str], flags: list[str], files: Files) -> list[Finding]:
    return [files.delete(path) for path in plain] or [Finding("read", "removes nothing")]


def _cp(plain: list[str], flags: list[str], files: Files) -> list[Finding]:
    *sources, target = plain or [""]
    if "-t" in flags and sources:  # the folder comes first
        sources, target = [*sources[1:], target], sources[0].rstrip("/") + "/"
    into = len(sources) > 1 or target.endswith("/") or normal(target) == ""
    names = [source.rstrip("/").rpartition("/")[2] for source in sources]
    return [files.write(f"{target}/{name}" if into else target) for name in names]


def _mv(plain: list[str], flags: list[str], files: Files) -> list[Finding]:
    taken = [files.delete(path) for path in plain[:-1]]
    return [*taken, *_cp(plain, flags, files)]


def _makes(plain: list[str], flags: list[str], files: Files) -> list[Finding]:
    return [files.make(path) for path in plain]


def _tee(plain: list[str], flags: list[str], files: Files) -> list[Finding]:
    return [files.write(path) for path in plain]


def _sed(plain: list[str], flags: list[str], files: Files) -> list[Finding]:
    if any(flag.startswith(("-i", "--in-place")) for flag in flags):
        return [Finding("overwrite", f"changes {path}") for path in plain[1:]] or [Finding("overwrite", "sed -i")]
    return sed_acts(plain[0] if plain else "")


def _chmod(plain: list[str], flags: list[str], files: Files) -> list[Finding]:
    far = any(outside(normal(path)) for path in plain[1:])
    return [Finding("destructive" if far or "-R" in flags else "overwrite", f"chmod {' '.join(plain)[:60]}")]


def _git(plain: list[str], flags: list[str], files: Files) -> list[Finding]:
    while "-C" in flags or "-c" in flags:  # their values stand before the action
        flags = [flag for flag in flags if flag not in ("-C", "-c")]
        plain = plain[1:]
    action, rest = (plain[0] if plain else ""), plain[1:]
    said = " ".join(["git", *plain[:1], *flags])[:60]
    if action in (
        "",
        "status",
        "log",
        "diff",
        "show",
        "blame",
        "describe",
        "rev-parse",
        "ls-files",
        "grep",
        "help",
    ):
        return []
    destroys = (
        (action == "reset" and "--hard" in flags)
        or (action == "push" and any(f.startswith(("--force", "-f", "--delete", "--mirror")) for f in flags))
        or (action == "branch" and "-D" in flags)
        or (
            action in ("checkout", "restore")
            and ("--" in flags or "." in rest or "-f" in flags or action == "restore")
        )
        or (action == "stash" and rest[:1] in (["drop"], ["clear"]))
        or action in ("clean", "filter-branch", "filter-repo", "gc", "prune", "reflog", "update-ref")
    )
    if destroys:
        return [Finding("destructive", said)]
    if action in ("clone", "fetch", "pull", "push", "ls-remote", "submodule", "lfs"):
        return [Finding("network", said)]
    reads = action in ("branch", "tag", "remote", "stash", "config") and not rest and "-d" not in flags
    return [] if reads else [Finding("write" if action in ("init", "add", "commit") else "overwrite", said)]


def _ruff(plain: list[str], flags: list[str], files: Files) -> list[Finding]:
    """It loads no plug-ins, so that it only reads where it is not told to mend. Other linters run code."""
    action = plain[0] if plain else ""
    mends = any(flag.startswith(("--fix", "--unsafe", "--add-noqa", "-o", "--output-file")) for flag in flags)
    if action in ("check", "version", "rule", "") and not mends:
        return []
    if action == "format" and any(flag in ("--check", "--diff") for flag in flags):
        return []
    return [Finding("overwrite", f"runs ruff {action}".strip())]


_SPECIAL: dict[str, Callable[[list[str], list[str], Files], list[Finding]]] = {
    "rm": _rm, "rmdir": _rm, "unlink": _rm, "del": _rm, "erase": _rm,
    "cp": _cp, "ln": _cp, "install": _cp, "mv": _mv,
    "ruff": _ruff, "pyflakes": lambda plain, flags, files: [],
    "mkdir": _makes, "touch": _makes, "tee": _tee, "sed": _sed, "chmod": _chmod, "git": _git,
}  # fmt: skip
