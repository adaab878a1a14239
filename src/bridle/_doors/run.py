"""`run`: one prompt, one outcome."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import Any, Unpack, cast, overload

from msgspec import structs

from bridle._core.config import EngineConfig
from bridle._core.precedence import ResolvedOptions
from bridle._doors.session import InnerSession
from bridle._doors.session_start import check_prompt
from bridle._doors.turn import Turn
from bridle._keyword_types import Options
from bridle._shell.known_secrets import clean_outcome
from bridle._shell.preflight import settle_keywords
from bridle._shell.subscriptions import Closed, Queue
from bridle.content import Content
from bridle.errors import OptionsError
from bridle.messages import Message, ResultMessage
from bridle.options import BidirOptions, CliOptions, Retry, SdkOptions
from bridle.outcomes import Outcome, Output


@overload
async def run(
    prompt: Content,
    *,
    cli: CliOptions | None = ...,
    sdk: SdkOptions | None = ...,
    bidir: BidirOptions | None = ...,
    output_type: type[Output],
    output_retries: int = ...,
    retry: Retry | None = ...,
    keep_messages: bool = ...,
    deps: Any = ...,
    **options: Unpack[Options],
) -> Outcome[Output]: ...


@overload
async def run(
    prompt: Content,
    *,
    cli: CliOptions | None = ...,
    sdk: SdkOptions | None = ...,
    bidir: BidirOptions | None = ...,
    output_type: Any = ...,
    output_retries: int = ...,
    retry: Retry | None = ...,
    keep_messages: bool = ...,
    deps: Any = ...,
    **options: Unpack[Options],
) -> Outcome[Any]: ...


async def run(
    prompt: Content,
    *,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    output_type: Any = None,
    output_retries: int = 1,
    retry: Retry | None = None,
    keep_messages: bool = False,
    deps: Any = None,
    **options: Unpack[Options],
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
        output_type: a type that msgspec or pydantic can describe: a dataclass, TypedDict, struct,
            model, ``list[Invoice]``, a union, a ``Literal``, an enum, a number. The model answers
            in that form, and ``outcome.output`` is the value. An answer without it, or with invalid
            data, is a failure (``output_missing``, ``output_invalid``).
        output_retries: how often to send an answer that fails validation back to the model, with
            the errors. These prompts count towards the same outcome, cost and limits.
        retry: how often to continue after a temporary failure, such as an overloaded API.
        keep_messages: store all messages in ``outcome.messages``.
        deps: any object for the callbacks of the run.
        options: the fields of the three records by name, such as ``model="sonnet"``.

    Raises:
        OptionsError: an option or the prompt is invalid. Nothing was started.
        StartError: the CLI did not start. Its processes, files and tasks are removed.

    Cancellation: shuts down the CLI.
    """
    settled = settle_keywords(cli, sdk, bidir, options)
    job = Run(
        prompt,
        settled,
        output_type,
        output_retries=output_retries,
        retry=retry,
        keep_messages=keep_messages,
        deps=deps,
    )
    return await job.outcome()


class OneTurn(InnerSession, ABC):
    """A session for one turn and its background work. :meth:`_begin` returns the turn."""

    def __init__(
        self,
        options: ResolvedOptions,
        output_type: Any = None,
        *,
        output_retries: int = 1,
        retry: Retry | None = None,
        keep_messages: bool = False,
        deps: Any = None,
    ) -> None:
        if not isinstance(cast("object", retry), Retry | None):
            problem = f"must be a Retry, got {type(retry).__name__}"
            raise OptionsError("retry", problem, fix="Use bridle.Retry(attempts=3).")
        if not isinstance(cast("object", keep_messages), bool):
            problem = f"must be True or False, got {keep_messages!r:.80}"
            raise OptionsError("keep_messages", problem, fix="Use keep_messages=True.")
        self._retry = retry
        super().__init__(options, deps, output_type, output_retries)
        self._kept: list[Message] | None = [] if keep_messages else None
        #: The turn, or None before it has begun.
        self.turn: Turn | None = None

    @abstractmethod
    async def _begin(self) -> Turn:
        """Return the turn of the session, which is connected."""

    def _engine_config(self) -> EngineConfig:
        return structs.replace(super()._engine_config(), awaits_follow_ups=True)

    def redact(self, text: str) -> str:
        """Return the text with masked secrets: those of this session, and likely ones."""
        return self._secrets.redact(text)

    async def outcome(self) -> Outcome[Any]:
        """Start the session, wait for the turn, shut down, and return the outcome."""
        async with self:
            outcome = await self.answer()
            await self.drop_rest(outcome)
        if self._kept is not None:
            outcome = structs.replace(outcome, messages=tuple(self._kept))
        return clean_outcome(outcome, self.redact)

    async def answer(self) -> Outcome[Any]:
        """Return the outcome of the turn, after the background work."""
        messages = None if self._kept is None else self._actor.subscriptions.messages()
        self.turn = await self._begin()
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
        """Return True until the turn has ended. Background work does not count."""
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


class Run(OneTurn):
    """A session that runs one prompt and its background work."""

    def __init__(
        self,
        prompt: Content,
        options: ResolvedOptions,
        output_type: Any = None,
        *,
        output_retries: int = 1,
        retry: Retry | None = None,
        keep_messages: bool = False,
        deps: Any = None,
    ) -> None:
        check_prompt(prompt)
        super().__init__(
            options,
            output_type,
            output_retries=output_retries,
            retry=retry,
            keep_messages=keep_messages,
            deps=deps,
        )
        self._prompt = prompt

    async def _begin(self) -> Turn:
        return await self.send_user_message(self._prompt)
