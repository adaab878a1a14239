"""`Agent.resume`: decide about a tool call that waits for approval, and finish its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from msgspec import structs

from bridle._core.config import EngineConfig
from bridle._core.incoming.approvals import PRE_TOOL_USE, Approval
from bridle._core.incoming.hook_plan import HookPlan
from bridle._core.launch import Launch, ResumedCall
from bridle._core.precedence import ResolvedOptions
from bridle._doors.run import OneTurn
from bridle._doors.turn import Turn
from bridle._shell.resuming import (
    check_waiting,
    decision_about,
    is_own_transcript,
    resumed_call,
    resumed_options,
    waiting_in_files,
)
from bridle._shell.turn import TurnState
from bridle.approvals import PendingApproval, check_pending
from bridle.options import Retry
from bridle.outcomes import Outcome


class Resumption(OneTurn):
    """A session that decides about a tool call and finishes its turn."""

    def __init__(
        self,
        pending: object,
        decision: object,
        options: ResolvedOptions,
        output_type: Any = None,
        *,
        output_retries: int = 1,
        retry: Retry | None = None,
        keep_messages: bool = False,
        deps: Any = None,
    ) -> None:
        self._pending = check_pending(pending)
        self._approval = Approval(
            pending=self._pending,
            decision=decision_about(self._pending, decision),
            uuid=str(uuid4()),
        )
        self._state: TurnState | None = None
        super().__init__(
            structs.replace(
                options,
                cli=resumed_options(
                    options.cli, self._pending, has_store=options.sdk.store is not None
                ),
            ),
            output_type,
            output_retries=output_retries,
            retry=retry,
            keep_messages=keep_messages,
            deps=deps,
        )

    def _plan_launch(self, resumed: ResumedCall | None = None) -> Launch:
        """Plan the start of the CLI. The record may name only a transcript of the CLI itself."""
        launch, named = super()._plan_launch(resumed), self._cli.resume_session_id
        by_id = self._pending.session_id
        if named is None or named == by_id or is_own_transcript(launch, named):
            return launch
        self._cli = self._cli.replace(resume_session_id=by_id)
        return super()._plan_launch(resumed)

    def _plan_hooks(self, needed: str | None = None) -> HookPlan:
        return super()._plan_hooks(PRE_TOOL_USE)

    def _engine_config(self) -> EngineConfig:
        config = super()._engine_config()
        incoming = structs.replace(config.incoming, approval=self._approval)
        return structs.replace(config, incoming=incoming, session_id=self._pending.session_id)

    async def _find_waiting(self) -> PendingApproval | None:
        return await waiting_in_files(
            self._launch, self._cli, self._lock, must_exist=True, wait=self._sdk.wait or 0.0
        )

    def _admit(self, waiting: PendingApproval | None) -> None:
        """Raise if this call does not wait, or differs from the call in the transcript."""
        check_waiting(self._pending, waiting)

    async def outcome(self) -> Outcome[Any]:
        """Start the session, wait for the turn, shut down, and return the outcome."""
        if self._bidir.transport_factory is None:
            resumed = await resumed_call(self._cli, self._launch, self._pending)
            self._launch = self._plan_launch(resumed)
        return await super().outcome()

    async def connect(self) -> None:
        """Start the CLI, which then continues the turn."""
        self._state = self._actor.resume(self._approval.uuid, deps=self.deps)
        await super().connect()

    async def _announce(self, write: Callable[..., Awaitable[None]]) -> None:
        try:
            await write(self._approval.uuid, None, resumes=self._pending.tool_use_id)
        except BaseException:
            await self.stop()
            raise

    @property
    def _first_prompt(self) -> None:
        """None: a new CLI would run the approved call again."""

    async def _begin(self) -> Turn:
        assert self._state is not None, "the session is connected"
        return self._turn(self._state, self.deps)

    async def aclose(self) -> None:
        """Shut down. Without a decision the CLI is stopped, so that the call can still wait."""
        if self._engine.awaits_decision:
            await self.stop()
        else:
            await super().aclose()
