"""Tools: what the decorator makes of functions, servers of tools, and raw answers."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bridle.errors import OptionsError, ToolFailure
from bridle.permissions import bind_raw
from bridle.tools import (
    McpError,
    McpResponse,
    Tool,
    ToolContext,
    ToolServer,
    bind_key,
    bind_session,
    key_of_call,
    tool,
)


def name_of(value: object) -> str:
    """A test's name must be the same in every run, so addresses are left out."""
    return re.sub(" at 0x[0-9a-f]+", "", str(value))


@tool
def add(a: float, b: float = 0) -> float:
    """Add two numbers.

    Args:
        a: The first.
    """
    return a + b


# ------------------------------------------------------------------------- one tool


def test_a_tool_is_described_by_its_function() -> None:
    """R330, C46."""
    assert add.definition() == {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "number", "description": "The first."},
                "b": {"type": "number", "default": 0},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
        "_meta": {"anthropic/alwaysLoad": True},
    }
    assert (add.annotations, add.timeout) == ({}, None)


def test_a_tool_is_still_the_function_it_was() -> None:
    assert add(1, b=2) == 3
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert inspect.getdoc(add) == inspect.getdoc(add.function)
    assert repr(add) == "<Tool add>"


def test_what_the_decorator_gets_comes_first() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}

    @tool(
        name="look-up",
        description="Look it up.",
        schema=schema,
        ask=True,
        always_load=False,
        max_result_chars=200_000,
        meta={"anthropic/searchHint": "customers"},
        annotations={"title": "Look", "openWorldHint": True},
        read_only=True,
        timeout=5,
    )
    def function(x: str = "") -> None:
        """Not this."""

    assert function.definition() == {
        "name": "look-up",
        "description": "Look it up.",
        "inputSchema": schema,
        "annotations": {"title": "Look", "openWorldHint": True, "readOnlyHint": True},
        "_meta": {
            "anthropic/searchHint": "customers",
            "anthropic/requiresUserInteraction": True,
            "anthropic/maxResultSizeChars": 200_000,
        },
    }
    assert (function.timeout, function.ask) == (5, True)


def test_a_tool_is_not_asked_about_unless_it_says_so() -> None:
    @tool(ask=True)
    def pay() -> None: ...

    assert (add.ask, pay.ask) == (False, True)
    assert ToolServer([add, pay, tool(nothing, ask=True)]).asking() == ("pay", "nothing")
    assert ToolServer([add]).asking() == ()


def test_a_tool_without_meta_sends_none() -> None:
    assert "_meta" not in tool(nothing, always_load=False).definition()


def test_a_function_can_be_made_a_tool_without_decorating_it() -> None:
    def function() -> int:
        return 1

    assert tool(function, name="one")() == 1
    assert tool(function, name="one").name == "one"
    assert "description" not in tool(function).definition()


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("options", "field", "problem"),
    [
        ({"name": "a b"}, "tool name", "is 'a b'"),
        ({"name": ""}, "tool name", "is empty"),
        ({"name": "x" * 65}, "tool name", "is 'xxx"),
        ({"description": 3}, "tool nothing: description", "got int"),
        ({"schema": {"type": object()}}, "tool nothing: schema.type", "got object"),
        ({"schema": {"type": "array"}}, "tool nothing: schema", "is not of type object"),
        ({"annotations": {1: 2}}, "tool nothing: annotations key", "got int"),
        ({"ask": 1}, "tool nothing: ask", "got int"),
        (
            {"meta": {"anthropic/requiresUserInteraction": False}},
            "tool nothing: meta",
            "must not have the key",
        ),
        ({"always_load": 1}, "tool nothing: always_load", "got int"),
        ({"max_result_chars": 0}, "tool nothing: max_result_chars", "is 0"),
        ({"max_result_chars": True}, "tool nothing: max_result_chars", "got bool"),
        ({"meta": {"x": object()}}, "tool nothing: meta.x", "got object"),
        ({"meta": {"anthropic/alwaysLoad": True}}, "tool nothing: meta", "must not have the key"),
        (
            {"meta": {"anthropic/maxResultSizeChars": 9}},
            "tool nothing: meta",
            "must not have the key",
        ),
        ({"read_only": "yes"}, "tool nothing: read_only", "got str"),
        (
            {"read_only": True, "annotations": {"readOnlyHint": False}},
            "tool nothing: read_only",
            "contradicts readOnlyHint",
        ),
        ({"timeout": 0}, "tool nothing: timeout", "is 0"),
    ],
    ids=name_of,
)
def test_what_makes_no_tool_is_refused(options: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(OptionsError) as refusal:
        tool(nothing, **options)
    assert refusal.value.field == field
    assert problem in refusal.value.problem


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (3, "must be a function, got 3"),
        (int, "must be a function, got <class 'int'>"),
        (classmethod(lambda cls: None), "must be a function, got <classmethod"),
        (functools.partial(nothing), "is functools.partial"),
        (lambda: None, "is '<lambda>'"),
    ],
    ids=["number", "class", "classmethod", "partial", "lambda"],
)
def test_an_object_that_is_not_a_function_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(OptionsError) as refusal:
        tool(function)
    assert refusal.value.problem.startswith(problem)


