"""`SyncAgent`: the blocking methods of an `Agent`."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, Unpack, cast, overload

from msgspec import structs

from bridle import sync as blocking
from bridle._core.precedence import ResolvedOptions
from bridle._doors.agent_plan import AgentPlan
from bridle._doors.blocking import Inbox, RunOutcomes
from bridle._doors.not_given import NOT_GIVEN
from bridle._doors.pool_work import PoolPlan
from bridle._doors.portal import portal
from bridle._doors.query import stream
from bridle._doors.run_many import RunProgress
from bridle._keyword_types import AgentChanges, ConversationOptions
from bridle._sync_pool import SyncPool
from bridle.approvals import PendingApproval
from bridle.content import Content, Prompts
from bridle.options import Limits, Retry
from bridle.outcomes import Outcome, Output
from bridle.permissions import PermissionResult

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The default allows plain `Agent` in annotations. Only type checkers support it so far.
    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")

_Prompt = TypeVar("_Prompt", bound=Content)


def refuse_pickle() -> NoReturn:
    """Raise TypeError: agents hold functions and objects of this process."""
    raise TypeError(
        "An Agent cannot be pickled: it holds functions and objects of this process. "
        "Create it in each process, for example in a module that all of them import."
    )


class SyncAgent(Generic[Deps]):
    """An :class:`Agent` with blocking methods. Get it from ``agent.sync``.

    See `bridle.sync` for threads, callbacks and Ctrl-C.
    """

    __slots__ = ("_plan",)

    def __init__(self, plan: AgentPlan) -> None:
        self._plan = plan

    @property
    def options(self) -> ResolvedOptions:
        """Return the resolved options: the three records, and the source of each option."""
        return self._plan.options

    @property
    def deps(self) -> Deps | None:
        """Return the default object for callbacks, or None."""
        return cast("Deps | None", self._plan.deps)

    def replace(
        self,
        *,
        deps: Deps | None = NOT_GIVEN,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        **options: Unpack[AgentChanges],
    ) -> SyncAgent[Deps]:
        """Return a changed copy. None unsets an option, so that its default applies.

        See ``Agent.replace``.
        """
        return SyncAgent(self._plan.replace(options, deps, output_type, output_retries))

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
        **conversation: Unpack[ConversationOptions],
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
        **conversation: Unpack[ConversationOptions],
    ) -> Outcome[Any]: ...

    def run(
        self,
        prompt: Content,
        *,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        retry: Retry | None = None,
        keep_messages: bool = False,
        deps: Deps | None = NOT_GIVEN,
        **conversation: Unpack[ConversationOptions],
    ) -> Outcome[Any]:
        """Run one prompt and return its outcome.

        See ``Agent.run``. Ctrl-C shuts down the CLI.
        """
        return blocking.run_job(
            self._plan.run(
                prompt,
                conversation,
                output_type=output_type,
                output_retries=output_retries,
                retry=retry,
                keep_messages=keep_messages,
                deps=deps,
            )
        )

    @overload
    def resume(
        self,
        pending: PendingApproval,
        decision: PermissionResult,
        *,
        output_type: type[Output],
        output_retries: int = ...,
        retry: Retry | None = ...,
        keep_messages: bool = ...,
        deps: Deps | None = ...,
        limits: Limits | None = ...,
    ) -> Outcome[Output]: ...

    @overload
    def resume(
        self,
        pending: PendingApproval,
        decision: PermissionResult,
        *,
        output_type: Any = ...,
        output_retries: int = ...,
        retry: Retry | None = ...,
        keep_messages: bool = ...,
        deps: Deps | None = ...,
        limits: Limits | None = ...,
    ) -> Outcome[Any]: ...

    def resume(
        self,
        pending: PendingApproval,
        decision: PermissionResult,
        *,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        retry: Retry | None = None,
        keep_messages: bool = False,
        deps: Deps | None = NOT_GIVEN,
        limits: Limits | None = NOT_GIVEN,
    ) -> Outcome[Any]:
        """Decide about a tool call that waits for approval, and return the outcome of its turn.

        See ``Agent.resume``. Ctrl-C shuts down the CLI.
        """
        return blocking.run_job(
            self._plan.resume(
                pending,
                decision,
                limits,
                output_type=output_type,
                output_retries=output_retries,
                retry=retry,
                keep_messages=keep_messages,
                deps=deps,
            )
        )

    @overload
    def recover(
        self,
        session_id: str,
        *,
        output_type: type[Output],
        output_retries: int = ...,
        retry: Retry | None = ...,
        deps: Deps | None = ...,
        limits: Limits | None = ...,
    ) -> list[Outcome[Output]]: ...

    @overload
    def recover(
        self,
        session_id: str,
        *,
        output_type: Any = ...,
        output_retries: int = ...,
        retry: Retry | None = ...,
        deps: Deps | None = ...,
        limits: Limits | None = ...,
    ) -> list[Outcome[Any]]: ...

    def recover(
        self,
        session_id: str,
        *,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        retry: Retry | None = None,
        deps: Deps | None = NOT_GIVEN,
        limits: Limits | None = NOT_GIVEN,
    ) -> list[Outcome[Any]]:
        """Finish what a program that died left in a session, in any process.

        See ``Agent.recover``. Ctrl-C shuts down the CLI.
        """
        job = self._plan.recover(
            session_id,
            limits,
            output_type=output_type,
            output_retries=output_retries,
            retry=retry,
            deps=deps,
        )
        job.show = blocking.RunSession  # tools get a blocking session as their context
        return portal().call("recover", job.outcomes)

    def query(
        self,
        prompt: Prompts,
        *,
        deps: Deps | None = NOT_GIVEN,
        **conversation: Unpack[ConversationOptions],
    ) -> blocking.QueryStream:
        """Send prompts to the CLI and iterate over its messages.

        See ``Agent.query``.
        """
        messages = stream(prompt, self._plan.chosen(conversation), self._plan.deps_or(deps))
        return blocking.read_query(messages)

    def session(
        self,
        *,
        prompt: Content | None = None,
        deps: Deps | None = NOT_GIVEN,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        **conversation: Unpack[ConversationOptions],
    ) -> blocking.Session:
        """Start a session: ``with agent.sync.session() as session``, or call ``close()`` yourself.

        See ``Agent.session``. The session that you get is running.
        """
        inner = self._plan.session(conversation, deps, output_type, output_retries)
        return blocking.connect(blocking.AgentSession(inner), prompt)

    @overload
    def run_many(
        self,
        prompts: Iterable[_Prompt] | AsyncIterable[_Prompt],
        at_once: int = ...,
        progress: Callable[[RunProgress], object] | None = ...,
        *,
        output_type: type[Output],
        output_retries: int = ...,
        retry: Retry | None = ...,
        keep_messages: bool = ...,
        deps: Deps | None = ...,
        **refused: Never,
    ) -> blocking.Subscription[tuple[_Prompt, Outcome[Output]]]: ...

    @overload
    def run_many(
        self,
        prompts: Iterable[_Prompt] | AsyncIterable[_Prompt],
        at_once: int = ...,
        progress: Callable[[RunProgress], object] | None = ...,
        *,
        output_type: Any = ...,
        output_retries: int = ...,
        retry: Retry | None = ...,
        keep_messages: bool = ...,
        deps: Deps | None = ...,
        **refused: Never,
    ) -> blocking.Subscription[tuple[_Prompt, Outcome[Any]]]: ...

    def run_many(
        self,
        prompts: Iterable[_Prompt] | AsyncIterable[_Prompt],
        at_once: int = 8,
        progress: Callable[[RunProgress], object] | None = None,
        *,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        retry: Retry | None = None,
        keep_messages: bool = False,
        deps: Deps | None = NOT_GIVEN,
        **refused: Never,
    ) -> blocking.Subscription[tuple[_Prompt, Outcome[Any]]]:
        """Run many prompts, some at a time, and iterate over pairs of prompt and outcome.

        See ``Agent.run_many``. The runs start with the call. Leaving the loop, ``close`` or the end
        of ``with`` ends the runs in progress; ``close`` and ``with`` wait until their CLIs have
        exited. One outcome is read ahead of the loop.
        """
        plan = self._plan.run_many(
            prompts,
            at_once,
            progress,
            refused,
            output_type=output_type,
            output_retries=output_retries,
            retry=retry,
            keep_messages=keep_messages,
            deps=deps,
        )
        # Tools get a blocking session as their context.
        plan = structs.replace(plan, show=blocking.RunSession)
        inbox: Inbox[tuple[_Prompt, Outcome[Any]]] = Inbox(
            portal(), "run_many", lambda _: plan.outcomes(), ahead=1
        )
        return RunOutcomes(inbox)

    def pool(
        self,
        *,
        size: int = 4,
        ready: int | None = None,
        max_idle: float | None = 300.0,
        max_age: float | None = 3600.0,
        max_uses: int | None = None,
        max_memory: int | None = None,
        timeout: float | None = 60.0,
        drain: float = 30.0,
        retry: Retry | None = None,
        **refused: Never,
    ) -> SyncPool[Deps]:
        """Keep processes ready for many short conversations, or for many users.

        See ``Agent.pool``. Use it in ``with agent.sync.pool() as pool``. Any thread may use it.
        """
        return SyncPool(
            PoolPlan.make(
                self._plan,
                refused,
                size=size,
                ready=ready,
                max_idle=max_idle,
                max_age=max_age,
                max_uses=max_uses,
                max_memory=max_memory,
                timeout=timeout,
                drain=drain,
                retry=retry,
            )
        )

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: agents hold functions and objects of this process."""
        refuse_pickle()

    def __repr__(self) -> str:
        return f"<blocking methods of an Agent with {self._plan.options.cli!r}>"
