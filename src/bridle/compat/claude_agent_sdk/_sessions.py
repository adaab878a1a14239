"""The functions for stored sessions, on the files of the CLI and on session stores.

Functions for files block, those for stores are coroutines. Both read and change sessions with the
functions of Bridle.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import uuid4

import bridle.sync
from bridle._core.transcript_changes import fork_of, tag_entry, title_entry
from bridle._core.transcripts import (
    SUBAGENTS,
    SubagentTranscript,
    Transcript,
    TranscriptEntry,
    conversation,
    entries_of_objects,
    metadata_entry,
    project_name,
    subagent_of_objects,
    text_of,
)
from bridle._option_checks import is_uuid
from bridle._store import Entry
from bridle.compat.claude_agent_sdk._bridge import AsyncioBridge, current_bridge
from bridle.compat.claude_agent_sdk._session_types import (
    ForkSessionResult,
    SDKSessionInfo,
    SessionKey,
    SessionListSubkeysKey,
    SessionMessage,
    SessionStore,
    SessionStoreEntry,
    SessionSummaryEntry,
)
from bridle.compat.claude_agent_sdk._stores import has_method
from bridle.compat.claude_agent_sdk._summaries import (
    fold_session_summary,
    info_of,
    milliseconds_of,
)
from bridle.errors import OptionsError, SessionNotFoundError
from bridle.sessions import SessionInfo

__all__ = [
    "delete_session",
    "delete_session_via_store",
    "fork_session",
    "fork_session_via_store",
    "get_session_info",
    "get_session_info_from_store",
    "get_session_messages",
    "get_session_messages_from_store",
    "get_subagent_messages",
    "get_subagent_messages_from_store",
    "import_session_to_store",
    "list_sessions",
    "list_sessions_from_store",
    "list_subagents",
    "list_subagents_from_store",
    "project_key_for_directory",
    "rename_session",
    "rename_session_via_store",
    "tag_session",
    "tag_session_via_store",
]

_T = TypeVar("_T")
_AT_ONCE = 16
"""How many sessions are loaded from a store at the same time."""

_GIT_TIMEOUT = 5.0
_AGENT = "agent-"
_BATCH = 500
_BATCH_BYTES = 1 << 20


# ---------------------------------------------------------------- common


def project_key_for_directory(directory: str | Path | None = None) -> str:
    """Return the name that the CLI gives to a working directory. None is that of this process."""
    return project_name(os.path.realpath("." if directory is None else directory))


def _checked(value: str, name: str = "session_id") -> str:
    if not is_uuid(value):
        raise ValueError(f"Invalid {name}: {value}")
    return value


def _not_found(session_id: str, where: str = "") -> FileNotFoundError:
    return FileNotFoundError(f"Session {session_id} not found{where}")


def _in(directory: str | None) -> str:
    return f" in project directory for {directory}" if directory else ""


_BLANK = {
    "title": "title must be non-empty",
    "tag": "tag must be non-empty (use None to clear)",
}
"""The texts of errors for arguments without a visible character."""


def _made(make: Callable[..., _T], *values: object, **named: object) -> _T:
    """Call a function of Bridle that checks its arguments."""
    try:
        return make(*values, **named)
    except OptionsError as error:
        is_blank = error.field in _BLANK and isinstance(values[-1], str)
        raise ValueError(_BLANK[error.field] if is_blank else str(error)) from error


def _page(items: Sequence[_T], limit: int | None, offset: int) -> list[_T]:
    rest = items[offset:] if offset > 0 else items
    return list(rest[:limit] if limit is not None and limit > 0 else rest)


def _spoken(
    entries: Sequence[TranscriptEntry], agent: SubagentTranscript | None = None
) -> list[SessionMessage]:
    """Return the messages of a conversation that users see."""
    facts = {} if agent is None else agent.metadata
    messages: list[SessionMessage] = []
    for entry in conversation(entries, subagent=agent is not None):
        if entry.type in ("user", "assistant") and not entry.is_meta:
            raw = entry.raw
            messages.append(
                SessionMessage(
                    type=cast("Any", entry.type),
                    uuid=entry.uuid or "",
                    session_id=raw.get("sessionId", ""),
                    message=raw.get("message"),
                    parent_tool_use_id=text_of(facts, "toolUseId"),
                    parent_agent_id=text_of(facts, "parentAgentId"),
                )
            )
    return messages


def _agent_of(transcript: Transcript, agent_id: str) -> SubagentTranscript | None:
    found = (one for one in transcript.subagents if one.agent_id == agent_id)
    return next(found, None)


# ---------------------------------------------------------------- files


def list_sessions(
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,  # noqa: FBT001, FBT002  # the signature of the official SDK
) -> list[SDKSessionInfo]:
    """Return the sessions of a directory and its git worktrees, or of all directories.

    The last changed session is the first.
    """
    places: list[str | None] = [directory]
    if directory is not None and include_worktrees:
        places += [one for one in _worktrees(directory) if one != os.path.realpath(directory)]
    found: dict[str, SDKSessionInfo] = {}
    for place in places:
        for info in map(_info, bridle.sync.sessions.list_sessions(place)):
            known = found.get(info.session_id)
            if known is None or known.last_modified < info.last_modified:
                found[info.session_id] = info
    ordered = sorted(found.values(), key=lambda info: info.last_modified, reverse=True)
    return _page(ordered, limit, offset)


def get_session_info(session_id: str, directory: str | None = None) -> SDKSessionInfo | None:
    """Return what is known about a session. None if there is no such session."""
    found = _anywhere(bridle.sync.sessions.get_session, session_id, directory)
    return None if found is None else _info(found)


def get_session_messages(
    session_id: str, directory: str | None = None, limit: int | None = None, offset: int = 0
) -> list[SessionMessage]:
    """Return the messages of a session. The list is empty if there is no such session."""
    found = _anywhere(bridle.sync.sessions.read_transcript, session_id, directory)
    return [] if found is None else _page(_spoken(found.entries), limit, offset)


def list_subagents(session_id: str, directory: str | None = None) -> list[str]:
    """Return the ids of the subagents of a session."""
    found = _anywhere(bridle.sync.sessions.read_transcript, session_id, directory)
    return [] if found is None else [agent.agent_id for agent in found.subagents]


def get_subagent_messages(
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """Return the messages of a subagent."""
    found = _anywhere(bridle.sync.sessions.read_transcript, session_id, directory)
    agent = None if found is None else _agent_of(found, agent_id)
    return [] if agent is None else _page(_spoken(agent.entries, agent), limit, offset)


def rename_session(session_id: str, title: str, directory: str | None = None) -> None:
    """Set the title of a session.

    Raises:
        ValueError: the id is not a UUID, or the title is blank.
        FileNotFoundError: there is no such session.
    """
    _append(bridle.sync.sessions.rename, session_id, title, directory)


def tag_session(session_id: str, tag: str | None, directory: str | None = None) -> None:
    """Set the tag of a session. None removes it.

    Raises:
        ValueError: the id is not a UUID, or the tag is blank.
        FileNotFoundError: there is no such session.
    """
    _append(bridle.sync.sessions.tag, session_id, tag, directory)


def delete_session(session_id: str, directory: str | None = None) -> None:
    """Delete a session and its subagents.

    Raises:
        ValueError: the id is not a UUID.
        FileNotFoundError: there is no such session.
    """
    _of_session(bridle.sync.sessions.delete, session_id, directory)


def fork_session(
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
    _checked(session_id)
    fork = partial(
        bridle.sync.sessions.fork,
        up_to=_checked(up_to_message_id, "up_to_message_id") if up_to_message_id else None,
        title=(title or "").strip() or None,
    )
    try:
        return ForkSessionResult(_of_session(fork, session_id, directory))
    except OptionsError as error:
        raise _message_not_found(up_to_message_id, session_id) from error


def _message_not_found(uuid: str | None, session_id: str) -> ValueError:
    return ValueError(f"Message {uuid} not found in session {session_id}")


def _anywhere(read: Callable[..., _T], session_id: str, directory: str | None) -> _T | None:
    """Read a session of a directory or of one of its worktrees. None if there is none."""
    if not is_uuid(session_id):
        return None
    for place in [directory, *(_worktrees(directory) if directory is not None else ())]:
        try:
            return read(session_id, directory=place)
        except SessionNotFoundError:
            continue
    return None


def _append(
    append: Callable[..., None], session_id: str, text: str | None, directory: str | None
) -> None:
    """Rename or tag a session."""
    try:
        _made(append, _checked(session_id), text, directory=directory)
    except SessionNotFoundError as error:
        has_any = os.path.isdir(error.place)
        anywhere = " in any project directory" if has_any else " (no projects directory)"
        raise _not_found(session_id, _in(directory) or anywhere) from error


def _of_session(work: Callable[..., _T], session_id: str, directory: str | None) -> _T:
    """Call a function of Bridle with a session that must exist."""
    try:
        return work(_checked(session_id), directory=directory)
    except SessionNotFoundError as error:
        raise _not_found(session_id, _in(directory)) from error


def _info(info: SessionInfo) -> SDKSessionInfo:
    return SDKSessionInfo(
        session_id=info.session_id,
        summary=info.summary,
        last_modified=int(info.updated_at * 1000),
        file_size=info.size,
        custom_title=info.custom_title,
        first_prompt=info.first_prompt,
        git_branch=info.git_branch,
        cwd=info.cwd,
        tag=info.tag,
        created_at=None if info.created_at is None else round(info.created_at * 1000),
    )


def _worktrees(directory: str) -> list[str]:
    """Return the worktrees of the git repository that a directory is in."""
    command = ["git", "worktree", "list", "--porcelain"]
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_GIT_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    mark = "worktree "
    return [line[len(mark) :] for line in done.stdout.splitlines() if line.startswith(mark)]


# ---------------------------------------------------------------- stores


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
        ordered, limit, offset = _page(ordered, limit, offset), None, 0
    infos = await _together([partial(summary, name) for name in ordered])
    return _page([info for info in infos if info is not None], limit, offset)


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
    return _page(_spoken(await _load(session_store, _key(session_id, directory))), limit, offset)


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
    return _page(_spoken(agent.entries, agent), limit, offset)


async def rename_session_via_store(
    session_store: SessionStore, session_id: str, title: str, directory: str | None = None
) -> None:
    """Set the title of a session.

    Raises:
        ValueError: the id is not a UUID, or the title is blank.
    """
    entry = _made(title_entry, _checked(session_id), title)
    await session_store.append(_key(session_id, directory), [_stamped(entry)])


async def tag_session_via_store(
    session_store: SessionStore, session_id: str, tag: str | None, directory: str | None = None
) -> None:
    """Set the tag of a session. None removes it.

    Raises:
        ValueError: the id is not a UUID, or the tag is blank.
    """
    entry = _made(tag_entry, _checked(session_id), tag)
    await session_store.append(_key(session_id, directory), [_stamped(entry)])


async def delete_session_via_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> None:
    """Delete a session. Does nothing if the store cannot delete.

    Raises:
        ValueError: the id is not a UUID.
    """
    _checked(session_id)
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
    _checked(session_id)
    if up_to_message_id:
        _checked(up_to_message_id, "up_to_message_id")
    entries = await _load(session_store, _key(session_id, directory))
    if not entries:
        raise _not_found(session_id)
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
        raise _message_not_found(up_to_message_id, session_id) from error
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
    transcript = _of_session(read, session_id, directory)
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
