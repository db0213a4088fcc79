"""Keeps a conversation within the model's window: decides what is replaced by a note, and writes the note.

The decision is an event, so that the log rebuilds what was sent. The task, the system prompt and the last
steps stay as they were; each call keeps its result; the note says that it is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nbagent.aside import Aside
from nbagent.context import Conversation
from nbagent.errors import ContextOverflow
from nbagent.events import Compacted, Event, Usage, WindowLearned
from nbagent.folding import note_text
from nbagent.guards import End
from nbagent.models.window import Window
from nbagent.prompt import text_named
from nbagent.protocols import Variable
from nbagent.repetition import signature
from nbagent.turns import BYTES_PER_TOKEN, Step, encode, tokens_of

#: The share of the window that requests may take; the rest is for replies and what estimates miss.
SHARE = 0.7
#: The share of the room beside the fixed part that a compaction fills, so that the next one is far.
REFILL = 0.35
#: The share of that room that a note may take.
NOTE = 0.2
#: Tokens that must be free beside the fixed part, or no work could be done.
LEAST_ROOM = 300
#: An observation is not shortened below this; rather is its step folded.
LEAST_OBSERVATION = 60
#: Windows from which on the model is asked to sum up; below, the question itself would be a burden.
SUMMARY_WINDOW = 16_000
#: Seconds to wait for the server's word on its window where a request may be too long for a small one.
WINDOW_SECONDS = 2.0
SMALL_WINDOW = 4096

CUTS_SILENTLY = (
    "The server seems to use a window of about {tokens:,} tokens only and to cut what is longer without a word. "
    "Older steps are summed up from now on; better raise it there (Ollama: num_ctx or OLLAMA_CONTEXT_LENGTH; "
    "llama.cpp: --ctx-size)."
)
COUNTS_FEW = (
    "The server counts about {tokens:,} tokens, fewer than were sent. If its answers miss the point, it cuts "
    "requests: raise its window (Ollama: num_ctx or OLLAMA_CONTEXT_LENGTH; llama.cpp: --ctx-size)."
)
SAID = "The server says that its window is {tokens:,} tokens."
TOO_LARGE = (
    "System prompt, tools and task with its context take about {fixed:,} tokens, too many for a window of "
    "{window:,} of which {share:.0%} may be filled: shorten the task or name fewer files, offer fewer tools "
    "(toolset=small), or take a model with a larger window (context_window)."
)


def compacted(
    conversation: Conversation,
    limit: int,
    *,
    why: str,
    summary: str = "",
    variables: Sequence[Variable] = (),
    plan: str = "",
) -> Compacted | None:
    """Decide how to bring a conversation within `limit` estimated tokens; None where it fits already.

    The caller has made sure that the fixed part leaves `LEAST_ROOM`.
    """
    conversation.settle()
    before = conversation.estimated_tokens
    if before <= limit:
        return None
    room = limit - conversation.fixed_tokens()
    note_limit = max(int(room * NOTE), min(room, LEAST_ROOM) // 2)
    kept, shortened = _kept(conversation, room - note_limit, int(room * REFILL))
    folded, task, _ = conversation.split(kept)
    note = note_text(
        [turn for turn in folded if turn is not task],
        note_limit,
        nonce=conversation.nonce,
        summary=summary,
        variables=variables,
        plan=plan,
    )
    event = Compacted(
        kept_steps=kept,
        note=note,
        shortened=shortened,
        by="model" if summary else "mechanical",
        why=why,
        tokens_before=before,
        tokens_after=0,
    )
    return event.model_copy(update={"tokens_after": conversation.tokens_after(event)})


def without_copies(conversation: Conversation) -> Compacted | None:
    """Decide to take out what the model sent again although it had failed: small models copy what they see.

    How it failed stays, and in few words what was done before it. None where the last step observed nothing.
    """
    conversation.settle()
    folded, task, _ = conversation.split(0)
    last = folded[-1]
    if not isinstance(last, Step) or not last.observations:
        return None
    copied = [signature(action) for action in last.actions]
    before = [
        turn
        for turn in folded
        if turn is not task
        and not (isinstance(turn, Step) and [signature(action) for action in turn.actions] == copied)
    ]
    parts = [note_text(before, LEAST_ROOM, nonce=conversation.nonce)] if before else []
    note = "\n\n".join([*parts, "\n".join([text_named("start_anew"), *(seen.text for seen in last.observations)])])
    event = Compacted(
        kept_steps=0,
        note=note,
        by="mechanical",
        why="the model sent again what had failed",
        tokens_before=conversation.estimated_tokens,
        tokens_after=0,
    )
    return event.model_copy(update={"tokens_after": conversation.tokens_after(event)})


def _kept(conversation: Conversation, room: int, wanted: int) -> tuple[int, dict[str, str]]:
    """Give how many of the last steps stay, and shorter texts for what the last one saw, if it must be."""
    _, _, steps = conversation.split(len(conversation.turns))
    sizes = [tokens_of(step) for step in steps]
    count = 0
    while count < len(sizes) and sum(sizes[-count - 1 :]) <= min(room, wanted):
        count += 1
    if count or not steps:
        return count, {}
    if sizes[-1] <= room:
        return 1, {}
    last = steps[-1]
    return (1, shorter) if isinstance(last, Step) and (shorter := _shortened(last, room)) else (0, {})


def _shortened(step: Step, room: int) -> dict[str, str]:
    """Cut what a step observed so that it takes at most `room` tokens; nothing where that is not enough."""
    bare = tokens_of(step.with_observations(dict.fromkeys((seen.call_id for seen in step.observations), "")))
    if not step.observations or (share := (room - bare) // len(step.observations)) < LEAST_OBSERVATION:
        return {}
    return {seen.call_id: _cut(seen.text, share) for seen in step.observations}


def _cut(text: str, tokens: int) -> str:
    """Keep head and tail; what is measured is the text as it is sent."""
    keep, shown = len(text), text
    while keep and len(encode({"": shown})) > tokens * BYTES_PER_TOKEN:
        keep = keep * 4 // 5
        half = keep // 2
        left_out = len(text) - 2 * half
        tail = text[len(text) - half :]
        shown = f"{text[:half]}\n[… {left_out} characters left out to save room …]\n{tail}"
    return shown


@dataclass(slots=True)
class Compactor:
    """Makes room before a step, and after a server refused a request for its length: at most once a step."""

    conversation: Conversation
    window: Window
    aside: Aside
    emit: Callable[[Event], None]
    variables: Callable[[], Sequence[Variable]]
    plan: Callable[[], str] = lambda: ""
    _estimated: int = 0  #: of the request that was sent last
    _first: bool = True
    _done: bool = False  #: there was a compaction in this step
    _copied: bool = False  #: the model sent again what had failed

    @property
    def limit(self) -> int:
        """Estimated tokens that a request may have."""
        return int(self.window.tokens * SHARE / self.window.factor)

    async def make_room(self) -> End | None:
        """Compact before a step where it is needed; end the run where nothing could help."""
        self._done = False
        self._leave_copies_out()
        self.conversation.settle()
        large = self.conversation.estimated_tokens > SMALL_WINDOW * SHARE
        self._hear(await self.window.said(WINDOW_SECONDS if self._first and large else 0))
        self._first = False
        self._doubts_guess()
        if (end := self._too_large(self.limit)) is not None:
            return end
        if self.conversation.estimated_tokens > self.limit:
            why = f"it had come to {SHARE:.0%} of the model's window of {self.window.tokens:,} tokens"
            await self._compact(why, self.limit, ask=self.window.tokens >= SUMMARY_WINDOW)
        self._estimated = self.conversation.estimated_tokens
        return None

    def copied(self) -> None:
        """Take note that the model sent again what had failed; before the next step it is taken out."""
        self._copied = True

    def _leave_copies_out(self) -> None:
        if self._copied and (event := without_copies(self.conversation)) is not None:
            self.emit(event)
            self.window.begin_anew()
        self._copied = False

    async def after_overflow(self, overflow: ContextOverflow) -> bool:
        """Compact because the server refused the request; False where that was done before or cannot help."""
        if self._done:
            return False
        if overflow.window is not None and self.window.learn(overflow.window):
            self.emit(WindowLearned(tokens=overflow.window, why=SAID.format(tokens=overflow.window)))
        # What was refused is too long whatever we thought; a vague refusal says nothing of the window itself.
        limit = min(self.limit, int(self.conversation.estimated_tokens * SHARE))
        if self._too_large(limit) is not None:
            return False
        await self._compact("the server said that the request was too long", limit)
        self._estimated = self.conversation.estimated_tokens
        return self._done

    def counted(self, usage: Usage) -> None:
        """Learn from what the server counted for the request that was sent last."""
        if usage.estimated:
            return
        tokens = self.window.counted(self._estimated, usage.prompt_tokens, usage.cached_tokens)
        if tokens is not None and not self._doubts_guess():
            self.emit(WindowLearned(tokens=tokens, why=CUTS_SILENTLY.format(tokens=tokens)))

    def _doubts_guess(self) -> bool:
        """Give up a window that counts alone told of where no work fits in it: rather the counts are wrong."""
        if self._too_large(self.limit) is None or not (guessed := self.window.give_up_guess()):
            return False
        self.emit(WindowLearned(tokens=self.window.tokens, why=COUNTS_FEW.format(tokens=guessed)))
        return True

    def _hear(self, said: int | None) -> None:
        """Speak of the server's word where it is less than the user had set."""
        if said is not None and self.window.limit is not None and said < self.window.limit:
            self.emit(WindowLearned(tokens=said, why=SAID.format(tokens=said)))

    def _too_large(self, limit: int) -> End | None:
        fixed = self.conversation.fixed_tokens()
        if fixed + LEAST_ROOM <= limit:
            return None
        words = TOO_LARGE.format(fixed=fixed, window=self.window.tokens, share=SHARE)
        return End("max_tokens", words)

    async def _compact(self, why: str, limit: int, *, ask: bool = False) -> None:
        ask = (
            ask and self.conversation.dialect != "fenced"
        )  # small models sum up worse than a list of their steps does
        summary = await self.aside.ask("summary", text_named("summary")) if ask else ""
        event = compacted(
            self.conversation,
            limit,
            why=why,
            summary=summary,
            variables=self.variables(),
            plan=self.plan(),
        )
        if event is not None:
            self.emit(event)
            self.window.begin_anew()
            self._done = True
