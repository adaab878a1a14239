"""The query: prompts in, messages out, and nothing in between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import TypeVar, cast
from uuid import uuid4

from bridle._core.launch import Launch, plan_query, redact, with_budget
from bridle._core.precedence import ResolvedOptions
from bridle._core.prompts import Prompts, encode_prompt, prompts_at_hand
from bridle._core.query_stream import QueryReader, greeting
from bridle._shell.known_secrets import KnownSecrets
from bridle._shell.locate import find_cli
from bridle._shell.mailbox import Closed
from bridle._shell.observing import traced
from bridle._shell.preflight import (
    check_version,
    option_warnings,
    refuse_real_api,
    settings_text,
    settle_options,
)
from bridle._shell.process import CliProcess
from bridle._shell.query_run import Lines, QueryRun
from bridle._shell.transport import (
    Transport,
    TransportEvents,
    TransportFactory,
    TransportRecorder,
)
from bridle._shell.workers import WORKERS
from bridle.errors import OptionsError, StartError
from bridle.events import SdkWarning
from bridle.messages import Message
from bridle.options import STDIO, CliOptions, SdkOptions

_T = TypeVar("_T")
_NO_MORE = object()

Runner = Callable[[Launch, TransportEvents], Transport]
"""Takes the place of the CLI: ``SdkOptions.runner``."""


class QueryStream:
    """The messages of a query, in order; an iterator and a context manager.

    The CLI is started by the first step or on entering ``async with``. The stream ends when the
    CLI does, background work included, so several results may come; what they say is yours to
    judge. When it has ended, well or with an error, no process of it is left.

    Leaving ``async with``, :meth:`aclose`, or dropping the stream ends the CLI. After a ``break``
    that happens as soon as nobody holds the stream any more; ``async with`` makes it certain.

    Cancellation: cancelling the wait for the next message loses nothing.
    Concurrency: one task at a time may iterate.
    """

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._run: QueryRun | None = None
        self._is_over = False

    @property
    def warnings(self) -> tuple[SdkWarning, ...]:
        """What Bridle survived so far, such as a CLI that failed after it had given its result."""
        return tuple(self._run.warnings) if self._run else ()

    @property
    def pid(self) -> int | None:
        """The CLI's process id, once there is one."""
        return self._run.pid if self._run else None

    def __aiter__(self) -> QueryStream:
        return self

    async def __anext__(self) -> Message:
        """The next message.

        Raises:
            StartError: the CLI did not start, refused the handshake, or ended before it.
            TransportError: the CLI failed without a result, or cannot be understood.
            BufferOverflow: a line is longer than ``SdkOptions.max_buffer_size``.
            OutcomeError: a limit of ``SdkOptions.limits`` was reached.
            Exception: whatever the iterable of prompts raised.
        """
        if self._is_over:
            raise StopAsyncIteration
        try:
            return await self._started().take()
        except Closed as end:
            self._is_over = True
            if end.error is not None:
                raise end.error from None
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """End the CLI, and let go of what was not read. Calling it again is fine.

        Returns when no process of it is left. Cancelling the wait does not cancel the end.
        """
        self._is_over = True
        if self._run is not None:
            await self._run.close()

    async def __aenter__(self) -> QueryStream:
        if not self._is_over:
            self._started()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _started(self) -> QueryRun:
        if self._run is None:
            try:
                self._run = self._plan.start()
            except BaseException:
                self._is_over = True
                raise
            # The run is kept alive by its process; the stream is not, so that it can be dropped.
            weakref.finalize(self, self._run.abandon).atexit = False
        return self._run

    def __repr__(self) -> str:
        state = "over" if self._is_over else "running" if self._run else "not started"
        return f"QueryStream({state}, pid={self.pid})"


def query(
    prompt: Prompts, cli: CliOptions | None = None, sdk: SdkOptions | None = None
) -> QueryStream:
    """Ask the CLI something and iterate over what it says, to its end.

    The prompt is a text, a list of content blocks, a user message as a mapping, or an iterable of
    these. An async iterable is drawn from as the CLI takes its prompts, so it may wait for the
    answer to one before it gives the next; a plain one, unless it is a list or tuple, is drawn
    from in a thread. What it raises is raised by the stream. The CLI may merge prompts that wait
    into one turn.

    There are no callbacks and no control operations. A tool that nobody allowed beforehand is
    denied; use a session to be asked. A limit of ``SdkOptions.limits`` that is reached ends the
    CLI, and is raised as its error after what came. ``total`` is that of the stream, from the first
    prompt to its end; ``first_event`` and ``idle`` are silence while the CLI owes something, its
    end included; ``turns`` and ``usd`` bound each answer, background work included.

    Raises:
        OptionsError: an option or the prompt is refused, here and now; nothing is started.
    """
    options = settle_options(cli, sdk, None)
    return QueryStream(_Plan(prompt, options))


