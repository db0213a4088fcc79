"""A stop that something kept to itself is heeded all the same.

A stop cancels the run's task once. What is awaited may lose that: `asyncio.wait_for` before Python 3.12 when it is
done in the same moment, a connection that is being made, a tool of the user's that catches everything.
"""

from __future__ import annotations

import asyncio


def heed_stop() -> None:
    """Go no further in a task that was stopped.

    Raises:
        asyncio.CancelledError: it was.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
