"""What ends a run that the model does not end itself, and what it is told before.

A nudge is one line to the model; an end is one of the closed list of reasons. No guard looks at the clock
of the host or at text in a message: they count. Tokens, money and time are the meter's.

    guard                                          nudge at        end at   reason
    steps                                          3 before        max_steps
    the same actions with the same results         2nd time        4th      repeating
    ... that wait between two looks (polling)      6th time        12th     repeating
    actions that show nothing new                  3 in a row      6        no_progress (repeating in a cycle)
    failures                                       3, 6, 9         12       no_progress
    replies that cannot be used                    1, 2, 3         4        no_progress
    empty replies                                  1, 2            3        empty_replies
    refusals by the user / where nobody answers    -               3 / 2    denied
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nbagent.events import ActionStatus, Reason
from nbagent.repetition import History, waits
from nbagent.reply import Action

REPEAT_NUDGE = 2
REPEAT_END = 4
POLL_NUDGE = 6
POLL_END = 12
NOTHING_NEW_NUDGE = 3
NOTHING_NEW_END = 6
FAILURE_STREAK = 3
FAILURES_END = 12
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
    _history: History = field(default_factory=History)
    _nothing_new: int = 0
    _failures: int = 0
    _empty: int = 0
    _malformed: int = 0
    _denied_by_user: int = 0
    _denied_by_nobody: int = 0
    _warned_of_limit: bool = False
    _told: set[str] = field(default_factory=set)  #: guards that spoke in answer to this reply
    _heard: bool = False  #: one spoke before it, so that the model could heed it

    def before_step(self, step: int) -> End | None:
        """Say whether step number `step` (from 1) may begin."""
        if step > self.max_steps:
            steps = "one step" if self.max_steps == 1 else f"{self.max_steps} steps"
            return End("max_steps", f"Stopped after {steps} without an answer (max_steps).")
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
        """A reply with an action or an answer begins: it ends the streaks of empty and malformed ones."""
        self._empty = self._malformed = 0
        self._heard |= bool(self._told)
        self._told.clear()

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

    def acted(self, action: Action, status: ActionStatus, result: str, changes: str = "") -> Nudge | End | None:
        """Take note of an action, its result and what it changed; notice repetition, idling and failure.

        However many actions a reply has: it is told once, and the run ends only after the model could heed it.
        """
        failed = status in ("error", "invalid", "timeout")
        news = self._history.add(action, result, changes, failed=failed)
        polling = not failed and waits(action)
        self._failures = self._failures + 1 if failed else 0
        self._nothing_new = 0 if news else self._nothing_new + (not polling)
        word = self._repeating(polling) or self._failing() or self._idling()
        if isinstance(word, End):
            return word if self._heard else None
        if word is None or word.guard in self._told:
            return None
        self._told.add(word.guard)
        return word

    def _repeating(self, polling: bool) -> Nudge | End | None:
        repeats, period = self._history.repeats()
        if repeats >= (POLL_END if polling else REPEAT_END):
            what = "the same step" if period == 1 else f"the same {period} steps"
            return End("repeating", f"Stopped: the model repeated {what} {repeats} times with the same result.")
        if repeats >= REPEAT_NUDGE and self._nothing_new >= NOTHING_NEW_END:
            return End("repeating", f"Stopped: the model goes round in circles ({period} steps, nothing new).")
        if polling and repeats == POLL_NUDGE:
            return Nudge(
                "polling",
                f"Still the same after {repeats} looks. Wait longer between two looks, or go on without it.",
            )
        if repeats >= REPEAT_NUDGE and not polling:
            return Nudge(
                "repeating",
                "You did exactly this before, with the same result. Do something different, or give the answer.",
            )
        return None

    def _failing(self) -> Nudge | End | None:
        if self._failures >= FAILURES_END:
            return End("no_progress", f"Stopped: {self._failures} failures in a row.")
        if self._failures and self._failures % FAILURE_STREAK == 0 and self._nothing_new < NOTHING_NEW_END:
            return Nudge(
                "failure_streak",
                f"{self._failures} failures in a row. Look at the data again (types, columns, a few rows) "
                "before you change the code.",
            )
        return None

    def _idling(self) -> Nudge | End | None:
        if self._nothing_new >= NOTHING_NEW_END:
            return End("no_progress", f"Stopped: {self._nothing_new} steps in a row showed nothing new.")
        if self._nothing_new == NOTHING_NEW_NUDGE:
            return Nudge(
                "nothing_new",
                f"The last {self._nothing_new} steps showed nothing that you had not seen. Print what you still "
                "need to know, or give the answer with what you have.",
            )
        return None
