"""Take over a session whose program died, and load what is known of it.

The store has the journal and the mirrored transcript. The file of the CLI on this machine may have
more than the store, because the program died before it could copy the last entries.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from msgspec import Struct, structs

from bridle._core.journal import (
    JournalEntry,
    OutcomeEntry,
    ReceivedEntry,
    UnknownEntry,
    decode_entries,
    encode_entry,
    is_probe,
    last_directory,
    store_outcome,
)
from bridle._core.launch import Launch
from bridle._core.precedence import ResolvedOptions
from bridle._core.recovery import Finished as Finished
from bridle._core.recovery import RecoveryPlan, plan_recovery
from bridle._core.transcripts import (
    Transcript,
    entries_of_objects,
    is_linked,
    objects_of_bytes,
    project_name,
    subagent_name,
    subagent_of_objects,
)
from bridle._keywords import CONVERSATION
from bridle._shell import store_session
from bridle._shell.config_directory import place_of, working_directory
from bridle._shell.journal import Journal
from bridle._shell.leases import BorrowedLeases, Leases
from bridle._shell.session_locks import CannotLock, SessionLock, lock_session
from bridle._shell.spool import LeftSpool, damaged_name, left_behind, make_spool, spool_name
from bridle._shell.store_loading import (
    ConversationLoader,
    StartCalls,
    damaged_journal,
    log_warning,
    naming_session,
)
from bridle._shell.store_writer import StoreWriter
from bridle._shell.transcript_files import TranscriptFiles, read_file, subagent_files
from bridle._store import JOURNAL, Entry, SessionKey, SessionStore
from bridle._stores.accept import subkeys_of
from bridle.errors import SessionInUseError, SessionNotFoundError
from bridle.events import SdkWarning, WarningKind
from bridle.options import CliOptions
from bridle.outcomes import Outcome

_T = TypeVar("_T")


class History(Struct, frozen=True):
    """The journal of a session, and its conversation (None if nothing of it was saved)."""

    journal: list[JournalEntry | UnknownEntry]
    transcript: Transcript | None
    #: The working directory of the last prompt. None if it is not known, or does not exist.
    directory: str | None = None

    def plan(self) -> RecoveryPlan:
        """Return what is to do about the prompts without a received outcome."""
        return plan_recovery(self.journal, self.transcript)


class CliFiles:
    """The files in which a CLI keeps its conversations on this machine."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        #: Where the CLI runs.
        self.place = place_of(launch)
        #: The name of the project of the working directory.
        self.project = project_name(working_directory(launch))

    def of_directory(self, directory: str) -> CliFiles:
        """Return the files of the same CLI if it runs in another directory."""
        return CliFiles(structs.replace(self._launch, cwd=directory))

    def read(self, session_id: str) -> dict[str, list[Entry]]:
        """Return the entries of a conversation by subkey, "" for the main one. Blocks."""
        path = self._find(session_id)
        if path is None:
            return {}
        files = {"": path, **subagent_files(path)}
        return {subkey: _entries_in(one) for subkey, one in files.items()}

    def remove_unused(self, session_id: str) -> None:
        """Remove a file without a conversation, with which the CLI starts no new one. Blocks."""
        path = self._find(session_id)
        if path is not None and not any(map(is_linked, _entries_in(path))):
            os.unlink(path)

    def _find(self, session_id: str) -> Path | None:
        return TranscriptFiles(None, self.place.config).path(session_id)


class CrashedSession:
    """A session of this program whose CLI has crashed.

    Args:
        store: the store of the session, or None.
        session_id: the id of the session.
        launch: how the CLI was started.
        timeout: seconds that the store has to load the session.
    """

    def __init__(
        self, store: SessionStore | None, session_id: str, launch: Launch, timeout: float
    ) -> None:
        self._session_id = session_id
        self._files = CliFiles(launch)
        self._stored = (
            None if store is None else DeadSession(store, session_id, self._files, timeout, _ignore)
        )

    async def load(self, journal: list[JournalEntry | UnknownEntry]) -> History:
        """Return the history of the session, with the journal that this program has in memory.

        A file of the CLI without a conversation is removed, so that a new CLI can use the id.

        Raises:
            SessionLoadError: the store or a file of the CLI failed.
        """
        loop = asyncio.get_running_loop()
        with naming_session(self._session_id):
            if self._stored is not None:
                transcript = (await self._stored.load(needs_journal=False)).transcript
            else:
                found = await loop.run_in_executor(None, self._files.read, self._session_id)
                transcript = _transcript(self._session_id, self._files.project, found)
            if transcript is None:
                await loop.run_in_executor(None, self._files.remove_unused, self._session_id)
        return History(journal, transcript)

    async def receive(self, prompt: str) -> None:
        """Write that the program has the outcome of a prompt."""
        if self._stored is not None:
            await self._stored.write([received_entry(prompt)])


