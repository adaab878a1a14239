"""A tool keeps the types of its function: checked by the type checkers, and true when run."""

from __future__ import annotations

from typing import assert_type

import pytest

from bridle.tools import Tool, ToolServer, tool


@tool
def plain(a: int, *, b: str = "") -> float:
    return a + len(b)


@tool(read_only=True)
async def slow(a: int) -> str:
    return str(a)


class Counter:
    @tool
    def up(self, by: int) -> int:
        return by


def test_a_plain_tool_is_called_as_its_function() -> None:
    assert_type(plain(1, b="x"), float)
    assert plain(1, b="x") == 2
    with pytest.raises(TypeError):
        plain("1")  # type: ignore[arg-type]  # the checker knows the parameters
    with pytest.raises(TypeError):
        plain(1, c=2)  # type: ignore[call-arg]  # and their names


async def test_an_async_tool_is_awaited_as_its_function() -> None:
    assert_type(await slow(1), str)
    assert await slow(1) == "1"


def test_a_method_is_bound() -> None:
    assert_type(Counter().up(1), int)
    assert_type(Counter.up(Counter(), 1), int)
    assert Counter().up(1) == Counter.up(Counter(), 1) == 1


def test_tools_and_functions_make_a_server() -> None:
    def function(a: int) -> int:
        return a

    server = ToolServer([plain, slow, function, Counter().up])
    assert_type(tool(function)(1), int)
    assert all(isinstance(one, Tool) for one in server.tools.values())
