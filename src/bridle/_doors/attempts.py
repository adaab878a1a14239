"""Ask again in the same conversation: after an output that does not fit, and after an API error.

`run` and the turns of a session with an output type share it, so it is in neither module.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs

from bridle._core.budget import Used
from bridle._core.precedence import ResolvedOptions
from bridle._shell import timer
from bridle._shell.typed_output import OutputType
from bridle.errors import ControlError, OptionsError
from bridle.options import Limits, Retry
from bridle.outcomes import Outcome, OutcomeReason

Ask = Callable[[str, Used], Awaitable[Outcome[Any]]]
"""Send a prompt that continues an answer, and return its outcome."""

_UNFIT = frozenset({OutcomeReason.OUTPUT_INVALID, OutcomeReason.OUTPUT_MISSING})

_FIRST_PAUSE = 1.0
"""Seconds before the second attempt, if the API does not say when to come back. It doubles."""


class Attempts:
    """Decides whether an answer is final, and how to ask for a better one."""

    def __init__(
        self,
        output: OutputType | None = None,
        *,
        output_retries: int = 0,
        retry: Retry | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._output = output
        self._output_retries = output_retries
        self._retry = retry
        self._limits = limits or Limits()

    async def finish(self, first: Outcome[Any], ask: Ask) -> Outcome[Any]:
        """Return the final outcome of an answer. Its costs include those of all prompts."""
        began = time.monotonic() - first.duration
        outcome = self._converted(first)
        corrections, attempts = self._output_retries, self._retry.attempts if self._retry else 1
        while True:
            if outcome.reason in _UNFIT and corrections:
                corrections -= 1
                prompt = _correction(outcome)
            elif outcome.retryable and attempts > 1 and self._retry is not None:
                attempts -= 1
                pause = _pause(self._retry, outcome, attempts)
                if pause is None or not self._has_time(time.monotonic() - began + pause):
                    return outcome
                await timer.until(timer.in_seconds(pause))
                prompt = _CONTINUE
            else:
                return outcome
            seconds = time.monotonic() - began
            used = Used(seconds, outcome.model_calls, outcome.cost_usd or 0.0)
            try:
                more = await ask(prompt, used)
            except ControlError:  # the session has ended; this outcome is the last one
                return outcome
            more = structs.replace(more, duration=time.monotonic() - began)
            outcome = _combined(outcome, self._converted(more))

    def _converted(self, outcome: Outcome[Any]) -> Outcome[Any]:
        return outcome if self._output is None else self._output.convert(outcome)

    def _has_time(self, seconds: float) -> bool:
        return self._limits.total is None or seconds < self._limits.total


def with_schema(options: ResolvedOptions, output: OutputType | None) -> ResolvedOptions:
    """Return the options with the JSON schema of the output type.

    Raises:
        OptionsError: the program set a schema of its own.
    """
    if output is None:
        return options
    if options.origin["cli.json_schema"] == "argument":
        fix = "Set only one of them."
        raise OptionsError("output_type", "cannot be used together with json_schema", fix=fix)
    return structs.replace(options, cli=options.cli.replace(json_schema=output.schema))


def checked_retries(retries: object) -> int:
    """Return a number of retries. Raise OptionsError if it is not a whole number from 0 on."""
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        problem = f"must be a whole number from 0 on, got {retries!r}"
        raise OptionsError("output_retries", problem, fix="Use 1, or 0 for no retry.")
    return retries


_CONTINUE = (
    "The request to the model failed for a technical reason, so your last answer is missing or "
    "incomplete. Continue with the task where it stopped. Do not repeat what is already done."
)


def _correction(outcome: Outcome[Any]) -> str:
    if outcome.reason is OutcomeReason.OUTPUT_MISSING:
        return "Your answer has no structured output. Give the same answer as structured output."
    return f"Your structured output was rejected: {outcome.detail}. Correct it and give it again."


def _pause(retry: Retry, outcome: Outcome[Any], attempts_left: int) -> float | None:
    """Return the seconds to wait before the next attempt. None: not worth waiting."""
    if outcome.reason is OutcomeReason.CLI_EXITED:
        return None  # there is no process left to ask
    if outcome.resets_at is not None:
        if not retry.wait_for_reset:
            return None
        pause = max(0.0, outcome.resets_at - time.time())
        return pause if pause <= retry.max_wait else None
    done = retry.attempts - 1 - attempts_left
    # Random, so that many programs do not repeat their requests at the same moment.
    return min(_FIRST_PAUSE * 2.0**done * random.uniform(0.5, 1.5), retry.max_wait)


def _combined(before: Outcome[Any], after: Outcome[Any]) -> Outcome[Any]:
    """Return the later outcome with the costs of both. It belongs to the first prompt."""
    costs = [one.cost_usd for one in (before, after) if one.cost_usd is not None]
    return structs.replace(
        after,
        uuid=before.uuid,
        merged_with=before.merged_with,
        text=after.text or before.text,
        cost_usd=sum(costs) if costs else None,
        usage=_added(before.usage, after.usage),
        num_turns=before.num_turns + after.num_turns,
        model_calls=before.model_calls + after.model_calls,
        tool_calls=before.tool_calls + after.tool_calls,
        api_retries=before.api_retries + after.api_retries,
        last_retry=after.last_retry or before.last_retry,
    )


_COUNTED = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)


def _added(before: Any, after: Any) -> Any:
    """Return the later token usage with the counts of both."""
    if before is None or after is None:
        return after or before
    counts = {
        name: (getattr(before, name) or 0) + (getattr(after, name) or 0)
        for name in _COUNTED
        if getattr(before, name) is not None or getattr(after, name) is not None
    }
    return structs.replace(after, **counts)
