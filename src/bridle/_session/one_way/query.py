"""`query` and its stream: send prompts, then iterate over the messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast
from uuid import uuid4

from bridle._callbacks.iterated_prompts import draw
from bridle._engine.config import EngineConfig
from bridle._engine.delivery.unread import DeliveryConfig
from bridle._engine.engine import Engine
from bridle._engine.outgoing.prompts import encode_prompt, prompts_at_hand, uuid_of
from bridle._engine.state import TERMINAL
from bridle._observe.known_secrets import KnownSecrets
from bridle._observe.listeners import Listeners
from bridle._observe.observer import QueryObserver
from bridle._process.launch.plan import Launch, plan_query
from bridle._process.session_locks import StartLock
from bridle._process.transport import Transport, TransportEvents
from bridle._runtime.finalizers import when_dropped_before
from bridle._session.actor import Actor
from bridle._session.connection.spawning import Spawner
from bridle._session.deps import with_prompts
from bridle._session.one_way.one_way_run import Lines, OneWayRun
from bridle._session.parts.lock_part import LockPart
from bridle._session.parts.waiting_part import refuse_waiting
from bridle._session.preflight import (
    option_warnings,
    running_loop,
    settings_text,
    settle_keywords,
)
from bridle._session.readers.queues import Closed, Queue
from bridle.content import Prompts
from bridle.errors import OptionsError
from bridle.events import SdkWarning
from bridle.messages import Message
from bridle.options import STDIO, BidirOptions, CliOptions, SdkOptions
from bridle.options._keyword_types import Options
from bridle.options._precedence import ResolvedOptions
from bridle.options._unknown_values import wanted_tools

if TYPE_CHECKING:
    from bridle._session.one_way.query_session import QuerySession
    from bridle._session.session import InnerSession

Runner = Callable[[Launch, TransportEvents], Transport]
"""A replacement for the CLI: ``SdkOptions.runner``."""


class QueryStream:
    """The messages of a query, in order: an iterator and a context manager.

    The first step of the loop, or entering ``async with``, starts the CLI. The stream ends when the
    CLI exits, after background work, so it may contain several results. Check their ``is_error``: a
    failed turn raises nothing. After the end, or after an error, all processes have exited.

    The end of ``async with``, :meth:`aclose`, or dropping the stream ends the CLI. After a
    ``break`` without ``async with``, the CLI ends when the stream is garbage-collected.

    Cancellation: cancelling the wait for the next message loses no message.
    Concurrency: one task at a time may iterate.
    """

    def __init__(self, plan: Startable) -> None:
        self._plan = plan
        self._run: Running | None = None
        # Messages to return next, in reverse order.
        self._ready: list[Message] = []
        self._is_over = False

    @property
    def warnings(self) -> tuple[SdkWarning, ...]:
        """Return the warnings so far, such as a CLI that failed after it sent its result."""
        return tuple(self._run.warnings) if self._run else ()

    @property
    def pid(self) -> int | None:
        """Return the process id of the CLI, or None if it was not started."""
        return self._run.pid if self._run else None

    def __aiter__(self) -> QueryStream:
        return self

    async def __anext__(self) -> Message:
        """Return the next message.

        Raises:
            StartError: the CLI did not start, rejected the handshake, or exited before it.
            TransportError: the CLI failed without a result, or its output is not valid.
            BufferOverflow: a line is longer than ``SdkOptions.max_buffer_size``.
            OutcomeError: a limit of ``SdkOptions.limits`` was reached.
            Exception: an exception from the iterable of prompts.
        """
        if self._ready:
            return self._ready.pop()
        if self._is_over:
            raise StopAsyncIteration
        run = self._run or await self._start()
        try:
            message = await run.take()
        except Closed as end:
            self._is_over = True
            if end.error is not None:
                raise end.error from None
            raise StopAsyncIteration from None
        self._ready = run.messages.ready
        return message

    async def aclose(self) -> None:
        """End the CLI and discard unread messages. You can call it more than once.

        Return when all processes have exited.

        Cancellation: the CLI ends even if the wait is cancelled.
        """
        self._is_over = True
        self._ready = []
        if self._run is not None:
            await self._run.close()

    async def __aenter__(self) -> QueryStream:
        if not self._is_over and self._run is None:
            await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _start(self) -> Running:
        try:
            self._run = await self._plan.start()
        except BaseException:
            self._is_over = True
            raise
        # The process keeps the actor alive, but not the stream, so that it can be collected.
        when_dropped_before(self, self._run.gone, self._run.abandon)
        return self._run

    def __repr__(self) -> str:
        state = "over" if self._is_over else "running" if self._run else "not started"
        return f"QueryStream({state}, pid={self.pid})"


def query(
    prompt: Prompts,
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    *,
    deps: Any = None,
    **options: Unpack[Options],
) -> QueryStream:
    """Send prompts to the CLI and iterate over its messages.

    Without callbacks a query is one-way: it sends the prompts and yields the messages until the CLI
    exits. Tools that the options do not allow are denied. With callbacks, in-process tools, a
    store or ``Limits.usd``, it runs as a session. It then ends when all prompts are answered and
    their background work is done, as ``run`` does.

    Args:
        prompt: text, a list of content blocks, a user message as a mapping, or an iterable of
            these. Bridle reads an async iterable as the CLI accepts prompts, so the iterable may
            wait for an answer before it yields the next prompt. It reads a plain iterable, other
            than a list or tuple, in a thread. The stream raises the exceptions of the iterable.
            The CLI may merge queued prompts into one turn.
        deps: any object for the callbacks of the query.
        options: the fields of the three records by name, such as ``model="sonnet"``.

    When a limit of ``SdkOptions.limits`` is reached, Bridle ends the CLI, and the stream raises an
    OutcomeError after the messages. In a one-way query, ``total`` limits the whole stream from the
    first prompt; ``first_event`` and ``idle`` limit the time without messages while the CLI works
    or exits; ``turns`` limits each answer, including background work. In a session, the limits
    apply to each prompt, as in ``run``.

    Raises:
        OptionsError: an option or the prompt is invalid. Nothing was started.
    """
    return stream(prompt, settle_keywords(cli, sdk, bidir, options), deps)


def stream(prompt: Prompts, options: ResolvedOptions, deps: Any) -> QueryStream:
    """Return the stream of a query with these options.

    Raises:
        OptionsError: as :func:`query`.
    """
    if _needs_session(options):
        from bridle._session.one_way.query_session import (
            QuerySession,  # only some queries are sessions
        )

        return QueryStream(QuerySession(prompt, options, deps))
    return QueryStream(_Plan(prompt, with_prompts(options, deps)))


def _needs_session(options: ResolvedOptions) -> bool:
    """Return whether the program set an option that only a session supports.

    ``approve`` counts from every source: a one-way query would run the calls that have to wait. A
    limit in dollars needs a session, because a one-way query cannot ask the CLI for its cost. A
    runner that replaces the CLI has none.
    """
    sdk = options.sdk
    has_gate = sdk.store is not None or bool(options.bidir.approve)
    is_measured = sdk.limits.usd is not None and sdk.runner is None
    return (
        has_gate
        or is_measured
        or any(
            options.origin[f"bidir.{name}"] == "argument"
            and getattr(options.bidir, name) != row.default
            for name, row in BidirOptions.fields.items()
        )
    )


def session_of(stream: QueryStream) -> InnerSession | None:
    """Return the session of a query that runs as one, or None for a one-way query."""
    plan = stream._plan  # pyright: ignore[reportPrivateUsage]
    return None if isinstance(plan, _Plan) else cast("QuerySession", plan).session


class Running(Protocol):
    """A running query."""

    @property
    def messages(self) -> Queue[Message]: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def warnings(self) -> Iterable[SdkWarning]: ...
    @property
    def gone(self) -> asyncio.Future[None]: ...
    async def take(self) -> Message: ...
    async def close(self) -> None: ...
    def abandon(self) -> None: ...


class Startable(Protocol):
    """A query whose options and prompt were checked."""

    async def start(self) -> Running:
        """Start the CLI on the running event loop."""
        ...


class _Plan:
    """The checked options and prompts of a one-way query. It has no reference to the stream."""

    def __init__(self, prompt: Prompts, options: ResolvedOptions) -> None:
        cli, sdk = options.cli, options.sdk
        if cli.permission_prompt_tool_name == STDIO:
            raise OptionsError(
                "permission_prompt_tool_name",
                f"is {STDIO!r}, but a one-way query cannot answer permission requests",
                fix="Allow the tools with allowed_tools, or use a session.",
            )
        self._cli = cli
        self._sdk = sdk
        self._warnings = option_warnings(options)
        at_hand = prompts_at_hand(prompt)
        self._launch = plan_query(cli, sdk, settings_text=settings_text(cli))
        self._secrets = KnownSecrets(self._launch)
        self._source = prompt
        self._lines = None if at_hand is None else [self._encode(one) for one in at_hand]
        config = EngineConfig(
            initialize=self._launch.initialize,
            delivery=DeliveryConfig(max_unread=sdk.max_unread_bytes, pauses_reading=True),
            init_timeout=sdk.init_timeout,
            max_line=sdk.max_buffer_size,
            limits=sdk.limits,
            tools=tuple(wanted_tools(cli)),
            verbatim_prompts=cli.verbatim_prompts,
            is_one_way=True,
        )
        self._engine = Engine(config)
        self._lock = StartLock()

    async def start(self) -> OneWayRun:
        """Start the CLI on the running event loop."""
        sdk, cli = self._sdk, self._cli
        try:
            if sdk.runner is None and (cli.resume_session_id is not None or cli.continue_session):
                from bridle.sessions._waiting_calls import waiting_in_files  # few resume

                wait = sdk.wait or 0.0
                refuse_waiting(await waiting_in_files(self._launch, cli, self._lock, wait=wait))
            run = OneWayRun(
                self._engine,
                QueryObserver(sdk.telemetry, clock=running_loop().time, model=cli.model),
                listeners=Listeners(on_stderr=sdk.on_stderr, on_warning=sdk.on_warning),
                redact=self._secrets.redact,
                parts=[LockPart(follows=not cli.no_session_persistence)],
            )
            await run.begin(self._spawn, self._input(run.actor), *self._warnings)
        finally:
            self._lock.release()
        return run

    def _spawn(self, actor: Actor) -> Transport:
        strict = not self._sdk.permissive_version_check
        spawner = Spawner(
            self._cli,
            self._sdk,
            self._launch,
            self._secrets,
            self._engine,
            strict,
            lock=self._lock,
        )
        runner = cast("Runner | None", self._sdk.runner)
        if runner is None:
            return spawner.spawn(actor)
        return spawner.spawn(actor, lambda events: runner(spawner.traced_launch(actor), events))

    async def _input(self, actor: Actor) -> Lines:
        """Yield the lines for the CLI. The first prompt waits for the version check."""
        await actor.version_checked()
        if self._engine.lifecycle in TERMINAL:
            return
        if self._lines is not None:
            for line in self._lines:
                yield line
            return
        async with contextlib.aclosing(draw(self._source)) as prompts:
            async for prompt in prompts:
                yield self._encode(prompt)

    def _encode(self, prompt: object) -> tuple[str, bytes]:
        uuid = uuid_of(prompt) or str(uuid4())
        return uuid, encode_prompt(prompt, uuid, is_verbatim=self._cli.verbatim_prompts)
