"""`run`: one prompt, one outcome."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, cast, overload
from uuid import uuid4

from msgspec import structs

from bridle._engine.incoming.waiting_call import Approval
from bridle._engine.outgoing.prompts import encode_composed
from bridle._engine.turns.turn_records import Used
from bridle._observe.known_secrets import clean_outcome
from bridle._process.session_locks import StartLock
from bridle._runtime import timer
from bridle._session.answers.attempt_plan import AnswerPlan, combined, used_by
from bridle._session.connection.connection import Connection
from bridle._session.connection.session_plan import SessionPlan
from bridle._session.parts.part import Part
from bridle._session.parts.turn_parts import RecoveryPart, TurnPart
from bridle._session.preflight import settle_keywords
from bridle._session.readers.queues import Closed, Queue
from bridle._session.session import InnerSession
from bridle._session.session_start import check_prompt
from bridle._session.turn import Turn
from bridle.content import Content
from bridle.errors import BridleError, OptionsError, StartError
from bridle.messages import Message, ResultMessage
from bridle.options import BidirOptions, CliOptions, Retry, SdkOptions
from bridle.options._keyword_types import Options
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import Outcome, OutcomeReason, Output

if TYPE_CHECKING:
    # Loaded only after a crash, or if there is a store.
    from bridle.sessions._crashed_sessions import CrashedSession
    from bridle.sessions._journal import JournalEntry, UnknownEntry
    from bridle.sessions._journal_writer import SessionJournal
    from bridle.sessions._outbox.leases import BorrowedLeases, Leases
    from bridle.sessions._recovery import Continue, SendAgain


@overload
async def run(
    prompt: Content,
    *,
    cli: CliOptions | None = ...,
    sdk: SdkOptions | None = ...,
    bidir: BidirOptions | None = ...,
    output_type: type[Output],
    output_retries: int = ...,
    retry: Retry | None = ...,
    keep_messages: bool = ...,
    deps: Any = ...,
    **options: Unpack[Options],
) -> Outcome[Output]: ...


@overload
async def run(
    prompt: Content,
    *,
    cli: CliOptions | None = ...,
    sdk: SdkOptions | None = ...,
    bidir: BidirOptions | None = ...,
    output_type: Any = ...,
    output_retries: int = ...,
    retry: Retry | None = ...,
    keep_messages: bool = ...,
    deps: Any = ...,
    **options: Unpack[Options],
) -> Outcome[Any]: ...


async def run(
    prompt: Content,
    *,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    output_type: Any = None,
    output_retries: int = 1,
    retry: Retry | None = None,
    keep_messages: bool = False,
    deps: Any = None,
    **options: Unpack[Options],
) -> Outcome[Any]:
    """Run one prompt and return its outcome.

    A failed turn raises nothing: check ``outcome.ok`` and ``outcome.reason``. If the turn
    completes, ``run`` also waits for the background tasks that it started, because the follow-up
    turn of a background subagent is part of the answer. In ``SdkOptions.limits``, ``first_event``
    and ``idle`` limit the turn; the other limits include background work.

    Without limits, ``run`` waits until all background tasks have ended. If the model starts a
    server in the background, that may be never: set ``Limits(total=...)``.

    The CLI ends before ``run`` returns or raises.

    Args:
        prompt: text, or a list of content blocks.
        output_type: a type that msgspec or pydantic can describe: a dataclass, TypedDict, struct,
            model, ``list[Invoice]``, a union, a ``Literal``, an enum, a number. The model answers
            in that form, and ``outcome.output`` is the value. An answer without it, or with invalid
            data, is a failure (``output_missing``, ``output_invalid``).
        output_retries: how often to send an answer that fails validation back to the model, with
            the errors. These prompts count towards the same outcome, cost and limits.
        retry: how often to continue after a temporary failure, such as an overloaded API or a crash
            of the CLI.
        keep_messages: store all messages in ``outcome.messages``.
        deps: any object for the callbacks of the run.
        options: the fields of the three records by name, such as ``model="sonnet"``.

    Raises:
        OptionsError: an option or the prompt is invalid. Nothing was started.
        StartError: the CLI did not start. Its processes, files and tasks are removed.

    Cancellation: shuts down the CLI.
    """
    settled = settle_keywords(cli, sdk, bidir, options)
    job = Run(
        prompt,
        settled,
        output_type,
        output_retries=output_retries,
        retry=retry,
        keep_messages=keep_messages,
        deps=deps,
    )
    return await job.outcome()


def _show_nothing(_: OneTurn) -> None:
    pass


class TurnArguments(TypedDict, total=False):
    """What a run has besides its prompt, its options and its output type."""

    output_retries: int
    retry: Retry | None
    keep_messages: bool
    deps: Any


def check_retry(retry: object) -> None:
    """Raise OptionsError if this is neither a Retry nor None."""
    if not isinstance(retry, Retry | None):
        problem = f"must be a Retry, got {type(retry).__name__}"
        raise OptionsError("retry", problem, fix="Use bridle.Retry(attempts=3).")


def turn_plan(
    options: ResolvedOptions,
    output_type: Any,
    approval: Approval | None = None,
    **arguments: Unpack[TurnArguments],
) -> SessionPlan:
    """Return the plan of a session for one turn and its background work.

    Raises:
        OptionsError: an argument is invalid.
    """
    retry, keeps = arguments.get("retry"), arguments.get("keep_messages", False)
    check_retry(retry)
    if not isinstance(cast("object", keeps), bool):
        problem = f"must be True or False, got {keeps!r:.80}"
        raise OptionsError("keep_messages", problem, fix="Use keep_messages=True.")
    deps, retries = arguments.get("deps"), arguments.get("output_retries", 1)
    return SessionPlan(
        options,
        deps,
        output_type,
        retries,
        retry=retry,
        keeps_messages=keeps,
        awaits_follow_ups=True,
        approval=approval,
    )


class OneTurn(ABC):
    """A session for one turn and its background work. :meth:`_begin` returns the turn.

    Args:
        plan: the plan of the session.
        options: the options, for a new process after a crash.
        output_type: the type of the output, or None.
        parts: what the session does besides.
        journal: the journal, if it is not that of the plan.
        lock: the lock of the conversation to resume, if another run has had it.
    """

    def __init__(
        self,
        plan: SessionPlan,
        options: ResolvedOptions,
        output_type: Any,
        parts: Sequence[Part] = (),
        *,
        journal: SessionJournal | None = None,
        lock: StartLock | None = None,
    ) -> None:
        parts = [*parts, TurnPart(self)]
        #: The connection to the CLI.
        self.connection = Connection(plan, parts, journal=journal, lock=lock)
        #: The session, as tools get it.
        self.session = InnerSession(self.connection)
        self._resolved, self._output_type = options, output_type
        #: Called with the run of each new process. The blocking door shows tools another session.
        self.show: Callable[[OneTurn], object] = _show_nothing
        self._kept: list[Message] | None = [] if plan.keeps_messages else None
        #: The turn, or None before it has begun.
        self.turn: Turn | None = None
        self._is_left_open = False
        # The leases of the run, or of the recovery that it is a part of. None if it only has one
        # process, which has leases of its own.
        self._leases: BorrowedLeases | None = None
        # True if a recovery has the lock and writes which outcomes were received.
        self._is_recovery = False
        # The run of the last process, after a crash of the one before.
        self._newest: OneTurn | None = None

    @abstractmethod
    async def _begin(self) -> Turn:
        """Return the turn of the session, which is connected."""

    def redact(self, text: str) -> str:
        """Return the text with masked secrets: those of this session, and likely ones."""
        return self.connection.secrets.redact(text)

    def leave_open(self) -> None:
        """Let a recovery continue the turn if this process ends it, and find its outcome.

        The outcome does not count as received.
        """
        self._is_left_open = True
        if self.connection.journal is not None:
            self.connection.journal.is_recovery = True

    def may_close(self) -> bool:
        """Return False for a turn that is left open: one that is interrupted has ended."""
        return not (self._is_left_open and self.is_in_turn)

    async def aclose(self) -> None:
        """Shut down."""
        await self.connection.aclose()

    async def __aenter__(self) -> Self:
        if not self.connection.is_connecting:
            await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def kill(self) -> None:
        """Kill the CLI of this process now. Safe from any thread."""
        self.connection.actor.kill()

    async def outcome(self) -> Outcome[Any]:
        """Start the session, wait for the turn, shut down, and return the outcome.

        If the CLI crashes and attempts are left, continue in a new process. The run keeps the lock
        and the lease of the session until then.
        """
        if self.connection.plan.retry is None:
            return await self._outcome_of_process()
        own = self._own_leases()
        try:
            outcome = await self._outcome_of_process()
            if outcome.reason is OutcomeReason.CLI_EXITED:
                outcome = await self._continue_after_crash(outcome)
            return outcome
        finally:
            try:
                if own is not None:
                    self._leases = None  # they refer to this object
                    await own.aclose()
            finally:
                self.connection.lock.release()

    def _own_leases(self) -> Leases | None:
        """Use leases of the run for all its processes. None if a recovery has them."""
        plan = self.connection.plan
        if plan.store is None or self._leases is not None:
            return None
        from bridle.sessions._outbox.leases import BorrowedLeases, Leases

        own = Leases(plan.store, self.fail, plan.sdk.load_timeout)
        self._leases = BorrowedLeases(own)
        return own

    def fail(self, error: BridleError) -> None:
        """End the session of the last process with this error."""
        (self._newest or self).connection.actor.fail(error)

    async def connect(self) -> None:
        """Start the CLI."""
        store, lock = self.connection.store, self.connection.lock
        if store is not None and self._leases is not None:
            store.borrow(self._leases, None if self._is_recovery else lock.take_back)
        await self.connection.connect()

    async def _outcome_of_process(self) -> Outcome[Any]:
        """Start the session, wait for the turn, shut down, and return the outcome."""
        async with self:
            outcome = await self.answer()
            await self.drop_rest(outcome)
        if outcome.session_id is None:  # the CLI has sent no result; `recover` needs the id
            outcome = structs.replace(outcome, session_id=self.session.id)
        if self._kept is not None:
            outcome = structs.replace(outcome, messages=tuple(self._kept))
        return clean_outcome(outcome, self.redact)

    # -- after a crash of the CLI ------------------------------------------------------------------

    #: The journal of earlier processes.
    _journal_before: Sequence[JournalEntry | UnknownEntry] = ()

    @property
    def _first_prompt(self) -> str | None:
        """The prompt of the program. None if it cannot be continued in a new process."""
        return None if self.turn is None else self.turn.uuid

    async def _continue_after_crash(self, crashed: Outcome[Any]) -> Outcome[Any]:
        """Continue in new processes while the CLI crashes and attempts are left.

        The outcome has the costs and messages of all processes.
        """
        attempts = self.connection.attempts
        assert attempts is not None, "a session with `retry` has attempts"
        began = time.monotonic() - crashed.duration
        outcome, plan, entries = crashed, attempts.plan, self._all_entries()
        while outcome.reason is OutcomeReason.CLI_EXITED and self._first_prompt is not None:
            seconds = time.monotonic() - began
            pause = plan.pause_after_crash(outcome, seconds, random.random())
            if pause is None:
                break
            await timer.until(timer.in_seconds(pause))
            try:
                again = await self._next_process(entries, plan, outcome, began)
                if not isinstance(again, StepRun):
                    return outcome if again is None else _joined(outcome, again)
                shown = again.show(again)  # keeps it alive
                self._newest = again
                more = await again._outcome_of_process()
                del shown
            except StartError:
                break  # this outcome is the last one
            entries = again._all_entries()
            more_attempts = again.connection.attempts
            assert more_attempts is not None, "it has the rest of the `retry`"
            plan.count(more_attempts.plan)
            more = structs.replace(more, duration=time.monotonic() - began)
            outcome = _joined(outcome, more)
        return outcome

    def _converted(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Return an outcome of a transcript with the output as the requested type."""
        output = self.connection.plan.output
        if output is not None:
            outcome = output.convert_stored(outcome)
        return clean_outcome(outcome, self.redact)

    def _all_entries(self) -> list[JournalEntry | UnknownEntry]:
        journal = self.connection.journal
        own = None if journal is None else journal.entries
        return [*self._journal_before, *(own or ())]

    async def _next_process(
        self,
        entries: list[JournalEntry | UnknownEntry],
        plan: AnswerPlan,
        outcome: Outcome[Any],
        began: float,
    ) -> StepRun | Outcome[Any] | None:
        """Return the session that continues, not started; or the outcome if the turn had ended.

        A turn with a tool call that waits for a decision has ended.
        """
        from bridle.sessions import _crashed_sessions as recovering  # needed only after a crash

        connection = self.connection
        session_id = connection.engine.session_id
        if not session_id:
            return None
        crashed = recovering.CrashedSession(
            connection.plan.store,
            session_id,
            connection.launch,
            connection.plan.sdk.load_timeout,
            self._leases,
        )
        history = await crashed.load(entries)
        to_do = await history.plan()
        step = next((one for one in to_do.steps if self._first_prompt in one.prompts), None)
        if step is None:
            return None
        if isinstance(step, recovering.Finished):
            return await self._ended(crashed, step.prompt, step.outcome)
        # The call may be one of this turn. A prompt that is sent again drops an earlier one, as the
        # program wanted.
        held_back = to_do.held_back(step.prompts[0], session_id)
        if held_back is not None and step.is_new_prompt:
            return await self._ended(crashed, step.prompts[0], held_back)
        again = StepRun(
            step,
            entries,
            recovering.after_crash(self._resolved, session_id, is_new=history.is_new),
            self._output_type,
            output_retries=plan.corrections,
            retry=plan.rest(),
            keep_messages=self._kept is not None,
            deps=connection.deps,
            leases=self._leases,
            lock=connection.lock,
            is_recovery=self._is_recovery,
            used=used_by(outcome, time.monotonic() - began),
        )
        again.show = self.show
        return again

    async def _ended(
        self, crashed: CrashedSession, prompt: str, outcome: Outcome[Any]
    ) -> Outcome[Any]:
        """Return the outcome of a turn that had ended. Write that the program has it."""
        if not self._is_recovery:
            await crashed.receive(prompt)
        return self._converted(outcome)

    # -- the turn ----------------------------------------------------------------------------------

    async def answer(self) -> Outcome[Any]:
        """Return the outcome of the turn, after the background work."""
        messages = None if self._kept is None else self.connection.actor.subscriptions.messages()
        self.turn = await self._begin()
        if messages is None or self._kept is None:
            return await self.turn
        reading = asyncio.ensure_future(self._keep(messages, self._kept))
        try:
            outcome = await self.turn
        finally:
            reading.cancel()
            # Everything that belongs to the outcome was delivered before it.
            while messages:
                self._kept.append(messages.take_now())
            self.connection.actor.subscriptions.leave(messages)
        self._drop_after(outcome.result, self._kept)
        return outcome

    def _drop_after(self, result: ResultMessage | None, kept: list[Message]) -> None:
        """Drop messages that the CLI sent after the result, in the same read."""
        for index in range(len(kept) - 1, -1, -1):
            if isinstance(kept[index], ResultMessage):
                if result is not None and kept[index].uuid == result.uuid:
                    del kept[index + 1 :]
                return

    @property
    def is_in_turn(self) -> bool:
        """Return True until the turn has ended. Background work does not count."""
        held = self.connection.engine.held
        has_ended = self.turn is not None and (self.turn.done or self.turn.uuid in (held or ()))
        return not has_ended

    async def drop_rest(self, outcome: Outcome[Any]) -> None:
        """Stop the session at once if the CLI still works on something else than this outcome."""
        held = self.connection.engine.held
        if outcome.result is None or (held is not None and held.is_pending):
            await self.connection.stop()

    async def _keep(self, messages: Queue[Message], kept: list[Message]) -> None:
        with contextlib.suppress(Closed):
            while True:
                kept.append(await messages.take())


