"""Sessions and runs of a pool: they can use a process that was started before them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from bridle._core.budget import Used
from bridle._core.launch import Launch
from bridle._doors.run import Run
from bridle._doors.session import InnerSession
from bridle._doors.turn import Turn
from bridle._shell.config_directory import working_directory
from bridle._shell.parking import ParkedCli, resident_bytes
from bridle._store import SessionStore
from bridle.content import Content
from bridle.errors import (
    CliExitedDuringInit,
    ControlError,
    ControlRejected,
    InitializationError,
)

_PING_TIMEOUT = 5.0
"""Seconds that an idle process has to respond before it is replaced."""


class Pooled(InnerSession):
    """What sessions and runs of a pool share."""

    #: The object that tools get, if it is not this one.
    shown: object = None
    #: True once a prompt was sent, so that there is a conversation to resume.
    has_prompts = False
    #: Called before the first prompt is sent.
    before_prompts: Callable[[], Awaitable[None]] | None = None

    @property
    def launch(self) -> Launch:
        """Return how the CLI is started."""
        return self._launch

    @property
    def store(self) -> SessionStore | None:
        """Return the store of the session."""
        return self._store

    def take(self, parked: ParkedCli) -> bool:
        """Use a process that was started before. Call it before the session connects.

        Return False if the process has other options than this session.
        """
        launch = self._launch.in_process_of(parked.launch)
        if launch is None:
            return False
        self._parked, self._launch = parked, launch
        self._engine.name_session(launch.session_id or "")
        return True

    async def connect(self) -> None:
        """Start the CLI, or claim the one that was started before.

        Raises:
            StartError: the session did not start. Its process is gone.
        """
        await super().connect()
        if not self._launch.awaits_claim:
            return
        try:
            directory = working_directory(self._launch)
            await self._actor.submit("claim_session", {"cwd": directory}, self._sdk.init_timeout)
        except BaseException as error:
            await self.stop()
            if isinstance(error, ControlRejected):
                raise InitializationError(error.message).with_process(error.process) from error
            if isinstance(error, ControlError):
                raise CliExitedDuringInit(str(error)).with_process(error.process) from error
            raise

    async def is_healthy(self) -> bool:
        """Return True if the CLI responds."""
        try:
            await self.ping(timeout=min(_PING_TIMEOUT, self._sdk.control_timeout))
        except ControlError:
            return False
        return True

    async def _send(
        self,
        uuid: str,
        content: Content | bytes,
        timeout: float | None,
        deps: Any,
        continues: str | None = None,
        used: Used | None = None,
    ) -> Turn:
        if not self.has_prompts:
            if self.before_prompts is not None:
                await self.before_prompts()
            self.has_prompts = True
        return await super()._send(uuid, content, timeout, deps, continues, used)

    def lend(self, deps: Any) -> None:
        """Give the session to another caller, whose callbacks get ``deps``."""
        self._deps = deps
        self._actor.lend(deps)

    def may_stay(self, max_memory: int | None) -> bool:
        """Return True if another caller may use the session: it works, and no turn is open."""
        if not self.alive or not self._engine.is_idle:
            return False
        used = None if max_memory is None or self.pid is None else resident_bytes(self.pid)
        return used is None or max_memory is None or used <= max_memory


class PooledSession(Pooled):
    """A session of a pool."""


class PooledRun(Pooled, Run):
    """A run of a pool."""
