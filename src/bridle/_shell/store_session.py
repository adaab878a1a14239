"""Connect a session with its store: load the conversation, copy new entries, hold the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from bridle._core import actions as act
from bridle._core.launch import Launch
from bridle._core.mirroring import key_of
from bridle._core.transcripts import project_name
from bridle._core.versions import Version
from bridle._option_checks import is_uuid
from bridle._shell.config_directory import place_of, working_directory
from bridle._shell.journal import Journal
from bridle._shell.leases import BorrowedLeases, Leases
from bridle._shell.locate import version_of
from bridle._shell.resuming import waiting_in_file
from bridle._shell.spool import make_spool, spool_name
from bridle._shell.store_loading import ConversationLoader, StartCalls, naming_session
from bridle._shell.store_writer import StoreWriter
from bridle._shell.transcript_files import TranscriptFiles, subagent_files
from bridle._shell.transcript_tail import Addition, TranscriptTail, size_of
from bridle._shell.tree import remove_directory
from bridle._store import JOURNAL, SessionKey, SessionStore, SubkeyStore
from bridle.approvals import PendingApproval
from bridle.errors import SessionInUseError, SessionNotFoundError
from bridle.events import SdkWarning, WarningKind

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
        self._leases: Leases | BorrowedLeases = Leases(store, uuid4().hex, fail)
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
        self._following: asyncio.Task[None] | None = None
        #: Called when the store has the transcripts, to write the last entries of the journal.
        self.finish_journal: Callable[[float], Awaitable[None]] = _no_journal

    def recover(self, leases: BorrowedLeases | None, decided: Collection[str]) -> None:
        """Prepare for a step of a recovery. Call it before the start.

        ``leases`` are those of the recovery. ``decided`` are tool calls that may have waited for
        approval and no longer do.
        """
        self._leases = leases or self._leases
        self._decided = decided

    # -- starting ----------------------------------------------------------------------------------

    async def prepare(
        self,
        launch: Launch,
        resumed: str | None,
        *,
        continues: bool,
        cli_path: str | None,
        admit: Callable[[PendingApproval | None], None],
        wait: float = 0.0,
    ) -> Launch:
        """Take the lease, and load the conversation that the session resumes.

        Args:
            launch: the launch of the session.
            resumed: the id of the conversation to resume. None for a new one.
            continues: True to resume the last conversation of the working directory.
            cli_path: the CLI, to find out whether it reports what it saves. None if it does.
            admit: gets the call of a resumed conversation that waits for approval. It may raise.
            wait: seconds to wait while another session has the lease.

        Returns:
            The launch to use.

        Raises:
            SessionInUseError: another session has the lease.
            SessionLoadError: the store or a local file failed.
        """
        self._config = place_of(launch).config
        self._cwd = working_directory(launch)
        if cli_path is not None and not await self._reports(cli_path, launch):
            launch = launch.without_mirror()
            self._following = self._loop.create_task(self._follow(), name="bridle-transcript")
        asking = StartCalls(self._load_timeout)
        if continues and resumed is None:
            with naming_session(""):
                resumed = await self._last_session(asking)
            if resumed is None:
                # The journal needs the id of the session, so the CLI may not choose it.
                launch = launch.starting(str(uuid4()))
        # A fork does not change the conversation that it copies.
        is_fork = resumed is not None and launch.writes_id not in (None, resumed)
        if resumed is not None:
            if not is_fork:
                await self._leases.take_when_free(resumed, partial(self._ask, resumed), wait)
                asking = StartCalls(self._load_timeout)  # the wait does not count
            with naming_session(resumed):
                launch = await self._load(launch, resumed, asking, admit)
            if is_fork:
                self._tails.clear()  # the session does not write these files
        if launch.writes_id is not None:
            self._leases.take_soon(launch.writes_id)
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
        found = await self._in_thread(TranscriptFiles(self._cwd, self._config).list, 1, 0)
        return found[0].session_id if found else None

    async def _list(self) -> str | None:
        sessions = await self._store.list(project_name(self._cwd))
        # The id becomes the name of a file, so nothing but a UUID may come from a store.
        return next((one.session_id for one in sessions if is_uuid(one.session_id)), None)

    async def _load(
        self,
        launch: Launch,
        session_id: str,
        asking: StartCalls,
        admit: Callable[[PendingApproval | None], None],
    ) -> Launch:
        """Make the launch resume what the store has, else what the files of the CLI have."""
        loaded = await self._loader(session_id, asking).load(admit)
        if loaded is not None:
            self._directory = loaded.directory
            self._watch(loaded.path, size_of(loaded.path))
            for path in await self._subagents(loaded.path):
                self._watch(path, size_of(path))
            return launch.resuming(session_id, loaded.path, loaded.directory)
        own = await self._find(session_id)
        if own is None:
            raise SessionNotFoundError(session_id)
        admit(await self._in_thread(waiting_in_file, Path(own)))
        # The store does not have it yet, so it gets all of it.
        for path in (own, *await self._subagents(own)):
            await self._copy(self._watch(path, 0))
        return launch.resuming(session_id, own, "")

    def _loader(self, session_id: str, asking: StartCalls) -> ConversationLoader:
        spools = spool_name(self._store, session_id)
        key = SessionKey(session_id, "", project_name(self._cwd))
        return ConversationLoader(self._store, key, asking, spools, self._warn, self._decided)

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
        return Journal(self._writer(session_id, JOURNAL), key)

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
            writer = StoreWriter(self._store, spool, self._warn)
            self._writers[session_id, lane] = writer
        return writer

    # -- files -------------------------------------------------------------------------------------

    def _watch(self, path: str, position: int) -> TranscriptTail:
        tail = self._tails[path] = TranscriptTail(path, position)
        return tail

    async def _copy(self, tail: TranscriptTail) -> None:
        """Copy what was added to a file."""
        self._put(tail, await self._in_thread(tail.read))

    def _put(self, tail: TranscriptTail, added: Addition) -> None:
        key = self._key_of(tail.path)
        if key is not None:
            self._writer(key.session_id, "transcript").put(key, added.entries, added.size)
        tail.position = added.end

    async def _follow(self) -> None:
        """Copy what a CLI adds to its files, because it does not report it."""
        while True:
            await asyncio.sleep(_FOLLOW_PAUSE)
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
        path = await self._in_thread(TranscriptFiles(None, self._config).path, session_id)
        return None if path is None else str(path)

    async def _subagents(self, path: str) -> list[str]:
        files = await self._in_thread(subagent_files, Path(path))
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
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
            await self._copy_files()
        elif self._has_lost_lines or not is_clean:
            await self._find_files()
            for path, tail in list(self._tails.items()):
                after = None if self._has_lost_lines else self._last.get(path)
                self._put(tail, await self._in_thread(tail.read_after, after))

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
        remove_directory(self._directory)
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

    async def _in_thread(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return await self._loop.run_in_executor(None, function, *arguments)


async def _no_journal(timeout: float) -> None:
    """Do nothing: the session has no journal."""
