"""An outcome keeps the type that was asked for: checked by the type checkers, and true when run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, assert_type

import pytest

import bridle
from bridle import Outcome, OutcomeReason, sync
from bridle.errors import OutputMissingError


class Invoice(NamedTuple):
    total: float


def test_after_raise_for_reason_the_output_is_there() -> None:
    outcome: Outcome[Invoice] = Outcome(reason=OutcomeReason.COMPLETED, output=Invoice(3.5))
    assert_type(outcome.output, Invoice | None)
    assert_type(outcome.raise_for_reason().output, Invoice)
    assert outcome.raise_for_reason().output.total == 3.5


def test_before_it_may_be_missing() -> None:
    outcome: Outcome[Invoice] = Outcome(reason=OutcomeReason.OUTPUT_MISSING)
    with pytest.raises(OutputMissingError):
        outcome.raise_for_reason()


def test_what_was_checked_is_an_outcome_still() -> None:
    outcome: Outcome[Invoice] = Outcome(reason=OutcomeReason.COMPLETED, output=Invoice(1.0))
    checked: Outcome[Invoice] = outcome.raise_for_reason()
    assert checked is outcome


def test_without_a_type_anything_may_be_done_with_the_output() -> None:
    outcome: Outcome = Outcome(reason=OutcomeReason.COMPLETED)
    assert_type(outcome.raise_for_reason().output, Any)
    assert outcome.raise_for_reason().output is None


async def asked(agent: bridle.Agent[object]) -> None:
    """Never called: type checkers read it."""
    assert_type(await agent.run("x"), Outcome[Any])
    assert_type(await agent.run("x", output_type=None), Outcome[Any])
    assert_type(await agent.run("x", output_type=Invoice), Outcome[Invoice])
    assert_type(await agent.run("x", output_type=list[Invoice]), Outcome[list[Invoice]])
    assert_type(await agent.run("x", output_type=int | str), Outcome[Any])
    assert_type(await agent.run("x", output_type=Literal["a", "b"]), Outcome[Any])
    assert_type(await agent.run("x", output_type=Invoice | None), Outcome[Any])
    assert_type(await agent.run("x", output_type=Annotated[int, "positive"]), Outcome[Any])
    pending = bridle.PendingApproval.from_json("{}")
    allow = bridle.Allow()
    assert_type(await agent.resume(pending, allow), Outcome[Any])
    assert_type(await agent.resume(pending, allow, output_type=Invoice), Outcome[Invoice])
    assert_type(await agent.resume(pending, allow, output_type=int | str), Outcome[Any])
    assert_type(agent.sync.resume(pending, allow, output_type=Literal["a"]), Outcome[Any])
    assert_type(await bridle.run("x", output_type=Invoice), Outcome[Invoice])
    assert_type(await bridle.run("x", output_type=Literal["a"]), Outcome[Any])
    async for prompt, outcome in agent.run_many(["x"], output_type=int | str):
        assert_type(prompt, str)
        assert_type(outcome, Outcome[Any])
    async for _, invoice in agent.run_many(["x"], output_type=Invoice):
        assert_type(invoice, Outcome[Invoice])


def asked_blocking(agent: bridle.Agent[object]) -> None:
    """Never called: type checkers read it."""
    assert_type(agent.sync.run("x", output_type=Invoice), Outcome[Invoice])
    assert_type(agent.sync.run("x", output_type=Invoice | int), Outcome[Any])
    assert_type(sync.run("x", output_type=Invoice), Outcome[Invoice])
    assert_type(sync.run("x", output_type=Annotated[int, "positive"]), Outcome[Any])
    for _, outcome in agent.sync.run_many(["x"], output_type=Literal["a"]):
        assert_type(outcome, Outcome[Any])
