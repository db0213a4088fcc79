"""What a session spent, as a table: by step, by run, in all."""

from __future__ import annotations

from collections.abc import Iterable

from nbagent.events import AsideAnswered, Event, RunFinished, RunStarted, StepFinished, Usage
from nbagent.models.pricing import checked, dollars

#: Beyond this many steps a run is told in one line.
MOST_STEPS = 30


def in_words(usage: Usage) -> str:
    """Say it in a line, e.g. `about 5,210 in (3,000 cached), 240 out (0 reasoning), $0.012`."""
    line = (
        f"{'about ' if usage.estimated else ''}{usage.prompt_tokens:,} in ({usage.cached_tokens:,} cached), "
        f"{usage.completion_tokens:,} out ({usage.reasoning_tokens:,} reasoning)"
    )
    return line if usage.cost is None else f"{line}, {dollars(usage.cost)}"


def total(events: Iterable[Event]) -> Usage:
    """Add up a session, a run under way and questions aside included."""
    runs: dict[int, list[Event]] = {}
    for event in events:
        if isinstance(event, StepFinished | AsideAnswered | RunFinished):
            runs.setdefault(event.run, []).append(event)
    return sum(map(_of_run, runs.values()), Usage())


def _of_run(events: list[Event]) -> Usage:
    """What a run itself says at its end, which counts replies that broke off, too; else the sum so far."""
    so_far = sum((event.usage for event in events if isinstance(event, StepFinished | AsideAnswered)), Usage())
    said = next((event.usage for event in reversed(events) if isinstance(event, RunFinished)), so_far)
    return max(so_far, said, key=lambda usage: usage.total_tokens)


def spending(events: list[Event]) -> str:
    """Lay out what each step of each run took. The session's sum stands last, with the date of the prices."""
    lines = []
    for run in dict.fromkeys(event.run for event in events if isinstance(event, RunStarted)):
        ours = [event for event in events if event.run == run]
        steps = [event for event in ours if isinstance(event, StepFinished)]
        asides = [event for event in ours if isinstance(event, AsideAnswered) and event.usage.total_tokens]
        ending = next((event.reason for event in reversed(ours) if isinstance(event, RunFinished)), "unfinished")
        model = next(event.model for event in ours if isinstance(event, RunStarted))
        lines.append(f"run {run}  {model}, {ending}: {in_words(total(ours))}")
        if len(steps) <= MOST_STEPS:
            lines += [f"  step {step.step:<3} {in_words(step.usage)}" for step in steps]
        lines += [f"  {aside.purpose:<8} {in_words(aside.usage)}" for aside in asides]
    everything = total(events)
    dated = f" (prices of {checked()}, unless they were given)" if everything.cost else ""
    return "\n".join([*lines, f"session  {in_words(everything)}{dated}"])
