"""The functions for stored sessions, on session stores. They are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast
from uuid import uuid4

import bridle.sync
from bridle._spi import is_uuid
from bridle.compat.claude_agent_sdk._loops.bridge import AsyncioBridge, current_bridge
from bridle.compat.claude_agent_sdk._stored.official_stores import has_method
from bridle.compat.claude_agent_sdk._stored.session_checks import (
    checked,
    made,
    message_not_found,
    of_session,
    page,
    project_key_for_directory,
    session_not_found,
    spoken,
)
from bridle.compat.claude_agent_sdk._stored.session_summaries import (
    fold_session_summary,
    info_of,
    milliseconds_of,
)
from bridle.compat.claude_agent_sdk._types.session_types import (
    ForkSessionResult,
    SDKSessionInfo,
    SessionKey,
    SessionListSubkeysKey,
    SessionMessage,
    SessionStore,
    SessionStoreEntry,
    SessionSummaryEntry,
)
from bridle.errors import OptionsError
from bridle.sessions import Entry, SubagentTranscript, Transcript, TranscriptEntry
from bridle.sessions._transcripts.changes import fork_of, tag_entry, title_entry
from bridle.sessions._transcripts.transcript import (
    SUBAGENTS,
    conversation,
    entries_of_objects,
    metadata_entry,
    subagent_of_objects,
)

_T = TypeVar("_T")
_AT_ONCE = 16
"""How many sessions are loaded from a store at the same time."""

_AGENT = "agent-"
_BATCH = 500
_BATCH_BYTES = 1 << 20


def _key(session_id: str, directory: str | None, subpath: str = "") -> SessionKey:
    key = SessionKey(project_key=project_key_for_directory(directory), session_id=session_id)
    return {**key, "subpath": subpath} if subpath else key


async def _load(store: SessionStore, key: SessionKey) -> tuple[TranscriptEntry, ...]:
    return entries_of_objects(cast("Iterable[Entry]", await store.load(key) or ()))


async def _load_agent(store: SessionStore, name: str, key: SessionKey) -> SubagentTranscript:
    return subagent_of_objects(name, cast("Iterable[Entry]", await store.load(key) or ()))


async def list_sessions_from_store(
    session_store: SessionStore,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SDKSessionInfo]:
    """Return the sessions of a directory in a store, the last changed first.

    Raises:
        ValueError: the store has neither ``list_sessions`` nor ``list_session_summaries``.
    """
    project = project_key_for_directory(directory)
    can_list = has_method(session_store, "list_sessions")
    summaries = await _summaries(session_store, project)
    if not can_list and summaries is None:
        raise ValueError(
            "session_store implements neither list_session_summaries() nor list_sessions(). Add "
            "one of them to list its sessions."
        )
    known = {one["session_id"]: one for one in summaries or ()}
    mtimes = {name: one["mtime"] for name, one in known.items()}
    if can_list:
        mtimes = {
            one["session_id"]: one["mtime"] for one in await session_store.list_sessions(project)
        }
    known = {
        name: one for name, one in known.items() if name in mtimes and one["mtime"] >= mtimes[name]
    }

    async def summary(session_id: str) -> SDKSessionInfo | None:
        one = known.get(session_id)
        if one is None:
            key = SessionKey(project_key=project, session_id=session_id)
            try:
                entries = await session_store.load(key)
            except Exception:  # one broken session does not hide the others
                return SDKSessionInfo(session_id, "", mtimes[session_id])
            one = fold_session_summary(None, key, entries or [])
        return info_of({**one, "mtime": mtimes[session_id]}, directory)

    ordered = sorted(mtimes, key=lambda name: mtimes[name], reverse=True)
    ordered = [name for name in ordered if name not in known or info_of(known[name]) is not None]
    if summaries is not None:
        # Load no more sessions than the page has. Some of them may turn out to be empty.
        ordered, limit, offset = page(ordered, limit, offset), None, 0
    infos = await _together([partial(summary, name) for name in ordered])
    return page([info for info in infos if info is not None], limit, offset)


async def _summaries(store: SessionStore, project: str) -> list[SessionSummaryEntry] | None:
    """Return the summaries that a store keeps. None if it keeps none."""
    if not has_method(store, "list_session_summaries"):
        return None
    try:
        return await store.list_session_summaries(project)
    except NotImplementedError:
        return None


async def _together(works: Sequence[Callable[[], Awaitable[_T]]]) -> list[_T]:
    """Return the results in order. Under asyncio, several works run at the same time."""
    if not isinstance(current_bridge(), AsyncioBridge):
        return [await work() for work in works]
    results: list[_T] = []
    for start in range(0, len(works), _AT_ONCE):
        results += await asyncio.gather(*(work() for work in works[start : start + _AT_ONCE]))
    return results


async def get_session_info_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> SDKSessionInfo | None:
    """Return what is known about a session. None if there is no such session."""
    if not is_uuid(session_id):
        return None
    key = _key(session_id, directory)
    entries = await session_store.load(key)
    if not entries:
        return None
    info = info_of(fold_session_summary(None, key, entries), directory)
    if info is not None:
        times = [milliseconds_of(entry.get("timestamp")) for entry in entries]
        info.last_modified = next((time for time in reversed(times) if time is not None), 0)
        lines = entries_of_objects(cast("Iterable[Entry]", entries))
        info.file_size = sum(len(line.raw_line) + 1 for line in lines)
    return info


async def get_session_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """Return the messages of a session. The list is empty if there is no such session."""
    if not is_uuid(session_id):
        return []
    return page(spoken(await _load(session_store, _key(session_id, directory))), limit, offset)


async def list_subagents_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> list[str]:
    """Return the ids of the subagents of a session.

    Raises:
        ValueError: the store has no ``list_subkeys``.
    """
    if not is_uuid(session_id):
        return []
    if not has_method(session_store, "list_subkeys"):
        raise ValueError(
            "session_store does not implement list_subkeys(). Add it to list subagents."
        )
    return [
        name.removeprefix(_AGENT) for name in await _agents(session_store, session_id, directory)
    ]


async def _agents(store: SessionStore, session_id: str, directory: str | None) -> dict[str, str]:
    """Return the subkeys of the subagents, by the last part of their names."""
    key = SessionListSubkeysKey(
        project_key=project_key_for_directory(directory), session_id=session_id
    )
    found = await store.list_subkeys(key) if has_method(store, "list_subkeys") else []
    names = (one for one in found if one.startswith(f"{SUBAGENTS}/"))
    return {last: name for name in names if (last := name.rpartition("/")[2]).startswith(_AGENT)}


async def get_subagent_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """Return the messages of a subagent."""
    if not is_uuid(session_id) or not agent_id:
        return []
    name = f"{_AGENT}{agent_id}"
    known = await _agents(session_store, session_id, directory)
    subpath = known.get(name, f"{SUBAGENTS}/{name}")
    agent = await _load_agent(session_store, name, _key(session_id, directory, subpath))
    return page(spoken(agent.entries, agent), limit, offset)


async def rename_session_via_store(
    session_store: SessionStore, session_id: str, title: str, directory: str | None = None
) -> None:
    """Set the title of a session.

    Raises:
        ValueError: the id is not a UUID, or the title is blank.
    """
    entry = made(title_entry, checked(session_id), title)
    await session_store.append(_key(session_id, directory), [_stamped(entry)])


async def tag_session_via_store(
    session_store: SessionStore, session_id: str, tag: str | None, directory: str | None = None
) -> None:
    """Set the tag of a session. None removes it.

    Raises:
        ValueError: the id is not a UUID, or the tag is blank.
    """
    entry = made(tag_entry, checked(session_id), tag)
    await session_store.append(_key(session_id, directory), [_stamped(entry)])


async def delete_session_via_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> None:
    """Delete a session. Does nothing if the store cannot delete.

    Raises:
        ValueError: the id is not a UUID.
    """
    checked(session_id)
    if has_method(session_store, "delete"):
        await session_store.delete(_key(session_id, directory))


async def fork_session_via_store(
    session_store: SessionStore,
    session_id: str,
    directory: str | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """Copy a session, up to a message or all of it, and return the id of the copy.

    Raises:
        ValueError: an argument is invalid.
        FileNotFoundError: there is no such session.
    """
    checked(session_id)
    if up_to_message_id:
        checked(up_to_message_id, "up_to_message_id")
    entries = await _load(session_store, _key(session_id, directory))
    if not entries:
        raise session_not_found(session_id)
    if not conversation(entries, compacted=True):
        raise ValueError(f"Session {session_id} has no messages to fork")
    agents = [
        await _load_agent(session_store, name, _key(session_id, directory, key))
        for name, key in (await _agents(session_store, session_id, directory)).items()
    ]
    if title is None or not title.strip():
        info = await get_session_info_from_store(session_store, session_id, directory)
        title = f"{info.summary if info is not None else 'Session'} (fork)"
    new_id = str(uuid4())
    source = Transcript(
        session_id=session_id,
        project=project_key_for_directory(directory),
        entries=entries,
        subagents=tuple(agents),
    )
    try:
        fork = fork_of(
            source,
            new_id,
            up_to=up_to_message_id or None,
            title=title,
            now=_now(),
            uuids=_uuids(),
        )
    except OptionsError as error:
        raise message_not_found(up_to_message_id, session_id) from error
    for agent, copied in fork.subagents:
        key = _key(new_id, directory, f"{SUBAGENTS}/{agent.name}")
        await session_store.append(key, [_stamped(one) for one in (metadata_entry(agent), *copied)])
    # The official SDK does not name the last message. CLI 2.1.197 needs it after a compaction.
    is_compacted = any(one.get("subtype") == "compact_boundary" for one in fork.entries)
    kept = [one for one in fork.entries if is_compacted or one["type"] != "last-prompt"]
    await session_store.append(_key(new_id, directory), [_stamped(one) for one in kept])
    return ForkSessionResult(new_id)


async def import_session_to_store(
    session_id: str,
    store: SessionStore,
    *,
    directory: str | None = None,
    include_subagents: bool = True,
    batch_size: int = _BATCH,
) -> None:
    """Copy a session from the files of the CLI to a store. Lines that are not JSON are left out.

    Raises:
        ValueError: the id is not a UUID.
        FileNotFoundError: there is no such session.
    """
    read = bridle.sync.sessions.read_transcript
    transcript = of_session(read, session_id, directory)
    key = SessionKey(project_key=transcript.project, session_id=session_id)
    batch_size = batch_size if batch_size > 0 else _BATCH
    for batch in _batches(transcript.entries, batch_size):
        await store.append(key, batch)
    for agent in transcript.subagents if include_subagents else ():
        place: SessionKey = {**key, "subpath": f"{SUBAGENTS}/{agent.name}"}
        for batch in _batches(agent.entries, batch_size):
            await store.append(place, batch)
        if agent.metadata:
            await store.append(place, [cast("SessionStoreEntry", metadata_entry(agent))])


def _batches(entries: Iterable[TranscriptEntry], most: int) -> Iterator[list[SessionStoreEntry]]:
    batch: list[SessionStoreEntry] = []
    size = 0
    for entry in entries:
        if entry.damage:
            continue
        if batch and (len(batch) >= most or size + len(entry.raw_line) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(cast("SessionStoreEntry", entry.raw))
        size += len(entry.raw_line)
    if batch:
        yield batch


def _stamped(entry: dict[str, Any]) -> SessionStoreEntry:
    return cast("SessionStoreEntry", {"uuid": str(uuid4()), "timestamp": _now(), **entry})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _uuids() -> Iterator[str]:
    while True:
        yield str(uuid4())
