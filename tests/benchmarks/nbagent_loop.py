"""nbagent on the same script as the bare loop. Arguments: base URL, number of steps."""

from __future__ import annotations

import sys

from nbagent import Agent
from tests.benchmarks.bare_loop import TASK


def main() -> None:
    with Agent(model="scripted", base_url=sys.argv[1], max_steps=int(sys.argv[2]) + 5) as agent:
        print(agent.run_sync(TASK).answer)


if __name__ == "__main__":
    main()
