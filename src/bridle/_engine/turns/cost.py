"""Calculate the cost of turns, from their results and while they run.

Messages carry no cost. A result carries the CLI's total so far. In between, the CLI returns its
total on request (``get_usage``). The total counts every model call of the process, including those
of subagents and background tasks. A total that cannot be read ends the turn: a limit that cannot be
measured counts as reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from bridle._engine.turns.model_text import SYNTHETIC
from bridle._engine.turns.subagents import keep
from bridle._engine.versions import USAGE_SINCE
from bridle._records.fields import is_mapping
from bridle.content import ToolResultBlock, ToolUseBlock
from bridle.errors import ControlTimeout, SessionStopped
from bridle.events import WarningKind
from bridle.messages import (
    AssistantMessage,
    Message,
    ResultMessage,
    UserMessage,
)
from bridle.messages._stream_objects import Usage
from bridle.outcomes import Outcome, OutcomeReason

GET_USAGE = "get_usage"

USAGE_FIELDS: Mapping[str, object] = {"skip_behaviors": True}
"""Without this, the CLI reads all transcripts of the last week first."""

USAGE_TIMEOUT = 15.0
"""Seconds after which the cost counts as unknown. CLIs answer within 0.2 s.

With a subscription, the CLI may request the rate limits from the API before it answers.
"""

SPENDING_TIMEOUT = 10.0
"""The same, in seconds, if the model is called again meanwhile."""

_MAX_UNANSWERED = 3
"""Model calls of one agent after which the cost counts as unknown, however short they were."""

_MAX_AGENTS = 1024
"""Agents whose calls are counted. The one that has been silent for longest is forgotten first."""

_MAX_STILL = 3
"""Model calls of one agent after which a total that has not risen is not a cost.

The second call shows that the first has ended. The CLI may have counted the first before we saw it,
or may have cut it off, so the third one decides.
"""

_MAX_TOTAL = 1e12
"""Dollars. A higher total is not a cost."""

_TOLERANCE = 1e-6
"""Dollars by which sums of the same costs may differ, because they are floating-point numbers."""


class Meter:
    """The CLI's total at the last result, and the amount that each result adds."""

    def __init__(self) -> None:
        #: Dollars; None before the first result.
        self.total: float | None = None
        #: True if tasks ran at the last result, so that the total may have risen since.
        self.has_tasks = False

    def charge(self, result: ResultMessage) -> float | None:
        """Return the cost since the last result. None if the result has no total."""
        total = result.total_cost_usd
        if total is None or not math.isfinite(total) or total < 0:
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


def read_total(answer: object) -> float | str:
    """Return the total in the response to ``get_usage``, or why it cannot be read."""
    if isinstance(answer, ControlTimeout):
        return f"the CLI did not answer within {answer.timeout:g} s"
    if isinstance(answer, Exception):
        return "the CLI rejected the request"
    session = answer.get("session") if is_mapping(answer) else None
    total = session.get("total_cost_usd") if is_mapping(session) else None
    if isinstance(total, bool) or not isinstance(total, int | float):
        return "the response has no number in session.total_cost_usd"
    if not 0 <= total < _MAX_TOTAL:
        return "session.total_cost_usd is not a cost"
    return float(total)


