"""Connect a session with its CLI: carry out its plan together with its parts.

A session, a run and a session of a pool have one connection each. They differ in their plans and
parts.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from bridle._engine.engine import Engine
from bridle._engine.state import Lifecycle
from bridle._engine.turns.turn_records import Used
from bridle._observe.known_secrets import KnownSecrets
from bridle._observe.listeners import Listeners
from bridle._observe.observer import SessionObserver
from bridle._process.launch.plan import Launch, ResumedCall
from bridle._process.parked import ParkedCli
from bridle._process.session_locks import StartLock
from bridle._process.transport import Transport, TransportFactory
from bridle._runtime.finalizers import when_dropped_before
from bridle._session.actor import Actor
from bridle._session.answers.attempts import Answer, Attempts
from bridle._session.connection.session_plan import SessionPlan
from bridle._session.connection.spawning import Spawner, failing
from bridle._session.parts.lock_part import LockPart
from bridle._session.parts.part import Part
from bridle._session.parts.telemetry_part import TelemetryPart
from bridle._session.parts.waiting_part import WaitingPart
from bridle._session.preflight import running_loop
from bridle._session.readers.turn_state import TurnState
from bridle._session.turn import Turn
from bridle.content import Content
from bridle.errors import SessionStopped, StartError, UsageError

if TYPE_CHECKING:
    from bridle._session.parts.store_part import StorePart
    from bridle.sessions._journal_writer import SessionJournal
    from bridle.sessions._store_session import StoreSession


class Connection:
    """One CLI and the conversation with it.

    Args:
        plan: the checked options.
        parts: what the session does besides. The store, the journal and the locks of the plan are
            added.
        journal: the journal, if it is not that of the plan.
        lock: the lock of the conversation to resume, if another connection has had it.

    Raises:
        OptionsError: an option is invalid, or contradicts another one.
    """

    def __init__(
        self,
        plan: SessionPlan,
        parts: Sequence[Part] = (),
        *,
        journal: SessionJournal | None = None,
        lock: StartLock | None = None,
    ) -> None:
        self.plan = plan
        self.deps = plan.deps
        self.journal = journal or plan.new_journal()
        self._hooks = plan.hooks(self.journal)
        #: How the CLI is started. It changes when the conversation is loaded.
        self.launch = plan.launch(self._hooks)
        self._planned_in = os.getpid()
        self.secrets = KnownSecrets(self.launch)
        whole = weakref.ref(self)

        def forward(server: str, message: Mapping[str, object]) -> None:
            connection = whole()
            if connection is not None:
                connection.actor.forward(server, message)

        self.servers = plan.servers(forward)
        self.engine: Engine = plan.engine(self._hooks, self.launch, self.servers)
        self.is_connecting = False
        self._parked: ParkedCli | None = None
        #: The lock of the conversation to resume, until the CLI has it. A run keeps it for a CLI
        #: that continues after a crash.
        self.lock = lock or StartLock(is_needed=plan.is_real)
        self._takes_lock = self.lock.is_needed
        #: Returns the object that tools get as `ToolContext.session`. Weak, so that it can be
        #: collected.
        self.owner: Callable[[], object | None] = _nothing
        self._parts = [*self._parts_of_plan(), *parts]
        # Chosen once, so that a start or a prompt costs nothing extra without them.
        self._prepares = any(type(one).prepare is not Part.prepare for one in self._parts)
        self._sending = [one for one in self._parts if type(one).sending is not Part.sending]
        self._made: Actor | None = None

    def _parts_of_plan(self) -> list[Part]:
        plan = self.plan
        parts: list[Part] = [LockPart(follows=not plan.cli.no_session_persistence)]
        if self.stored is not None:
            parts.append(self.stored)
        elif plan.looks_first:
            parts.append(WaitingPart(plan, self.lock))
        if self.journal is not None:
            from bridle._session.parts.journal_part import JournalPart  # few sessions have one

            parts.append(JournalPart(self.journal, self.stored if plan.is_journaled else None))
        return parts

    @cached_property
    def stored(self) -> StorePart | None:
        """The part that has the store, or None."""
        if self.plan.store is None:
            return None
        from bridle._session.parts.store_part import StorePart  # few sessions have a store

        finish = None if self.journal is None else self.journal.finish
        return StorePart(self.plan, self.plan.store, self.lock, finish)

    @cached_property
    def actor(self) -> Actor:
        """The actor. It is made at its first use, on the event loop of the session."""
        engine, plan = self.engine, self.plan
        observer = SessionObserver(
            plan.sdk.telemetry,
            clock=running_loop().time,
            session_id=lambda: engine.session_id,
            model=plan.cli.model,
        )
        actor = self._made = Actor(
            engine,
            observer,
            listeners=Listeners(
                on_stderr=plan.sdk.on_stderr,
                on_warning=plan.sdk.on_warning,
                on_event=plan.bidir.on_event,
            ),
            owner=self.owner,
            closers=[self.servers.close],
            redact=self.secrets.redact,
            parts=[TelemetryPart(observer), *self._parts],
            deps=self.deps,
        )
        # The process keeps the actor alive, but not the session, so that it can be collected.
        when_dropped_before(self, actor.gone, actor.abandon)
        return actor

    @property
    def store(self) -> StoreSession | None:
        """The connection to the store, or None."""
        _ = self.actor  # the part joins it
        return None if self.stored is None else self.stored.session

    @property
    def pid(self) -> int | None:
        """The process id of the CLI, or None if it was not started."""
        return self._made.pid if self._made else None

    @property
    def is_alive(self) -> bool:
        """Whether the session can be used."""
        return self._made is not None and self._made.is_alive

    # -- starting ----------------------------------------------------------------------------------

    def plan_launch(self, resumed: ResumedCall | None = None) -> None:
        """Plan the start again, with another id or for a call that is resumed."""
        self.launch = self.plan.launch(self._hooks, resumed)

    def use(self, parked: ParkedCli, launch: Launch) -> None:
        """Use a process that was started before. Call it before `connect`."""
        self._parked, self.launch = parked, launch
        self.lock.is_needed = False  # its conversation is new
        self.engine.name_session(launch.session_id or "")

    async def connect(self) -> None:
        """Start the CLI and wait until the session is running. See `Session.connect`."""
        if self.is_connecting:
            raise UsageError("This session was already started.", fix="Create a new Session.")
        if self.engine.lifecycle is not Lifecycle.STARTING:
            raise SessionStopped("connect")
        self.is_connecting = True
        if os.getpid() != self._planned_in:  # a forked child: its parent has the id of the session
            self.plan_launch()
            self.engine.name_session(self.launch.session_id or "")
        try:
            spawn = await self._prepare() if self._prepares else self._spawn
            if self.journal is not None:
                self.journal.begin(self.launch)
            if spawn == self._spawn:
                await self._step(lambda part: part.starting())
            await self.actor.start(spawn, *self.plan.warnings)
            await self._step(lambda part: part.connected())
        finally:
            self.lock.release()
            self.lock.is_needed = self._takes_lock  # a CLI that continues resumes a conversation

    async def _step(self, step: Callable[[Part], Awaitable[None]]) -> None:
        """Let the parts carry out a step of the start. Stop the session if it fails."""
        try:
            for part in self._parts:
                await step(part)
        except BaseException:
            await self.stop()
            raise

    async def _prepare(self) -> Callable[[Actor], Transport]:
        """Let the parts prepare the start. Return the function that starts the CLI."""
        _ = self.actor  # the parts join it
        try:
            for part in self._parts:
                self.launch = await part.prepare(self.launch)
        except StartError as error:
            return failing(error)  # the actor reports it like one of the CLI
        except BaseException:
            await self.stop()
            raise
        if self.engine.lifecycle is not Lifecycle.STARTING:
            await self.stop()
            if self.stored is not None:  # it was closed before everything was loaded
                await self.stored.session.aclose(is_stopped=True)
            raise SessionStopped("connect")
        if self.stored is not None and self.launch.session_id is not None:
            self.engine.name_session(self.launch.session_id)
        return self._spawn

    def _spawn(self, actor: Actor) -> Transport:
        plan = self.plan
        spawner = Spawner(
            plan.cli,
            plan.sdk,
            self.launch,
            self.secrets,
            self.engine,
            parked=self._parked,
            lock=self.lock,
        )
        return spawner.spawn(actor, cast("TransportFactory | None", plan.bidir.transport_factory))

    # -- prompts -----------------------------------------------------------------------------------

    async def send(
        self,
        uuid: str,
        content: Content | bytes,
        timeout: float | None,
        deps: Any,
        continues: str | None = None,
        used: Used | None = None,
    ) -> Turn:
        """Send a prompt, or its encoded line.

        ``continues`` is the prompt that it continues, which has ``used`` so much of the limits.
        """
        began: list[Part] = []
        try:
            for part in self._sending:
                began.append(part)
                await part.sending(content)
            if self.journal is None:
                state = await self.actor.send(uuid, content, timeout, deps=deps, used=used)
            else:
                state = await self.journal.send(
                    self.actor, uuid, content, timeout, deps=deps, continues=continues, used=used
                )
        finally:
            for part in began:
                part.sent(uuid)
        return self.turn(state, deps)

    def turn(self, state: TurnState, deps: Any) -> Turn:
        """Return the turn of a prompt that was sent."""
        attempts = self.attempts
        return Turn(state, None if attempts is None else Answer(attempts, state, deps))

    @cached_property
    def attempts(self) -> Attempts | None:
        """What makes the final outcomes. None: the CLI's results are final."""
        plan = self.plan
        if plan.output is None and plan.retry is None and self.journal is None:
            return None
        return Attempts(
            self.actor,
            plan.output,
            output_retries=plan.output_retries,
            retry=plan.retry,
            limits=plan.sdk.limits,
            redact=self.secrets.redact,
            journal=self.journal,
        )

    # -- shutdown ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop the session. See `Session.stop`."""
        if self.journal is not None:
            self.journal.close()
        await self.actor.stop()

    async def aclose(self) -> None:
        """Shut down the session. See `Session.aclose`."""
        actor = self.actor  # the parts join it
        if self.journal is not None:
            self.journal.close()
        await (actor.close if all(part.may_close() for part in self._parts) else actor.stop)()


def _nothing() -> None:
    """Return None: tools get no session."""
