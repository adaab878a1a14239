"""`SyncPool`: the blocking twin of `Pool`."""

from __future__ import annotations

import os
from functools import partial
from types import TracebackType
from typing import Any, Generic, Never, NoReturn, Self, TypeVar, cast, overload

from msgspec import structs

from bridle import sync as blocking
from bridle._core.pool import PoolMetrics
from bridle._doors.agent_plan import AgentPlan
from bridle._doors.not_given import NOT_GIVEN
from bridle._doors.pool_work import Loan, PoolPlan, PoolWork, SessionRequest
from bridle._doors.pooled import PooledRun
from bridle._doors.portal import Portal, portal
from bridle._doors.resume import Resumption
from bridle.approvals import PendingApproval
from bridle.content import Content
from bridle.errors import UsageError
from bridle.options import Retry
from bridle.outcomes import Outcome, Output
from bridle.permissions import PermissionResult

Deps = TypeVar("Deps")


class SyncPoolSession:
    """A session of a pool that is not borrowed yet. Use it in ``with``."""

    def __init__(self, home: Portal, work: PoolWork, request: SessionRequest) -> None:
        self._portal = home
        # Tools get a blocking session as their context.
        self._loan = Loan(work, structs.replace(request, show=blocking.RunSession))

    def __enter__(self) -> blocking.Session:
        session = self._portal.call("pool.session", self._loan.enter, self._leave_soon)
        return cast("blocking.Session", session.shown)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._portal.is_over:
            self._portal.call("pool.session", self._loan.leave, self._leave_soon)

    def _leave_soon(self) -> None:
        """Give the session back after Ctrl-C, which may come when this thread does not know it."""
        self._portal.start(self._loan.leave)

    def __repr__(self) -> str:
        return "<a session of a pool that is not borrowed: use it in `with`>"


