"""Session stores of the official protocol: `InMemorySessionStore`, and the adapter for Bridle."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from uuid import uuid4

from bridle._spi import Feed
from bridle.compat.claude_agent_sdk._loops.bridge import Bridge
from bridle.compat.claude_agent_sdk._stored.session_summaries import fold_session_summary
from bridle.compat.claude_agent_sdk._types.session_types import (
    MirrorErrorMessage,
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from bridle.sessions import Entry, OfficialStore
from bridle.sessions import SessionKey as NativeKey

_OPTIONAL = ("list_sessions", "list_session_summaries", "delete", "list_subkeys")
_ATTEMPTS = 3
"""Failed attempts after which the program gets a `MirrorErrorMessage`."""

_FLUSH_TIMEOUT = 5.0
"""Seconds that a result waits until the store has the entries before it."""


def has_method(store: object, name: str) -> bool:
    """Return whether a store has an optional method, and not only the one of `SessionStore`."""
    function = getattr(store, name, None)
    return function is not None and (
        getattr(function, "__qualname__", "") != f"SessionStore.{name}"
    )


# ---------------------------------------------------------------- sessions with a store


class AdaptedStore(OfficialStore):
    """Use a store of the official protocol for a session.

    The store gets what the official SDK would append: the entries of transcripts, under the project
    of the session.
    """

    #: The official SDK stores transcripts only.
    has_journals = False

    def __init__(self, store: SessionStore, bridge: Bridge) -> None:
        super().__init__(store)  # its location is that of the store of the program
        self._store = _Bridged(store, bridge)
        self._name = type(self._store).__name__
        #: What the program has to be told about entries that the store does not take.
        self.problems: deque[MirrorErrorMessage] = deque()
        #: Set while the store fails.
        self.is_failing = asyncio.Event()
        self._failures = 0
        self._failing: tuple[NativeKey, str] | None = None

    async def append(self, key: NativeKey, entries: Sequence[Entry]) -> None:
        """Append entries of a transcript. Bridle repeats an append that raises."""
        try:
            await super().append(key, entries)
        except Exception as error:
            self._failures += 1
            if self._failures == _ATTEMPTS:
                self._failing = key, str(error)
                self.note_failing()
                self.is_failing.set()
            raise
        self._failures, self._failing = 0, None
        self.is_failing.clear()

    def note_failing(self) -> None:
        """Note the last problem, if the store has not worked since."""
        if self._failing is not None:
            self.problems.append(_mirror_error(*self._failing))

    async def delete(self, key: NativeKey) -> None:
        """Delete the entries of a key."""
        project = self._projects.get(key.session_id, key.project)
        await self._call("delete", {"project_key": project, "session_id": key.session_id})

    async def _find(self, session_id: str) -> str | None:
        return self._projects.get(session_id)

    async def _note(self, session_id: str, project: str) -> str:
        self._projects[session_id] = project
        return project


def _mirror_error(key: NativeKey, error: str) -> MirrorErrorMessage:
    official = SessionKey(project_key=key.project, session_id=key.session_id)
    if key.subkey:
        official["subpath"] = key.subkey
    data = {
        "type": "system",
        "subtype": "mirror_error",
        "error": error,
        "key": official,
        "uuid": str(uuid4()),
        "session_id": key.session_id,
    }
    return MirrorErrorMessage("mirror_error", data, key=official, error=error)


class _Bridged:
    """The methods of a store, called in the event loop of the program."""

    def __init__(self, store: SessionStore, bridge: Bridge) -> None:
        for name in ("append", "load", *_OPTIONAL):
            if has_method(store, name):
                function: Callable[..., Awaitable[object]] = getattr(store, name)
                setattr(self, name, bridge.callback(function))


async def flush(feed: Feed, store: AdaptedStore) -> None:
    """Wait until the store has the entries that the CLI has reported, or fails."""
    waiting = [
        asyncio.ensure_future(feed.flush()),
        asyncio.ensure_future(store.is_failing.wait()),
    ]
    try:
        await asyncio.wait(waiting, timeout=_FLUSH_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


# ---------------------------------------------------------------- in memory


class InMemorySessionStore(SessionStore):
    """A store in memory, for tests and as an example. It has every optional method."""

    def __init__(self) -> None:
        # No other program can use this store, so Bridle need not warn that it has no location.
        self.location = uuid4().hex
        self._entries: dict[tuple[str, str, str], list[SessionStoreEntry]] = {}
        self._summaries: dict[tuple[str, str], SessionSummaryEntry] = {}
        self._mtimes: dict[tuple[str, str], int] = {}
        self._last_mtime = 0

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries in order."""
        if not entries:
            return
        self._entries.setdefault(_place(key), []).extend(deepcopy(entries))
        if key.get("subpath"):
            return
        session = (key["project_key"], key["session_id"])
        self._last_mtime = max(self._last_mtime + 1, time.time_ns() // 1_000_000)
        self._mtimes[session] = self._last_mtime
        summary = fold_session_summary(self._summaries.get(session), key, entries)
        self._summaries[session] = {**summary, "mtime": self._last_mtime}

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries. None if there are none."""
        return deepcopy(self._entries.get(_place(key)))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project."""
        return [
            SessionStoreListEntry(session_id=session, mtime=mtime)
            for (project, session), mtime in self._mtimes.items()
            if project == project_key
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return what is known about the sessions of a project."""
        return [
            deepcopy(summary)
            for (project, _), summary in self._summaries.items()
            if project == project_key
        ]

    async def delete(self, key: SessionKey) -> None:
        """Delete entries. A key without ``subpath`` also deletes those with one."""
        if key.get("subpath"):
            self._entries.pop(_place(key), None)
            return
        session = (key["project_key"], key["session_id"])
        self._mtimes.pop(session, None)
        self._summaries.pop(session, None)
        for place in [place for place in self._entries if place[:2] == session]:
            del self._entries[place]

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return every ``subpath`` of a session."""
        session = (key["project_key"], key["session_id"])
        return [place[2] for place in self._entries if place[:2] == session and place[2]]

    def get_entries(self, key: SessionKey) -> list[SessionStoreEntry]:
        """Return the entries of a key, or an empty list."""
        return deepcopy(self._entries.get(_place(key), []))

    @property
    def size(self) -> int:
        """The number of sessions."""
        return len(self._mtimes)

    def clear(self) -> None:
        """Delete everything."""
        self._entries.clear()
        self._summaries.clear()
        self._mtimes.clear()


def _place(key: SessionKey) -> tuple[str, str, str]:
    return key["project_key"], key["session_id"], key.get("subpath", "")