class Spending:
    """The cost of the running turn so far, for a limit of ``allowed`` dollars.

    The total is requested after each model call that another one may follow, with at most one
    pending request: when a tool is called, and when the tool's result arrives if the last response
    did not include that call yet. ``ask`` sends the request and passes the response or the error to
    the function that it is given. ``is_silent`` returns True for a CLI that is so old that it may
    never answer: it has to answer before the model is called.
    """

    def __init__(
        self,
        allowed: float,
        meter: Meter,
        *,
        ask: Callable[[Callable[[object], None], float], None],
        is_silent: Callable[[], bool],
        warn: Callable[[WarningKind, str], None],
    ) -> None:
        self.allowed = allowed
        self._meter = meter
        self._ask = ask
        self._is_silent = is_silent
        self._warn = warn
        # The total at the start of the turn, if the last result does not have it.
        self._start: float | None = None
        # The total at the start of a turn whose result arrived and whose background work runs.
        self._held_base: float | None = None
        # True while a request for the total at the start is pending.
        self._awaits_start = False
        # True if the cost has changed since the last result.
        self._is_outdated = False
        # The last response, and the total of the last result when it arrived.
        self._told: float | None = None
        self._told_after: float | None = None
        self._is_asking = False
        self._asked_at = 0.0
        # The most model calls that an agent had made since the total rose, when it was requested.
        self._asked_after = 0
        # True once the CLI has answered a request.
        self._has_answered = False
        # The number of turns that have ended.
        self._ended = 0
        # True if the total has to be requested after the pending response.
        self._is_due = False
        # True if the total may not include a model call that was seen.
        self._is_behind = False
        self._has_model_call = False
        self._last_message: str | None = None
        # For each agent, its last model call and how many it has made since the total rose.
        self._calls: dict[str | None, tuple[str | None, int]] = {}
        # Why the total of this turn cannot be read.
        self._problem = ""

    @property
    def problem(self) -> str:
        """Return why the cost of a model call of this turn cannot be read, or an empty text."""
        return self._problem if self._has_model_call else ""

    def is_passed(self, carried: float = 0.0) -> bool:
        """Return True if the turn has spent more than allowed.

        ``carried`` is what earlier prompts of the same answer have cost.
        """
        left = self.allowed - carried + _TOLERANCE
        total, base = self._meter.total, self._held_base
        if base is not None and total is not None and total - base > left:
            return True
        now, before = self._now, self._before
        return now is not None and before is not None and now - before > left

    @property
    def spent(self) -> float:
        """Return the dollars spent since the start, by the last response, or 0.0 without one."""
        now = self._now
        return 0.0 if now is None else max(0.0, now - (self._before or 0.0))

    @property
    def _now(self) -> float | None:
        """Return the total of the last response. None if a result has arrived since.

        The CLI may end a turn of its own while prompts are queued. The result then has a later
        total.
        """
        return self._told if self._held_base is not None else self._told_since_result

    @property
    def _told_since_result(self) -> float | None:
        return self._told if self._told_after == self._meter.total else None

    @property
    def _before(self) -> float | None:
        """Return the total at the start of the turn. None while it is being requested.

        A result that arrives after the request for the start has a later total.
        """
        if self._awaits_start:
            return None
        last = self._meter.total if self._held_base is None else self._held_base
        return max(last or 0.0, self._start or 0.0)

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
            self._is_outdated = self._meter.has_tasks or message.total_cost_usd != self._meter.total
            self._forget_counts()
        elif isinstance(message, AssistantMessage):
            self._is_outdated = True

    def hear(self, message: Message, now: float) -> None:
        """Take the next message of the running turn, or of a task it has started."""
        if isinstance(message, AssistantMessage):
            if message.model == SYNTHETIC:  # a message of the CLI's own
                return
            self._has_model_call = True
            self._count(message)
            is_next_call = message.message_id != self._last_message
            self._last_message = message.message_id
            if is_next_call and self._is_asking:
                self._check_wait(now)
            calls_tool = any(isinstance(block, ToolUseBlock) for block in message.content)
            if calls_tool or (is_next_call and self._is_behind):
                self._request(now)
            self._is_behind = True
        elif isinstance(message, UserMessage) and self._is_behind:
            content = () if isinstance(message.content, str) else message.content
            if any(isinstance(block, ToolResultBlock) for block in content):
                self._request(now)

    def _count(self, message: AssistantMessage) -> None:
        """Count the model calls of each agent: the next call of an agent ends its last one."""
        last, count = self._calls.pop(message.parent_tool_use_id, (None, 0))
        if message.message_id != last and _has_tokens(message.usage):
            last, count = message.message_id, count + 1
        keep(self._calls, message.parent_tool_use_id, (last, count), _MAX_AGENTS)

    def _forget_counts(self) -> None:
        self._calls = {agent: (last, 0) for agent, (last, _) in self._calls.items()}

    def _check_wait(self, now: float) -> None:
        """Give up if the response to the pending request takes too long."""
        if not self._has_answered and self._is_silent():
            self._give_up(f"the CLI did not answer; it must be {USAGE_SINCE} or newer")
        elif now >= self._asked_at + SPENDING_TIMEOUT:
            self._give_up(f"the CLI did not answer within {SPENDING_TIMEOUT:g} s")
        elif self._most_calls >= self._asked_after + _MAX_UNANSWERED:
            self._give_up(f"the CLI did not answer during {_MAX_UNANSWERED} model calls")

    def request_if_due(self, now: float) -> None:
        """Request the total again if the last response is out of date."""
        if self._is_due and not self._is_asking:
            self._is_due = False
            if self._is_behind or self._awaits_start:
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
        self._is_due = self._is_behind = self._has_model_call = False
        self._problem = ""
        self._told = self._held_base = None
        self._ended += 1
        cost = outcome.cost_usd or 0.0
        if self._start is not None and outcome.result is not None:
            # The turn's cost includes what background work spent before it, which was not its own.
            cost = min(cost, (outcome.result.total_cost_usd or 0.0) - self._start)
        if self._meter.total is not None:
            self._start = None
            self._awaits_start = False
        cost += carried
        if cost > self.allowed + _TOLERANCE and outcome.reason is not OutcomeReason.LIMIT_USD:
            self._warn(WarningKind.USD_LIMIT_PASSED, f"${cost:.4f} of ${self.allowed:g}")

    def _request(self, now: float) -> None:
        if self._problem:
            return
        if self._is_asking:
            self._is_due = True
            return
        self._is_asking = True
        self._asked_at = now
        state = self._state
        calls = self._asked_after = self._most_calls
        self._ask(lambda answer: self._tell(answer, state, calls), now)

    @property
    def _most_calls(self) -> int:
        """Return how many model calls an agent has made since the total rose, at most."""
        return max((count for _, count in self._calls.values()), default=0)

    @property
    def _state(self) -> tuple[int, float | None]:
        """Return what changes with each result."""
        return self._ended, self._meter.total

    def _tell(self, answer: object, state: tuple[int, float | None], calls: int) -> None:
        """Take the response to the request that was sent at ``state``, or its error.

        ``calls`` is how many model calls an agent had made then since the total rose.
        """
        self._is_asking = False
        if isinstance(answer, SessionStopped):
            return
        self._has_answered = self._has_answered or not isinstance(answer, ControlTimeout)
        if state != self._state:
            # A result has arrived since, so the response is out of date.
            self._is_due = True
            return
        total = read_total(answer)
        known = self._told_since_result or self._meter.total or 0.0
        if isinstance(total, float) and total <= known:
            if total < known - _TOLERANCE:
                total = f"the CLI's total fell from ${known:.4f} to ${total:.4f}"
            elif calls >= _MAX_STILL and not self._awaits_start:
                total = "the CLI's total does not rise"
        if isinstance(total, str):
            self._give_up(total)
            return
        if self._awaits_start:
            self._start = total
            self._awaits_start = False
            self._forget_counts()
        elif total > known:
            self._is_behind = False
            self._forget_counts()
        self._told, self._told_after = total, self._meter.total

    def _give_up(self, problem: str) -> None:
        if not self._problem:
            self._problem = problem
            self._warn(WarningKind.COST_UNKNOWN, f"{GET_USAGE}: {problem}")


def _has_tokens(usage: Usage | None) -> bool:
    """Return False if a model call used no tokens, and so costs nothing."""
    if usage is None:
        return True
    cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    return bool(usage.input_tokens or usage.output_tokens or cached)
