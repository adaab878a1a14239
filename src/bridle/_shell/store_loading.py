"""Load a conversation from a store, and write it to private files that the CLI resumes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from bridle._core.transcripts import (
    SUBAGENTS,
    line_of_object,
    split_metadata,
    subagent_name,
)
from bridle._shell.spool import LeftSpool, left_behind
from bridle._shell.transcript_files import SubagentFile, write_transcript
from bridle._shell.tree import remove_directory
from bridle._shell.values import describe_error
from bridle._store import Entry, SessionKey, SessionStore
from bridle.errors import SessionLoadError, SessionLoadTimeout, StartError

_T = TypeVar("_T")


class LoadedConversation(Struct, frozen=True):
    """A conversation as private files: the transcript at ``path``, everything in ``directory``."""

    session_id: str
    path: str
    directory: str


async def load_conversation(
    store: SessionStore, key: SessionKey, timeout: float, spools: str
) -> LoadedConversation | None:
    """Load a conversation with its subagents and write it to files. None if the store has none.

    Entries in spool files that an earlier process left behind go to the store first. ``spools`` is
    the first part of their names. ``timeout`` is in seconds. The project of ``key`` is that of the
    working directory, for stores that need it to find a session.

    Raises:
        SessionLoadError: the store failed.
        SessionLoadTimeout: the store did not answer in time.
    """
    session_id = key.session_id
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await send_left_behind(store, spools)
            entries = await store.load(key)
            if not entries:
                return None
            subagents: dict[str, Sequence[Entry]] = {}
            for subkey in await store.subkeys(session_id):
                name = subagent_name(subkey)
                if name is not None:
                    inner = SessionKey(session_id, subkey, key.project)
                    subagents[name] = await store.load(inner) or ()
    except StartError:
        raise
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise SessionLoadTimeout(session_id, timeout) from None
        raise SessionLoadError(session_id, describe_error(error)) from error
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, partial(_write, session_id, entries, subagents))


def _write(
    session_id: str, entries: Sequence[Entry], subagents: Mapping[str, Sequence[Entry]]
) -> LoadedConversation:
    from tempfile import mkdtemp  # slow to import

    directory = mkdtemp(prefix="bridle-")
    path = os.path.join(directory, f"{session_id}.jsonl")
    try:
        # The CLI may add subagents, also if it runs as a user who cannot write to the directory.
        os.makedirs(os.path.join(directory, session_id, SUBAGENTS), mode=0o700)
        write_transcript(
            Path(path),
            map(line_of_object, entries),
            [_subagent_file(name, listed) for name, listed in subagents.items()],
        )
    except BaseException as error:
        remove_directory(directory)
        if isinstance(error, OSError):
            raise SessionLoadError(session_id, describe_error(error)) from error
        raise
    return LoadedConversation(session_id, path, directory)


def _subagent_file(name: str, listed: Sequence[Entry]) -> SubagentFile:
    transcript, metadata = split_metadata(listed)
    return SubagentFile(name, map(line_of_object, transcript), metadata)


async def send_left_behind(store: SessionStore, spools: str) -> None:
    """Send the entries in spool files of earlier processes to the store, and remove the files.

    One file at a time is open and locked, so that a failure leaves the others for the next attempt.
    """
    left = left_behind(spools)
    while (spool := await _in_thread(partial(next, left, None), _close)) is not None:
        await _send(store, spool)


def _close(spool: LeftSpool | None) -> None:
    if spool is not None:
        spool.close()


async def _send(store: SessionStore, spool: LeftSpool) -> None:
    try:
        batches = spool.batches()
        while (batch := await _in_thread(partial(next, batches, None))) is not None:
            position, key, entries = batch
            await store.append(key, entries)
            await _in_thread(partial(spool.mark_done, position))
    except BaseException:
        spool.close()
        raise
    await _in_thread(spool.remove)


async def _in_thread(function: Callable[[], _T], undo: Callable[[_T], None] | None = None) -> _T:
    """Call a function in a thread.

    Cancellation: wait until the thread is done, then call ``undo`` with what the function returned.
    """
    calling = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        await asyncio.wait([calling])
    except asyncio.CancelledError:
        calling.add_done_callback(partial(_undo, undo))
        await asyncio.wait([calling])
        raise
    return calling.result()


def _undo(undo: Callable[[_T], None] | None, done: asyncio.Future[_T]) -> None:
    if not done.cancelled() and done.exception() is None and undo is not None:
        undo(done.result())
