"""What functions take: the schema the model is shown, and the arguments that are accepted."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypedDict, Union

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from bridle.errors import OptionsError
from bridle.tools._signatures import Signature, dump, read_signature


class Context:
    """Stands for the type that is injected."""


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict):
    deep: bool
    limit: NotRequired[int]


class Leaf(msgspec.Struct):
    name: str


class Inner(BaseModel):
    z: int


class Model(BaseModel):
    x: int
    inner: Inner


class Node(BaseModel):
    children: list[Node] = []


@dataclasses.dataclass
class Explosive:
    x: int

    def __post_init__(self) -> None:
        raise RuntimeError("boom")


@dataclasses.dataclass
class Holder:
    inner: Inner


class Counted(msgspec.Struct):
    """Counts how often it is validated."""

    x: int
    count: ClassVar[list[int]] = []

    def __post_init__(self) -> None:
        self.count.append(self.x)


def test_a_validator_of_the_users_runs_once() -> None:
    """Also beside arguments that msgspec cannot convert by itself, and for a call that fails."""

    def function(counted: Counted, names: dict[int, str]) -> None: ...

    signature = read(function)
    assert signature.convert({"counted": {"x": 1}, "names": {"2": "b"}}) == {
        "counted": Counted(1),
        "names": {2: "b"},
    }
    with pytest.raises(ValueError, match="names"):
        signature.convert({"counted": {"x": 3}, "names": 4})
    assert Counted.count == [1, 1, 3]  # the middle one is the expectation's


def read(function: Callable[..., object], **options: Any) -> Signature:
    return read_signature(function, "tool", context=Context, **options)


def taking(kind: object) -> Callable[..., object]:
    """A function whose one parameter has this annotation."""

    def function(value: Any) -> None: ...

    function.__annotations__["value"] = kind
    return function


POINT = {
    "title": "Point",
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
    "required": ["x"],
}


@pytest.mark.parametrize(
    ("kind", "schema", "definitions"),
    [
        (int, {"type": "integer"}, {}),
        (float, {"type": "number"}, {}),
        (str, {"type": "string"}, {}),
        (bool, {"type": "boolean"}, {}),
        (None, {"type": "null"}, {}),
        (Any, {}, {}),
        (object, {"description": "Anything."}, {}),
        ("int", {"type": "integer"}, {}),
        ("Point", {"$ref": "#/$defs/Point"}, {"Point": POINT}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, {}),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}, {}),  # noqa: UP007
        (Literal["a", "b"], {"enum": ["a", "b"]}, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}, {}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {}),
        (Annotated[int, msgspec.Meta(ge=0)], {"type": "integer", "minimum": 0}, {}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}, {}),
        (
            Annotated[int, msgspec.Meta(description="One."), "Two."],
            {"type": "integer", "description": "One."},
            {},
        ),
        (uuid.UUID, {"type": "string", "format": "uuid"}, {}),
        (bytes, {"type": "string", "contentEncoding": "base64"}, {}),
        (Colour, {"$ref": "#/$defs/Colour"}, {"Colour": {"enum": ["blue", "red"]}}),
        (Point, {"$ref": "#/$defs/Point"}, {"Point": POINT}),
        (
            Options,
            {"$ref": "#/$defs/Options"},
            {
                "Options": {
                    "type": "object",
                    "properties": {"deep": {"type": "boolean"}, "limit": {"type": "integer"}},
                    "required": ["deep"],
                }
            },
        ),
        (
            list[Leaf],
            {"type": "array", "items": {"$ref": "#/$defs/Leaf"}},
            {
                "Leaf": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                }
            },
        ),
        (
            Model,
            {
                "type": "object",
                "properties": {
                    "x": {"type": "integer"},
                    "inner": {"$ref": "#/$defs/Model.Inner"},
                },
                "required": ["x", "inner"],
            },
            {
                "Model.Inner": {
                    "type": "object",
                    "properties": {"z": {"type": "integer"}},
                    "required": ["z"],
                }
            },
        ),
        (
            Node,
            {"$ref": "#/$defs/Node.Node"},
            {
                "Node.Node": {
                    "type": "object",
                    "properties": {
                        "children": {
                            "type": "array",
                            "items": {"$ref": "#/$defs/Node.Node"},
                            "default": [],
                        }
                    },
                }
            },
        ),
        (
            Holder,
            {"$ref": "#/$defs/Holder"},
            {
                "Holder": {
                    "type": "object",
                    "properties": {
                        "inner": {
                            "type": "object",
                            "properties": {"z": {"type": "integer"}},
                            "required": ["z"],
                        }
                    },
                    "required": ["inner"],
                }
            },
        ),
    ],
    ids=str,
)
def test_an_annotation_becomes_a_schema(
    kind: object, schema: dict[str, object], definitions: dict[str, object]
) -> None:
    made = read(taking(kind)).schema
    assert untitled(made.pop("$defs", {})) == untitled(definitions)
    assert untitled(made) == {
        "type": "object",
        "properties": {"value": schema},
        "required": ["value"],
        "additionalProperties": False,
    }


def untitled(schema: Any) -> Any:
    """Without titles, which only say the names again."""
    if isinstance(schema, list):
        return [untitled(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: untitled(part) for key, part in schema.items() if key != "title"}


def test_docstrings_and_defaults_become_part_of_the_schema() -> None:
    def function(
        a: int,
        b: Annotated[str, "Said here."] = "x",
        *,
        point: Point = Point(1),  # noqa: B008  # what such a default becomes is the question
        model: Model | None = None,
        odd: Any = object(),  # noqa: B008  # as above
    ) -> None:
        """Do it.

        Args:
            a: The first.
            b: Said there.
            nothing: Not a parameter.
        """

    signature = read(function)
    properties = signature.schema["properties"]
    assert signature.description == "Do it."
    assert signature.schema["required"] == ["a"]
    assert properties["a"] == {"type": "integer", "description": "The first."}
    assert properties["b"] == {"type": "string", "description": "Said here.", "default": "x"}
    assert properties["point"] == {"$ref": "#/$defs/Point", "default": {"x": 1, "y": 0}}
    assert properties["model"]["default"] is None
    assert properties["odd"] == {}


def test_a_default_that_is_a_model_is_written_as_json() -> None:
    def function(inner: Inner = Inner(z=1)) -> None: ...  # noqa: B008  # as above

    assert read(function).schema["properties"]["inner"]["default"] == {"z": 1}


def test_two_types_of_one_name_stay_apart() -> None:
    other = msgspec.defstruct("Point", [("z", int)], module="elsewhere")

    def function(one: Any, two: Any) -> None: ...

    function.__annotations__ |= {"one": Point, "two": other}
    schema = read(function).schema
    one, two = (schema["properties"][name]["$ref"] for name in ("one", "two"))
    assert one != two
    assert len(schema["$defs"]) == 2


def test_a_signature_of_any_size_makes_a_schema_that_names_every_parameter() -> None:
    def none() -> None: ...

    assert read(none).schema == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_an_object_is_whatever_comes() -> None:
    assert read(taking(object)).convert({"value": {"a": [1]}}) == {"value": {"a": [1]}}


def test_a_default_may_be_any_value_of_pydantics() -> None:
    secret = SecretStr("x")

    def function(key: Any = secret) -> None: ...

    assert read(function).convert({}) == {}  # the function has it


# ------------------------------------------------------------------------- what is refused


def positional(a: int, /) -> None: ...
def starred(*args: int) -> None: ...
def keywords(**kwargs: int) -> None: ...
def unannotated(a) -> None: ...  # type: ignore[no-untyped-def]  # that is the point
def complex_number(ok: int, a: complex) -> None: ...
def mixed_models(a: Model | int) -> None: ...
def field(a: Annotated[int, Field(ge=0)]) -> None: ...
def field_default(a: int = Field(3, gt=1)) -> None: ...
def not_a_type(a: 3) -> None: ...  # type: ignore[valid-type]  # that is the point


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (positional, "is positional-only"),
        (starred, "is variadic positional"),
        (keywords, "is variadic keyword"),
        (unannotated, "has no annotation"),
        (complex_number, "has no JSON schema: <class 'complex'> is not supported"),
        (mixed_models, "has no JSON schema"),
        (field, "has pydantic metadata"),
        (field_default, "has a pydantic field as its default"),
        (not_a_type, "has no JSON schema: Type '3' is not supported"),
        (taking("Nowhere"), "'Nowhere' is not defined"),
        (taking("int +"), "has the invalid annotation 'int +'"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_parameter_that_cannot_work_is_refused_by_name(
    function: Callable[..., object], problem: str
) -> None:
    with pytest.raises(OptionsError) as refusal:
        read(function)
    name = next(iter(function.__code__.co_varnames))
    name = "a" if name == "ok" else name
    assert refusal.value.field == f"tool tool: parameter {name!r}"
    assert problem in refusal.value.problem


def test_a_function_that_yields_is_refused() -> None:
    def plain() -> Iterator[int]:
        yield 1

    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    for function in (plain, asynchronous):
        with pytest.raises(OptionsError, match="is a generator function"):
            read(function)


# ------------------------------------------------------------------------- kinds of callables


class Greeter:
    def method(self, name: str, ctx: Context) -> None: ...

    @staticmethod
    def static(name: str) -> None: ...

    @classmethod
    def made(cls, name: str) -> None: ...

    def __call__(self, name: Point) -> None: ...


def send(text: str, token: str, where: str = "here") -> None: ...


@functools.wraps(send)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "names", "unbound"),
    [
        (Greeter().method, ["name"], False),
        (Greeter.method, ["name"], True),
        (Greeter.static, ["name"], False),
        (Greeter.made, ["name"], False),
        (Greeter(), ["name"], False),
        (wrapped, ["text", "token", "where"], False),
        (functools.partial(send, "hi"), ["token", "where"], False),
    ],
    ids=["bound", "unbound", "static", "class", "object", "wrapped", "partial"],
)
def test_every_kind_of_callable_is_read(
    function: Callable[..., object], names: list[str], unbound: bool
) -> None:
    signature = read(function)
    assert list(signature.schema["properties"]) == names
    assert signature.unbound is unbound


def test_what_a_partial_has_settled_is_neither_shown_nor_open_to_change() -> None:
    signature = read(functools.partial(send, token="secret"))
    assert list(signature.schema["properties"]) == ["text", "where"]
    assert "secret" not in repr(signature.schema)
    with pytest.raises(ValueError, match="unknown field `token`"):
        signature.convert({"text": "x", "token": "mine"})


@pytest.mark.parametrize(
    "kind", [Context, "Context", Context | None, Annotated[Context, "x"]], ids=repr
)
def test_a_parameter_for_the_context_is_not_shown(kind: object) -> None:
    signature = read(taking(kind))
    assert signature.contexts == ("value",)
    assert signature.schema["properties"] == {}
    assert signature.convert({}) == {}


# ------------------------------------------------------------------------- arguments


def test_arguments_are_converted_to_the_types_of_the_parameters() -> None:
    def function(
        number: float,
        point: Point,
        when: datetime.date,
        model: Model,
        colour: Colour,
        by_number: dict[int, str],
        left_out: int = 3,
    ) -> None: ...

    assert read(function).convert(
        {
            "number": 1,
            "point": {"x": 1},
            "when": "2024-02-29",
            "model": {"x": 1, "inner": {"z": 2}},
            "colour": "red",
            "by_number": {"1": "one"},
        }
    ) == {
        "number": 1.0,
        "point": Point(1),
        "when": datetime.date(2024, 2, 29),
        "model": Model(x=1, inner=Inner(z=2)),
        "colour": Colour.RED,
        "by_number": {1: "one"},
    }


def sample(a: int, point: Point | None = None, tags: list[str] = []) -> None: ...  # noqa: B006
def exploding(value: Explosive) -> None: ...
def modelled(value: Model) -> None: ...
def empty() -> None: ...


@pytest.mark.parametrize(
    ("function", "arguments", "problem"),
    [
        (sample, {"a": "1"}, "a: Expected `int`, got `str`"),
        (sample, {"a": True}, "a: Expected `int`, got `bool`"),
        (sample, {"a": None}, "a: Expected `int`, got `null`"),
        (sample, {"a": 1, "point": {"x": "1"}}, "point.x: Expected `int`, got `str`"),
        (sample, {"a": 1, "point": {}}, "point: Object missing required field `x`"),
        (sample, {"a": 1, "tags": ["x", 2]}, "tags[1]: Expected `str`, got `int`"),
        (
            sample,
            {},
            "missing required field `a`. The arguments are: a, point (optional), tags (optional)",
        ),
        (
            sample,
            {"a": 1, "b": 2},
            "contains unknown field `b`. The arguments are: a, point (optional), tags (optional)",
        ),
        (empty, {"b": 2}, "contains unknown field `b`. The arguments are: none"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(
    function: Callable[..., object], arguments: Mapping[str, object], problem: str
) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  # the whole text is compared
        read(function).convert(arguments)
    assert str(refusal.value) == problem


def test_an_error_in_a_validator_is_not_a_text_for_the_model() -> None:
    with pytest.raises(RuntimeError, match="boom"):
        read(exploding).convert({"value": {"x": 1}})


def test_a_model_says_itself_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"(?s)^value: .*inner") as refusal:
        read(modelled).convert({"value": {"x": "?" * 2000}})
    assert len(str(refusal.value)) <= 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "point", "tags", "value", "x"]), JSON))
def test_arguments_are_converted_or_refused_and_nothing_else(arguments: dict[str, object]) -> None:
    for function in (sample, exploding, modelled, empty):
        signature = read(function)
        try:
            values = signature.convert(arguments)
        except ValueError:
            continue
        assert set(values) <= set(signature.schema["properties"])


# ------------------------------------------------------------------------- a schema by hand


def bare(a, b=None) -> None: ...  # type: ignore[no-untyped-def]  # that is the point
def rest(a: int, **arguments: object) -> None: ...


def test_with_a_schema_parameters_need_no_annotation() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]}
    signature = read(bare, schema=schema)
    assert signature.schema == schema
    assert signature.convert({"a": [1]}) == {"a": [1]}


def test_with_a_schema_a_function_may_take_whatever_comes() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    signature = read(rest, schema=schema)
    assert signature.convert({"a": 1, "b": [2]}) == {"a": 1, "b": [2]}
    with pytest.raises(ValueError, match="a: Expected `int`, got `str`"):
        signature.convert({"a": "1", "b": 2})


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string"}, "is not of type object"),
        ({"type": "object", "properties": []}, "is malformed"),
        ({"type": "object", "properties": {"a": {}}, "required": "a"}, "is malformed"),
        (
            {"type": "object", "properties": {"a": {}, "c": {}}},
            "has 'c', which is not a parameter of the function",
        ),
        ({"type": "object"}, "lacks the parameter 'a'"),
    ],
)
def test_a_schema_that_does_not_fit_the_function_is_refused(
    schema: dict[str, object], problem: str
) -> None:
    with pytest.raises(OptionsError) as refusal:
        read(bare, schema=schema)
    assert refusal.value.field == "tool tool: schema"
    assert refusal.value.problem == problem


# ------------------------------------------------------------------------- values


def test_models_and_mappings_are_written_as_json() -> None:
    class View(Mapping[str, int]):
        def __getitem__(self, key: str) -> int:
            return 1

        def __iter__(self) -> Iterator[str]:
            return iter("a")

        def __len__(self) -> int:
            return 1

    assert dump(Inner(z=1)) == {"z": 1}
    assert dump(View()) == {"a": 1}
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        dump(object())
