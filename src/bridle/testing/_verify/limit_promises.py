"""Promises about limits: a turn that passes one is ended."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import bridle
from bridle import Limits, OutcomeReason
from bridle.errors import UsdLimitError
from bridle.testing._verify.promises import TESTED_SINCE, Broken, expect, promise, require
from bridle.testing._verify.stage import Model, Stage, ended, send
from bridle.testing.model_request import ModelRequest
from bridle.testing.script import Reply, Script, text, tool_use

_USAGE = {"input_tokens": 50_000, "output_tokens": 2_000}
_PRICE = 0.18
"""Dollars of a model call with this usage."""

_CALLS = 20


def _looking(stage: Stage) -> Script:
    """Return a model that calls a tool many times before it answers."""
    made = 0

    def reply(_: ModelRequest) -> Reply:
        nonlocal made
        made += 1
        look = tool_use("Glob", pattern="*", path=str(stage.work))
        blocks = (text("done"),) if made == _CALLS else (text("Let me look."), look)
        return Reply(blocks=blocks, usage=_USAGE, delay=0.15)

    return reply


@promise(
    "limit.usd",
    "A turn that passes its dollar limit is ended while it runs.",
    depends="Limits.usd, TenantLimits",
    since=TESTED_SINCE,
)
async def usd(stage: Stage) -> str:
    limit = 0.3
    async with Model(_looking(stage)) as model:
        given = stage.options(model, limits=Limits(usd=limit))
        outcome = await bridle.run("go", **given)
        calls = len(model.asked)
    cost = outcome.cost_usd or 0.0
    observed = f"{ended(outcome)} after {calls} model calls, ${cost:.2f}"
    is_ended = outcome.reason == OutcomeReason.LIMIT_USD and _is_measured(outcome)
    require(is_ended and limit < cost < limit + 4 * _PRICE, f"limit ${limit}: {observed}")
    return observed


@promise(
    "limit.usd_query",
    "A query that passes its dollar limit is ended while it runs.",
    depends="Limits.usd of query",
    since=TESTED_SINCE,
)
async def usd_query(stage: Stage) -> str:
    limit = 0.3
    async with Model(_looking(stage)) as model:
        given = stage.options(model, limits=Limits(usd=limit))
        try:
            async for _ in bridle.query("go", **given):
                pass
        except UsdLimitError as error:
            outcome = error.outcome
        else:
            raise Broken(f"limit ${limit}: the query ended after {len(model.asked)} model calls")
        calls = len(model.asked)
    observed = f"{ended(outcome)} after {calls} model calls"
    is_ended = _is_measured(outcome)
    require(is_ended and limit < calls * _PRICE < limit + 4 * _PRICE, f"limit ${limit}: {observed}")
    return observed


def _is_measured(outcome: bridle.Outcome[Any]) -> bool:
    """Return whether the limit was passed. An unreadable cost ends a turn for the same reason."""
    return "could not be read" not in outcome.detail


@promise(
    "limit.turns",
    "A turn that passes its number of model calls is ended.",
    depends="Limits.turns",
)
async def turns(stage: Stage) -> str:
    async with Model(_looking(stage)) as model:
        outcome = await bridle.run("go", **stage.options(model, limits=Limits(turns=2)))
        calls = len(model.asked)
    expect("the reason", outcome.reason, OutcomeReason.LIMIT_TURNS)
    require(calls <= 4, f"{calls} model calls were made")
    return f"{ended(outcome)} after {calls} model calls"


async def _held(stage: Stage, limits: Limits, reason: OutcomeReason) -> str:
    long = Reply(blocks=(text("a long answer", chunks=4),), hold=True, hold_after=4)

    def reply(request: ModelRequest) -> Reply:
        return Reply(blocks=(text("next"),)) if request.last_user_text == "again" else long

    async with (
        Model(reply) as model,
        stage.session(model, limits=limits, include_partial_messages=True) as session,
    ):
        outcome = await send(session)
        expect("the reason", outcome.reason, reason)
        again = await send(session, "again")
        while again.reason == reason and not again.text:  # a busy machine, on which it passed again
            again = await send(session, "again")
        expect("the next answer", again.text, "next")
    return f"{ended(outcome)} after {outcome.duration:.1f} s"


@promise("limit.total", "A turn that passes its total time is ended.", depends="Limits.total")
async def total(stage: Stage) -> str:
    return await _held(stage, Limits(total=1.5), OutcomeReason.LIMIT_TOTAL)


@promise(
    "limit.idle",
    "A turn in which nothing happens for its idle time is ended.",
    depends="Limits.idle",
)
async def idle(stage: Stage) -> str:
    return await _held(stage, Limits(idle=1.5), OutcomeReason.LIMIT_IDLE)


@promise(
    "limit.cost_readable",
    "The cost so far is readable as a number while a turn runs.",
    depends="Limits.usd",
    since=TESTED_SINCE,
)
async def cost_readable(stage: Stage) -> str:
    held = Reply(blocks=(text("done"),), usage=_USAGE, hold=True)
    first = Reply(blocks=(tool_use("Glob", pattern="*"),), usage=_USAGE)
    async with Model([first, held]) as model, stage.session(model) as session:
        turn = await session.send_user_message("go")
        await model.wait_for_hold()
        during = await _cost(session)
        model.release()
        outcome = await turn
        after = await _cost(session)
    total = outcome.result.total_cost_usd if outcome.result else None
    expect("the cost during the turn", during, _PRICE)
    require(
        total is not None and math.isclose(after, total, rel_tol=1e-6),
        f"get_usage says {after}, the result says {total}",
    )
    expect("the cost of the turn", round(outcome.cost_usd or 0, 6), round(2 * _PRICE, 6))
    return f"${during:.2f} during the turn, ${after:.2f} after it, as in the result"


async def _cost(session: bridle.Session) -> float:
    reply: Any = await session.control("get_usage", timeout=10.0)
    cost: object = None
    with contextlib.suppress(TypeError, KeyError):
        cost = reply["session"]["total_cost_usd"]
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise Broken(f"get_usage has no number: {reply!r:.200}")
    return round(float(cost), 9)
