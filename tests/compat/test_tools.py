"""Tools of the official form: their schemas, their results and their annotations."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest

from bridle.compat.claude_agent_sdk import ToolAnnotations, create_sdk_mcp_server, tool
from bridle.compat.claude_agent_sdk._schemas import input_schema
from bridle.errors import ToolFailure


class Inner(TypedDict):
    a: int
    b: NotRequired[Annotated[str, "the b"]]


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int


INNER = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "description": "the b"}},
    "required": ["a"],
}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object"}),
        (Optional[int], {"type": "integer"}),  # noqa: UP045  # programs write it
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Inner, INNER),
        (Annotated[int, "a number"], {"type": "integer", "description": "a number"}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Colour, {"enum": ["red"]}),
        (Any, {}),
        (bytes, {"type": "string"}),
    ],
    ids=str,
)
def test_a_type_has_a_schema(kind: Any, schema: object) -> None:
    assert input_schema({"x": kind})["properties"] == {"x": schema}


@pytest.mark.parametrize("schema", [{"type": "object"}, INNER])
def test_a_json_schema_is_used_as_it_is(schema: dict[str, Any]) -> None:
    assert input_schema(schema) == schema


def test_classes_have_schemas() -> None:
    assert input_schema(Inner) == INNER
    assert input_schema(Point)["properties"] == {"x": {"type": "integer"}}
    assert input_schema(int) == {"type": "object", "properties": {}}


def call(result: Any, arguments: dict[str, Any], kinds: Any = None) -> Any:
    """What a tool that returns ``result``, or raises it, gives for these arguments."""

    @tool("t", "d", kinds or {"a": int})
    async def work(args: dict[str, Any]) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    server: Any = create_sdk_mcp_server("s", tools=[work])["instance"]
    return asyncio.run(server.tools["t"].function(**arguments))


TEXT = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({"content": [TEXT]}, [TEXT]),
        ({}, []),
        (
            {"content": [{"type": "resource_link", "name": "n", "uri": "u"}]},
            [{"type": "text", "text": "n\nu"}],
        ),
        ({"content": [{"type": "resource", "resource": {"text": "x"}}]}, [TEXT]),
    ],
)
def test_a_result_becomes_content(result: Any, content: object) -> None:
    assert call(result, {"a": 1}) == {"content": content}


def test_a_failure_is_reported_to_the_model() -> None:
    assert call({"content": [TEXT], "is_error": True}, {"a": 1})["isError"] is True
    raised = call(KeyError("gone"), {"a": 1})
    assert isinstance(raised, ToolFailure)
    assert raised.text == "'gone'"


@pytest.mark.parametrize(
    ("arguments", "is_valid"),
    [
        ({"a": 1}, True),
        ({"a": 1, "more": 2}, True),
        ({"a": "x"}, False),
        ({"a": True}, False),
        ({}, False),
    ],
)
def test_arguments_are_validated(arguments: dict[str, Any], is_valid: bool) -> None:
    given = call({"content": []}, arguments)
    assert isinstance(given, ToolFailure) is not is_valid
    if not is_valid:
        assert given.text.startswith("Input validation error: ")


def test_annotations_take_both_spellings() -> None:
    hints = ToolAnnotations(read_only_hint=True, destructiveHint=False, destructive_hint=True)
    assert hints.readOnlyHint is hints.read_only_hint is True
    assert hints.model_dump(exclude_none=True) == {"readOnlyHint": True, "destructiveHint": False}

    @tool("t", "d", {}, annotations=ToolAnnotations(readOnlyHint=True, maxResultSizeChars=9))
    async def work(args: Any) -> Any:
        return {}

    server: Any = create_sdk_mcp_server("s", tools=[work])["instance"]
    [definition] = server.definitions()
    assert definition["annotations"] == {"readOnlyHint": True}
    assert definition["_meta"] == {"anthropic/maxResultSizeChars": 9}


def test_annotations_have_the_methods_of_a_model() -> None:
    hints = ToolAnnotations(title="List", readOnlyHint=True)
    assert hints.model_dump(exclude_none=True) == {"title": "List", "readOnlyHint": True}
    assert hints.model_dump_json(exclude_none=True) == '{"title":"List","readOnlyHint":true}'
    changed = hints.model_copy(update={"read_only_hint": False})
    assert (changed.readOnlyHint, changed.title, hints.readOnlyHint) == (False, "List", True)
    assert hints.model_copy(deep=True) == hints
    assert ToolAnnotations.model_validate({"title": "List", "readOnlyHint": True}) == hints
    assert ToolAnnotations.model_validate(hints) == hints
