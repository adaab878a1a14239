"""Calls that wait for approval: no CLI may run one by resuming its conversation."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import structs

from bridle._session.parts.part import Part
from bridle.approvals import PendingApproval
from bridle.errors import ApprovalPending
from bridle.outcomes import Outcome

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
        from bridle.sessions._waiting_calls import waiting_in_files  # few sessions resume

        plan = self._plan
        must_exist = plan.approval is not None
        plan.admit(
            await waiting_in_files(
                launch, plan.cli, self._lock, must_exist=must_exist, wait=plan.wait
            )
        )
        return launch


def stamped(outcome: Outcome[Any]) -> Outcome[Any]:
    """Return the outcome with the time at which its call was deferred, if one was."""
    pending = outcome.pending
    if pending is None or pending.deferred_at is not None:
        return outcome
    return structs.replace(outcome, pending=structs.replace(pending, deferred_at=time.time()))


def refuse_waiting(waiting: PendingApproval | None) -> None:
    """Raise ApprovalPending if a call of the conversation waits, so that no CLI is started."""
    if waiting is not None:
        raise ApprovalPending("connect", waiting.tool_name, waiting.tool_use_id, waiting)
