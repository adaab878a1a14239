"""`run_session_store_conformance`: checks for session stores of the official protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from bridle.compat.claude_agent_sdk._callbacks import settled
from bridle.compat.claude_agent_sdk._stored.official_stores import has_method
from bridle.compat.claude_agent_sdk._stored.session_summaries import fold_session_summary
from bridle.compat.claude_agent_sdk._types.session_types import SessionKey, SessionStore

__all__ = ["run_session_store_conformance"]

_KEY = SessionKey(project_key="project", session_id="11111111-1111-4111-8111-111111111111")
_OTHER = SessionKey(project_key="project", session_id="22222222-2222-4222-8222-222222222222")
_ELSEWHERE = SessionKey(project_key="elsewhere", session_id=_KEY["session_id"])
_AGENT: SessionKey = {**_KEY, "subpath": "subagents/agent-1"}
_EARLIEST = 1_500_000_000_000
"""Milliseconds since the epoch. A smaller time is probably in seconds."""


def _entry(number: int) -> Any:
    return {"type": "user", "uuid": f"u{number}", "message": {"content": [{"text": "\u2028ü"}]}}


async def run_session_store_conformance(
    make_store: Callable[[], SessionStore | Awaitable[SessionStore]],
    *,
    skip_optional: frozenset[str] = frozenset(),
) -> None:
    """Check that a store keeps the contract. Raises AssertionError if it does not.

    Args:
        make_store: returns a new, empty store for each check.
        skip_optional: optional methods that are not checked although the store has them.
    """
    for needs, check in _CHECKS:
        store = cast("SessionStore", await settled(make_store()))
        if all(has_method(store, name) and name not in skip_optional for name in needs):
            await check(store)


async def _appends_in_order(store: SessionStore) -> None:
    await store.append(_KEY, [_entry(1), _entry(2)])
    await store.append(_KEY, [_entry(3)])
    loaded = await store.load(_KEY)
    assert loaded == [_entry(1), _entry(2), _entry(3)], "load() must return all entries in order"


async def _knows_no_other_key(store: SessionStore) -> None:
    assert await store.load(_KEY) is None, "load() of an unknown key must return None"


async def _appends_nothing(store: SessionStore) -> None:
    await store.append(_KEY, [_entry(1)])
    await store.append(_KEY, [])
    assert await store.load(_KEY) == [_entry(1)], "append() of no entries must change nothing"


async def _separates_subpaths(store: SessionStore) -> None:
    await store.append(_KEY, [_entry(1)])
    await store.append(_AGENT, [_entry(2)])
    assert await store.load(_KEY) == [_entry(1)], "a subpath must not change the main key"
    assert await store.load(_AGENT) == [_entry(2)], "a subpath must have its own entries"


async def _separates_projects(store: SessionStore) -> None:
    await store.append(_KEY, [_entry(1)])
    assert await store.load(_ELSEWHERE) is None, "another project must not have the session"


async def _lists_sessions(store: SessionStore) -> None:
    await store.append(_KEY, [_entry(1)])
    await store.append(_OTHER, [_entry(2)])
    await store.append(_AGENT, [_entry(3)])
    listed = await store.list_sessions(_KEY["project_key"])
    ids = sorted(one["session_id"] for one in listed)
    assert ids == [_KEY["session_id"], _OTHER["session_id"]], "list_sessions() has other ids"
    assert all(one["mtime"] > _EARLIEST for one in listed), "mtime must be in milliseconds"
    assert await store.list_sessions("unknown") == [], "an unknown project has no sessions"


async def _deletes(store: SessionStore) -> None:
    await store.append(_KEY, [_entry(1)])
    await store.append(_AGENT, [_entry(2)])
    await store.append(_OTHER, [_entry(3)])
    await store.delete(_KEY)
    assert await store.load(_KEY) is None, "delete() must remove the entries"
    assert await store.load(_AGENT) is None, "delete() of a session must remove its subpaths"
    assert await store.load(_OTHER) == [_entry(3)], "delete() must keep other sessions"


async def _deletes_a_subpath(store: SessionStore) -> None:
    await store.append(_KEY, [_entry(1)])
    await store.append(_AGENT, [_entry(2)])
    await store.delete(_AGENT)
    assert await store.load(_AGENT) is None, "delete() must remove the subpath"
    assert await store.load(_KEY) == [_entry(1)], "delete() of a subpath must keep the session"


async def _lists_subkeys(store: SessionStore) -> None:
    await store.append(_KEY, [_entry(1)])
    await store.append(_AGENT, [_entry(2)])
    await store.append(_OTHER, [_entry(3)])
    session = {"project_key": _KEY["project_key"], "session_id": _KEY["session_id"]}
    found = await store.list_subkeys(cast("Any", session))
    assert found == [_AGENT.get("subpath")], "list_subkeys() has other subpaths"


async def _keeps_summaries(store: SessionStore) -> None:
    entries: list[Any] = [_entry(1), {"type": "custom-title", "customTitle": "Title"}]
    await store.append(_KEY, entries[:1])
    await store.append(_KEY, entries[1:])
    [summary] = await store.list_session_summaries(_KEY["project_key"])
    expected = fold_session_summary(None, _KEY, entries)
    assert summary["data"] == expected["data"], "summaries must be those of fold_session_summary"
    assert summary["mtime"] > _EARLIEST, "mtime must be in milliseconds"


_CHECKS: tuple[tuple[tuple[str, ...], Callable[[SessionStore], Awaitable[None]]], ...] = (
    ((), _appends_in_order),
    ((), _knows_no_other_key),
    ((), _appends_nothing),
    ((), _separates_subpaths),
    ((), _separates_projects),
    (("list_sessions",), _lists_sessions),
    (("delete",), _deletes),
    (("delete",), _deletes_a_subpath),
    (("list_subkeys",), _lists_subkeys),
    (("list_session_summaries",), _keeps_summaries),
)
"""The checks, and the optional methods that each one needs."""
