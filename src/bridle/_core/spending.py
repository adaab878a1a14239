"""Calculate the cost of turns, from their results and while they run.

Messages carry no cost. A result carries the CLI's total so far. In between, the CLI returns its
total on request (``get_session_cost``, as text). The total counts every model call of the process,
including those of subagents and background tasks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from bridle._fields import is_mapping
from bridle.content import ToolResultBlock, ToolUseBlock
from bridle.errors import ControlRejected, SessionStopped
from bridle.events import WarningKind
from bridle.messages import (
    AssistantMessage,
    Message,
    ResultMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    UserMessage,
)
from bridle.outcomes import Outcome, OutcomeReason

SESSION_COST = "get_session_cost"

_MAX_TASKS = 1024
"""Running tasks that are remembered. The oldest one is forgotten first."""

_TOTAL = re.compile(r"Total cost:\s*\$([\d,]+(?:\.(\d+))?)")


class Meter:
    """The CLI's total at the last result, and the amount that each result adds."""

    def __init__(self) -> None:
        #: Dollars; None before the first result.
        self.total: float | None = None

    def charge(self, result: ResultMessage) -> float | None:
        """Return the cost since the last result. None if the result has no total."""
        total = result.total_cost_usd
        if total is None or not math.isfinite(total):
            return None
        before, self.total = self.total, total
        added = result.model_usage_since_last_result
        if before is None and added is not None:
            # Newer CLIs continue the total of a resumed conversation.
            return min(total, sum(usage.cost_usd for usage in added.values()))
        # A lower total means that the CLI's counter was reset.
        return total - before if before is not None and total >= before else total

    def charge_late(self, result: ResultMessage) -> float | None:
        """Do the same for a late result. None if its total is lower: it must not lower ours."""
        is_current = (result.total_cost_usd or 0.0) >= (self.total or 0.0)
        return self.charge(result) if is_current else None


class Told(Struct, frozen=True):
    """The total as a range, because the CLI rounds it: to cents above half a dollar."""

    low: float
    high: float


def read_total(payload: object) -> Told | None:
    """Return the total in a response to ``get_session_cost``, or None if it cannot be read."""
    text = payload.get("text") if is_mapping(payload) else None
    found = _TOTAL.search(text) if isinstance(text, str) else None
    if found is None:
        return None
    amount = float(found[1].replace(",", ""))
    half = 0.5 * 10.0 ** -len(found[2] or "")
    return Told(amount - half, amount + half)


