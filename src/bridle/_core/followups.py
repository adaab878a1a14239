"""When an answer is complete: background work that a turn started reports in turns of its own.

A turn's result may come while a subagent or a shell it started still runs. When such a task ends,
the CLI runs another turn by itself, whose result is the rest of the answer. :class:`FollowUps`
reads a session's messages and tells when nothing more is to come.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from bridle._core.classify import Facts, ResultEnd, classify
from bridle.messages import Message, ResultMessage, UserMessage
from bridle.outcomes import Outcome
from bridle.system import (
    BackgroundTasksChangedMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
)

_NOTICE = "<task-notification>"


class FollowUps:
    """The background work of one conversation, and the results it led to."""

    def __init__(self) -> None:
        self._living: set[str] = set()
        # Tasks that ended and whose turn has not come yet.
        self._announced = 0
        self._results: list[ResultMessage] = []

    def observe(self, message: Message) -> None:
        """See the next message of the session."""
        if isinstance(message, TaskStartedMessage):
            self._living.add(message.task_id)
        elif isinstance(message, TaskNotificationMessage):
            self._living.discard(message.task_id)
            # No turn follows a task that was stopped.
            self._announced += message.status != "stopped"
        elif isinstance(message, BackgroundTasksChangedMessage):
            self._living = {task.task_id for task in message.tasks}
        elif isinstance(message, UserMessage):
            self._observe_words(message)
        elif isinstance(message, ResultMessage):
            self._observe_result(message)

    def _observe_words(self, message: UserMessage) -> None:
        """A task that ends while a tool runs is told to the model there and then, and only so."""
        if self._living and message.is_replay and _NOTICE in message.text:
            self._living = {task for task in self._living if task not in message.text}

    def _observe_result(self, message: ResultMessage) -> None:
        if message.origin is not None:
            self._results.append(message)
            self._announced = max(0, self._announced - 1)
        elif not self._living:
            # What ended in the foreground was part of the turn that ends here.
            self._announced = 0

    @property
    def is_pending(self) -> bool:
        """True while background work runs, or its turn is to come."""
        return bool(self._living) or self._announced > 0

    def complete(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """The outcome of the turn together with what followed it."""
        for result in self._results:
            outcome = _continued(outcome, result)
        return outcome


def _continued(outcome: Outcome[Any], result: ResultMessage) -> Outcome[Any]:
    """The last turn decides how it ended and what the answer is; costs add up."""
    if not outcome.ok:
        return outcome
    reason, detail = classify(Facts(ending=ResultEnd.of(result)))
    cost = (outcome.cost_usd or 0.0) + _cost_between(outcome.result, result)
    return structs.replace(
        outcome,
        reason=reason,
        detail=detail,
        text=result.result or "",
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
    """What the CLI, which counts from its start, spent between two results."""
    totals = [message.total_cost_usd or 0.0 for message in (before, after) if message is not None]
    return max(0.0, totals[-1] - totals[0]) if len(totals) > 1 else totals[-1]
