"""What reflection is worth: the same questions with and without it, in turn, and where the two differ.

    python -m tests.benchmarks.reflection TASKS.jsonl TABLES_FOLDER --sample 24 --out reflection
    python -m tests.benchmarks.reflection TASKS.jsonl TABLES_FOLDER --sample 24 --with on --model gpt-5-mini

Both answers of a question are given one after the other, so that a machine's drift hits both alike. Rows are
appended to OUT-off.jsonl and OUT-auto.jsonl (or OUT-on.jsonl), and questions that are there are not asked
again. Questions and scoring: see tests/benchmarks/accuracy.py.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from nbagent.stores.files import FileStore, default_home
from tests.benchmarks.accuracy import measure, sample, solve, table


def reflections(session: str) -> dict[str, int]:
    """Count what a session's log says of reflection: questions, and answers that were held back."""
    events = FileStore(default_home(os.environ)).read(session) if session else []
    asked = [event for event in events if event.type == "Reflected"]
    return {"reflected": len(asked), "held_back": sum(not getattr(event, "enough", True) for event in asked)}


def difference(without: list[dict[str, Any]], having: list[dict[str, Any]]) -> str:
    """Say what changed, question by question."""
    before = {row["id"]: row for row in without}
    pairs = [(before[row["id"]], row) for row in having if row["id"] in before]
    gained = [row["id"] for old, row in pairs if row["right"] and not old["right"]]
    lost = [row["id"] for old, row in pairs if old["right"] and not row["right"]]
    asked = sum(row["reflected"] > 0 for row in having)
    held = sum(row["held_back"] > 0 for row in having)
    return (
        f"{len(pairs)} questions; reflected in {asked}, not enough in {held}. Right only with it: {len(gained)} "
        f"{gained}; right only without it: {len(lost)} {lost}."
    )


def main() -> None:
    """Run, store, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--sample", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--with", dest="mode", choices=["auto", "on"], default="auto")
    parser.add_argument("--out", default="reflection")
    for name in ("model", "base-url", "dialect", "max-steps"):
        parser.add_argument(f"--{name}")
    given = parser.parse_args()
    tasks = [json.loads(line) for line in given.tasks.read_text("utf-8").splitlines()]
    names = ("model", "base_url", "dialect", "max_steps")
    settings = {name: getattr(given, name) for name in names if getattr(given, name)}
    files = {mode: Path(f"{given.out}-{mode}.jsonl") for mode in ("off", given.mode)}
    rows: dict[str, list[dict[str, Any]]] = {
        mode: [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
        for mode, file in files.items()
    }
    for task in sample(tasks, given.sample, given.seed):
        for mode, file in files.items():
            if task["id"] in {row["id"] for row in rows[mode]}:
                continue
            row = measure(solve, task, given.tables, {**settings, "reflect": mode})
            row |= reflections(row.get("session", ""))
            rows[mode].append(row)
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(mode, json.dumps(row, ensure_ascii=False)[:300], flush=True)
    for mode, found in rows.items():
        print(f"\nreflect={mode}\n{table(found)}")
    print("\n" + difference(rows["off"], rows[given.mode]))


if __name__ == "__main__":
    main()
