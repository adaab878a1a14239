"""Load a conversation from a store, and write it to private files that the CLI resumes."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct

from bridle._core.journal import decode_entries
from bridle._core.mirroring import APPEND_TIMEOUT, MAX_FAILING, deferred_call, delay_after
from bridle._core.recovery import decided_calls
from bridle._core.transcript_branches import (
    Choice,
    NewerTitles,
    choose_left,
    without_last_prompt,
)
from bridle._core.transcript_turns import waiting_call
from bridle._core.transcripts import (
    SUBAGENTS,
    entries_of_objects,
    line_of_object,
    project_name,
    split_metadata,
    subagent_name,
)
from bridle._shell.rejections import append_singly
from bridle._shell.spool import (
    LeftSpool,
    SkippedSpool,
    left_behind,
    spool_name,
    spools_for_others,
)
from bridle._shell.store_calls import StoreCallCancelled, StoreCallTimeout, call_store
from bridle._shell.transcript_files import SubagentFile, write_transcript
from bridle._shell.tree import remove_directory
from bridle._shell.values import describe_error
from bridle._store import JOURNAL, Entry, SessionKey, SessionStore, has_journals
from bridle._stores.accept import subkeys_of
from bridle.approvals import PendingApproval
from bridle.errors import BridleError, SessionLoadError, SessionLoadTimeout
from bridle.events import SdkWarning, WarningKind

_T = TypeVar("_T")

log = logging.getLogger("bridle.session")

_MOVE = "To go on without these entries, move the file to another directory."


class LoadedConversation(Struct, frozen=True):
    """A conversation as private files: the transcript at ``path``, everything in ``directory``."""

    path: str
    directory: str


class LoadedEntries(Struct, frozen=True):
    """The entries of a conversation in a store, and the tool call of it that waits for approval."""

    entries: list[Entry]
    waiting: PendingApproval | None = None


def log_warning(warning: SdkWarning) -> None:
    """Log a warning about a session that has no callbacks yet."""
    log.warning("%s: %s", warning.kind, warning.detail)


class StartCalls:
    """Call a store for what the start of a session needs. All calls share one deadline.

    Args:
        timeout: seconds from now until the deadline.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._deadline = asyncio.get_running_loop().time() + timeout

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def ask(
        self,
        session_id: str,
        method: Callable[..., Awaitable[_T]],
        *arguments: object,
        limit: float = math.inf,
    ) -> _T:
        """Call a method of the store and return its result. Errors name the session.

        Args:
            session_id: the id of the session.
            method: the method of the store.
            arguments: its arguments.
            limit: seconds after which the call counts as failed, if the deadline is not earlier.

        Raises:
            SessionLoadError: the store failed, or did not answer within ``limit`` seconds.
            SessionLoadTimeout: the store did not answer before the deadline.
        """
        left = self.left
        try:
            return await call_store(min(left, limit), method, *arguments)
        except StoreCallTimeout as error:
            if limit < left:
                raise SessionLoadError(session_id, str(error)) from None
            raise SessionLoadTimeout(session_id, self._timeout) from None
        except StoreCallCancelled as error:
            raise SessionLoadError(session_id, str(error)) from None
        except Exception as error:
            raise SessionLoadError(session_id, describe_error(error)) from error

    async def pause(self, delay: float) -> bool:
        """Wait for ``delay`` seconds. Return False at once if the deadline is earlier."""
        if asyncio.get_running_loop().time() + delay >= self._deadline:
            return False
        await asyncio.sleep(delay)
        return True


@contextmanager
def naming_session(session_id: str) -> Generator[None]:
    """Let the error of a local file name the session that was to be loaded.

    Raises:
        SessionLoadError: instead of an OSError.
    """
    try:
        yield
    except BridleError:
        raise
    except OSError as error:
        named = SessionLoadError(session_id, describe_error(error))
        named.fix = "Check the file that the error names, then try again."
        raise named from error