class _Plan:
    """All that is settled before a query starts. Holds nothing of the stream."""

    def __init__(self, prompt: Prompts, options: ResolvedOptions) -> None:
        cli, sdk = options.cli, options.sdk
        if cli.permission_prompt_tool_name == STDIO:
            raise OptionsError(
                "permission_prompt_tool_name",
                f"{STDIO!r} asks whoever started the CLI, and a query answers nothing",
                fix="Allow what is needed with allowed_tools, or use a session.",
            )
        self._cli = cli
        self._sdk = sdk
        self._warnings = option_warnings(options)
        at_hand = prompts_at_hand(prompt)
        # Nothing is asked of a query's CLI, but for a single prompt it can count the dollars.
        is_single = at_hand is not None and len(at_hand) == 1
        budgeted = with_budget(cli, sdk.limits) if is_single else cli
        self._launch = plan_query(budgeted, sdk, settings_text=settings_text(cli))
        self._secrets = KnownSecrets(self._launch)
        self._greeting = greeting(self._launch.initialize)
        self._source = prompt
        self._lines = None if at_hand is None else [_encode(one) for one in at_hand]
        has_budget = budgeted is not cli
        self._reader = QueryReader(sdk.max_buffer_size, sdk.limits, has_budget=has_budget)
        self._path: str | None = None

    def start(self) -> QueryRun:
        """Start the CLI, on the running loop."""
        sdk = self._sdk
        run = QueryRun(
            self._reader,
            max_unread_bytes=sdk.max_unread_bytes,
            on_stderr=sdk.on_stderr,
            on_warning=sdk.on_warning,
            redact=self._secrets.redact,
            telemetry=sdk.telemetry,
            model=self._cli.model,
        )
        for warning in self._warnings:
            run.warn(warning)
        try:
            run.start(self._spawn, self._greeting, self._input(run), sdk.init_timeout)
        except StartError as error:
            self._reader.end(error)
            raise
        return run

    def _spawn(self, run: QueryRun) -> Transport:
        factory: TransportFactory = partial(self._spawn_process, run)
        recorder = cast("TransportRecorder | None", self._sdk.recorder)
        if recorder is not None:
            about = {"argv": redact(self._launch.argv), "cwd": self._launch.cwd}
            factory = recorder.wrap(factory, secrets=self._secrets.values, about=about)
        return factory(run)

    def _spawn_process(self, run: QueryRun, events: TransportEvents) -> Transport:
        runner = cast("Runner | None", self._sdk.runner)
        launch = traced(self._launch, run.observer.environment())
        if runner is not None:
            return runner(launch, events)
        named = self._cli.cli_path
        self._path = path = find_cli(None if named is None else os.fspath(named))
        refuse_real_api(path, os.environ, self._launch.environment(os.environ), self._cli.settings)
        self._reader.describe(cli_path=path, argv=redact(self._launch.argv))
        return CliProcess.spawn(path, launch, events)

    async def _input(self, run: QueryRun) -> Lines:
        """What the CLI reads. It gets no prompt before it is known to be one we can talk to."""
        if self._path is not None and not self._sdk.skip_version_check:
            await self._check_version(self._path, run)
        if self._lines is not None:
            for line in self._lines:
                yield line
        elif isinstance(self._source, AsyncIterable):
            source = cast("AsyncIterable[object]", self._source)
            async with _closing(source):
                async for prompt in source:
                    yield _encode(prompt)
        else:
            plain = cast("Iterable[object]", self._source)
            iterator = await _in_thread(lambda: iter(plain))
            while (prompt := await _in_thread(lambda: next(iterator, _NO_MORE))) is not _NO_MORE:
                yield _encode(prompt)

    async def _check_version(self, path: str, run: QueryRun) -> None:
        warning = await check_version(
            path,
            self._launch,
            redact=self._secrets.redact,
            describe=self._reader.describe,
            strict=not self._sdk.permissive_version_check,
        )
        if warning is not None:
            run.warn(warning)


def _encode(prompt: object) -> bytes:
    return encode_prompt(prompt, str(uuid4()))


@contextlib.asynccontextmanager
async def _closing(source: AsyncIterable[object]) -> AsyncGenerator[None, None]:
    """Let a generator clean up when it is left early; other iterables have nothing to close."""
    try:
        yield
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def _in_thread(function: Callable[[], _T]) -> _T:
    """Call a plain function of the application's without holding up the loop.

    Cancelling the wait leaves it to itself.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(result: list[_T], error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result[0])
        else:
            done.set_exception(error)

    def job() -> None:
        result: list[_T] = []
        error: BaseException | None = None
        try:
            result.append(function())
        except StopIteration as problem:  # no future takes one; as from a generator
            error = RuntimeError("an iterable of prompts raised StopIteration")
            error.__cause__ = problem
        except BaseException as problem:  # whatever it raised belongs to whoever waits for it
            error = problem
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    WORKERS.run(job)
    return await done
