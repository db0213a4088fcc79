"""The last call of a run that reached a limit: the model sums up, and it is shown as unfinished work."""

from __future__ import annotations

import asyncio

from nbagent.aside import Aside
from nbagent.events import Reason
from nbagent.guards import End
from nbagent.prompt import text_named

#: The limits after which the model is asked; a run that was stuck has nothing to add.
LIMITS: dict[Reason, str] = {
    "max_steps": "steps",
    "max_seconds": "time",
    "max_tokens": "tokens",
    "max_cost": "money",
}
#: Stands before the summary wherever it is shown.
UNFINISHED = "Not an answer. The model's summary of the unfinished work:"
#: Seconds that the last call may take: the limit was reached already.
SECONDS = 60.0


async def sum_up(end: End, aside: Aside) -> str:
    """Ask for a summary where a limit ended the run; "" where none is due or none can be had."""
    if end.reason not in LIMITS:
        return ""
    question = text_named("sum_up").replace("{limit}", LIMITS[end.reason])
    try:
        async with asyncio.timeout(SECONDS):
            return await aside.ask("sum_up", question)
    except TimeoutError:
        return ""
