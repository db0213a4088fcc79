"""Accuracy, steps, seconds and tokens by level over closed-form data questions, for any model.

    python -m tests.benchmarks.accuracy TASKS.jsonl TABLES_FOLDER --sample 24 --out answers.jsonl
    python -m tests.benchmarks.accuracy TASKS.jsonl TABLES_FOLDER --model gpt-5-mini

TASKS.jsonl holds one task a line: id, level, file, question, constraints, format, answers ([name, value]
pairs). This is the layout of the InfiAgent-DABench questions. An answer is right when every `@name[value]`
of the reference stands in it with the same value: numbers as floats to 1e-6, other values as trimmed,
case-folded text. Raw answers are appended to --out, and tasks that are there already are not run again.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from nbagent import Agent
from nbagent.errors import NbAgentError

LEVELS = ("easy", "medium", "hard")


def right(answer: str, reference: list[list[str]]) -> bool:
    """Whether every named value of the reference stands in the answer."""
    found = {name.strip(): value.strip() for name, value in re.findall(r"@(\w+)\[(.*?)\]", answer)}
    return all(name in found and same(found[name], value) for name, value in reference)


def same(given: str, wanted: str) -> bool:
    """Compare as numbers where both are, else as text."""
    try:
        return abs(float(given) - float(wanted)) < 1e-6
    except ValueError:
        return given.casefold() == str(wanted).strip().casefold()


def question(task: dict[str, Any]) -> str:
    """Write the task as a user would."""
    return (
        f"{task['question']}\nThe data is in {task['file']!r}.\n"
        f"Constraints: {task['constraints']}\nAnswer format: {task['format']}"
    )


def sample(tasks: list[dict[str, Any]], count: int, seed: int) -> list[dict[str, Any]]:
    """Draw `count` tasks, the levels in the shares that the whole has."""
    rng = random.Random(seed)
    shuffled = sorted(tasks, key=lambda task: task["id"])
    rng.shuffle(shuffled)
    by_level = {level: [task for task in shuffled if task["level"] == level] for level in LEVELS}
    chosen: list[dict[str, Any]] = []
    for level in LEVELS:
        share = round(count * len(by_level[level]) / len(tasks))
        chosen += by_level[level][: max(1, share)]
    return chosen[:count] if len(chosen) > count else chosen


def solve(task: dict[str, Any], tables: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Run one task in a folder of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copy(tables / task["file"], folder / task["file"])
        began = time.monotonic()
        with Agent(folder=str(folder), approve="auto", **settings) as agent:
            try:
                result = agent.run_sync(question(task), data=[folder / task["file"]])
            except NbAgentError as error:
                return {"id": task["id"], "level": task["level"], "right": False, "reason": type(error).__name__}
        return {
            "id": task["id"],
            "level": task["level"],
            "right": right(result.answer, task["answers"]),
            "answer": result.answer,
            "wanted": task["answers"],
            "reason": result.reason,
            "steps": result.steps,
            "seconds": round(time.monotonic() - began, 1),
            "tokens": result.usage.total_tokens,
            "cached": result.usage.cached_tokens,
            "session": result.session,
        }


def table(rows: list[dict[str, Any]]) -> str:
    """Lay the rows out by level."""
    lines = ["| level | right | of | accuracy | steps | seconds | tokens | cached |", "|---" * 8 + "|"]
    for level in (*LEVELS, "all"):
        chosen = [row for row in rows if level in ("all", row["level"])]
        if not chosen:
            continue
        hits = sum(row["right"] for row in chosen)

        def median(name: str, chosen: list[dict[str, Any]] = chosen) -> float:
            return float(statistics.median(row.get(name, 0) for row in chosen))

        lines.append(
            f"| {level} | {hits} | {len(chosen)} | {100 * hits / len(chosen):.0f} % | {median('steps'):.0f} "
            f"| {median('seconds'):.1f} | {median('tokens'):.0f} | {median('cached'):.0f} |"
        )
    reasons: dict[str, int] = {}
    for row in rows:
        reasons[row["reason"]] = reasons.get(row["reason"], 0) + 1
    return "\n".join([*lines, "", "endings: " + ", ".join(f"{name} {n}" for name, n in sorted(reasons.items()))])


def main() -> None:
    """Run, store, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--sample", type=int, help="how many tasks (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("answers.jsonl"))
    for name in ("model", "base-url", "dialect", "max-steps"):
        parser.add_argument(f"--{name}")
    given = parser.parse_args()
    tasks = [json.loads(line) for line in given.tasks.read_text("utf-8").splitlines()]
    chosen = sample(tasks, given.sample, given.seed) if given.sample else tasks
    names = ("model", "base_url", "dialect", "max_steps")
    settings = {name: getattr(given, name) for name in names if getattr(given, name)}
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {row["id"] for row in rows}
    for task in chosen:
        if task["id"] in done:
            continue
        rows.append(solve(task, given.tables, settings))
        with given.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(rows[-1], ensure_ascii=False) + "\n")
        print(f"{len(rows)}/{len(chosen)}", json.dumps(rows[-1], ensure_ascii=False)[:300], flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
