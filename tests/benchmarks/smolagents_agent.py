"""A peer as yardstick: smolagents' CodeAgent with its own defaults, run by the Python of its own environment.

PYTHON_OF_SMOLAGENTS smolagents_agent.py < JOB.json      # the job and the result: see small_loop.py
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def solve(job: dict[str, Any]) -> dict[str, Any]:
    """Let the agent work on the question, with the imports that such questions need."""
    from smolagents import CodeAgent, LogLevel, OpenAIModel

    os.chdir(job["folder"])
    model = OpenAIModel(
        model_id=job["model"],
        api_base=job["base_url"],
        api_key=job["key"],
        temperature=0,
        max_tokens=1024,
        client_kwargs={"timeout": 900},
    )
    agent = CodeAgent(
        tools=[],
        model=model,
        max_steps=job["max_steps"],
        verbosity_level=LogLevel.OFF,
        additional_authorized_imports=[
            "pandas.*",
            "numpy.*",
            "scipy.*",
            "sklearn.*",
            "statsmodels.*",
            "csv",
            "json",
        ],
    )
    result = agent.run(job["question"], return_full_result=True)
    usage = result.token_usage
    return {
        "answer": str(result.output),
        "steps": len([step for step in agent.memory.steps if type(step).__name__ == "ActionStep"]),
        "tokens": usage.total_tokens if usage else 0,
        "reason": "answered" if result.state == "success" else result.state,
    }


if __name__ == "__main__":
    print(json.dumps(solve(json.load(sys.stdin))))
