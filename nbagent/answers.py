"""Whether an answer may end the run: was anything computed, did it work, is it in the form that was asked for?

Everything is counted or compared, nothing is judged: what an answer is worth is for `reflection`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nbagent.answer_form import (
    completed,
    contradicted,
    missing,
    named_values,
    no_value,
    outside,
    rounded,
    said_as_asked,
    says_nothing_new,
)
from nbagent.events import ActionStatus
from nbagent.figures import FIGURES_NAMED, unsupported
from nbagent.guards import Nudge

#: How often one run's answers are doubted for each cause; then the answer stands as it is.
MOST_DOUBTS = 2

NOTHING_RUN = "Nothing was run yet, so this is a guess. Go on: compute what is asked with code, and print it."
NO_VALUE = (
    "The output has {value}, which is no result. Find out why with code: print a few values of the columns that it"
    " uses, and how many rows each step leaves. Then mend the code."
)
NOT_SHOWN = "No output shows {values}. Compute what is asked with code and print it: do not work it out yourself."
CONTRADICTED = (
    "The output has {words}, and your answer says otherwise. Answer as the output says, or mend the code."
)
NOT_COMPUTED = "The last code failed, so this answers nothing yet. Mend the code and run it again."


@dataclass(slots=True)
class Answers:
    """Checks the answers of one run with this task. Only models that act in text are held to have guessed."""

    task: str
    _acted: bool = False
    _failed: bool = False
    _shown: str = ""  #: what the last action that worked has shown
    _worked: str = ""  #: what all of them have shown
    _seen: list[str] = field(default_factory=list)  #: all that was shown so far
    _doubts: dict[str, int] = field(default_factory=dict)

    def acted(self, status: ActionStatus, shown: str) -> None:
        """Take note of an action and what it showed."""
        self._acted, self._failed = True, status in ("error", "invalid", "timeout")
        self._seen.append(shown)
        if status == "ok":
            self._shown = shown
            self._worked += f"\n{shown}"

    def doubt(self, answer: str, *, small: bool) -> Nudge | None:
        """Give what the model is told instead of the run being over, if anything."""
        doubt = self._unsupported(answer) if small else None
        doubt = doubt or self._formless(answer) or self._outside(answer)
        if doubt is None or self._doubts.get(doubt.guard, 0) >= MOST_DOUBTS:
            return None
        self._doubts[doubt.guard] = self._doubts.get(doubt.guard, 0) + 1
        return doubt

    def _unsupported(self, answer: str) -> Nudge | None:
        told = ""
        if not self._acted:
            told = NOTHING_RUN
        elif self._failed:
            told = NOT_COMPUTED
        elif value := no_value(self.task, self._shown):
            told = NO_VALUE.replace("{value}", value)
        elif words := contradicted(self.task, answer, self._shown):
            told = CONTRADICTED.replace("{words}", ", ".join(f"@{name}[{word}]" for name, word in words.items()))
        elif unseen := unsupported(answer, (self.task, *self._seen)):
            told = NOT_SHOWN.replace("{values}", ", ".join(unseen[:FIGURES_NAMED]))
        return Nudge("unsupported_answer", told) if told else None

    def completed(self, answer: str) -> str:
        """Give the answer in the task's form, as far as that needs no thought."""
        return said_as_asked(self.task, rounded(self.task, completed(self.task, answer, self._worked)))

    def _outside(self, answer: str) -> Nudge | None:
        choices = outside(self.task, answer)
        if not choices:
            return None
        told = "; ".join(
            f"{name} must be one of {', '.join(map(repr, words))}, as the task says"
            for name, words in choices.items()
        )
        return Nudge("answer_form", f"{told}. Give the whole answer again in its form.")

    def _formless(self, answer: str) -> Nudge | None:
        names = missing(self.task, answer)
        if not names:
            return None
        form = " ".join(f"@{name}[...]" for name in named_values(self.task))
        # Output is data, and this stands outside of its fence: only numbers and the task's own words are quoted.
        asked = named_values(self.task)
        printed = ((name, value) for name, value in named_values(self._shown).items() if name in asked)
        quoted = " ".join(f"@{name}[{value}]" for name, value in printed if says_nothing_new(self.task, value))
        told = f"Your answer must have exactly this form, with the values filled in: {form}"
        if quoted:
            told += f"\nThe output above has: {quoted}"
        return Nudge("answer_form", told)