def damaged_journal(session_id: str, path: str) -> SessionLoadError:
    """Return the error for a spool file of the journal that has unreadable lines."""
    why = f"a part of its journal is in {path}, which has lines that cannot be read"
    error = SessionLoadError(session_id, why)
    error.fix = (
        "The store has the other lines. Read the file to find out which prompts and tool calls the "
        "unreadable lines have, move it to another directory, then try again. The prompts are "
        "lost, and tool calls may be repeated."
    )
    return error


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
        decided: Collection[str] = (),
    ) -> None:
        self._store = store
        self._key = key
        self._session_id = key.session_id
        self._asking = asking
        self._spools = spools
        self._warn = warn
        self._decided = decided

    async def load(
        self, admit: Callable[[PendingApproval | None], None] = lambda _: None
    ) -> LoadedConversation | None:
        """Load the conversation with its subagents and write it to files. None if there is none.

        Entries in spool files that an earlier process left behind go to the store first. ``admit``
        gets the call that waits for approval, and may raise.

        Cancellation: no file is left.

        Raises:
            SessionLoadError: the store failed, or returned something that is not a conversation.
            SessionLoadTimeout: the store did not answer in time.
        """
        loaded = await self.load_entries()
        entries = loaded.entries
        if not entries:
            return None
        admit(loaded.waiting)
        subagents: dict[str, Sequence[Entry]] = {}
        for subkey in await self._ask(subkeys_of, self._store, self._session_id):
            name = subagent_name(subkey)
            if name is not None:
                key = SessionKey(self._session_id, subkey, self._key.project)
                subagents[name] = await self.entries(key)
        return await _in_thread(partial(_write, self._session_id, entries, subagents), _remove)

    async def load_entries(self) -> LoadedEntries:
        """Load the main transcript, and find the call in it that waits for approval.

        A call that has been decided, by the journal, does not wait: the entry that lets the CLI run
        it is left out.

        Raises:
            SessionLoadError: as :meth:`load`.
        """
        await self.send_left_behind()
        loaded = await self.entries(self._key)
        if not any(map(deferred_call, loaded)):
            return LoadedEntries(loaded)
        decided = set(self._decided)
        if has_journals(self._store):
            key = SessionKey(self._session_id, JOURNAL, self._key.project)
            decided |= decided_calls(decode_entries(await self.entries(key)))
        entries = [entry for entry in loaded if deferred_call(entry) not in decided]
        find = partial(_waiting, entries, self._session_id)
        return LoadedEntries(entries, await _in_thread(find))

    async def send_left_behind(self, *, needs_journal: bool = False) -> None:
        """Send the entries in spool files of earlier processes to the store. Remove the files.

        One file at a time is open and locked, so that a failure leaves the others for the next
        attempt. A file that cannot be used, or whose entries would hide newer messages, stays, with
        a warning. So does a file of this session for another store.

        Args:
            needs_journal: True to fail if a file that may have entries of the journal cannot be
                used, has unreadable lines, or is for another store. The readable lines are sent.

        Raises:
            SessionLoadError: the store failed, or did not take the entries of a file before the
                deadline. The session must not go on without them: it would repeat tool calls, and
                its messages would become another branch.
            SessionLoadTimeout: the store did not answer in time.
        """
        await self._report_others(needs_journal=needs_journal)
        left = left_behind(self._spools)
        while (spool := await _in_thread(partial(next, left, None), _close)) is not None:
            if isinstance(spool, SkippedSpool):
                self._skip(spool, needs_journal=needs_journal)
                continue
            is_sent = False
            try:
                choice, newer = await self._choose(spool)
                is_sent = await self._send(spool, choice, newer, needs_journal=needs_journal)
            finally:
                if not is_sent:
                    spool.close()
            if is_sent:
                damaged = await _in_thread(spool.remove)
                if damaged is not None:
                    if needs_journal and self._may_have_journal(spool.path):
                        raise damaged_journal(self._session_id, damaged)
                    self._tell(f"A spool file has lines that cannot be read. It is now {damaged}")

    async def _report_others(self, *, needs_journal: bool) -> None:
        """Report the files of this session for other stores. Raise if one has needed entries."""
        others = await _in_thread(partial(spools_for_others, self._spools))
        journals = [path for path in others if f".{JOURNAL}." in os.path.basename(path)]
        if needs_journal and journals:
            why = (
                f"a part of its journal is in {', '.join(journals)}, which was written for a store "
                "of another class or with another location"
            )
            error = SessionLoadError(self._session_id, why)
            error.fix = (
                "Recover the session with that store, which then gets the entries. A store without "
                "`location` ends with its program: then, or to go on without the entries, move the "
                "file to another directory. Prompts may be lost, and tool calls may be repeated."
            )
            raise error
        if others:
            self._tell(
                f"Entries of this session for another store are in {', '.join(others)}. They are "
                f"not sent to this {self._name}, because its class or its location differs"
            )

    def _skip(self, spool: SkippedSpool, *, needs_journal: bool) -> None:
        """Report a file that cannot be used. Raise if the session must not go on without it."""
        if needs_journal and self._may_have_journal(spool.path):
            raise self._unusable(spool.path, spool.reason)
        self._tell(
            f"The session goes on without the entries in {spool.path}, which cannot be used: "
            f"{spool.reason}"
        )

    def _may_have_journal(self, path: str) -> bool:
        """Return whether a file, or the directory of all files, may have journal entries."""
        name = os.path.basename(path)
        return not name.startswith(self._spools) or name.startswith(f"{self._spools}{JOURNAL}.")

    def _unusable(self, path: str, reason: str) -> SessionLoadError:
        why = f"the file {path} may contain a part of its journal, and cannot be used: {reason}"
        error = SessionLoadError(self._session_id, why)
        error.fix = (
            "Make the file usable, then try again. To go on without its entries, move the file to "
            "another directory. Then tool calls may be repeated."
        )
        return error

    async def _send(
        self, spool: LeftSpool, choice: Choice, newer: NewerTitles, *, needs_journal: bool
    ) -> bool:
        """Send the entries of a spool file. Return whether the store has all of them."""
        if choice is Choice.NONE:
            self._tell(
                f"Entries of an earlier session are in {spool.path}. {self._name} has newer "
                "messages, which they would hide. They stay there"
            )
            return False
        sender = _SpoolSender(self._session_id, self._store, self._asking, spool, newer)
        rejected = await sender.send(choice, needs_journal=needs_journal)
        if choice is Choice.WITHOUT_LAST_PROMPT:
            self._tell(
                f"{self._name} has newer messages than the spool file of an earlier session. It "
                "got the entries of the file as an older branch. The session resumes the newer one"
            )
        if rejected:
            self._tell(
                f"{self._name} rejects entries ({rejected}). The session goes on without them. "
                f"They stay in {spool.path}"
            )
        return not rejected

    async def _choose(self, spool: LeftSpool) -> tuple[Choice, NewerTitles]:
        """Choose which entries of the main transcript to send."""
        left = await _in_thread(partial(_main_entries, spool))
        if not left:
            return Choice.ALL, NewerTitles((), "")
        stored = await self.entries(self._key)
        choice = await _in_thread(partial(choose_left, stored, left))
        return choice, NewerTitles(stored, spool.written)

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

    @property
    def _name(self) -> str:
        return type(self._store).__name__

    def _tell(self, detail: str) -> None:
        self._warn(SdkWarning(WarningKind.STORE_FAILED, detail))


