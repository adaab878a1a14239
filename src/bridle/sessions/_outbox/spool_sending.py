"""Send what the spool files of earlier processes have of a session to its store."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from bridle._records.session_store import JOURNAL, Entry, SessionKey, SessionStore, has_journals
from bridle.errors import SessionLoadError, SessionLoadTimeout
from bridle.sessions._backlog import APPEND_TIMEOUT, MAX_FAILING, delay_after
from bridle.sessions._outbox.leases import BorrowedLeases, Leases
from bridle.sessions._outbox.rejected import append_singly
from bridle.sessions._outbox.spool import (
    LeftBatch,
    LeftSpool,
    SkippedSpool,
    damaged_name,
    left_behind,
    spools_for_others,
)
from bridle.sessions._start_calls import StartCalls, finish_in_thread
from bridle.sessions._transcripts.branches import (
    Choice,
    NewerTitles,
    choose_left,
    without_last_prompt,
)

_MOVE = "To go on without these entries, move the file to another directory."


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


class SpoolSending:
    """Sends the spool files of one session.

    Args:
        store: the store.
        key: the key of the main transcript.
        asking: how to call the store.
        spools: the first part of the names of the files.
        leases: appends to the store.
        load: returns the entries of a key.
        tell: reports a problem.
    """

    def __init__(
        self,
        store: SessionStore,
        key: SessionKey,
        asking: StartCalls,
        spools: str,
        leases: Leases | BorrowedLeases,
        load: Callable[[SessionKey], Awaitable[list[Entry]]],
        tell: Callable[[str], None],
    ) -> None:
        self._store = store
        self._key = key
        self._session_id = key.session_id
        self._asking = asking
        self._spools = spools
        self._leases = leases
        self._load = load
        self._tell = tell

    async def send(self, *, needs_journal: bool = False) -> None:
        """Send the entries in spool files of earlier processes to the store. Remove the files.

        One file at a time is open and locked, so that a failure leaves the others for the next
        attempt. A file that cannot be used, or whose entries would hide newer messages, stays, with
        a warning. So does a file of this session for another store.

        Args:
            needs_journal: True to fail if a file that may have entries of the journal cannot be
                used, has unreadable lines, or is for another store. The readable lines are sent.
                Also if an earlier session kept such a file.

        Raises:
            SessionLoadError: the store failed, or did not take the entries of a file before the
                deadline. The session must not go on without them: it would repeat tool calls, and
                its messages would become another branch.
            SessionLoadTimeout: the store did not answer in time.
        """
        if needs_journal:
            await self._refuse_damaged()
        await self._report_others(needs_journal=needs_journal)
        left = left_behind(self._spools)
        while (spool := await finish_in_thread(partial(next, left, None), _close)) is not None:
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
                damaged = await finish_in_thread(spool.remove)
                if damaged is not None:
                    if needs_journal and self._may_have_journal(spool.path):
                        raise damaged_journal(self._session_id, damaged)
                    self._tell(f"A spool file has lines that cannot be read. It is now {damaged}")

    async def read(self, found: dict[str, list[Entry]]) -> None:
        """Add the entries in spool files of earlier processes to ``found``, by subkey.

        The files stay for the session that has the lease. Those that `send` would not send are left
        out. ``load`` must return the entries in ``found``, too.

        Raises:
            SessionLoadError: the store failed.
        """
        await self._report_others(needs_journal=False)
        left = left_behind(self._spools)
        while (spool := await finish_in_thread(partial(next, left, None), _close)) is not None:
            if isinstance(spool, SkippedSpool):
                self._skip(spool, needs_journal=False)
                continue
            try:
                choice, newer = await self._choose(spool)
                if choice is Choice.NONE:
                    self._tell_hiding(spool)
                    continue
                for batch in await finish_in_thread(partial(_batches, spool)):
                    entries = _chosen(batch, choice, newer)
                    found.setdefault(batch.key.subkey, []).extend(entries)
            finally:
                spool.close()

    async def _refuse_damaged(self) -> None:
        """Raise if an earlier session could not read a part of the journal."""
        damaged = await finish_in_thread(partial(_damaged_journal, self._spools))
        if damaged is not None:
            raise damaged_journal(self._session_id, damaged)

    async def _report_others(self, *, needs_journal: bool) -> None:
        """Report the files of this session for other stores. Raise if one has needed entries."""
        others = await finish_in_thread(partial(spools_for_others, self._spools))
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
            self._tell_hiding(spool)
            return False
        sender = _SpoolSender(self._store, self._key, self._asking, spool, newer, self._leases)
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

    def _tell_hiding(self, spool: LeftSpool) -> None:
        self._tell(
            f"Entries of an earlier session are in {spool.path}. {self._name} has newer "
            "messages, which they would hide. They stay there"
        )

    async def _choose(self, spool: LeftSpool) -> tuple[Choice, NewerTitles]:
        """Choose which entries of the main transcript to send."""
        batches = await finish_in_thread(partial(_main_batches, spool))
        if not batches:
            return Choice.ALL, NewerTitles((), "")
        stored = await self._load(self._key)
        left = [entry for batch in batches for entry in batch.entries]
        choice = await finish_in_thread(partial(choose_left, stored, left, batches[0].after))
        return choice, NewerTitles(stored, spool.written)

    @property
    def _name(self) -> str:
        return type(self._store).__name__


class _SpoolSender:
    """Sends the entries of one spool file to the store."""

    def __init__(
        self,
        store: SessionStore,
        key: SessionKey,
        asking: StartCalls,
        spool: LeftSpool,
        newer: NewerTitles,
        leases: Leases | BorrowedLeases,
    ) -> None:
        self._session_id = key.session_id
        self._store = store
        self._leases = leases
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
        while (batch := await finish_in_thread(partial(next, batches, None))) is not None:
            key, entries = batch.key, _chosen(batch, choice, self._newer)
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
                if found.left:
                    await self._append(key, found.left, None)
                if found.rejected:
                    reason = found.reason
                    await finish_in_thread(
                        partial(self._spool.write_rejected, batch, found.rejected)
                    )
            await finish_in_thread(partial(self._spool.mark_done, batch.position))
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
            limited = min(APPEND_TIMEOUT, limit, most)
            ask = partial(self._asking.ask, self._session_id, limit=limited)
            try:
                await self._leases.append(key, entries, ask)
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


def _damaged_journal(spools: str) -> str | None:
    """Return a file with the journal that an earlier session could not read. None if all could."""
    for spool in left_behind(damaged_name(f"{spools}{JOURNAL}.")):
        if isinstance(spool, LeftSpool):
            spool.close()
        return spool.path
    return None


def _chosen(batch: LeftBatch, choice: Choice, newer: NewerTitles) -> Sequence[Entry]:
    """Return the entries of a batch without those that would hide newer ones of the store."""
    if batch.key.subkey:
        return batch.entries
    entries = newer.leave_out_older(batch.entries)
    return without_last_prompt(entries) if choice is Choice.WITHOUT_LAST_PROMPT else entries


def _main_batches(spool: LeftSpool) -> list[LeftBatch]:
    """Return what a spool file has of the main transcript."""
    return [batch for batch in _batches(spool) if not batch.key.subkey]


def _batches(spool: LeftSpool) -> list[LeftBatch]:
    return list(spool.batches())


def _close(spool: LeftSpool | SkippedSpool | None) -> None:
    if isinstance(spool, LeftSpool):
        spool.close()