def after_crash(options: ResolvedOptions, session_id: str, *, is_new: bool) -> ResolvedOptions:
    """Return the options of a new CLI that continues a session of this program.

    ``is_new`` is True if the conversation was not saved.
    """
    cli, unset = options.cli, CliOptions()
    changes: dict[str, Any] = {}
    if not is_new:
        changes = {name: getattr(unset, name) for name in CONVERSATION if name in unset.fields}
        changes["resume_session_id"] = session_id
    elif cli.fork_session or not cli.resume_session_id:
        changes["session_id"] = session_id
        if cli.continue_session and not cli.fork_session:  # there was nothing to continue
            changes["continue_session"] = False
    return structs.replace(options, cli=cli.replace(**changes))


class DeadSession:
    """A session of a store that no program runs.

    Args:
        store: the store.
        session_id: the id of the session.
        files: the files of the CLI on this machine.
        timeout: seconds that the store has to load the session.
        on_lost: called if another program takes the session over.
    """

    def __init__(
        self,
        store: SessionStore,
        session_id: str,
        files: CliFiles,
        timeout: float,
        on_lost: Callable[[SessionInUseError], None],
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._files = files
        self._timeout = timeout
        self._leases = Leases(store, uuid4().hex, on_lost)
        self._lock: SessionLock | None = None
        self._is_taken = False
        # The details of the warnings that were logged while the session was loaded.
        self._logged: set[str] = set()

    async def take_over(self) -> None:
        """Take the lock on this machine and the lease in the store.

        Wait until the lease of the program that died has expired.

        Raises:
            SessionInUseError: a program has the session.
            SessionLoadError: the store failed, or a part of the journal cannot be read.
        """
        self._is_taken = True
        self.lock()
        await self._leases.take_when_expired(self._session_id, self._ask)
        loop = asyncio.get_running_loop()
        damaged = await loop.run_in_executor(None, self._find_damaged)
        if damaged is not None:
            raise damaged_journal(self._session_id, damaged)

    def _find_damaged(self) -> str | None:
        """Return a spool file with the journal that an earlier session could not read. Blocks."""
        name = damaged_name(f"{spool_name(self._store, self._session_id)}{JOURNAL}.")
        for spool in left_behind(name):
            if isinstance(spool, LeftSpool):
                spool.close()
            return spool.path
        return None

    def lock(self) -> None:
        """Lock the session on this machine.

        Raises:
            SessionInUseError: a program has locked it.
        """
        place = self._files.place
        self._lock = None
        try:
            self._lock = lock_session(place.config, self._session_id, place.account)
        except CannotLock as error:
            log_warning(SdkWarning(WarningKind.SESSION_UNLOCKED, str(error)))

    def lend(self) -> BorrowedLeases:
        """Return the lease for a CLI that continues the session. The lock stays here."""
        return BorrowedLeases(self._leases)

    async def aclose(self) -> None:
        """Give back the lease and the lock."""
        if self._lock is not None:
            self._lock.release()
        await self._leases.aclose()

    # -- loading -----------------------------------------------------------------------------------

    async def load(self, *, needs_journal: bool = True) -> History:
        """Complete the store from this machine, and return what it has.

        Args:
            needs_journal: True to fail if a part of the journal on this machine cannot be sent.

        Raises:
            SessionNotFoundError: neither the store nor the files of the CLI have the session.
            SessionInUseError: a program has locked the session in the directory of the journal.
            SessionLoadError: the store or a local file failed.
        """
        with naming_session(self._session_id):
            return await self._load(needs_journal=needs_journal)

    async def _load(self, *, needs_journal: bool) -> History:
        session_id = self._session_id
        calls = StartCalls(self._timeout)
        spools = spool_name(self._store, session_id)
        loader = ConversationLoader(self._store, self._key(), calls, spools, self._log_once)
        await loader.send_left_behind(needs_journal=needs_journal)
        journal = decode_entries(await loader.entries(self._key(JOURNAL)))
        directory = await self._follow(last_directory(journal))
        stored = {"": await loader.entries(self._key())}
        for subkey in await calls.ask(session_id, subkeys_of, self._store, session_id):
            if subagent_name(subkey) is not None:
                stored[subkey] = await loader.entries(self._key(subkey))
        await self._complete(stored, calls)
        transcript = _transcript(session_id, self._files.project, stored)
        if transcript is None and all(map(is_probe, journal)):
            raise SessionNotFoundError(session_id)
        return History(journal, transcript, directory)

    def _log_once(self, warning: SdkWarning) -> None:
        """Log a warning. A recovery loads the session after each step, and would repeat it."""
        if warning.detail not in self._logged:
            self._logged.add(warning.detail)
            log_warning(warning)

    async def _follow(self, directory: str | None) -> str | None:
        """Use the files of a CLI that runs in the directory of the journal, if it exists.

        The path of the configuration directory may be relative.

        Raises:
            SessionInUseError: a program has locked the session there.
        """
        loop = asyncio.get_running_loop()
        if directory is None or not await loop.run_in_executor(None, os.path.isdir, directory):
            return None
        before, self._files = self._files, self._files.of_directory(directory)
        if self._is_taken and self._files.place.config != before.place.config:
            if self._lock is not None:
                self._lock.release()
            self.lock()
        return directory

    async def _complete(self, stored: dict[str, list[Entry]], calls: StartCalls) -> None:
        """Append the entries that only the files of the CLI have."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, self._files.read, self._session_id)
        if not _uuids(found.get("", ())).issuperset(_uuids(filter(is_linked, stored[""]))):
            return  # the conversation has gone on elsewhere, and the file is an old branch
        for subkey, entries in found.items():
            known = _uuids(stored.get(subkey, ()))
            missing = [one for one in entries if "uuid" in one and one["uuid"] not in known]
            if missing and (not subkey or subagent_name(subkey) is not None):
                key = self._key(subkey)
                await calls.ask(self._session_id, self._store.append, key, missing)
                stored.setdefault(subkey, []).extend(missing)

    def _key(self, subkey: str = "") -> SessionKey:
        return SessionKey(self._session_id, subkey, self._files.project)

    async def _ask(self, method: Callable[..., Awaitable[_T]], *arguments: object) -> _T:
        return await StartCalls(self._timeout).ask(self._session_id, method, *arguments)

    async def remove_unused_file(self) -> None:
        """Remove the file of the CLI if it has no conversation.

        Raises:
            SessionLoadError: the file cannot be removed.
        """
        loop = asyncio.get_running_loop()
        with naming_session(self._session_id):
            await loop.run_in_executor(None, self._files.remove_unused, self._session_id)

    # -- writing -----------------------------------------------------------------------------------

    async def write(self, entries: Iterable[JournalEntry]) -> None:
        """Write entries to the journal. If the store fails, they go to a spool file.

        Raises:
            StoreError: the spool file could not be written either.
        """
        spool = make_spool(self._store, self._session_id, JOURNAL)
        writer = StoreWriter(self._store, spool, log_warning)
        journal = Journal(writer, self._key(JOURNAL))
        try:
            for entry in entries:
                await journal.write(encode_entry(entry))
        finally:
            await writer.aclose(store_session.CLOSE_TIMEOUT)


def outcome_entry(prompt: str, outcome: Outcome[object]) -> JournalEntry:
    """Return the entry with the outcome of a prompt."""
    kept = store_outcome(outcome)
    return OutcomeEntry(uuid=str(uuid4()), at=time.time(), prompt_uuid=prompt, outcome=kept)


def received_entry(prompt: str) -> JournalEntry:
    """Return the entry which says that the program has the outcome of a prompt."""
    return ReceivedEntry(uuid=str(uuid4()), at=time.time(), prompt_uuid=prompt)


def _transcript(
    session_id: str, project: str, found: Mapping[str, Sequence[Entry]]
) -> Transcript | None:
    """Return a conversation. None if there is none."""
    if not any(map(is_linked, found.get("", ()))):
        return None
    return Transcript(
        session_id=session_id,
        project=project,
        entries=entries_of_objects(found[""]),
        subagents=tuple(
            subagent_of_objects(name, entries)
            for subkey, entries in found.items()
            if (name := subagent_name(subkey)) is not None
        ),
    )


def _entries_in(path: Path) -> list[Entry]:
    """Return the entries of a file without the last line if it is not complete. Blocks.

    Raises:
        OSError: the file exists and cannot be read.
    """
    try:
        data = read_file(path)
    except FileNotFoundError:
        return []
    return objects_of_bytes(data[: data.rfind(b"\n") + 1])


def _uuids(entries: Iterable[Entry]) -> set[object]:
    return {entry["uuid"] for entry in entries if "uuid" in entry}


def _ignore(_: object) -> None:
    """Ignore that a session of this program lost its lease: it has ended."""
