"""Load a conversation from a store, and write it to private files that the CLI resumes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct

from bridle._observe.user_values import describe_error
from bridle._process.launch.plan import Launch
from bridle._process.private_directories import make_private_directory, remove_private_directory
from bridle._records.session_store import JOURNAL, Entry, SessionKey, SessionStore, has_journals
from bridle.approvals import PendingApproval
from bridle.errors import SessionLoadError, SessionLoadTimeout
from bridle.events import SdkWarning, WarningKind
from bridle.sessions._backlog import deferred_call
from bridle.sessions._cli_files import CliFiles
from bridle.sessions._journal import JournalEntry, UnknownEntry, decode_entries
from bridle.sessions._outbox.leases import BorrowedLeases, Leases
from bridle.sessions._outbox.rejected import append_singly
from bridle.sessions._outbox.spool import spool_name
from bridle.sessions._outbox.spool_sending import SpoolSending
from bridle.sessions._recovery import decided_calls
from bridle.sessions._start_calls import (
    StartCalls,
    finish_in_thread,
    log_warning,
    naming_session,
)
from bridle.sessions._stores.accept import subkeys_of
from bridle.sessions._transcripts.completion import lacks_beginning, lost_answers, missing_entries
from bridle.sessions._transcripts.files import SubagentFile, write_transcript
from bridle.sessions._transcripts.stored_turns import waiting_call
from bridle.sessions._transcripts.transcript import (
    SUBAGENTS,
    entries_of_objects,
    line_of_object,
    split_metadata,
    subagent_name,
)

_T = TypeVar("_T")


class LoadedConversation(Struct, frozen=True):
    """A conversation as private files: the transcript at ``path``, everything in ``directory``."""

    path: str
    directory: str


class LoadedEntries(Struct, frozen=True):
    """The entries of a conversation in a store, and the tool call of it that waits for approval."""

    entries: list[Entry]
    waiting: PendingApproval | None = None
    #: The entries of its subagents that only the files of the CLI have, by subkey.
    subagents: Mapping[str, Sequence[Entry]] = {}


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
        files: the files of the CLI on this machine, which complete the conversation. None if they
            are not used.
        leases: the leases of the session, which append to the store. None if the conversation is
            only read: then entries of spool files and of the files do not go to the store.
    """

    def __init__(
        self,
        store: SessionStore,
        key: SessionKey,
        asking: StartCalls,
        spools: str,
        warn: Callable[[SdkWarning], None],
        decided: Collection[str] = (),
        files: CliFiles | None = None,
        leases: Leases | BorrowedLeases | None = None,
    ) -> None:
        self._store = store
        self._files = files
        self._is_read_only = leases is None
        self._leases = leases or Leases(store, lambda _: None)
        self._key = key
        self._session_id = key.session_id
        self._asking = asking
        self._spools = spools
        self._warn = warn
        self._decided = decided
        # What spool files have, by subkey, if the conversation is only read.
        self._left: dict[str, list[Entry]] = {}

    async def load(
        self,
        admit: Callable[[PendingApproval | None], None] = lambda _: None,
        *,
        needs_journal: bool = False,
    ) -> LoadedConversation | None:
        """Load the conversation with its subagents and write it to files. None if there is none.

        Entries in spool files that an earlier process left behind go to the store first, unless the
        conversation is only read. ``admit`` gets the call that waits for approval, and may raise.
        ``needs_journal`` is True to fail if entries of the journal are on this machine and cannot
        be read.

        Cancellation: no file is left.

        Raises:
            SessionLoadError: the store failed, or returned something that is not a conversation.
            SessionLoadTimeout: the store did not answer in time.
        """
        loaded = await self.load_entries(needs_journal=needs_journal)
        entries = loaded.entries
        if not entries:
            return None
        admit(loaded.waiting)
        subagents: dict[str, Sequence[Entry]] = {}
        stored = await self._ask(subkeys_of, self._store, self._session_id)
        for subkey in {*stored, *self._left}:
            name = subagent_name(subkey)
            if name is not None:
                subagents[name] = await self.entries(self._key_of(subkey))
        for subkey, added in loaded.subagents.items():
            name = subkey.removeprefix(f"{SUBAGENTS}/")
            subagents[name] = [*subagents.get(name, ()), *added]
        return await finish_in_thread(
            partial(_write, self._session_id, entries, subagents), _remove
        )

    async def load_entries(self, *, needs_journal: bool = False) -> LoadedEntries:
        """Load the main transcript, and find the call in it that waits for approval.

        A call that has been decided, by the journal, does not wait. The CLI would run deferred
        calls that do not wait, too, so the entries that let it do this are left out.

        Raises:
            SessionLoadError: as :meth:`load`.
        """
        await self.send_left_behind(needs_journal=needs_journal)
        loaded, journal = await asyncio.gather(self.entries(self._key), self.journal())
        if not loaded:
            return LoadedEntries([])
        await finish_in_thread(partial(self._leases.position(self._key).loaded, loaded))
        missing = await self._complete(loaded)
        loaded += missing.pop("", ())
        decided = {*self._decided, *decided_calls(journal)}
        left, waiting, problems = await finish_in_thread(
            partial(_look, loaded, journal, decided, self._session_id)
        )
        for problem in problems:
            self._tell(problem)
        # Otherwise the store has them now.
        return LoadedEntries(left, waiting, missing if self._is_read_only else {})

    async def journal(self) -> list[JournalEntry | UnknownEntry]:
        """Load the journal. Empty if the store has none. Raises as :meth:`load`."""
        if not has_journals(self._store):
            return []
        entries = await self.entries(self._key_of(JOURNAL))
        return await finish_in_thread(partial(decode_entries, entries))

    async def _complete(self, loaded: Sequence[Entry]) -> dict[str, list[Entry]]:
        """Append what only the files of the CLI have. Return it by subkey."""
        if self._files is None:
            return {}
        found = await finish_in_thread(partial(self._files.read, self._session_id))
        if not found:
            return {}
        stored: dict[str, Sequence[Entry]] = {"": loaded}
        for subkey in found:
            if subkey:
                stored[subkey] = await self.entries(self._key_of(subkey))
        missing = await finish_in_thread(partial(missing_entries, stored, found))
        if not self._is_read_only:
            for subkey, entries in missing.items():
                await self.append_found(self._key_of(subkey), entries)
        return missing

    async def append_found(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        """Append entries of a file of the CLI, without those that the store rejects.

        The session that wrote the file went on without them, too.

        Raises:
            SessionLoadError: the store takes nothing at the moment.
            SessionLoadTimeout: the store did not answer in time.
        """
        try:
            await self._append(key, entries)
        except SessionLoadTimeout:
            raise
        except SessionLoadError:
            found = await append_singly(
                key, entries, self._try_append, has_journals=has_journals(self._store)
            )
            if found.left:
                raise
            if found.rejected:
                self._tell(
                    f"{type(self._store).__name__} rejects {len(found.rejected)} entries of the "
                    f"session {self._session_id} ({found.reason}). They stay in the file of the "
                    "CLI on this machine"
                )

    async def _append(self, key: SessionKey, entries: Sequence[Entry]) -> None:
        # Leaves time for other attempts, because a store may hang for an entry that is too large.
        ask = partial(self._asking.ask, self._session_id, limit=self._asking.left / 4)
        await self._leases.append(key, entries, ask)

    async def _try_append(self, key: SessionKey, entries: Sequence[Entry]) -> str:
        """Append entries. Return what went wrong, or ""."""
        try:
            await self._append(key, entries)
        except SessionLoadTimeout:
            raise
        except SessionLoadError as error:
            return error.reason
        return ""

    async def send_left_behind(self, *, needs_journal: bool = False) -> None:
        """Send what the spool files of earlier processes have. See `SpoolSending.send`.

        If the conversation is only read, they stay: another machine may have the lease.
        """
        sending = SpoolSending(
            self._store,
            self._key,
            self._asking,
            self._spools,
            self._leases,
            self.entries,
            self._tell,
        )
        if self._is_read_only:
            await sending.read(self._left)
        else:
            await sending.send(needs_journal=needs_journal)

    def _key_of(self, subkey: str) -> SessionKey:
        return SessionKey(self._session_id, subkey, self._key.project)

    async def entries(self, key: SessionKey) -> list[Entry]:
        """Return the entries of a key, with those of spool files if these are only read.

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
        if left := self._left.get(key.subkey):
            known = {entry.get("uuid") for entry in entries}
            entries += [one for one in left if "uuid" not in one or one["uuid"] not in known]
        return entries

    async def _ask(self, method: Callable[..., Awaitable[_T]], *arguments: object) -> _T:
        return await self._asking.ask(self._session_id, method, *arguments)

    def _tell(self, detail: str) -> None:
        self._warn(SdkWarning(WarningKind.STORE_FAILED, detail))


async def loaded_entries(
    store: SessionStore, session_id: str, launch: Launch, timeout: float
) -> LoadedEntries:
    """Load the main transcript of a session, without starting or changing it.

    Raises:
        SessionLoadError: the store failed.
    """
    files, spools = CliFiles(launch), spool_name(store, session_id)
    key = SessionKey(session_id, "", files.project)
    asking = StartCalls(timeout)
    loader = ConversationLoader(store, key, asking, spools, log_warning, files=files)
    with naming_session(session_id):
        return await loader.load_entries()


def _look(
    loaded: Sequence[Entry],
    journal: Sequence[JournalEntry | UnknownEntry],
    decided: Collection[str],
    session_id: str,
) -> tuple[list[Entry], PendingApproval | None, list[str]]:
    """Return what the CLI may read, the call that waits, and what the store has lost."""
    problems: list[str] = []
    if lacks_beginning(loaded):
        problems.append(
            f"The store lacks the beginning of the session {session_id}: it has lost entries, or "
            "began with an empty database. The session is resumed without them"
        )
    if lost := lost_answers(journal, entries_of_objects(loaded)):
        problems.append(
            f"The store has no messages of the last {len(lost)} answered prompts of the session "
            f"{session_id}, because the program died before they reached it. The journal has the "
            f"answers, but the model does not know of them. The prompts are {', '.join(lost)}"
        )
    if not any(map(deferred_call, loaded)):
        return list(loaded), None, problems
    return *_waiting(loaded, decided, session_id), problems


def _waiting(
    entries: Sequence[Entry], decided: Collection[str], session_id: str
) -> tuple[list[Entry], PendingApproval | None]:
    """Return the entries without deferred calls that do not wait, and the one that waits."""
    undecided = (entry for entry in entries if deferred_call(entry) not in decided)
    waiting = waiting_call(entries_of_objects(undecided), session_id)
    kept = ("", None if waiting is None else waiting.tool_use_id)
    left: list[Entry] = []
    parents: dict[str, Any] = {}
    for entry in entries:
        parent, uuid = entry.get("parentUuid"), entry.get("uuid")
        if isinstance(parent, str) and parent in parents:
            entry = {**entry, "parentUuid": parents[parent]}
        if deferred_call(entry) in kept:
            left.append(entry)
        elif isinstance(uuid, str):  # a prompt that followed the call has it as its parent
            parents[uuid] = entry.get("parentUuid")
    return left, waiting


def _remove(conversation: LoadedConversation) -> None:
    remove_private_directory(conversation.directory)


def _write(
    session_id: str, entries: Sequence[Entry], subagents: Mapping[str, Sequence[Entry]]
) -> LoadedConversation:
    directory = make_private_directory()
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
        remove_private_directory(directory)
        if isinstance(error, OSError):
            raise SessionLoadError(session_id, describe_error(error)) from error
        raise
    return LoadedConversation(path, directory)


def _subagent_file(name: str, listed: Sequence[Entry]) -> SubagentFile:
    transcript, metadata = split_metadata(listed)
    return SubagentFile(name, map(line_of_object, transcript), metadata)
