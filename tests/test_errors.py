"""The exception tree is what errors.py draws, and each error says what it stands for."""

from __future__ import annotations

import inspect

import pytest

from nbagent import errors
from nbagent.errors import NbAgentError

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, NbAgentError)]


def drawn_tree() -> dict[str, str]:
    """Read each class's parent from the drawing at the top of the module."""
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        drawing = line[4:]
        name = drawing.lstrip("│├└─ ")
        if not line.startswith("    ") or not name.isidentifier():
            continue
        depth = (len(drawing) - len(name)) // 4
        above[depth:] = [name]
        parents[name] = above[depth - 1] if depth else "Exception"
    return parents


def test_the_drawn_tree_is_the_real_one() -> None:
    assert drawn_tree() == {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES}
    assert all(len(cls.__bases__) == 1 for cls in CLASSES)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_says_when_it_is_raised(cls: type[NbAgentError]) -> None:
    assert cls.__doc__
    assert cls.__doc__ != (cls.__base__.__doc__ if cls.__base__ else "")


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_has_one_of_the_documented_exit_codes(cls: type[NbAgentError]) -> None:
    expected = 2 if issubclass(cls, errors.UsageError) else 4 if cls is errors.VerificationFailed else 1
    assert cls.exit_code == expected


def test_an_errors_text_is_its_message() -> None:
    assert str(errors.StoreError("cannot write x")) == "cannot write x"
