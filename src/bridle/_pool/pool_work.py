"""The work of a pool: start processes in advance, and run jobs and sessions in them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, structs

from bridle._engine.versions import Version
from bridle._pool.keys import Conversation, PoolKeys
from bridle._pool.places import Places
from bridle._pool.pooled import Pooled, PooledRun, PooledSession, launch_in
from bridle._pool.table import PoolLimits, PoolMetrics, PoolTable, Source
from bridle._process.config_directory import working_directory
from bridle._process.launch.plan import Launch
from bridle._process.launch.real_api import keep_on_loopback
from bridle._process.locate import find_cli, version_of
from bridle._process.parked import CLAIM_SINCE, ParkedCli
from bridle._records.fields import integer, line, positive
from bridle._session.connection.session_plan import SessionPlan
from bridle._session.deps import with_prompts, without_functions
from bridle._session.not_given import given_or
from bridle._session.resume import Resumption, deciding
from bridle._session.run import check_retry
from bridle._session.session import InnerSession
from bridle.approvals import PendingApproval, check_pending
from bridle.content import Content
from bridle.errors import (
    CliExitedDuringInit,
    InitializationError,
    InitializationTimeout,
    OptionsError,
    SpawnError,
    StartError,
    UsageError,
)
from bridle.options import Retry
from bridle.options._keywords import conversation, refuse_conversation
from bridle.outcomes import Outcome
from bridle.sessions._waiting_calls import check_waiting

if TYPE_CHECKING:
    from bridle._session.agent_plan import AgentPlan

log = logging.getLogger("bridle.pool")

Directory: TypeAlias = str | os.PathLike[str] | None

_NOT_IN_POOL = "A pool chooses its conversations itself. Use pool.session(key=...)."

_EARLY_HOOKS = ("SessionStart", "Setup")
"""Hooks that a CLI without a claim runs at its start, before it has the handshake."""

_OF_PROCESS = (SpawnError, InitializationError, InitializationTimeout, CliExitedDuringInit)
"""Errors of a ready process that a new process may not have."""

_MAX_UNCLAIMABLE = 1000
"""Directories that are remembered as not claimable."""

_MAX_AGE = 3600.0
"""Seconds after which a process is replaced, when no caller uses it."""

_DRAIN = 30.0
"""Seconds that sessions and runs in progress have when the pool is closed."""

_count = integer(1)


class PoolPlan(Struct, frozen=True, kw_only=True):
    """The checked arguments of a pool."""

    agent: AgentPlan
    limits: PoolLimits
    timeout: float | None
    retry: Retry | None

    @classmethod
    def make(
        cls,
        agent: AgentPlan,
        refused: Mapping[str, object],
        *,
        size: int,
        max_idle: float | None,
        timeout: float | None,
        retry: Retry | None,
    ) -> PoolPlan:
        """Check the arguments.

        Raises:
            OptionsError: an argument is invalid.
        """
        refuse_conversation(dict.fromkeys(conversation(refused), True), _NOT_IN_POOL)
        _count("size", size)
        for name, seconds in (("max_idle", max_idle), ("timeout", timeout)):
            if seconds is not None:
                positive(name, seconds)
        check_retry(retry)
        limits = PoolLimits(size=size, ready=size, max_idle=max_idle, max_age=_MAX_AGE)
        return cls(agent=agent, limits=limits, timeout=timeout, retry=retry)


class SessionRequest(Struct, frozen=True):
    """The checked arguments of one `session` of a pool."""

    key: str | None
    agent: AgentPlan
    deps: Any
    timeout: float | None
    #: Whether the caller gave a working directory.
    has_directory: bool
    #: Seconds to wait while another program uses the conversation of the key.
    wait: float = 0.0
    #: Called with a new session before it starts. The session keeps the result.
    show: Callable[[InnerSession], object] = lambda _: None


class Borrowed(Struct, frozen=True):
    """A session that a caller has."""

    place: int
    key: str | None
    session: PooledSession


class Loan:
    """One use of a session of the pool: `enter`, then `leave`."""

    def __init__(self, work: PoolWork, request: SessionRequest) -> None:
        self._work = work
        self._request = request
        self._is_entered = False
        self._borrowed: Borrowed | None = None

    async def enter(self) -> PooledSession:
        """Borrow the session.

        Raises:
            UsageError: it is borrowed already, or the pool is closed.
            PoolTimeout: no process was free in time.
            StartError: the session did not start.
        """
        if self._is_entered:
            fix = "Call pool.session() once for each block."
            raise UsageError("This session is already borrowed.", fix=fix)
        self._is_entered = True
        try:
            self._borrowed = await self._work.lend(self._request)
        except BaseException:
            self._is_entered = False
            raise
        return self._borrowed.session

    async def leave(self) -> None:
        """Give the session back. Does nothing if it is not borrowed."""
        borrowed, self._borrowed = self._borrowed, None
        if borrowed is not None:
            self._is_entered = False
            await self._work.take_back(borrowed)


class PoolWork:
    """The processes of a pool, and what runs in them."""

    def __init__(self, plan: PoolPlan) -> None:
        self._plan = plan
        self._agent = plan.agent
        self._options = without_functions(plan.agent.options)
        self._places: Places | None = None
        self._is_opening = self._is_closed = False
        self._keys = PoolKeys(None, 0.0)
        self._path = ""
        # The directory of the agent, in which ready processes are started.
        self._home = ""
        # Whether ready processes wait for a claim, so that they can work in any directory.
        self._claims = False
        # Directories with settings that a claimed process cannot apply.
        self._unclaimable: set[str] = set()
        self._hurry = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    # -- opening and closing -----------------------------------------------------------------------

    async def open(self) -> None:
        """Find the CLI, and start the processes to keep ready.

        Raises:
            UsageError: the pool was opened before, or was closed meanwhile.
            CliNotFoundError: there is no CLI.
        """
        if self._is_opening:
            raise UsageError("This pool was already opened.", fix="Create another agent.pool().")
        self._is_opening = True
        sample = SessionPlan(self._options, self._agent.deps)
        launch = sample.check()
        self._home = working_directory(launch)
        limits, cli, is_real = self._plan.limits, self._options.cli, True
        if self._options.bidir.transport_factory is not None:
            is_real = False
        else:
            self._path = find_cli(None if cli.cli_path is None else os.fspath(cli.cli_path))
            if not self._options.sdk.skip_version_check:
                # A pool without the version would keep no process for a claim. On a busy machine
                # the CLI needs as long for it as for its start.
                wait = self._options.sdk.init_timeout
                version = await version_of(self._path, launch, timeout=wait)
                self._claims = isinstance(version, Version) and version >= CLAIM_SINCE
        if self._is_closed:
            fix = "Create another one: agent.pool()."
            raise UsageError("This pool was closed while it was opened.", fix=fix)
        if not is_real or not (self._claims or self._can_start_early()):
            limits = structs.replace(limits, ready=0)
        self._keys = PoolKeys(sample.store, self._options.sdk.load_timeout)
        self._places = Places(limits, self._park, self._keys)
        self._places.open()

    async def close(self, *, hurry: bool = False) -> None:
        """Close the pool and return when its processes have exited.

        With ``hurry``, or if the call is cancelled, shut down at once what is in progress.
        """
        if hurry:
            self._hurry.set()
        self._is_closed = self._is_opening
        if self._places is None:
            return
        places = self.places
        if self._closing is None:
            work = places.drain(_DRAIN, self._hurry)
            self._closing = places.loop.create_task(work, name="bridle-pool")
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            self._hurry.set()
            await asyncio.shield(self._closing)
            raise

    @property
    def metrics(self) -> PoolMetrics:
        """Return the numbers of the pool."""
        if self._places is None:
            return PoolTable(self._plan.limits).metrics()
        return self._places.table.metrics()

    @property
    def places(self) -> Places:
        """Return the places. Raise UsageError if the pool is not open on this event loop."""
        if self._places is None:
            fix = "Use it in `async with agent.pool() as pool`."
            raise UsageError("This pool is not open.", fix=fix)
        if asyncio.get_running_loop() is not self._places.loop:
            raise UsageError(
                "A pool belongs to the event loop that it was opened on.",
                fix="Call it there, or use agent.sync.pool(), which works from every thread.",
            )
        return self._places

    # -- runs --------------------------------------------------------------------------------------

    def job(
        self,
        prompt: Content,
        cwd: Directory,
        refused: Mapping[str, object],
        *,
        retry: Retry | None,
        **arguments: Any,
    ) -> Callable[[], PooledRun]:
        """Check the arguments of a run. Return a function that makes the run.

        Raises:
            OptionsError: an argument or the prompt is invalid.
        """
        refuse_conversation(dict.fromkeys(conversation(refused), True), _NOT_IN_POOL)
        agent = self._agent.in_directory(cwd)
        retry = given_or(retry, self._plan.retry)

        def make() -> PooledRun:
            return agent.run_of(PooledRun, prompt, {}, retry=retry, **arguments)

        agent.check_run(prompt, retry=retry, **arguments)
        return make

    async def run(self, make: Callable[[], PooledRun], timeout: float | None) -> Outcome[Any]:
        """Wait for a process, and run a job in it."""
        job = make()
        launch = job.pooled.launch
        takes_ready = self._takes_ready(working_directory(launch), lambda: launch)
        place, source = await self._borrow(None, timeout, takes_ready=takes_ready)
        try:
            return await self.places.work(place, self._run(place, source, job, make))
        finally:
            await self.places.end(place)

    async def _run(
        self, place: int, source: Source, job: PooledRun, make: Callable[[], PooledRun]
    ) -> Outcome[Any]:
        places = self.places
        parked = places.take_parked(place, source)
        places.put(place, job)
        if parked is not None:
            try:
                if self._fits(parked, job.pooled):
                    outcome = await job.outcome()
                    places.table.came_up()
                    return outcome
            except _OF_PROCESS as error:
                self._note_refusal(job.pooled, error)
                job = make()
                places.put(place, job)
            finally:
                await parked.aclose()
        return await job.outcome()

    # -- sessions ----------------------------------------------------------------------------------

    def request(
        self,
        key: str | None,
        cwd: Directory,
        deps: Any,
        timeout: float | None,
        wait: float | None,
        refused: Mapping[str, object],
    ) -> SessionRequest:
        """Check the arguments of a session.

        Raises:
            OptionsError: an argument is invalid.
        """
        refuse_conversation(dict.fromkeys(conversation(refused), True), _NOT_IN_POOL)
        if key is not None:
            _check_key(key)
            if self._options.cli.no_session_persistence:
                problem = "needs conversations that the CLI saves"
                raise OptionsError("key", problem, fix="Remove no_session_persistence.")
        timeout = self._checked_timeout(timeout)
        agent = self._agent.in_directory(cwd).waiting(wait)
        deps = self._agent.deps_or(deps)
        return SessionRequest(key, agent, deps, timeout, cwd is not None, wait or 0.0)

    async def lend(self, request: SessionRequest) -> Borrowed:
        """Wait for a process, and return a session that runs in it.

        Raises:
            PoolTimeout: no process was free in time.
            StartError: the session did not start.
            UsageError: the pool is closed.
        """
        key, known = request.key, None
        if key is not None:
            known = self._here(self._keys.known(key) or await self._keys.load(key), request)
            self._check_directory(request, known)
        new = request.agent.session_plan
        takes_ready = known is None and self._takes_ready(
            _directory(request.agent), lambda: new({}, request.deps).check()
        )
        place, source = await self._borrow(key, request.timeout, takes_ready=takes_ready)
        places = self.places
        try:
            session = await places.work(place, self._session(place, source, request))
        except BaseException:
            if source is Source.IDLE:
                places.give_back(place)
            else:
                await places.end(place)
            raise
        return Borrowed(place, key, session)

    async def _session(self, place: int, source: Source, request: SessionRequest) -> PooledSession:
        """Return a session that runs in a place that was lent."""
        places, keys, key = self.places, self._keys, request.key
        if key is None:
            return await self._open(place, source, request, None)
        if source is Source.IDLE:
            session = places.session_in(place)
            assert isinstance(session, PooledSession)
            is_healthy = await session.is_healthy() and not keys.may_be_old(key)
            if is_healthy and session.may_stay() and self._suits(session, request):
                session.lend(request.deps)
                return session
            log.info("The idle process of a key cannot be used, so it is replaced.")
            await (session.aclose() if is_healthy else session.connection.stop())
            places.table.restarted(place, places.loop.time())
        await keys.take(key, lambda error: places.fail(place, error), request.wait)
        # Another program may have used the key until now.
        known = self._here(await keys.load(key), request)
        self._check_directory(request, known)
        session = await self._open(place, source, request, known)
        keys.check(key)
        return session

    def _suits(self, session: PooledSession, request: SessionRequest) -> bool:
        """Return True if the idle session of a key is as the caller wants it.

        Raises:
            OptionsError: the conversation has another directory.
        """
        here = working_directory(session.launch)
        if request.has_directory and _directory(request.agent) != here:
            if session.part.has_prompts:
                self._check_directory(request, Conversation("", here))
            return False
        # System prompts may be functions of `deps`.
        return session.has_prompts_of(with_prompts(request.agent.options, request.deps))

    async def take_back(self, borrowed: Borrowed) -> None:
        """Close a session, or keep it for the next caller with its key.

        Cancelling does not stop it.

        Raises:
            StoreError: the conversation was cleared, and the store failed.
            SessionInUseError: the conversation was cleared, and another program has the key.
        """
        if borrowed.key is None:
            await self.places.end(borrowed.place)
        else:
            work = self._take_back(borrowed.place, borrowed.key, borrowed.session)
            await self.places.finish(work)

    async def _take_back(self, place: int, key: str, session: PooledSession) -> None:
        try:
            if self._keys.is_lost(key):
                pass  # the conversation of the key is that of another program
            elif session.part.has_prompts and session.session.id is not None:
                # The id changes if the conversation is cleared.
                directory = working_directory(session.launch)
                used = Conversation(session.session.id, directory, session.has_schedule)
                await self._keys.refresh(key, used)
            elif session.is_saved and not session.part.has_prompts:
                # It was saved for a first prompt that was not sent.
                session.is_saved = not await self._keys.undo(key)
        finally:
            if session.session.pending is None:
                self.places.give_back(place)
            else:  # wait for its end, so that the call can be resumed at once
                await self.places.end(place)

    async def resume(
        self,
        key: str,
        pending: PendingApproval | None,
        deps: Any,
        timeout: float | None,
        wait: float | None,
        make: Callable[[AgentPlan, PendingApproval], Resumption],
    ) -> Outcome[Any]:
        """Decide about the tool call of a key that waits for approval, and finish its turn.

        ``pending`` is the call that the person saw. None means the call that waits now. ``make``
        gets the agent in the directory of the conversation, and the call.
        """
        request, places = self.request(key, None, deps, timeout, wait, {}), self.places
        pending = (await self._waiting(key, request))[0] if pending is None else pending
        place, source = await self._borrow(key, request.timeout, takes_ready=False)
        try:
            if source is Source.IDLE:
                await places.session_in(place).aclose()
            with deciding():
                return await places.work(place, self._resume(place, key, request, pending, make))
        finally:
            await places.end(place)

    async def _waiting(self, key: str, request: SessionRequest) -> tuple[PendingApproval, str]:
        """Return the call of a key that waits for approval, and its directory. Starts nothing."""
        known = self._here(await self._keys.load(key), request)
        waiting = None if known is None else await self._make(request, known).find_waiting()
        if known is None or waiting is None:
            fix = "It may have been decided. Send a prompt in `async with pool.session(key=...)`."
            raise UsageError(f"No call of the key {key!r:.80} waits for approval.", fix=fix)
        return waiting, known.cwd

    async def _resume(
        self,
        place: int,
        key: str,
        request: SessionRequest,
        pending: PendingApproval,
        make: Callable[[AgentPlan, PendingApproval], Resumption],
    ) -> Outcome[Any]:
        keys, places = self._keys, self.places
        await keys.take(key, lambda error: places.fail(place, error), request.wait)
        waiting, cwd = await self._waiting(key, request)
        check_waiting(check_pending(pending), waiting)
        job = make(request.agent.in_directory(cwd), waiting)
        shown = job.show(job)  # keeps it alive
        places.put(place, job)
        try:
            return await job.outcome()
        finally:
            del shown

    async def forget(self, key: str) -> None:
        """Let a key begin a new conversation with its next use.

        Raises:
            UsageError: a caller uses the key, or the pool is closed.
            SessionInUseError: another program uses the key.
            SessionLoadError: the store failed.
        """
        _check_key(key)
        await self.places.work(None, self._forget(key))

    async def _forget(self, key: str) -> None:
        async with self.places.reserved(key):
            await self._keys.forget(key)

    def _here(self, known: Conversation | None, request: SessionRequest) -> Conversation | None:
        """Return a conversation with a directory of this machine.

        It may come from a machine with other directories.
        """
        if known is None or not self._keys.is_shared or os.path.isdir(known.cwd):
            return known
        return structs.replace(known, cwd=_directory(request.agent))

    def _check_directory(self, request: SessionRequest, known: Conversation | None) -> None:
        if known is None or not request.has_directory:
            return
        if _directory(request.agent) != known.cwd:
            problem = f"must be {known.cwd!r}, the directory of the conversation of this key"
            raise OptionsError("cwd", problem, fix="Leave it out, or use another key.")

    def _make(self, request: SessionRequest, known: Conversation | None) -> PooledSession:
        """Return a session that is not started. ``known`` is the conversation to resume."""
        agent, chosen = request.agent, {}
        if known is not None:
            agent, chosen = agent.in_directory(known.cwd), {"resume_session_id": known.session_id}
        session = PooledSession(
            agent.session_plan(chosen, request.deps),
            has_prompts=known is not None,
            had_schedule=known is not None and known.has_schedule,
        )
        session.shown = request.show(session.session)
        return session

    async def _open(
        self, place: int, source: Source, request: SessionRequest, known: Conversation | None
    ) -> PooledSession:
        """Start a session in a place.

        Raises:
            StartError: it did not start.
        """
        places, session = self.places, self._make(request, known)
        parked = places.take_parked(place, source)
        places.put(place, session)
        if parked is not None:
            try:
                if known is None and self._fits(parked, session):
                    await session.connect()
                    places.table.came_up()
                    return self._watched(place, request.key, session)
            except _OF_PROCESS as error:
                if request.key is not None:
                    self._keys.check(request.key)
                self._note_refusal(session, error)
                session = self._make(request, known)
                places.put(place, session)
            finally:
                await parked.aclose()
        await session.connect()
        return self._watched(place, request.key, session)

    def _watched(self, place: int, key: str | None, session: PooledSession) -> PooledSession:
        """Close the place if the session ends or begins a turn while it is idle.

        Save the conversation of a key before its first prompt, so that it can be resumed.
        """
        places = self.places
        session.on_end(lambda: places.drop(place, session, "has exited"))
        session.on_turn(lambda: places.drop(place, session, "began a turn by itself"))
        if key is not None and not session.part.has_prompts:
            session.part.before_prompts = lambda: self._save(key, session)
        return session

    async def _save(self, key: str, session: PooledSession) -> None:
        if session.session.id is not None:
            # The store may have it even if the call fails or is cancelled.
            session.is_saved = True
            directory = working_directory(session.launch)
            await self._keys.save(key, Conversation(session.session.id, directory))

    # -- processes ---------------------------------------------------------------------------------

    async def _borrow(
        self, key: str | None, timeout: float | None, *, takes_ready: bool
    ) -> tuple[int, Source]:
        """Wait for a place. See `Places.borrow`."""
        timeout = self._checked_timeout(timeout)
        return await self.places.borrow(key, timeout, takes_ready=takes_ready)

    def _takes_ready(self, directory: str, launch: Callable[[], Launch]) -> bool:
        """Return True if a new conversation in this directory can use a ready process.

        ``launch`` returns how its CLI would be started.
        """
        if not self._claims:
            return directory == self._home
        if directory in self._unclaimable:
            return False
        # An option may be a path that depends on the directory.
        return directory == self._home or launch_in(launch(), self._ready_launch()) is not None

    def _ready_launch(self) -> Launch:
        """Return how ready processes are started."""
        launch = SessionPlan(self._options, self._agent.deps).check()
        return launch.awaiting_claim() if self._claims else launch

    def _checked_timeout(self, timeout: float | None) -> float | None:
        timeout = given_or(timeout, self._plan.timeout)
        if timeout is not None:
            positive("timeout", timeout)
        return timeout

    def _can_start_early(self) -> bool:
        """Return False if a process that waits without a claim would miss hooks of the agent."""
        hooks = self._options.bidir.all_hooks()
        return not any(event in hooks for event in _EARLY_HOOKS)

    def _park(self, on_exit: Callable[[ParkedCli], None]) -> ParkedCli:
        """Start a process that waits for a session.

        Raises:
            StartError: it did not start, or would be of no use.
        """
        launch = self._ready_launch()
        if not self._claims and not self._can_start_early():
            raise StartError("The agent has hooks for the start of a session.")
        return ParkedCli(self._path, keep_on_loopback(self._path, launch, os.environ), on_exit)

    def _fits(self, parked: ParkedCli, session: Pooled) -> bool:
        """Give a ready process to a session. Return False if the session cannot use it."""
        if not parked.is_alive:
            return False
        directory = working_directory(session.launch)
        is_refused = parked.launch.awaits_claim and directory in self._unclaimable
        return not is_refused and session.take(parked)

    def _note_refusal(self, session: Pooled, error: StartError) -> None:
        """Note that a ready process could not be used. A new process is started instead."""
        log.info("A ready process could not be used, so another one is started: %s", error)
        if isinstance(error, InitializationError) and "not_claimable" in error.message:
            directory = working_directory(session.launch)
            if len(self._unclaimable) >= _MAX_UNCLAIMABLE:
                self._unclaimable.clear()
            self._unclaimable.add(directory)
            if directory == self._home:
                # Processes that wait for a claim are of no use in the agent's own directory.
                self._claims = False


def _directory(agent: AgentPlan) -> str:
    """Return the directory that the CLI of an agent works in, without links."""
    return os.path.realpath(agent.options.cli.cwd or os.getcwd())


def _check_key(key: object) -> None:
    """Raise OptionsError if this is not a key."""
    if line("key", key) == "":
        raise OptionsError("key", "must not be empty", fix="Use a name, such as 'user-7'.")
