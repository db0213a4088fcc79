"""What the text dialects share: ending a reply early, one user message for observations, no empty reply."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from nbagent.events import Usage
from nbagent.models.assembler import CHARACTERS_PER_TOKEN
from nbagent.protocols import Observation
from nbagent.reply import ReplyPart, UsageReport

#: Servers refuse assistant messages without content; this stands for a reply that had none.
EMPTY_REPLY = "(empty reply)"


async def close(parts: AsyncIterator[ReplyPart]) -> None:
    """Let go of the wire: the rest of the reply is not wanted."""
    if isinstance(parts, AsyncGenerator):
        await parts.aclose()


def usage_so_far(characters: int) -> UsageReport:
    """Estimate what a reply cost that was ended before the server could say."""
    return UsageReport(Usage(completion_tokens=-(-characters // CHARACTERS_PER_TOKEN), estimated=True))


def one_user_message(observations: Sequence[Observation]) -> list[dict[str, Any]]:
    """Join what was observed into one user message."""
    texts = [observation.text for observation in observations]
    return [{"role": "user", "content": "\n\n".join(texts)}] if texts else []


def said(text: str) -> dict[str, Any]:
    """Give an assistant message that is never empty."""
    return {"role": "assistant", "content": text if text.strip() else EMPTY_REPLY}


def object_of(arguments: str) -> dict[str, Any]:
    """Give the arguments as an object; an empty one where they are none."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
