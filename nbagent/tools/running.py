"""The links of the gateway's chain that stand around the running of a tool."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from nbagent.errors import KernelLost, NbAgentError
from nbagent.events import ActionFinished, ActionStarted, Observed, OutputAdded
from nbagent.protocols import Tool, ToolResult
from nbagent.tools.breaker import Breakers
from nbagent.tools.call import Call, Rest, unavailable
from nbagent.tools.quota import Quotas
from nbagent.tools.shape import cut

#: Seconds before each further attempt.
RETRY_WAITS = (0.2, 0.8, 2.0, 5.0)
#: Seconds that a stopped tool has to end by itself; then it is left.
LAST_WORDS = 0.1
MOST_AT_ONCE = 8
MOST_CACHED = 200
#: Characters that a tool may say; the model is shown a part of them and may page through the rest.
LONGEST_TEXT = 2_000_000

#: What the network's own faults are called, by the root module of the class: the libraries need not be there.
_CONNECTION_FAULTS = {
    ("builtins", "ConnectionError"), ("socket", "gaierror"), ("ssl", "SSLEOFError"),
    ("http", "RemoteDisconnected"), ("http", "IncompleteRead"), ("urllib", "URLError"),
    ("requests", "ConnectionError"), ("requests", "Timeout"), ("requests", "ChunkedEncodingError"),
    ("httpx", "TransportError"), ("httpcore", "NetworkError"), ("httpcore", "TimeoutException"),
    ("urllib3", "HTTPError"), ("aiohttp", "ClientConnectionError"), ("openai", "APIConnectionError"),
}  # fmt: skip


# -- breaker and quota --


async def breaker(call: Call, rest: Rest) -> ToolResult:
    """Let no call through to a tool that keeps failing; only what really came of a call counts."""
    rules, tool = call.rules, call.tool
    breaker = call.context.kept(Breakers).of(tool.name, tool, rules.breaker, rules.clock)
    ticket = breaker.begin()
    if ticket is None:
        return unavailable(f"The tool {tool.name} is unavailable: {breaker.why}; {breaker.refusal()}.")
    try:
        return await rest()
    finally:
        breaker.end(ticket, call.fault)


async def quota(call: Call, rest: Rest) -> ToolResult:
    """Count a call of a tool that costs money."""
    quotas = call.context.kept(Quotas)
    if used_up := quotas.refusal(call.tool):
        return unavailable(used_up)
    quotas.use(call.tool)
    return await rest()


# -- cache --


@dataclass(slots=True)
class Results:
    """Good results of a session by tool and arguments, each with the moment at which it is stale."""

    by_call: dict[tuple[Tool, str], tuple[float, ToolResult]] = field(default_factory=dict)


async def cache(call: Call, rest: Rest) -> ToolResult:
    """Give a good result again while it is fresh, for tools that allow it."""
    seconds, now = call.tool.traits.cache, call.rules.clock()
    if seconds <= 0:
        return await rest()
    results = call.context.kept(Results).by_call
    key = (call.tool, json.dumps(call.values, sort_keys=True))
    until, kept = results.get(key, (0.0, None))
    if kept is not None and now < until:
        call.cached = True
        return replace(kept, summary=f"{kept.summary} (kept from before)".strip())
    result = await rest()
    if result.status == "ok":
        results.pop(key, None)
        results[key] = (call.rules.clock() + seconds, replace(result))
        while len(results) > MOST_CACHED:
            del results[next(iter(results))]
    return result


# -- concurrency --


class Turns:
    """Parallel-safe calls run beside each other, any other alone."""

    def __init__(self) -> None:
        self._shared = 0
        self._alone = False
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def turn(self, *, shared: bool) -> AsyncGenerator[None, None]:
        """Wait for a turn and hold it."""
        while self._alone or self._shared >= (MOST_AT_ONCE if shared else 1):
            woken = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            await woken
        self._shared += shared
        self._alone = not shared
        try:
            yield
        finally:
            self._shared -= shared
            self._alone = False
            waiting, self._waiting = self._waiting, []
            for woken in waiting:
                if not woken.done():
                    woken.set_result(None)


async def concurrency(call: Call, rest: Rest) -> ToolResult:
    """Wait until the call may run beside those that are running."""
    async with call.context.kept(Turns).turn(shared=call.tool.traits.parallel_safe):
        return await rest()


# -- the tool's own failures, time, retries --


async def contain(call: Call, rest: Rest) -> ToolResult:
    """Turn what a tool raises into an observation: it is foreign code, its fault must not end the run."""
    try:
        result = await rest()
    except KernelLost as error:
        result = ToolResult("error", "", str(error), kernel_lost=True, notice=str(error))
    except NbAgentError:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        call.fault = True
        line = f"{type(error).__name__}: {_words(error)}".rstrip(": ")
        again = f" ({call.attempts} attempts)" if call.attempts > 1 else ""
        result = ToolResult("error", line, line, notice=f"The tool {call.tool.name} failed{again}.")
    if call.edited:
        told = f"The user changed the code before it ran. What ran:\n{call.context.redactor.text(call.code)}"
        result.notice = f"{told}\n{result.notice}".rstrip()
    return result


async def time_limit(call: Call, rest: Rest) -> ToolResult:
    """Answer when the tool's time is up, whether it heeds that or not; what it gives later is dropped."""
    limit = call.tool.traits.timeout
    if limit is None:
        return await rest()
    running = asyncio.ensure_future(rest())
    try:
        done, _ = await asyncio.wait([running], timeout=limit)
    except asyncio.CancelledError:
        await _leave(running)
        raise
    if done:
        return running.result()
    call.context.over = True
    await _leave(running)
    call.fault, call.answered_by = True, time_limit.__name__
    told = f"{call.tool.name} timed out after {limit:g} s; what it gives later is dropped."
    return ToolResult(
        "timeout", "", f"timed out after {limit:g} s", notice=f"{told} Ask it for less, or go on without."
    )


