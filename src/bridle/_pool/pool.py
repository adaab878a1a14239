"""`Pool`: CLI processes that are started before they are needed, shared by many callers."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, Self, TypeVar, overload

from bridle._pool.pool_work import Loan, PoolPlan, PoolWork, SessionRequest
from bridle._pool.table import PoolMetrics
from bridle._session.not_given import NOT_GIVEN
from bridle._session.resume import Resumption
from bridle._session.session import Session
from bridle.approvals import PendingApproval
from bridle.content import Content
from bridle.options import Retry
from bridle.outcomes import Outcome, Output
from bridle.permissions import PermissionResult

if TYPE_CHECKING:
    from bridle._session.agent_plan import AgentPlan

Deps = TypeVar("Deps")


class PoolSession:
    """A session of a pool that is not borrowed yet. Use it in ``async with``."""

    def __init__(self, work: PoolWork, request: SessionRequest) -> None:
        self._loan = Loan(work, request)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the session is not borrowed yet, so it has no {name}. "
            "Use it in `async with pool.session(...) as session`."
        )

    async def __aenter__(self) -> Session:
        return (await self._loan.enter()).session

    async def __aexit__(self, *_: object) -> None:
        await self._loan.leave()

    def __repr__(self) -> str:
        return "<a session of a pool that is not borrowed: use it in `async with`>"


class Pool(Generic[Deps]):
    """CLI processes that are started before they are needed, shared by many callers.

    Get one from ``agent.pool(...)`` and use it in ``async with``. Leaving the block closes the
    pool. A process serves one conversation. A pool belongs to one event loop.
    """

    def __init__(self, plan: PoolPlan) -> None:
        self._work = PoolWork(plan)

    async def __aenter__(self) -> Self:
        await self._work.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._work.close(hurry=is_cancelled)

    async def aclose(self) -> None:
        """Close the pool and return when its processes have exited.

        Callers that wait get ``UsageError``. Sessions and runs in progress have 30 seconds
        to end; then they are shut down. You can call it more than once.

        Cancellation: shuts down what is in progress now.
        """
        await self._work.close()

    @property
    def metrics(self) -> PoolMetrics:
        """Return the numbers of the pool: its processes, its callers, how callers were served."""
        return self._work.metrics

    @overload
    async def run(
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
    async def run(
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

    async def run(
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

        See ``Agent.run``. The limits of the agent count from the prompt, not from the call.

        Args:
            prompt: text, or a list of content blocks.
            output_type: as for ``Agent.run``, here and below.
            cwd: the working directory, if it is not that of the agent. If the CLI is older than
                2.1.325, a new process is started for that.
            timeout: seconds to wait for a process. None means no limit. The default is the
                ``timeout`` of the pool.

        Raises:
            PoolTimeout: no process was free within ``timeout`` seconds.
            OptionsError: an argument or the prompt is invalid.
            StartError: the CLI did not start.
            UsageError: the pool is closed, or was not opened.

        Cancellation: leaves the queue, or shuts down the CLI.
        """
        make = self._work.job(
            prompt,
            cwd,
            refused,
            output_type=output_type,
            output_retries=output_retries,
            retry=retry,
            keep_messages=keep_messages,
            deps=deps,
        )
        return await self._work.run(make, timeout)

    def session(
        self,
        key: str | None = None,
        *,
        deps: Deps | None = NOT_GIVEN,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = NOT_GIVEN,
        wait: float | None = None,
        **refused: Never,
    ) -> PoolSession:
        """Borrow a session: ``async with pool.session(key="user-7") as session``.

        Without a key, the session is a new conversation, and its process ends with the block.

        A key always means the same conversation. Its process stays open for the next caller. It is
        closed after ``max_idle`` seconds, or when the pool is full and another caller needs a
        process. The next use of the key then resumes the conversation in a new process. Callers of
        one key wait for each other. Use the session only inside the block.

        Args:
            key: the name of the conversation, such as the id of a user.
            deps: the object for the callbacks while this caller has the session.
            cwd: the working directory, if it is not that of the agent. A key keeps the directory of
                its first use.
            timeout: seconds to wait for a process. None means no limit. The default is the
                ``timeout`` of the pool.
            wait: seconds to wait after that, while another program uses the conversation of the
                key. The place in the pool is taken meanwhile. None raises `SessionInUseError` at
                once.

        Raises:
            OptionsError: an argument is invalid.
            PoolTimeout: no process was free within ``timeout`` seconds, or another caller was
                using the session of the key. Entering the block raises this error and those below.
            SessionNotFoundError: the transcript of the conversation is gone. ``forget`` the key.
            SessionInUseError: another program uses the conversation of the key.
            StartError: the CLI did not start, or the store failed.
            UsageError: the pool is closed, or was not opened.
            StoreError: the conversation of the key could not be saved. The first prompt raises it,
                or the end of the block if the conversation was cleared in it.
        """
        request = self._work.request(key, cwd, deps, timeout, wait, refused)
        return PoolSession(self._work, request)

    @overload
    async def resume(
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
        wait: float | None = ...,
    ) -> Outcome[Output]: ...

    @overload
    async def resume(
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
        wait: float | None = ...,
    ) -> Outcome[Any]: ...

    async def resume(
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
        wait: float | None = None,
    ) -> Outcome[Any]:
        """Decide about the tool call of a key that waits for approval, and return its outcome.

        See ``Agent.resume``. Leave the block of the session first. The next use of the key then
        continues the conversation.

        Args:
            key: the name of the conversation.
            decision: ``Allow()``, ``Deny(reason)`` or ``Edit(new_input)``.
            pending: the call that the person saw, as `ApprovalPending.pending` or the outcome has
                it. Without it, the decision is about the call that waits now.
            output_type: as for ``Agent.run``, here and below.
            timeout: seconds to wait for a process. None means no limit. The default is the
                ``timeout`` of the pool.
            wait: seconds to wait after that, while another program uses the conversation.

        Raises:
            UsageError: no call waits, because another program has decided for example; or another
                call than ``pending`` waits. Or the pool is not open.
            OptionsError: an argument is invalid, or ``pending`` was changed.
            PoolTimeout: no process was free within ``timeout`` seconds, or another caller was
                using the session of the key.
            SessionInUseError: another program uses the conversation of the key.
            StartError: the CLI did not start, or the store failed. The call still waits.

        Cancellation: shuts down the CLI. If it has the decision, the tool may have run.
        """

        def make(agent: AgentPlan, call: PendingApproval) -> Resumption:
            return agent.resume(
                call,
                decision,
                NOT_GIVEN,
                output_type=output_type,
                output_retries=output_retries,
                retry=None,
                keep_messages=keep_messages,
                deps=deps,
            )

        return await self._work.resume(key, pending, deps, timeout, wait, make)

    async def forget(self, key: str) -> None:
        """Let a key begin a new conversation with its next use. The transcript stays.

        Raises:
            UsageError: a caller uses the key now, or the pool is not open.
            SessionInUseError: another program uses the conversation of the key.
            StartError: the store failed.
        """
        await self._work.forget(key)

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: a pool holds processes of this program."""
        raise _not_picklable()

    def __repr__(self) -> str:
        numbers = self.metrics
        return (
            f"Pool(size={numbers.size}, ready={numbers.ready}, in_use={numbers.in_use}, "
            f"idle={numbers.idle}, waiting={numbers.waiting})"
        )


def _not_picklable() -> TypeError:
    """Return the error that `pickle` raises for such objects."""
    return TypeError("A Pool cannot be pickled. Create one in each process.")
