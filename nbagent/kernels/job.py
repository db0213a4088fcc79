"""One thing that a kernel is busy with, as the one who waits for it sees it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from nbagent.events import Output


@dataclass(eq=False)
class Job:
    """The outputs of one execution, and the wish to stop it."""

    stop: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    items: asyncio.Queue[Output | None] = field(default_factory=asyncio.Queue)  #: None: no more

    def ask_to_stop(self) -> None:
        """Have the code interrupted; harmless when it is over."""
        if not self.stop.done():
            self.stop.set_result(None)
