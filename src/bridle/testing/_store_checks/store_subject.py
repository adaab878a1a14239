"""A store that is checked, and what the checks say of it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from bridle.sessions import Entry, SessionKey, SessionStore


class Broken(Exception):
    """A rule of the contract is broken."""


def expect(condition: object, text: str) -> None:
    if not condition:
        raise Broken(text)


class Subject:
    """The store that is checked, and the sessions that the check has made."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self._ids: list[str] = []

    def key(self, subkey: str = "", *, name: str = "", project: str = "bridle-check") -> SessionKey:
        """Return the key of a new session."""
        session_id = f"{uuid4()}{name}"
        self._ids.append(session_id)
        return SessionKey(session_id, subkey, project)

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        await self.store.append(key, entries)

    async def numbers(self, key: SessionKey) -> list[object] | None:
        """Return the numbers of the entries that `_entries` made. None if there are none."""
        loaded = await self.store.load(key)
        return None if loaded is None else [entry.get("n") for entry in loaded]

    async def listed(self, project: str | None) -> list[str]:
        """Return the ids of this check's sessions in a list."""
        sessions = await self.store.list(project)
        return [one.session_id for one in sessions if one.session_id in self._ids]

    async def clean(self) -> None:
        for session_id in self._ids:
            await self.store.delete(SessionKey(session_id, project="bridle-check"))


def entries(*numbers: int) -> list[dict[str, object]]:
    return [{"type": "user", "uuid": f"uuid-{n}", "n": n} for n in numbers]


def sub(key: SessionKey, subkey: str) -> SessionKey:
    return SessionKey(key.session_id, subkey, key.project)
