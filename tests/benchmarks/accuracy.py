"""Accuracy, steps, seconds and tokens by level over closed-form data questions, for any model.

    python -m tests.benchmarks.accuracy TASKS.jsonl TABLES_FOLDER --sample 24 --out answers.jsonl
    python -m tests.benchmarks.accuracy TASKS.jsonl TABLES_FOLDER --model gpt-5-mini
    python -m tests.benchmarks.accuracy TASKS.jsonl TABLES_FOLDER --harness json      # or fenced: a bare loop
    python -m tests.benchmarks.accuracy TASKS.jsonl TABLES_FOLDER --harness smolagents --python OTHER_PYTHON

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
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nbagent import Agent
from nbagent.errors import NbAgentError
from nbagent.models import weights
from nbagent.models.embedded import CONTEXT_WINDOW, GRACE_SECONDS, physical_cores
from nbagent.models.embedded_owner import ServerOwner, ServerParameters
from tests.benchmarks.levers import LEVERS, SOMETIMES, watched, without

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


def solve(task: dict[str, Any], folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Let nbagent work on one task."""
    with watched() as acted, Agent(folder=str(folder), approve="auto", **settings) as agent:
        try:
            result = agent.run_sync(question(task), data=[folder / task["file"]])
        except NbAgentError as error:
            return {"answer": "", "reason": type(error).__name__}
    return {
        "acted": sorted(acted),
        "answer": result.answer,
        "reason": result.reason,
        "steps": result.steps,
        "tokens": result.usage.total_tokens,
        "cached": result.usage.cached_tokens,
        "session": result.session,
    }


class Yardstick:
    """Another harness, in a process of its own, with the same embedded model at the same address."""

    def __init__(self, harness: str, python: str, settings: dict[str, Any]):
        here = Path(__file__).parent
        self._command = (
            [python, str(here / "smolagents_agent.py")]
            if harness == "smolagents"
            else [python, "-m", "tests.benchmarks.small_loop", harness]
        )
        self._max_steps = int(settings.get("max_steps", 15))
        self._model = settings.get("model") or weights.default_name()
        self._owner = ServerOwner(weights.cache_folder() / "embedded")

    def solve(self, task: dict[str, Any], folder: Path, _: dict[str, Any]) -> dict[str, Any]:
        """Let it work on one task."""
        file = weights.find(self._model.removeprefix("local:"))
        assert file is not None, "nbagent model pull"
        server = self._owner.acquire(ServerParameters(file, CONTEXT_WINDOW, physical_cores(), GRACE_SECONDS))
        job = {
            "question": question(task),
            "file": task["file"],
            "folder": str(folder),
            "base_url": f"http://127.0.0.1:{server.port}/v1",
            "key": server.key,
            "model": self._model,
            "max_steps": self._max_steps,
        }
        done = subprocess.run(self._command, input=json.dumps(job), capture_output=True, text=True, check=False)
        if done.returncode:
            return {"answer": "", "reason": "error", "why": done.stderr[-500:]}
        return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def measure(solve: Any, task: dict[str, Any], tables: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Run one task in a folder of its own, and judge the answer."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(tables / task["file"], Path(scratch) / task["file"])
        began = time.monotonic()
        row = solve(task, Path(scratch), settings)
    return {
        "id": task["id"],
        "level": task["level"],
        "right": right(row["answer"], task["answers"]),
        "wanted": task["answers"],
        "seconds": round(time.monotonic() - began, 1),
        **row,
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


def stored(file: Path | None) -> dict[int, dict[str, Any]]:
    """Give the rows of a file of raw answers, if it is there, by the task."""
    lines = file.read_text("utf-8").splitlines() if file is not None and file.exists() else []
    return {row["id"]: row for row in map(json.loads, lines)}


def same_without(lever: str, row: dict[str, Any] | None) -> bool:
    """Whether a run would have gone the same way without the lever: it acts in some runs only, and not in this."""
    return row is not None and lever in SOMETIMES and "acted" in row and lever not in row["acted"]


def main() -> None:
    """Run, store, print."""
    given = _arguments()
    tasks = [json.loads(line) for line in given.tasks.read_text("utf-8").splitlines()]
    chosen = sample(tasks, given.sample, given.seed) if given.sample else tasks
    names = ("model", "base_url", "dialect", "max_steps", "reflect")
    settings = {name: getattr(given, name) for name in names if getattr(given, name)}
    nbagent = given.harness == "nbagent"
    solver = solve if nbagent else Yardstick(given.harness, given.python, settings).solve
    rows, like = stored(given.out), stored(given.like)
    for task in chosen:
        key = task["id"]
        if key in rows:
            continue
        if same_without(given.without, like.get(key)):
            rows[key] = {**like[key], "like": str(given.like)}
        else:
            with without(given.without):
                rows[key] = measure(solver, task, given.tables, settings)
        line = json.dumps(rows[key], ensure_ascii=False)
        with given.out.open("a", encoding="utf-8") as out:
            out.write(f"{line}\n")
        print(f"{len(rows)}/{len(chosen)}", line[:300], flush=True)
    print(table(list(rows.values())))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--sample", type=int, help="how many tasks (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("answers.jsonl"))
    parser.add_argument("--harness", choices=["nbagent", "json", "fenced", "smolagents"], default="nbagent")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the other harness")
    for name in ("model", "base-url", "dialect", "max-steps", "reflect"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--without", default="", choices=["", *LEVERS], help="take one lever away (see levers.py)")
    parser.add_argument("--like", type=Path, help="raw answers with all levers: see levers.py")
    return parser.parse_args()


if __name__ == "__main__":
    main()
