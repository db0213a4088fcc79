"""Running a function that may never return without waiting for it at the end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


async def in_a_thread(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call `function` in a daemon thread of its own; give its result or raise what it raises.

    Cancelling stops the waiting at once: what the function gives later is dropped. Not `asyncio.to_thread`:
    its few workers would be used up by functions that hang, and are waited for when the process ends.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def work() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(function, *arguments, **named)
        except BaseException as raised:  # noqa: BLE001 - handed to whoever waits
            error = raised
            if not isinstance(raised, Exception) or isinstance(raised, StopIteration):
                # An exit, an interrupt or a cancellation of the function's own must not end our loop.
                error = RuntimeError(f"{type(raised).__name__}: {raised}".rstrip(": "))
        with suppress(RuntimeError):  # the loop is over: nobody waits
            loop.call_soon_threadsafe(settle, value, error)

    context = contextvars.copy_context()
    threading.Thread(target=work, name=f"nbagent-tool-{getattr(function, '__name__', '')}", daemon=True).start()
    return await done
