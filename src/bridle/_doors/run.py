"""One call, one outcome."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, overload

from msgspec import structs

from bridle._core.followups import FollowUps
from bridle._core.output import schema_of, with_output
from bridle._core.wire import Content
from bridle._doors.session import Session, check_prompt, start_session
from bridle._doors.subscription import Subscription
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
    """Run one prompt to its end and return its outcome.

    It is over when the turn is, and no background task it started still lives: the follow-up turn
    of a background subagent is part of the answer. ``SdkOptions.limits`` bound it. How the turn
    went is in the outcome (``outcome.ok``, ``outcome.reason``) and raises nothing.

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
    check_prompt(prompt)
    if output_type is not None:
        cli = _with_schema(cli or CliOptions(), output_type)
    async with start_session(cli, sdk, bidir) as session:
        outcome = await _answer(session, prompt, keep_messages=keep_messages)
    return outcome if output_type is None else with_output(outcome, output_type)


def _with_schema(cli: CliOptions, output_type: Any) -> CliOptions:
    if cli.json_schema is not None:
        fix = "Give the type, or the schema."
        raise OptionsError("output_type", "cannot be used together with json_schema", fix=fix)
    return cli.replace(json_schema=schema_of(output_type))


async def _answer(session: Session, prompt: Content, *, keep_messages: bool) -> Outcome[Any]:
    messages = session.messages()
    turn = await session.send_user_message(prompt)
    kept: list[Message] | None = [] if keep_messages else None
    follow_ups = FollowUps()
    reading = asyncio.ensure_future(_read(messages, follow_ups, kept))
    try:
        outcome = await turn
        if outcome.result is not None:
            await reading
    finally:
        reading.cancel()
    outcome = follow_ups.complete(outcome)
    return outcome if kept is None else structs.replace(outcome, messages=tuple(kept))


async def _read(
    messages: Subscription[Message], follow_ups: FollowUps, kept: list[Message] | None
) -> None:
    """Read until the turn's result has come and nothing of it is still to come."""
    is_over = False
    async for message in messages:
        follow_ups.observe(message)
        if kept is not None:
            kept.append(message)
        is_over = is_over or isinstance(message, ResultMessage)
        if is_over and not follow_ups.is_pending:
            return
