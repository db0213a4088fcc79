"""One session, one kernel and one server that many tests share, as the cells of a notebook do."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from nbagent.events import RunFinished
from nbagent.session import Session
from nbagent.settings import resolve
from nbagent.stores.files import FileStore
from tests.scripted_server import Response, ScriptedServer, sse
from tests.test_session import Recorder


def used(response: Response, prompt: int, completion: int, **more: Any) -> Response:
    """The response with a report of its tokens."""
    usage = {"usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}, "choices": []}
    return sse(*response.items, usage)


class Notebook:
    """One session, one kernel, one server whose script grows from cell to cell."""

    def __init__(self, folder: Path, server: ScriptedServer | None = None) -> None:
        self.folder = folder
        self.store = FileStore(folder / "home")
        self.server = server or ScriptedServer()
        self.session: Session | None = None
        self.view = Recorder()

    async def cell(self, *responses: Response, view: Recorder | None = None, **settings: Any) -> RunFinished:
        self.server.responses += responses
        given = {"model": "stub", "base_url": self.server.base_url, "folder": str(self.folder), **settings}
        resolved = resolve(given, os.environ)
        if self.session is None:
            self.session = Session(resolved, store=self.store, environment=os.environ)
        self.view = view or Recorder()
        finished = await self.session.run("count", view=self.view, resolved=resolved)
        self.server.assert_complete()
        return finished

    def last(self, count: int) -> list[dict[str, Any]]:
        return self.server.bodies[-count:]


@asynccontextmanager
async def open_notebook(folder: Path, server: ScriptedServer | None = None) -> AsyncIterator[Notebook]:
    """Open one, and end its kernel behind it; a server that is given is left running."""
    made = Notebook(folder, server)
    with made.server if server is None else nullcontext():
        yield made
        if made.session is not None:
            await made.session.close()
