"""`Agent.resume`: decide about a tool call that waits for approval, and finish its turn."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack
from uuid import uuid4

from msgspec import structs

from bridle._engine.incoming.waiting_call import Approval
from bridle._session.connection.session_plan import SessionPlan
from bridle._session.parts.part import Part
from bridle._session.readers.turn_state import TurnState
from bridle._session.run import OneTurn, TurnArguments, turn_plan
from bridle._session.turn import Turn
from bridle.approvals import PendingApproval, check_pending
from bridle.errors import SessionInUseError, UsageError
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import Outcome
from bridle.sessions._waiting_calls import (
    check_waiting,
    decision_about,
    is_own_transcript,
    refuse_begun,
    resumed_call,
    resumed_options,
)

if TYPE_CHECKING:
    from bridle.sessions._begun_calls import BegunCall
    from bridle.sessions._journal_writer import SessionJournal

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


class DecisionPart(Part):
    """Writes to the journal which call the turn continues. Keeps a call waiting at an early end.

    Args:
        approval: the decision.
        journal: the journal of the session, or None.
    """

    def __init__(self, approval: Approval, journal: SessionJournal | None) -> None:
        self._approval = approval
        self._journal = journal

    async def starting(self) -> None:
        """Write which call the turn continues."""
        if self._journal is not None:
            call = self._approval.pending.tool_use_id
            await self._journal.write_prompt(self._approval.uuid, None, resumes=call)

    def may_close(self) -> bool:
        """Return False without a decision. The CLI is stopped, so that the call can still wait."""
        return not self.actor.engine.awaits_decision


class Resumption(OneTurn):
    """A session that decides about a tool call and finishes its turn."""

    def __init__(
        self,
        pending: object,
        decision: object,
        options: ResolvedOptions,
        output_type: Any = None,
        **arguments: Unpack[TurnArguments],
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
        cli = resumed_options(options.cli, self._pending, has_store=options.sdk.store is not None)
        options = structs.replace(options, cli=cli)
        plan = turn_plan(options, output_type, self._approval, **arguments)
        plan.admit = self._admit
        if plan.sdk.wait is None:
            plan.wait = _CLOSING
        journal = self._journal_of(plan)
        decision_part = DecisionPart(self._approval, journal)
        super().__init__(plan, options, output_type, [decision_part], journal=journal)
        self._check_transcript()

    def _journal_of(self, plan: SessionPlan) -> SessionJournal | None:
        """Return the journal. Without one in a store, it notes here that the call has begun."""
        if plan.is_journaled or not self._allows:
            return plan.new_journal()
        from bridle.sessions._begun_calls import BegunCall  # few programs resume calls
        from bridle.sessions._journal_writer import SessionJournal

        self._begun = BegunCall(self._pending)
        return SessionJournal(
            plan.sdk.control_timeout,
            keeps_entries=plan.retry is not None,
            without_store=self._begun,
        )

    def _check_transcript(self) -> None:
        """Resume by the id if the record names another file than a transcript of the CLI."""
        connection, by_id = self.connection, self._pending.session_id
        plan = connection.plan
        named = plan.cli.resume_session_id
        if named not in (None, by_id) and not is_own_transcript(connection.launch, named):
            plan.cli = plan.cli.replace(resume_session_id=by_id)
            connection.plan_launch()

    @property
    def _allows(self) -> bool:
        """Whether the decision lets the call run."""
        return self._approval.decision.get("behavior") == "allow"

    def _admit(self, waiting: PendingApproval | None) -> None:
        """Raise if this call does not wait, has begun, or differs from that in the transcript."""
        check_waiting(self._pending, waiting)
        if self._begun is not None:
            self._begun.refuse()

    async def outcome(self) -> Outcome[Any]:
        """Start the session, wait for the turn, shut down, and return the outcome."""
        connection = self.connection
        if connection.plan.is_real:
            resumed = await resumed_call(connection.plan.cli, connection.launch, self._pending)
            connection.plan_launch(resumed)
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
        store = self.connection.store
        if store is not None:
            begun = await store.begun_calls(self._pending.session_id)
            if begun.get(self._pending.tool_use_id):
                refuse_begun(self._pending, begun)

    async def connect(self) -> None:
        """Start the CLI, which then continues the turn."""
        connection = self.connection
        if connection.store is not None and self._allows:
            connection.store.need_journal()  # it tells whether the call has begun to run
        self._state = connection.actor.resume(self._approval.uuid, deps=connection.deps)
        await super().connect()

    async def aclose(self) -> None:
        """Shut down. A call that this session has not decided about still waits."""
        is_undecided = self.connection.engine.awaits_decision
        await super().aclose()
        if is_undecided and self._begun is not None and self._begun.is_own:
            self._begun.forget()

    @property
    def _first_prompt(self) -> None:
        """None: a new CLI would run the approved call again."""

    async def _begin(self) -> Turn:
        assert self._state is not None, "the session is connected"
        return self.connection.turn(self._state, self.connection.deps)
