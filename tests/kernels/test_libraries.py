"""Each library that data work is done with works after an undo, or no state is kept with it and that is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.kernels.libraries import LIBRARIES, QUIET, Library, go_back_on

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="checkpoints are forks"),
]


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
async def test_a_library_works_after_going_back_or_is_declined_in_words(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not library.installed:
        pytest.skip(f"{library.module} is not installed")
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    why = await go_back_on(library, tmp_path)
    assert library.declined in why
    assert bool(why) == bool(library.declined)
