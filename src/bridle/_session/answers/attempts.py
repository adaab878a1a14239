"""Ask again in the same conversation: after an output that does not fit, and after an API error.

`run` and the turns of a session with an output type share it, so it is in neither module.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import uuid4

from msgspec import structs

from bridle._engine.outgoing.prompts import encode_composed
from bridle._engine.turns.turn_records import Used
from bridle._observe.known_secrets import clean_outcome
from bridle._runtime import timer
from bridle._session.answers.attempt_plan import AnswerPlan, combined, used_by
from bridle._session.answers.typed_output import OutputType
from bridle._session.readers.turn_state import TurnState
from bridle.errors import ControlError, OptionsError, StoreError
from bridle.options import Limits, Retry
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import Outcome

if TYPE_CHECKING:
    from bridle.sessions._journal_writer import SessionJournal  # few sessions have a journal

_Value = TypeVar("_Value")

_MAX_KEPT = 64
"""Results whose final outcome is kept for other prompts of the same turn. Also corrections."""


class Line(Protocol):
    """The connection to the CLI, as :class:`Attempts` needs it."""

    async def send(
        self, uuid: str, content: bytes, *, deps: Any, used: Used | None = None
    ) -> TurnState: ...

    async def wait_ended(self) -> None: ...

    @property
    def newest_turn(self) -> str | None: ...


class Answer:
    """The answer to one prompt: its turn, and the prompts that correct or continue it.

    They are sent with the deps of the prompt, and in the context of the code that creates this.
    """

    def __init__(self, attempts: Attempts, turn: TurnState, deps: Any) -> None:
        loop = turn.outcome.get_loop()
        #: The turn of the last further prompt, or None.
        self.correction: TurnState | None = None
        #: Done when no further prompt may be sent.
        self.stopped: asyncio.Future[None] = loop.create_future()
        # Prompts that were merged into one turn have one answer. This is the first one's.
        self._shared = self
        self._uuid = turn.uuid
        self._journal = attempts.journal
        #: The final outcome.
        self.final = loop.create_task(self._make(attempts, turn.outcome, deps))
        if self._journal is not None:
            self._journal.track(self.final)

    async def take(self) -> Outcome[Any]:
        """Wait for the final outcome, which the program takes with it."""
        outcome = await asyncio.shield(self.final)
        if self._journal is not None:
            self._journal.take(self._uuid)
        return outcome

    async def _make(
        self, attempts: Attempts, turn: asyncio.Future[Outcome[Any]], deps: Any
    ) -> Outcome[Any]:
        outcome = await self._finish(attempts, turn, deps)
        if self._journal is not None:
            await self._journal.write_outcome(self._uuid, outcome)
        return outcome

    async def _finish(
        self, attempts: Attempts, turn: asyncio.Future[Outcome[Any]], deps: Any
    ) -> Outcome[Any]:
        if not attempts.asks_again:
            return await asyncio.shield(turn)
        outcome = attempts.named(await asyncio.shield(turn))
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
    """Makes the final outcomes of a session: asks again as the plan of each answer says.

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
        journal: SessionJournal | None = None,
    ) -> None:
        #: The journal of the session, or None.
        self.journal = journal
        #: False if the results of the CLI are final.
        self.asks_again = output is not None or retry is not None
        self._line = line
        self._output = output
        self._output_retries = output_retries
        self._retry = retry
        self._limits = limits
        self._redact = redact
        #: The plan of the last answer.
        self.plan = self._new_plan()
        # The answers to the newest results. Merged prompts share their result.
        self._answers: dict[str, Answer] = {}
        # The prompt of the program, by the prompt that corrects or continues its answer.
        self._first_prompts: dict[str, str] = {}

    def _new_plan(self) -> AnswerPlan:
        return AnswerPlan(
            output_retries=self._output_retries, retry=self._retry, limits=self._limits
        )

    def answer_to(self, outcome: Outcome[Any], mine: Answer) -> Answer:
        """Return the answer that another prompt of the same turn has begun, or ``mine``."""
        key = (outcome.result.uuid if outcome.result else None) or outcome.uuid or ""
        found = self._answers.get(key, mine)
        _remember(self._answers, key, found)
        return found

    def named(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Return the outcome with prompts of the program in ``merged_with``, and no others."""
        prompts = (self._first_prompts.get(uuid, uuid) for uuid in outcome.merged_with)
        others = tuple(dict.fromkeys(uuid for uuid in prompts if uuid != outcome.uuid))
        return structs.replace(outcome, merged_with=others)

    async def finish(self, first: Outcome[Any], answer: Answer, deps: Any) -> Outcome[Any]:
        """Return the final outcome of an answer. Its costs include those of all prompts."""
        began = time.monotonic() - first.duration
        outcome = self._converted(first)
        plan = self.plan = self._new_plan()
        prompts = [first.uuid]
        while not answer.stopped.done():
            again = plan.next(
                outcome,
                is_last=self._is_last(prompts, outcome),
                seconds=time.monotonic() - began,
                wall=time.time(),
                chance=random.random(),
            )
            if again is None or (again.pause and await self._ends_within(again.pause, answer)):
                return outcome
            uuid = str(uuid4())
            try:
                if self.journal is not None:
                    await self.journal.write_prompt(uuid, again.prompt, continues=first.uuid)
                seconds = time.monotonic() - began
                if plan.is_used_up(outcome, seconds) or not self._is_last(prompts, outcome):
                    return outcome  # during the pause, the time ran out or another prompt was sent
                used = used_by(outcome, seconds)
                line = encode_composed(again.prompt, uuid)
                state = await self._line.send(uuid, line, deps=deps, used=used)
            except (ControlError, StoreError):  # it could not be sent, so this outcome is the last
                return outcome
            answer.correction = state
            prompts.append(state.uuid)
            _remember(self._first_prompts, state.uuid, outcome.uuid or "")
            if answer.stopped.done():
                await state.interrupt(None)
            more = self._converted(await state.wait())
            # The CLI may have merged our prompt with a later one of the program, which has an
            # answer of its own. The one that came first asks again for both.
            owner = self.answer_to(more, answer)
            if owner is not answer:
                final = await asyncio.shield(owner.final)
                more = structs.replace(final, cost_usd=more.cost_usd, usage=more.usage)
            more = structs.replace(more, duration=time.monotonic() - began)
            outcome = self.named(combined(outcome, more))
            if owner is not answer:
                return outcome
        return outcome

    def _is_last(self, prompts: list[str | None], outcome: Outcome[Any]) -> bool:
        """Return True if no prompt was sent after those of this answer."""
        return self._line.newest_turn in (*prompts, *outcome.merged_with)

    def _converted(self, outcome: Outcome[Any]) -> Outcome[Any]:
        if self._output is None:
            return outcome
        return clean_outcome(self._output.convert(outcome), self._redact)

    async def _ends_within(self, seconds: float, answer: Answer) -> bool:
        """Wait. Return True at once if the session ends, or if the answer is interrupted."""
        ended = asyncio.ensure_future(self._line.wait_ended())
        pause = asyncio.ensure_future(timer.until(timer.in_seconds(seconds)))
        try:
            waits = [ended, pause, answer.stopped]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return ended.done() or answer.stopped.done()
        finally:
            ended.cancel()
            pause.cancel()


def _remember(book: dict[str, _Value], key: str, value: _Value) -> None:
    book[key] = value
    if len(book) > _MAX_KEPT:
        del book[next(iter(book))]


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
