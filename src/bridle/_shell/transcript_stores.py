"""The sessions in a session store, with the methods of `TranscriptFiles` as coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Mapping, Sequence
from itertools import chain
from os import PathLike

from bridle._core.transcript_changes import Fork
from bridle._core.transcript_summaries import Ends, SessionInfo, summarize
from bridle._core.transcripts import (
    SUBAGENTS,
    Transcript,
    entries_of_objects,
    metadata_entry,
    project_name,
    subagent_name,
    subagent_of_objects,
)
from bridle._option_checks import is_uuid
from bridle._raw_line import JsonObject
from bridle._shell.spool import LeftSpool, damaged_name, left_behind, spool_name
from bridle._shell.transcript_files import iso_time
from bridle._store import JOURNAL, Entry, SessionKey, SessionStore, StoredSession
from bridle._stores.accept import subkeys_of
from bridle.errors import SessionNotFoundError

_AT_ONCE = 8
"""How many sessions are loaded at the same time."""


class StoredTranscripts:
    """The sessions in a store, of one project or of all."""

    def __init__(self, store: SessionStore, directory: str | PathLike[str] | None = None) -> None:
        self._store = store
        self._directory = directory

    async def _sessions(self) -> Sequence[StoredSession]:
        if self._directory is None:
            return await self._store.list(None)
        directory = os.fspath(self._directory)
        path = await asyncio.to_thread(lambda: os.path.realpath(directory))
        return await self._store.list(project_name(path))

    async def list(self, limit: int | None, offset: int) -> list[SessionInfo]:
        """Return the sessions, the last changed first. Loads only as many as it needs."""
        sessions = await self._sessions()
        stored = [one for one in sessions if is_uuid(one.session_id)]
        stored.sort(key=lambda one: one.updated_at, reverse=True)
        found: list[SessionInfo] = []
        wanted = None if limit is None else offset + limit
        while stored and (wanted is None or len(found) < wanted):
            count = _AT_ONCE if wanted is None else min(_AT_ONCE, wanted - len(found))
            batch, stored = stored[:count], stored[count:]
            infos = await asyncio.gather(*map(self._summary, batch))
            found += [info for info in infos if info is not None]
        return found[offset:wanted]

    async def info(self, session_id: str) -> SessionInfo:
        """Return one session."""
        listed = await self._listed(session_id)
        info = None if listed is None else await self._summary(listed)
        if info is None:
            raise self._missing(session_id)
        return info

    async def _listed(self, session_id: str) -> StoredSession | None:
        sessions = await self._sessions()
        return next((one for one in sessions if one.session_id == session_id), None)

    async def _summary(self, stored: StoredSession) -> SessionInfo | None:
        loaded = await self._store.load(_key(stored))
        return await asyncio.to_thread(_summary_of, stored, loaded or ())

    async def load(self, session_id: str) -> Transcript:
        """Return the whole transcript of a session, with its subagents."""
        # The project first: stores of the official SDK find a session only with it.
        listed = await self._listed(session_id)
        loaded = None if listed is None else await self._store.load(_key(listed))
        if listed is None or loaded is None:
            raise self._missing(session_id)
        keys = await subkeys_of(self._store, session_id)
        names = {key: name for key in keys if (name := subagent_name(key)) is not None}
        agents = await asyncio.gather(*(self._store.load(_key(listed, key)) for key in names))
        return await asyncio.to_thread(
            lambda: Transcript(
                session_id=session_id,
                project=listed.project,
                entries=entries_of_objects(loaded),
                subagents=tuple(
                    subagent_of_objects(name, entries or ())
                    for name, entries in zip(names.values(), agents, strict=True)
                ),
            )
        )

    async def append(self, session_id: str, entry: JsonObject) -> None:
        """Append an entry. It gets a uuid, which makes appending idempotent, and the time."""
        listed = await self._listed(session_id)
        if listed is None:
            raise self._missing(session_id)
        key = _key(listed)
        entry = {**entry, "uuid": str(uuid.uuid4()), "timestamp": iso_time()}
        await self._store.append(key, [entry])

    async def create(self, source: Transcript, session_id: str, fork: Fork) -> None:
        """Write a new session into the project of another one."""

        def entries_of(found: Sequence[JsonObject]) -> list[Mapping[str, object]]:
            return [{"uuid": str(uuid.uuid4()), **entry} for entry in found]

        key = SessionKey(session_id, project=source.project)
        try:
            for agent, entries in fork.subagents:
                subkey = SessionKey(session_id, f"{SUBAGENTS}/{agent.name}", source.project)
                await self._store.append(subkey, entries_of([metadata_entry(agent), *entries]))
            await self._store.append(key, entries_of(fork.entries))
        except BaseException:
            # Subagents without a transcript would not be listed.
            with contextlib.suppress(Exception):
                await self._store.delete(key)
            raise

    async def delete(self, session_id: str) -> None:
        """Delete a session with its subagents, its journal and its spool files.

        It may have only some of them. Keeps spool files that a running session uses.
        """
        listed = await self._listed(session_id)
        # A store tells the project only of sessions that it lists.
        if listed is None and self._directory is not None:
            raise self._missing(session_id)
        is_stored = listed is not None or await self._has_rest(session_id)
        if is_stored:
            await self._store.delete(SessionKey(session_id) if listed is None else _key(listed))
        # Otherwise the next session with this id would send their entries to the store.
        is_spooled = await asyncio.to_thread(_delete_spools, spool_name(self._store, session_id))
        if not is_stored and not is_spooled:
            raise self._missing(session_id)

    async def _has_rest(self, session_id: str) -> bool:
        """Return whether the store has a journal or subagents of a session without a transcript."""
        if await self._store.load(SessionKey(session_id, JOURNAL)):
            return True
        return bool(await subkeys_of(self._store, session_id))

    def _missing(self, session_id: str) -> SessionNotFoundError:
        place = "the store"
        if self._directory is not None:
            place = f"{place} for the directory {os.fspath(self._directory)}"
        return SessionNotFoundError(session_id, place)


def _key(stored: StoredSession, subkey: str = "") -> SessionKey:
    return SessionKey(stored.session_id, subkey, stored.project)


# These block, or parse long transcripts, so they run in threads.


def _delete_spools(name: str) -> bool:
    """Delete the spool files that no process uses. Return whether there were any."""
    found = False
    for spool in chain(left_behind(name), left_behind(damaged_name(name))):
        if isinstance(spool, LeftSpool):
            spool.remove()
            found = True
    return found


def _summary_of(stored: StoredSession, loaded: Sequence[Entry]) -> SessionInfo | None:
    lines = [entry.raw_line for entry in entries_of_objects(loaded)]
    return summarize(
        Ends(b"\n".join(lines)), stored.session_id, stored.project, updated_at=stored.updated_at
    )
