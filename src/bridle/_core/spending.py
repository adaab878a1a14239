"""What turns cost: by their results, and while they run.

Lines of the conversation carry no cost. A result carries the CLI's total so far, and in between the
CLI tells its total when it is asked (``get_session_cost``, as text). The total counts every model
call of the process, those of subagents and background tasks included.
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
"""Running tasks that are remembered; the oldest one is forgotten first."""

_TOTAL = re.compile(r"Total cost:\s*\$([\d,]+(?:\.(\d+))?)")


class Meter:
    """The CLI's total as of the last result, and what each result added to it."""

    def __init__(self) -> None:
        #: Dollars; None before the first result.
        self.total: float | None = None

    def charge(self, result: ResultMessage) -> float | None:
        """Return what was spent since the last result; None if the CLI does not tell."""
        total = result.total_cost_usd
        if total is None or not math.isfinite(total):
            return None
        before, self.total = self.total, total
        added = result.model_usage_since_last_result
        if before is None and added is not None:
            # Newer CLIs continue the total of a conversation that is resumed.
            return min(total, sum(usage.cost_usd for usage in added.values()))
        # A total that fell has begun anew.
        return total - before if before is not None and total >= before else total

    def charge_late(self, result: ResultMessage) -> None:
        """Count a result that came late: it does not lower the total."""
        if (result.total_cost_usd or 0.0) >= (self.total or 0.0):
            self.charge(result)


class Told(Struct, frozen=True):
    """The total as the CLI tells it, which it rounds: to cents above half a dollar."""

    low: float
    high: float


def read_total(payload: object) -> Told | None:
    """Return what an answer to ``get_session_cost`` says; None if it cannot be read."""
    text = payload.get("text") if is_mapping(payload) else None
    found = _TOTAL.search(text) if isinstance(text, str) else None
    if found is None:
        return None
    amount = float(found[1].replace(",", ""))
    half = 0.5 * 10.0 ** -len(found[2] or "")
    return Told(amount - half, amount + half)


class Spending:
    """What the running turn has spent so far, for a limit of ``allowed`` dollars.

    The CLI is asked after each model call that another one may follow, with at most one request
    under way: when a tool is called, and when the tool's result comes if the answer did not count
    that call yet. ``ask`` sends the request, and passes the answer or the error to the function it
    is given.
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
        # The total when the turn began, where the last result does not tell it, and now.
        self._start: Told | None = None
        # The total when the turn began, once its result came and its background work goes on.
        self._held_base: float | None = None
        # The CLI was asked for the total at the start and has not answered.
        self._awaits_start = False
        # Tasks that run, and whether something was spent since the last result.
        self._tasks: dict[str, None] = {}
        self._is_outdated = False
        self._now: Told | None = None
        self._is_asking = False
        # A model call has ended since the request under way was sent.
        self._is_due = False
        # A model call was seen that the total may not include.
        self._is_behind = False
        self._last_message: str | None = None
        # The CLI cannot tell its total: it is not asked again in this turn.
        self._is_unknown = False
        self._has_warned = False

    @property
    def is_passed(self) -> bool:
        """True if the turn has spent more than allowed, whatever the CLI rounded."""
        before = self._before
        total, base = self._meter.total, self._held_base
        if base is not None and total is not None and total - base > self.allowed:
            return True
        if self._now is None or before is None:
            return False
        if self._now.high < before:
            before = 0.0  # the conversation was cleared, and the total has begun anew
        return self._now.low - before > self.allowed

    @property
    def spent(self) -> float:
        """Dollars spent since the start, as the CLI told last; 0.0 if it has not told."""
        if self._now is None:
            return 0.0
        told = (self._now.low + self._now.high) / 2
        return max(0.0, told - (self._before or 0.0))

    @property
    def _before(self) -> float | None:
        """The total at the start of the turn; None if it is not known.

        A result that comes after the start was asked for tells a later total.
        """
        if self._awaits_start:
            return None
        last = self._meter.total if self._held_base is None else self._held_base
        totals = (last, None if self._start is None else self._start.high)
        return max((total for total in totals if total is not None), default=None)

    def begin(self, now: float) -> None:
        """Learn the total that a turn starts from: a prompt was written while none was open.

        The last result tells it, unless background work has spent something since.
        """
        if self._meter.total is None or self._is_outdated:
            self._awaits_start = True
            self._request(now)

    def observe(self, message: Message) -> None:
        """Note whether the total of the last result is still true; any message of the session."""
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
        """The next message of the running turn, or of a task it has started, came."""
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
        """Ask again if a model call has ended since the CLI was asked last."""
        if self._is_due and not self._is_asking:
            self._is_due = False
            if self._is_behind:
                self._request(now)

    def hold(self, outcome: Outcome[Any]) -> None:
        """Count on from the start of the turn: its result came, its background work goes on."""
        if self._meter.total is not None:
            self._held_base = self._meter.total - (outcome.cost_usd or 0.0)

    def end(self, outcome: Outcome[Any]) -> None:
        """A turn ended: warn if it cost more than allowed and was not ended for that.

        A prompt that was taken back ended no turn: the running one goes on.
        """
        if outcome.result is None and outcome.reason is not OutcomeReason.MESSAGE_LOST:
            return
        self._is_due = self._is_behind = self._is_unknown = self._has_warned = False
        self._now = self._held_base = None
        cost = outcome.cost_usd or 0.0
        if self._start is not None and outcome.result is not None:
            # What background work spent before the turn is in its cost, but was not its own.
            cost = min(cost, (outcome.result.total_cost_usd or 0.0) - self._start.low)
        if self._meter.total is not None:
            self._start = None
            self._awaits_start = False
        if cost > self.allowed and outcome.reason is not OutcomeReason.LIMIT_USD:
            self._warn(WarningKind.USD_LIMIT_PASSED, f"${cost:.4f} of ${self.allowed:g}")

    def _request(self, now: float) -> None:
        if self._is_unknown:
            return
        if self._is_asking:
            self._is_due = True
            return
        self._is_asking = True
        self._ask(self._tell, now)

    def _tell(self, answer: object) -> None:
        self._is_asking = False
        told = read_total(answer)
        if told is None:
            self._note_failure(answer)
            return
        if self._awaits_start or self._before is None:
            self._start = told
            self._awaits_start = False
        elif told.low > (self._before if self._now is None else self._now.high):
            self._is_behind = False
        self._now = told

    def _note_failure(self, answer: object) -> None:
        """Warn once a turn. A request that timed out is sent again after the next model call."""
        if isinstance(answer, SessionStopped):
            return
        is_error = isinstance(answer, Exception)
        self._is_unknown = not is_error or isinstance(answer, ControlRejected)
        self._is_behind = True
        if not self._has_warned:
            self._has_warned = True
            why = type(answer).__name__ if is_error else "no amount in it"
            self._warn(WarningKind.COST_UNKNOWN, f"{SESSION_COST}: {why}")
