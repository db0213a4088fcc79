"""How runs of a model end that repeats itself for ever in a plain loop: the embedded 0.5B over small tables.

    python -m tests.benchmarks.endings                      # 20 runs, about half a minute each on two cores
    python -m tests.benchmarks.endings --runs 3 --max-steps 8

Each run is another task in a session of its own. The reasons are tallied; a run that only the clock ended
(max_seconds) makes the command fail.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nbagent import Agent

TABLES = {
    "shop.csv": "name,price,sold\napple,1.25,10\npear,2.50,4\nplum,0.75,12\nmelon,7.10,1\nfig,,3\n",
    "weather.csv": "day;rain;wind\n1;0.0;3\n2;4.5;7\n3;;5\n4;1.5;9\n5;2.0;\n",
    "people.csv": "name,team,born\nAna,red,1990-02-01\nBo,blue,1985-11-30\nCy,red,2001-07-15\nDi,red,n/a\n",
    "sales.csv": 'month,"net, EUR"\nJan,"1.200,50"\nFeb,"980,00"\nMar,"1.430,75"\n',
}
TASKS = [
    ("shop.csv", "What is the median of price in shop.csv?"),
    ("shop.csv", "Which fruit in shop.csv brought most money (price times sold)?"),
    ("shop.csv", "What is the correlation of price and sold in shop.csv, rounded to two decimals?"),
    ("shop.csv", "Fit sold against price in shop.csv with a straight line and give its slope."),
    ("shop.csv", "How many prices are missing in shop.csv, and in which row?"),
    ("weather.csv", "What is the mean rain of the days of weather.csv that have a value?"),
    ("weather.csv", "On which day of weather.csv was the wind strongest?"),
    ("weather.csv", "Fill the gaps of rain in weather.csv by interpolation and give the new sum."),
    ("weather.csv", "How many days of weather.csv have neither rain nor wind missing?"),
    ("weather.csv", "What share of the days in weather.csv had more than 1 mm of rain?"),
    ("people.csv", "How many people in people.csv are in each team?"),
    ("people.csv", "Who is the oldest in people.csv, and how old on 2026-01-01?"),
    ("people.csv", "What is the mean year of birth in team red of people.csv?"),
    ("people.csv", "Which dates of people.csv cannot be parsed?"),
    ("people.csv", "Make a table of team by decade of birth from people.csv."),
    ("sales.csv", "What is the sum of the net sales in sales.csv? They are written the German way."),
    ("sales.csv", "Which month of sales.csv had the highest net sales?"),
    ("sales.csv", "By how many percent did the net sales of sales.csv fall from January to February?"),
    ("sales.csv", "Extrapolate the net sales of April from sales.csv with a straight line."),
    ("sales.csv", "Write the months of sales.csv in capital letters, sorted by net sales."),
]


def run(file: str, task: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Work on one task in a folder of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / file).write_text(TABLES[file])
        began = time.monotonic()
        with Agent(folder=scratch, approve="auto", **settings) as agent:
            result = agent.run_sync(task, data=[Path(scratch) / file])
    return {
        "task": task,
        "reason": result.reason,
        "message": result.message,
        "answer": result.answer[:80],
        "summary": result.summary[:80],
        "steps": result.steps,
        "seconds": round(time.monotonic() - began, 1),
        "tokens": result.usage.total_tokens,
    }


def main() -> None:
    """Run them, print a line for each, tally the reasons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=len(TASKS))
    parser.add_argument("--model", default="local:qwen2.5-coder-0.5b")
    parser.add_argument("--max-steps", type=int, default=12)
    parser.add_argument("--max-seconds", type=float, default=600)
    given = parser.parse_args()
    settings = {"model": given.model, "max_steps": given.max_steps, "max_seconds": given.max_seconds}
    rows = []
    for number in range(given.runs):
        rows.append(run(*TASKS[number % len(TASKS)], settings))
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    print(f"\n| reason | runs of {len(rows)} | steps, median | seconds, median |\n|---|---|---|---|")
    for reason, count in collections.Counter(row["reason"] for row in rows).most_common():
        of_it = [row for row in rows if row["reason"] == reason]
        middle = {name: sorted(row[name] for row in of_it)[len(of_it) // 2] for name in ("steps", "seconds")}
        print(f"| {reason} | {count} | {middle['steps']} | {middle['seconds']} |")
    if any(row["reason"] == "max_seconds" for row in rows):
        sys.exit("a run was ended by the clock alone")


if __name__ == "__main__":
    main()
