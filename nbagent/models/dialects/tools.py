"""Native tool calls: the assembler has done the reading, so parts pass as they are."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any

from nbagent.events import DialectName
from nbagent.models.dialects.common import close, object_of, said
from nbagent.protocols import Observation, ToolSpec
from nbagent.reply import Action, ReplyPart


class ToolsDialect:
    """Actions are the API's own tool calls; text without a call is the answer."""

    name: DialectName = "tools"

    def parameters(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """Give the `tools` field, in the order of `tools`."""
        if not tools:
            return {}
        return {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        # That nothing else is allowed is checked when it comes: no model reads it.
                        "parameters": {k: v for k, v in tool.schema.items() if k != "additionalProperties"},
                    },
                }
                for tool in tools
            ]
        }

    async def read(self, parts: AsyncIterator[ReplyPart], opening: str = "") -> AsyncGenerator[ReplyPart, None]:
        """Pass the parts on."""
        try:
            async for part in parts:
                yield part
        finally:
            await close(parts)

    def assistant(self, thought: str, raw: str, actions: Sequence[Action]) -> dict[str, Any]:
        """Give the message of a reply. Arguments that are no JSON object become `{}`: servers parse them."""
        if not actions:
            return said(thought)
        calls = [
            {
                "id": action.call_id,
                "type": "function",
                "function": {"name": action.tool, "arguments": _sendable(action.arguments)},
            }
            for action in actions
        ]
        return {"role": "assistant", "content": thought if thought.strip() else None, "tool_calls": calls}

    def observations(self, observations: Sequence[Observation]) -> list[dict[str, Any]]:
        """Give one tool message for each call, then the figures: only a user's message may hold any."""
        messages: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": observation.call_id, "content": observation.text}
            for observation in observations
        ]
        parts = [part for observation in observations for part in _figures(observation)]
        return [*messages, {"role": "user", "content": parts}] if parts else messages


def _figures(observation: Observation) -> Iterator[dict[str, Any]]:
    """Give the figures of an observation as parts of a message, each under the number that its text names."""
    for number, image in enumerate(observation.images, 1):
        for kind, data in image.items():
            yield {"type": "text", "text": f"Figure {number} of the {observation.tool} output above:"}
            yield {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def _sendable(arguments: str) -> str:
    value = object_of(arguments)
    return arguments if value else json.dumps(value)
