"""The sessions in a session store, with the methods of `TranscriptFiles` as coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from itertools import chain
from os import PathLike
from typing import overload

from bridle._records.raw_line import JsonObject
from bridle._records.session_store import (
    JOURNAL,
    Entry,
    RangeStore,
    SessionKey,
    SessionStore,
    StoredSession,
)
from bridle.errors import SessionNotFoundError
from bridle.messages._message import Message
from bridle.options._checks import is_uuid
from bridle.sessions._outbox.spool import LeftSpool, damaged_name, left_behind, spool_name
from bridle.sessions._stores.accept import ranges_of, subkeys_of
from bridle.sessions._stores.database import DatabaseStore
from bridle.sessions._transcripts.changes import ForkPlan
from bridle.sessions._transcripts.empty_sessions import EmptySessions
from bridle.sessions._transcripts.files import END, iso_time, log_damaged, new_uuids
from bridle.sessions._transcripts.new_messages import NewMessages
from bridle.sessions._transcripts.summaries import Ends, SessionInfo, fork_title, summarize
from bridle.sessions._transcripts.transcript import (
    SUBAGENTS,
    SubagentTranscript,
    Transcript,
    TranscriptEntry,
    entries_of_objects,
    metadata_entry,
    project_name,
    split_metadata,
    subagent_name,
    subagent_transcript,
)

_AT_ONCE = 8
"""How many sessions are loaded at the same time."""

_PART = 4 << 20
"""How many bytes of a list are loaded at a time."""


class StoredTranscripts:
    """The sessions in a store, of one project or of all."""

    def __init__(
        self,
        store: SessionStore,
        directory: str | PathLike[str] | None = None,
        empty: EmptySessions | None = None,
    ) -> None:
        self._store = store
        self._directory = directory
        self._empty = EmptySessions() if empty is None else empty

    async def _sessions(self) -> Sequence[StoredSession]:
        if self._directory is None:
            return await self._store.list(None)
        directory = os.fspath(self._directory)
        path = await asyncio.to_thread(lambda: os.path.realpath(directory))
        return await self._store.list(project_name(path))

    async def list(self, limit: int | None, offset: int) -> list[SessionInfo]:
        """Return the sessions, the last changed first. Loads only those that it returns."""
        sessions = await self._sessions()
        stored = [one for one in sessions if is_uuid(one.session_id)]
        stored.sort(key=lambda one: one.updated_at, reverse=True)
        left = self._empty.after(stored, offset)
        found: list[SessionInfo] = []
        at = 0
        while at < len(left) and (limit is None or len(found) < limit):
            count = _AT_ONCE if limit is None else min(_AT_ONCE, limit - len(found))
            batch = left[at : at + count]
            at += count
            infos = await asyncio.gather(*map(self._summary, batch))
            for one, info in zip(batch, infos, strict=True):
                self._empty.note(one, is_empty=info is None)
                found += [info] if info else []
        return found

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
        ranges = ranges_of(self._store)
        if ranges is not None:
            ends = Ends(*await ranges.load_ends(_key(stored), END))
            return await asyncio.to_thread(_summary_of_ends, stored, ends)
        loaded = await self._store.load(_key(stored))
        return await asyncio.to_thread(_summary_of, stored, loaded or ())

    async def load(self, session_id: str) -> Transcript:
        """Return the whole transcript of a session, with its subagents."""
        # The project first: stores of the official SDK find a session only with it.
        listed = await self._listed(session_id)
        entries, _ = ((), {}) if listed is None else await self._read(_key(listed))
        if listed is None or not entries:
            raise self._missing(session_id)
        keys = await subkeys_of(self._store, session_id)
        names = [name for key in keys if (name := subagent_name(key)) is not None]
        agents: list[SubagentTranscript] = []
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            read = (self._read(_key(listed, f"{SUBAGENTS}/{name}")) for name in some)
            found = zip(some, await asyncio.gather(*read), strict=True)
            agents += [subagent_transcript(name, *one) for name, one in found]
        return Transcript(
            session_id=session_id,
            project=listed.project,
            entries=entries,
            subagents=tuple(agents),
        )

    async def _read(self, key: SessionKey) -> tuple[tuple[TranscriptEntry, ...], JsonObject]:
        """Return the entries of a list, and the description of a subagent in it.

        Few of the store's own objects are in memory at a time, if it can load parts of a list.
        """
        ranges = ranges_of(self._store)
        if ranges is None:
            return await asyncio.to_thread(_read_part, key, await self._store.load(key) or ())
        found: list[TranscriptEntry] = []
        metadata: JsonObject = {}
        position = 0
        while True:
            part, position = await ranges.load_after(key, position, _PART)
            if not part:
                return tuple(found), metadata
            entries, latest = await asyncio.to_thread(_read_part, key, part)
            found += entries
            metadata = latest or metadata

    async def append(self, session_id: str, entry: JsonObject) -> None:
        """Append an entry. It gets a uuid, which makes appending idempotent, and the time."""
        listed = await self._listed(session_id)
        if listed is None:
            raise self._missing(session_id)
        key = _key(listed)
        entry = {**entry, "uuid": str(uuid.uuid4()), "timestamp": iso_time()}
        await self._store.append(key, [entry])

    async def fork(
        self, session_id: str, new_id: str, up_to: str | None, title: str | None
    ) -> None:
        """Write a copy of a session into its project. See `ForkPlan`."""
        source = await self.load(session_id)
        if title is None:
            with contextlib.suppress(SessionNotFoundError):  # it has no message
                title = fork_title(await self.info(session_id))
        plan = await asyncio.to_thread(
            ForkPlan,
            source,
            new_id,
            up_to=up_to,
            title=title or fork_title(None),
            now=iso_time(),
            uuids=new_uuids(),
        )
        key = SessionKey(new_id, project=source.project)
        try:
            for agent, entries in await asyncio.to_thread(lambda: [*plan.subagents()]):
                copies: list[JsonObject] = await asyncio.to_thread(list, entries)
                subkey = SessionKey(new_id, f"{SUBAGENTS}/{agent.name}", source.project)
                own = [metadata_entry(agent), *copies]
                await self._store.append(subkey, [*map(_with_uuid, own)])
            await self._store.append(key, await self._copies(plan))
        except BaseException:
            # Subagents without a transcript would not be listed.
            with contextlib.suppress(Exception):
                await self._store.delete(key)
            raise

    async def _copies(self, plan: ForkPlan) -> Sequence[Entry]:
        """Return the entries of a copy. They are appended at once, so that all or none are there.

        Bridle's databases take them one by one, in their own thread.
        """
        if isinstance(self._store, DatabaseStore):
            return _Copies(plan)
        return await asyncio.to_thread(lambda: [*_Copies(plan)])

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


class _Copies(Sequence[Entry]):
    """The entries of a copy, made when they are read."""

    def __init__(self, plan: ForkPlan) -> None:
        self._plan = plan

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[Entry]:
        return map(_with_uuid, self._plan.entries())

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        return [*self][index]


def _with_uuid(entry: JsonObject) -> Entry:
    """Return an entry with a uuid, which makes appending idempotent."""
    return {"uuid": str(uuid.uuid4()), **entry}


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


def _read_part(
    key: SessionKey, loaded: Sequence[Entry]
) -> tuple[tuple[TranscriptEntry, ...], JsonObject]:
    entries, metadata = split_metadata(loaded) if key.subkey else (loaded, {})
    return entries_of_objects(entries), metadata


def _summary_of(stored: StoredSession, loaded: Sequence[Entry]) -> SessionInfo | None:
    lines = [entry.raw_line for entry in entries_of_objects(loaded)]
    return _summary_of_ends(stored, Ends(b"\n".join(lines)))


def _summary_of_ends(stored: StoredSession, ends: Ends) -> SessionInfo | None:
    return summarize(ends, stored.session_id, stored.project, updated_at=stored.updated_at)


class StoredMessages:
    """The messages of a conversation in a store that other programs continue, each once."""

    def __init__(self, store: RangeStore) -> None:
        self._store = store
        self._position = 0
        self._new = NewMessages()
        self._damaged = 0

    async def read(self, session_id: str) -> list[Message]:
        """Return the messages that were added since the last call."""
        while True:
            key = SessionKey(session_id)
            part, position = await self._store.load_after(key, self._position, _PART)
            if not part:
                break
            await asyncio.to_thread(self._new.add, part)
            self._position = position
        damaged, self._damaged = self._new.damaged - self._damaged, self._new.damaged
        if damaged:
            log_damaged(session_id, damaged)
        return await asyncio.to_thread(self._new.take)
