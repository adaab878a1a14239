"""The table of control operations and the methods of both sessions are the same."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from types import NoneType
from typing import Any

import pytest

import bridle
from bridle import operations, sync
from bridle._engine.outgoing.operations import OPERATIONS

BUILT_ON = {"mcp.add": "mcp_set_servers", "mcp.remove": "mcp_set_servers"}
"""Methods that use the operation of another method."""

SENDS_NOTHING = {"tasks.list"}
"""Methods that return what the session already knows."""

OLDER = {"interrupt", "set_model", "set_permission_mode"}
"""Methods of the session itself."""


def groups(session: type) -> dict[str, type]:
    """Return the groups of a session by name."""
    found: dict[str, type] = {}
    for kind in session.__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, property) and member.fget is not None:
                result = typing.get_type_hints(member.fget).get("return")
                if inspect.isclass(result) and result.__name__.endswith("Operations"):
                    found[name] = result
    return found


def methods(session: type) -> Iterator[tuple[str, Any]]:
    """Yield the operations of a session with their names, such as `mcp.status`."""
    for group, kind in groups(session).items():
        for name, member in vars(kind).items():
            if not name.startswith("_"):
                yield f"{group}.{name}", member


ASYNC, BLOCKING = dict(methods(bridle.Session)), dict(methods(sync.Session))


def test_every_row_has_its_method_and_every_method_its_row() -> None:
    rows = {row.method for row in OPERATIONS.values()}
    assert set(ASYNC) == rows - OLDER | set(BUILT_ON) | SENDS_NOTHING


@pytest.mark.parametrize("subtype", [one for one in OPERATIONS if one not in OLDER])
def test_a_method_returns_the_reply_of_its_row_and_takes_a_timeout(subtype: str) -> None:
    row = OPERATIONS[subtype]
    method = ASYNC[row.method]
    assert inspect.iscoroutinefunction(method)
    assert typing.get_type_hints(method)["return"] is row.reply
    assert inspect.signature(method).parameters["timeout"].default is None


@pytest.mark.parametrize("name", ASYNC)
def test_the_blocking_method_has_the_same_signature_and_documentation(name: str) -> None:
    original, twin = ASYNC[name], BLOCKING[name]
    assert inspect.signature(twin) == inspect.signature(original)
    assert twin.__doc__ == original.__doc__
    assert not inspect.iscoroutinefunction(twin)


def test_both_sessions_have_the_same_groups() -> None:
    ours, theirs = groups(bridle.Session), groups(sync.Session)
    assert {name: kind.__name__ for name, kind in ours.items()} == {
        name: kind.__name__ for name, kind in theirs.items()
    }
    assert set(BLOCKING) == set(ASYNC)
    assert {kind.__name__ for kind in ours.values()} == set(operations.__all__)


def test_every_reply_is_public() -> None:
    replies = {row.reply for row in OPERATIONS.values()} - {NoneType}
    assert {kind.__name__ for kind in replies} <= set(bridle.controls.__all__)
