"""Follow the answers of a query, enforce its limits on them, and limit the wait for its exit.

The messages of a query belong to no turn, because a query cannot always match turns to prompts:
older CLIs do not name the prompts, and may answer several at once. For the limits, a result without
names therefore counts as the answer to every prompt before it. An answer begins with a prompt, or
with a turn that no prompt announced, and ends with a result after which no background work is left.

``total`` limits the whole stream, from the first prompt on. ``first_event`` and ``idle`` limit
silence while the CLI has something to do: a prompt to answer, the follow-up turn of background
work, or, once its input is closed, its own exit. Silence does not count while a tool or background
work runs, or while reading is paused. ``turns`` and ``usd`` limit each answer. Dollars are counted
when a result comes, which is enough for a runner that replaces the CLI: with a CLI, a limit in
dollars makes the query a session.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from bridle._engine.actions import (
    Action,
    Deliver,
    EndInput,
    Outbox,
    PauseReading,
    ResumeReading,
)
from bridle._engine.deadlines import Deadlines
from bridle._engine.incoming.waiting_call import Approvals
from bridle._engine.session_state import SessionState
from bridle._engine.turns.book import NO_TURN, TurnBook
from bridle._engine.turns.classify import Facts, LimitHit, ProcessEnd, classify, with_result
from bridle._engine.turns.follow_ups import FollowUps
from bridle._engine.turns.limits import (
    FIRST_EVENT,
    TOTAL,
    Begun,
    Fail,
    GiveUp,
    LimitWatch,
    Verdicts,
)
from bridle._engine.turns.subagents import AgentBook
from bridle._engine.turns.turn_records import Turn
from bridle._records.raw_line import line_size
from bridle.approvals import PendingApproval
from bridle.messages import MalformedLine, Message, ResultMessage, UserMessage
from bridle.messages._system import (
    BackgroundTasksChangedMessage,
    InitMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
)
from bridle.options import Limits
from bridle.outcomes import OUTCOME_ERRORS, Outcome

EXIT_GRACE = 30.0
"""Seconds of silence within which a CLI must exit after it has answered every prompt."""

UNSURE_EXIT_GRACE = 600.0
"""The same if a prompt may be unanswered: older CLIs do not say which prompts they answered."""

EXIT = "exit"
"""The kind of the deadline token of the exit."""

_ANSWER = "answer"
"""The subject of the deadlines of an answer."""
_STREAM = "stream"
"""The subject of the deadline of the whole stream."""

_NEWS: frozenset[type] = frozenset(
    {
        InitMessage,
        UserMessage,
        TaskStartedMessage,
        TaskUpdatedMessage,
        TaskNotificationMessage,
        BackgroundTasksChangedMessage,
    }
)
"""Kinds that say when a turn begins and which background work runs."""

_NOTHING: Verdicts = iter(())


class Answers(TurnBook):
    """The answers of a query, one after the other. It takes the place of the turns and limits."""

    def __init__(
        self,
        limits: Limits,
        deadlines: Deadlines,
        outbox: Outbox,
        agents: AgentBook | None = None,
        approvals: Approvals | None = None,
        state: SessionState | None = None,
    ) -> None:
        super().__init__(outbox, agents, approvals)
        self._limits = limits
        self._has_limits = limits != Limits()
        self._deadlines = deadlines
        self._state = state or SessionState()
        self._watch = LimitWatch(limits.replace(total=None), deadlines)
        self._work = FollowUps(echoes=False)
        self._answer = Turn(uuid=_ANSWER)
        #: True once a message came, which shows that the CLI works.
        self.has_begun = False
        self.has_result = False
        #: Prompts without a result, as far as results name them.
        self.unanswered = 0
        # Prompts that the limits await an answer to.
        self._awaited = 0
        # True while a turn runs.
        self._is_in_turn = False
        # True while an answer is in progress.
        self._is_open = False
        # True if no prompt will follow, so that the CLI has to exit.
        self._is_last = False
        self._is_paused = False
        # True once the query has ended.
        self._is_over = False
        self._session_id: str | None = None
        # When the first prompt was written.
        self._first_sent: float | None = None
        # The last result of the answer.
        self._result: ResultMessage | None = None
        # Dollars the answer has cost so far; None before its first result.
        self._cost: float | None = None
        #: The limit that was reached.
        self.hit: LimitHit | None = None
        #: The last line that could not be read. It may say why the CLI exited.
        self.malformed: MalformedLine | None = None
        #: The bytes after the last newline, if they cannot be read.
        self.rest: MalformedLine | None = None

    @property
    def waiting(self) -> PendingApproval | None:
        """The tool call that waits for approval since its turn ended. None if no call waits."""
        return self._approvals.waiting

    # -- prompts and messages ----------------------------------------------------------------------

    def start(self, uuid: str, now: float) -> None:
        """Count a prompt that was written."""
        self.unanswered += 1
        self._awaited += 1
        if self._first_sent is None:
            self._first_sent = now
            if self._limits.total is not None:
                self._deadlines.set((TOTAL, _STREAM), now + self._limits.total)
        if self._has_limits:
            self._open_answer(now)

    def deliver(self, message: Message) -> None:
        """Deliver a message other than a :meth:`result`."""
        if type(message) in _NEWS:
            self._note(message)
        self._outbox.deliver([message], NO_TURN, line_size(message))

    def deliver_all(self, messages: list[Message], kinds: Set[type], size: int) -> None:
        """Do the same for a list of messages of these kinds and that size. Keeps the list."""
        if not kinds.isdisjoint(_NEWS):
            for message in messages:
                if type(message) in _NEWS:
                    self._note(message)
        self._outbox.deliver(messages, NO_TURN, size)

    def result(self, message: ResultMessage, now: float) -> None:
        """Deliver a result. A hook in the settings of the CLI may have deferred a call."""
        self.has_result = True
        self.unanswered = max(0, self.unanswered - max(1, len(message.user_message_uuids)))
        self._is_in_turn = False
        self._note(message)
        self._outbox.deliver([message], NO_TURN, line_size(message))
        self._approvals.end_turn("", message, None)

    def _note(self, message: Message) -> None:
        if isinstance(message, InitMessage):
            self._is_in_turn = True
            self._on_init(message)
        if not self._has_limits:  # the limits observe the work as they hear of it
            self._work.observe(message)

    # -- the limits --------------------------------------------------------------------------------

    def sift(self, actions: list[Action], now: float) -> list[Action]:
        """Return all actions."""
        return actions

    def check(self, actions: Sequence[Action], now: float, *, is_waiting: bool) -> Verdicts:
        """Observe actions at ``now``. Return what follows from them."""
        if self._is_over:
            return _NOTHING
        is_heard = False
        for action in actions:
            if type(action) is Deliver:
                is_heard = True
                if self._has_limits:
                    for message in action.messages:
                        if self.hit is None:
                            self._hear(message, now)
            elif type(action) is EndInput:
                self._end_input(now)
            elif type(action) is PauseReading:
                self._pause(now)
            elif type(action) is ResumeReading:
                self._resume(now)
        if self.has_result:
            self._expect_exit(now)
        if self.hit is None and (self.has_begun or not is_heard):
            return _NOTHING
        return self._verdicts(now, is_heard=is_heard)

    def overdue(self, kind: str, subject: str, now: float) -> Verdicts | None:
        """Handle a deadline that has passed. Return None if it belongs to another module."""
        if kind == EXIT:
            return iter((GiveUp("it has answered everything but did not exit"),))
        if subject == _STREAM and self._limits.total is not None:
            self._note_hit(LimitHit("total", self._limits.total))
        elif (hit := self._watch.expired(kind)) is not None:
            self._note_hit(hit)
        else:
            return None
        return self._verdicts(now)

    def end(self, ending: ProcessEnd, now: float) -> None:
        """Stop watching, because the query has ended."""
        self._is_over = True
        self._watch.stop()
        self._deadlines.clear((TOTAL, _STREAM))
        self._deadlines.clear((EXIT, None))

    def _verdicts(self, now: float, *, is_heard: bool = False) -> Verdicts:
        if is_heard and not self.has_begun:
            self.has_begun = True
            yield Begun()
        if self.hit is not None:
            outcome = self._outcome(self.hit, now)
            yield Fail(OUTCOME_ERRORS[outcome.reason](outcome))

    def _note_hit(self, hit: LimitHit | None) -> None:
        self.hit = self.hit or hit

    def _end_input(self, now: float) -> None:
        self._is_last = True
        if self._has_limits and not self._is_open:
            self._await_exit(now)

    def _pause(self, now: float) -> None:
        """Stop counting silence, because reading is paused and the CLI only seems silent."""
        self._is_paused = True
        self._deadlines.clear((EXIT, None))
        self._mind_idleness(now)
        self._deadlines.clear((FIRST_EVENT, _ANSWER))

    def _resume(self, now: float) -> None:
        self._is_paused = False
        self._mind_idleness(now)
        self._watch.expect_life(now)

    def _expect_exit(self, now: float) -> None:
        """Limit the silence of a CLI that has answered every prompt and whose input is closed."""
        is_done = self._is_last and not self._is_in_turn and not self._work.is_pending
        if self._is_paused or not is_done:
            self._deadlines.clear((EXIT, None))
        else:
            grace = UNSURE_EXIT_GRACE if self.unanswered else EXIT_GRACE
            self._deadlines.set((EXIT, None), now + grace)

    # -- answers -----------------------------------------------------------------------------------

    def _hear(self, message: Message, now: float) -> None:
        self._work.observe(message)
        if isinstance(message, InitMessage):
            self._session_id = message.session_id
            self._open_answer(now)
        if not self._is_open and not self._is_last:
            return
        self._note_hit(self._watch.hear(self._answer, (message,), now))
        if isinstance(message, ResultMessage):
            self._hear_result(message, now)
        self._mind_idleness(now)

    def _mind_idleness(self, now: float) -> None:
        is_waiting = self._is_paused or self._work.is_working
        self._watch.mind_idleness(now, is_waiting=is_waiting)

    def _open_answer(self, now: float) -> None:
        if self._is_open:
            return
        self._is_open = True
        self._result = self._cost = None
        self._watch.start(self._answer, now)
        if self._is_paused:
            self._deadlines.clear((FIRST_EVENT, _ANSWER))

    def _await_exit(self, now: float) -> None:
        """Count silence until the CLI exits, whether or not another answer comes."""
        self._watch.start(self._answer, now)
        if self._result is not None:
            self._watch.hear(self._answer, (self._result,), now)
        self._mind_idleness(now)

    def _hear_result(self, message: ResultMessage, now: float) -> None:
        self._result = message
        cost = self.meter.charge(message)
        if cost is not None:
            self._cost = (self._cost or 0.0) + cost
        self._count_answered(message)
        allowed = self._limits.usd
        if allowed is not None and cost is None:
            problem = "the result has no number in total_cost_usd"
            self._note_hit(LimitHit("usd", allowed, problem=problem))
        elif allowed is not None and (self._cost or 0.0) > allowed:
            self._note_hit(LimitHit("usd", allowed))
        elif not self._work.is_pending:
            self._end_answer(now)

    def _count_answered(self, message: ResultMessage) -> None:
        named = len(message.user_message_uuids)
        if message.origin is None and not named:
            named = self._awaited
        self._awaited = max(0, self._awaited - named)

    def _end_answer(self, now: float) -> None:
        self._is_open = False
        self._watch.end(self._answer, now)
        if self._awaited:
            self._open_answer(now)
        elif self._is_last:
            self._await_exit(now)

    def _outcome(self, hit: LimitHit, now: float) -> Outcome[Any]:
        """Return the outcome of the answer that reached its limit, with the results so far.

        Its duration counts from the first prompt.
        """
        reason, detail = classify(Facts(ending=ProcessEnd(by_us=True), limit=hit))
        outcome: Outcome[Any] = Outcome(
            reason=reason,
            detail=detail,
            session_id=self._session_id,
            duration=0.0 if self._first_sent is None else now - self._first_sent,
            process=self._state.process,
        )
        if self._result is None:
            return outcome
        return with_result(outcome, self._result, self._cost, pays=True)
