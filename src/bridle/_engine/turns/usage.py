"""Count the tokens and the cost of a session.

* A result carries the totals of the CLI process by model (``modelUsage``) and the total cost. They
  include subagents and background tasks. Each result adds the difference to the one before it.
* ``usage`` of a result counts only the calls of the main agent in that turn, so it is not used.
* Every message of one answer repeats the usage of that answer, with the same message id and
  without the final number of output tokens. These count once, and only until the next result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import structs

from bridle._engine.turns.model_text import SYNTHETIC
from bridle.content import ToolUseBlock
from bridle.messages import AssistantMessage, Message, ModelUsage, ResultMessage, Usage
from bridle.outcomes import SessionUsage, TurnUsage

MAX_TURNS = 256
"""Turns that are kept one by one. The totals include older ones."""

MAX_CALLS = 128
"""Answers since the last result that are kept one by one, at least. At most twice as many.

More than the subagents that may write answers at the same time, and few enough for the memory of
hundreds of sessions.
"""

_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_COUNTS = (
    *_TOKENS,
    "web_search_requests",
    "cost_usd",
)
_DETAILS = (
    "cache_creation_ephemeral_5m_input_tokens",
    "cache_creation_ephemeral_1h_input_tokens",
    "thinking_tokens",
)
"""Counts that older CLIs do not send."""

_Models = Mapping[str, ModelUsage]


class CallCount:
    """The calls of the model, and the tool calls that it made, subagents included."""

    __slots__ = ("_last", "main_model_calls", "model_calls", "tool_calls")

    def __init__(self) -> None:
        self.model_calls = 0
        #: Without subagents.
        self.main_model_calls = 0
        self.tool_calls = 0
        # The id of the last answer, by agent (the tool call that started it).
        self._last: dict[str | None, str | None] = {}

    def add(self, messages: Iterable[Message]) -> None:
        """Count the calls that these messages show."""
        last = self._last
        for message in messages:
            if type(message) is AssistantMessage:
                # Not through the properties of the message: this runs for every message.
                answer = message._message  # pyright: ignore[reportPrivateUsage]
                agent = message.parent_tool_use_id
                # The CLI sends one message per content block, and messages of its own.
                if answer.id != last.get(agent, "") and answer.model != SYNTHETIC:
                    last[agent] = answer.id
                    self.model_calls += 1
                    if agent is None:
                        self.main_model_calls += 1
                for block in answer.content:
                    if type(block) is ToolUseBlock:
                        self.tool_calls += 1


class UsageBook:
    """The usage of one session."""

    def __init__(self) -> None:
        # What results have added.
        self._models: _Models = {}
        self._cost: float | None = None
        self._turns: deque[TurnUsage] = deque(maxlen=MAX_TURNS)
        # The CLI's totals at the last result; None before the first one.
        self._totals: _Models | None = None
        # The answers since the last result, by message id, and the sum of older ones.
        self._calls: dict[str, tuple[str | None, Usage]] = {}
        self._older: _Models = {}
        self._last_call: str | None = None

    def note(self, messages: Iterable[Message]) -> None:
        """Count the answers that these messages are part of, each once."""
        last, calls = self._last_call, self._calls
        for message in messages:
            if type(message) is AssistantMessage:
                # Not through the properties of the message: this runs for every message.
                answer = message._message  # pyright: ignore[reportPrivateUsage]
                call, usage = answer.id, answer.usage
                if call != last:
                    last = call
                    if call is not None and usage is not None:
                        calls[call] = (answer.model, usage)
        self._last_call = last
        if len(calls) > 2 * MAX_CALLS:
            # Many at once: summing one answer at a time costs more than decoding it.
            oldest = list(calls)[:-MAX_CALLS]
            self._older = _sum(self._older, _by_model(map(calls.pop, oldest)))

    def charge(self, result: ResultMessage, cost: float | None, prompts: tuple[str, ...]) -> None:
        """Add what a result has added, with its cost in dollars."""
        before, self._totals = self._totals, result.model_usage
        added: _Models | None = result.model_usage_since_last_result
        if before is not None or added is None:
            added = _difference(result.model_usage, before or {})
        self._models = _sum(self._models, added)
        if cost is not None:
            self._cost = (self._cost or 0.0) + cost
        self._turns.append(TurnUsage(models=added, cost_usd=cost, prompts=prompts))
        self._calls.clear()
        self._older = {}
        self._last_call = None

    def read(self) -> SessionUsage:
        """Return the usage so far."""
        running = _sum(self._older, _by_model(self._calls.values()))
        return SessionUsage(
            models=_sum(self._models, running), cost_usd=self._cost, turns=tuple(self._turns)
        )


def add_usage(before: Usage | None, after: Usage | None) -> Usage | None:
    """Return the later token usage with the counts of both."""
    if before is None or after is None:
        return after or before
    counts = [(name, getattr(before, name), getattr(after, name)) for name in _TOKENS]
    known = {name: (a or 0) + (b or 0) for name, a, b in counts if (a, b) != (None, None)}
    return structs.replace(after, **known)


def _by_model(calls: Iterable[tuple[str | None, Usage]]) -> _Models:
    """Return the usage of answers, summed by model. Messages of the CLI itself do not count."""
    sums: dict[str, list[int]] = {}
    for model, usage in calls:
        if model is None or model == SYNTHETIC:
            continue
        counts = sums.setdefault(model, [0, 0, 0, 0])
        counts[0] += usage.input_tokens
        counts[1] += usage.output_tokens
        counts[2] += usage.cache_read_input_tokens or 0
        counts[3] += usage.cache_creation_input_tokens or 0
    return {
        model: ModelUsage(
            input_tokens=counts[0],
            output_tokens=counts[1],
            cache_read_input_tokens=counts[2],
            cache_creation_input_tokens=counts[3],
        )
        for model, counts in sums.items()
    }


def _sum(first: _Models, second: _Models) -> _Models:
    models = dict(first)
    for name, usage in second.items():
        models[name] = _add(models[name], usage) if name in models else usage
    return models


def _add(first: ModelUsage, second: ModelUsage) -> ModelUsage:
    """Return the sum. What is not a count, such as the context window, is that of the second."""
    values: dict[str, object] = {
        name: getattr(first, name) + getattr(second, name) for name in _COUNTS
    }
    for name in _DETAILS:
        counts = [getattr(each, name) for each in (first, second)]
        known = [count for count in counts if count is not None]
        values[name] = sum(known) if known else None
    for name in ("context_window", "max_output_tokens"):
        values[name] = getattr(second, name) or getattr(first, name)
    return structs.replace(second, **values)


def _difference(now: _Models, before: _Models) -> _Models:
    """Return what was added between two totals. Models that added nothing are left out.

    A lower total means that the CLI's counters were reset.
    """
    added: dict[str, ModelUsage] = {}
    for name, usage in now.items():
        old = before.get(name)
        if old is None or any(getattr(usage, key) < getattr(old, key) for key in _COUNTS):
            added[name] = usage
        elif any(getattr(usage, key) != getattr(old, key) for key in _COUNTS):
            values: dict[str, object] = {
                key: getattr(usage, key) - getattr(old, key) for key in _COUNTS
            }
            for key in _DETAILS:
                count = getattr(usage, key)
                values[key] = None if count is None else count - (getattr(old, key) or 0)
            added[name] = structs.replace(usage, **values)
    return added