class Spending:
    """The cost of the running turn so far, for a limit of ``allowed`` dollars.

    The total is requested after each model call that another one may follow, with at most one
    pending request: when a tool is called, and when the tool's result arrives if the last response
    did not include that call yet. ``ask`` sends the request and passes the response or the error to
    the function that it is given.
    """

    def __init__(
        self,
        allowed: float,
        meter: Meter,
        *,
        ask: Callable[[Callable[[object], None], float], None],
        warn: Callable[[WarningKind, str], None],
    ) -> None:
        self.allowed = allowed
        self._meter = meter
        self._ask = ask
        self._warn = warn
        # The total at the start of the turn, if the last result does not have it.
        self._start: Told | None = None
        # The total at the start of a turn whose result arrived and whose background work runs.
        self._held_base: float | None = None
        # True while a request for the total at the start is pending.
        self._awaits_start = False
        # The running tasks, and whether the cost has changed since the last result.
        self._tasks: dict[str, None] = {}
        self._is_outdated = False
        # The last response, and the total of the last result when it arrived.
        self._told: Told | None = None
        self._told_after: float | None = None
        self._is_asking = False
        # The number of requests sent, and how many of them were sent before this turn.
        self._sent = 0
        self._sent_before = 0
        # True if a model call has ended since the pending request was sent.
        self._is_due = False
        # True if the total may not include a model call that was seen.
        self._is_behind = False
        self._last_message: str | None = None
        # True if the CLI cannot report its total. It is not requested again in this turn.
        self._is_unknown = False
        self._has_warned = False

    def is_passed(self, carried: float = 0.0) -> bool:
        """Return True if the turn has spent more than allowed, however the CLI has rounded.

        ``carried`` is what earlier prompts of the same answer have cost.
        """
        before = self._before
        left = self.allowed - carried
        total, base = self._meter.total, self._held_base
        if base is not None and total is not None and total - base > left:
            return True
        now = self._now
        if now is None or before is None:
            return False
        if now.high < before:
            before = 0.0  # the conversation was cleared, which resets the total
        return now.low - before > left

    @property
    def spent(self) -> float:
        """Return the dollars spent since the start, by the last response, or 0.0 without one."""
        now = self._now
        if now is None:
            return 0.0
        return max(0.0, (now.low + now.high) / 2 - (self._before or 0.0))

    @property
    def _now(self) -> Told | None:
        """Return the total of the last response. None if a result has arrived since.

        The CLI may end a turn of its own while prompts are queued. The result then has a later
        total, and the response would look like the lower total of a cleared conversation.
        """
        is_current = self._held_base is not None or self._told_after == self._meter.total
        return self._told if is_current else None

    @property
    def _before(self) -> float | None:
        """Return the total at the start of the turn. None if it is unknown.

        A result that arrives after the request for the start has a later total.
        """
        if self._awaits_start:
            return None
        last = self._meter.total if self._held_base is None else self._held_base
        totals = (last, None if self._start is None else self._start.high)
        return max((total for total in totals if total is not None), default=None)

    def begin(self, now: float) -> None:
        """Request the total at the start of a turn: a prompt was written while none was open.

        The last result has it, unless background work has spent something since.
        """
        if self._meter.total is None or self._is_outdated:
            self._awaits_start = True
            self._request(now)

    def observe(self, message: Message) -> None:
        """Note whether the total of the last result is still current. Takes every message."""
        if isinstance(message, ResultMessage):
            self._is_outdated = bool(self._tasks)
        elif isinstance(message, AssistantMessage):
            self._is_outdated = True
        elif isinstance(message, TaskStartedMessage):
            self._tasks[message.task_id] = None
            if len(self._tasks) > _MAX_TASKS:
                del self._tasks[next(iter(self._tasks))]
        elif isinstance(message, TaskNotificationMessage):
            self._tasks.pop(message.task_id, None)

    def hear(self, message: Message, now: float) -> None:
        """Take the next message of the running turn, or of a task it has started."""
        if isinstance(message, AssistantMessage):
            is_next_call = message.message_id != self._last_message
            self._last_message = message.message_id
            calls_tool = any(isinstance(block, ToolUseBlock) for block in message.content)
            if calls_tool or (is_next_call and self._is_behind):
                self._request(now)
            self._is_behind = True
        elif isinstance(message, UserMessage) and self._is_behind:
            content = () if isinstance(message.content, str) else message.content
            if any(isinstance(block, ToolResultBlock) for block in content):
                self._request(now)

    def request_if_due(self, now: float) -> None:
        """Request the total again if a model call has ended since the last request."""
        if self._is_due and not self._is_asking:
            self._is_due = False
            if self._is_behind:
                self._request(now)

    def hold(self, outcome: Outcome[Any]) -> None:
        """Keep counting from the start of the turn while its background work runs."""
        if self._meter.total is not None:
            self._held_base = self._meter.total - (outcome.cost_usd or 0.0)

    def end(self, outcome: Outcome[Any], carried: float = 0.0) -> None:
        """Warn if a turn that has ended cost more than allowed and was not ended for that.

        ``carried`` is what earlier prompts of the same answer have cost. A prompt that was
        withdrawn has not ended a turn, so the running turn goes on.
        """
        if outcome.result is None and outcome.reason is not OutcomeReason.MESSAGE_LOST:
            return
        self._is_due = self._is_behind = self._is_unknown = self._has_warned = False
        self._told = self._held_base = None
        self._sent_before = self._sent
        cost = outcome.cost_usd or 0.0
        if self._start is not None and outcome.result is not None:
            # The turn's cost includes what background work spent before it, which was not its own.
            cost = min(cost, (outcome.result.total_cost_usd or 0.0) - self._start.low)
        if self._meter.total is not None:
            self._start = None
            self._awaits_start = False
        cost += carried
        if cost > self.allowed and outcome.reason is not OutcomeReason.LIMIT_USD:
            self._warn(WarningKind.USD_LIMIT_PASSED, f"${cost:.4f} of ${self.allowed:g}")

    def _request(self, now: float) -> None:
        if self._is_unknown:
            return
        if self._is_asking:
            self._is_due = True
            return
        self._is_asking = True
        self._sent += 1
        number = self._sent
        self._ask(lambda answer: self._tell(answer, number), now)

    def _tell(self, answer: object, number: int) -> None:
        """Take the response to request ``number``, or its error. A late response may follow."""
        told = read_total(answer)
        before = self._now
        if number < self._sent or not self._is_asking:
            # An earlier turn's total, or one that is lower than ours, is out of date.
            is_current = number > self._sent_before
            if told is None or not is_current or (before and told.high <= before.high):
                return
        else:
            self._is_asking = False
        if told is None:
            self._note_failure(answer)
            return
        if self._awaits_start or self._before is None:
            self._start = told
            self._awaits_start = False
        elif told.low > (self._before if before is None else before.high):
            self._is_behind = False
        self._told, self._told_after = told, self._meter.total

    def _note_failure(self, answer: object) -> None:
        """Warn once per turn. A request that timed out is sent again after the next model call."""
        if isinstance(answer, SessionStopped):
            return
        is_error = isinstance(answer, Exception)
        self._is_unknown = not is_error or isinstance(answer, ControlRejected)
        self._is_behind = True
        if not self._has_warned:
            self._has_warned = True
            why = type(answer).__name__ if is_error else "no amount in it"
            self._warn(WarningKind.COST_UNKNOWN, f"{SESSION_COST}: {why}")
