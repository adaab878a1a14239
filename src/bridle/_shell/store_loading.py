"""Load a conversation from a store, and write it to private files that the CLI resumes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct

from bridle._core.mirroring import deferred_call
from bridle._core.transcript_branches import Choice, choose_left, with_uuid
from bridle._core.transcripts import (
    SUBAGENTS,
    line_of_object,
    split_metadata,
    subagent_name,
)
from bridle._shell.spool import LeftSpool, left_behind
from bridle._shell.store_calls import StoreCallCancelled, StoreCallTimeout, call_store
from bridle._shell.transcript_files import SubagentFile, write_transcript
from bridle._shell.tree import remove_directory
from bridle._shell.values import describe_error
from bridle._store import Entry, SessionKey, SessionStore
from bridle._stores.accept import subkeys_of
from bridle.errors import SessionLoadError, SessionLoadTimeout
from bridle.events import SdkWarning, WarningKind

_T = TypeVar("_T")


class LoadedConversation(Struct, frozen=True):
    """A conversation as private files: the transcript at ``path``, everything in ``directory``."""

    session_id: str
    path: str
    directory: str


class StartCalls:
    """Call a store for what the start of a session needs. All calls share one deadline.

    Args:
        timeout: seconds from now until the deadline.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._deadline = asyncio.get_running_loop().time() + timeout

    async def ask(
        self, session_id: str, method: Callable[..., Awaitable[_T]], *arguments: object
    ) -> _T:
        """Call a method of the store and return its result. Errors name the session.

        Raises:
            SessionLoadError: the store failed.
            SessionLoadTimeout: the store did not answer in time.
        """
        left = self._deadline - asyncio.get_running_loop().time()
        try:
            return await call_store(max(left, 0.0), method, *arguments)
        except StoreCallTimeout:
            raise SessionLoadTimeout(session_id, self._timeout) from None
        except StoreCallCancelled as error:
            raise SessionLoadError(session_id, str(error)) from None
        except Exception as error:
            raise SessionLoadError(session_id, describe_error(error)) from error


class ConversationLoader:
    """Loads one conversation.

    Args:
        store: the store.
        key: the key of the conversation. Its project is that of the working directory, for stores
            that need it to find a session.
        asking: how to call the store.
        spools: the first part of the names of the spool files of the conversation.
        warn: reports a warning.
        decided: tool calls that waited for approval and no longer do. The CLI must not run them
            when it starts.
    """

    def __init__(
        self,
        store: SessionStore,
        key: SessionKey,
        asking: StartCalls,
        spools: str,
        warn: Callable[[SdkWarning], None],
        decided: Container[str] = (),
    ) -> None:
        self._store = store
        self._key = key
        self._session_id = key.session_id
        self._asking = asking
        self._spools = spools
        self._warn = warn
        self._decided = decided

    async def load(self) -> LoadedConversation | None:
        """Load the conversation with its subagents and write it to files. None if there is none.

        Entries in spool files that an earlier process left behind go to the store first.

        Cancellation: no file is left.

        Raises:
            SessionLoadError: the store failed, or returned something that is not a conversation.
            SessionLoadTimeout: the store did not answer in time.
        """
        await self.send_left_behind()
        loaded = await self.entries(self._key)
        entries = [entry for entry in loaded if deferred_call(entry) not in self._decided]
        if not entries:
            return None
        subagents: dict[str, Sequence[Entry]] = {}
        for subkey in await self._ask(subkeys_of, self._store, self._session_id):
            name = subagent_name(subkey)
            if name is not None:
                key = SessionKey(self._session_id, subkey, self._key.project)
                subagents[name] = await self.entries(key)
        return await _in_thread(partial(_write, self._session_id, entries, subagents), _remove)

    async def send_left_behind(self) -> None:
        """Send the entries in spool files of earlier processes to the store. Remove the files.

        One file at a time is open and locked, so that a failure leaves the others for the next
        attempt. A file that cannot be sent stays, with a warning.

        Raises:
            SessionLoadError: the store failed.
            SessionLoadTimeout: the store did not answer in time.
        """
        left = left_behind(self._spools)
        while (spool := await _in_thread(partial(next, left, None), _close)) is not None:
            is_sent = False
            try:
                is_sent = await self._send(spool)
            finally:
                if not is_sent:
                    spool.close()
            if is_sent:
                await _in_thread(spool.remove)

    async def _send(self, spool: LeftSpool) -> bool:
        """Send the entries of a spool file. Return whether the store has all of them."""
        choose = partial(_choose, await self.entries(self._key), spool)
        choice = await _in_thread(choose)
        if choice is not Choice.ALL:
            self._tell(spool, _OLDER[choice])
        if choice is Choice.NONE:
            return False
        batches = spool.batches()
        while (batch := await _in_thread(partial(next, batches, None))) is not None:
            position, key, entries = batch
            if choice is Choice.WITH_UUID and not key.subkey:
                entries = with_uuid(entries)
            try:
                await self._ask(self._store.append, key, entries)
            except SessionLoadTimeout as error:
                raise SessionLoadTimeout(
                    self._session_id, error.timeout, f"while it got the entries of {spool.path}"
                ) from None
            except SessionLoadError as error:
                # The store can be read, so it rejects these entries. If it cannot be reached any
                # more, loading the conversation fails.
                self._tell(spool, f"did not take them ({error.reason}). They stay there")
                return False
            await _in_thread(partial(spool.mark_done, position))
        return True

    async def entries(self, key: SessionKey) -> list[Entry]:
        """Return the entries of a key.

        Raises:
            SessionLoadError: the store failed, or returned something else.
            SessionLoadTimeout: the store did not answer in time.
        """
        found = await self._ask(self._store.load, key)
        try:
            entries: list[Entry] = list(found or ())
        except TypeError:
            entries = [cast("Entry", found)]
        if not all(isinstance(cast("object", entry), Mapping) for entry in entries):
            raise SessionLoadError(self._session_id, "load did not return a list of dicts")
        return entries

    async def _ask(self, method: Callable[..., Awaitable[_T]], *arguments: object) -> _T:
        return await self._asking.ask(self._session_id, method, *arguments)

    def _tell(self, spool: LeftSpool, what: str) -> None:
        store = type(self._store).__name__
        detail = f"Entries of an earlier session are in {spool.path}. {store} {what}"
        self._warn(SdkWarning(WarningKind.STORE_FAILED, detail))


_OLDER = {
    Choice.WITH_UUID: "has newer messages, so the conversation continues without them",
    Choice.NONE: "has newer messages, which they would hide. They stay there",
}


def _choose(stored: Sequence[Entry], spool: LeftSpool) -> Choice:
    left = [entry for _, key, entries in spool.batches() if not key.subkey for entry in entries]
    return choose_left(stored, left)


def _remove(conversation: LoadedConversation) -> None:
    remove_directory(conversation.directory)


def _close(spool: LeftSpool | None) -> None:
    if spool is not None:
        spool.close()


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
