"""One JSON object a step: `{"thought": ..., "action": TOOL, "action_input": {...}}`.

The schema is sent as `response_format`, so that a server that enforces it cannot give anything else; what
other servers give is read liberally.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from nbagent.events import DialectName
from nbagent.models.assembler import CUT, made_up_id
from nbagent.models.dialects.common import close, object_of, one_user_message, said, usage_so_far
from nbagent.models.json_stream import JsonScanner, Piece, parse_liberally
from nbagent.protocols import Observation, ToolSpec
from nbagent.reply import Action, ActionPart, Attempt, Finish, Malformed, Raw, ReplyPart, Text

NOT_THE_OBJECT = (
    "Your reply was not the one JSON object that is expected, so nothing was run. Reply with only "
    '{"thought": "...", "action": "TOOL", "action_input": {...}}.'
)


class JsonDialect:
    """Actions are the members of one JSON object; the run ends by the action `final_answer`."""

    name: DialectName = "json"

    def parameters(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """Give the `response_format` that allows one object with any one of the tools."""
        definitions: dict[str, Any] = {}
        choices = []
        for tool in tools:
            arguments = dict(tool.schema)
            definitions |= arguments.pop("$defs", {})
            choices.append(
                {
                    "type": "object",
                    "properties": {
                        "thought": {"type": "string"},
                        "action": {"type": "string", "enum": [tool.name]},
                        "action_input": arguments,
                    },
                    "required": ["thought", "action", "action_input"],
                    "additionalProperties": False,
                }
            )
        schema: dict[str, Any] = {"anyOf": choices}
        if definitions:
            schema["$defs"] = definitions
        return {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "step", "strict": True, "schema": schema},
            }
        }

    async def read(self, parts: AsyncIterator[ReplyPart], opening: str = "") -> AsyncGenerator[ReplyPart, None]:
        """Show thought and code as they arrive; give the action, or `Malformed`, and `Raw` at the end.

        Where the model goes on behind its object, the reply is ended there: that would be cut anyway.
        """
        reader = _ObjectReader()
        native = False  # some servers turn the object into a tool call of their own
        finish: Finish | None = None
        try:
            async for part in parts:
                if isinstance(part, Text):
                    for shown in reader.feed(part.text):
                        yield shown
                    if reader.beyond:
                        break
                elif isinstance(part, Finish):
                    finish = part
                    break
                else:
                    native = isinstance(part, Action | Malformed) or (native and not isinstance(part, Attempt))
                    if isinstance(part, Attempt):
                        reader = _ObjectReader()
                    yield part
        finally:
            await close(parts)
        if not native:
            yield reader.close(finish or Finish("stop"))
        if finish is None:
            yield usage_so_far(len(reader.raw))
        if reader.raw:
            yield Raw(reader.raw)
        yield finish or Finish("stop")

    def assistant(self, thought: str, raw: str, actions: Sequence[Action]) -> dict[str, Any]:
        """Give the reply as it was, or the object that says the same."""
        if raw or not actions:
            return said(raw or thought)
        action = actions[0]
        same = {"thought": thought, "action": action.tool, "action_input": object_of(action.arguments)}
        return said(json.dumps(same, ensure_ascii=False))

    def observations(self, observations: Sequence[Observation]) -> list[dict[str, Any]]:
        """Give one user message."""
        return one_user_message(observations)


class _ObjectReader:
    """Finds the object in a reply that may also hold prose, fences or other objects."""

    def __init__(self) -> None:
        self._text = ""
        self._start = -1  #: where the object under way begins
        self._seen = 0  #: characters looked at
        self._scanner = JsonScanner()
        self._tool = ""
        self._object: dict[str, Any] | None = None

    @property
    def raw(self) -> str:
        """The object alone, or the whole reply where there is none."""
        if self._object is None:
            return self._text.strip()
        return self._text[self._start : self._start + self._scanner.consumed]

    @property
    def beyond(self) -> bool:
        """Whether the reply goes on behind the object with more than the end of a fence."""
        end = self._start + self._scanner.consumed
        return self._object is not None and bool(self._text[end:].strip("` \r\n"))

    def feed(self, text: str) -> list[ReplyPart]:
        self._text += text
        shown: list[ReplyPart] = []
        while self._object is None and self._seen < len(self._text):
            if self._start < 0:
                self._start = self._text.find("{", self._seen)
                if self._start < 0:
                    self._seen = len(self._text)
                    break
                self._seen, self._scanner, self._tool = self._start, JsonScanner(), ""
            new, self._seen = self._text[self._seen :], len(self._text)
            shown += [part for piece in self._scanner.feed(new) if (part := self._show(piece))]
            if self._scanner.state != "open":
                self._decide()
        return shown

    def close(self, finish: Finish) -> Action | Malformed:
        if self._object is None:
            open_object = self._start >= 0 and self._scanner.state == "open"
            return Malformed(CUT if finish.reason == "length" or open_object else NOT_THE_OBJECT)
        arguments = self._object.get("action_input", {})
        return Action(made_up_id(), self._object["action"], json.dumps(arguments, ensure_ascii=False))

    def _decide(self) -> None:
        """The object under way ended: it is the one, or the search goes on behind its brace."""
        if self._scanner.state == "complete":
            value = _object_in(self._text[self._start : self._start + self._scanner.consumed])
            if isinstance(value.get("action"), str) and value["action"]:
                self._object = value
                return
        self._seen = self._start + 1
        self._start = -1

    def _show(self, piece: Piece) -> ReplyPart | None:
        path, text = piece
        if path == ("thought",):
            return Text(text)
        if path == ("action",):
            self._tool += text
        elif path[:1] == ("action_input",) and (path[1:] == ("code",) or self._tool not in ("", "run_code")):
            return ActionPart(self._tool or "run_code", text)
        return None


def _object_in(text: str) -> dict[str, Any]:
    try:
        value = parse_liberally(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
