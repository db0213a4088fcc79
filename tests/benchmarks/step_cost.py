"""What a step costs beside a bare loop, in the same run, with a scripted model on loopback.

    python -m tests.benchmarks.step_cost --steps 10 50 200 --repeats 3

A step's cost is the gap between two requests as the server saw them: parsing, execution, log, prompt.
A run counts only if the final value is the number of steps. Medians over the repeats; the two loops take
turns, so that the machine's drift hits both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

LOOPS = {"bare": "tests.benchmarks.bare_loop", "nbagent": "tests.benchmarks.nbagent_loop"}


def one(loop: str, steps: int, first_token_ms: float) -> dict[str, Any]:
    """Run one loop against a server of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "requests.jsonl"
        module = [sys.executable, "-m", "tests.benchmarks.step_server", str(steps), str(log), str(first_token_ms)]
        server = subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        environment = {**os.environ, "NBAGENT_HOME": str(Path(scratch) / "home")}
        done = subprocess.run(
            [sys.executable, "-m", LOOPS[loop], url, str(steps)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=300,
        )
        server.communicate("")
        rows = [json.loads(line) for line in log.read_text().splitlines()]
    if f"is {steps} " not in done.stdout:
        raise SystemExit(f"{loop} did not reach {steps}:\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    gaps = [1000 * (after["time"] - before["time"]) for before, after in pairwise(rows)]
    fifth = max(1, len(gaps) // 5)
    grown = [after["characters"] - before["characters"] for before, after in pairwise(rows)]
    return {
        "ms": statistics.median(gaps),
        "first": statistics.median(gaps[:fifth]),
        "last": statistics.median(gaps[-fifth:]),
        "new": statistics.median(grown),
        "fixed": rows[0]["characters"],
        "kept": min(row["shared"] / row["before"] for row in rows[1:]),
    }


def main() -> None:
    """Take turns, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 50, 200])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--first-token-ms", type=float, default=0)
    given = parser.parse_args()
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for _ in range(given.repeats):
        for steps in given.steps:
            for loop in LOOPS:
                found.setdefault((loop, steps), []).append(one(loop, steps, given.first_token_ms))
    print("| loop | N | ms a step | x bare | first fifth | last fifth | new characters | first request | kept |")
    print("|---" * 9 + "|")
    for (loop, steps), rows in found.items():
        mid = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        bare = statistics.median(row["ms"] for row in found["bare", steps])
        print(
            f"| {loop} | {steps} | {mid['ms']:.1f} | {mid['ms'] / bare:.2f} "
            f"| {mid['first']:.1f} | {mid['last']:.1f} | {mid['new']:.0f} | {mid['fixed']:.0f} "
            f"| {100 * mid['kept']:.1f} % |"
        )


if __name__ == "__main__":
    main()
