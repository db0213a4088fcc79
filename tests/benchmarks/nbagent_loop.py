"""nbagent on the same script as the bare loop. Arguments: base URL, number of steps, window in tokens."""

from __future__ import annotations

import sys

from nbagent import Agent
from tests.benchmarks.bare_loop import TASK


def main() -> None:
    window = int(sys.argv[3]) if len(sys.argv) > 3 else None
    steps = int(sys.argv[2]) + 5
    with Agent(model="scripted", base_url=sys.argv[1], max_steps=steps, context_window=window) as agent:
        print(agent.run_sync(TASK).answer)


if __name__ == "__main__":
    main()
