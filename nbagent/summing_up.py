"""The last call of a run that reached a limit: the model sums up, and it is shown as unfinished work."""

from __future__ import annotations

from nbagent.aside import Aside
from nbagent.events import Reason
from nbagent.figures import FIGURES_NAMED, unsupported
from nbagent.guards import End
from nbagent.models.dialects.fences import FenceReader
from nbagent.models.json_stream import parse_liberally
from nbagent.prompt import text_named
from nbagent.reply import Text

#: The limits after which the model is asked; a run that was stuck has nothing to add.
LIMITS: dict[Reason, str] = {
    "max_steps": "steps",
    "max_seconds": "time",
    "max_tokens": "tokens",
    "max_cost": "money",
}
#: Stands before the summary wherever it is shown.
UNFINISHED = "Not an answer. The model's summary of the unfinished work:"
#: Seconds that the last call may take, as the limit was reached already; what came by then is shown.
SECONDS = 60.0


async def sum_up(end: End, aside: Aside) -> str:
    """Ask for a summary where a limit ended the run; "" where none is due or none can be had."""
    if end.reason not in LIMITS:
        return ""
    question = text_named("sum_up").replace("{limit}", LIMITS[end.reason])
    words = in_prose(await aside.ask("sum_up", question, seconds=SECONDS * aside.patience))
    # As an answer would be, it is held against what was observed; there is no step left to ask for more.
    missing = ", ".join(unsupported(words, aside.conversation.observed())[:FIGURES_NAMED])
    return f"{words}\n(In nothing that was observed: {missing}.)" if missing else words


def in_prose(reply: str) -> str:
    """Take the words out of a reply that keeps to its dialect all the same: an object, or a block of code."""
    if reply.startswith(("{", "```json")):
        try:
            step = parse_liberally(reply.removeprefix("```json").strip("` \n"))
        except (ValueError, RecursionError):
            return ""
        given = step.get("action_input") if isinstance(step, dict) else None
        said = given.get("answer") if isinstance(given, dict) else None
        thought = step.get("thought") if isinstance(step, dict) else None
        return next((words.strip() for words in (said, thought) if isinstance(words, str) and words.strip()), "")
    reader = FenceReader()
    shown = [*reader.feed(reply), *reader.finish()]
    return "".join(part.text for part in shown if isinstance(part, Text)).strip()
