"""A session: one conversation over one kernel, kept between cells.

Here log, kernel, tools and model meet. All that happens goes through `_emit`: masked, stored, then shown.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbagent import workplace
from nbagent.beside import Beside
from nbagent.closing import Closing
from nbagent.context import Conversation
from nbagent.errors import NbAgentError, TransferError, UsageError
from nbagent.events import (
    Adopted,
    Event,
    FilesChanged,
    KernelRestored,
    RunFinished,
    RunStarted,
    SessionResumed,
    SessionStarted,
    StepFinished,
    StepStarted,
    Undone,
)
from nbagent.guards import Guards
from nbagent.loop import Loop
from nbagent.meter import Meter
from nbagent.models.choose import Choice
from nbagent.models.dialects import dialect_named
from nbagent.models.keeper import ModelKeeper
from nbagent.negotiation import Negotiation
from nbagent.prompt import run_message
from nbagent.protocols import Host, Kernel, View
from nbagent.provenance import versions
from nbagent.record import Record
from nbagent.remembered import FILE, Remembered
from nbagent.replay_run import Replay, recorded_choice
from nbagent.resume import Ask, Restoration, Resumption, endings_of, in_its_folder, past_of
from nbagent.session_store import SessionLog, SessionStore
from nbagent.settings import Resolved, Settings
from nbagent.tools.built_in import built_in
from nbagent.tools.code import RunCode
from nbagent.tools.gateway import Gateway
from nbagent.tools.registry import Registry, package_entries
from nbagent.tools.sharing import Sharing
from nbagent.undo import Undo, news_of_undo
from nbagent.workplace import RunContext, writable


class Session:
    """Lives on the agent thread: every coroutine here is awaited there. `stop` may be called from anywhere."""

    def __init__(
        self,
        resolved: Resolved,
        *,
        store: SessionStore,
        host: Host | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        past = resolved.settings.session
        self.log: SessionLog = store.open(past) if past else store.create()
        try:
            self.events: list[Event] = store.read(self.log.id) if past else []
            self._past = past_of(self.events)
            self.resolved = resolved = in_its_folder(resolved, self._past)
            self.folder = workplace.working_folder(resolved.settings)
            self.kernel: Kernel = workplace.make_kernel(resolved.settings, self.folder, self.log.folder, host)
        except NbAgentError:
            self.log.close()
            raise
        self._host = host
        self._copies_from = workplace.copies_from(host, self.kernel)  # whose variables are brought
        self._environment = environment
        self.redactor = workplace.redactor_for(environment, resolved.settings)
        self._conversation = Conversation(dialect_named)
        self._views: list[View] = []
        self._run = self._past.runs
        self._step = 0
        self._models = ModelKeeper()
        self._running: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[object] | None = None  # who runs, until there is a run to stop
        self._busy = asyncio.Lock()
        self._syncing: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._said: set[str] = set()
        self._nonce = self._past.nonce or workplace.new_nonce()
        self._sharing = Sharing()
        self._users_cells = workplace.UsersHistory()
        self.kept: dict[type[Any], Any] = {}  # what tools keep for the session, by its class
        tools = built_in(self.folder, self._sharing)
        self._run_code = next(tool for tool in tools if isinstance(tool, RunCode))
        self.tools = Registry(tools)
        self.kernel.generation = self._past.generation
        self._kernel_told = False  # whether the log knows of this process's kernel
        self._resumption = Resumption()
        self._remembered = Remembered(self.log.folder.parents[1] / FILE)  # beside the sessions
        if past:
            self._resume()
        else:
            self._emit(SessionStarted(nonce=self._nonce, versions=versions(), folder=str(self.folder)))

    @property
    def id(self) -> str:
        """The session's id."""
        return self.log.id

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._busy.locked()

    async def run(
        self,
        task: str,
        *,
        view: View,
        resolved: Resolved | None = None,
        data: Sequence[Path] = (),
        record: Record | None = None,
    ) -> RunFinished:
        """Work on one task to an ending; with `record`, by doing again what it holds, without a model.

        Raises:
            UsageError: the task or the settings cannot be used; nothing was begun.
            StoreError: the log cannot be written.
            asyncio.CancelledError: stopped before it had begun.
        """
        if not task.strip():
            raise UsageError("the task is empty: write below %%agent what you want to know or have done")
        self._refuse_while_busy()
        async with self._busy:
            settings = self._take_settings(resolved)
            self._preparing = asyncio.current_task()
            self._views.append(view)
            try:
                await self._restore(settings, view.ask)
                choice = recorded_choice(record, settings) if record else await self._models.choose(settings)
                return await self._work(task, settings, choice, data, record)
            finally:
                self._preparing = None
                self._views.remove(view)
                self._step = 0
                await asyncio.gather(self.log.sync(), self._sharing.stored())

    async def restore(self, ask: Ask) -> KernelRestored | None:
        """Run again the cells that made a resumed session's variables; None where there is nothing to bring back.

        The next run does it where this was not called before.

        Raises:
            KernelNotStarted: no kernel came up; it can be called again.
            asyncio.CancelledError: stopped; what was done is kept and told.
        """
        async with self._busy:
            return await self._restore(self.resolved.settings, ask)

    def _refuse_while_busy(self) -> None:
        if self.running:
            raise UsageError("this session is at work already: wait for it, or stop it first")

    def stop(self) -> None:
        """Stop the run under way, if any. Safe to call from any thread, any number of times."""
        if (running := self._running or self._preparing) is not None:
            running.get_loop().call_soon_threadsafe(self._cancel, running)

    async def adopt(self, name: str) -> str:
        """Copy a variable of the agent's kernel into the user's; give its summary.

        Raises:
            TransferError: it does not exist or cannot travel.
        """
        if self._host is None:
            raise TransferError("there is no notebook here to adopt into")
        summary = await workplace.hand_over(name, self.kernel, self._host, self.log.folder)
        self._emit(Adopted(name=name, summary=summary))
        return summary

    async def bring(self, name: str) -> str:
        """Copy a variable of the user's into the agent's kernel; give its summary. Raises `TransferError`.

        It is there then; the session's own copy is on its way to the disk (see `stored`).
        """
        if self._host is None:
            raise TransferError("there is no notebook here to bring from")
        await self.kernel.start()
        settings = self.resolved.settings
        return await self._sharing.bring(name, self._run_context(settings, settings.observation_characters))

    async def stored(self) -> None:
        """Wait until what was brought is on the disk, for an export or another process."""
        await self._sharing.stored()

    async def undo(self, ask: Ask, count: int = 1, *, rerun: bool = False, files: bool = True) -> Undone:
        """Undo the last `count` actions that ran code: variables and, unless `files` is false, files.

        Raises:
            UsageError: there are not so many, or cells would have to run again and `rerun` is false.
        """
        self._refuse_while_busy()
        async with self._busy:
            begun = self._resumption.plan is None
            undo = Undo(self.events, self.kernel, self._sharing, self.log.folder, self._emit, begun)
            undone = await undo(count, rerun=rerun, files=files)
            if undone.how == "rerun":
                self._plan_rerun()
                await self._restore(self.resolved.settings, ask) if begun else None
            return undone

    async def close(self) -> None:
        """End the kernel and the model's connections, and let go of the log."""
        self.stop()
        async with self._busy:
            if self._starting is not None:
                await asyncio.wait([self._starting])
            await asyncio.gather(self.kernel.close(), self._sharing.stored())
            await self._models.close()
            self.log.close()

    # -- resume ------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Take up the log: the conversation, the run that was cut off, what made the variables."""
        for event in self.events:
            self._conversation.add(event)
        self._emit(SessionResumed(nonce=self._nonce, versions=versions(), folder=str(self.folder)))
        for event in endings_of(self.events):
            self._run, self._step = event.run, event.step
            self._emit(event)
        self._step = 0
        self._plan_rerun()

    def _plan_rerun(self) -> None:
        context = self._run_context(self.resolved.settings, self.resolved.settings.observation_characters)
        context.emit = self._emit_of_rerun
        self._resumption.plan = Restoration.of(self.events, self._run_code, self._sharing, context)

    def _emit_of_rerun(self, event: Event) -> None:
        """Record what a cell that runs again does to files; what it gives was told the first time."""
        if isinstance(event, FilesChanged):
            self._emit(event)

    async def _restore(self, settings: Settings, ask: Ask) -> KernelRestored | None:
        async def start() -> None:
            await asyncio.shield(self._kernel_starting(settings))

        return await self._resumption.restore(settings.rerun, ask, start, self._emit)

    # -- one run ------------------------------------------------------------------------------------

    async def _work(
        self, task: str, settings: Settings, choice: Choice, data: Sequence[Path], record: Record | None
    ) -> RunFinished:
        self._run += 1
        self._sharing.run_begins()
        await asyncio.to_thread(package_entries)  # imports what packages bring, which may take its time
        terms = self._terms(task, settings, choice)
        choice = terms.choice
        context = await workplace.surroundings(task, data, self.folder, self._host, settings.cells)
        told = "\n".join(filter(None, [*news_of_undo(self.events), self._resumption.take_news()]))
        context = replace(context, news=told, kernel=settings.kernel)
        self._emit(
            RunStarted(
                task=task,
                message=self.redactor.text(
                    run_message(task, context, self._nonce, dialect=choice.dialect, approach=settings.approach)
                ),
                model=choice.name,
                host=choice.model.host,
                label=choice.model.label,
                notes=workplace.new_notes(self.resolved, choice, self._said),
                settings=settings.model_dump(mode="json", exclude={"api_key"}, exclude_defaults=True),
            )
        )
        terms.begin()
        worker = self._replay(settings, terms, record) if record else self._loop(settings, terms)
        self._running, self._preparing = asyncio.create_task(worker.run()), None
        try:
            await asyncio.shield(self._running)
        except asyncio.CancelledError:  # whoever awaits us was cancelled: the run must still end properly
            self._cancel(self._running)
            await self._running
            raise
        finally:
            self._running = None
        return next(event for event in reversed(self.events) if isinstance(event, RunFinished))

    def _replay(self, settings: Settings, terms: Negotiation, record: Record) -> Replay:
        return Replay(
            record=record,
            gateway=terms.gateway,
            emit=self._emit,
            ask=self._views[-1].ask,
            context=self._run_context(settings, settings.observation_characters),
            kernel_ready=self._kernel_starting(settings),
        )

    def _loop(self, settings: Settings, terms: Negotiation) -> Loop:
        choice = terms.choice
        limits = (settings.max_tokens, settings.max_cost, settings.max_seconds)
        meter = Meter(self._emit, self._views[-1].ask, choice.price, *limits)
        return Loop(
            model=choice.model,
            terms=terms,
            conversation=self._conversation,
            guards=Guards(settings.max_steps),
            meter=meter,
            emit=self._emit,
            ask=meter.asked,
            tool_context=self._run_context(settings, choice.observation_characters, choice.image_pixels),
            kernel_ready=self._kernel_starting(settings),
            beside=Beside.of(
                settings,
                choice,
                self._conversation,
                meter=meter,
                emit=self._emit,
                variables=self.kernel.known_variables,
            ),
        )

    def _cancel(self, running: asyncio.Task[Any]) -> None:
        if running is self._preparing:
            # A connection that is just being made loses a cancellation now and then: say it until it is heard.
            running.cancel()
            running.get_loop().call_later(0.5, self._cancel, running)
        elif running is self._running and not running.cancelling():
            running.cancel()  # a second one would break into the first one's tidying up

    def _kernel_starting(self, settings: Settings) -> asyncio.Task[None]:
        """Start the kernel while the model reads; a run that is over before does not wait for it."""
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start_kernel(settings))
            self._starting.add_done_callback(workplace.retrieved)
        return self._starting

    async def _start_kernel(self, settings: Settings) -> None:
        before = self.kernel.generation
        await self.kernel.start()
        if not self._kernel_told or self.kernel.generation != before:
            resumed, self._kernel_told = bool(self._past.runs) and not self._kernel_told, True
            self._emit(workplace.kernel_started(self.kernel, settings, resumed))
            self._users_cells.begin_anew()
        if self._host is not None and self.kernel.has_the_users:
            for event in await self._users_cells.news(self._host, settings.kernel):
                self._emit(event)

    def _run_context(self, settings: Settings, observation_characters: int, image_pixels: int = 0) -> RunContext:
        return RunContext(
            kernel=self.kernel,
            host=self._copies_from,
            folder=self.folder,
            allow_write=writable(settings),
            session_folder=self.log.folder,
            redactor=self.redactor,
            nonce=self._nonce,
            cell_timeout=settings.cell_timeout,
            observation_characters=observation_characters,
            image_pixels=image_pixels,
            emit=self._emit,
            things=self.kept,
        )

    def _terms(self, task: str, settings: Settings, choice: Choice) -> Negotiation:
        """Begin to agree with the model's server on dialect and fields."""

        def gateway_for(choice: Choice) -> Gateway:
            closing, with_host = Closing(choice.dialect, self.redactor.text(task)), self._copies_from is not None
            return workplace.make_gateway(self.tools, settings, choice, with_host, closing, self.kept)

        return Negotiation(choice, gateway_for, self._remembered, self._emit)

    def _take_settings(self, resolved: Resolved | None) -> Settings:
        before, self.resolved = self.resolved.settings, workplace.taken_over(self.resolved, resolved)
        settings = self.resolved.settings
        if (settings.api_key, settings.secret_patterns) != (before.api_key, before.secret_patterns):
            self.redactor = workplace.redactor_for(self._environment, settings)
        return settings

    def _emit(self, event: Event) -> None:
        """Mask, stamp, store, take into the conversation, then show."""
        if isinstance(event, StepStarted):
            self._step += 1
        event = workplace.masked(event, self.redactor).model_copy(update={"run": self._run, "step": self._step})
        event = self.log.append(event)
        if event.stored:
            self.events.append(event)
            self._conversation.add(event)
        if isinstance(event, StepFinished):
            self._syncing = asyncio.ensure_future(self.log.sync())
        for view in self._views:
            view.show(event)
