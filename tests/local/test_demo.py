"""`nbagent demo` with the embedded model: the answer follows the table, and the export is proven to run."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from nbagent.demo import TABLE

pytestmark = pytest.mark.local


def test_a_changed_table_changes_the_answer(tmp_path: Path) -> None:
    rows = list(csv.reader(files("nbagent").joinpath("demo_data", TABLE).read_text("utf-8").splitlines()))
    column = rows[0].index("gdpPercap_2007")
    for row in rows[1:]:
        row[column] = str(round(float(row[column]) / 7 + 3, 4))
    changed = tmp_path / "changed.csv"
    with changed.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    mean = sum(float(row[column]) for row in rows[1:]) / len(rows[1:])
    done = subprocess.run(
        [sys.executable, "-m", "nbagent", "demo", "--csv", str(changed)],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{mean:.2f}" in done.stdout.replace(",", "")
    assert "Proven" in done.stdout
    assert (tmp_path / "nbagent-demo.ipynb").is_file()
