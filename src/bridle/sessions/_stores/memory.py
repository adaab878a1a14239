"""A session store in the memory of the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock
from uuid import uuid4

from bridle._records.session_store import Entry, SessionKey, StoredSession
from bridle.sessions._stores.entries import (
    Redact,
    Row,
    check_policy,
    check_seconds,
    first_bodies,
    from_body,
    join_ends,
    to_rows,
)


class _Session:
    """The entries of one session."""

    def __init__(self) -> None:
        self.project = ""
        self.updated_at = 0.0
        #: The entries of each subkey, as JSON.
        self.bodies: dict[str, list[str]] = {}
        self.uuids: dict[str, set[str]] = {}


class MemoryStore:
    """Keep sessions in memory, for tests and for programs that need them only while they run.

    Several sessions, event loops and threads can share one object.

    Args:
        redact: Called for each entry; returns the entry to store. It must accept its own result,
            because it may be called again with an entry that it returned.
        retention: Seconds after the last append after which a session is deleted. A session that
            is in use is kept. None keeps sessions for ever.
        clock: Returns the seconds since the epoch. For tests.
    """

    #: Tells Bridle to keep entries that wait for the store in memory, not in a spool file.
    ends_with_program = True

    def __init__(
        self,
        *,
        redact: Redact | None = None,
        retention: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_policy("MemoryStore", redact, retention)
        self.redact = redact
        self.retention = retention
        #: Differs for each object, because each object has its own sessions.
        self.location = uuid4().hex
        self._clock = clock
        self._lock = Lock()
        # In the order of the last append.
        self._sessions: dict[str, _Session] = {}
        self._leases: dict[str, tuple[str, float]] = {}

    def __repr__(self) -> str:
        return f"MemoryStore(<{len(self._sessions)} sessions>)"

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        """Append entries in order, all or none. Skip those whose ``uuid`` the key already holds."""
        rows = to_rows("MemoryStore", entries, self.redact)
        with self._lock:
            self._append(key, rows)

    async def append_leased(
        self, key: SessionKey, entries: Sequence[Entry], owner: str, seconds: float
    ) -> bool:
        """Append entries and renew the lease, if ``owner`` has it. Otherwise return False."""
        check_seconds("seconds", seconds)
        rows = to_rows("MemoryStore", entries, self.redact)
        with self._lock:
            holder, _ = self._leases.get(key.session_id, ("", 0.0))
            if holder != owner:
                return False
            self._leases[key.session_id] = (owner, self._clock() + seconds)
            self._append(key, rows)
            return True

    def _append(self, key: SessionKey, rows: Sequence[Row]) -> None:
        self._expire()
        session = self._sessions.get(key.session_id) or _Session()
        known = session.uuids.setdefault(key.subkey, set())
        new: list[str] = []
        for uuid, body in rows:
            if uuid is None or uuid not in known:
                new.append(body)
            if uuid is not None:
                known.add(uuid)
        if new:
            session.bodies.setdefault(key.subkey, []).extend(new)
            session.project = session.project or key.project
            session.updated_at = self._clock()
            self._sessions.pop(key.session_id, None)
            self._sessions[key.session_id] = session

    async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
        """Return the entries of a key in the order of appending. None if there are none."""
        return [from_body("MemoryStore", body) for body in self._bodies(key)] or None

    async def load_ends(self, key: SessionKey, size: int) -> tuple[bytes, bytes]:
        """Return the first and the last bytes of a list. See `RangeStore.load_ends`."""
        bodies = self._bodies(key)
        first = first_bodies(bodies, 2 * size + 1)
        return join_ends(first, first_bodies(reversed(bodies), size), size)

    async def load_after(
        self, key: SessionKey, position: int, size: int
    ) -> tuple[Sequence[Entry], int]:
        """Return entries after a position. See `RangeStore.load_after`."""
        bodies = first_bodies(self._bodies(key, position), size)
        return [from_body("MemoryStore", body) for body in bodies], position + len(bodies)

    def _bodies(self, key: SessionKey, start: int = 0) -> list[str]:
        with self._lock:
            self._expire()
            session = self._sessions.get(key.session_id)
            return session.bodies.get(key.subkey, [])[start:] if session else []

    async def list(self, project: str | None = None) -> Sequence[StoredSession]:
        """Return the sessions that have a transcript, the last updated first."""
        with self._lock:
            self._expire()
            return [
                StoredSession(session_id, session.project, session.updated_at)
                for session_id, session in reversed(self._sessions.items())
                if "" in session.bodies and project in (None, session.project)
            ]

    async def delete(self, key: SessionKey) -> None:
        """Delete one list. If the subkey is ``""``, delete all lists of the session."""
        with self._lock:
            session = self._sessions.get(key.session_id)
            if session:
                session.bodies.pop(key.subkey, None)
                session.uuids.pop(key.subkey, None)
                if not key.subkey or not session.bodies:
                    del self._sessions[key.session_id]

    async def subkeys(self, session_id: str) -> Sequence[str]:
        """Return the subkeys that the session has entries for, sorted, without ``""``."""
        with self._lock:
            self._expire()
            session = self._sessions.get(session_id)
            return sorted(filter(None, session.bodies)) if session else []

    async def acquire(self, session_id: str, owner: str, seconds: float) -> bool:
        """Take or renew the lease for ``seconds``. Return False if another owner holds it."""
        check_seconds("seconds", seconds)
        with self._lock:
            now = self._clock()
            holder, expires_at = self._leases.get(session_id, ("", 0.0))
            if holder != owner and now < expires_at:
                return False
            self._leases[session_id] = (owner, now + seconds)
            return True

    async def release(self, session_id: str, owner: str) -> None:
        """Give the lease back. Does nothing if another owner holds it."""
        with self._lock:
            if self._leases.get(session_id, ("", 0.0))[0] == owner:
                del self._leases[session_id]

    async def aclose(self) -> None:
        """Do nothing: the entries stay until the object is gone."""

    def _expire(self) -> None:
        """Delete the sessions whose retention is over."""
        now = self._clock()
        for session_id in [one for one, (_, end) in self._leases.items() if end <= now]:
            del self._leases[session_id]
        if self.retention is not None:
            limit = now - self.retention
            for session_id in [
                one
                for one, session in self._sessions.items()
                if session.updated_at < limit and one not in self._leases
            ]:
                del self._sessions[session_id]
