"""What a step costs beside a bare loop, in the same run, with a scripted model on loopback.

    python -m tests.benchmarks.step_cost --steps 10 50 200 --repeats 3
    python -m tests.benchmarks.step_cost --loops nbagent --steps 300 --window 6000 --flat 1.2

A step's cost is the gap between two requests as the server saw them: parsing, execution, log, prompt.
A run counts only if the final value is the number of steps. Medians over the repeats; the two loops take
turns, so that the machine's drift hits both alike. `NBAGENT_CHECKPOINTS=off` before it takes no states.

About where a step's processor time goes (N=150, milliseconds on a machine that others used too, where the bare
loop takes 31 at N=50: 25 in its own process, most of them the SDK's walk over the messages, and 6 in its kernel):

    | process | what | state kept | not kept |
    |---|---|---|---|
    | nbagent | sends the request and reads the stream | 5 | 5 |
    | nbagent | checks, grades, watches files, tells, logs | 3 | 3 |
    | nbagent | speaks to the kernel and its family | 3 | 2 |
    | kernel | executes, and looks at the variables | 4 | 6 |
    | kernel | the fork, and what it writes to answer | 6 | - |
    | kernel | copies the pages that every step writes to | 5 | - |
    | kernel | sleepers that begin and end | 3 | - |

The fork and the copying run while the model thinks. Here the model answers at once, so the step waits for them:
a state costs the system some 350 page faults and 1,100 copied pages, which no order of work takes away.
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


def one(loop: str, steps: int, first_token_ms: float, window: int) -> dict[str, Any]:
    """Run one loop against a server of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "requests.jsonl"
        module = [sys.executable, "-m", "tests.benchmarks.step_server", str(steps), str(log), str(first_token_ms)]
        server = subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        environment = {**os.environ, "NBAGENT_HOME": str(Path(scratch) / "home")}
        done = subprocess.run(
            [sys.executable, "-m", LOOPS[loop], url, str(steps), *([str(window)] if window else [])],
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
    # A compaction writes the messages anew, so that the request is shorter than the one before.
    pairs = [(before, after) for before, after in pairwise(rows) if after["characters"] > before["characters"]]
    gaps = [1000 * (after["time"] - before["time"]) for before, after in pairs]
    fifth = max(1, len(gaps) // 5)
    grown = [after["characters"] - before["characters"] for before, after in pairs]
    return {
        "ms": statistics.median(gaps),
        "first": statistics.median(gaps[:fifth]),
        "last": statistics.median(gaps[-fifth:]),
        "new first": statistics.median(grown[:fifth]),
        "new last": statistics.median(grown[-fifth:]),
        "fixed": rows[0]["characters"],
        "longest": max(row["characters"] for row in rows),
        "kept": min(after["shared"] / after["before"] for _, after in pairs),
        "compactions": len(rows) - 1 - len(pairs),
    }


def main() -> None:
    """Take turns, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 50, 200])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--first-token-ms", type=float, default=0)
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=list(LOOPS))
    parser.add_argument("--window", type=int, default=0, help="tokens of nbagent's window; 0 for its own choice")
    parser.add_argument("--flat", type=float, default=0, help="most that the last fifth may cost, by the first")
    given = parser.parse_args()
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for _ in range(given.repeats):
        for steps in given.steps:
            for loop in given.loops:
                row = one(loop, steps, given.first_token_ms, given.window if loop == "nbagent" else 0)
                found.setdefault((loop, steps), []).append(row)
    print(
        "| loop | N | ms a step | x bare | first fifth | last fifth | new characters, first fifth | last fifth "
        "| first request | longest | compactions | kept between them |"
    )
    print("|---" * 12 + "|")
    grew = []
    for (loop, steps), rows in found.items():
        mid = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        bare = found.get(("bare", steps))
        ratio = f"{mid['ms'] / statistics.median(row['ms'] for row in bare):.2f}" if bare else "-"
        print(
            f"| {loop} | {steps} | {mid['ms']:.1f} | {ratio} | {mid['first']:.1f} | {mid['last']:.1f} "
            f"| {mid['new first']:.0f} | {mid['new last']:.0f} | {mid['fixed']:.0f} | {mid['longest']:.0f} "
            f"| {mid['compactions']:.0f} | {100 * mid['kept']:.1f} % |"
        )
        if given.flat and max(mid["last"] / mid["first"], mid["new last"] / mid["new first"]) > given.flat:
            grew.append(f"{loop} at {steps} steps")
    if grew:
        sys.exit(f"not flat: {', '.join(grew)}")


if __name__ == "__main__":
    main()
