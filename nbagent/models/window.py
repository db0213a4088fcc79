"""How many tokens a model takes: asked from the server where it says, else what is set, else a guess.

llama.cpp says it at `/props`, vLLM and most hosts in the list of models, Ollama at `/api/show` and `/api/ps`.
Not knowing is no error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nbagent.errors import ModelError

#: Where neither the server nor a setting says.
ASSUMED_TOKENS = 100_000
#: Less than this is no window of a model that could do this work, but a misunderstanding.
LEAST_TOKENS = 512
#: A count that is less than this share of our estimate is no matter of estimating.
PLAUSIBLE = 0.7
#: Where a request grew, at least this share of the growth shows in an honest count.
HONEST_GROWTH = 0.3
MOST_FACTOR = 2.0
#: Names that servers give it in their list of models, in the order of trust: set for this server, then possible.
_IN_LISTING = ("max_model_len", "loaded_context_length", "n_ctx", "context_window", "context_length")
_IN_LISTING_TOO = ("max_context_length",)

#: `OpenAIChat.fetch`: a path, and a body to post to it.
Fetch = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class Window:
    """What is believed of a model's window now, in tokens.

    `limit` is the user's own setting, which is never exceeded; `factor` is what the server counts for one
    token of our estimates.
    """

    limit: int | None = None
    tokens: int = ASSUMED_TOKENS
    factor: float = 1.0
    _asking: asyncio.Task[int | None] | None = field(default=None, repr=False)
    _before: tuple[int, int] | None = field(default=None, repr=False)  #: estimated and counted, where these differ

    _before_guess: int = 0  #: what was believed before counts alone told of a smaller one
    _distrusted: bool = False  #: this server's counts led astray

    def __post_init__(self) -> None:
        if self.limit is not None:
            self.tokens = self.limit

    def ask(self, question: Coroutine[Any, Any, int | None]) -> None:
        """Begin to ask; `said` gives what came back."""
        self._asking = asyncio.create_task(question)

    async def said(self, seconds: float = 0) -> int | None:
        """Take the server's word, once, when it is there; wait for it at most so long."""
        if self._asking is None:
            return None
        if seconds and not self._asking.done():
            await asyncio.wait([self._asking], timeout=seconds)
        if not self._asking.done():
            return None
        asked, self._asking = self._asking, None
        # Whatever a server gave that could not be read: it has not said.
        said = None if asked.cancelled() or asked.exception() else asked.result()
        if said is not None:
            self.learn(said)
        return said

    def learn(self, tokens: int) -> bool:
        """Take what the server said or showed; say whether that is less than was believed."""
        tokens = min(tokens, self.limit or tokens)
        if tokens < LEAST_TOKENS:
            return False
        self._before_guess = 0
        less, self.tokens = tokens < self.tokens, tokens
        return less

    def counted(self, estimated: int, counted: int, cached: int) -> int | None:
        """Compare what the server counted for a request with our estimate.

        Give the window that it seems to use where it cuts in silence: twice in a row it counted far less than
        there was, and what was added in between did not show. No judgement where it tells of cached tokens,
        or of too few to be true: it may count only what was not cached.
        """
        if not estimated or counted < LEAST_TOKENS or self._distrusted:
            return None
        if counted >= PLAUSIBLE * estimated:
            self.factor = min(MOST_FACTOR, counted / estimated)
        if counted >= PLAUSIBLE * estimated or cached:
            self._before = None
            return None
        before, self._before = self._before, (estimated, counted)
        if before is None or counted - before[1] > HONEST_GROWTH * max(0, estimated - before[0]):
            return None
        self.begin_anew()
        believed = self.tokens
        if not self.learn(counted):
            return None
        self._before_guess = believed
        return counted

    def give_up_guess(self) -> int:
        """Believe again what was believed before a guess, and no count from now on; give the guess, or 0."""
        if not self._before_guess:
            return 0
        guessed, self.tokens = self.tokens, self._before_guess
        self._before_guess, self._distrusted, self.factor = 0, True, 1.0
        return guessed

    def begin_anew(self) -> None:
        """The next request is shorter than the last: counts cannot be compared."""
        self._before = None

    async def close(self) -> None:
        """Ask no longer."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])
            _ = asking.cancelled() or asking.exception()


async def asked_window(name: str, fetch: Fetch) -> int | None:
    """Ask the server about the model `name`; None where it does not say.

    `fetch` gets a path, or posts a body to it: below the base URL, or from the server's root where the path
    begins with `//`.
    """
    listing = await _answer(fetch("/models"))
    rows = _rows(listing)
    ours = [row for row in rows if name in (row.get("id"), row.get("name"))] or (rows if len(rows) == 1 else [])
    owners = {str(row.get("owned_by", "")).lower() for row in ours}
    if owners & {"llamacpp", "llama.cpp"} and (said := _props(await _answer(fetch("//props")))):
        return said
    if (said := _first(ours, _IN_LISTING)) is not None:
        return said
    if owners & {"library", "ollama"}:
        return await _ollama(name, fetch)
    if "organization_owner" in owners:  # LM Studio
        rows = _rows(await _answer(fetch("//api/v0/models")))
        return _first([row for row in rows if row.get("id") == name], ("loaded_context_length",))
    return _first(ours, _IN_LISTING_TOO)


async def _ollama(name: str, fetch: Fetch) -> int | None:
    """Take what the loaded model runs with, else what its file sets; what it could take is not what it gets."""
    running = await _answer(fetch("//api/ps"))
    loaded = [row for row in _rows(running) if name in (row.get("name"), row.get("model"))]
    if (said := _first(loaded, ("context_length",))) is not None:
        return said
    shown = await _answer(fetch("//api/show", {"model": name}))
    parameters = shown.get("parameters") if isinstance(shown, dict) else None
    found = re.search(r"^num_ctx\s+(\d{1,9})\b", parameters, re.MULTILINE) if isinstance(parameters, str) else None
    return _tokens(int(found[1])) if found else None


def _rows(listing: Any) -> list[dict[str, Any]]:
    rows = listing.get("data") or listing.get("models") if isinstance(listing, dict) else listing
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _props(answer: Any) -> int | None:
    if not isinstance(answer, dict):
        return None
    settings = answer.get("default_generation_settings")
    return _first([settings, answer] if isinstance(settings, dict) else [answer], ("n_ctx",))


def _first(rows: Iterable[dict[str, Any]], names: Iterable[str]) -> int | None:
    rows = list(rows)
    for name in names:
        for row in rows:
            for holder in (row, row.get("meta"), row.get("top_provider")):
                if isinstance(holder, dict) and (said := _tokens(holder.get(name))) is not None:
                    return said
    return None


def _tokens(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= LEAST_TOKENS
    return int(value) if good else None


async def _answer(question: Awaitable[Any]) -> Any:
    with suppress(ModelError):
        return await question
    return None
