"""One call, one outcome."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, TypeVar, overload

from msgspec import structs

from bridle._core.answer import AnswerWatch
from bridle._core.classify import ProcessEnd
from bridle._core.correlation import Deadlines
from bridle._core.limits import TOTAL
from bridle._core.output import schema_of, with_output
from bridle._core.spending import SESSION_COST
from bridle._core.wire import Content
from bridle._doors.session import InnerSession, check_prompt
from bridle._doors.subscription import Subscription
from bridle._doors.turn import Turn
from bridle._shell.known_secrets import clean_outcome
from bridle.errors import BridleError, OptionsError, ProcessInfo
from bridle.events import SdkWarning, SessionEnded, SessionFailed, WarningKind
from bridle.messages import Message, ResultMessage
from bridle.options import BidirOptions, CliOptions, SdkOptions
from bridle.outcomes import Outcome

_T = TypeVar("_T")


@overload
async def run(
    prompt: Content,
    *,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    output_type: type[_T],
    keep_messages: bool = False,
) -> Outcome[_T]: ...


@overload
async def run(
    prompt: Content,
    *,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    output_type: None = None,
    keep_messages: bool = False,
) -> Outcome[Any]: ...


async def run(
    prompt: Content,
    *,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    output_type: Any = None,
    keep_messages: bool = False,
) -> Outcome[Any]:
    """Run one prompt to its end and return its outcome.

    It is over when the turn has failed, or when it is done and no background task it started still
    lives: the follow-up turn of a background subagent is part of the answer. ``SdkOptions.limits``
    bound it: ``first_event`` and ``idle`` its turn, the others all of it. How it went is in the
    outcome (``outcome.ok``, ``outcome.reason``) and raises nothing.

    Without limits it waits as long as that lives: a server that the model starts in the background
    never ends by itself, and then neither does ``run``. Set ``Limits(total=...)`` where the model
    may start one.

    Args:
        prompt: text, or a list of content blocks.
        output_type: a dataclass, TypedDict, msgspec.Struct or pydantic model. The model is made to
            answer in that shape, and ``outcome.output`` is one of it; an answer that is not is no
            success (``output_missing``, ``output_invalid``).
        keep_messages: keep every message in ``outcome.messages``.

    Raises:
        OptionsError: an option is wrong; nothing was started.
        StartError: the CLI did not start; nothing is left behind.

    Cancellation: cancelling ends the CLI, gently.
    """
    job = Run(prompt, cli, sdk, bidir, output_type, keep_messages=keep_messages)
    return await job.outcome()


class Run(InnerSession):
    """A session for one prompt and what comes of it."""

    def __init__(
        self,
        prompt: Content,
        cli: CliOptions | None,
        sdk: SdkOptions | None,
        bidir: BidirOptions | None,
        output_type: Any = None,
        *,
        keep_messages: bool = False,
    ) -> None:
        check_prompt(prompt)
        if output_type is not None:
            output_type = _checked(output_type)
            cli = _with_schema(cli or CliOptions(), output_type)
        super().__init__(cli, sdk, bidir)
        self._prompt = prompt
        self._output_type = output_type
        self._kept: list[Message] | None = [] if keep_messages else None
        # The turn's own silence is minded by the session, which knows whose it is.
        limits = self._sdk.limits.replace(first_event=None, idle=None)
        self._deadlines = Deadlines()
        self._watch = AnswerWatch(
            limits,
            self._deadlines,
            echoes=True,
            keeps_completed=True,
            ask_cost=self._ask_cost,
            warn=self._warn,
        )
        # The request for the cost of background work, and the timer that ends the wait for it.
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.Timeout | None = None
        # The results that were read, and which of them ended the turn, once that is known.
        self._passed: set[str | None] = set()
        self._own_result: str | None = None
        #: The prompt's turn, once it was sent.
        self.turn: Turn | None = None

    def redact(self, text: str) -> str:
        """What the CLI said, without what is known to be secret here, or looks so."""
        return self._secrets.redact(text)

    async def outcome(self) -> Outcome[Any]:
        """Start, ask, and end."""
        async with self:
            outcome = await self.answer()
            await self.drop_rest()
        if self._kept is not None:
            outcome = structs.replace(outcome, messages=tuple(self._kept))
        if self._output_type is not None:
            outcome = with_output(outcome, self._output_type)
        return clean_outcome(outcome, self.redact)

    async def answer(self) -> Outcome[Any]:
        """Ask, and wait until nothing of the answer is to come, or may come."""
        loop = asyncio.get_running_loop()
        messages = self.messages()
        began = loop.time()
        self._watch.prompt(began)
        self.turn = await self.send_user_message(self._prompt)
        reading = asyncio.ensure_future(self._read_turn(messages))
        try:
            outcome = await self.turn
            if not self.alive or not self._has_passed(outcome.result):
                await reading  # it has its end before it: the result, or that of the session
        finally:
            reading.cancel()
        if outcome.ok and self._watch.is_open:
            outcome = self._watch.complete(outcome, await self._read_rest(messages))
            outcome = structs.replace(outcome, duration=loop.time() - began)
        return clean_outcome(outcome, self.redact)

    async def drop_rest(self) -> None:
        """End at once if something still goes on in the background: nobody waits for it."""
        if self._watch.is_open:
            await self.stop()

    async def _read_turn(self, messages: Subscription[Message]) -> None:
        """Read up to the result of the turn."""
        async for message in messages:
            self._note(message)
            if isinstance(message, ResultMessage):
                self._passed.add(message.uuid)
                if not self._names_others(message) or message.uuid == self._own_result:
                    return

    def _has_passed(self, result: ResultMessage | None) -> bool:
        """Return True if the turn's result, of which `_read_turn` is told, was read already."""
        self._own_result = None if result is None else result.uuid
        return result is None or result.uuid in self._passed

    def _names_others(self, message: ResultMessage) -> bool:
        """Return True for a result that names prompts, but not that of this run."""
        named = message.user_message_uuids or (message.user_message_uuid or "",)
        return any(named) and (self.turn is None or self.turn.uuid not in named)

    async def _read_rest(self, messages: Subscription[Message]) -> ProcessEnd | None:
        """Read on until nothing more is to come, or may come; how the CLI ended if it did first."""
        try:
            async with asyncio.timeout_at(self._deadlines.next) as self._timer:
                async for message in messages:
                    self._note(message)
                    if not self._watch.is_open or self._watch.hit is not None:
                        return None
        except TimeoutError:
            if self._watch.hit is None:
                self._watch.overdue(TOTAL, asyncio.get_running_loop().time())
            return None
        finally:
            if self._asking is not None:
                self._asking.cancel()
        return await self._ending()

    def _ask_cost(self) -> None:
        self._asking = asyncio.ensure_future(self._learn_cost())

    async def _learn_cost(self) -> None:
        """Ask the CLI what it has spent, and end the wait if that is too much."""
        answer: object
        try:
            answer = await self._actor.submit(SESSION_COST, {})
        except BridleError as error:
            answer = error
        now = asyncio.get_running_loop().time()
        self._watch.hear_cost(answer, now)
        if self._watch.hit is not None and self._timer is not None:
            self._timer.reschedule(now)

    def _warn(self, kind: WarningKind, detail: str) -> None:
        self._actor.warn(SdkWarning(kind, detail))

    async def _ending(self) -> ProcessEnd:
        """How the session ended, which it did."""
        exit_code: int | None = 0
        async for event in self.events():
            if isinstance(event, SessionEnded):
                return ProcessEnd(by_us=True)
            if isinstance(event, SessionFailed):
                exit_code = event.exit_code
        return ProcessEnd(process=ProcessInfo(exit_code=exit_code))

    def _note(self, message: Message) -> None:
        # A result of another prompt ends nothing here; one of background work has an origin.
        is_stale = (
            isinstance(message, ResultMessage)
            and message.origin is None
            and self._names_others(message)
        )
        if not is_stale:
            self._watch.hear(message, asyncio.get_running_loop().time())
        if self._kept is not None:
            self._kept.append(message)


def _with_schema(cli: CliOptions, output_type: Any) -> CliOptions:
    if cli.json_schema is not None:
        fix = "Give the type, or the schema."
        raise OptionsError("output_type", "cannot be used together with json_schema", fix=fix)
    return cli.replace(json_schema=schema_of(output_type))


def _checked(output_type: Any) -> Any:
    """The type, or what stands for one that only pydantic checks as its author meant it."""
    marks = ("__pydantic_validator__", "__dataclass_fields__")
    if isinstance(output_type, type) and all(hasattr(output_type, mark) for mark in marks):
        return _PydanticDataclass(output_type)
    return output_type


class _PydanticDataclass:
    """A pydantic dataclass with the methods of a model."""

    def __init__(self, kind: Any) -> None:
        # Whoever has such a class has pydantic loaded.
        adapter = importlib.import_module("pydantic").TypeAdapter(kind)
        self.model_json_schema = adapter.json_schema
        self.model_validate = adapter.validate_python
