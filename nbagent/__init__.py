"""nbagent: an agent that works in a Jupyter kernel the way a careful colleague would.

Importing this package loads nothing heavy: public names come through `__getattr__`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbagent.api import Agent, Result
    from nbagent.errors import NbAgentError
    from nbagent.protocols import Approval, ToolContext, ToolResult
    from nbagent.tools.registry import register as tool

__version__ = "0.1.0"

#: Where each public name is, as `module:name`.
_PUBLIC = {
    "Agent": "nbagent.api:Agent",
    "Approval": "nbagent.protocols:Approval",
    "NbAgentError": "nbagent.errors:NbAgentError",
    "Result": "nbagent.api:Result",
    "ToolContext": "nbagent.protocols:ToolContext",
    "ToolResult": "nbagent.protocols:ToolResult",
    "tool": "nbagent.tools.registry:register",
}

__all__ = [
    "Agent",
    "Approval",
    "NbAgentError",
    "Result",
    "ToolContext",
    "ToolResult",
    "load_ipython_extension",
    "tool",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        module, _, attribute = _PUBLIC[name].partition(":")
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'nbagent' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """Register `%%agent` and `%agent` (`%load_ext nbagent`)."""
    import_module("nbagent.magic").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """End the session of this process and take the magics away (`%unload_ext nbagent`)."""
    import_module("nbagent.magic").unload(shell)
