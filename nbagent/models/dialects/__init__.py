"""How a model expresses actions: native tool calls, one JSON object a step, or one marked code block."""

from __future__ import annotations

from nbagent.events import DialectName
from nbagent.models.dialects.fenced import FencedDialect
from nbagent.models.dialects.json_object import JsonDialect
from nbagent.models.dialects.tools import ToolsDialect
from nbagent.protocols import Dialect


def dialect_named(name: DialectName) -> Dialect:
    """Give the dialect of that name."""
    dialects: dict[str, type[ToolsDialect] | type[JsonDialect] | type[FencedDialect]] = {
        "tools": ToolsDialect,
        "json": JsonDialect,
        "fenced": FencedDialect,
    }
    return dialects[name]()


__all__ = ["FencedDialect", "JsonDialect", "ToolsDialect", "dialect_named"]
