"""A segment of a run that any program can carry out: from a prompt or a decision to an outcome.

The journal in the store says what was done of it before, so it is done once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, structs

from bridle._callbacks.iterated_prompts import in_thread
from bridle._engine.incoming.callback_contexts import convert_update
from bridle._observe.user_values import exact_json
from bridle._records.raw_line import JsonObject
from bridle._records.session_store import JOURNAL, SessionKey, SessionStore
from bridle._session.agent_plan import AgentPlan, RecoverArguments
from bridle._session.run import OneTurn
from bridle._session.run_many import failed_outcome
from bridle._session.session_start import check_prompt
from bridle.approvals import PendingApproval, check_pending
from bridle.content import Content
from bridle.errors import BridleError, OptionsError, SessionNotFoundError, UsageError
from bridle.options import Retry
from bridle.outcomes import OutcomeReason
from bridle.permissions import Allow, AllowAll, AllowOnce, Answers, Deny, Edit, PermissionResult
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    PromptEntry,
    StoredOutcome,
    UnknownEntry,
    content_of,
    decode_entries,
    store_outcome,
)
from bridle.sessions._outbox.spool import has_spooled_journal
from bridle.sessions._recovery import UNFINISHED
from bridle.sessions._waiting_calls import check_waiting, decision_about

Step: TypeAlias = StoredOutcome | Literal["recover", "start", "decide"]
"""What is next: nothing, because there is an outcome; recover; send the prompt; decide."""


class SegmentRun(Struct, kw_only=True):
    """The run of a segment. Call `next_step`, then `outcome`."""

    #: Has the conversation and its journal.
    store: SessionStore
    session_id: str
    #: Text, or a list of content blocks as JSON.
    prompt: str | list[JsonObject]
    #: The tool call that was decided about. None for a segment that sends the prompt.
    pending: PendingApproval | None
    #: What `decision_to_json` has returned.
    decision: JsonObject | None
    #: Called once, before anything is sent, for the agent.
    make_plan: Callable[[], Awaitable[AgentPlan]]
    #: How often to continue after a temporary failure.
    retry: Retry | None
    #: Called with each session before it starts.
    show: Callable[[OneTurn], object]
    #: What ``make_plan`` has returned.
    plan: AgentPlan | None = None

    @staticmethod
    def prompt_to_json(prompt: Content) -> str | list[JsonObject]:
        """Return a prompt as JSON.

        Raises:
            OptionsError: it is not a prompt, or JSON would change it.
        """
        check_prompt(prompt)
        if not isinstance(prompt, str):
            exact_json("prompt", prompt)
        return content_of(prompt)

    @staticmethod
    def metadata_to_json(metadata: object) -> JsonObject:
        """Return what a program has noted about a run as JSON.

        Raises:
            OptionsError: JSON would change it.
        """
        return cast("JsonObject", exact_json("metadata", metadata))

    @staticmethod
    def decision_to_json(
        waiting: PendingApproval, decision: object, pending: PendingApproval | None = None
    ) -> JsonObject:
        """Return a decision about the call that waits as JSON.

        ``pending`` is the call that the person saw, if it is known.

        Raises:
            OptionsError: it is not a decision about this call, or ``pending`` was changed.
            UsageError: another call than ``pending`` waits.
        """
        if pending is not None:
            check_waiting(check_pending(pending), waiting)
        decision_about(waiting, decision)
        return decision_to_json(decision)

    async def next_step(self) -> Step:
        """Return what is next, by the journal.

        Raises:
            StoreError: the store failed.
            SessionInUseError: another program uses the session.
        """
        # First this, because another program may be sending the file to the store just now.
        is_spooled = await in_thread(lambda: has_spooled_journal(self.store, self.session_id))
        entries = await self.store.load(SessionKey(self.session_id, JOURNAL))
        step = next_step(self.pending, decode_entries(entries or ()))
        if is_spooled and step in ("start", "decide"):
            # A program on this machine has sent the prompt, but could not write this to the store.
            recovery = (await self._planned()).recover(self.session_id, **self._arguments)
            step = next_step(self.pending, await recovery.journal())
        return step

    async def outcome(self, step: Step) -> StoredOutcome:
        """Carry out what is next, and return the outcome.

        Another program finds the same outcome: this one may die before it has stored it.
        """
        if isinstance(step, StoredOutcome):
            return step
        plan = await self._planned()
        if step == "recover":
            recovery = plan.recover(self.session_id, **self._arguments)
            recovery.leave_open()
            recovery.show = self.show
            outcomes = await recovery.outcomes()
            if not outcomes:
                detail = "another program has closed the session of the run"
                return StoredOutcome(reason=OutcomeReason.STOPPED, detail=detail)
            outcome = store_outcome(outcomes[-1])
            if not still_waits(self.pending, outcome):
                return outcome
        turn = self._turn(plan)
        turn.leave_open()
        turn.show = self.show
        self.show(turn)
        return store_outcome(await turn.outcome())

    async def _planned(self) -> AgentPlan:
        self.plan = self.plan or await self.make_plan()
        return self.plan

    @property
    def _arguments(self) -> RecoverArguments:
        return AgentPlan.left_to_agent(self.retry)

    def _turn(self, plan: AgentPlan) -> OneTurn:
        if self.pending is None or self.decision is None:
            chosen = {"session_id": self.session_id}
            return plan.run(self.prompt, chosen, keep_messages=False, **self._arguments)
        decision = decision_from_json(self.decision)
        return plan.resume(self.pending, decision, keep_messages=False, **self._arguments)

    def failed(self, error: BridleError) -> StoredOutcome:
        """Return the outcome of a segment that did not start.

        It has the call of a decision that still waits: another program may carry the decision out.
        """
        outcome = store_outcome(failed_outcome(error))
        field = error.field if isinstance(error, OptionsError) else ""
        if isinstance(error, UsageError | SessionNotFoundError) or field in ("pending", "decision"):
            return outcome
        return structs.replace(outcome, pending=self.pending)


def next_step(
    pending: PendingApproval | None, journal: Iterable[JournalEntry | UnknownEntry]
) -> Step:
    """Return what to do about a segment, by the journal of its session."""
    wanted = None if pending is None else pending.tool_use_id
    prompt: str | None = None
    ended: StoredOutcome | None = None
    for entry in journal:
        match entry:
            case PromptEntry(continues=None, resumes=resumes) if resumes == wanted:
                # A decision that had no effect is applied again, as another prompt.
                if wanted is not None or prompt is None:
                    prompt, ended = entry.prompt_uuid, None
            case OutcomeEntry(prompt_uuid=uuid) if uuid == prompt:
                if entry.outcome.reason not in UNFINISHED:
                    ended = entry.outcome
            case _:
                pass
    if prompt is None:
        return "start" if wanted is None else "decide"
    if ended is None:
        return "recover"
    return "decide" if still_waits(pending, ended) else ended


def still_waits(pending: PendingApproval | None, outcome: StoredOutcome) -> bool:
    """Return whether the decision about a call had no effect, so that the call still waits."""
    return (
        pending is not None
        and outcome.pending is not None
        and outcome.pending.tool_use_id == pending.tool_use_id
    )


# ---------------------------------------------------------------- decisions as JSON


def decision_to_json(decision: object) -> JsonObject:
    """Return a decision as JSON. It has been checked before."""
    match decision:
        case Deny():
            return {"kind": "deny", "reason": str(decision.reason), "stop": decision.interrupt}
        case Edit():
            return {"kind": "edit", "input": dict(decision.new_input)}
        case Answers():
            return {"kind": "answers", "answers": dict(decision.answers)}
        case AllowAll():
            return {"kind": "allow_all"}
        case Allow() | AllowOnce():
            updates = decision.updated_permissions if isinstance(decision, Allow) else ()
            return {"kind": "allow", "updates": [one.raw for one in updates]}
        case _:
            raise TypeError(type(decision).__name__)


def decision_from_json(stored: Mapping[str, Any]) -> PermissionResult | Answers:
    """Return a decision that was stored as JSON."""
    match stored["kind"]:
        case "deny":
            return Deny(stored["reason"], interrupt=stored["stop"])
        case "edit":
            return Edit(stored["input"])
        case "answers":
            return Answers(stored["answers"])
        case "allow_all":
            return AllowAll()
        case _:
            return Allow(updated_permissions=[convert_update(one) for one in stored["updates"]])
