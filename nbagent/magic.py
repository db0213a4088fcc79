"""`%%agent` and `%agent`, registered without loading what they need: that comes with the first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand


class _Nowhere:
    """A shell without a session, for completion."""

    session = None

    def __init__(self, shell: Any) -> None:
        self.shell = shell


class _ShellSettings:
    """What `%config NbAgent` shows and sets, made when somebody looks: it loads pydantic."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._made: Any = None

    @property
    def made(self) -> Any:
        """The traits' owner."""
        if self._made is None:
            self._made = import_module("nbagent.magic_settings").settings_of(self._shell)
        return self._made

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # IPython asks each configurable object for the traits of its class
        return type(self.made)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made, name)


@magics_class
class AgentMagics(Magics):  # type: ignore[misc]  # IPython ships no types
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._agent: Any = None
        self._settings = _ShellSettings(shell)
        shell.configurables.append(self._settings)

    @no_var_expand
    @line_cell_magic
    def agent(self, line: str, cell: str | None = None) -> None:
        """Work on a task (`%%agent [options]`), or one of `%agent status, export, adopt, ..., help`."""
        if self._agent is None:
            self._agent = import_module("nbagent.cell").NotebookAgent(self.shell, lambda: self._settings.given)
        self._agent.agent(line, cell)

    def complete(self, _: Any, event: Any) -> list[str]:
        """Give what the word at the cursor of a line that begins with one of the magics may become."""
        place = self._agent or _Nowhere(self.shell)
        complete = import_module("nbagent.completion").complete
        offered: list[str] = complete(place, event.text_until_cursor, event.symbol)
        return offered

    def end(self) -> None:
        """End the sessions, if there are any, and take the settings away."""
        gone = (self, self._settings)
        self.shell.configurables[:] = [one for one in self.shell.configurables if not any(one is i for i in gone)]
        if self._agent is not None:
            self._agent.sessions.end_all()


def load(shell: Any) -> None:
    """Register the magics, and what Tab offers after them."""
    magics = AgentMagics(shell)
    shell.register_magics(magics)
    for command in ("%agent", "%%agent"):
        shell.set_hook("complete_command", magics.complete, str_key=command)


def unload(shell: Any) -> None:
    """End the session and take the magics away."""
    magics = shell.magics_manager.registry.get("AgentMagics")
    if magics is not None:
        magics.end()
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop("agent", None)
