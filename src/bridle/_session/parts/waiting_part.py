"""Calls that wait for approval: no CLI may run one by resuming its conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridle._session.parts.part import Part
from bridle.sessions._waiting_calls import waiting_in_files

if TYPE_CHECKING:
    from bridle._process.launch.plan import Launch
    from bridle._process.session_locks import StartLock
    from bridle._session.connection.session_plan import SessionPlan


class WaitingPart(Part):
    """Looks for a waiting call in the files of the CLI, for a session without a store.

    Args:
        plan: the plan of the session.
        lock: the lock of the conversation to resume.
    """

    def __init__(self, plan: SessionPlan, lock: StartLock) -> None:
        self._plan = plan
        self._lock = lock

    async def prepare(self, launch: Launch) -> Launch:
        """Lock the conversation to resume, and look for a call that waits in it."""
        plan = self._plan
        must_exist = plan.approval is not None
        plan.admit(
            await waiting_in_files(
                launch, plan.cli, self._lock, must_exist=must_exist, wait=plan.wait
            )
        )
        return launch
