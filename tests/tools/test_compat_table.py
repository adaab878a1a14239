"""The drop-in has every public name of the official SDK, and the comparison finds differences."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, Literal, TypedDict

import claude_agent_sdk
import pytest

import compat_table
from compat_table import DIFFERENT, _row, described, kind_of


def test_every_official_name_is_the_same_in_the_drop_in() -> None:
    assert compat_table.problems() == []


def test_the_table_has_a_row_for_every_official_export() -> None:
    listed = {row.name: row for row in compat_table.rows()}
    assert set(claude_agent_sdk.__all__) <= listed.keys()
    assert [name for name, row in listed.items() if "missing" in row.differences] == []
    assert listed["ClaudeAgentOptions"].compared == "50 fields"
    assert listed["ClaudeSDKClient"].compared == "2 parameters, 15 methods"


def test_few_names_differ_each_with_a_reason() -> None:
    assert len(DIFFERENT) <= 3
    assert all(reason.endswith(".") for reason in DIFFERENT.values())


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Narrow:
    x: int


class Keys(TypedDict, total=False):
    a: int


def plain(a: int, *, b: int = 1) -> None: ...


async def coroutine(a: int) -> None: ...


async def generator(a: int) -> AsyncIterator[int]:
    yield a


@pytest.mark.parametrize(
    ("value", "kind", "parts"),
    [
        (Point, "dataclass", {"field x": "required", "field y": "= 0"}),
        (Keys, "typed dictionary", {"key a": "optional"}),
        (plain, "function", {"parameter a": "0 required", "parameter b": "keyword = 1"}),
        (coroutine, "coroutine function", {"parameter a": "0 required"}),
        (generator, "async generator", {"parameter a": "0 required"}),
        (Literal["a", "b"], "type", {"values": "a, b"}),
        (int | str, "type", {"members": "2"}),
        (3, "value", {"value": "3"}),
    ],
)
def test_an_object_is_described(value: Any, kind: str, parts: dict[str, str]) -> None:
    assert kind_of(value) == kind
    assert dict(described(value)) == parts


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (Point, Point, ()),
        (Point, compat_table._MISSING, ("missing",)),
        (Point, Narrow, ("field y: absent instead of = 0",)),
        (
            plain,
            coroutine,
            ("is a coroutine function", "parameter b: absent instead of keyword = 1"),
        ),
        (Literal["a"], Literal["b"], ("values: b instead of a",)),
    ],
)
def test_a_difference_is_found(theirs: Any, ours: Any, expected: tuple[str, ...]) -> None:
    assert _row("m", "n", theirs, ours).differences == expected


def test_an_exception_has_parents() -> None:
    kind = claude_agent_sdk.ResultError
    assert kind_of(kind) == "exception"
    assert dict(described(kind))["parents"] == "ProcessError, ClaudeSDKError"
