"""What the agent's code may write and read, the environment it gets, and what to say when it is refused.

Held by Landlock on Linux (see launch.py): a wall of the system, not a list of words. Elsewhere nothing
holds, and `Confinement.words` says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from nbagent.errors import KernelNotStarted
from nbagent.kernels.launch import landlock_abi
from nbagent.places import CREDENTIALS, WORK

#: Without these, subprocess, multiprocessing and shell commands break.
DEVICES = ("null", "zero", "full", "tty", "ptmx", "pts", "shm")
MOST_MEMORY = 0.8  #: of the machine's, that one process may take under `strict`
#: What programs print when they were refused something, and the paths that they name then.
_DENIED = re.compile(
    r"permission denied|not permitted|read-only file system|cross-device link|EACCES", re.IGNORECASE
)
_NOT_PERMITTED = re.compile(r"operation not permitted", re.IGNORECASE)
_NO_NETWORK = re.compile(r"network is unreachable|name resolution|could not resolve|EAI_", re.IGNORECASE)
_OTHER_PROCESS = re.compile(r"/proc/\d+/")
_NAMED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"|((?<![\w.])[\w.~-]*/[^\s:'\"]+)")
#: Variables that open the user's own Jupyter server.
OWN_SERVER = ("JUPYTER_TOKEN", "JPY_API_TOKEN", "JUPYTERHUB_API_TOKEN")
#: Caches worth keeping, by the variable that names them: what is there already is not downloaded again.
CACHES = {
    "HF_HOME": ".cache/huggingface",
    "TORCH_HOME": ".cache/torch",
    "SEABORN_DATA": ".cache/seaborn",
    "SCIKIT_LEARN_DATA": "scikit_learn_data",
    "NLTK_DATA": "nltk_data",
    "KERAS_HOME": ".keras",
    "STATSMODELS_DATA": "statsmodels_data",
    "TFDS_DATA_DIR": "tensorflow_datasets",
}


@dataclass(frozen=True)
class Confinement:
    """What holds the kernel's code. Paths are absolute and free of symbolic links."""

    active: bool
    words: str
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    cuts_network: bool = False
    memory: int = 0  #: bytes that one process may take; 0: no limit
    processors: int = 0  #: that the code may use; 0: all

    def plan(self) -> dict[str, Any]:
        """Give what launch.py is to do."""
        return {
            "confine": self.active,
            "writable": [str(path) for path in self.writable],
            "hidden": [str(path) for path in self.hidden],
            "cut_network": self.cuts_network,
            "memory": self.memory,
            "processors": self.processors,
        }

    def explain(self, refused: Sequence[str] | None, limit: str, printed: str = "", folder: Path = Path()) -> str:
        """Say what stopped code and how to allow it: refused paths, or the `limit` that it ran into.

        Where neither is known, it is looked for in what a program `printed` that worked in `folder`.
        """
        if told := next(filter(None, (self.explain_refusal(Path(path)) for path in refused or ())), ""):
            return told
        if any(_OTHER_PROCESS.match(path) for path in refused or ()):
            limit = "permission"
        if limit == "network" and self.cuts_network:
            return "blocked by confinement: the network is cut (confine=strict); allow with --confine workspace"
        if limit == "memory" and self.memory:
            return f"a process may take {self.memory / 1e9:.3g} GB of memory here; allow more with --max-memory GB"
        if limit == "permission" and self.active:
            return (
                "perhaps blocked by confinement, which keeps code from processes and devices that are not its own;"
                " allow with --confine off"
            )
        return self._explain_printed(printed, folder) if self.active and printed else ""

    def _explain_printed(self, printed: str, folder: Path) -> str:
        for line in reversed(printed.splitlines()):
            if self.cuts_network and _NO_NETWORK.search(line):
                return self.explain((), "network")
            if _DENIED.search(line):
                paths = [folder / "".join(named) for named in _NAMED.findall(line)]
                if told := self.explain([str(path) for path in paths], ""):
                    return told
                if _NOT_PERMITTED.search(line):
                    return self.explain((), "permission")
        return ""

    def explain_refusal(self, path: Path) -> str:
        """Say why the system refused `path`, or "" when it was not the confinement.

        The host is not confined: what it may not touch either was refused by ordinary permissions.
        """
        if not self.active or _OTHER_PROCESS.match(str(path)):
            return ""
        path = Path(os.path.realpath(path))
        if any(_within(path, place) for place in self.writable):
            return ""
        if any(_within(path, place) for place in self.hidden):
            return f"blocked by confinement: {path} holds credentials and is hidden from the agent's code"
        place = path if path.exists() else path.parent
        if os.access(place, os.W_OK):
            folder = path if path.is_dir() else path.parent
            late = path.exists() and any(_within(secret, path.parent) for secret in self.hidden)
            note = " (what was made there since can be read after `%agent reset`)" if late else ""
            return f"blocked by confinement: {path}; allow with --allow-write {folder}{note}"
        return ""


