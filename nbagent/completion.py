"""What Tab offers after `%agent` and `%%agent`: commands, options with their values, variables, sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from nbagent.magic_commands import COMMANDS
from nbagent.models import weights
from nbagent.options import AGAIN, options
from nbagent.session import Session
from nbagent.stores.files import FileStore, default_home

MOST_SESSIONS = 20
EXPORT_FLAGS = ("--clean", "--distill", "--verify", "--force")
UNDO_FLAGS = ("--rerun", "--keep-files")


class Place(Protocol):
    """Where completion is asked for."""

    @property
    def session(self) -> Session | None:
        """The current session."""
        ...

    shell: Any


def complete(place: Place, before: str, symbol: str) -> list[str]:
    """Give what `symbol`, the end of the line up to the cursor, may become.

    The shell cuts words at more than spaces, so that the symbol may be the end of the word only.
    """
    words = before.split()
    typed = "" if before[-1:].isspace() else words.pop()
    given = words[1:]
    offered = _cell(place, given) if before.lstrip().startswith("%%") else _line(place, given)
    cut = len(typed) - len(symbol)
    return [word[cut:] for word in offered if word.startswith(typed)]


def _cell(place: Place, given: Sequence[str]) -> Iterable[str]:
    known = {option.flag: option for option in options()}
    last = given[-1] if given else ""
    if last in known and not known[last].is_flag:
        values = _VALUES.get(last)
        return values(place) if values is not None else known[last].choices
    taken = {word for word in given if word in known and not known[word].many}
    return [AGAIN.flag, *(flag for flag in known if flag not in taken)]


def _line(place: Place, given: Sequence[str]) -> Iterable[str]:
    if not given:
        return COMMANDS
    values = _ARGUMENTS.get(given[0])
    return [word for word in values(place) if word not in given] if values is not None else []


def _models(_: Place) -> list[str]:
    configured = [os.environ["NBAGENT_MODEL"]] if os.environ.get("NBAGENT_MODEL") else []
    names = [f"local:{entry.name}" for entry in weights.list_weights()]
    return list(dict.fromkeys([*configured, *names]))


def _sessions(_: Place) -> list[str]:
    return [one.id for one in FileStore(default_home(os.environ)).summaries()[:MOST_SESSIONS]]


def _of_the_user(place: Place) -> list[str]:
    hidden = place.shell.user_ns_hidden
    return [name for name in place.shell.user_ns if not name.startswith("_") and name not in hidden]


def _of_the_agent(place: Place) -> list[str]:
    return [one.name for one in place.session.kernel.known_variables()] if place.session is not None else []


_VALUES: dict[str, Callable[[Place], Iterable[str]]] = {"--model": _models, "--session": _sessions}
_ARGUMENTS: dict[str, Callable[[Place], Iterable[str]]] = {
    "adopt": _of_the_agent,
    "bring": _of_the_user,
    "resume": _sessions,
    "export": lambda _: EXPORT_FLAGS,
    "undo": lambda _: UNDO_FLAGS,
    "model": lambda _: ["pull"],
    "help": lambda _: ["options"],
}
