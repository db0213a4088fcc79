"""Where a session works: its folder, its kernel, and what the tools of a run may use."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbagent.data_files import describe, named_files
from nbagent.errors import NoRoom, SettingsError, TransferError
from nbagent.event_base import ENVELOPE
from nbagent.events import Event, KernelStarted, UsersCells
from nbagent.host import IPythonHost
from nbagent.kernels.branch import BranchKernel
from nbagent.kernels.checkpoints import CheckpointKernel
from nbagent.kernels.live import LiveKernel
from nbagent.kernels.process import ProcessKernel
from nbagent.models.choose import Choice
from nbagent.parcels import SHARED_MEMORY
from nbagent.prompt import HostContext
from nbagent.protocols import Host, Kept, Kernel, Variable
from nbagent.redaction import Redactor
from nbagent.settings import ENVIRONMENT_PREFIX, KERNEL_SETTINGS, Resolved, Settings
from nbagent.tools.breaker import BreakerLimits
from nbagent.tools.call import Rules
from nbagent.tools.gateway import Gateway, LastWords
from nbagent.tools.permission import Permission
from nbagent.tools.registry import Offered, Registry

#: Short, because it is in every observation twice; nobody can try many.
NONCE_CHARACTERS = 4
#: Tokens of a window that has no room for all tools.
SMALL_WINDOW = 4096
#: Faults in a row after which a tool rests, where the settings do not say.
FAULTS, FAULTS_IF_STRICT = 3, 2
#: Of the user's, that are kept for an export: more, and longer ones, are left out.
MOST_CELLS, LONGEST_CELL = 1000, 20_000
HIDDEN_FROM_KERNEL = (f"{ENVIRONMENT_PREFIX}API_KEY",)


@dataclass(slots=True)
class RunContext:
    """What the tools of one run may use: implements `protocols.ToolContext`."""

    kernel: Kernel
    host: Host | None
    folder: Path
    allow_write: tuple[Path, ...]
    session_folder: Path
    redactor: Redactor
    nonce: str
    cell_timeout: float
    observation_characters: int
    image_pixels: int
    emit: Callable[[Event], None]
    things: dict[type[Any], Any]  #: what tools keep for the session, by its class

    def kept(self, kind: type[Kept]) -> Kept:
        """Give the session's one `kind()`."""
        if kind not in self.things:
            self.things[kind] = kind()
        thing: Kept = self.things[kind]
        return thing


def taken_over(now: Resolved, given: Resolved | None) -> Resolved:
    """Give a run's settings: those that were given, but for what the kernel was built from.

    Raises:
        SettingsError: an option of the run would need another kernel.
    """
    if given is None:
        return now
    kept = {name: getattr(now.settings, name) for name in KERNEL_SETTINGS}
    for name, value in kept.items():
        if given.origins.get(name) == "option" and getattr(given.settings, name) != value:
            raise SettingsError(f"{name} shapes the kernel, which runs already: `%agent reset` first")
    return replace(given, settings=given.settings.model_copy(update=kept))


def new_nonce() -> str:
    """Make the mark that fences data in a session's observations, which no data can know."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(NONCE_CHARACTERS))


async def surroundings(
    task: str, data: Sequence[Path], folder: Path, host: Host | None, cells: int
) -> HostContext:
    """Look at what a task starts from: its files, and the user's variables, last `cells` cells and last error."""
    paths = list(data) or named_files(task, folder)
    files = await asyncio.to_thread(describe, paths, folder)
    if host is None:
        return HostContext(files=files)
    variables, recent, error = await host.call(
        lambda: (host.variables(), host.recent_cells(cells), host.last_error())
    )
    return HostContext(variables, recent, error, files)


