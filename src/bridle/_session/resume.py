"""`Agent.resume`: decide about a tool call that waits for approval, and finish its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec import structs

from bridle._engine.config import EngineConfig
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.waiting_call import PRE_TOOL_USE, Approval
from bridle._process.launch.plan import Launch, ResumedCall
from bridle._records.session_store import has_journals
from bridle._session.readers.turn_state import TurnState
from bridle._session.run import OneTurn
from bridle._session.turn import Turn
from bridle.approvals import PendingApproval, check_pending
from bridle.errors import SessionInUseError, UsageError
from bridle.options import Retry
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import Outcome
from bridle.sessions._waiting_calls import (
    check_waiting,
    decision_about,
    is_own_transcript,
    refuse_begun,
    resumed_call,
    resumed_options,
    waiting_in_files,
)

if TYPE_CHECKING:
    from bridle.sessions._begun_calls import BegunCall

_CLOSING = 5.0
"""Seconds to wait if the caller sets no number: the session of the call may be shutting down."""

_IN_USE = (
    "Another person may be deciding about this call, or a session may use the conversation. Wait "
    "for it with wait=60 (seconds). If the call was decided by then, the decision is refused with "
    "UsageError."
)


@contextmanager
def deciding() -> Generator[None]:
    """Let the error of a conversation that is in use say what this means for a decision."""
    try:
        yield
    except SessionInUseError as error:
        error.fix = _IN_USE
        raise


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
        # Without a journal in a store, and only for a decision that lets the call run.
        self._begun: BegunCall | None = None
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
        if self._sdk.wait is None:
            self._wait = _CLOSING

    def _plan_launch(self, resumed: ResumedCall | None = None) -> Launch:
        """Plan the start of the CLI. The record may name only a transcript of the CLI itself."""
        launch, named = super()._plan_launch(resumed), self._cli.resume_session_id
        by_id = self._pending.session_id
        if named is None or named == by_id or is_own_transcript(launch, named):
            return launch
        self._cli = self._cli.replace(resume_session_id=by_id)
        return super()._plan_launch(resumed)

    @property
    def _allows(self) -> bool:
        """Whether the decision lets the call run."""
        return self._approval.decision.get("behavior") == "allow"

    def _plan_hooks(self, needed: str | None = None) -> HookPlan:
        is_stored = self._store is not None and has_journals(self._store)
        if not is_stored and self._allows:
            from bridle.sessions._begun_calls import BegunCall  # few programs resume calls
            from bridle.sessions._journal_writer import SessionJournal

            self._begun = BegunCall(self._pending)
            self._journal = SessionJournal(
                self._sdk.control_timeout,
                keeps_entries=self._retry is not None,
                without_store=self._begun,
            )
        return super()._plan_hooks(PRE_TOOL_USE)

    def _engine_config(self) -> EngineConfig:
        config = super()._engine_config()
        incoming = structs.replace(config.incoming, approval=self._approval)
        return structs.replace(config, incoming=incoming, session_id=self._pending.session_id)

    async def _find_waiting(self) -> PendingApproval | None:
        return await waiting_in_files(
            self._launch, self._cli, self._lock, must_exist=True, wait=self._wait
        )

    def _admit(self, waiting: PendingApproval | None) -> None:
        """Raise if this call does not wait, has begun, or differs from that in the transcript."""
        check_waiting(self._pending, waiting)
        if self._begun is not None:
            self._begun.refuse()

    async def outcome(self) -> Outcome[Any]:
        """Start the session, wait for the turn, shut down, and return the outcome."""
        if self._bidir.transport_factory is None:
            resumed = await resumed_call(self._cli, self._launch, self._pending)
            self._launch = self._plan_launch(resumed)
        try:
            with deciding():
                outcome = await super().outcome()
        except UsageError:
            await self._refuse_begun()
            raise
        if self._begun is not None:
            from bridle.sessions._recovery import UNFINISHED

            # A turn may also end at a limit because the CLI does not react, while the call waits.
            if self._begun.has_result and outcome.reason not in UNFINISHED:
                self._begun.forget()
        elif outcome.ok and not self._allows:  # the call does not wait any more
            from bridle.sessions._begun_calls import BegunCall

            BegunCall(self._pending).forget()
        return outcome

    async def _refuse_begun(self) -> None:
        """Raise CallMayHaveRun if the call has begun, by the journal, and must be recovered."""
        store = self._actor.store
        if store is not None:
            begun = await store.begun_calls(self._pending.session_id)
            if begun.get(self._pending.tool_use_id):
                refuse_begun(self._pending, begun)

    async def connect(self) -> None:
        """Start the CLI, which then continues the turn."""
        if self._actor.store is not None and self._allows:
            self._actor.store.need_journal()  # it tells whether the call has begun to run
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
            if self._begun is not None:
                self._begun.forget()
        else:
            await super().aclose()
