"""Settings as options: the same names on the magic's line and on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from nbagent.settings import Settings

#: A key on a line would be saved with the notebook or in the shell's history: it comes from the environment.
NOT_OPTIONS = ("api_key",)


@dataclass(frozen=True)
class Option:
    """One setting as an option."""

    name: str
    flag: str
    help: str
    choices: tuple[str, ...] = ()
    is_flag: bool = False
    many: bool = False


#: An option of the cell alone, and no setting.
AGAIN = Option("again", "--again", "Ask the model, although the cell was recorded.", is_flag=True)


def options() -> Iterator[Option]:
    """Give every setting that may be an option, in the order of `Settings`."""
    for name, field in Settings.model_fields.items():
        if name in NOT_OPTIONS:
            continue
        kind = field.annotation
        yield Option(
            name=name,
            flag="--" + name.replace("_", "-"),
            help=field.description or "",
            choices=tuple(get_args(kind)) if get_origin(kind) is Literal else (),
            is_flag=kind is bool,
            many=get_origin(kind) is tuple,
        )


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add every option to an argparse parser; what is not given is None."""
    for option in options():
        keywords: dict[str, Any] = {"help": option.help, "default": None, "dest": option.name}
        if option.is_flag:
            keywords["action"] = "store_true"
        elif option.many:
            keywords["action"] = "append"
        elif option.choices:
            keywords["choices"] = option.choices
        parser.add_argument(option.flag, **keywords)
