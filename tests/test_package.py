"""What a user installs holds everything that runs need, and nothing else stands at the top."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

NEEDED = (
    *(f"nbagent/view/{name}.js" for name in ("shown", "question", "after", "widget")),
    "nbagent/view/widget.css",
    "nbagent/prompts/role.md",
    "nbagent/prompts/approaches.toml",
    "nbagent/prompts/json.md",
    "nbagent/prompts/fenced.md",
    "nbagent/models/weights_sources.json",
    "nbagent/demo_data/gapminder_gdp_asia.csv",
    "nbagent/demo_data/quickstart.ipynb",
    "nbagent/py.typed",
)


def test_the_wheel_holds_the_widget_the_prompts_and_the_demo(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(NEEDED) <= names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_top_level_holds_only_what_belongs_there() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {line.split("/")[0] for line in listed.splitlines()}
    assert {name for name in top if not name.startswith(".")} <= {
        "LICENSE",
        "README.md",
        "nbagent",
        "notebooks",
        "pyproject.toml",
        "tests",
    }
