"""What the stores on databases have in common: everything but the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from bridle._records.session_store import Entry, SessionKey, StoredSession
from bridle.errors import StoreError
from bridle.sessions._stores.entries import (
    Redact,
    Row,
    check_policy,
    check_seconds,
    from_body,
    join_ends,
    quote_name,
    to_rows,
    unquote_name,
)
from bridle.sessions._stores.threads import Connections, StoreThread

T = TypeVar("T")


class Key(NamedTuple):
    """The quoted names of a `SessionKey`."""

    session_id: str
    subkey: str
    project: str


def quoted(key: SessionKey) -> Key:
    """Return the key as databases store it."""
    return Key(quote_name(key.session_id), quote_name(key.subkey), quote_name(key.project))


class Lease(NamedTuple):
    """A lease that an append needs and renews: its owner, and its new duration in seconds."""

    owner: str
    seconds: float


class Database(Connections, Protocol):
    """The operations on one database. Names are quoted, entries are `Row`.

    Each operation is atomic. It raises the errors of the driver.
    """

    async def append(self, key: Key, rows: Sequence[Row], lease: Lease | None) -> bool:
        """Append entries and renew the lease. Return False if another owner has it, or nobody."""
        ...

    async def load(self, key: Key) -> Sequence[str]: ...

    async def ends(self, key: Key, size: int) -> tuple[Sequence[str], Sequence[str]]:
        """Return the first entries, and the last ones with the last one first. See `join_ends`.

        Long entries are cut off: the first ones at their end, the last ones at their start.
        """
        ...

    async def after(self, key: Key, position: int, size: int) -> Sequence[tuple[int, str]]:
        """Return entries after a position, each with its own. See `RangeStore.load_after`."""
        ...

    async def list(self, project: str | None) -> Sequence[tuple[str, str, float]]: ...
    async def delete(self, key: Key) -> None: ...
    async def subkeys(self, session_id: str) -> Sequence[str]: ...
    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool: ...
    async def release(self, session_id: str, owner: str) -> None: ...

    async def expire(self, retention: float) -> None:
        """Delete sessions that were not appended to for this long and are not leased."""
        ...

    def explain(self, error: Exception) -> tuple[str, str] | None:
        """Return reason and fix for an error of the driver, without entries and passwords.

        None for an error that is not of the driver.
        """
        ...


class DatabaseStore:
    """A session store on a database."""

    _name: ClassVar[str]

    def _set_up(
        self,
        connect: Callable[[], Database],
        *,
        redact: Redact | None,
        retention: float | None,
        timeout: float,
    ) -> None:
        """Finish the constructor: check and keep what all stores have."""
        check_policy(self._name, redact, retention)
        check_seconds(f"{self._name}.timeout", timeout)
        self.redact = redact
        self.retention = retention
        self.timeout = timeout
        self._thread = StoreThread(connect)

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        """Append entries in order, all or none. Skip those whose ``uuid`` the key already holds."""

        async def work(database: Database) -> None:
            rows = to_rows(self._name, entries, self.redact)
            if rows:
                await database.append(quoted(key), rows, None)

        await self._run("append", work)

    async def append_leased(
        self, key: SessionKey, entries: Sequence[Entry], owner: str, seconds: float
    ) -> bool:
        """Append entries and renew the lease, if ``owner`` has it. Otherwise return False."""
        check_seconds("seconds", seconds)

        async def work(database: Database) -> bool:
            rows = to_rows(self._name, entries, self.redact)
            return await database.append(quoted(key), rows, Lease(quote_name(owner), seconds))

        return await self._run("append_leased" if entries else "renew", work)

    async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
        """Return the entries of a key in the order of appending. None if there are none."""

        async def work(database: Database) -> list[dict[str, object]]:
            return [from_body(self._name, body) for body in await database.load(quoted(key))]

        return await self._run("load", work) or None

    async def load_ends(self, key: SessionKey, size: int) -> tuple[bytes, bytes]:
        """Return the first and the last bytes of a list. See `RangeStore.load_ends`."""

        async def work(database: Database) -> tuple[bytes, bytes]:
            return join_ends(*await database.ends(quoted(key), size), size)

        return await self._run("load_ends", work)

    async def load_after(
        self, key: SessionKey, position: int, size: int
    ) -> tuple[Sequence[Entry], int]:
        """Return entries after a position. See `RangeStore.load_after`."""

        async def work(database: Database) -> tuple[Sequence[Entry], int]:
            found = await database.after(quoted(key), position, size)
            entries = [from_body(self._name, body) for _, body in found]
            return entries, found[-1][0] if found else position

        return await self._run("load_after", work)

    async def list(self, project: str | None = None) -> Sequence[StoredSession]:
        """Return the sessions that have a transcript, the last updated first.

        ``project`` selects the sessions of one project. None selects all.
        """

        async def work(database: Database) -> Sequence[StoredSession]:
            found = await database.list(None if project is None else quote_name(project))
            return [
                StoredSession(unquote_name(session_id), unquote_name(of), updated_at)
                for session_id, of, updated_at in found
            ]

        return await self._run("list", work)

    async def delete(self, key: SessionKey) -> None:
        """Delete one list. If the subkey is ``""``, delete all lists of the session."""
        await self._run("delete", lambda database: database.delete(quoted(key)))

    async def subkeys(self, session_id: str) -> Sequence[str]:
        """Return the subkeys that the session has entries for, sorted, without ``""``."""

        async def work(database: Database) -> Sequence[str]:
            return sorted(map(unquote_name, await database.subkeys(quote_name(session_id))))

        return await self._run("subkeys", work)

    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        """Take or renew the lease for ``seconds``. Return False if another owner holds it."""
        check_seconds("seconds", seconds)
        return await self._run(
            "acquire",
            lambda database: database.acquire(quote_name(session_id), quote_name(owner), seconds),
        )

    async def release(self, session_id: str, owner: str) -> None:
        """Give the lease back. Does nothing if another owner holds it."""
        await self._run(
            "release",
            lambda database: database.release(quote_name(session_id), quote_name(owner)),
        )

    async def aclose(self) -> None:
        """Wait for running operations and close the connections.

        The store stays usable: the next operation connects again.
        """
        await self._thread.aclose()

    async def _run(self, operation: str, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        """Do ``work`` in the thread of the store. Raises `StoreError` if the database fails."""

        async def bounded(database: Database) -> T:
            try:
                async with asyncio.timeout(self.timeout):
                    if self.retention is not None and operation not in _UNEXPIRED:
                        await database.expire(self.retention)
                    return await work(database)
            except TimeoutError:
                raise
            except Exception as error:
                explained = database.explain(error)
                if explained is None:
                    raise
            raise StoreError(self._name, operation, explained[0], fix=explained[1])

        try:
            # A connection may take long to give an operation up. The caller does not wait for it.
            async with asyncio.timeout(self.timeout + _GRACE):
                return await self._thread.run(bounded)
        except TimeoutError:
            pass
        raise StoreError(
            self._name,
            operation,
            f"the database did not respond within {self.timeout:g} s",
            fix="Check that the database is reachable, or increase timeout.",
        )


_GRACE = 1.0
"""Seconds that an operation gets to end after its timeout."""
_UNEXPIRED = ("delete", "acquire", "release", "renew")
"""Operations whose result does not depend on the retention."""
