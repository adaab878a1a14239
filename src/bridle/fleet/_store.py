"""The session store of a fleet: that of the database, without leases."""

from __future__ import annotations

from collections.abc import Sequence

from bridle.errors import StoreError
from bridle.fleet._fleet_database import DatabaseDeleted, DatabaseFile, explain
from bridle.sessions import Entry, PostgresStore, SessionKey, SqliteStore, StoredSession


class FleetStore:
    """Keep the sessions of runs in the database of the fleet.

    A worker holds a lock for as long as it lives, and this lock is the lease of all its runs.
    Leases of sessions would only delay a take-over. If the file of the database was deleted, it is
    not created again.
    """

    def __init__(self, store: SqliteStore | PostgresStore, file: DatabaseFile) -> None:
        self._store = store
        self._file = file
        self.location = store.location
        self.redact = store.redact

    def _at(self, operation: str) -> SqliteStore | PostgresStore:
        """Return the store of the database, if the database is there."""
        try:
            self._file.is_replaced()
            return self._store
        except DatabaseDeleted as error:
            reason, fix = explain(error)
        raise StoreError("FleetStore", operation, reason, fix=fix)

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        """Append entries, as `SessionStore.append` does."""
        await self._at("append").append(key, entries)

    async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
        """Return the entries of a key, as `SessionStore.load` does."""
        return await self._at("load").load(key)

    async def load_ends(self, key: SessionKey, size: int) -> tuple[bytes, bytes]:
        """Return the ends of a list, as `RangeStore.load_ends` does."""
        return await self._at("load_ends").load_ends(key, size)

    async def load_after(
        self, key: SessionKey, position: int, size: int
    ) -> tuple[Sequence[Entry], int]:
        """Return entries after a position, as `RangeStore.load_after` does."""
        return await self._at("load_after").load_after(key, position, size)

    async def list(self, project: str | None = None) -> Sequence[StoredSession]:
        """Return the sessions, as `SessionStore.list` does."""
        return await self._at("list").list(project)

    async def delete(self, key: SessionKey) -> None:
        """Delete the entries of a key, as `SessionStore.delete` does."""
        await self._at("delete").delete(key)

    async def subkeys(self, session_id: str) -> Sequence[str]:
        """Return the subkeys of a session, as `SubkeyStore.subkeys` does."""
        return await self._at("subkeys").subkeys(session_id)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._store.aclose()

    def __repr__(self) -> str:
        return f"FleetStore({self._store!r})"
