"""The two doors have the same names, parameters and contracts; what differs is in two tables."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import bridle
from bridle import sync
from bridle._session import run as run_door
from bridle.agent import (
    Agent,
    Pool,
    PoolSession,
    SyncAgent,
    SyncPool,
    SyncPoolSession,
)

RENAMED = {
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}
"""The blocking name of what is called otherwise there."""

SHORTER = {"aclose": "close"}
"""A second name in the blocking door, where the prefix for async says nothing."""

WITHOUT_TWIN = {"__await__", "sync"}
"""What only makes sense with ``await``, and the way from an agent to its twin."""

OTHER_RESULT = {
    "start_session": "Session",
    "Agent.session": "blocking.Session",
    "Agent.query": "blocking.QueryStream",
    "Agent.replace": "SyncAgent[Deps]",
    "Agent.pool": "SyncPool[Deps]",
    "Pool.session": "SyncPoolSession",
    "PoolSession.__aenter__": "blocking.Session",
    "Agent.run_many": "blocking.Subscription[tuple[_Prompt, Outcome[Any]]]",
}
"""Where the twin returns something else, such as the session itself: there is nothing to await."""

OTHER_SUMMARY = {
    *("start_session", "Agent", "Agent.session", "Pool", "Pool.session", "PoolSession"),
    *("Subscription", "TextPieces", "Turn", "TurnEvents"),
}
"""Whose first line speaks of ``await`` or of ``async``, and cannot be the same."""

CLASSES = {
    name: (getattr(bridle, name), getattr(sync, name))
    for name in ("QueryStream", "Session", "Turn", "Subscription", "TextPieces", "TurnEvents")
} | {
    "Agent": (Agent, SyncAgent),
    "Pool": (Pool, SyncPool),
    "PoolSession": (PoolSession, SyncPoolSession),
}
FUNCTIONS = {
    "query": (bridle.query, sync.query),
    "run": (run_door.run, sync.run),
    "start_session": (bridle.start_session, sync.start_session),
}


def members(kind: type) -> dict[str, Any]:
    """What a class defines for its users."""
    special = {*RENAMED, *RENAMED.values(), *WITHOUT_TWIN}
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("_") or name in special
    }


PAIRS: dict[str, tuple[Any, Any]] = {
    f"{kind}.{name}": (value, members(blocking).get(RENAMED.get(name, name)))
    for kind, (original, blocking) in CLASSES.items()
    for name, value in members(original).items()
    if name not in WITHOUT_TWIN
}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_public_member_has_its_twin_and_no_twin_is_alone(kind: str) -> None:
    """C50."""
    original, blocking = CLASSES[kind]
    wanted = {RENAMED.get(name, name) for name in members(original)} - WITHOUT_TWIN
    shorter = {SHORTER[name] for name in wanted if name in SHORTER}
    assert set(members(blocking)) == wanted | shorter


@pytest.mark.parametrize("name", PAIRS)
def test_twins_take_and_return_the_same(name: str) -> None:
    original, twin = (shape(member) for member in PAIRS[name])
    assert twin == {**original, "return": OTHER_RESULT.get(name, original["return"])}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_functions_take_and_return_the_same(name: str) -> None:
    original, twin = (shape(function) for function in FUNCTIONS[name])
    assert twin == {**original, "return": OTHER_RESULT.get(name, original["return"])}


def test_sessions_are_made_of_the_same() -> None:
    assert inspect.signature(sync.Session) == inspect.signature(bridle.Session)


def shape(member: Any) -> dict[str, object]:
    """Parameters with their kinds and defaults, and the result, as they are written."""
    if isinstance(member, property):
        return {"property": True, **shape(member.fget)}
    signature = inspect.signature(member)
    parameters = {
        name: (parameter.kind.name, repr(parameter.default), parameter.annotation)
        for name, parameter in signature.parameters.items()
    }
    return {**parameters, "return": signature.return_annotation}


DOCUMENTED = {name: pair for name, pair in PAIRS.items() if name.rpartition(".")[2][0] != "_"}
DOCUMENTED |= {"Turn.__aiter__": PAIRS["Turn.__aiter__"], **CLASSES, **FUNCTIONS}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_twins_are_documented_alike(name: str) -> None:
    original, twin = DOCUMENTED[name]
    if name in OTHER_SUMMARY:
        assert summary(twin)
    else:
        assert summary(twin) == summary(original)


def summary(member: Any) -> str:
    """The first line of what was written for this very member."""
    return (member.__doc__ or "").partition("\n")[0]


@pytest.mark.parametrize("name", [*PAIRS, *FUNCTIONS])
def test_no_twin_has_to_be_awaited(name: str) -> None:
    _, twin = {**PAIRS, **FUNCTIONS}[name]
    assert not inspect.iscoroutinefunction(twin.fget if isinstance(twin, property) else twin)


def test_every_second_name_is_documented() -> None:
    told = sync.__doc__ or ""
    assert [f"``{a}()``" in told and f"``{b}()``" in told for a, b in SHORTER.items()] == [True]


def test_every_exported_name_has_its_original() -> None:
    # Their twins come from `agent.sync`.
    names = {*CLASSES, *FUNCTIONS} - {"Agent", "Pool", "PoolSession"}
    assert [name for name in sync.__all__ if name in names] == sorted(names)
