"""List, read, rename, tag, delete, fork and export stored sessions.

The functions use the transcript files of the CLI. Any program may have written them: the CLI,
Bridle or another SDK. With ``store=...`` the functions use a session store instead.
``bridle.sync.sessions`` has the same functions for code without ``async``.

Arguments of all functions:

``directory``
    The working directory of the session. None searches the sessions of all directories.
``config_dir``
    The configuration directory of the CLI. None means ``CLAUDE_CONFIG_DIR``, or ``~/.claude`` if
    this variable is not set.
``store``
    A `SessionStore` to use in place of the CLI's files.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import TypeAlias, cast

from bridle._records.raw_line import JsonObject
from bridle._records.session_store import (
    Entry,
    FencingStore,
    LeasingStore,
    RangeStore,
    SessionKey,
    SessionStore,
    StoredSession,
    SubkeyStore,
)
from bridle.errors import OptionsError, SessionNotFoundError
from bridle.messages._message import Message
from bridle.options._checks import is_uuid
from bridle.sessions._stored_transcripts import StoredTranscripts
from bridle.sessions._stores import (
    MemoryStore,
    OfficialStore,
    PostgresStore,
    Redact,
    RedisStore,
    SqliteStore,
    as_store,
)
from bridle.sessions._transcripts.changes import tag_entry, title_entry
from bridle.sessions._transcripts.empty_sessions import in_store
from bridle.sessions._transcripts.export import FORMATS, ExportFormat, exported
from bridle.sessions._transcripts.files import (
    SUFFIX,
    SubagentFile,
    TranscriptFiles,
    log_damaged,
    write_private,
    write_transcript,
)
from bridle.sessions._transcripts.summaries import SessionInfo, bare_info
from bridle.sessions._transcripts.transcript import SubagentTranscript, Transcript, TranscriptEntry

__all__ = [
    "Entry",
    "ExportFormat",
    "FencingStore",
    "LeasingStore",
    "MemoryStore",
    "OfficialStore",
    "PostgresStore",
    "RangeStore",
    "Redact",
    "RedisStore",
    "SessionInfo",
    "SessionKey",
    "SessionStore",
    "SqliteStore",
    "StoredSession",
    "SubagentTranscript",
    "SubkeyStore",
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


# ---------------------------------------------------------------- reading


async def list_sessions(
    directory: str | PathLike[str] | None = None,
    *,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionInfo]:
    """Return the stored sessions. The session that changed last comes first.

    Sessions without a message are left out. Of each session that it returns, this function reads
    only the first and the last 64 KiB, from a store if it is a `RangeStore`. It does not read the
    sessions that it skips.

    Args:
        directory: return only the sessions of this working directory.
        limit: the number of sessions to return. None returns all.
        offset: the number of sessions to skip first. A skipped session without a message counts
            too, unless the program has listed it before: pages that are read one after the other
            fit together.

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
    """Return the summary, title, tag, directory and times of one session.

    Raises:
        OptionsError: the id is not a UUID, or another argument is invalid.
        SessionNotFoundError: there is no such session.
    """
    return await _place(directory, config_dir, store, session_id).info(session_id)


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
    """Return the messages that the CLI loads when it resumes the session.

    If lines of the transcript cannot be read, this function leaves them out and logs a warning to
    ``bridle.sessions``. `read_transcript` returns these lines too.

    Args:
        subagents: add the messages of subagents, each after the tool call that started it.
            ``message.agent_path`` names the subagent of a message.
        compacted: add the messages before a compaction. The model no longer sees them.
        system: add messages of the CLI, such as `CompactBoundaryMessage`.

    Raises:
        OptionsError: the id is not a UUID, or another argument is invalid.
        SessionNotFoundError: there is no such session.
    """
    transcript = await read_transcript(
        session_id, directory=directory, config_dir=config_dir, store=store
    )
    if transcript.damaged:
        log_damaged(session_id, len(transcript.damaged))
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
    """Return every entry of a session and of its subagents, including unknown and damaged ones.

    Raises:
        OptionsError: the id is not a UUID, or another argument is invalid.
        SessionNotFoundError: there is no such session.
    """
    return await _place(directory, config_dir, store, session_id).load(session_id)


# ---------------------------------------------------------------- changing


