"""An outcome keeps the type that was asked for: checked by the type checkers, and true when run."""

from __future__ import annotations

from typing import Any, NamedTuple, assert_type

import pytest

from bridle import Outcome, OutcomeReason
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
