"""Enforce the limits of a query on its stream of answers.

``total`` limits the whole stream, from the first prompt on. ``first_event`` and ``idle`` limit
silence while the CLI has something to do: a prompt to answer, the follow-up turn of background
work, or, once its input is closed, its own exit. Silence does not count while a tool or background
work runs, or while reading is paused. ``turns`` and ``usd`` limit each answer. Dollars are counted
when a result comes, which is enough for a runner that replaces the CLI: with a CLI, a limit in
dollars makes the query a session.

A query cannot always match turns to prompts: older CLIs do not name the prompts, and may answer
several at once. So a result without names counts as the answer to every prompt before it. An
answer begins with a prompt, or with a turn that no prompt announced, and ends with a result after
which no background work is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridle._engine.actions import Action, Deliver
from bridle._engine.deadlines import Deadlines
from bridle._engine.turns.classify import (
    Facts,
    LimitHit,
    ProcessEnd,
    classify,
    with_result,
)
from bridle._engine.turns.cost import Meter
from bridle._engine.turns.follow_ups import FollowUps
from bridle._engine.turns.limits import (
    FIRST_EVENT,
    REACTION_TIMEOUT,
    TOTAL,
    GiveUp,
    LimitWatch,
    Verdicts,
)
from bridle._engine.turns.turn_records import Standing, Turn
from bridle.errors import ProcessInfo
from bridle.messages import Message, ResultMessage
from bridle.messages._system import InitMessage
from bridle.options import Limits
from bridle.outcomes import Outcome

_ANSWER = "answer"
"""The subject of the deadlines of an answer."""
_STREAM = "stream"
"""The subject of the deadline of the whole stream."""


class StreamBudget:
    """The answers of a query, one after the other, and the first limit that one of them reaches.

    ``follow_ups`` tracks the background work and is fed by the budget.
    """

    def __init__(self, limits: Limits, deadlines: Deadlines, follow_ups: FollowUps) -> None:
        self._limits = limits
        self._deadlines = deadlines
        self._follow_ups = follow_ups
        self._watch = LimitWatch(limits.replace(total=None), deadlines)
        self._answer = Turn(uuid=_ANSWER)
        self._is_paused = False
        # Prompts without a result.
        self._unanswered = 0
        # True if no prompt will follow, so that the CLI has to exit.
        self._is_last = False
        self._session_id: str | None = None
        # When the first prompt was written.
        self._began: float | None = None
        # The last result of the answer.
        self._result: ResultMessage | None = None
        self._meter = Meter()
        # Dollars the answer has cost so far; None before its first result.
        self._cost: float | None = None
        # True while an answer is in progress.
        self._is_open = False
        #: The limit that was reached.
        self.hit: LimitHit | None = None

    # -- inputs ------------------------------------------------------------------------------------

    def prompt(self, now: float) -> None:
        """Count a prompt that was written."""
        self._unanswered += 1
        if self._began is None:
            self._began = now
            if self._limits.total is not None:
                self._deadlines.set((TOTAL, _STREAM), now + self._limits.total)
        self._open(now)

    def input_ended(self, now: float) -> None:
        """Note that no prompt will follow."""
        self._is_last = True
        if not self._is_open:
            self._await_exit(now)

    def sift(self, actions: list[Action], now: float) -> list[Action]:
        """Return all actions."""
        return actions

    def check(self, actions: Sequence[Action], now: float, *, is_waiting: bool) -> Verdicts:
        """Observe actions at ``now``. Yield what follows from a limit that was reached."""
        for action in actions:
            if isinstance(action, Deliver):
                for message in action.messages:
                    if self.hit is None:
                        self._hear(message, now)
        yield from self._verdicts()

    def pause(self, now: float) -> None:
        """Stop counting silence, because reading is paused."""
        self._is_paused = True
        self._mind_idleness(now)
        self._deadlines.clear((FIRST_EVENT, _ANSWER))

    def resume(self, now: float) -> None:
        """Count silence again, because reading goes on."""
        self._is_paused = False
        self._mind_idleness(now)
        self._watch.expect_life(now)

    def overdue(self, kind: str, subject: str, now: float) -> Verdicts | None:
        """Handle a deadline that has passed. Return None if it belongs to another module."""
        if subject == _STREAM and self._limits.total is not None:
            self._note_limit(LimitHit("total", self._limits.total))
        elif (hit := self._watch.expired(kind)) is not None:
            self._reach(hit, now)
        elif kind != REACTION_TIMEOUT:
            return None
        return self._verdicts()

    def end(self, ending: ProcessEnd, now: float) -> None:
        """Stop watching, because the query has ended."""
        self._watch.stop()
        self._deadlines.clear((TOTAL, _STREAM))

    # -- answers -----------------------------------------------------------------------------------

    def _hear(self, message: Message, now: float) -> None:
        self._follow_ups.observe(message)
        if isinstance(message, InitMessage):
            self._session_id = message.session_id
            self._open(now)
        if not self._is_open and not self._is_last:
            return
        if (hit := self._watch.hear(self._answer, (message,), now)) is not None:
            self._reach(hit, now)
        if isinstance(message, ResultMessage):
            self._hear_result(message, now)
        self._mind_idleness(now)

    def _mind_idleness(self, now: float) -> None:
        is_waiting = self._is_paused or self._follow_ups.is_working
        self._watch.mind_idleness(now, is_waiting=is_waiting)

    def _open(self, now: float) -> None:
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
        cost = self._meter.charge(message)
        if cost is not None:
            self._cost = (self._cost or 0.0) + cost
        self._count_answered(message)
        allowed = self._limits.usd
        if allowed is not None and cost is None:
            problem = "the result has no number in total_cost_usd"
            self._note_limit(LimitHit("usd", allowed, problem=problem))
        elif allowed is not None and (self._cost or 0.0) > allowed:
            self._note_limit(LimitHit("usd", allowed))
        elif not self._follow_ups.is_pending:
            self._end_answer(now)

    def _count_answered(self, message: ResultMessage) -> None:
        named = len(message.user_message_uuids)
        if message.origin is None and not named:
            named = self._unanswered
        self._unanswered = max(0, self._unanswered - named)

    def _end_answer(self, now: float) -> None:
        self._is_open = False
        self._watch.end(self._answer, now)
        if self._unanswered:
            self._open(now)
        elif self._is_last:
            self._await_exit(now)

    # -- the reached limit -------------------------------------------------------------------------

    def _reach(self, hit: LimitHit, now: float) -> None:
        self._note_limit(hit)
        self._watch.stop_turn(self._answer, Standing.RUNNING, now)

    def _note_limit(self, hit: LimitHit) -> None:
        self.hit = self.hit or hit

    def _verdicts(self) -> Verdicts:
        if self.hit is not None:
            yield GiveUp(f"an answer has reached the limit {self.hit.name}")

    def outcome(self, process: ProcessInfo, now: float) -> Outcome[Any]:
        """Return the outcome of the answer that reached its limit, with the results so far.

        Its duration counts from the first prompt.
        """
        assert self.hit is not None, "only a limit makes an outcome of an answer"
        reason, detail = classify(Facts(ending=ProcessEnd(by_us=True), limit=self.hit))
        outcome: Outcome[Any] = Outcome(
            reason=reason,
            detail=detail,
            session_id=self._session_id,
            duration=0.0 if self._began is None else now - self._began,
            process=process,
        )
        if self._result is None:
            return outcome
        return with_result(outcome, self._result, self._cost, pays=True)