class _SpoolSender:
    """Sends the entries of one spool file to the store."""

    def __init__(
        self,
        session_id: str,
        store: SessionStore,
        asking: StartCalls,
        spool: LeftSpool,
        newer: NewerTitles,
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._asking = asking
        self._spool = spool
        self._newer = newer
        # Seconds that are left for entries that the store has rejected before.
        self._for_rejected = min(APPEND_TIMEOUT, asking.left / 4)
        # Why the last one of them was rejected.
        self._rejection = ""
        # Seconds that the store gets at least. With less, a slow store would seem to reject them.
        self._least = min(1.0, asking.left / 8)

    async def send(self, choice: Choice, *, needs_journal: bool) -> str:
        """Send the entries. Return why the store rejects some, which stay in the file, or "".

        Entries of the journal must be taken if the session needs the journal.

        Raises:
            SessionLoadError: the store did not take entries before the deadline.
            SessionLoadTimeout: the store did not answer in time.
        """
        reason = ""
        batches = self._spool.batches()
        while (batch := await _in_thread(partial(next, batches, None))) is not None:
            key, entries = batch.key, batch.entries
            if not key.subkey:
                entries = self._newer.leave_out_older(entries)
                if choice is Choice.WITHOUT_LAST_PROMPT:
                    entries = without_last_prompt(entries)
            if key.subkey == JOURNAL and needs_journal:
                await self._append(key, entries, None)
            elif batch.is_rejected:
                problem = await self._append_rejected(key, entries)
                if problem:
                    reason = problem
                    continue
            # A store that has rejected an entry is asked at once which others it rejects.
            elif await self._append(key, entries, 0.0 if reason else MAX_FAILING):
                found = await append_singly(
                    key,
                    entries,
                    partial(self._append, retry_for=0.0),
                    has_journals=has_journals(self._store),
                )
                if found is None:
                    await self._append(key, entries, None)
                elif found.entries:
                    reason = found.reason
                    await _in_thread(partial(self._spool.write_rejected, key, found.entries))
            await _in_thread(partial(self._spool.mark_done, batch.position))
        return reason

    async def _append_rejected(self, key: SessionKey, entries: Sequence[Entry]) -> str:
        """Append entries that the store has rejected before. Return what went wrong, or "".

        All entries of this kind share a few seconds, because the store may hang for each of them.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._for_rejected > 0.0:
            self._rejection = await self._append(key, entries, 0.0, self._for_rejected)
            self._for_rejected -= loop.time() - began
        return self._rejection

    async def _append(
        self,
        key: SessionKey,
        entries: Sequence[Entry],
        retry_for: float | None,
        limit: float = math.inf,
    ) -> str:
        """Append entries. Repeat it for ``retry_for`` seconds if the store fails.

        Return what went wrong, or "". If ``retry_for`` is None, or little time is left, repeat it
        until the deadline, then raise. ``limit`` is in seconds, for one attempt.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        failures = 0
        while True:
            # An append that may fail leaves time for the others, although the store hangs.
            most = math.inf if retry_for is None else self._asking.left / 2
            if most < self._least:
                retry_for, most = None, math.inf
            append = self._store.append
            try:
                await self._asking.ask(
                    self._session_id, append, key, entries, limit=min(APPEND_TIMEOUT, limit, most)
                )
            except SessionLoadTimeout as error:
                when = f"while Bridle sent the entries of the spool file {self._spool.path}"
                late = SessionLoadTimeout(self._session_id, error.timeout, when)
                late.fix = f"{late.fix} {_MOVE}"
                raise late from None
            except SessionLoadError as error:
                failures += 1
                delay = delay_after(failures)
                if retry_for is not None and loop.time() + delay - began > retry_for:
                    return error.reason
                if not await self._asking.pause(delay):
                    raise self._not_taken(error.reason) from error
            else:
                return ""

    def _not_taken(self, reason: str) -> SessionLoadError:
        path = self._spool.path
        reason = reason.removesuffix(".")
        why = f"the store did not accept the entries of the spool file {path} ({reason})"
        error = SessionLoadError(self._session_id, why)
        error.fix = f"Check that the store works, then try again. {_MOVE}"
        return error


async def loaded_entries(
    store: SessionStore, session_id: str, cwd: str, timeout: float
) -> LoadedEntries:
    """Load the main transcript of a session, without starting or changing it.

    Raises:
        SessionLoadError: the store failed.
    """
    key, spools = SessionKey(session_id, "", project_name(cwd)), spool_name(store, session_id)
    loader = ConversationLoader(store, key, StartCalls(timeout), spools, log_warning)
    return await loader.load_entries()


def _waiting(entries: Sequence[Entry], session_id: str) -> PendingApproval | None:
    return waiting_call(entries_of_objects(entries), session_id)


def _main_entries(spool: LeftSpool) -> list[Entry]:
    """Return the entries of the main transcript in a spool file."""
    return [entry for one in spool.batches() if not one.key.subkey for entry in one.entries]


def _remove(conversation: LoadedConversation) -> None:
    remove_directory(conversation.directory)


def _close(spool: LeftSpool | SkippedSpool | None) -> None:
    if isinstance(spool, LeftSpool):
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
    return LoadedConversation(path, directory)


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
