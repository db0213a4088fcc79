"""A checklist as text that people edit and models read, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nbagent.events import PlanItem
from nbagent.models.json_stream import parse_liberally

MOST_ITEMS = 12
LONGEST_ITEM = 240  #: characters

_LINE = re.compile(
    r"\s*(?:[-*+•]|\d{1,2}[.):])?\s*(?:\[(?P<tick>[ xX✓])\]|(?P<box>[☐☑]))?\s*(?:\d{1,2}[.)]\s+)?(?P<text>.*?)\s*"
)


def written(items: Sequence[PlanItem]) -> str:
    """Write items as `1. [ ] text`, a line each."""
    return "\n".join(f"{at}. [{'x' if item.done else ' '}] {item.text}" for at, item in enumerate(items, 1))


def shown(items: Sequence[PlanItem]) -> str:
    """Write items as people see them."""
    return "\n".join(f"{'☑' if item.done else '☐'} {item.text}" for item in items)


def read(text: str) -> list[PlanItem]:
    """Read a checklist that somebody has edited; lines without words are nothing."""
    items = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None or not any(letter.isalnum() for letter in found["text"]):
            continue
        done = (found["tick"] or " ") != " " or found["box"] == "☑"
        items.append(PlanItem(text=short(found["text"]), done=done))
    return items[:MOST_ITEMS]


def proposed(reply: str) -> list[PlanItem]:
    """Read the plan out of a model's reply: its object's `steps`, or the list that it wrote instead."""
    value = object_in(reply)
    if isinstance(steps := value.get("steps"), list):
        return of_texts(steps)
    lines = [line for line in reply.splitlines() if re.match(r"\s*(?:[-*+•]|\d{1,2}[.):])\s*\S", line)]
    return read("\n".join(lines))


def of_texts(texts: Sequence[object]) -> list[PlanItem]:
    """Make items that are not done yet."""
    lines = [text if isinstance(text, str) else "" for text in texts]
    return [item.model_copy(update={"done": False}) for line in lines for item in read(" ".join(line.split()))][
        :MOST_ITEMS
    ]


def object_in(reply: str) -> dict[str, object]:
    """Give the JSON object of a reply; an empty one where there is none."""
    start, end = reply.find("{"), reply.rfind("}")
    try:
        value = parse_liberally(reply[start : end + 1]) if 0 <= start < end else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def short(text: str) -> str:
    """Cut a line to what a list can hold."""
    return text if len(text) <= LONGEST_ITEM else text[: LONGEST_ITEM - 1] + "…"