class SyncPool(Generic[Deps]):
    """A :class:`Pool` with blocking methods. Get it from ``agent.sync.pool(...)``.

    Use it in ``with``. Any thread may use it at any time. See `bridle.sync` for callbacks and
    Ctrl-C.
    """

    def __init__(self, plan: PoolPlan) -> None:
        self._plan = plan
        self._made: tuple[Portal, PoolWork] | None = None

    def __enter__(self) -> Self:
        if self._made is not None:
            raise UsageError("This pool was already opened.", fix="Create another one.")
        home, work = portal(), PoolWork(self._plan)
        self._made = home, work
        home.call("pool", work.open, lambda: home.start(work.close))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(hurry=kind is not None and issubclass(kind, KeyboardInterrupt))

    @property
    def _opened(self) -> tuple[Portal, PoolWork]:
        if self._made is None:
            fix = "Use it in `with agent.sync.pool() as pool`."
            raise UsageError("This pool is not open.", fix=fix)
        return self._made

    def close(self) -> None:
        """Close the pool and return when its processes have exited.

        See ``Pool.aclose``. Ctrl-C shuts down what is in progress.
        """
        self._close(hurry=False)

    def _close(self, *, hurry: bool) -> None:
        if self._made is not None and not self._made[0].is_over:
            home, work = self._made
            at_once = partial(work.close, hurry=True)
            home.call("pool.close", partial(work.close, hurry=hurry), lambda: home.start(at_once))

    def aclose(self) -> None:
        """Close the pool and return when its processes have exited.

        The same as :meth:`close`.
        """
        self.close()

    @property
    def metrics(self) -> PoolMetrics:
        """Return the numbers of the pool: its processes, its callers, how callers were served."""
        if self._made is None:
            return PoolWork(self._plan).metrics
        home, work = self._made

        async def read() -> PoolMetrics:
            return work.metrics

        return home.call("pool.metrics", read)

    @overload
    def run(
        self,
        prompt: Content,
        *,
        output_type: type[Output],
        output_retries: int = ...,
        retry: Retry | None = ...,
        keep_messages: bool = ...,
        deps: Deps | None = ...,
        cwd: str | os.PathLike[str] | None = ...,
        timeout: float | None = ...,
        **refused: Never,
    ) -> Outcome[Output]: ...

    @overload
    def run(
        self,
        prompt: Content,
        *,
        output_type: Any = ...,
        output_retries: int = ...,
        retry: Retry | None = ...,
        keep_messages: bool = ...,
        deps: Deps | None = ...,
        cwd: str | os.PathLike[str] | None = ...,
        timeout: float | None = ...,
        **refused: Never,
    ) -> Outcome[Any]: ...

    def run(
        self,
        prompt: Content,
        *,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        retry: Retry | None = NOT_GIVEN,
        keep_messages: bool = False,
        deps: Deps | None = NOT_GIVEN,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = NOT_GIVEN,
        **refused: Never,
    ) -> Outcome[Any]:
        """Run one prompt in a new conversation and return its outcome.

        See ``Pool.run``. Ctrl-C leaves the queue, or shuts down the CLI.
        """
        home, work = self._opened
        make = work.job(
            prompt,
            cwd,
            refused,
            output_type=output_type,
            output_retries=output_retries,
            retry=retry,
            keep_messages=keep_messages,
            deps=deps,
        )

        def make_shown() -> PooledRun:
            job = make()
            job.show = blocking.RunSession
            job.shown = blocking.RunSession(job)  # tools get a blocking session as their context
            return job

        return home.call("run", lambda: work.run(make_shown, timeout))

    def session(
        self,
        key: str | None = None,
        *,
        deps: Deps | None = NOT_GIVEN,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = NOT_GIVEN,
        wait: float | None = None,
        **refused: Never,
    ) -> SyncPoolSession:
        """Borrow a session: ``with pool.session(key="user-7") as session``.

        See ``Pool.session``.
        """
        home, work = self._opened
        return SyncPoolSession(home, work, work.request(key, cwd, deps, timeout, wait, refused))

    @overload
    def resume(
        self,
        key: str,
        decision: PermissionResult,
        *,
        pending: PendingApproval | None = ...,
        output_type: type[Output],
        output_retries: int = ...,
        keep_messages: bool = ...,
        deps: Deps | None = ...,
        timeout: float | None = ...,
    ) -> Outcome[Output]: ...

    @overload
    def resume(
        self,
        key: str,
        decision: PermissionResult,
        *,
        pending: PendingApproval | None = ...,
        output_type: Any = ...,
        output_retries: int = ...,
        keep_messages: bool = ...,
        deps: Deps | None = ...,
        timeout: float | None = ...,
    ) -> Outcome[Any]: ...

    def resume(
        self,
        key: str,
        decision: PermissionResult,
        *,
        pending: PendingApproval | None = None,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        keep_messages: bool = False,
        deps: Deps | None = NOT_GIVEN,
        timeout: float | None = NOT_GIVEN,
    ) -> Outcome[Any]:
        """Decide about the tool call of a key that waits for approval, and return its outcome.

        See ``Pool.resume``. Ctrl-C shuts down the CLI.
        """
        home, work = self._opened

        def make(agent: AgentPlan, call: PendingApproval) -> Resumption:
            job = agent.resume(
                call,
                decision,
                NOT_GIVEN,
                output_type=output_type,
                output_retries=output_retries,
                retry=None,
                keep_messages=keep_messages,
                deps=deps,
            )
            job.show = blocking.RunSession  # tools get a blocking session as their context
            return job

        return home.call("pool.resume", lambda: work.resume(key, pending, deps, timeout, make))

    def forget(self, key: str) -> None:
        """Let a key begin a new conversation with its next use. The transcript stays.

        See ``Pool.forget``.
        """
        home, work = self._opened
        home.call("pool.forget", partial(work.forget, key))

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: a pool holds processes of this program."""
        raise TypeError("A SyncPool cannot be pickled. Create one in each process.")

    def __repr__(self) -> str:
        return f"<a pool of {self._plan.limits.size} processes, with blocking methods>"