async def retry(call: Call, rest: Rest) -> ToolResult:
    """Try again after a fault of the connection, where the tool may be run twice."""
    for wait in RETRY_WAITS[: call.tool.traits.retries]:
        try:
            return await rest()
        except Exception as error:
            if not is_connection_fault(error):
                raise
        await asyncio.sleep(wait)
    return await rest()


async def run(call: Call, rest: Rest) -> ToolResult:
    """Run the tool."""
    context = call.context
    call.attempts += 1
    if call.attempts == 1:
        call.started = time.monotonic()
        context.emit(
            ActionStarted(
                tool=call.tool.name,
                arguments=context.redactor.value(call.values),
                code=context.redactor.text(call.code),
                risk=call.risk or "read",
            )
        )
    try:
        result = proper(await call.tool.run(call.values, context))
    except SystemExit as error:  # an async tool's own: it must not end the loop
        raise RuntimeError(f"SystemExit: {error}") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("CancelledError: it cancelled its own work, nobody stopped it") from error
    call.fault = False
    if result.text.strip() and not context.shown and result.answer is None:
        # What the tool says is shown to the user, too, as what code prints is.
        text = cut(context.redactor.text(result.text.strip("\n")), context.observation_characters)
        context.emit(OutputAdded(output={"output_type": "stream", "name": "stdout", "text": f"{text}\n"}))
    return result


def proper(result: ToolResult) -> ToolResult:
    """Check what a tool gave: it may be anything, and what is no result is the tool's fault.

    A very long text loses its middle here, at ends of lines: to mask it whole would hold up the run.

    Raises:
        TypeError: it is no `ToolResult`, or a field of it is of another type.
        ValueError: a field has a value that is none of those it may have.
    """
    if not isinstance(result, ToolResult):
        raise TypeError(f"the tool gave {type(result).__name__}, not a ToolResult")
    for name in ("text", "summary", "notice", "changes", "answer"):
        value = getattr(result, name)
        if not isinstance(value, str) and not (name == "answer" and value is None):
            raise TypeError(f"the tool gave {type(value).__name__} for {name} of its ToolResult, not a text")
    ActionFinished(status=result.status, seconds=0, execution_count=result.execution_count)
    Observed(text="", images=list(result.images))
    return replace(result, text=cut(result.text, LONGEST_TEXT)) if len(result.text) > LONGEST_TEXT else result


def is_connection_fault(error: BaseException) -> bool:
    """Whether the connection failed, and not what came over it."""
    names = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__}
    return not names.isdisjoint(_CONNECTION_FAULTS) and ("urllib", "HTTPError") not in names


async def _leave(running: asyncio.Future[ToolResult]) -> None:
    """Cancel it and wait a moment for it to end; then it is nobody's."""
    running.cancel()
    running.add_done_callback(_looked_at)
    await asyncio.wait([running], timeout=LAST_WORDS)


def _looked_at(running: asyncio.Future[ToolResult]) -> None:
    """Take note of a failure that nobody waits for: else asyncio reports it as never retrieved."""
    if not running.cancelled():
        running.exception()


def _words(error: BaseException) -> str:
    """Give an exception's message; one whose `__str__` fails has none."""
    say: Callable[[object], str] = str
    try:
        return say(error)
    except Exception:  # noqa: BLE001 - the tool's own class may do anything
        return ""
