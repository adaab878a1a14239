"""Decide when an answer is complete: background work of a turn is reported in later turns.

A turn's result may come while a subagent or a shell that it started still runs. When such a task
ends, the CLI runs another turn by itself, whose result is the rest of the answer.
:class:`FollowUps` reads a session's messages and knows whether another turn follows.
:class:`HeldOutcomes` holds the outcome of a turn until then, for a caller that wants the whole
answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from bridle._engine.actions import Action, Deliver, TurnEnded
from bridle._engine.message_events import api_retry
from bridle._engine.turns.classify import Facts, LimitHit, ProcessEnd, ResultEnd, classify
from bridle._engine.turns.cost import Meter
from bridle._engine.turns.model_text import result_text
from bridle._engine.turns.task_records import Tasks
from bridle._engine.turns.turn_records import Turn, Turns
from bridle._engine.turns.usage import CallCount
from bridle.events import ApiRetry
from bridle.messages import ApiRetryMessage, Message, ResultMessage
from bridle.outcomes import Outcome, OutcomeReason


class FollowUps:
    """The background work of one conversation, and the results of the turns that followed it.

    ``echoes`` is as in `Tasks`.
    """

    def __init__(self, *, echoes: bool = True) -> None:
        self._tasks = Tasks(echoes=echoes)
        self._results: list[ResultMessage] = []
        # Retries of API requests since the turn's own result.
        self._retries: list[ApiRetry] = []

    def observe(self, message: Message) -> None:
        """Observe the next message of the session."""
        self._tasks.observe(message)
        if isinstance(message, ResultMessage):
            if message.origin is None:
                self._retries.clear()
            else:
                self._results.append(message)
        elif isinstance(message, ApiRetryMessage):
            self._retries.append(api_retry(message))

    @property
    def is_working(self) -> bool:
        """True while background work runs."""
        return self._tasks.is_alive

    @property
    def is_pending(self) -> bool:
        """True while background work runs, or its follow-up turn has not run yet."""
        return self._tasks.is_alive or bool(self._tasks.announced)

    def forget_results(self) -> None:
        """Drop the results of follow-up turns so far: they belong to an earlier answer."""
        self._results.clear()

    def complete(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Return the outcome of the turn combined with the results that followed it."""
        for result in self._results:
            outcome = _continued(outcome, result)
        if self._retries:
            count = outcome.api_retries + len(self._retries)
            outcome = structs.replace(outcome, api_retries=count, last_retry=self._retries[-1])
        return outcome


class HeldOutcomes:
    """The outcomes of successful turns, held while their background work runs."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._follow_ups = FollowUps()
        # Each record has the outcome and the time its turn ended, because the rest counts towards
        # the duration.
        self._held: list[Turn] = []
        # The calls since an outcome was held.
        self._calls = CallCount()

    @property
    def is_pending(self) -> bool:
        """True while background work runs, or its follow-up turn has not run yet."""
        return self._follow_ups.is_pending

    def __contains__(self, uuid: str) -> bool:
        """True if the outcome of that prompt is held."""
        return any(turn.uuid == uuid for turn in self._held)

    def sift(self, actions: Iterable[Action], now: float) -> list[Action]:
        """Return the actions without the outcomes to hold, and with those that are complete."""
        sifted: list[Action] = []
        for action in actions:
            if isinstance(action, TurnEnded) and action.outcome.ok and self.is_pending:
                if not self._held:
                    self._follow_ups.forget_results()
                    self._calls = CallCount()
                turn = self._turns.records[action.uuid]
                turn.held = (action.outcome, now)
                self._held.append(turn)
                continue
            sifted.append(action)
            if isinstance(action, Deliver):
                for message in action.messages:
                    self._follow_ups.observe(message)
                if self._held:
                    self._calls.add(action.messages)
                if self._held and not self.is_pending:
                    sifted += self._release(now)
        return sifted

    def end(self, ending: ProcessEnd, now: float) -> list[Action]:
        """Release every outcome, because the CLI exited before its background work ended."""
        return self._release(now, ending)

    def reach(self, hit: LimitHit, now: float, spent: float) -> list[Action]:
        """Release every outcome, because a limit was reached. ``spent`` is the cost in dollars."""
        return self._release(now, ProcessEnd(by_us=True), hit, spent)

    def _release(
        self,
        now: float,
        ending: ProcessEnd | None = None,
        hit: LimitHit | None = None,
        spent: float | None = None,
    ) -> list[Action]:
        held, self._held = self._held, []
        released: list[Action] = []
        for turn in held:
            assert turn.held is not None, "set with the list"
            (turn_outcome, since), turn.held = turn.held, None
            # A follow-up turn belongs to one answer. Which one is not known, so the newest has it.
            is_newest = turn is held[-1]
            outcome = self._follow_ups.complete(turn_outcome) if is_newest else turn_outcome
            outcome = structs.replace(outcome, duration=outcome.duration + now - since)
            if is_newest:
                outcome = structs.replace(
                    outcome,
                    model_calls=outcome.model_calls + self._calls.model_calls,
                    main_model_calls=outcome.main_model_calls + self._calls.main_model_calls,
                    tool_calls=outcome.tool_calls + self._calls.tool_calls,
                )
            if spent is not None and is_newest:
                cost = max(outcome.cost_usd or 0.0, spent)
                outcome = structs.replace(outcome, cost_usd=cost)
            if outcome.ok and ending is not None:
                reason, detail = classify(Facts(ending=ending, limit=hit))
                if hit is not None:
                    detail += ", background work included"
                process = ending.process
                outcome = structs.replace(outcome, reason=reason, detail=detail, process=process)
            released.append(TurnEnded(turn.uuid, outcome))
        return released


def _continued(outcome: Outcome[Any], result: ResultMessage) -> Outcome[Any]:
    """Take reason and answer from the later result, and add up the costs."""
    if not outcome.ok:
        return outcome
    reason, detail = classify(Facts(ending=ResultEnd.of(result)))
    cost = (outcome.cost_usd or 0.0) + _cost_between(outcome.result, result)
    return structs.replace(
        outcome,
        reason=reason,
        detail=detail,
        text=result_text(result, outcome.text, completed=reason is OutcomeReason.COMPLETED),
        structured_output=(
            outcome.structured_output
            if result.structured_output is None
            else result.structured_output
        ),
        errors=result.errors,
        cost_usd=cost,
        num_turns=outcome.num_turns + result.num_turns,
        result=result,
    )


def _cost_between(before: ResultMessage | None, after: ResultMessage) -> float:
    """Return the cost between two results, or 0.0 if the second one has a lower total."""
    meter = Meter()
    if before is not None:
        meter.charge(before)
    return meter.charge_late(after) or 0.0
