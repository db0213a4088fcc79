"""What ends a run that the model does not end itself, and what it is told before.

A nudge is one line to the model; an end is one of the closed list of reasons. No guard looks at the clock
of the host or at text in a message: they count.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field

from nbagent.events import ActionStatus, Reason
from nbagent.reply import Action

#: The same call with the same result: said at the second time, ended at the fourth.
REPEAT_NUDGE = 2
REPEAT_END = 4
#: Longest cycle of different steps that is recognised when it repeats.
LONGEST_CYCLE = 3
FAILURE_STREAK = 3
EMPTY_REPLIES = 3
MALFORMED_REPLIES = 4
#: A user who said no three times in one run means it; where nobody answers, twice is enough.
DENIALS_BY_USER = 3
DENIALS_BY_NOBODY = 2
STEPS_LEFT_WARNING = 3


@dataclass(frozen=True, slots=True)
class Nudge:
    """One line to the model, from the guard of that name."""

    guard: str
    text: str


@dataclass(frozen=True, slots=True)
class End:
    """The run is over for this reason; `message` is for people."""

    reason: Reason
    message: str


@dataclass(slots=True)
class Guards:
    """The counters of one run."""

    max_steps: int
    max_seconds: float
    _seen: list[tuple[str, str]] = field(default_factory=list)
    _failures: int = 0
    _empty: int = 0
    _malformed: int = 0
    _denied_by_user: int = 0
    _denied_by_nobody: int = 0
    _warned_of_limit: bool = False
    _acted: bool = False
    _answer_doubted: bool = False

    def before_step(self, step: int, seconds: float) -> End | None:
        """Say whether step number `step` (from 1) may begin after `seconds` of the run."""
        if step > self.max_steps:
            return End("max_steps", f"Stopped after {self.max_steps} steps without an answer (max_steps).")
        if seconds > self.max_seconds:
            return End("max_seconds", f"Stopped after {self.max_seconds:.0f} s without an answer (max_seconds).")
        return None

    def steps_left(self, step: int) -> Nudge | None:
        """Speak of the limit once, when three steps remain."""
        left = self.max_steps - step
        if left != STEPS_LEFT_WARNING or self._warned_of_limit:
            return None
        self._warned_of_limit = True
        return Nudge("steps_left", f"({left} steps remain: work towards the answer.)")

    def empty_reply(self) -> Nudge | End:
        """React to a reply with neither text nor action."""
        self._empty += 1
        if self._empty >= EMPTY_REPLIES:
            return End("empty_replies", f"The model sent {EMPTY_REPLIES} empty replies in a row.")
        return Nudge("empty_reply", "Your reply was empty. Run the next piece of code, or give the answer.")

    def malformed_reply(self, correction: str) -> Nudge | End:
        """React to a reply that cannot be used."""
        self._malformed += 1
        if self._malformed >= MALFORMED_REPLIES:
            return End("no_progress", f"The model sent {MALFORMED_REPLIES} unusable replies in a row.")
        return Nudge("format", correction)

    def usable_reply(self) -> None:
        """A reply with an action or an answer ends the streaks of empty and malformed ones."""
        self._empty = self._malformed = 0

    def unsupported_answer(self) -> Nudge | None:
        """Doubt, once, an answer that was given before anything was run: small models like to guess."""
        if self._acted or self._answer_doubted:
            return None
        self._answer_doubted = True
        return Nudge(
            "unsupported_answer",
            "Nothing was run yet, so this is a guess. Go on: compute what is asked with code, and print it.",
        )

    def denied(self, *, by_user: bool) -> End | None:
        """Count a refusal."""
        if by_user:
            self._denied_by_user += 1
        else:
            self._denied_by_nobody += 1
        if self._denied_by_user >= DENIALS_BY_USER:
            return End("denied", "Stopped: you refused what the model wanted to do three times.")
        if self._denied_by_nobody >= DENIALS_BY_NOBODY:
            return End(
                "denied", "Stopped: the model's actions need a yes and nobody is there to give it (--approve)."
            )
        return None

    def acted(self, action: Action, status: ActionStatus, result: str) -> Nudge | End | None:
        """Take note of an action and its result; notice repetition and streaks of failure."""
        self._acted = True
        self._seen.append((signature(action), result))
        repeats, period = self._repeats()
        if repeats >= REPEAT_END:
            what = "the same step" if period == 1 else f"the same {period} steps"
            return End("repeating", f"Stopped: the model repeated {what} {repeats} times with the same result.")
        if repeats >= REPEAT_NUDGE:
            return Nudge(
                "repeating",
                "You did exactly this before, with the same result. Do something different, or give the answer.",
            )
        if status in ("error", "invalid", "timeout"):
            self._failures += 1
            if self._failures % FAILURE_STREAK == 0:
                return Nudge(
                    "failure_streak",
                    f"{self._failures} failures in a row. Look at the data again (types, columns, a few rows) "
                    "before you change the code.",
                )
        else:
            self._failures = 0
        return None

    def _repeats(self) -> tuple[int, int]:
        """Give how often the latest cycle of steps stands at the end of the run, and its length."""
        best = (1, 1)
        for period in range(1, LONGEST_CYCLE + 1):
            cycle = self._seen[-period:]
            if len(cycle) < period:
                break
            count = 1
            while self._seen[-(count + 1) * period : -count * period] == cycle:
                count += 1
            if count > best[0]:
                best = (count, period)
        return best


def signature(action: Action) -> str:
    """What makes two actions the same: key order, white space and comments do not count."""
    try:
        arguments = json.loads(action.arguments)
    except ValueError:
        return f"{action.tool} {action.arguments.strip()}"
    if isinstance(arguments, dict) and isinstance(arguments.get("code"), str):
        try:
            arguments = {**arguments, "code": ast.dump(ast.parse(arguments["code"]))}
        except (SyntaxError, ValueError, RecursionError):
            arguments = {**arguments, "code": " ".join(arguments["code"].split())}
    return f"{action.tool} {json.dumps(arguments, sort_keys=True)}"
