"""What nbagent does for small models, each part of it to be taken away: how an ablation is measured.

    python -m tests.benchmarks.accuracy TASKS.jsonl TABLES_FOLDER --without hints

Every lever is taken away where it is used, so that all else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from nbagent.answers import Answers
from nbagent.negotiation import Negotiation


def _names_only(paths: Any, folder: Path) -> list[str]:
    return [f"- {path.name!r}" for path in paths]


def _without_example(name: str, text: Callable[[str], str]) -> str:
    return text(name).partition("\nExample\n")[0].strip()


def _plain_text() -> Any:
    from nbagent import prompt

    kept = prompt.text_named
    return lambda name: _without_example(name, kept)


#: What takes each lever away, as `patch` takes it.
LEVERS: dict[str, Callable[[], Any]] = {
    "digest": lambda: patch("nbagent.workplace.describe", _names_only),
    "example": lambda: patch("nbagent.prompt.text_named", _plain_text()),
    "opening": lambda: patch("nbagent.models.choose.EMBEDDED_OPENING", ""),
    "hints": lambda: patch("nbagent.tools.code.hint", lambda *_: ""),
    "closing words": lambda: patch("nbagent.session.Closing", lambda *_: lambda *_: ""),
    "doubts": lambda: patch.object(Answers, "doubt", lambda *_, **__: None),
    "completed form": lambda: patch.object(Answers, "completed", lambda _, answer: answer),
    "chance": lambda: patch.object(Negotiation, "vary", lambda _: None),
}


@contextmanager
def without(name: str) -> Iterator[None]:
    """Take a lever away; "" takes none."""
    if not name:
        yield
        return
    with LEVERS[name]():
        yield