class Run(OneTurn):
    """A session that runs one prompt and its background work."""

    def __init__(
        self,
        prompt: Content,
        options: ResolvedOptions,
        output_type: Any = None,
        parts: Sequence[Part] = (),
        **arguments: Unpack[TurnArguments],
    ) -> None:
        check_prompt(prompt)
        plan = turn_plan(options, output_type, **arguments)
        super().__init__(plan, options, output_type, parts)
        self._prompt = prompt

    async def _begin(self) -> Turn:
        return await self.session.send_user_message(self._prompt)


class StepRun(OneTurn):
    """A session that carries out one step of a recovery.

    Args:
        step: the step.
        journal: the journal so far.
        options: the options. They choose the conversation.
        leases: the leases of the run or of the recovery.
        lock: the lock of the conversation, which a run has had for the CLI before.
        is_recovery: True if it is a step of a recovery of a whole session, which has the lock and
            writes which outcomes were received.
        used: what earlier processes have used of the limits.
    """

    def __init__(
        self,
        step: Continue | SendAgain,
        journal: Sequence[JournalEntry | UnknownEntry],
        options: ResolvedOptions,
        output_type: Any = None,
        *,
        leases: BorrowedLeases | None = None,
        is_recovery: bool = False,
        lock: StartLock | None = None,
        used: Used | None = None,
        **arguments: Unpack[TurnArguments],
    ) -> None:
        plan = turn_plan(options, output_type, **arguments)
        parts: list[Part] = []
        if is_recovery:
            parts, lock = [RecoveryPart()], lock or StartLock(is_needed=False)
        super().__init__(plan, options, output_type, parts, lock=lock)
        self._step = step
        self._leases = leases
        self._is_recovery = is_recovery
        self._used = used
        self._journal_before = journal
        if self.connection.journal is not None:
            self.connection.journal.is_recovery = is_recovery

    @property
    def _first_prompt(self) -> str | None:
        return self._step.prompts[0]

    async def connect(self) -> None:
        """Start the CLI."""
        from bridle.sessions._recovery import decided_calls  # few sessions need it

        # In other threads: a long journal takes some time to read.
        loop, before = asyncio.get_running_loop(), self._journal_before
        journal, store = self.connection.journal, self.connection.store
        if journal is not None:
            await loop.run_in_executor(None, journal.continue_from, before, self._step)
        if store is not None:
            store.leave_out(await loop.run_in_executor(None, decided_calls, before))
        await super().connect()

    def may_close(self) -> bool:
        """Return False while the turn runs: one that is interrupted is not continued later."""
        return not self.is_in_turn

    async def _begin(self) -> Turn:
        step, first = self._step, self._step.prompts[0]
        uuid, continues = (str(uuid4()), first) if step.is_new_prompt else (first, None)
        content: Content | bytes = step.content
        if step.is_new_prompt and isinstance(content, str):  # otherwise it ends with the user's own
            content = encode_composed(content, uuid)
        return await self.connection.send(
            uuid, content, None, self.connection.deps, continues, self._used
        )


def _joined(before: Outcome[Any], after: Outcome[Any]) -> Outcome[Any]:
    """Return the outcome of two processes, with the messages of both."""
    messages = None if after.messages is None else (*(before.messages or ()), *after.messages)
    return structs.replace(combined(before, after), messages=messages)