def surroundings(
    mode: Literal["workspace", "strict", "off"],
    folder: Path,
    scratch: Path,
    allow_write: Sequence[Path],
    hidden_environment: Sequence[str],
) -> tuple[Confinement, dict[str, str]]:
    """Give what holds code that is started now, and its environment. Raises `KernelNotStarted`."""
    home = Path.home()
    scratch.mkdir(parents=True, exist_ok=True)
    held = confinement_for(mode, folder, scratch, allow_write, home)
    return held, environment_for(held, os.environ, hidden_environment, scratch, home)


def limited(held: Confinement, mode: str, gigabytes: float) -> Confinement:
    """Add the limits of memory and processors, and the end of the network where the mode is strict.

    Raises:
        KernelNotStarted: strict is asked for and nothing holds here.
    """
    if mode != "strict":
        return replace(held, memory=int(gigabytes * 1e9)) if held.active else held
    if not held.active:
        raise KernelNotStarted(f"confine=strict cannot be had here ({held.words}); use --confine workspace")
    memory = int(gigabytes * 1e9 or _memory_of_the_machine() * MOST_MEMORY)
    processors = max(1, (os.cpu_count() or 1) - 1)
    words = (
        f"{held.words}; no network; {memory / 1e9:.3g} GB of memory and {processors} of the processors a process"
    )
    return replace(held, words=words, cuts_network=True, memory=memory, processors=processors)


def _memory_of_the_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def confinement_for(
    mode: Literal["workspace", "strict", "off"],
    folder: Path,
    scratch: Path,
    allow_write: Sequence[Path],
    home: Path,
) -> Confinement:
    """Decide what holds in `folder`; makes `nbagent-work` in it where it is too wide to be opened.

    Raises:
        KernelNotStarted: a folder of `allow_write` is not there.
    """
    if mode == "off":
        return Confinement(active=False, words="none: confine is off")
    if not landlock_abi():
        return Confinement(active=False, words="none: this system has no Landlock")
    home, folder = _real(home), _real(folder)
    secrets = [home / name for name in CREDENTIALS]
    secrets += [place for place in _runtime_folders(os.environ) if not _within(_real(place), folder)]
    hidden = tuple(dict.fromkeys(_real(place) for place in secrets if place.exists()))
    extra = []
    for place in allow_write:
        place = Path(place).expanduser()
        if not place.exists():
            raise KernelNotStarted(f"--allow-write {place}: there is no such folder; make it or leave it out")
        extra.append(_real(place))
    workspace, note = _workspace(folder, home, hidden)
    caches = [_real(home / name) for name in CACHES.values() if (home / name).is_dir()]
    opened = [path for path in hidden if any(_within(path, place) for place in extra)]
    state = "readable through --allow-write" if opened else "hidden"
    words = "writes only to " + (", ".join(map(str, [*workspace, *extra])) or "scratch") + note
    if hidden:
        words += f"; credential files {state}"
    devices = [Path("/dev") / name for name in DEVICES]
    return Confinement(
        active=True,
        words=words,
        writable=(*workspace, *extra, *caches, _real(scratch), *devices),
        hidden=tuple(path for path in hidden if path not in opened),
    )


