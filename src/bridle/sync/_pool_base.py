"""What `SyncPool` stands on: a pool on the event loop, and the session that it lends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar, cast

from msgspec import structs

from bridle import sync as blocking
from bridle._pool.pool_work import Loan, PoolPlan, PoolWork, SessionRequest
from bridle._pool.pooled import PooledRun
from bridle._pool.table import PoolMetrics
from bridle._session.agent_plan import AgentPlan
from bridle._session.resume import Resumption
from bridle.approvals import PendingApproval
from bridle.errors import UsageError
from bridle.sync._doors import RunSession, shown
from bridle.sync._portal import Portal, Work, portal

_T = TypeVar("_T")


class SyncPoolSession:
    """A session of a pool that is not borrowed yet. Use it in ``with``."""

    def __init__(self, home: Portal, work: PoolWork, request: SessionRequest) -> None:
        self._portal = home
        # Tools get a blocking session as their context.
        self._loan = Loan(work, structs.replace(request, show=RunSession))

    def __enter__(self) -> blocking.Session:
        session = self._portal.call("pool.session", self._loan.enter, self._leave_soon)
        return cast("blocking.Session", session.shown)

    def __exit__(self, *_: object) -> None:
        if not self._portal.is_over:
            self._portal.call("pool.session", self._loan.leave, self._leave_soon)

    def _leave_soon(self) -> None:
        """Give the session back after Ctrl-C, which may come when this thread does not know it."""
        self._portal.start(self._loan.leave)

    def __repr__(self) -> str:
        return "<a session of a pool that is not borrowed: use it in `with`>"


class PoolBase:
    """A pool on the event loop."""

    def __init__(self, plan: PoolPlan) -> None:
        self._plan = plan
        self._made: tuple[Portal, PoolWork] | None = None

    def _open(self) -> None:
        if self._made is not None:
            raise UsageError("This pool was already opened.", fix="Create another one.")
        home, work = portal(), PoolWork(self._plan)
        self._made = home, work
        home.call("pool", work.open, lambda: home.start(work.close))

    @property
    def _opened(self) -> tuple[Portal, PoolWork]:
        if self._made is None:
            fix = "Use it in `with agent.sync.pool() as pool`."
            raise UsageError("This pool is not open.", fix=fix)
        return self._made

    @property
    def _work(self) -> PoolWork:
        return self._opened[1]

    def _call(self, operation: str, work: Work[_T]) -> _T:
        return self._opened[0].call(operation, work)

    def _close(self, *, hurry: bool) -> None:
        if self._made is not None and not self._made[0].is_over:
            home, work = self._made
            at_once = partial(work.close, hurry=True)
            home.call("pool.close", partial(work.close, hurry=hurry), lambda: home.start(at_once))

    def _read_metrics(self) -> PoolMetrics:
        if self._made is None:
            return PoolWork(self._plan).metrics
        home, work = self._made

        async def read() -> PoolMetrics:
            return work.metrics

        return home.call("pool.metrics", read)

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: a pool holds processes of this program."""
        raise TypeError("A SyncPool cannot be pickled. Create one in each process.")

    def __repr__(self) -> str:
        return f"<a pool of {self._plan.limits.size} processes, with blocking methods>"


def shown_run(make: Callable[[], PooledRun]) -> Callable[[], PooledRun]:
    """Return a function that makes a run whose tools get a blocking session as their context."""

    def make_shown() -> PooledRun:
        job = make()
        job.show = shown
        job.shown = shown(job)
        return job

    return make_shown


Resume = Callable[[AgentPlan, PendingApproval], Resumption]
"""Makes the run that applies a decision."""


def shown_resume(make: Resume) -> Resume:
    """Return the same with a blocking session as the context of tools."""

    def make_shown(agent: AgentPlan, call: PendingApproval) -> Resumption:
        job = make(agent, call)
        job.show = shown
        return job

    return make_shown
