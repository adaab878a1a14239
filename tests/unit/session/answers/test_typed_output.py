"""Typed output: a type to a schema, and an answer back to the type."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions

from bridle import OptionsError, Outcome, OutcomeReason
from bridle._session.answers.typed_output import OutputType


@dataclasses.dataclass
class Line:
    text: str


@dataclasses.dataclass
class AsDataclass:
    total: float
    lines: list[Line]


class AsTypedDict(TypedDict):
    total: float
    lines: list[Line]


class AsStruct(msgspec.Struct):
    total: float
    lines: list[Line]


class LineModel(pydantic.BaseModel):
    text: str


class AsModel(pydantic.BaseModel):
    total: float
    lines: list[LineModel]


@dataclasses.dataclass
class TreeDataclass:
    name: str
    kids: list[TreeDataclass] = dataclasses.field(default_factory=list)


class TreeStruct(msgspec.Struct):
    name: str
    kids: list[TreeStruct] = []


class TreeTypedDict(TypedDict):
    name: str
    kids: list[TreeTypedDict]


class TreeModel(pydantic.BaseModel):
    name: str
    kids: list[TreeModel] = []


TREES = [TreeDataclass, TreeStruct, TreeTypedDict, TreeModel]

KINDS = [AsDataclass, AsTypedDict, AsStruct, AsModel]
ANSWER = {"total": 1.5, "lines": [{"text": "a"}]}


def answered(value: object) -> Outcome[Any]:
    return Outcome(reason=OutcomeReason.COMPLETED, structured_output=value, text="prose")


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_is_an_object_with_its_parts(kind: Any) -> None:
    schema = OutputType(kind).schema
    assert (schema["type"], set(schema["properties"])) == ("object", {"total", "lines"})  # type: ignore[call-overload]
    assert set(schema["required"]) == {"total", "lines"}  # type: ignore[call-overload]
    assert "$defs" in schema


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_fits_is_of_the_type(kind: Any) -> None:
    outcome = OutputType(kind).convert(answered(ANSWER))
    assert outcome.ok
    output: Any = outcome.output
    assert (output["total"] if kind is AsTypedDict else output.total) == 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_does_not_fit_is_a_failure(kind: Any) -> None:
    outcome = OutputType(kind).convert(answered({"total": "much"}))
    assert (outcome.reason, outcome.output) == (OutcomeReason.OUTPUT_INVALID, None)
    assert outcome.structured_output == {"total": "much"}
    assert outcome.text == "prose"
    assert "total" in outcome.detail
    assert "much" not in outcome.detail


def test_the_detail_of_an_odd_validation_error_names_its_class() -> None:
    class Odd(Exception):
        def errors(self) -> None:
            """Take no arguments."""

    class Model:
        @staticmethod
        def model_json_schema() -> dict[str, object]:
            return {"type": "object"}

        @staticmethod
        def model_validate(value: object) -> None:
            raise Odd(value)

    outcome = OutputType(Model).convert(answered({"total": "much"}))
    assert outcome.detail == "the structured output does not fit: Odd"


def test_a_failure_stays_what_it_was() -> None:
    failed: Outcome[Any] = Outcome(reason=OutcomeReason.MAX_TURNS)
    assert OutputType(AsStruct).convert(failed) is failed


@pytest.mark.parametrize("kind", TREES)
def test_a_type_that_holds_itself_is_an_object_and_a_part_of_it(kind: Any) -> None:
    schema: Any = OutputType(kind).schema
    assert (schema["type"], set(schema["properties"])) == ("object", {"name", "kids"})
    assert schema["properties"]["kids"]["items"] == {"$ref": f"#/$defs/{kind.__name__}"}
    assert set(schema["$defs"]) == {kind.__name__}
    assert schema["$defs"][kind.__name__]["type"] == "object"


@pytest.mark.parametrize("kind", TREES)
def test_an_answer_of_a_nested_type_is_decoded_completely(kind: Any) -> None:
    outcome = OutputType(kind).convert(answered({"name": "a", "kids": [{"name": "b", "kids": []}]}))
    output: Any = outcome.output
    [kid] = output["kids"] if kind is TreeTypedDict else output.kids
    assert (kid["name"] if kind is TreeTypedDict else kid.name) == "b"


def test_the_top_is_not_repeated_among_the_parts() -> None:
    assert set(OutputType(AsDataclass).schema["$defs"]) == {"Line"}  # type: ignore[call-overload]
    assert "$defs" not in OutputType(Line).schema


class Unspeakable(pydantic.BaseModel):
    """Has no JSON schema."""

    call: Callable[[], int]


@pytest.mark.parametrize("kind", ["text", 5, Unspeakable])
def test_a_type_without_a_schema_is_rejected(kind: Any) -> None:
    with pytest.raises(OptionsError) as refused:
        OutputType(kind)
    assert refused.value.field == "output_type"


class Colour(enum.Enum):
    RED = "red"


@pydantic.dataclasses.dataclass
class Even:
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def _check(cls, number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number


@pytest.mark.parametrize(
    ("kind", "wire", "value"),
    [
        (int, 3, 3),
        (list[int], [1, 2], [1, 2]),
        (int | None, None, None),
        (Literal["yes", "no"], "yes", "yes"),
        (Colour, "red", Colour.RED),
        (list[AsModel], [ANSWER], [AsModel.model_validate(ANSWER)]),
        (list[Even], [{"number": 2}], [Even(2)]),
        (AsModel | Line, {"text": "a"}, Line("a")),
        (pydantic.RootModel[list[int]], [1], pydantic.RootModel[list[int]]([1])),
    ],
    ids=str,
)
def test_a_type_that_is_not_an_object_is_a_field_of_one(kind: Any, wire: Any, value: Any) -> None:
    output = OutputType(kind)
    assert output.schema["type"] == "object"
    assert output.schema["required"] == ["value"]
    outcome = output.convert(answered({"value": wire}))
    assert (outcome.ok, outcome.output) == (True, value)
    for wrong in (wire, {"valu": wire}, {"value": object()}):
        assert output.convert(answered(wrong)).reason is OutcomeReason.OUTPUT_INVALID


def test_pydantic_validates_its_dataclasses_inside_other_types() -> None:
    outcome = OutputType(list[Even]).convert(answered({"value": [{"number": 3}]}))
    assert outcome.reason is OutcomeReason.OUTPUT_INVALID
    assert "must be even" in outcome.detail


class Positive(typing_extensions.TypedDict):
    total: Annotated[int, pydantic.Field(gt=0)]


@dataclasses.dataclass
class Evens:
    numbers: list[Even]


class Dated(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    day: datetime.date


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (Annotated[int, pydantic.Field(gt=0)], {"value": 5}, {"value": -5}),
        (Positive, {"total": 5}, {"total": -5}),
        (Evens, {"numbers": [{"number": 2}]}, {"numbers": [{"number": 3}]}),
        (Dated, {"day": "2026-11-16"}, {"day": "soon"}),
        (dict[int, str], {"1": "a"}, {"x": "a"}),
    ],
    ids=["annotated", "typed dict", "dataclass", "strict model", "integer keys"],
)
def test_every_part_of_a_type_is_validated(kind: Any, right: Any, wrong: Any) -> None:
    output = OutputType(kind)
    assert output.convert(answered(right)).ok
    assert output.convert(answered(wrong)).reason is OutcomeReason.OUTPUT_INVALID


def test_a_class_with_an_odd_schema_is_rejected() -> None:
    class Odd:
        @staticmethod
        def model_json_schema() -> dict[str, object]:
            return {"$ref": "#/definitions/Odd"}

        @staticmethod
        def model_validate(value: object) -> object:
            return value

    with pytest.raises(OptionsError):
        OutputType(Odd)


class PositiveTuple(NamedTuple):
    number: Annotated[int, pydantic.Field(gt=0)]


@dataclasses.dataclass
class Positives:
    numbers: list[PositiveTuple]


new_type: Any = NewType  # type checkers want a class, but a constraint works when it runs
Count = new_type("Count", Annotated[int, pydantic.Field(gt=0)])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PositiveTuple, {"value": [-1]}),
        (Positives, {"numbers": [[-1]]}),
        (Count, {"value": -1}),
    ],
)
def test_constraints_in_named_tuples_and_new_types_are_checked(kind: Any, value: object) -> None:
    outcome: Outcome[Any] = Outcome(reason=OutcomeReason.COMPLETED, structured_output=value)
    assert OutputType(kind).convert(outcome).reason is OutcomeReason.OUTPUT_INVALID
