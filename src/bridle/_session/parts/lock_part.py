"""Locks: one CLI at a time continues a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridle._engine import actions as act
from bridle._session.parts.part import Part, Sees
from bridle.errors import SessionInUseError
from bridle.events import SdkWarning, WarningKind

if TYPE_CHECKING:
    from bridle._process.process import CliProcess
    from bridle._process.session_locks import SessionLocks


class LockPart(Part):
    """Locks sessions whose ids are not known at the start of the CLI.

    Args:
        follows: False for a CLI that saves nothing, so that there is nothing to lock.
    """

    def __init__(self, *, follows: bool) -> None:
        self._follows = follows
        self._locks: SessionLocks | None = None

    def sees(self) -> Sees:
        """See the ids of sessions that the CLI writes from now on."""
        return {act.SessionNamed: self._named} if self._follows else {}

    def started(self, process: CliProcess) -> None:
        """Take the locks of the process. Warn if they do not work."""
        self._locks = process.locks
        self._report()

    def _named(self, action: act.SessionNamed) -> None:
        """Lock a session. End it if it is in use elsewhere."""
        if self._locks is not None:
            try:
                self._locks.take(action.session_id)
            except SessionInUseError as error:
                self.actor.fail(error)
            else:
                self._report()

    def _report(self) -> None:
        assert self._locks is not None, "the CLI has been started"
        problem, self._locks.problem = self._locks.problem, None
        if problem is not None:
            self.actor.warn(SdkWarning(WarningKind.SESSION_UNLOCKED, problem))
