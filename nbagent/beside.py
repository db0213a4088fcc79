"""What goes on beside the steps of a run: room in the window, reflection, the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nbagent.aside import Aside
from nbagent.compaction import Compactor
from nbagent.context import Conversation
from nbagent.events import Event
from nbagent.guards import End, Nudge
from nbagent.meter import Meter
from nbagent.models.choose import Choice
from nbagent.plan import Planner
from nbagent.protocols import Variable
from nbagent.reflection import Reflection
from nbagent.settings import Settings


@dataclass(slots=True)
class Beside:
    """The helpers of one run, which ask the model beside its conversation."""

    aside: Aside
    compactor: Compactor
    reflection: Reflection
    planner: Planner

    @classmethod
    def of(
        cls,
        settings: Settings,
        choice: Choice,
        conversation: Conversation,
        *,
        meter: Meter,
        emit: Callable[[Event], None],
        variables: Callable[[], Sequence[Variable]],
    ) -> Beside:
        """Make them for a run; `variables` lists those of the kernel."""
        aside = Aside(choice.model, conversation, meter, emit, choice.patience)
        planner = Planner(
            settings.plan, aside, conversation, emit, None if settings.approve == "off" else meter.asked
        )
        return cls(
            aside,
            Compactor(conversation, choice.window, aside, emit, variables, planner.text),
            Reflection(settings.reflect, aside, conversation, emit),
            planner,
        )

    async def after_step(self, end: End | None, answer: str, *, last: bool) -> Nudge | End | None:
        """Let the model judge what it knows, which may hold an answer back, and tick the plan.

        `last` says that no further step may be taken.
        """
        doubt = None
        if end is None:
            doubt = await self.reflection.after_step()
        elif end.reason == "answered" and not last:
            doubt = await self.reflection.before_answer(answer)
        await self.planner.update(end if doubt is None else None)
        return doubt or end
