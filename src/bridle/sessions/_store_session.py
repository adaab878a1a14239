"""Connect a session with its store: load the conversation, copy new entries, hold the lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from bridle._engine import actions as act
from bridle._engine.versions import Version
from bridle._observe.user_values import describe_error
from bridle._process.config_directory import place_of, working_directory
from bridle._process.launch.plan import Launch
from bridle._process.locate import version_of
from bridle._process.private_directories import remove_private_directory
from bridle._process.session_locks import SessionLocks
from bridle._records.session_store import JOURNAL, SessionKey, SessionStore, SubkeyStore
from bridle.approvals import PendingApproval
from bridle.errors import SessionInUseError, SessionNotFoundError
from bridle.events import SdkWarning, WarningKind
from bridle.options._checks import is_uuid
from bridle.sessions._backlog import key_of
from bridle.sessions._cli_files import CliFiles
from bridle.sessions._journal_writer import Journal
from bridle.sessions._loading import ConversationLoader, LoadedConversation
from bridle.sessions._outbox.leases import BorrowedLeases, Leases
from bridle.sessions._outbox.spool import make_spool, spool_name
from bridle.sessions._outbox.store_writer import StoreWriter
from bridle.sessions._recovery import begun_calls
from bridle.sessions._start_calls import StartCalls, in_thread, naming_session
from bridle.sessions._transcripts.files import TranscriptFiles, subagent_files
from bridle.sessions._transcripts.tail import Addition, TranscriptTail, size_of
from bridle.sessions._transcripts.transcript import project_name
from bridle.sessions._waiting_calls import refuse_begun, waiting_in_file

_T = TypeVar("_T")

MIRROR_SINCE = Version(2, 1, 197)
"""The oldest CLI that is known to report what it adds to its transcripts."""

CLOSE_TIMEOUT = 10.0
"""Seconds that closing a session waits for the store."""

STOP_TIMEOUT = 2.0
"""Seconds that stopping a session waits for the store."""

_SHARE = 0.5
"""Seconds of these that are kept for the last journal entries, and again for the leases."""

_FOLLOW_PAUSE = 0.25
"""Seconds between two looks at the transcript of a CLI that does not report its changes."""


class StoreSession:
    """The store of one session.

    Args:
        store: the store.
        load_timeout: seconds that the store has to load the conversation.
        session_id: returns the id that the session has now.
        warn: reports a warning.
        fail: ends the session with an error.
    """

    def __init__(
        self,
        store: SessionStore,
        load_timeout: float,
        *,
        session_id: Callable[[], str],
        warn: Callable[[SdkWarning], None],
        fail: Callable[[SessionInUseError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._load_timeout = load_timeout
        self._session_id = session_id
        self._warn = warn
        self._leases: Leases | BorrowedLeases = Leases(store, fail, load_timeout)
        # By session id and lane. The spool of each has the session id in its name.
        self._writers: dict[tuple[str, str], StoreWriter] = {}
        self._directory = ""
        self._config: str | None = None
        self._cwd = ""
        self._keys: dict[str, SessionKey | None] = {}
        # The files of the session, each with the position up to which the store has it.
        self._tails: dict[str, TranscriptTail] = {}
        # The uuid of the last entry that the CLI reported, by file.
        self._last: dict[str, str] = {}
        self._has_lost_lines = False
        self._has_warned_of_subkeys = False
        self._decided: Collection[str] = ()
        self._needs_journal = False
        self._following: asyncio.Task[None] | None = None
        self._locks: SessionLocks | None = None
        self._return_locks: Callable[[SessionLocks], None] = SessionLocks.give_back
        #: Called when the store has the transcripts, to write the last entries of the journal.
        self.finish_journal: Callable[[float], Awaitable[None]] = _no_journal

    def borrow(
        self, leases: BorrowedLeases, return_locks: Callable[[SessionLocks], None] | None
    ) -> None:
        """Use the leases of a recovery or a run. Call it before the start.

        ``return_locks`` gets the locks of the CLI at the end. None releases them.
        """
        self._leases = leases
        self._return_locks = return_locks or SessionLocks.give_back

    def leave_out(self, decided: Collection[str]) -> None:
        """Set tool calls that may have waited for approval and no longer do."""
        self._decided = decided

    def need_journal(self) -> None:
        """Let the start fail if a part of the journal on this machine cannot be read."""
        self._needs_journal = True

    def keep(self, locks: SessionLocks) -> None:
        """Keep the locks of the CLI until the store has all entries, and no longer than that."""
        locks.is_kept = True
        self._locks = locks

    # -- starting ----------------------------------------------------------------------------------

    async def prepare(
        self,
        launch: Launch,
        resumed: str | None,
        *,
        continues: bool,
        cli_path: str | None,
        admit: Callable[[PendingApproval | None], None],
        lock: Callable[[str, float], Awaitable[None]],
        wait: float = 0.0,
    ) -> Launch:
        """Take the lock and the lease, and load the conversation that the session resumes.

        Args:
            launch: the launch of the session.
            resumed: the id of the conversation to resume. None for a new one.
            continues: True to resume the last conversation of the working directory.
            cli_path: the CLI, to find out whether it reports what it saves. None if it does.
            admit: gets the call of a resumed conversation that waits for approval. It may raise.
            lock: locks a conversation on this machine before it is loaded. It may wait for some
                seconds, and may raise. A store without leases has no other protection.
            wait: seconds to wait while another session has the lock or the lease.

        Returns:
            The launch to use.

        Raises:
            SessionInUseError: another session has the lease.
            SessionLoadError: the store or a local file failed.
        """
        free_by = self._loop.time() + wait
        self._config = place_of(launch).config
        self._cwd = working_directory(launch)
        is_silent = cli_path is not None and not await self._reports(cli_path, launch)
        if is_silent:
            launch = launch.without_mirror()
        asking = StartCalls(self._load_timeout)
        if continues and resumed is None:
            with naming_session(""):
                resumed = await self._last_session(asking)
            if resumed is None:
                # The journal needs the id of the session, so the CLI may not choose it.
                launch = launch.starting(str(uuid4()))
        # A fork does not change the conversation that it copies.
        is_fork = resumed is not None and launch.writes_id not in (None, resumed)
        written = launch.writes_id or resumed
        if written is not None:
            await lock(written, wait)
        if resumed is not None:
            if not is_fork:
                left = max(0.0, free_by - self._loop.time())
                await self._leases.take_when_free(resumed, partial(self._ask, resumed), left)
                asking = StartCalls(self._load_timeout)  # the wait does not count
            with naming_session(resumed):
                loader = self._loader(launch, resumed, asking, is_fork=is_fork)
                loaded = await loader.load(admit, needs_journal=self._needs_journal)
                launch = await self._resuming(launch, resumed, loaded, admit)
            if is_fork:
                self._tails.clear()  # the session does not write these files
        if launch.writes_id is not None:
            self._leases.take_soon(launch.writes_id)
        if is_silent:
            self._following = self._loop.create_task(self._follow(), name="bridle-transcript")
        return launch

    async def _ask(self, session_id: str, method: Callable[..., Awaitable[_T]], *more: Any) -> _T:
        """Call a method of the store, with the whole timeout."""
        return await StartCalls(self._load_timeout).ask(session_id, method, *more)

    async def _reports(self, cli_path: str, launch: Launch) -> bool:
        version = await version_of(cli_path, launch)
        return not isinstance(version, Version) or version >= MIRROR_SINCE

    async def _last_session(self, asking: StartCalls) -> str | None:
        """Return the id of the last conversation of the working directory, in the store or here."""
        listed = await asking.ask("", self._list)
        if listed is not None or self._config is None:
            return listed
        found = await in_thread(TranscriptFiles(self._cwd, self._config).list, 1, 0)
        return found[0].session_id if found else None

    async def _list(self) -> str | None:
        sessions = await self._store.list(project_name(self._cwd))
        # The id becomes the name of a file, so nothing but a UUID may come from a store.
        return next((one.session_id for one in sessions if is_uuid(one.session_id)), None)

    async def _resuming(
        self,
        launch: Launch,
        session_id: str,
        loaded: LoadedConversation | None,
        admit: Callable[[PendingApproval | None], None],
    ) -> Launch:
        """Make the launch resume what the store has, else what the files of the CLI have."""
        if loaded is not None:
            self._directory = loaded.directory
            self._watch(loaded.path, size_of(loaded.path))
            for path in await self._subagents(loaded.path):
                self._watch(path, size_of(path))
            return launch.resuming(session_id, loaded.path, loaded.directory)
        own = await self._find(session_id)
        if own is None:
            raise SessionNotFoundError(session_id)
        waiting = await in_thread(waiting_in_file, Path(own))
        if waiting is not None:  # the CLI would run it again
            refuse_begun(waiting, await self.begun_calls(session_id))
        admit(waiting)
        # The store does not have it yet, so it gets all of it.
        for path in (own, *await self._subagents(own)):
            await self._copy(self._watch(path, 0))
        return launch.resuming(session_id, own, "")

    async def begun_calls(self, session_id: str) -> dict[str, bool]:
        """Return the calls that have begun, by the journal, and whether a recovery is needed."""
        asking = StartCalls(self._load_timeout)
        loader = self._loader(None, session_id, asking, is_fork=True)
        with naming_session(session_id):
            return begun_calls(await loader.journal())

    def _loader(
        self, launch: Launch | None, session_id: str, asking: StartCalls, *, is_fork: bool
    ) -> ConversationLoader:
        return ConversationLoader(
            self._store,
            SessionKey(session_id, "", project_name(self._cwd)),
            asking,
            spool_name(self._store, session_id),
            self._warn,
            self._decided,
            None if launch is None else CliFiles(launch),
            None if is_fork else self._leases,  # a fork only reads what it copies
        )

    # -- copying -----------------------------------------------------------------------------------

    def add(self, action: act.Mirror) -> None:
        """Copy entries that the CLI reported. Never waits."""
        path = action.path
        if not path:
            self._has_lost_lines = True
            return
        key = self._key_of(path)
        if key is None:
            return
        if path not in self._tails:
            self._watch(path, 0)
            if not key.subkey:
                self._leases.take_soon(key.session_id)
        for entry in reversed(action.entries):
            if isinstance(uuid := entry.get("uuid"), str):
                self._last[path] = uuid
                break
        self._writer(key.session_id, "transcript").put(key, action.entries, action.size)

    def journal(self) -> Journal:
        """Return the journal of the session, as it is called now."""
        session_id = self._session_id()
        assert session_id, "a session with a store knows its id before it starts"
        key = SessionKey(session_id, JOURNAL, project_name(self._cwd))
        return Journal(self._writer(session_id, JOURNAL), key, self._hurry)

    def _hurry(self) -> None:
        """Append the entries of transcripts that wait, because a turn has ended.

        If the program dies now, the store has the turn.
        """
        for (_, lane), writer in self._writers.items():
            if lane != JOURNAL:
                writer.hurry()

    def _key_of(self, path: str) -> SessionKey | None:
        if path not in self._keys:
            key = self._keys[path] = key_of(path, project_name(self._cwd))
            if key is None:
                detail = "the CLI reported entries of a file that is not a transcript"
                self._warn(SdkWarning(WarningKind.STORE_FAILED, detail))
            elif (
                key.subkey
                and not isinstance(self._store, SubkeyStore)
                and not self._has_warned_of_subkeys
            ):
                self._has_warned_of_subkeys = True
                detail = (
                    f"{type(self._store).__name__} has no method 'subkeys': a session that is "
                    "resumed from it lacks the transcripts of its subagents"
                )
                self._warn(SdkWarning(WarningKind.STORE_FAILED, detail))
        return self._keys[path]

    def _writer(self, session_id: str, lane: str) -> StoreWriter:
        writer = self._writers.get((session_id, lane))
        if writer is None:
            spool = make_spool(self._store, session_id, lane)
            leases = self._leases
            after = leases.position(SessionKey(session_id, "", project_name(self._cwd))).last
            writer = StoreWriter(self._store, spool, self._warn, leases.append, after)
            self._writers[session_id, lane] = writer
        return writer

    # -- files -------------------------------------------------------------------------------------

    def _watch(self, path: str, position: int) -> TranscriptTail:
        tail = self._tails[path] = TranscriptTail(path, position)
        return tail

    async def _copy(self, tail: TranscriptTail) -> None:
        """Copy what was added to a file."""
        self._put(tail, await in_thread(tail.read))

    def _put(self, tail: TranscriptTail, added: Addition) -> None:
        key = self._key_of(tail.path)
        if key is not None:
            self._writer(key.session_id, "transcript").put(key, added.entries, added.size)
        tail.position = added.end

    async def _follow(self) -> None:
        """Copy what a CLI adds to its files, because it does not report it."""
        while True:
            await asyncio.sleep(_FOLLOW_PAUSE)
            with contextlib.suppress(OSError):  # reported at the end, unless it works then
                await self._copy_files()

    async def _copy_files(self) -> None:
        await self._find_files()
        for tail in list(self._tails.values()):
            await self._copy(tail)

    async def _find_files(self) -> None:
        """Find the files of the session that are not known yet."""
        session_id = self._session_id()
        if session_id and not self._has_main(session_id):
            path = await self._find(session_id)
            if path is not None:
                self._watch(path, 0)
                self._leases.take_soon(session_id)
        for main in [path for path, key in self._keys_of_tails() if key and not key.subkey]:
            for path in await self._subagents(main):
                if path not in self._tails:
                    self._watch(path, 0)

    async def _find(self, session_id: str) -> str | None:
        """Return the transcript that the CLI keeps of a session, if there is one."""
        if self._config is None:
            return None
        path = await in_thread(TranscriptFiles(None, self._config).path, session_id)
        return None if path is None else str(path)

    async def _subagents(self, path: str) -> list[str]:
        files = await in_thread(subagent_files, Path(path))
        return list(map(str, files.values()))

    def _has_main(self, session_id: str) -> bool:
        keys = (key for _, key in self._keys_of_tails())
        return any(key and key.session_id == session_id and not key.subkey for key in keys)

    def _keys_of_tails(self) -> list[tuple[str, SessionKey | None]]:
        return [(path, self._key_of(path)) for path in self._tails]

    async def read_files(self, *, is_clean: bool) -> None:
        """Copy what the CLI saved but did not report. Call it when the CLI has ended.

        A CLI that was killed may have saved more than it reported. ``is_clean`` is True if it
        ended by itself.
        """
        try:
            if self._following is not None:
                self._following.cancel()
                await asyncio.wait([self._following])
                await self._copy_files()
            elif self._has_lost_lines or not is_clean:
                await self._find_files()
                for path, tail in list(self._tails.items()):
                    after = None if self._has_lost_lines else self._last.get(path)
                    self._put(tail, await in_thread(tail.read_after, after))
        except OSError as error:
            problem = f"what the CLI saved cannot be read ({describe_error(error)})"
            name = type(self._store).__name__
            self._warn(SdkWarning(WarningKind.STORE_FAILED, f"{name}: {problem}"))

    async def flush(self) -> None:
        """Wait until the store has all entries so far. While the store fails, this waits."""
        for writer in list(self._writers.values()):
            await writer.flush()

    async def aclose(self, *, is_stopped: bool) -> None:
        """Wait for the store, then give the leases back and remove the files.

        Wait up to ten seconds, or two if the session was stopped. What the store does not have then
        is in a spool file.

        Cancellation: write the rest to the spool files, and give the leases back.
        """
        timeout = STOP_TIMEOUT if is_stopped else CLOSE_TIMEOUT
        share = min(_SHARE, timeout / 4)
        deadline = self._loop.time() + timeout
        if self._following is not None:
            self._following.cancel()
        # Each step, with the number of shares that it leaves for the next ones. The journal says
        # that outcomes were received, so it is complete before another machine gets the lease.
        steps: list[tuple[int, Callable[[float], Awaitable[None]]]] = [
            (2, partial(self._close_writers, journals=False)),
            (1, self.finish_journal),
            (1, partial(self._close_writers, journals=True)),
            (0, self._leases.aclose),
        ]
        failed: BaseException | None = None
        for shares, step in steps:
            try:
                await step(max(0.0, deadline - shares * share - self._loop.time()))
            except BaseException as error:
                failed = failed or error
                deadline = min(deadline, self._loop.time() + share)
        if self._locks is not None:
            self._return_locks(self._locks)
        remove_private_directory(self._directory)
        if failed is not None:
            raise failed

    async def _close_writers(self, timeout: float, *, journals: bool) -> None:
        deadline = self._loop.time() + timeout
        cancelled: asyncio.CancelledError | None = None
        for (_, lane), writer in list(self._writers.items()):
            if (lane == JOURNAL) is journals:
                try:
                    await writer.aclose(max(0.0, deadline - self._loop.time()))
                except asyncio.CancelledError as error:
                    cancelled, deadline = error, 0.0
        if cancelled is not None:
            raise cancelled


async def _no_journal(timeout: float) -> None:
    """Do nothing: the session has no journal."""