async def rename(
    session_id: str,
    title: str,
    *,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> None:
    """Set the title of a session. A CLI may be using the session.

    Raises:
        OptionsError: the id is not a UUID, or the title is blank. Nothing was changed.
        SessionNotFoundError: there is no such session.
        OSError: the file system does not allow the change.
    """
    place = _place(directory, config_dir, store, session_id)
    await place.append(session_id, title_entry(session_id, title))


async def tag(
    session_id: str,
    tag: str | None,
    *,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> None:
    """Set the tag of a session, or remove it with None. A CLI may be using the session.

    This function removes invisible characters from the tag.

    Raises:
        OptionsError: the id is not a UUID, or the tag is blank. Nothing was changed.
        SessionNotFoundError: there is no such session.
        OSError: the file system does not allow the change.
    """
    place = _place(directory, config_dir, store, session_id)
    await place.append(session_id, tag_entry(session_id, tag))


async def delete(
    session_id: str,
    *,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> None:
    """Delete a session and its subagents. In a store, also delete its journal.

    With a store, this function also deletes the spool files of the session on this machine, except
    those that a running session uses. Spool files on other machines stay.

    Close the session first. A CLI that still uses it writes the file again.

    Raises:
        OptionsError: the id is not a UUID, or another argument is invalid. Nothing was deleted.
        SessionNotFoundError: there is no such session.
        OSError: the file system does not allow the change.
    """
    await _place(directory, config_dir, store, session_id).delete(session_id)


async def fork(
    session_id: str,
    *,
    up_to: str | None = None,
    title: str | None = None,
    directory: str | PathLike[str] | None = None,
    config_dir: str | PathLike[str] | None = None,
    store: SessionStore | None = None,
) -> str:
    """Copy a session and return the id of the copy. Pass this id as ``resume_session_id``.

    The copy has the messages that the CLI loads when it resumes the session, those before a
    compaction, and the subagents. A tool call that waits for approval waits in the original only.

    Args:
        up_to: the uuid of the last message to copy. None copies all messages.
        title: the title of the copy. None means the summary of the session and " (fork)".

    Raises:
        OptionsError: an argument is invalid. Nothing was written.
        SessionNotFoundError: there is no such session.
        OSError: the file system does not allow the change.
    """
    place = _place(directory, config_dir, store, session_id)
    if title is not None:
        title_entry(session_id, title)
    new_id = str(uuid.uuid4())
    await place.fork(session_id, new_id, up_to, title)
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
        path: the file. For ``"jsonl"``, its name must end in ``.jsonl``.
        format: ``"jsonl"`` is the transcript as the CLI stores it. The subagents are in a directory
            with the same name. On any machine, pass the path as ``resume_session_id`` to resume it.
            ``"json"`` is one object with the summary and the messages. ``"markdown"`` is for
            people. None takes the format from the ending of ``path``: ``.jsonl``, ``.json`` or
            ``.md``.
        overwrite: replace the file, and for ``"jsonl"`` the files of the subagents, if they exist.

    Raises:
        OptionsError: an argument is invalid, or a file exists or cannot be written. Without
            ``overwrite``, nothing was changed.
        SessionNotFoundError: there is no such session.
    """
    place = _place(directory, config_dir, store, session_id)
    chosen = _format(path, format)
    transcript = await place.load(session_id)
    info = await _info(place, transcript)
    try:
        await asyncio.to_thread(_write, Path(path), transcript, info, chosen, overwrite=overwrite)
    except FileExistsError as error:
        problem = f"would overwrite {error.filename}, which already exists"
        fix = "Name another file, or set overwrite=True."
        raise OptionsError("path", problem, fix=fix) from None
    except OSError as error:
        problem = f"names {path}, which cannot be written: {error.strerror}"
        raise OptionsError("path", problem) from None


async def _info(place: _Files | StoredTranscripts, transcript: Transcript) -> SessionInfo:
    """Return the summary of a session, which may have no message."""
    try:
        return await place.info(transcript.session_id)
    except SessionNotFoundError:
        return bare_info(transcript)


def _write(
    path: Path, transcript: Transcript, info: SessionInfo, format: ExportFormat, *, overwrite: bool
) -> None:
    if format != "jsonl":
        write_private(path, [exported(transcript, info, format)], overwrite=overwrite)
        return
    agents = [
        SubagentFile(agent.name, _raw_lines(agent.entries), agent.metadata)
        for agent in transcript.subagents
    ]
    write_transcript(path, _raw_lines(transcript.entries), agents, overwrite=overwrite)


def _raw_lines(entries: Iterable[TranscriptEntry]) -> Iterator[bytes]:
    return (entry.raw_line for entry in entries)


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

    async def fork(
        self, session_id: str, new_id: str, up_to: str | None, title: str | None
    ) -> None:
        await asyncio.to_thread(lambda: self._files.fork(session_id, new_id, up_to, title))

    async def delete(self, session_id: str) -> None:
        await asyncio.to_thread(lambda: self._files.delete(session_id))


_ANY = object()


def _place(
    directory: _Path | None,
    config_dir: _Path | None,
    store: SessionStore | None,
    session_id: object = _ANY,
) -> _Files | StoredTranscripts:
    """Check the arguments that all functions have, and return where the sessions are."""
    if session_id is not _ANY and not is_uuid(session_id):
        raise OptionsError(
            "session_id",
            f"must be a UUID, got {session_id!r}",
            fix="list_sessions() and session.id return such ids.",
        )
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
    return StoredTranscripts(as_store(store), directory, in_store(store))


def _check_count(name: str, value: object, *, least: int) -> None:
    if name == "limit" and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionsError(name, f"must be a whole number of at least {least}, got {value!r}")


def _check_path(name: str, value: object) -> None:
    if value is None:
        return
    path = os.fspath(cast("PathLike[str]", value)) if isinstance(value, PathLike) else value
    if not isinstance(path, str) or not path or "\0" in path or not _is_encodable(path):
        raise OptionsError(name, f"must be a path, got {value!r}")


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _format(path: object, format: object) -> ExportFormat:
    _check_path("path", path)
    file = Path(cast("str", path))
    if not file.name:
        raise OptionsError("path", f"must name a file, got {str(file)!r}")
    if format is None:
        format = {".md": "markdown"}.get(file.suffix, file.suffix[1:])
    if format == "jsonl" and file.suffix != SUFFIX:
        fix = f"The CLI resumes a transcript only from a file that ends in {SUFFIX}."
        raise OptionsError("path", f"must end in {SUFFIX}, got {str(file)!r}", fix=fix)
    for known in FORMATS:
        if format == known:
            return known
    raise OptionsError(
        "format",
        f"must be one of {', '.join(FORMATS)}, got {format!r}",
        fix="Set format, or let path end in .jsonl, .json or .md.",
    )