def _runtime_folders(environment: Mapping[str, str]) -> list[Path]:
    """Give where Jupyter keeps what opens its servers and kernels, where it was told a place."""
    told = [environment.get("JUPYTER_RUNTIME_DIR", "")]
    for name, below in (("JUPYTER_DATA_DIR", "runtime"), ("XDG_DATA_HOME", "jupyter/runtime")):
        told.append(f"{environment[name]}/{below}" if environment.get(name) else "")
    return [Path(place) for place in told if place]


def _workspace(folder: Path, home: Path, hidden: Sequence[Path]) -> tuple[list[Path], str]:
    if not any(_within(path, folder) for path in (home, *hidden)):
        return [folder], ""
    work = folder / WORK
    try:
        work.mkdir(exist_ok=True)
    except OSError:
        return [], f" ({folder} is too wide to be opened)"
    return [work], f" ({folder} is too wide to be opened)"


def environment_for(
    confinement: Confinement, given: Mapping[str, str], hidden: Sequence[str], scratch: Path, home: Path
) -> dict[str, str]:
    """Give the kernel's environment: caches and temporary files in `scratch`, figures inline."""
    environment = {name: value for name, value in given.items() if name not in hidden}
    environment["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    # The user's own profile may start anything, nbagent included.
    environment.pop("PYTHONSTARTUP", None)
    if not confinement.active:
        environment["IPYTHONDIR"] = str(scratch / "ipython")
        return environment
    environment["IPYTHONDIR"] = _made(scratch, "ipython")
    environment["TMPDIR"] = _made(scratch, "tmp")
    environment["XDG_CACHE_HOME"] = _made(scratch, "cache")
    environment["NUMBA_CACHE_DIR"] = _made(scratch, "cache", "numba")
    environment["JUPYTER_RUNTIME_DIR"] = _made(scratch, "jupyter")  # of kernels that the code starts itself
    for name in OWN_SERVER:
        environment.pop(name, None)
    for name, cache in CACHES.items():
        if (home / cache).is_dir():
            environment.setdefault(name, str(home / cache))
        elif not cache.startswith(".cache/"):  # it would be made in the home folder
            environment.setdefault(name, str(scratch / "cache" / cache))
    _settle_matplotlib(environment, given, scratch, home)
    return environment


def _settle_matplotlib(environment: dict[str, str], given: Mapping[str, str], scratch: Path, home: Path) -> None:
    """Give it a folder of its own, with the fonts that it found before and the user's own style."""
    own = given.get("MPLCONFIGDIR", "")
    caches = Path(own or Path(given.get("XDG_CACHE_HOME") or home / ".cache") / "matplotlib")
    settings = Path(own or Path(given.get("XDG_CONFIG_HOME") or home / ".config") / "matplotlib")
    environment["MPLCONFIGDIR"] = _made(scratch, "cache", "matplotlib", files=caches.glob("fontlist-*.json"))
    if (settings / "matplotlibrc").is_file():
        environment.setdefault("MATPLOTLIBRC", str(settings / "matplotlibrc"))


def _made(scratch: Path, *parts: str, files: Iterable[Path] = ()) -> str:
    """Make a folder in scratch, with copies of `files`; give its path.

    Code that ran before may have put links in its place, which must not lead out: nothing is followed.
    """
    at = os.open(scratch, os.O_DIRECTORY)
    try:
        for part in parts:
            within = _folder_in(at, part)
            os.close(at)
            at = within
        for file in files:
            with suppress(FileExistsError):
                copy = os.open(file.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=at)
                with os.fdopen(copy, "wb") as target:
                    target.write(file.read_bytes())
    finally:
        os.close(at)
    return str(scratch.joinpath(*parts))


def _folder_in(folder: int, name: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:  # a link, or a file
        os.unlink(name, dir_fd=folder)
        return _folder_in(folder, name)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents
