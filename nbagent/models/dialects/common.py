"""What the text dialects share: one user message for what was observed, and never an empty reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nbagent.protocols import Observation

#: Servers refuse assistant messages without content; this stands for a reply that had none.
EMPTY_REPLY = "(empty reply)"


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
