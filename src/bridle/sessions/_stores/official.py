"""Use an object that was written for the store protocol of the official SDK as a store."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, cast

from bridle._records.session_store import Entry, SessionKey, StoredSession
from bridle.errors import OptionsError, StoreError
from bridle.sessions._stores.entries import Redact, check_policy, to_rows, uuid_of
from bridle.sessions._stores.locations import class_and_location

INDEX = "bridle-index"
"""The project key under which the adapter stores the project of each session."""
NO_PROJECT = "bridle-no-project"
"""The project key of sessions without a project."""
_MOST = 10_000
"""How many projects of sessions the adapter remembers."""


class OfficialStore:
    """Adapt a store of the official SDK, whose keys are dicts and contain the project.

    A Bridle store finds a session from any directory. So the adapter stores the project of each
    session that it appends to, under the project key ``bridle-index``. It finds a session that the
    official SDK has stored only if the key has the session's project. `load` skips repeated uuids,
    because the official protocol only recommends that ``append`` does.

    Use the object from the event loops that it supports. It has no leases.

    Args:
        store: The object. ``append`` and ``load`` are required. Without ``list_sessions``,
            ``delete`` or ``list_subkeys``, `list` and `delete` raise `StoreError` and `subkeys`
            returns an empty list.
        redact: Called for each entry; returns the entry to store. It must accept its own result.
        location: A string that differs for different databases, prefixes or tenants, without a
            password. Bridle sends the entries of a spool file only to a store of the same class
            with the same location. None takes the attribute ``location`` of the object. If the
            object has none, Bridle sends the entries only to the same object, so those that are in
            the file when the program ends stay there.
    """

    def __init__(
        self, store: object, *, redact: Redact | None = None, location: str | None = None
    ) -> None:
        check_policy("OfficialStore", redact, None)
        if location is not None and (not isinstance(cast("object", location), str) or not location):
            raise OptionsError(
                "OfficialStore.location",
                f"must be a non-empty string, got {location!r}",
                fix="Use a name of the database, such as 'eu-bucket/tenant-7'.",
            )
        self.redact = redact
        self.location = class_and_location(store, location)
        self._store = store
        self._name = type(store).__name__
        self._projects: dict[str, str] = {}
        # The sessions whose project is in the index.
        self._indexed: set[str] = set()

    def __repr__(self) -> str:
        return f"OfficialStore(<{self._name}>)"

    async def append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        """Append entries in order."""
        rows = to_rows(self._name, entries, self.redact)
        if rows:
            project = await self._find(key.session_id) or key.project or NO_PROJECT
            if key.session_id not in self._indexed:
                project = await self._note(key.session_id, project)
            new = [cast("dict[str, object]", json.loads(row.body)) for row in rows]
            await self._call("append", _key(project, key), new)

    async def load(self, key: SessionKey) -> list[dict[str, object]] | None:
        """Return the entries of a key in the order of appending. None if there are none."""
        project = await self._find(key.session_id) or key.project or NO_PROJECT
        found: Any = await self._call("load", _key(project, key))
        # A copy: the object may return its own entries.
        entries = cast("list[dict[str, object]]", deepcopy(list(found or ())))
        if entries:
            self._projects[key.session_id] = project
        known: set[str] = set()
        unique: list[dict[str, object]] = []
        for entry in entries:
            uuid = uuid_of(entry)
            if uuid is None or uuid not in known:
                unique.append(entry)
            if uuid is not None:
                known.add(uuid)
        return unique or None

    async def list(self, project: str | None = None) -> Sequence[StoredSession]:
        """Return the sessions that have a transcript, the last updated first.

        None as ``project`` selects the projects of the sessions that the adapter has stored.
        """
        if project is not None:
            sessions = await self._listed(project or NO_PROJECT)
        else:
            projects: dict[str, Sequence[StoredSession]] = {}
            left = dict(await self._list(INDEX))
            while left:  # the note of one session tells its project, whose list has the others
                one = await self._find(left.popitem()[0])
                if one is not None and one not in projects:
                    projects[one] = await self._listed(one)
                    for session in projects[one]:
                        left.pop(session.session_id, None)
            sessions = [*chain.from_iterable(projects.values())]
        return sorted(sessions, key=lambda session: session.updated_at, reverse=True)

    async def delete(self, key: SessionKey) -> None:
        """Delete one list. If the subkey is ``""``, delete all lists of the session."""
        project = await self._find(key.session_id) or key.project or NO_PROJECT
        await self._call("delete", _key(project, key))
        if not key.subkey:
            await self._call("delete", _key(INDEX, SessionKey(key.session_id)))
            self._projects.pop(key.session_id, None)
            self._indexed.discard(key.session_id)

    async def subkeys(self, session_id: str) -> Sequence[str]:
        """Return the subkeys that the session has entries for, sorted, without ``""``."""
        project = await self._find(session_id) or NO_PROJECT
        try:
            found: Any = await self._call("list_subkeys", _key(project, SessionKey(session_id)))
        except StoreError:
            return []
        return sorted(cast("Sequence[str]", found))

    async def aclose(self) -> None:
        """Do nothing: the object belongs to the program that created it."""

    async def _find(self, session_id: str) -> str | None:
        """Return the project key of a session: from the index, or as it was loaded."""
        if session_id not in self._projects:
            if len(self._projects) >= _MOST:
                self._projects.clear()
                self._indexed.clear()
            note = await self._call("load", _key(INDEX, SessionKey(session_id)))
            for entry in cast("Sequence[Mapping[str, object]]", note or ()):
                # The first one counts if two processes have stored the session at once.
                project = entry.get("project")
                if isinstance(project, str):
                    self._projects[session_id] = project
                    self._indexed.add(session_id)
                    break
        return self._projects.get(session_id)

    async def _note(self, session_id: str, project: str) -> str:
        """Note the project key of a session. Return the one that counts."""
        note = {"type": "bridle-project", "uuid": f"bridle-{session_id}", "project": project}
        await self._call("append", _key(INDEX, SessionKey(session_id)), [note])
        self._projects.pop(session_id, None)  # read the index again
        return await self._find(session_id) or project

    async def _listed(self, project: str) -> Sequence[StoredSession]:
        """Return the sessions of a project key."""
        name = "" if project == NO_PROJECT else project
        return [
            StoredSession(session_id, name, milliseconds / 1000)
            for session_id, milliseconds in await self._list(project)
        ]

    async def _list(self, project: str) -> Sequence[tuple[str, float]]:
        found: Any = await self._call("list_sessions", project)
        rows = cast("Sequence[Mapping[str, Any]]", found)
        return [(str(row["session_id"]), float(row["mtime"])) for row in rows]

    async def _call(self, method: str, *values: object) -> object:
        """Call a method of the object. Raises `StoreError` if it does not have the method."""
        function = cast(
            "Callable[..., Awaitable[object]] | None", getattr(self._store, method, None)
        )
        # A class that inherits from the official protocol has its defaults, which only raise.
        is_default = getattr(function, "__qualname__", "") == f"SessionStore.{method}"
        if function is not None and not is_default:
            return await function(*values)
        raise StoreError(
            self._name,
            method,
            "the object does not have this method",
            fix=f"Add `async def {method}`, or use one of Bridle's stores.",
        )


def _key(project: str, key: SessionKey) -> dict[str, str]:
    official = {"project_key": project, "session_id": key.session_id}
    return official | {"subpath": key.subkey} if key.subkey else official
