"""What nbagent does for small models, each part of it to be taken away: how an ablation is measured.

    python -m tests.benchmarks.accuracy TASKS.jsonl TABLES_FOLDER --without hints

Every lever is taken away where it is used, so that all else stays as it is. Some act in a few runs only: where
one has not acted, `--like ANSWERS` takes the row over. That saves time and is an approximation: the same question
was answered differently from run to run at temperature 0, so a difference of a question or two means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from nbagent.answers import Answers
from nbagent.closing import Closing
from nbagent.compaction import Compactor
from nbagent.negotiation import Negotiation
from nbagent.tools import code, hints
from nbagent.tools.doubtful import Doubts


def _names_only(paths: Any, folder: Path) -> list[str]:
    return [f"- {path.name!r}" for path in paths]


def _without_example(name: str, text: Callable[[str], str]) -> str:
    return text(name).partition("\nExample\n")[0].strip()


def _plain_text() -> Any:
    from nbagent import prompt

    kept = prompt.text_named
    return lambda name: _without_example(name, kept)


def _both(*patches: Any) -> ExitStack:
    stack = ExitStack()
    for one in patches:
        stack.enter_context(one)
    return stack


#: What takes each lever away, as `patch` takes it.
LEVERS: dict[str, Callable[[], Any]] = {
    "digest": lambda: patch("nbagent.workplace.describe", _names_only),
    "example": lambda: patch("nbagent.prompt.text_named", _plain_text()),
    "opening": lambda: patch("nbagent.models.choose.EMBEDDED_OPENING", ""),
    "hints": lambda: _both(
        patch.object(code, "hint", lambda *_: ""), patch("nbagent.closing.advice", lambda *_: "")
    ),
    "imports": lambda: _both(
        patch("nbagent.tools.hints.import_for", lambda _: ""), patch("nbagent.closing.import_for", lambda _: "")
    ),
    "doubtful results": lambda: patch.object(Doubts, "look", lambda *_: ""),
    "the rest of the form": lambda: patch.object(Closing, "_not_as_asked", lambda *_: ""),
    "closing words": lambda: patch("nbagent.session.Closing", lambda *_: lambda *_: ""),
    "doubts": lambda: patch.object(Answers, "doubt", lambda *_, **__: None),
    "completed form": lambda: patch.object(Answers, "completed", lambda _, answer: answer),
    "chance": lambda: patch.object(Negotiation, "vary", lambda _: None),
    "clean slate": lambda: patch.object(Compactor, "copied", lambda _: None),
}
#: The levers that act in some runs only, by what tells that one has acted.
SOMETIMES: dict[str, tuple[object, str, Callable[..., bool]]] = {
    "hints": (code, "hint", lambda given, *_: bool(given)),
    "imports": (hints, "import_for", lambda given, _: bool(given)),
    "doubtful results": (Doubts, "look", lambda given, *_: bool(given)),
    "the rest of the form": (Closing, "_not_as_asked", lambda given, *_: bool(given)),
    "doubts": (Answers, "doubt", lambda given, *_: given is not None),
    "completed form": (Answers, "completed", lambda given, _, answer: given != answer),
    "chance": (Negotiation, "vary", lambda *_: True),
    "clean slate": (Compactor, "copied", lambda *_: True),
}


@contextmanager
def watched() -> Iterator[set[str]]:
    """Give the names of the levers that act from here on, among those that act in some runs only."""
    acted: set[str] = set()
    with ExitStack() as stack:
        for name, (owner, attribute, has_acted) in SOMETIMES.items():
            stack.enter_context(patch.object(owner, attribute, _noting(name, acted, owner, attribute, has_acted)))
        yield acted


def _noting(name: str, acted: set[str], owner: object, attribute: str, has_acted: Callable[..., bool]) -> Any:
    kept = getattr(owner, attribute)

    def noting(*given: Any, **named: Any) -> Any:
        result = kept(*given, **named)
        if has_acted(result, *given):
            acted.add(name)
        return result

    return noting


@contextmanager
def without(name: str) -> Iterator[None]:
    """Take a lever away; "" takes none."""
    if not name:
        yield
        return
    with LEVERS[name]():
        yield
