"""The vocabulary of observations: small frozen records, and who may observe."""

from __future__ import annotations

import inspect

import pytest

from bridle import OutcomeReason, telemetry
from bridle._engine.actions import CallKind
from bridle.outcomes import Outcome
from bridle.telemetry import (
    Began,
    CallBegan,
    Ended,
    Observation,
    OperationBegan,
    OperationEnded,
    Telemetry,
    TracingTelemetry,
    TurnBegan,
    TurnEnded,
)

RECORDS = [
    kind
    for kind in vars(telemetry).values()
    if inspect.isclass(kind) and issubclass(kind, Observation)
]


def test_an_end_refers_to_its_beginning_and_has_a_duration() -> None:
    """R453: two records for what takes time, and the second one has all there is to know."""
    began = TurnBegan(at=2.0, session_id="s", id=7, uuid="u")
    outcome: Outcome = Outcome(reason=OutcomeReason.COMPLETED)
    ended = TurnEnded(at=3.5, session_id="s", began=began, outcome=outcome)
    assert (ended.began.id, ended.began.uuid, ended.duration) == (7, "u", 1.5)
    assert (ended.failure, ended.error, began.parent) == (None, None, None)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_observations_are_frozen_documented_and_public(kind: type[Observation]) -> None:
    assert kind.__struct_config__.frozen
    assert vars(kind).get("__doc__")
    assert kind.__name__ in telemetry.__all__


def test_whatever_begins_has_an_end_of_its_own() -> None:
    begun = {kind.__name__.removesuffix("Began") for kind in RECORDS if issubclass(kind, Began)}
    ended = {kind.__name__.removesuffix("Ended") for kind in RECORDS if issubclass(kind, Ended)}
    assert begun == ended


def test_an_observation_cannot_be_changed() -> None:
    began = OperationBegan(at=0.0, id=1, operation="interrupt")
    with pytest.raises(AttributeError):
        began.operation = "set_model"  # type: ignore[misc]  # frozen, as the type says


def test_every_kind_of_call_is_named_where_it_is_described() -> None:
    source = inspect.getsource(CallBegan)
    assert [kind for kind in CallKind if f"`{kind.value}`" not in source] == []


def test_an_observer_needs_one_method_and_may_have_two() -> None:
    """R453: what only observes is not asked for variables."""

    class Plain:
        def observe(self, observation: Observation) -> None: ...

    class Tracing(Plain):
        def environment(self) -> dict[str, str]:
            return {}

    observers: list[Telemetry] = [Plain(), Tracing()]
    assert [isinstance(one, TracingTelemetry) for one in observers] == [False, True]


def test_a_failed_operation_carries_its_error() -> None:
    error = TimeoutError("late")
    began = OperationBegan(at=0.0, id=1, operation="interrupt")
    ended = OperationEnded(at=1.0, began=began, failure="TimeoutError", error=error)
    assert (ended.failure, ended.error, ended.duration) == ("TimeoutError", error, 1.0)
