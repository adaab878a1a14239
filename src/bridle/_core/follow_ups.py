"""Decide when an answer is complete: background work of a turn is reported in later turns.

A turn's result may come while a subagent or a shell that it started still runs. When such a task
ends, the CLI runs another turn by itself, whose result is the rest of the answer.
:class:`FollowUps` reads a session's messages and knows whether another turn follows.
:class:`HeldOutcomes` holds the outcome of a turn until then, for a caller that wants the whole
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from bridle._core.actions import Action, Deliver, TurnEnded
from bridle._core.classify import Facts, LimitHit, ProcessEnd, ResultEnd, classify
from bridle._core.events_from_messages import api_retry
from bridle._core.spending import Meter
from bridle._core.text import result_text
from bridle._core.usage import CallCount
from bridle.content import ToolResultBlock
from bridle.events import ApiRetry
from bridle.messages import (
    ApiRetryMessage,
    BackgroundTasksChangedMessage,
    Message,
    ResultMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UserMessage,
)
from bridle.outcomes import Outcome, OutcomeReason

_NOTICE = "<task-notification>"


class FollowUps:
    """The background work of one conversation, and the results of the turns that followed it.

    A task is in the background if it still runs after its tool call has a result or its turn has
    ended. When it ends, the CLI notifies the model: in the running turn if a tool runs there, else
    in a turn of its own. The difference is visible only if the CLI ``echoes`` what it sends to the
    model, as it does in a session. Otherwise a follow-up turn is known only once it is announced.
    """

    def __init__(self, *, echoes: bool = True) -> None:
        self._echoes = echoes
        # The running tasks, each with the id of the tool call that started it.
        self._living: dict[str, str | None] = {}
        self._in_background: set[str] = set()
        # Tasks that ended in the background and whose turn has not run yet, in that order.
        self._announced: list[str] = []
        self._results: list[ResultMessage] = []
        # Retries of API requests since the turn's own result.
        self._retries: list[ApiRetry] = []

    def observe(self, message: Message) -> None:
        """Observe the next message of the session."""
        if isinstance(message, TaskStartedMessage):
            self._living[message.task_id] = message.tool_use_id
        elif isinstance(message, TaskUpdatedMessage):
            if not self._echoes and "end_time" in message.patch:
                self._living.pop(message.task_id, None)
        elif isinstance(message, TaskNotificationMessage):
            self._observe_end(message)
        elif isinstance(message, BackgroundTasksChangedMessage):
            listed = [task.task_id for task in message.tasks]
            self._living = {task: self._living.get(task) for task in listed}
            self._in_background.update(listed)
        elif isinstance(message, UserMessage):
            self._observe_words(message)
        elif isinstance(message, ResultMessage):
            self._observe_result(message)
        elif isinstance(message, ApiRetryMessage):
            self._retries.append(api_retry(message))

    def _observe_end(self, message: TaskNotificationMessage) -> None:
        self._living.pop(message.task_id, None)
        # A task that ended in the foreground is part of its turn. A stopped task is not announced.
        if message.task_id in self._in_background and message.status != "stopped":
            self._announced.append(message.task_id)
        self._in_background.discard(message.task_id)

    def _observe_words(self, message: UserMessage) -> None:
        if message.is_replay:
            kind = "" if message.origin is None else message.origin.kind
            # CLI 2.1.197 has no origin.
            if kind == "task-notification" or _NOTICE in message.text:
                told = {task for task in (*self._living, *self._announced) if task in message.text}
                told = told or set(self._announced[:1])
                self._living = {one: call for one, call in self._living.items() if one not in told}
                self._announced = [task for task in self._announced if task not in told]
        elif self._living and not isinstance(message.content, str):
            done = {one.tool_use_id for one in message.content if isinstance(one, ToolResultBlock)}
            self._in_background |= {task for task, call in self._living.items() if call in done}

    def _observe_result(self, message: ResultMessage) -> None:
        self._in_background.update(self._living)
        if message.origin is None:
            self._retries.clear()
        if message.origin is not None:
            self._results.append(message)
            del self._announced[:1]
        elif not self._echoes:
            self._announced.clear()

    @property
    def is_working(self) -> bool:
        """True while background work runs."""
        return bool(self._living)

    @property
    def is_pending(self) -> bool:
        """True while background work runs, or its follow-up turn has not run yet."""
        return self.is_working or bool(self._announced)

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

    def __init__(self) -> None:
        #: Called with each outcome that is held.
        self.on_hold: Callable[[str, Outcome[Any]], None] = lambda uuid, outcome: None
        self._follow_ups = FollowUps()
        # Each with the time its turn ended, because the rest counts towards the duration.
        self._held: dict[str, tuple[Outcome[Any], float]] = {}
        # The calls since an outcome was held.
        self._calls = CallCount()

    @property
    def is_pending(self) -> bool:
        """True while background work runs, or its follow-up turn has not run yet."""
        return self._follow_ups.is_pending

    def __contains__(self, uuid: str) -> bool:
        """True if the outcome of that prompt is held."""
        return uuid in self._held

    def __len__(self) -> int:
        return len(self._held)

    def sift(self, actions: Iterable[Action], now: float) -> list[Action]:
        """Return the actions without the outcomes to hold, and with those that are complete."""
        sifted: list[Action] = []
        for action in actions:
            if isinstance(action, TurnEnded) and action.outcome.ok and self.is_pending:
                if not self._held:
                    self._follow_ups.forget_results()
                    self._calls = CallCount()
                self._held[action.uuid] = (action.outcome, now)
                self.on_hold(action.uuid, action.outcome)
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
        held, self._held = self._held, {}
        released: list[Action] = []
        newest = next(reversed(held), None)
        for uuid, (turn_outcome, since) in held.items():
            # A follow-up turn belongs to one answer. Which one is not known, so the newest has it.
            is_newest = uuid == newest
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
            released.append(TurnEnded(uuid, outcome))
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
