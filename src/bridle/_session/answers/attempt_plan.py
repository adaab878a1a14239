"""Decide whether to ask again after an outcome: a correction of the output, or another attempt.

The prompts that follow belong to the same answer: its limits, costs and counts include them. Turns
and limits of single prompts are in other modules, which know nothing of answers.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

from bridle._engine.turns.turn_records import Used
from bridle._engine.turns.usage import add_usage
from bridle.options import Limits, Retry
from bridle.outcomes import Outcome, OutcomeReason

_UNFIT = frozenset({OutcomeReason.OUTPUT_INVALID, OutcomeReason.OUTPUT_MISSING})

_FIRST_PAUSE = 1.0
"""Seconds before the second attempt, if the API does not say when to come back. It doubles."""

_CONTINUE = (
    "The request to the model failed for a technical reason, so your last answer is missing or "
    "incomplete. Continue with the task where it stopped. Do not repeat what is already done."
)


class AskAgain(Struct, frozen=True):
    """The prompt to send next, and the seconds to wait before it."""

    prompt: str
    pause: float = 0.0


class AnswerPlan:
    """The prompts that may still follow for one answer."""

    def __init__(self, *, output_retries: int, retry: Retry | None, limits: Limits) -> None:
        #: How many corrections may still be sent.
        self.corrections = output_retries
        self._retry = retry
        #: How often the request was repeated after a temporary failure.
        self.retries = 0
        self._limits = limits

    def next(
        self,
        outcome: Outcome[Any],
        *,
        is_last: bool,
        seconds: float,
        wall: float,
        chance: float,
    ) -> AskAgain | None:
        """Return what to ask after ``outcome``. None if it is the final one.

        Args:
            outcome: the outcome of the answer so far
            is_last: False if another prompt was sent after those of this answer. The CLI would
                handle ours after it, and the model would correct the answer to that one.
            seconds: how long the answer has taken
            wall: seconds since the epoch
            chance: a random number from 0 to 1, so that many programs do not repeat their requests
                at the same moment
        """
        if not is_last:
            return None
        # Without a model call it was a slash command, which has no answer to correct.
        if outcome.reason in _UNFIT and self.corrections and outcome.model_calls:
            self.corrections -= 1
            again = AskAgain(_correction(outcome))
        elif outcome.retryable and self._retry and self.retries < self._retry.attempts - 1:
            pause = _pause(self._retry, self.retries, outcome, wall, chance)
            if pause is None:
                return None
            self.retries += 1
            again = AskAgain(_CONTINUE, pause)
        else:
            return None
        return None if self.is_used_up(outcome, seconds + again.pause) else again

    def is_used_up(self, outcome: Outcome[Any], seconds: float) -> bool:
        """Return True if the answer has used up a limit, or has an unknown cost and one for it."""
        has_unknown_cost = outcome.cost_usd is None and outcome.model_calls > 0
        if has_unknown_cost and self._limits.usd is not None:
            return True
        return is_used_up(self._limits, used_by(outcome, seconds))

    def pause_after_crash(
        self, outcome: Outcome[Any], seconds: float, chance: float
    ) -> float | None:
        """Return how many seconds to wait before a new process. None if none may be started.

        It counts as an attempt. See :meth:`next` for the arguments.
        """
        retry = self._retry
        if retry is None or self.retries >= retry.attempts - 1:
            return None
        pause = _backoff(retry, self.retries, chance)
        if self.is_used_up(outcome, seconds + pause):
            return None
        self.retries += 1
        return pause

    def rest(self) -> Retry | None:
        """Return the attempts that are left, for a new process."""
        retry = self._retry
        return retry and retry.replace(attempts=retry.attempts - self.retries)

    def count(self, other: AnswerPlan) -> None:
        """Count what another process has used of the attempts that were left."""
        self.retries += other.retries
        self.corrections = other.corrections


def is_used_up(limits: Limits, used: Used) -> bool:
    """Return True if a limit is used up."""
    return (
        (limits.total is not None and used.seconds >= limits.total)
        or (limits.turns is not None and used.turns >= limits.turns)
        or (limits.usd is not None and used.usd >= limits.usd)
    )


def used_by(outcome: Outcome[Any], seconds: float) -> Used:
    """Return what an answer has used of its limits."""
    return Used(seconds, outcome.main_model_calls, outcome.cost_usd or 0.0)


def combined(before: Outcome[Any], after: Outcome[Any]) -> Outcome[Any]:
    """Return the later outcome with the costs of both. It belongs to the first prompt."""
    costs = [one.cost_usd for one in (before, after) if one.cost_usd is not None]
    return structs.replace(
        after,
        uuid=before.uuid,
        merged_with=tuple(dict.fromkeys((*before.merged_with, *after.merged_with))),
        text=after.text or before.text,
        cost_usd=sum(costs) if costs else None,
        usage=add_usage(before.usage, after.usage),
        num_turns=before.num_turns + after.num_turns,
        model_calls=before.model_calls + after.model_calls,
        main_model_calls=before.main_model_calls + after.main_model_calls,
        tool_calls=before.tool_calls + after.tool_calls,
        api_retries=before.api_retries + after.api_retries,
    )


def _correction(outcome: Outcome[Any]) -> str:
    if outcome.reason is OutcomeReason.OUTPUT_MISSING:
        return "Your answer has no structured output. Give the same answer as structured output."
    # A validator's text may hold half of a surrogate pair, which cannot be sent.
    why = outcome.detail.encode("utf-8", "replace").decode()
    return f"Your structured output was rejected: {why}. Correct it and give it again."


def _pause(
    retry: Retry, retries: int, outcome: Outcome[Any], wall: float, chance: float
) -> float | None:
    """Return the seconds to wait before the next attempt. None: not worth waiting."""
    if outcome.reason is OutcomeReason.CLI_EXITED:
        return None  # there is no process left to ask
    backoff = _backoff(retry, retries, chance)
    if outcome.resets_at is not None:
        until_reset = max(0.0, outcome.resets_at - wall)
        if not retry.wait_for_reset or until_reset > retry.max_wait:
            return None
        return min(until_reset + backoff, retry.max_wait)
    return backoff


def _backoff(retry: Retry, retries: int, chance: float) -> float:
    return min(_FIRST_PAUSE * 2.0**retries * (0.5 + chance), retry.max_wait)