# ------------------------------------------------------------------------- methods


class Counter:
    def __init__(self, start: int) -> None:
        self.value = start

    @tool
    def up(self, by: int) -> int:
        """Count."""
        self.value += by
        return self.value

    @staticmethod
    @tool
    def zero() -> int:
        return 0

    def plain(self, by: int) -> int:
        return self.value + by


def test_a_tool_in_a_class_is_bound_to_an_instance_like_a_method() -> None:
    one, two = Counter(1), Counter(10)
    assert (one.up(2), two.up(2)) == (3, 12)
    assert one.up.definition() == Counter.up.definition()
    assert one.up.run({"by": 1}, ToolContext(name="up")) == 4
    assert Counter.up(one, 1) == 5
    assert (Counter.up.is_method, one.up.is_method) == (True, False)
    assert Counter.zero() == 0


def test_a_bound_method_is_asked_about_like_its_tool() -> None:
    class Bank:
        @tool(ask=True)
        def pay(self) -> None: ...

    assert (Bank.pay.ask, Bank().pay.ask) == (True, True)


def test_a_server_takes_methods_of_an_instance() -> None:
    counter = Counter(1)
    server = ToolServer([counter.up, Counter.zero, counter.plain])
    assert list(server.tools) == ["up", "zero", "plain"]
    assert server.tools["plain"].run({"by": 1}, ToolContext(name="plain")) == 2


# ------------------------------------------------------------------------- calls


def test_arguments_are_validated_before_the_call() -> None:
    assert add.validate({"a": 1}) == {"a": 1.0}
    with pytest.raises(ToolFailure) as failure:
        add.validate({"a": "1"})
    expected = "Invalid arguments for add: a: Expected `float`, got `str`."
    assert failure.value.text == expected


def test_the_context_is_given_to_the_parameters_that_want_it() -> None:
    @tool
    def who(x: int, ctx: ToolContext, again: ToolContext | None = None) -> tuple[int, Any, Any]:
        return x, ctx, again

    context = ToolContext(name="who")
    assert who.input_schema["required"] == ["x"]
    assert who.run({"x": 1}, context) == (1, context, context)
    assert nothing_of(who.input_schema, "ctx", "again")


def nothing_of(schema: Mapping[str, Any], *names: str) -> bool:
    return not set(names) & set(schema["properties"])


def test_a_context_built_by_hand_is_never_cancelled() -> None:
    context = ToolContext(name="add", server="calc", tool_use_id="toolu_1")
    assert (context.session, context.cancelled) == (None, False)
    with pytest.raises(RuntimeError, match="belongs to no session"):
        context.wait_cancelled_sync(0)


def test_the_runner_of_a_call_gives_its_context_the_session() -> None:
    context, session = ToolContext(name="add"), object()
    bind_session(context, session)
    assert context.session is session


class Talk:
    """A session with an id."""

    def __init__(self, id: str | None) -> None:
        self.id = id


