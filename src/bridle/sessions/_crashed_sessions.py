"""Take over a session whose program died, and load what is known of it.

The store has the journal and the mirrored transcript. The file of the CLI on this machine may have
more than the store, because the program died before it could copy the last entries.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from msgspec import Struct, structs

from bridle._process.launch.plan import Launch
from bridle._process.session_locks import CannotLock, SessionLock, lock_session
from bridle._records.session_store import JOURNAL, Entry, SessionKey, SessionStore, has_journals
from bridle.errors import SessionNotFoundError
from bridle.events import SdkWarning, WarningKind
from bridle.options import CliOptions
from bridle.options._keywords import CONVERSATION
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import Outcome
from bridle.sessions import _store_session as store_session
from bridle.sessions._cli_files import CliFiles
from bridle.sessions._journal import (
    JournalEntry,
    OutcomeEntry,
    ReceivedEntry,
    UnknownEntry,
    encode_entry,
    is_probe,
    last_directory,
    store_outcome,
)
from bridle.sessions._journal_writer import Journal
from bridle.sessions._loading import ConversationLoader
from bridle.sessions._outbox.leases import BorrowedLeases, Leases
from bridle.sessions._outbox.spool import make_spool, spool_name
from bridle.sessions._outbox.store_writer import StoreWriter
from bridle.sessions._recovery import Finished as Finished
from bridle.sessions._recovery import RecoveryPlan, plan_recovery
from bridle.sessions._start_calls import StartCalls, log_warning, naming_session
from bridle.sessions._stores.accept import subkeys_of
from bridle.sessions._transcripts.completion import missing_entries
from bridle.sessions._transcripts.transcript import (
    Transcript,
    entries_of_objects,
    is_linked,
    subagent_name,
    subagent_of_objects,
)

_T = TypeVar("_T")


class History(Struct):
    """The journal of a session, and its conversation (None if nothing of it was saved).

    A long history takes seconds to read and to let go of. Both are done in other threads, because
    the program has other work.
    """

    journal: list[JournalEntry | UnknownEntry]
    transcript: Transcript | None
    #: The working directory of the last prompt. None if it is not known, or does not exist.
    directory: str | None = None
    #: True if nothing of the conversation was saved.
    is_new: bool = False

    def __post_init__(self) -> None:
        self.is_new = self.transcript is None

    async def plan(self) -> RecoveryPlan:
        """Return what is to do about the prompts without a received outcome. Call it once."""
        return await asyncio.get_running_loop().run_in_executor(None, self._plan)

    def _plan(self) -> RecoveryPlan:
        plan = plan_recovery(self.journal, self.transcript)
        self.transcript = None
        return plan


class CrashedSession:
    """A session of this program whose CLI has crashed.

    Args:
        store: the store of the session, or None.
        session_id: the id of the session.
        launch: how the CLI was started.
        timeout: seconds that the store has to load the session.
        leases: the leases of the program for the session. None without a store.
    """

    def __init__(
        self,
        store: SessionStore | None,
        session_id: str,
        launch: Launch,
        timeout: float,
        leases: BorrowedLeases | None,
    ) -> None:
        self._session_id = session_id
        self._files = CliFiles(launch)
        self._stored: DeadSession | None = None
        if store is not None and leases is not None:
            self._stored = DeadSession(store, session_id, self._files, timeout, leases.owner)

    async def load(self, journal: list[JournalEntry | UnknownEntry]) -> History:
        """Return the history of the session, with the journal that this program has in memory.

        A file of the CLI without a conversation is removed, so that a new CLI can use the id.

        Raises:
            SessionInUseError: another program has the session, or has continued it.
            SessionLoadError: the store or a file of the CLI failed.
        """
        loop = asyncio.get_running_loop()
        with naming_session(self._session_id):
            if self._stored is not None:
                await self._stored.confirm()
                transcript = (await self._stored.load(needs_journal=False)).transcript
            else:
                found = await loop.run_in_executor(None, self._files.read, self._session_id)
                project = self._files.project
                transcript = await loop.run_in_executor(
                    None, _taken_transcript, self._session_id, project, found
                )
            if transcript is None:
                await loop.run_in_executor(None, self._files.remove_unused, self._session_id)
        return History(journal, transcript)

    async def receive(self, prompt: str) -> None:
        """Write that the program has the outcome of a prompt, if the store keeps journals."""
        if self._stored is not None and self._stored.has_journal:
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
        leases: the leases of the session.
    """

    def __init__(
        self,
        store: SessionStore,
        session_id: str,
        files: CliFiles,
        timeout: float,
        leases: Leases,
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._files = files
        self._timeout = timeout
        self._leases = leases
        self._lock: SessionLock | None = None
        self._is_taken = False
        # The details of the warnings that were logged while the session was loaded.
        self._logged: set[str] = set()

    async def take_over(self) -> None:
        """Take the lock on this machine and the lease in the store.

        Wait until the lease of the program that died has expired.

        Raises:
            SessionInUseError: a program has the session.
            SessionLoadError: the store failed.
        """
        self._is_taken = True
        self.lock()
        await self._leases.take_when_expired(self._session_id, self._ask)

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

    async def confirm(self) -> None:
        """Check that this program still has the lease of the session.

        Raises:
            SessionInUseError: another program has it, or has continued the session.
            SessionLoadError: the store failed.
        """
        await self._leases.confirm(self._session_id, self._ask)

    def lend(self) -> BorrowedLeases:
        """Return the lease for a CLI that continues the session. The lock stays here."""
        return BorrowedLeases(self._leases)

    async def aclose(self) -> None:
        """Give back the lease and the lock."""
        if self._lock is not None:
            self._lock.release()
        await self._leases.aclose()

    # -- loading -----------------------------------------------------------------------------------

    @property
    def has_journal(self) -> bool:
        """Return whether the store keeps journals."""
        return has_journals(self._store)

    async def load(self, *, needs_journal: bool = True) -> History:
        """Complete the store from this machine, and return what it has.

        Args:
            needs_journal: True to fail if a part of the journal on this machine cannot be sent, or
                if nothing is known of the session. False if the program has the journal in memory.

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
        loader = ConversationLoader(
            self._store, self._key(), calls, spools, self._log_once, leases=self._leases
        )
        await loader.send_left_behind(needs_journal=needs_journal)
        loop, journal = asyncio.get_running_loop(), await loader.journal()
        directory = await self._follow(last_directory(journal))
        stored = {"": await loader.entries(self._key())}
        for subkey in await calls.ask(session_id, subkeys_of, self._store, session_id):
            if subagent_name(subkey) is not None:
                stored[subkey] = await loader.entries(self._key(subkey))
        position = self._leases.position(self._key())
        await loop.run_in_executor(None, position.loaded, stored[""])
        await self._complete(stored, loader)
        transcript = await loop.run_in_executor(
            None, _taken_transcript, session_id, self._files.project, stored
        )
        if transcript is None and needs_journal and all(map(is_probe, journal)):
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

    async def _complete(self, stored: dict[str, list[Entry]], loader: ConversationLoader) -> None:
        """Append the entries that only the files of the CLI have."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, self._files.read, self._session_id)
        missing = await loop.run_in_executor(None, _taken_missing, stored, found)
        for subkey, entries in missing.items():
            await loader.append_found(self._key(subkey), entries)
            stored.setdefault(subkey, []).extend(entries)

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
            SessionInUseError: another program has taken the session over.
            StoreError: the spool file could not be written either.
        """
        spool = make_spool(self._store, self._session_id, JOURNAL)
        writer = StoreWriter(self._store, spool, log_warning, self._leases.append)
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


def _taken_transcript(
    session_id: str, project: str, found: dict[str, list[Entry]]
) -> Transcript | None:
    """Return a conversation as `_transcript` does, and let go of the entries in this thread."""
    transcript = _transcript(session_id, project, found)
    found.clear()
    return transcript


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


def _taken_missing(
    stored: Mapping[str, Sequence[Entry]], found: dict[str, list[Entry]]
) -> dict[str, list[Entry]]:
    """Return the entries by subkey that the store lacks. Lets go of ``found``."""
    missing = missing_entries(stored, found)
    found.clear()
    return missing
