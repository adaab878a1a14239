"""`run`: one prompt, one outcome."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from typing import Any, TypeVar, overload

from msgspec import structs

from bridle._core.config import EngineConfig
from bridle._doors.session import InnerSession, check_prompt
from bridle._doors.turn import Turn
from bridle._shell.known_secrets import clean_outcome
from bridle._shell.subscriptions import Closed, Queue
from bridle._shell.typed_output import schema_of, with_output
from bridle.content import Content
from bridle.errors import OptionsError
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
    """Run one prompt and return its outcome.

    A failed turn raises nothing: check ``outcome.ok`` and ``outcome.reason``. If the turn
    completes, ``run`` also waits for the background tasks that it started, because the follow-up
    turn of a background subagent is part of the answer. In ``SdkOptions.limits``, ``first_event``
    and ``idle`` limit the turn; the other limits include background work.

    Without limits, ``run`` waits until all background tasks have ended. If the model starts a
    server in the background, that may be never: set ``Limits(total=...)``.

    The CLI ends before ``run`` returns or raises.

    Args:
        prompt: text, or a list of content blocks.
        output_type: a dataclass, TypedDict, msgspec.Struct or pydantic model. The model answers in
            that form, and ``outcome.output`` is an instance of it. An answer without it, or with
            invalid data, is a failure (``output_missing``, ``output_invalid``).
        keep_messages: store all messages in ``outcome.messages``.

    Raises:
        OptionsError: an option or the prompt is invalid. Nothing was started.
        StartError: the CLI did not start. Its processes, files and tasks are removed.

    Cancellation: shuts down the CLI.
    """
    job = Run(prompt, cli, sdk, bidir, output_type, keep_messages=keep_messages)
    return await job.outcome()


class Run(InnerSession):
    """A session that runs one prompt and its background work."""

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
        #: The turn of the prompt, or None before it is sent.
        self.turn: Turn | None = None

    def _engine_config(self) -> EngineConfig:
        return structs.replace(super()._engine_config(), awaits_follow_ups=True)

    def redact(self, text: str) -> str:
        """Return the text with masked secrets: those of this session, and likely ones."""
        return self._secrets.redact(text)

    async def outcome(self) -> Outcome[Any]:
        """Start the session, send the prompt, shut down, and return the outcome."""
        async with self:
            outcome = await self.answer()
            await self.drop_rest(outcome)
        if self._kept is not None:
            outcome = structs.replace(outcome, messages=tuple(self._kept))
        if self._output_type is not None:
            outcome = with_output(outcome, self._output_type)
        return clean_outcome(outcome, self.redact)

    async def answer(self) -> Outcome[Any]:
        """Send the prompt and return its outcome, after the background work."""
        messages = None if self._kept is None else self._actor.subscriptions.messages()
        self.turn = await self.send_user_message(self._prompt)
        if messages is None or self._kept is None:
            return await self.turn
        reading = asyncio.ensure_future(self._keep(messages, self._kept))
        try:
            outcome = await self.turn
        finally:
            reading.cancel()
            # Everything that belongs to the outcome was delivered before it.
            while messages:
                self._kept.append(messages.take_now())
            self._actor.subscriptions.leave(messages)
        self._drop_after(outcome.result, self._kept)
        return outcome

    def _drop_after(self, result: ResultMessage | None, kept: list[Message]) -> None:
        """Drop messages that the CLI sent after the result, in the same read."""
        for index in range(len(kept) - 1, -1, -1):
            if isinstance(kept[index], ResultMessage):
                if result is not None and kept[index].uuid == result.uuid:
                    del kept[index + 1 :]
                return

    @property
    def is_in_turn(self) -> bool:
        """Return True until the turn of the prompt has ended. Background work does not count."""
        held = self._engine.held
        has_ended = self.turn is not None and (self.turn.done or self.turn.uuid in (held or ()))
        return not has_ended

    async def drop_rest(self, outcome: Outcome[Any]) -> None:
        """Stop the session at once if the CLI still works on something else than this outcome."""
        held = self._engine.held
        if outcome.result is None or (held is not None and held.is_pending):
            await self.stop()

    async def _keep(self, messages: Queue[Message], kept: list[Message]) -> None:
        with contextlib.suppress(Closed):
            while True:
                kept.append(await messages.take())


def _with_schema(cli: CliOptions, output_type: Any) -> CliOptions:
    if cli.json_schema is not None:
        fix = "Set only one of them."
        raise OptionsError("output_type", "cannot be used together with json_schema", fix=fix)
    return cli.replace(json_schema=schema_of(output_type))


def _checked(output_type: Any) -> Any:
    """Return the type. Wrap a pydantic dataclass, so that pydantic validates it."""
    marks = ("__pydantic_validator__", "__dataclass_fields__")
    if isinstance(output_type, type) and all(hasattr(output_type, mark) for mark in marks):
        return _PydanticDataclass(output_type)
    return output_type


class _PydanticDataclass:
    """A pydantic dataclass with the methods of a model."""

    def __init__(self, kind: Any) -> None:
        # A program that has such a class has imported pydantic.
        adapter = importlib.import_module("pydantic").TypeAdapter(kind)
        self.model_json_schema = adapter.json_schema
        self.model_validate = adapter.validate_python
