"""Temporary folders go with their process, also where it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nbagent.kernels.own_folder import OwnFolder, sweep


def test_what_a_killed_process_left_is_swept_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import os; from nbagent.kernels.own_folder import OwnFolder; m = OwnFolder(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    (left,) = tmp_path.iterdir()
    ends = "import sys; from nbagent.kernels.own_folder import OwnFolder; made = OwnFolder(); sys.exit(1)"
    subprocess.run([sys.executable, "-c", ends], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert list(tmp_path.iterdir()) == [left]
    (left / "copy.csv").write_text("1")
    (foreign := tmp_path / "nbagent-notes").mkdir()
    sweep.cache_clear()
    with OwnFolder() as first:
        assert left.is_dir()  # too young: it may be one that is being made
        for folder in tmp_path.iterdir():
            os.utime(folder, (time.time() - 999,) * 2)
        sweep.cache_clear()
        with OwnFolder() as second:
            assert set(tmp_path.iterdir()) == {foreign, first.path, second.path}
    assert set(tmp_path.iterdir()) == {foreign}