def test_the_key_of_a_call_is_made_from_its_session_and_its_id() -> None:
    first, second = Talk("s1"), Talk("s2")
    contexts = [
        ToolContext(name="a", tool_use_id="t1", session=first),
        ToolContext(name="a", tool_use_id="t2", session=first),
        ToolContext(name="a", tool_use_id="t1", session=second),
        ToolContext(name="a", tool_use_id="t1", session=Talk(None)),
    ]
    keys = [context.idempotency_key for context in contexts]
    assert len(set(keys)) == 4
    assert keys == [context.idempotency_key for context in contexts]
    assert keys[0] == key_of_call("s1", "t1")
    assert len(keys[0]) == 32


def test_a_key_that_was_set_is_kept_in_copies() -> None:
    """A copy has no session, and still the key of its call."""
    context = ToolContext(name="a", tool_use_id="t1", session=Talk("s1"))
    for kept in (copy.deepcopy(context), pickle.loads(pickle.dumps(context))):
        assert (kept.session, kept.idempotency_key) == (None, context.idempotency_key)
    bind_key(context, "from the journal")
    assert context.idempotency_key == "from the journal"
    assert copy.deepcopy(context).idempotency_key == "from the journal"


# ------------------------------------------------------------------------- servers


def test_a_server_makes_tools_of_functions() -> None:
    given: list[Callable[..., object]] = [add, nothing]
    server = ToolServer(iter(given), version="2", instructions="Be kind.")
    assert isinstance(server.tools["nothing"], Tool)
    assert server.tools["add"] is add
    assert server.definitions() == [add.definition(), server.tools["nothing"].definition()]
    assert (server.version, server.instructions) == ("2", "Be kind.")
    assert repr(server) == "<ToolServer add, nothing>"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ToolServer([add, add]), "has two tools named 'add'"),
        (lambda: ToolServer(add), "must be a list, got <Tool add>"),  # type: ignore[arg-type]  # it is refused
        (lambda: ToolServer([Counter.up]), "is a method without an instance"),
        (lambda: ToolServer([Counter.plain]), "is a method without an instance"),
        (lambda: ToolServer([3]), "must be a function, got 3"),  # type: ignore[list-item]
        (lambda: ToolServer([], version=""), "is empty"),
        (lambda: ToolServer([], instructions=3), "got int"),  # type: ignore[arg-type]
    ],
    ids=["twice", "no list", "tool-method", "method", "number", "version", "instructions"],
)
def test_a_server_that_cannot_work_is_refused(make: Callable[[], ToolServer], problem: str) -> None:
    with pytest.raises(OptionsError) as refusal:
        make()
    assert problem in refusal.value.problem


# ------------------------------------------------------------------------- raw handlers


@pytest.mark.parametrize(
    ("response", "wire"),
    [
        (McpResponse(), {"id": None, "result": {}}),
        (McpResponse(id=3, result={"a": 1}), {"id": 3, "result": {"a": 1}}),
        (McpResponse(id="3"), {"id": "3", "result": {}}),
        (
            McpResponse(id=1, error=McpError(-32602, "bad arguments")),
            {"id": 1, "error": {"code": -32602, "message": "bad arguments"}},
        ),
        (
            McpResponse(id=1, result={"a": 1}, error=McpError(-1, "no", {"why": [1]})),
            {"id": 1, "error": {"code": -1, "message": "no", "data": {"why": [1]}}},
        ),
    ],
)
def test_a_response_is_spelled_as_json_rpc(response: McpResponse, wire: dict[str, object]) -> None:
    """R323, R324, R326: the id keeps its type, and an error leaves no room for a result."""
    assert response.to_wire() == {"jsonrpc": "2.0", **wire}


def test_a_copy_of_a_context_keeps_its_request_and_leaves_the_session() -> None:
    context = ToolContext(name="add", server="calc")
    request = {"method": "tools/call", "of_tomorrow": 1}
    bind_raw(context, request)
    bind_session(context, lambda: "what cannot be pickled")
    for copied in (copy.deepcopy(context), pickle.loads(pickle.dumps(context))):
        assert (copied.name, copied.server, copied.session) == ("add", "calc", None)
        assert copied.raw == request
