"""`Agent`: options and callbacks in one object, with the doors as its methods."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import (
    Any,
    Generic,
    Never,
    NoReturn,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_origin,
    overload,
)

from bridle._pool.pool import Pool, PoolSession
from bridle._pool.pool_work import PoolPlan
from bridle._pool.table import PoolMetrics
from bridle._session.agent_plan import AgentPlan, refuse_keywords
from bridle._session.not_given import NOT_GIVEN
from bridle._session.one_way.query import QueryStream, stream
from bridle._session.run_many import RunProgress
from bridle._session.session_start import SessionStart, start
from bridle.approvals import PendingApproval
from bridle.content import Content, Prompts
from bridle.errors import OptionsError
from bridle.options import BidirOptions, CliOptions, Limits, Retry, SdkOptions
from bridle.options._keyword_types import AgentChanges, AgentOptions, ConversationOptions, Options
from bridle.options._keywords import gather
from bridle.options._precedence import ResolvedOptions
from bridle.outcomes import Outcome, Output
from bridle.permissions import PermissionResult
from bridle.sync._agent_base import Deps, refuse_pickle
from bridle.sync._agent_twin import SyncAgent
from bridle.sync._pool_base import SyncPoolSession
from bridle.sync._pool_twin import SyncPool

__all__ = [
    "Agent",
    "AgentChanges",
    "AgentOptions",
    "ConversationOptions",
    "Options",
    "Pool",
    "PoolMetrics",
    "PoolSession",
    "RunProgress",
    "SyncAgent",
    "SyncPool",
    "SyncPoolSession",
]

_Prompt = TypeVar("_Prompt", bound=Content)


def plan_of(agent: Agent[Any]) -> AgentPlan:
    """Return the checked options of an agent, for other modules of Bridle."""
    return agent._plan  # pyright: ignore[reportPrivateUsage]  # the class is below


def _is_type(value: object) -> bool:
    """Return True for a class, ``list[int]`` and the like, or a ``NewType``."""
    is_alias = get_origin(value) is not None or hasattr(value, "__supertype__")
    return isinstance(value, type) or is_alias


class Agent(Generic[Deps]):
    """Options and callbacks for any number of runs, queries and sessions.

    An agent takes every field of ``CliOptions``, ``SdkOptions`` and ``BidirOptions`` by name, or
    the records themselves. It checks all of them when it is created, and starts nothing. It also
    reads the environment and the configuration file then, and not again: later changes count for
    new agents only. It never changes, so tasks and threads may share it.

    Options that choose a conversation, such as ``resume_session_id``, are arguments of ``run``,
    ``query`` and ``session``.

    Args:
        cli: options that the CLI receives, as a record. An option may be given in a record or by
            name, not both.
        sdk: options of Bridle, as a record.
        bidir: callbacks and in-process servers, as a record.
        deps_type: the type of ``deps``, for type checkers.
        deps: any object for callbacks. ``run``, ``query`` and ``session`` can give another one.
            Callbacks get None if neither the agent nor the call has one, also with ``deps_type``.
        output_type: the type of ``outcome.output`` for ``run``, ``run_many`` and ``session``, which
            can give another one. See ``bridle.run``.
        output_retries: how often to send an answer that fails validation back to the model.
        options: the fields of the three records by name. ``tools`` takes names of built-in tools,
            and functions or ``Tool`` objects of this program. The model sees a function ``price``
            as ``mcp__tools__price``. It is in the model's tool list from the start and runs
            without a permission request. If the list has only functions, all built-in tools
            stay available. ``[]`` means no built-in tools.

    Raises:
        OptionsError: an option is unknown, invalid, given twice, or contradicts another one.
    """

    __slots__ = ("_plan",)

    _plan: AgentPlan

    def __init__(
        self,
        *,
        cli: CliOptions | None = None,
        sdk: SdkOptions | None = None,
        bidir: BidirOptions | None = None,
        deps_type: type[Deps] | None = None,
        deps: Deps | None = None,
        output_type: Any = None,
        output_retries: int = 1,
        **options: Unpack[AgentOptions],
    ) -> None:
        refuse_keywords(options)
        if deps_type is not None and not _is_type(deps_type):
            problem = f"must be a type, got {type(deps_type).__name__}"
            raise OptionsError("deps_type", problem, fix="Use a class, such as deps_type=Database.")
        given = gather(cli, sdk, bidir, options)
        self._adopt(AgentPlan.make(given, deps, output_type, output_retries))

    def _adopt(self, plan: AgentPlan) -> None:
        object.__setattr__(self, "_plan", plan)

    @property
    def options(self) -> ResolvedOptions:
        """Return the resolved options: the three records, and the source of each option."""
        return self._plan.options

    @property
    def deps(self) -> Deps | None:
        """Return the default object for callbacks, or None."""
        return cast("Deps | None", self._plan.deps)

    @property
    def sync(self) -> SyncAgent[Deps]:
        """Return this agent with blocking methods, for code without ``async``."""
        return SyncAgent(self._plan)

    def replace(
        self,
        *,
        deps: Deps | None = NOT_GIVEN,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        **options: Unpack[AgentChanges],
    ) -> Self:
        """Return a changed copy. None unsets an option, so that its default applies.

        The copy reads the environment and the configuration file again. Arguments that you leave
        out stay as they are, and the copy has the class of this agent. For ``deps`` and
        ``output_type``, None means no object and no type.

        Raises:
            OptionsError: an option is unknown, invalid, or contradicts another one.
        """
        copy = object.__new__(type(self))
        copy._adopt(self._plan.replace(options, deps, output_type, output_retries))
        return copy

    # -- doors -------------------------------------------------------------------------------------

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
        **conversation: Unpack[ConversationOptions],
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
        **conversation: Unpack[ConversationOptions],
    ) -> Outcome[Any]: ...

    async def run(
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

        See ``bridle.run`` for the arguments and limits. ``deps``, ``output_type`` and
        ``output_retries`` replace those of the agent. ``deps=None`` gives None to callbacks, and
        ``output_type=None`` asks for text. ``conversation`` chooses the conversation, such as
        ``resume_session_id="..."``.

        Raises:
            OptionsError: an argument or the prompt is invalid. Nothing was started.
            StartError: the CLI did not start. Its processes, files and tasks are removed.

        Cancellation: shuts down the CLI.
        """
        job = self._plan.run(
            prompt,
            conversation,
            output_type=output_type,
            output_retries=output_retries,
            retry=retry,
            keep_messages=keep_messages,
            deps=deps,
        )
        return await job.outcome()

    @overload
    async def resume(
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
        wait: float | None = ...,
    ) -> Outcome[Output]: ...

    @overload
    async def resume(
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
        wait: float | None = ...,
    ) -> Outcome[Any]: ...

    async def resume(
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
        wait: float | None = None,
    ) -> Outcome[Any]:
        """Decide about a tool call that waits for approval, and return the outcome of its turn.

        Bridle starts a CLI that continues the conversation. First the PreToolUse hooks of this
        agent run again, with the input of an ``Edit`` if there is one. A ``Block`` denies the call
        even if the decision allows it, ``ModifyInput`` changes its input, and ``Defer`` counts as
        ``Continue``. Then the tool runs, or the model reads the reason of the ``Deny``, and the
        turn goes on. The agent needs the same in-process tools as the one that deferred the call.

        A call is decided once. If several programs decide, one decision takes effect, and the
        others raise UsageError or SessionInUseError. If the CLI fails before it gets the decision,
        ``outcome.pending`` is the same call, which still waits. If it fails later,
        ``outcome.pending`` is None, because the tool may have run.

        Args:
            pending: ``outcome.pending``, or ``PendingApproval.from_json(text)``.
            decision: ``Allow()``, ``Deny(reason)`` or ``Edit(new_input)``.
            output_type: as for ``run``, here and below. ``limits`` replaces the agent's limits.
            wait: seconds to wait while another session or program uses the conversation, for
                example to apply another decision. None waits for five seconds, in which a session
                that has just deferred the call ends.

        Raises:
            OptionsError: an argument is invalid, or ``pending`` differs from the call in the
                transcript. Nothing was started.
            UsageError: the call does not wait: another program has decided about it, or another
                call waits. Nothing was started.
            SessionInUseError: another program uses the conversation.
            StartError: the CLI did not start, or cannot resume calls (before 2.1.197). The call
                still waits.
            CallMayHaveRun: the call was approved before and cut off. It does not run again.

        Cancellation: shuts down the CLI. If it has the decision, the tool may have run.
        """
        job = self._plan.resume(
            pending,
            decision,
            limits,
            wait,
            output_type=output_type,
            output_retries=output_retries,
            retry=retry,
            keep_messages=keep_messages,
            deps=deps,
        )
        return await job.outcome()

    @overload
    async def recover(
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
    async def recover(
        self,
        session_id: str,
        *,
        output_type: Any = ...,
        output_retries: int = ...,
        retry: Retry | None = ...,
        deps: Deps | None = ...,
        limits: Limits | None = ...,
    ) -> list[Outcome[Any]]: ...

    async def recover(
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

        Return one outcome for each prompt whose outcome that program never received, in the order
        of the prompts. If its turn had finished, the outcome comes from the journal or from the
        transcript, without a model call. Otherwise Bridle starts a CLI that continues the
        conversation: a turn that was cut off is continued with a new prompt, and a prompt that is
        not in the transcript is sent again. What is sent names every tool call whose result was not
        recorded, because it may have happened. Tools can recognise a repeated call by
        ``ToolContext.idempotency_key``.

        The agent needs the store of the session, and the same in-process tools. The CLI works in
        the directory of the session if it exists. The lease of a program that was killed lasts up
        to 30 seconds, and ``recover`` waits for its end. The outcomes count as received when
        ``recover`` returns. If it fails before, call it again.

        Args:
            session_id: the id of the session: ``session.id``.
            output_type: as for ``run``, here and below. ``limits`` replaces the agent's limits, for
                each prompt that is sent.

        Raises:
            OptionsError: an argument is invalid, or the agent has no store. Nothing was started.
            SessionNotFoundError: neither the store nor the files of the CLI have the session.
            SessionInUseError: a program uses the session.
            StartError: the store or the CLI failed.

        Cancellation: shuts down the CLI. Another call continues the recovery.
        """
        job = self._plan.recover(
            session_id,
            limits,
            output_type=output_type,
            output_retries=output_retries,
            retry=retry,
            deps=deps,
        )
        return await job.outcomes()

    def query(
        self,
        prompt: Prompts,
        *,
        deps: Deps | None = NOT_GIVEN,
        **conversation: Unpack[ConversationOptions],
    ) -> QueryStream:
        """Send prompts to the CLI and iterate over its messages.

        See ``bridle.query`` for prompts and limits. ``deps`` replaces the agent's object, also if
        it is None. ``conversation`` chooses the conversation, such as ``continue_session=True``.

        Raises:
            OptionsError: an argument or the prompt is invalid. Nothing was started.
        """
        return stream(prompt, self._plan.chosen(conversation), self._plan.deps_or(deps))

    def session(
        self,
        *,
        prompt: Content | None = None,
        deps: Deps | None = NOT_GIVEN,
        output_type: Any = NOT_GIVEN,
        output_retries: int = NOT_GIVEN,
        **conversation: Unpack[ConversationOptions],
    ) -> SessionStart:
        """Start a session: ``async with agent.session() as session``, or ``await`` it.

        See ``bridle.start_session`` for ``prompt`` and ``output_type``. ``deps``, ``output_type``
        and ``output_retries`` replace those of the agent, also if they are None.
        ``conversation`` chooses the conversation, such as ``resume_session_id="..."``.

        Raises:
            OptionsError: an argument or the prompt is invalid. Raised by the call, before anything
                is started.
            StartError: the CLI did not start. Raised when you await or enter it.
        """
        session = self._plan.session(conversation, deps, output_type, output_retries)
        return start(session, prompt)

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
    ) -> AsyncGenerator[tuple[_Prompt, Outcome[Output]], None]: ...

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
    ) -> AsyncGenerator[tuple[_Prompt, Outcome[Any]], None]: ...

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
    ) -> AsyncGenerator[tuple[_Prompt, Outcome[Any]], None]:
        """Run many prompts, some at a time, and iterate over pairs of prompt and outcome.

        The pairs come in the order in which the runs end. Each run has its own conversation. A run
        that cannot start has the reason ``start_failed``, and the other runs go on. If its CLI dies
        after the start, the reason is ``cli_exited``.

        Bridle reads a prompt when its run can start: there are never more than ``at_once`` prompts
        whose outcome the loop has not taken. It reads a plain iterable, other than a list or tuple,
        in a thread. An exception of the iterable is raised after the runs in progress have ended.

        Leaving the loop, or cancelling it, ends the runs in progress. To wait until their CLIs have
        exited, use ``async with contextlib.aclosing(agent.run_many(...)) as outcomes``.

        Args:
            prompts: an iterable of prompts, also an async one.
            at_once: maximum number of runs at the same time.
            progress: callback that gets the numbers of runs after every start and end.
            output_type: as for ``run``.
            output_retries: as for ``run``.
            retry: as for ``run``.
            keep_messages: as for ``run``.
            deps: as for ``run``.

        Raises:
            OptionsError: an argument is invalid, or chooses a conversation.
            UsageError: the iterable of prompts raised CancelledError.
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
        return plan.outcomes()

    def pool(
        self,
        *,
        size: int = 4,
        max_idle: float | None = 300.0,
        timeout: float | None = 60.0,
        retry: Retry | None = None,
        **refused: Never,
    ) -> Pool[Deps]:
        """Keep processes ready for many short conversations, or for many users.

        Use it in ``async with agent.pool() as pool``, then ``await pool.run("...")`` or
        ``async with pool.session(key="user-7") as session``. All sessions have the options of this
        agent; ``deps`` and ``cwd`` may differ. Callers wait in order if all processes are in use.

        Args:
            size: maximum number of processes at the same time. One takes up to 250 MB.
            max_idle: seconds after which the unused process of a key is closed. The next use of
                the key resumes the conversation. None means no limit, here and for ``timeout``.
            timeout: seconds that a caller waits for a process before it gets ``PoolTimeout``.
            retry: the default of ``pool.run``.

        Raises:
            OptionsError: an argument is invalid, or chooses a conversation.
        """
        return Pool(
            PoolPlan.make(
                self._plan,
                refused,
                size=size,
                max_idle=max_idle,
                timeout=timeout,
                retry=retry,
            )
        )

    # -- a value -----------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Raise AttributeError: agents never change."""
        raise AttributeError(f"An Agent is immutable. Use .replace({name}=...).")

    def __delattr__(self, name: str) -> NoReturn:
        """Raise AttributeError: agents never change."""
        raise AttributeError("An Agent is immutable. Use .replace().")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: agents hold functions and objects of this process."""
        refuse_pickle()

    def __repr__(self) -> str:
        options = self._plan.options
        records = [record for record in (options.cli, options.sdk, options.bidir) if record.given()]
        return f"Agent({', '.join(map(repr, records))})"
