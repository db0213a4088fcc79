"""nbagent: an agent that works in a Jupyter kernel the way a careful colleague would.

Importing this package loads nothing heavy: public names come through `__getattr__`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbagent.api import Agent, Result
    from nbagent.errors import NbAgentError

__version__ = "0.1.0"

_PUBLIC = {"Agent": "nbagent.api", "NbAgentError": "nbagent.errors", "Result": "nbagent.api"}

__all__ = ["Agent", "NbAgentError", "Result", "load_ipython_extension", "unload_ipython_extension"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'nbagent' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """Register `%%agent` and `%agent` (`%load_ext nbagent`)."""
    import_module("nbagent.magic").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """End the session of this process and take the magics away (`%unload_ext nbagent`)."""
    import_module("nbagent.magic").unload(shell)
