"""Stored sessions: list, read, rename, tag, delete, fork and export them.

The functions work on the transcript files of the CLI, also on those that the CLI itself or another
SDK wrote, or on a session store (``store=``). ``bridle.sync.sessions`` has the same functions for
code without ``async``.

Arguments of all functions:

``directory``
    The working directory of the session. None searches the sessions of all directories.
``config_dir``
    The configuration directory of the CLI. None means ``CLAUDE_CONFIG_DIR``, or ``~/.claude``.
``store``
    A `SessionStore` to use in place of the CLI's files.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from bridle._core.transcript_changes import Fork, fork_of, tag_entry, title_entry
from bridle._core.transcript_export import FORMATS, ExportFormat, exported
from bridle._core.transcript_summaries import SessionInfo
from bridle._core.transcripts import (
    SubagentTranscript,
    Transcript,
    TranscriptEntry,
    is_session_id,
)
from bridle._message import Message
from bridle._raw_line import JsonObject
from bridle._shell.transcript_files import TranscriptFiles, write_private, write_subagent
from bridle._shell.transcript_stores import StoredTranscripts
from bridle._store import Entry, LeasingStore, SessionKey, SessionStore, StoredSession
from bridle._stores import (
    MemoryStore,
    OfficialStore,
    PostgresStore,
    Redact,
    RedisStore,
    SqliteStore,
    as_store,
)
from bridle.errors import OptionsError

__all__ = [
    "Entry",
    "ExportFormat",
    "LeasingStore",
    "MemoryStore",
    "OfficialStore",
    "PostgresStore",
    "Redact",
    "RedisStore",
    "SessionInfo",
    "SessionKey",
    "SessionStore",
    "SqliteStore",
    "StoredSession",
    "SubagentTranscript",
    "Transcript",
    "TranscriptEntry",
    "as_store",
    "delete",
    "export",
    "fork",
    "get_session",
    "list_sessions",
    "read_messages",
    "read_transcript",
    "rename",
    "tag",
]

_Path: TypeAlias = str | PathLike[str]

log = logging.getLogger("bridle.sessions")


# ---------------------------------------------------------------- reading


async def list_sessions(
    directory: str | PathLike[str] | None = None,
    *,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionInfo]:
    """Return the stored sessions, the last changed first.

    Reads only the first and the last 64 KiB of each file. Sessions without a conversation are left
    out.

    Args:
        directory: list only the sessions of this working directory.
        limit: how many sessions to return. None returns all.
        offset: how many sessions to skip first.

    Raises:
        OptionsError: an argument is invalid.
    """
    _check_count("limit", limit, least=1)
    _check_count("offset", offset, least=0)
    return await _place(directory, config_dir, store).list(limit, offset)


async def get_session(
    session_id: str,
    *,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> SessionInfo:
    """Return what is known about one session.

    Raises:
        OptionsError: the id is not a UUID, or another argument is invalid.
        SessionNotFoundError: there is no such session.
    """
    _check_id(session_id)
    return await _place(directory, config_dir, store).info(session_id)


async def read_messages(
    session_id: str,
    *,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
    subagents: bool = False,
    compacted: bool = False,
    system: bool = False,
) -> list[Message]:
    """Return the messages of a session: those that the CLI has when it resumes the session.

    Lines that cannot be read are left out, with a warning in the log ``bridle.sessions``.
    `read_transcript` returns them too.

    Args:
        subagents: add the messages of subagents, each after the tool call that started it.
            ``message.agent_path`` tells which subagent a message comes from.
        compacted: add the messages before a compaction, which the model no longer sees.
        system: add messages of the CLI, such as `CompactBoundaryMessage`.

    Raises:
        OptionsError: the id is not a UUID, or another argument is invalid.
        SessionNotFoundError: there is no such session.
    """
    transcript = await read_transcript(
        session_id, directory=directory, config_dir=config_dir, store=store
    )
    if transcript.damaged:
        log.warning(
            "session %s: lines of the transcript that could not be read: %d",
            session_id,
            len(transcript.damaged),
            extra={"bridle_event": "damaged_transcript", "session_id": session_id},
        )
    return await asyncio.to_thread(
        transcript.messages, subagents=subagents, compacted=compacted, system=system
    )


async def read_transcript(
    session_id: str,
    *,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> Transcript:
    """Return every entry of a session and of its subagents, also unknown and damaged ones.

    Raises:
        OptionsError: the id is not a UUID, or another argument is invalid.
        SessionNotFoundError: there is no such session.
    """
    _check_id(session_id)
    return await _place(directory, config_dir, store).load(session_id)


# ---------------------------------------------------------------- changing


async def rename(
    session_id: str,
    title: str,
    *,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> None:
    """Set the title of a session. A CLI may use the session meanwhile.

    Raises:
        OptionsError: the id is not a UUID, or the title is blank. Nothing was changed.
        SessionNotFoundError: there is no such session.
    """
    _check_id(session_id)
    entry = title_entry(session_id, title)
    await _place(directory, config_dir, store).append(session_id, entry)


async def tag(
    session_id: str,
    tag: str | None,
    *,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> None:
    """Set the tag of a session. None removes it. A CLI may use the session meanwhile.

    Invisible characters are removed from the tag.

    Raises:
        OptionsError: the id is not a UUID, or the tag is blank. Nothing was changed.
        SessionNotFoundError: there is no such session.
    """
    _check_id(session_id)
    entry = tag_entry(session_id, tag)
    await _place(directory, config_dir, store).append(session_id, entry)


async def delete(
    session_id: str,
    *,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> None:
    """Delete a session, with its subagents and, in a store, its journal.

    Close the session first: a CLI that still uses it would write the file anew.

    Raises:
        OptionsError: the id is not a UUID, or another argument is invalid. Nothing was deleted.
        SessionNotFoundError: there is no such session.
    """
    _check_id(session_id)
    await _place(directory, config_dir, store).delete(session_id)


async def fork(
    session_id: str,
    *,
    up_to: str | None = None,
    title: str | None = None,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> str:
    """Copy a session, and return the id of the copy. Resume it with ``resume_session_id``.

    The copy has the conversation that the CLI would resume, and its subagents.

    Args:
        up_to: the uuid of the last message to copy. None copies all.
        title: the title of the copy. None means the summary of the session with " (fork)".

    Raises:
        OptionsError: an argument is invalid. Nothing was written.
        SessionNotFoundError: there is no such session.
    """
    _check_id(session_id)
    if title is not None:
        title_entry(session_id, title)
    place = _place(directory, config_dir, store)
    transcript = await place.load(session_id)
    if title is None:
        info = await place.info(session_id)
        title = f"{info.summary} (fork)"
    new_id = str(uuid.uuid4())
    made = await asyncio.to_thread(
        fork_of,
        transcript,
        new_id,
        up_to=up_to,
        title=title,
        now=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        uuids=_uuids(),
    )
    await place.create(transcript, new_id, made)
    return new_id


async def export(
    session_id: str,
    path: str | PathLike[str],
    *,
    format: ExportFormat | None = None,
    overwrite: bool = False,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> None:
    """Write a session to a file that only its owner can read.

    Args:
        path: the file.
        format: ``"jsonl"`` is the transcript with its subagents, as the CLI stores them. On another
            machine, the CLI resumes it with the path as ``resume_session_id``. ``"json"`` is one
            object with the summary and the messages. ``"markdown"`` is for people. None takes the
            format from the ending of ``path``: ``.jsonl``, ``.json`` or ``.md``.
        overwrite: replace the file if it exists.

    Raises:
        OptionsError: an argument is invalid, or the file exists or cannot be written.
        SessionNotFoundError: there is no such session.
    """
    _check_id(session_id)
    chosen = _format(path, format)
    place = _place(directory, config_dir, store)
    transcript = await place.load(session_id)
    info = await place.info(session_id)
    data = await asyncio.to_thread(exported, transcript, info, chosen)
    try:
        await asyncio.to_thread(_write, Path(path), data, transcript, chosen, overwrite=overwrite)
    except FileExistsError:
        fix = "Name another file, or set overwrite=True."
        raise OptionsError("path", f"names {path}, which already exists", fix=fix) from None
    except OSError as error:
        problem = f"names {path}, which cannot be written: {error.strerror}"
        raise OptionsError("path", problem) from None


def _write(
    path: Path, data: bytes, transcript: Transcript, format: str, *, overwrite: bool
) -> None:
    write_private(path, data, overwrite=overwrite)
    if format == "jsonl":
        for agent in transcript.subagents:
            lines = b"".join(entry.raw_line + b"\n" for entry in agent.entries)
            write_subagent(path, agent, lines)


def _uuids() -> Iterator[str]:
    while True:
        yield str(uuid.uuid4())


# ---------------------------------------------------------------- arguments


class _Files:
    """The sessions in the files of the CLI. Every method runs in a thread."""

    def __init__(self, directory: _Path | None, config_dir: _Path | None) -> None:
        self._arguments = (directory, config_dir)

    @property
    def _files(self) -> TranscriptFiles:
        return TranscriptFiles(*self._arguments)

    async def list(self, limit: int | None, offset: int) -> list[SessionInfo]:
        return await asyncio.to_thread(lambda: self._files.list(limit, offset))

    async def info(self, session_id: str) -> SessionInfo:
        return await asyncio.to_thread(lambda: self._files.info(session_id))

    async def load(self, session_id: str) -> Transcript:
        return await asyncio.to_thread(lambda: self._files.load(session_id))

    async def append(self, session_id: str, entry: JsonObject) -> None:
        await asyncio.to_thread(lambda: self._files.append(session_id, entry))

    async def create(self, source: Transcript, session_id: str, fork: Fork) -> None:
        await asyncio.to_thread(lambda: self._files.create(source, session_id, fork))

    async def delete(self, session_id: str) -> None:
        await asyncio.to_thread(lambda: self._files.delete(session_id))


def _place(
    directory: _Path | None, config_dir: _Path | None, store: SessionStore | None
) -> _Files | StoredTranscripts:
    """Return where the sessions are."""
    _check_path("directory", directory)
    _check_path("config_dir", config_dir)
    if store is None:
        return _Files(directory, config_dir)
    if config_dir is not None:
        raise OptionsError(
            "config_dir",
            "cannot be combined with store",
            fix="config_dir is for the files of the CLI. Remove one of the two.",
        )
    return StoredTranscripts(as_store(store), directory)


def _check_id(session_id: object) -> None:
    if not is_session_id(session_id):
        raise OptionsError(
            "session_id",
            f"must be a UUID, got {session_id!r}",
            fix="list_sessions() and session.id return such ids.",
        )


def _check_count(name: str, value: object, *, least: int) -> None:
    if name == "limit" and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionsError(name, f"must be a whole number of at least {least}, got {value!r}")


def _check_path(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, str | PathLike) or not os.fspath(value)):
        raise OptionsError(name, f"must be a path, got {value!r}")


def _format(path: object, format: object) -> ExportFormat:
    _check_path("path", path)
    if format is None:
        format = {".md": "markdown"}.get(Path(str(path)).suffix, Path(str(path)).suffix[1:])
    for known in FORMATS:
        if format == known:
            return known
    raise OptionsError(
        "format",
        f"must be one of {', '.join(FORMATS)}, got {format!r}",
        fix="Set format, or let path end in .jsonl, .json or .md.",
    )