def make_kernel(settings: Settings, folder: Path, session_folder: Path, host: Host | None) -> Kernel:
    """Make the session's kernel, which works in `folder`; it is not started yet.

    Raises:
        SettingsError: there is no kernel of the user's to work in.
    """
    scratch = session_folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {
        "folder": folder,
        "python": settings.python,
        "confine": settings.confine,
        "max_memory": settings.max_memory,
        "scratch": scratch,
        "allow_write": writable(settings),
        "hidden_environment": HIDDEN_FROM_KERNEL,
        "startup_timeout": settings.startup_timeout,
        "output_characters": settings.output_characters,
    }
    if settings.kernel == "live":
        if host is None:
            raise SettingsError("kernel=live works in a notebook or IPython only: leave it out here")
        programs = ProcessKernel(**options)
        return LiveKernel(host.shell, host.submit, programs, output_characters=settings.output_characters)
    if settings.kernel == "branch":
        if host is None:
            raise SettingsError("kernel=branch works in a notebook or IPython only: leave it out here")
        if sys.platform != "linux":
            raise SettingsError("kernel=branch needs Linux: leave it out here, variables are copied then")
        branch = BranchKernel(
            host=host, kept=settings.checkpoints_kept, memory_share=settings.checkpoint_memory, **options
        )
        if settings.checkpoints == "off":
            branch.checkpoints = None
        return branch
    if settings.checkpoints == "on" and sys.platform == "linux":
        return CheckpointKernel(kept=settings.checkpoints_kept, memory_share=settings.checkpoint_memory, **options)
    return ProcessKernel(**options)


def kernel_started(kernel: Kernel, settings: Settings, resumed: bool) -> KernelStarted:
    """Tell of a kernel that was started."""
    return KernelStarted(
        generation=kernel.generation,
        kind=settings.kernel,
        python=settings.python or platform.python_version(),
        confinement=kernel.confinement,
        resumed=resumed,
    )


class UsersHistory:
    """Which cells of the user's are in the log already: an export begins with those that it needs."""

    def __init__(self) -> None:
        self._anew, self._told = True, 0

    def begin_anew(self) -> None:
        """Take note that the agent's code works with a new copy of the user's variables, or for the first time."""
        self._anew, self._told = True, 0

    async def news(self, host: Host, kind: str) -> list[UsersCells]:
        """Give what the log does not have yet, if anything; a branch has only what was there when it was made."""
        if kind == "branch" and not self._anew:
            return []
        cells, variables = await host.call(lambda: (host.recent_cells(MOST_CELLS), host.variables()))
        new = [cell for cell in cells[self._told :] if len(cell) <= LONGEST_CELL]
        names = {one.name: f"{one.type} {one.summary}".strip() for one in variables[:MOST_CELLS]}
        event = UsersCells(cells=new, names=names, anew=self._anew)
        self._anew, self._told = False, len(cells)
        return [event]


class ChangedSince(IPythonHost):
    """The user's process, of whose variables only those are shown that a branch does not have as they are."""

    def __init__(self, host: Host, branch: BranchKernel) -> None:
        super().__init__(host.shell, host.submit)
        self._branch = branch

    def variables(self) -> list[Variable]:
        """List what the user has changed since the branch was made."""
        return [one for one in super().variables() if self._branch.differs(one.name)]


class AllThere(IPythonHost):
    """The user's process, of whose variables none has to be copied: the code runs in it."""

    def variables(self) -> list[Variable]:
        """List none."""
        return []


def copies_from(host: Host | None, kernel: Kernel) -> Host | None:
    """Give whose variables are copied into the kernel when code needs them, but for those that it has."""
    if isinstance(kernel, LiveKernel) and host is not None:
        return AllThere(host.shell, host.submit)
    if isinstance(kernel, BranchKernel) and host is not None:
        return ChangedSince(host, kernel)
    return host


