"""Ask again in the same conversation: after an output that does not fit, and after an API error.

`run` and the turns of a session with an output type share it, so it is in neither module.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, Protocol
from uuid import uuid4

from msgspec import structs

from bridle._core.budget import Used
from bridle._core.precedence import ResolvedOptions
from bridle._shell import timer
from bridle._shell.known_secrets import clean_outcome
from bridle._shell.turn import TurnState
from bridle._shell.typed_output import OutputType
from bridle.errors import ControlError, OptionsError
from bridle.options import Limits, Retry
from bridle.outcomes import Outcome, OutcomeReason

_UNFIT = frozenset({OutcomeReason.OUTPUT_INVALID, OutcomeReason.OUTPUT_MISSING})

_FIRST_PAUSE = 1.0
"""Seconds before the second attempt, if the API does not say when to come back. It doubles."""


_MAX_FINISHED = 64
"""Results whose final outcome is kept for other prompts of the same turn."""


class Line(Protocol):
    """The connection to the CLI, as :class:`Attempts` needs it."""

    async def send(
        self, uuid: str, content: str, *, deps: Any, used: Used | None = None
    ) -> TurnState: ...

    async def wait_gone(self) -> None: ...


class Answer:
    """The answer to one prompt: its turn, and the prompts that correct or continue it.

    They are sent with the deps of the prompt, and in the context of the code that creates this.
    """

    def __init__(self, attempts: Attempts, turn: asyncio.Future[Outcome[Any]], deps: Any) -> None:
        #: The turn of the last further prompt, or None.
        self.correction: TurnState | None = None
        #: Done when no further prompt may be sent.
        self.stopped: asyncio.Future[None] = turn.get_loop().create_future()
        # Prompts that were merged into one turn have one answer. This is the first one's.
        self._shared = self
        #: The final outcome.
        self.final = turn.get_loop().create_task(self._make(attempts, turn, deps))

    async def _make(
        self, attempts: Attempts, turn: asyncio.Future[Outcome[Any]], deps: Any
    ) -> Outcome[Any]:
        outcome = await asyncio.shield(turn)
        self._shared = attempts.answer_to(outcome, self)
        if self._shared is self:
            return await attempts.finish(outcome, self, deps)
        final = await asyncio.shield(self._shared.final)
        # The outcome of the other prompt has the cost of all of them.
        return structs.replace(
            final,
            uuid=outcome.uuid,
            merged_with=outcome.merged_with,
            cost_usd=outcome.cost_usd,
            usage=outcome.usage,
        )

    async def interrupt(self, timeout: float | None) -> None:
        """Interrupt the prompt that corrects the answer, and send no further one."""
        answer = self._shared
        if not answer.stopped.done():
            answer.stopped.set_result(None)
        if answer.correction is not None:
            await answer.correction.interrupt(timeout)


class Attempts:
    """Makes the final outcomes of a session: decides whether to ask again, and asks.

    It keeps the session's line to the CLI and not the session, which may be collected.
    """

    def __init__(
        self,
        line: Line,
        output: OutputType | None,
        *,
        output_retries: int,
        retry: Retry | None,
        limits: Limits,
        redact: Callable[[str], str],
    ) -> None:
        self._line = line
        self._output = output
        self._output_retries = output_retries
        self._retry = retry
        self._limits = limits
        self._redact = redact
        # The answers to the newest results. Merged prompts share their result.
        self._answers: dict[str, Answer] = {}

    def answer_to(self, outcome: Outcome[Any], mine: Answer) -> Answer:
        """Return the answer that another prompt of the same turn has begun, or ``mine``."""
        key = (outcome.result.uuid if outcome.result else None) or outcome.uuid or ""
        found = self._answers.setdefault(key, mine)
        if len(self._answers) > _MAX_FINISHED:
            del self._answers[next(iter(self._answers))]
        return found

    async def finish(self, first: Outcome[Any], answer: Answer, deps: Any) -> Outcome[Any]:
        """Return the final outcome of an answer. Its costs include those of all prompts."""
        began = time.monotonic() - first.duration
        outcome = self._converted(first)
        corrections, attempts = self._output_retries, self._retry.attempts if self._retry else 1
        while not answer.stopped.done():
            if outcome.reason in _UNFIT and corrections:
                corrections -= 1
                prompt = _correction(outcome)
            elif outcome.retryable and attempts > 1 and self._retry is not None:
                attempts -= 1
                pause = _pause(self._retry, outcome, attempts)
                if pause is None or not self._has_time(time.monotonic() - began + pause):
                    return outcome
                if await self._ends_within(pause, answer):
                    return outcome
                prompt = _CONTINUE
            else:
                return outcome
            used = Used(time.monotonic() - began, outcome.num_turns, outcome.cost_usd or 0.0)
            if self._is_used_up(used):
                return outcome
            try:
                state = await self._line.send(str(uuid4()), prompt, deps=deps, used=used)
            except ControlError:  # it could not be sent, so this outcome is the last one
                return outcome
            answer.correction = state
            if answer.stopped.done():
                await state.interrupt(None)
            more = await state.wait()
            more = structs.replace(more, duration=time.monotonic() - began)
            outcome = _combined(outcome, self._converted(more))
        return outcome

    def _converted(self, outcome: Outcome[Any]) -> Outcome[Any]:
        if self._output is None:
            return outcome
        return clean_outcome(self._output.convert(outcome), self._redact)

    async def _ends_within(self, seconds: float, answer: Answer) -> bool:
        """Wait. Return True at once if the session ends, or if the answer is interrupted."""
        gone = asyncio.ensure_future(self._line.wait_gone())
        pause = asyncio.ensure_future(timer.until(timer.in_seconds(seconds)))
        try:
            waits = [gone, pause, answer.stopped]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return gone.done() or answer.stopped.done()
        finally:
            gone.cancel()
            pause.cancel()

    def _has_time(self, seconds: float) -> bool:
        return self._limits.total is None or seconds < self._limits.total

    def _is_used_up(self, used: Used) -> bool:
        limits = self._limits
        return (
            not self._has_time(used.seconds)
            or (limits.turns is not None and used.turns >= limits.turns)
            or (limits.usd is not None and used.usd >= limits.usd)
        )


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
        merged_with=tuple(dict.fromkeys((*before.merged_with, *after.merged_with))),
        text=after.text or before.text,
        cost_usd=sum(costs) if costs else None,
        usage=_added(before.usage, after.usage),
        num_turns=before.num_turns + after.num_turns,
        model_calls=before.model_calls + after.model_calls,
        tool_calls=before.tool_calls + after.tool_calls,
        api_retries=before.api_retries + after.api_retries,
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
