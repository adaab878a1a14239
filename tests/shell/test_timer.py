"""Waiting for a rate limit to reset, by the system time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from bridle import OptionsError, Outcome, OutcomeReason

Wait = Callable[..., None]


def wait(outcome: Outcome, *values: float) -> None:
    """Await the reset."""

    async def main() -> None:
        await outcome.wait_for_reset(*values)

    asyncio.run(main())


def wait_sync(outcome: Outcome, *values: float) -> None:
    """Block until the reset."""
    outcome.wait_for_reset_sync(*values)


def limited(resets_at: float | None) -> Outcome:
    return Outcome(reason=OutcomeReason.RATE_LIMITED, resets_at=resets_at)


both = pytest.mark.parametrize("wait", [wait, wait_sync])


@both
def test_the_wait_ends_at_the_reset_and_not_before(wait: Wait) -> None:
    moment = time.time() + 0.2
    wait(limited(moment))
    assert time.time() >= moment


@both
def test_a_reset_that_has_been_is_not_waited_for(wait: Wait) -> None:
    wait(limited(time.time() - 3600))


@both
def test_but_the_default_is_where_there_is_one(wait: Wait) -> None:
    before = time.time()
    wait(limited(before - 3600), 0.2)
    assert time.time() >= before + 0.2


@both
def test_a_reset_at_an_unknown_time_is_not_awaited(wait: Wait) -> None:
    """R396: an error of Bridle, which is a ValueError too."""
    with pytest.raises(OptionsError, match="does not say when"):
        wait(limited(None))


@both
def test_a_default_takes_the_place_of_what_is_not_known(wait: Wait) -> None:
    before = time.time()
    wait(limited(None), 0.2)
    assert time.time() >= before + 0.2


async def test_the_wait_can_be_cancelled() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await limited(time.time() + 3600).wait_for_reset()
