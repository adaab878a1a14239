"""The limits on an answer: a prompt's turn, and the turns of the work it left in the background.

A session bounds each of its turns by itself. Whoever asks for an answer and nothing else, as
``run`` and ``query`` do, waits for more than a turn, and that is then what the limits are for.

The total is that of everything, from the first prompt on. Silence counts while the CLI owes
something: the answer to a prompt, the turn of background work that ended, or, once its input has
ended, its own end. It does not while a tool or background work runs, or nobody listens.

A query cannot always tell whose turn it is: older CLIs do not name the prompts they answer, and may
answer several at once. So a result without names is taken as the answer to every prompt before it,
and if more comes it begins another. An answer here is whatever comes from a prompt, or from the
start of a turn that no prompt announced, up to a result after which nothing is to come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from bridle._core.classify import Facts, LimitHit, ProcessEnd, classify, ends_at_budget
from bridle._core.correlation import Deadlines
from bridle._core.followups import FollowUps
from bridle._core.limits import TOTAL, LimitWatch
from bridle._core.spending import Meter, Spending
from bridle._core.turns import with_result
from bridle.errors import ProcessInfo
from bridle.events import WarningKind
from bridle.messages import Message, ResultMessage
from bridle.options import Limits
from bridle.outcomes import Outcome
from bridle.system import InitMessage

_ANSWER = "answer"
"""What the deadlines of a watch are about."""
_EVERYTHING = "everything"
"""What the deadline of the total is about."""


def _nothing(*_: object) -> None:
    pass


class AnswerWatch:
    """Answers, one after the other, and the first limit that one of them reaches.

    ``echoes`` as of :class:`FollowUps`. ``keeps_completed`` is for who tells outcomes: an answer
    that is complete stays so although it cost too much. ``has_budget`` is True if the CLI was
    started with ``limits.usd`` as its own budget.

    ``ask_cost`` sends ``get_session_cost``, whose answer or error goes to :meth:`hear_cost`. With
    it the watch counts the dollars of background work while that runs; without it, the watch reads
    the cost from results only. ``warn`` reports an answer that cannot be read.
    """

    def __init__(
        self,
        limits: Limits,
        deadlines: Deadlines,
        *,
        echoes: bool,
        keeps_completed: bool = False,
        has_budget: bool = False,
        ask_cost: Callable[[], None] | None = None,
        warn: Callable[[WarningKind, str], None] = _nothing,
    ) -> None:
        self._limits = limits
        self._deadlines = deadlines
        self._watch = LimitWatch(
            limits.replace(total=None),
            deadlines,
            note_limit=self._note_limit,
            is_waiting=lambda: self._is_held or self._follow_ups.is_working,
            # Whoever sees that a limit is hit ends everything.
            interrupt=_nothing,
            withdraw=_nothing,
            give_up=_nothing,
        )
        self._follow_ups = FollowUps(echoes=echoes)
        self._keeps_completed = keeps_completed
        self._has_budget = has_budget
        self._is_held = False
        # Prompts without a result.
        self._unanswered = 0
        # No prompt will follow, so all that is to come ends with the CLI.
        self._is_last = False
        self._session_id: str | None = None
        # When the first prompt was written.
        self._began: float | None = None
        # The last result of the answer.
        self._result: ResultMessage | None = None
        self._meter = Meter()
        # The total at the start of the answer; known from its first result.
        self._base = Meter()
        self._ask_cost = ask_cost
        self._tell_cost: Callable[[object], None] = _nothing
        self._spending: Spending | None = None
        if ask_cost is not None and limits.usd is not None:
            self._spending = Spending(limits.usd, self._base, ask=self._request_cost, warn=warn)
        # What the answer has cost so far; None before its first result.
        self._cost: float | None = None
        #: An answer is under way.
        self.is_open = False
        #: The limit that was reached.
        self.hit: LimitHit | None = None

    # -- inputs ------------------------------------------------------------------------------------

    def prompt(self, now: float) -> None:
        """A prompt was written."""
        self._unanswered += 1
        if self._began is None:
            self._began = now
            if self._limits.total is not None:
                self._deadlines.set((TOTAL, _EVERYTHING), now + self._limits.total)
        self._open(now)

    def input_ended(self, now: float) -> None:
        """No prompt will follow: what the CLI owes now is its end."""
        self._is_last = True
        if not self.is_open:
            self._await_end(now)

    def hear(self, message: Message, now: float) -> None:
        """The next message came."""
        self._follow_ups.observe(message)
        if isinstance(message, InitMessage):
            self._session_id = message.session_id
            self._open(now)
        if not self.is_open and not self._is_last:
            return
        self._watch.hear(_ANSWER, (message,), now)
        if isinstance(message, ResultMessage):
            self._hear_result(message, now)
        elif self._spending is not None and self._result is not None:
            # Before its result the turn's own spending is limited by the session.
            self._spending.hear(message, now)
            self._spending.request_if_due(now)
        self._watch.mind_idleness(now)

    def hear_cost(self, answer: object, now: float) -> None:
        """The answer to ``get_session_cost`` came, or the error of that request."""
        self._tell_cost(answer)
        if self._spending is None or not self.is_open:
            return
        if self._spending.is_passed:
            self._note_limit(_ANSWER, LimitHit("usd", self._spending.allowed))
        else:
            self._spending.request_if_due(now)

    def _request_cost(self, then: Callable[[object], None], _: float) -> None:
        assert self._ask_cost is not None, "without it there is no spending to ask for"
        self._tell_cost = then
        self._ask_cost()

    def hold(self, now: float) -> None:
        """Nobody listens for a while: then silence is not the CLI's."""
        self._is_held = True
        self._watch.mind_idleness(now)

    def go_on(self, now: float) -> None:
        """Somebody listens again."""
        self._is_held = False
        self._watch.mind_idleness(now)

    def overdue(self, kind: str, now: float) -> None:
        """A deadline has passed."""
        if kind == TOTAL and self._limits.total is not None:
            self._note_limit(_ANSWER, LimitHit("total", self._limits.total))
        else:
            self._watch.overdue(kind, _ANSWER, now)

    def _open(self, now: float) -> None:
        if self.is_open:
            return
        self.is_open = True
        self._result = self._cost = None
        self._watch.start(_ANSWER, now)

    def _await_end(self, now: float) -> None:
        """Silence counts from here on, whether or not a last answer comes."""
        self._watch.start(_ANSWER, now)
        if self._result is not None:
            self._watch.hear(_ANSWER, (self._result,), now)
        self._watch.mind_idleness(now)

    def _hear_result(self, message: ResultMessage, now: float) -> None:
        self._result = message
        cost = self._meter.charge(message)
        if cost is not None:
            if self._cost is None and self._meter.total is not None:
                self._base.total = self._meter.total - cost
            self._cost = (self._cost or 0.0) + cost
        self._count_answered(message)
        is_complete = not self._follow_ups.is_pending
        allowed = self._limits.usd
        if allowed is not None and self._is_overspent(message, allowed, is_complete=is_complete):
            self._note_limit(_ANSWER, LimitHit("usd", allowed))
        elif is_complete:
            self._end_answer(now)

    def _is_overspent(self, message: ResultMessage, allowed: float, *, is_complete: bool) -> bool:
        if self._has_budget and ends_at_budget(message):
            return True
        return (self._cost or 0.0) > allowed and not (is_complete and self._keeps_completed)

    def _count_answered(self, message: ResultMessage) -> None:
        named = len(message.user_message_uuids)
        if message.origin is None and not named:
            named = self._unanswered
        self._unanswered = max(0, self._unanswered - named)

    def _end_answer(self, now: float) -> None:
        self.is_open = False
        self._watch.end(_ANSWER, now)
        if self._unanswered:
            self._open(now)
        elif self._is_last:
            self._await_end(now)

    def _note_limit(self, _: str, hit: LimitHit) -> bool:
        self.hit = self.hit or hit
        return True

    # -- what became of it -------------------------------------------------------------------------

    def outcome(self, process: ProcessInfo, now: float) -> Outcome[Any]:
        """The outcome of the answer that reached its limit, as far as it got.

        It lasted since the first prompt.
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

    def complete(self, outcome: Outcome[Any], ending: ProcessEnd | None = None) -> Outcome[Any]:
        """The outcome of a turn, ok so far, together with what followed it.

        ``ending`` says how the CLI ended, if it did so before its background work.
        """
        outcome = self._follow_ups.complete(outcome)
        if self._spending is not None and self.hit is not None:
            cost = max(outcome.cost_usd or 0.0, self._spending.spent)
            outcome = structs.replace(outcome, cost_usd=cost)
        if outcome.ok and (self.hit is not None or ending is not None):
            end = ending or ProcessEnd(by_us=True)
            reason, detail = classify(Facts(ending=end, limit=self.hit))
            if self.hit is not None:
                detail += ", background work included"
            outcome = structs.replace(outcome, reason=reason, detail=detail, process=end.process)
        return outcome
