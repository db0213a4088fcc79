"""How many exports verify at each rung: real runs over data questions, distilled, clean and full, each executed.

    python -m tests.benchmarks.rungs TASKS.jsonl TABLES_FOLDER --runs 30 --out rungs
    python -m tests.benchmarks.rungs TASKS.jsonl TABLES_FOLDER --runs 30 --model gpt-5-mini

TASKS.jsonl is that of `tests.benchmarks.accuracy`; without --model, the embedded one answers. --out is a folder:
`rungs.jsonl` grows by a line a run, and the notebook that the ladder chose lies beside it. What is there is not
run again, so it can be interrupted at any time and goes on.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from nbagent import Agent
from nbagent.agent_thread import agent_thread
from nbagent.errors import NbAgentError
from nbagent.events import Event
from nbagent.notebook.export import draft_notebook, write_draft
from nbagent.notebook.ladder import RUNGS
from nbagent.notebook.verify import put_verdict, verify_notebook
from tests.benchmarks.accuracy import question, right, sample

SEED = 1


def climb(events: list[Event], folder: Path, path: Path) -> dict[str, Any]:
    """Verify every rung, write the smallest that does (else the full one), and tell how each went."""
    told: dict[str, Any] = {}
    written = None
    for rung in RUNGS:
        draft = draft_notebook(events, path, rung=rung)
        verdict = agent_thread().run(verify_notebook(draft.notebook, folder=folder, files=draft.files))
        told[rung] = {
            "ok": verdict.ok,
            "cells": draft.code_cells,
            "why": verdict.line,
            "overhead": round(verdict.seconds - verdict.own_seconds, 2),
        }
        if written is None and (verdict.ok or rung == RUNGS[-1]):
            put_verdict(draft.notebook, verdict)
            write_draft(draft, path, force=True)
            written = rung if verdict.ok else "none"
    return {"rungs": told, "written": written}


def measure(task: dict[str, Any], tables: Path, out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Run one task in a folder of its own, export and verify it there."""
    row: dict[str, Any] = {"id": task["id"], "level": task["level"]}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copy(tables / task["file"], folder / task["file"])
        began = time.monotonic()
        with Agent(folder=str(folder), approve="auto", **settings) as agent:
            try:
                result = agent.run_sync(question(task), data=[folder / task["file"]])
                assert agent.session is not None
                row |= {"reason": result.reason, "steps": result.steps}
                row["right"] = right(result.answer, task["answers"])
                row |= climb(agent.session.events, folder, out / f"{task['id']}.ipynb")
            except NbAgentError as error:
                row |= {"reason": type(error).__name__, "error": str(error)}
        row["seconds"] = round(time.monotonic() - began, 1)
    return row


def tally(rows: list[dict[str, Any]]) -> str:
    """Lay out how many verify at each rung, and why the others do not."""
    climbed = [row for row in rows if "rungs" in row]
    lines = ["| rung | verified | of | code cells |", "|---|---|---|---|"]
    for rung in RUNGS:
        tried = [row["rungs"][rung] for row in climbed]
        cells = sum(one["cells"] for one in tried)
        lines.append(f"| {rung} | {sum(one['ok'] for one in tried)} | {len(tried)} | {cells} |")
    written = Counter(row["written"] for row in climbed)
    lines += ["", "written: " + ", ".join(f"{name} {count}" for name, count in written.most_common())]
    endings = Counter(row["reason"] for row in rows)
    lines += ["endings: " + ", ".join(f"{name} {count}" for name, count in endings.most_common()), ""]
    for row in climbed:
        lines += [f"- {row['id']} {rung}: {one['why']}" for rung, one in row["rungs"].items() if not one["ok"]]
    lines += [f"- {row['id']}: {row['error']}" for row in rows if "error" in row]
    return "\n".join(lines)


def stored(record: Path) -> list[dict[str, Any]]:
    """Read what earlier calls measured; a line that an interruption tore is taken out."""
    if not record.exists():
        return []
    lines = record.read_text("utf-8").splitlines()
    rows = []
    for line in lines:
        with suppress(ValueError):
            rows.append(json.loads(line))
    record.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return rows


def main() -> None:
    """Run, store, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--runs", type=int, default=30, help="how many tasks")
    parser.add_argument("--out", type=Path, default=Path("rungs"))
    parser.add_argument("--model", default="local:qwen2.5-coder-1.5b")
    for name in ("base-url", "dialect", "max-steps"):
        parser.add_argument(f"--{name}")
    given = parser.parse_args()
    tasks = [json.loads(line) for line in given.tasks.read_text("utf-8").splitlines()]
    names = ("model", "base_url", "dialect", "max_steps")
    settings = {name: getattr(given, name) for name in names if getattr(given, name)}
    given.out.mkdir(parents=True, exist_ok=True)
    record = given.out / "rungs.jsonl"
    rows = stored(record)
    done = {row["id"] for row in rows}
    chosen = sample(tasks, given.runs, SEED)
    for task in chosen:
        if task["id"] not in done:
            rows.append(measure(task, given.tables, given.out, settings))
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1], ensure_ascii=False) + "\n")
            print(f"{len(rows)}/{len(chosen)}", rows[-1]["id"], rows[-1].get("written", "-"), flush=True)
    print(tally(rows))


if __name__ == "__main__":
    main()
