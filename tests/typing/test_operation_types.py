"""Typed operations: both type checkers know arguments and replies, also of blocking sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import pytest

import bridle
from bridle import sync
from bridle.controls import ContextUsage, FileContents, McpServerChanges, McpServerList, ModelList


async def asked(session: bridle.Session) -> None:
    assert_type(await session.mcp.status(), McpServerList)
    assert_type(await session.models.list(timeout=1.0), ModelList)
    assert_type(await session.context.usage("summary"), ContextUsage)
    assert_type(await session.mcp.add("calc", bridle.ToolServer([])), McpServerChanges)
    await session.mcp.toggle("calc", "yes")  # type: ignore[arg-type]
    await session.tasks.stop(id="x")  # type: ignore[call-arg]


def asked_blocking(session: sync.Session) -> None:
    assert_type(session.mcp.status(), McpServerList)
    assert_type(session.models.list(timeout=1.0), ModelList)
    assert_type(session.files.read("notes.txt", max_bytes=10), FileContents)
    assert_type(session.mcp.remove("calc"), McpServerChanges)
    session.mcp.toggle("calc", "yes")  # type: ignore[arg-type]
    session.tasks.stop(id="x")  # type: ignore[call-arg]


@pytest.mark.parametrize("function", [asked, asked_blocking])
def test_the_type_checkers_read_these_functions(function: Callable[..., object]) -> None:
    assert callable(function)
