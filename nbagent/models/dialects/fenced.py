"""Prose, then one block fenced as python: the block is the action, a reply without one is the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from nbagent.events import DialectName
from nbagent.models.assembler import CUT, made_up_id
from nbagent.models.dialects.common import close, object_of, one_user_message, said, usage_so_far
from nbagent.models.dialects.fences import FenceReader
from nbagent.models.json_stream import parse_liberally
from nbagent.protocols import Observation, ToolSpec
from nbagent.reply import Action, Attempt, Finish, Malformed, Raw, ReplyPart, Text

UNDECIDED = (
    "A fence before your ```python block was never closed, so it is not clear what to run, and nothing was "
    "run. Send one ```python block, and close every other fence."
)


class FencedDialect:
    """Actions are python blocks (`run_code` only)."""

    name: DialectName = "fenced"

    def parameters(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """Give nothing: a stop word could be part of somebody's program."""
        return {}

    async def read(self, parts: AsyncIterator[ReplyPart], opening: str = "") -> AsyncGenerator[ReplyPart, None]:
        """Show prose and code as they arrive; give the action and the reply up to its end.

        Where the model goes on behind its block, the reply is ended there: that would be cut anyway.
        """
        reader = FenceReader(opening)
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
                    if isinstance(part, Attempt):
                        reader = FenceReader(opening)
                    yield part
        finally:
            await close(parts)
        for last in reader.finish():
            yield last
        for decided in _decide(reader, cut=finish is not None and finish.reason == "length"):
            yield decided
        if finish is None:
            yield usage_so_far(len(reader.raw))
        if reader.raw:
            yield Raw(reader.raw)
        yield finish or Finish("stop")

    def assistant(self, thought: str, raw: str, actions: Sequence[Action]) -> dict[str, Any]:
        """Give the reply as it was, or prose and block that say the same."""
        if raw or not actions:
            return said(raw or thought)
        given = object_of(actions[0].arguments)
        code = given.get("code") or f"# {actions[0].tool}({json.dumps(given, ensure_ascii=False)})"
        fence = "````" if "```" in code else "```"
        return said(f"{thought}\n{fence}python\n{code}\n{fence}".lstrip())

    def observations(self, observations: Sequence[Observation]) -> list[dict[str, Any]]:
        """Give one user message."""
        return one_user_message(observations)


def _decide(reader: FenceReader, *, cut: bool) -> list[ReplyPart]:
    if reader.undecided:
        return [Malformed(UNDECIDED)]
    if cut and reader.in_block:
        return [Malformed(CUT)]
    code = reader.code if reader.code is not None else _code_of_object(reader.raw)
    if code is None:
        return []
    return [Action(made_up_id(), "run_code", json.dumps({"code": code}, ensure_ascii=False))]


def _code_of_object(text: str) -> str | None:
    """Give the code of a reply that is the object of the json dialect instead: some models know no other way."""
    text = text.strip().removeprefix("```json").strip("` \n")
    try:
        step = parse_liberally(text) if text.startswith("{") and text.endswith("}") else None
    except (ValueError, RecursionError):
        return None
    given = step.get("action_input") if isinstance(step, dict) and step.get("action") == "run_code" else None
    code = given.get("code") if isinstance(given, dict) else None
    return code if isinstance(code, str) and code.strip() else None
