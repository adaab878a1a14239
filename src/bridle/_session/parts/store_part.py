"""The store of a session: copy what the CLI saves, and hold the lease until the end."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from bridle._engine import actions as act
from bridle._process.locate import find_cli
from bridle._records.session_store import SessionStore
from bridle._session.parts.part import Part, Sees
from bridle.sessions._store_session import StoreSession

if TYPE_CHECKING:
    from bridle._process.launch.plan import Launch
    from bridle._process.process import CliProcess
    from bridle._process.session_locks import StartLock
    from bridle._session.actor import Actor
    from bridle._session.connection.session_plan import SessionPlan


class StorePart(Part):
    """Connects a session with its store.

    Args:
        plan: the plan of the session.
        store: the store.
        lock: the lock of the conversation to resume.
        finish_journal: writes the last entries of the journal, if there is one.
    """

    def __init__(
        self,
        plan: SessionPlan,
        store: SessionStore,
        lock: StartLock,
        finish_journal: Callable[[float], Awaitable[None]] | None,
    ) -> None:
        self._plan = plan
        self._store = store
        self._lock = lock
        self._finish_journal = finish_journal
        self._session: StoreSession | None = None

    @property
    def session(self) -> StoreSession:
        """Return the connection to the store. The session has an actor."""
        assert self._session is not None, "the part has joined"
        return self._session

    def join(self, actor: Actor) -> None:
        """Connect the store with the session."""
        super().join(actor)
        engine = actor.engine
        self._session = StoreSession(
            self._store,
            self._plan.sdk.load_timeout,
            session_id=lambda: engine.session_id,
            warn=actor.warn,
            fail=actor.fail,
        )
        if self._finish_journal is not None:
            self._session.finish_journal = self._finish_journal

    def sees(self) -> Sees:
        """See the entries that the CLI reports."""
        return {act.Mirror: self.session.add}

    async def prepare(self, launch: Launch) -> Launch:
        """Take the lock and the lease, and load the conversation to resume."""
        cli, plan = self._plan.cli, self._plan
        is_asked = plan.is_real and not plan.sdk.skip_version_check
        named = cli.cli_path
        return await self.session.prepare(
            launch,
            cli.resume_session_id,
            continues=cli.continue_session,
            cli_path=find_cli(None if named is None else os.fspath(named)) if is_asked else None,
            admit=plan.admit,
            lock=partial(self._lock.take, launch),
            wait=plan.wait,
        )

    def started(self, process: CliProcess) -> None:
        """Keep the locks of the CLI until the store has all entries."""
        self.session.keep(process.locks)

    async def close(self) -> None:
        """Copy the last entries to the store. End the process before the wait for the store."""
        actor, session = self.actor, self.session
        try:
            if actor.is_started:
                await session.read_files(is_clean=actor.engine.process.exit_code == 0)
                await actor.release_process()
        finally:
            await session.aclose(is_stopped=actor.engine.is_stopped)
