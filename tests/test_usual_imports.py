"""The import that a name stands for by custom."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from nbagent.usual_imports import _FROM, _MODULES, import_for


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("pd", "import pandas as pd"),
        ("pandas", "import pandas"),
        ("train_test_split", "from sklearn.model_selection import train_test_split"),
        ("stats", "from scipy import stats"),
        ("math", "import math"),
        ("datetime", "from datetime import datetime"),
        ("totals", ""),
    ],
)
def test_a_name_of_custom_has_its_import(name: str, statement: str) -> None:
    assert import_for(f"NameError: name '{name}' is not defined") == statement


@pytest.mark.parametrize(
    "error", ["", "KeyError: 'pd'", "NameError: free variable 'pd' referenced before assignment"]
)
def test_other_errors_ask_for_no_import(error: str) -> None:
    assert import_for(error) == ""


def test_every_import_that_is_told_works_where_its_library_is_installed() -> None:
    told = [import_for(f"NameError: name '{name}' is not defined") for name in (*_MODULES, *_FROM)]
    tried = 0
    for statement in told:
        library = statement.split()[1].partition(".")[0]
        if importlib.util.find_spec(library) is not None:
            exec(statement, {})
            tried += 1
    assert tried > 5
