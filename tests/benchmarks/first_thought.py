"""What the embedded model reads again: cached tokens and the time to the first thought, request by request.

    python -m tests.benchmarks.first_thought
    python -m tests.benchmarks.first_thought --model local:qwen2.5-coder-0.5b --max-steps 6 --least 0.9

Four runs on one server: two of a session, one of another session, and the first session again. A request can find
in the server's memory at most what its session's last one held, with the reply; what it reads beyond that is new.
`again` are tokens that it had and read once more. The last one always is; more are where a request does not begin
with the whole of the one before: after a question aside (the summing up at a limit of steps) the question is
taken out again, and code that failed twice the same way is taken out of the conversation for good. `--least`
makes the command fail where a request, but a session's first, finds a smaller share of what could be found.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from nbagent import Agent
from nbagent.events import Usage
from nbagent.models.embedded import EmbeddedModel
from nbagent.protocols import Request
from nbagent.reply import ReplyPart, UsageReport
from tests.benchmarks.endings import TABLES

FILE = "shop.csv"
RUNS = [
    ("A", "What is the median of price in shop.csv?"),
    ("A", "Which fruit in shop.csv brought most money (price times sold)?"),
    ("B", "How many prices are missing in shop.csv, and in which row?"),
    ("A", "And which fruit was sold least?"),
]


@dataclass
class Asked:
    """One request as the server answered it."""

    session: str
    run: int
    messages: bytes
    seconds: float = 0.0  #: to the first part of the reply
    usage: Usage | None = None
    begins: bool = True  #: with all the messages of the session's request before
    findable: int = 0  #: tokens that the server had of it

    @property
    def cached(self) -> int:
        return self.usage.cached_tokens if self.usage else 0

    @property
    def prompt(self) -> int:
        return self.usage.prompt_tokens if self.usage else 0


class Recorder:
    """Takes down each request of the embedded model and what came of it."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.session, self.run = "", 0
        self._stream = EmbeddedModel.stream
        recorder = self

        async def stream(self: EmbeddedModel, request: Request) -> AsyncGenerator[ReplyPart, None]:
            asked, began = recorder.note(request), time.monotonic()
            async for part in recorder._stream(self, request):
                asked.seconds = asked.seconds or time.monotonic() - began
                if isinstance(part, UsageReport):
                    asked.usage = part.usage
                yield part

        EmbeddedModel.stream = stream  # type: ignore[method-assign]

    def note(self, request: Request) -> Asked:
        """Take down one that is about to be sent."""
        # Where the reply's beginning is given, the last message goes on in the next request.
        messages = request.body[request.body.index(b'"messages":[') : -4 if request.opening else -2]
        asked = Asked(self.session, self.run, messages)
        before = next((one for one in reversed(self.asked) if one.session == self.session), None)
        if before is not None and before.usage is not None:
            asked.begins = messages.startswith(before.messages)
            asked.findable = before.usage.total_tokens
        self.asked.append(asked)
        return asked


def main() -> None:
    """Run, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="local:qwen2.5-coder-1.5b")
    parser.add_argument("--max-steps", type=int, default=5)
    parser.add_argument("--least", type=float, default=0.0)
    given = parser.parse_args()
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / FILE).write_text(TABLES[FILE])
        settings = {"model": given.model, "max_steps": given.max_steps, "folder": scratch, "approve": "auto"}
        with Agent(**settings) as first, Agent(**settings) as second:
            agents = {"A": first, "B": second}
            for number, (session, task) in enumerate(RUNS, 1):
                recorder.session, recorder.run = session, number
                result = agents[session].run_sync(task, data=[Path(scratch) / FILE])
                print(
                    json.dumps([session, number, result.reason, result.answer or result.message]), file=sys.stderr
                )
    print(
        "| session | run | prompt tokens | cached | share | again | first part, s | begins with the one before |"
    )
    print("|---" * 8 + "|")
    bad = []
    for one in recorder.asked:
        again = max(0, min(one.findable, one.prompt) - one.cached)
        share = one.cached / one.prompt if one.prompt else 0.0
        print(
            f"| {one.session} | {one.run} | {one.prompt} | {one.cached} | {100 * share:.0f} % | {again} "
            f"| {one.seconds:.1f} | {'yes' if one.begins else 'no'} |"
        )
        if one.findable and one.cached < given.least * min(one.findable, one.prompt):
            bad.append(f"run {one.run} found {one.cached} of {one.findable}")
    if bad:
        sys.exit("; ".join(bad))


if __name__ == "__main__":
    main()