def make_gateway(
    registry: Registry,
    settings: Settings,
    choice: Choice,
    with_host: bool,
    closing: LastWords,
    kept: dict[type[Any], Any],
) -> Gateway:
    """Make the gateway of one run, with the tools that its model is told of.

    By themselves they are few in the text dialects, and where the words for all would fill half of the window.
    """
    few = choice.dialect != "tools" or choice.window.tokens <= SMALL_WINDOW
    few = few if settings.toolset == "auto" else settings.toolset == "small"
    permission = Permission(settings.allow_tools, settings.deny_tools)
    faults = settings.breaker_faults or (FAULTS_IF_STRICT if settings.confine == "strict" else FAULTS)
    rules = Rules(
        approve=settings.approve,
        permission=permission,
        withheld=registry.withheld(permission),
        approval_timeout=settings.approval_timeout,
        breaker=BreakerLimits(faults, settings.breaker_cooldown),
    )
    tools = registry.offered(
        choice.dialect,
        small=few,
        with_host=with_host,
        permission=permission,
        nothing_to_bring=settings.kernel == "live",
    )
    how = "toolset=full offers it" if few and choice.dialect != "fenced" else f"dialect {choice.dialect}"
    kept[Offered] = Offered(frozenset(tool.name for tool in tools), how)
    return Gateway(tools, rules=rules, closing=closing)


def new_notes(resolved: Resolved, choice: Choice, said: set[str]) -> list[str]:
    """Give what the user should know before a run with these settings, but for what was `said` before."""
    settings = resolved.settings
    notes = [*([choice.note] if choice.note else []), *resolved.notes]
    if settings.approve == "off":
        notes.append("Nothing asks for your yes (approve=off): code runs as the model writes it.")
    new = [note for note in notes if note not in said]
    said.update(new)
    return new


def writable(settings: Settings) -> tuple[Path, ...]:
    """Give the further folders that the agent's code and tools may write to."""
    return tuple(Path(named).expanduser() for named in settings.allow_write)


async def hand_over(name: str, kernel: Kernel, host: Host, session_folder: Path) -> str:
    """Copy a variable of the agent's kernel into the user's, through memory where there is room; give its summary.

    Raises:
        TransferError: it does not exist, or cannot travel.
    """
    if not name.isidentifier():
        raise TransferError(f"{name!r} is not a variable's name")
    parcel = f"nbagent-{secrets.token_hex(8)}"
    places = [session_folder / parcel]
    if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK):
        places.insert(0, SHARED_MEMORY / parcel)
    for file in places:
        try:
            summary = await kernel.adopt(name, file)
            await host.call(lambda file=file: host.load(name, file))  # type: ignore[misc]
        except NoRoom:
            if file == places[-1]:
                raise
        else:
            return summary
        finally:
            file.unlink(missing_ok=True)  # what was mapped stays as long as it is used
    raise AssertionError("the last place raises")


def working_folder(settings: Settings) -> Path:
    """Give the folder that the kernel works in. Raises `SettingsError` where it is not there."""
    try:
        folder = Path(settings.folder or ".").expanduser().resolve()
    except FileNotFoundError:
        raise SettingsError("the current folder is gone: go to another, or name one with --folder") from None
    if not folder.is_dir():
        raise SettingsError(f"folder {folder} is not there: create it, or name another with --folder")
    return folder


def redactor_for(environment: Mapping[str, str], settings: Settings) -> Redactor:
    """Give what masks the secrets of an environment, the model's key and what the user's own patterns match."""
    key = settings.api_key.get_secret_value()
    return Redactor.from_environment(
        {**environment, "NBAGENT_API_KEY": key} if key else environment, settings.secret_patterns
    )


def masked(event: Event, redactor: Redactor) -> Event:
    """Give an event with every secret in it masked."""
    values = event.model_dump(exclude=ENVELOPE)
    shown = redactor.value(values)
    return event if shown == values else type(event).model_validate({**event.model_dump(), **shown})


def retrieved(starting: asyncio.Task[None]) -> None:
    """Look at a failure that nobody waited for: whoever needs the kernel next is told of it."""
    if not starting.cancelled():
        starting.exception()
