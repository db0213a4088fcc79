"""`%config NbAgent`, and `c.NbAgent` in IPython's own files: settings of this shell, over the environment's.

Its class has every setting as a trait, so that IPython lists them with their values, completes and sets them.
"""

from __future__ import annotations

import os
from typing import Any

from traitlets import TraitType
from traitlets.config import Config, Configurable

from nbagent.errors import SettingsError
from nbagent.options import NOT_OPTIONS, options
from nbagent.project import resolve_here
from nbagent.settings import Settings, resolve


class Setting(TraitType):  # type: ignore[misc]  # traitlets is not followed
    """One setting. Read, it is what counts now; None takes back what was set here."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Give the value. Raises `SettingsError`: it does not fit."""
        resolve({}, {}, {str(self.name): value})
        return value

    def set(self, obj: Any, value: Any) -> None:
        """Set it for this shell."""
        obj.given[self.name] = self.validate(obj, value)

    def get(self, obj: Any, cls: Any = None) -> Any:
        """Give what holds: set here, or by the environment or the project, or by default."""
        try:
            return getattr(resolve_here({}, os.environ, obj.given).settings, str(self.name))
        except SettingsError:  # another one of the environment's does not fit: `%agent config` says which
            return obj.given.get(self.name, Settings.model_fields[str(self.name)].default)


class ShellSettings(Configurable):  # type: ignore[misc]
    """Holds what was given in one shell."""

    def __init__(self, shell: Any) -> None:
        self.given: dict[str, Any] = {}
        super().__init__()
        self.update_config(shell.config)

    def update_config(self, config: Config) -> None:
        """Take what a configuration says of NbAgent. Raises `SettingsError`."""
        for name, value in config.get("NbAgent", {}).items():
            if name in NOT_OPTIONS:
                raise SettingsError(f"{name} would be saved with the notebook: set NBAGENT_{name.upper()} instead")
            resolve({}, {}, {name: value})  # knows names that do not exist
            setattr(self, name, value)


def settings_of(shell: Any) -> Any:
    """Make the settings of a shell."""
    traits = {
        option.name: Setting(
            help=option.help + (f" ({' | '.join(option.choices)})" if len(option.choices) > 1 else "")
        ).tag(config=True)
        for option in options()
    }
    return type("NbAgent", (ShellSettings,), traits)(shell)
