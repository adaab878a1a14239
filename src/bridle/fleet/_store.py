"""The session store of a fleet: that of the database, without leases."""

from __future__ import annotations

from collections.abc import Sequence

from bridle._store import Entry, SessionKey, StoredSession
from bridle._stores import PostgresStore, SqliteStore


class FleetStore:
    """Keep the sessions of runs in the database of the fleet.

    A worker holds a lock for as long as it lives, and this lock is the lease of all its runs.
    Leases of sessions would only delay a take-over.
    """

    def __init__(self, store: SqliteStore | PostgresStore) -> None:
        self._store = store
        self.location = store.location
        self.redact = store.redact

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        """Append entries, as `SessionStore.append` does."""
        await self._store.append(key, entries)

    async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
        """Return the entries of a key, as `SessionStore.load` does."""
        return await self._store.load(key)

    async def list(self, project: str | None = None) -> Sequence[StoredSession]:
        """Return the sessions, as `SessionStore.list` does."""
        return await self._store.list(project)

    async def delete(self, key: SessionKey) -> None:
        """Delete the entries of a key, as `SessionStore.delete` does."""
        await self._store.delete(key)

    async def subkeys(self, session_id: str) -> Sequence[str]:
        """Return the subkeys of a session, as `SubkeyStore.subkeys` does."""
        return await self._store.subkeys(session_id)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._store.aclose()

    def __repr__(self) -> str:
        return f"FleetStore({self._store!r})"
