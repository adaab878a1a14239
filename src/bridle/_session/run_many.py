"""`run_many`: run the prompts of an iterable, some at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sized
from typing import Any, TypeAlias, cast

from msgspec import Struct

from bridle._callbacks.callbacks import Notifier
from bridle._callbacks.iterated_prompts import draw
from bridle._records.callables import name_of
from bridle._records.fields import callback, integer, is_mapping
from bridle._session.preflight import running_loop
from bridle._session.run import OneTurn, Run
from bridle.errors import (
    BridleError,
    ControlError,
    OptionsError,
    SessionStopped,
    StartError,
    UsageError,
)
from bridle.errors._redaction import redact_text
from bridle.outcomes import Outcome, OutcomeReason

log = logging.getLogger("bridle.callbacks")

Make: TypeAlias = Callable[[Any], Run]
"""Makes the run of a prompt. Raises OptionsError for an invalid prompt."""

_GRACE = 1.0
"""Seconds that the iterable of prompts, and the progress callback, have to finish."""

_at_once = integer(1)


def _show_nothing(_: OneTurn) -> None:
    """Keep nothing for a run."""


class RunProgress(Struct, frozen=True, kw_only=True):
    """How far a `run_many` has come. Its progress callback gets one after every start and end."""

    #: Runs that have started and not ended.
    running: int = 0
    #: Runs that completed.
    ok: int = 0
    #: Runs that ended with another reason.
    failed: int = 0
    #: Number of prompts, or None if the iterable has no length.
    total: int | None = None
    #: Cost of all ended runs in US dollars, as far as the CLI reported it.
    cost_usd: float = 0.0

    @property
    def finished(self) -> int:
        """Return the number of runs that have ended."""
        return self.ok + self.failed


class RunMany(Struct, kw_only=True):
    """The checked arguments of a `run_many`."""

    prompts: Any
    make: Make
    at_once: int
    progress: Callable[[RunProgress], object] | None
    #: Called with each run before it starts. Its result is kept until the run has ended.
    show: Callable[[OneTurn], object] = _show_nothing

    def __post_init__(self) -> None:
        """Check the arguments.

        Raises:
            OptionsError: an argument is invalid.
        """
        _at_once("at_once", self.at_once)
        if self.progress is not None:
            callback("progress", self.progress)
        fix = "Use a list, or another iterable of prompts."
        if isinstance(self.prompts, str | bytes) or is_mapping(self.prompts):
            raise OptionsError("prompts", "is a single prompt", fix=fix)
        if not isinstance(self.prompts, Iterable | AsyncIterable):
            problem = f"must be an iterable, got {type(self.prompts).__name__}"
            raise OptionsError("prompts", problem, fix=fix)

    async def outcomes(self) -> AsyncGenerator[tuple[Any, Outcome[Any]], None]:
        """Yield each prompt with its outcome, in the order in which the runs end."""
        work = _Work(self)
        dispatching = asyncio.ensure_future(work.dispatch())
        dispatching.add_done_callback(work.dispatched)
        try:
            while (ended := await work.ended.get()) is not None:
                if isinstance(ended, BaseException):
                    raise ended
                work.slots.release()
                yield ended
            if dispatching.cancelled():  # by other code: only `close` below cancels it here
                what = "The task of run_many that reads the prompts was cancelled."
                raise UsageError(what, fix="Cancel the task that loops over the outcomes.")
            dispatching.result()  # raises what the iterable of prompts raised
            await work.last_progress()
        finally:
            await work.close(dispatching)


class _Work:
    """The runs of one `run_many` on the running event loop."""

    def __init__(self, plan: RunMany) -> None:
        self._plan = plan
        #: A run holds a slot from the reading of its prompt until its outcome is taken.
        self.slots = asyncio.Semaphore(plan.at_once)
        #: The ended runs, or what a run raised against all expectation; then None.
        self.ended: asyncio.Queue[tuple[Any, Outcome[Any]] | BaseException | None] = asyncio.Queue()
        self._running: set[asyncio.Task[None]] = set()
        prompts = plan.prompts
        self._ok = self._failed = 0
        self._cost = 0.0
        self._total = len(prompts) if isinstance(prompts, Sized) else None
        self._notifier: Notifier | None = None
        if plan.progress is not None:
            self._notifier = Notifier(running_loop(), plan.progress, self._progress_failed)

    async def dispatch(self) -> None:
        """Start a run for every prompt, as slots are free. Return when all have ended.

        Raises:
            UsageError: the iterable raised CancelledError. It would look like a cancellation of
                the program.
        """
        try:
            async with contextlib.aclosing(_each(self._plan.prompts)) as prompts:
                await self.slots.acquire()
                async for prompt in prompts:
                    task = asyncio.ensure_future(self._run(prompt))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
                    self._tell()
                    await self.slots.acquire()
        except asyncio.CancelledError as error:
            if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                raise
            what = "The iterable of prompts raised CancelledError."
            raise UsageError(what, fix="Raise another exception in it, or end it.") from error
        finally:
            while self._running:
                await asyncio.wait(self._running)

    def dispatched(self, dispatching: asyncio.Future[None]) -> None:
        """End the loop over the outcomes: :meth:`dispatch` has ended, in whatever way."""
        # Read the exception, so that asyncio does not log it if the loop was left.
        _ = dispatching.cancelled() or dispatching.exception()
        self.ended.put_nowait(None)

    async def _run(self, prompt: Any) -> None:
        try:
            run = self._plan.make(prompt)
            shown = self._plan.show(run)
            run.show = self._plan.show
            outcome = await run.outcome()
            del shown
        except (StartError, ControlError, OptionsError) as error:
            outcome = failed_outcome(error)
        except asyncio.CancelledError:
            # By `close`, which drops the outcome, or by other code: then the loop goes on.
            detail = "the task of this run was cancelled"
            outcome = Outcome(reason=OutcomeReason.STOPPED, detail=detail)
        except Exception as error:  # raised to the program by the loop over the outcomes
            self.ended.put_nowait(error)
            return
        self._ok += outcome.ok
        self._failed += not outcome.ok
        self._cost += outcome.cost_usd or 0.0
        self._running.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        self._tell()
        self.ended.put_nowait((prompt, outcome))

    def _tell(self) -> None:
        if self._notifier is not None:
            self._notifier.tell(
                RunProgress(
                    running=len(self._running),
                    ok=self._ok,
                    failed=self._failed,
                    total=self._total,
                    cost_usd=self._cost,
                )
            )

    def _progress_failed(self, error: BaseException) -> None:
        name = name_of(self._plan.progress)
        log.warning("The progress callback %s raised an exception.", name, exc_info=error)

    async def last_progress(self) -> None:
        """Wait until the progress callback has got everything, for at most a second."""
        if self._notifier is not None:
            await asyncio.wait([self._notifier.drained()], timeout=_GRACE)

    async def close(self, dispatching: asyncio.Future[None]) -> None:
        """End what still runs, and return when the CLIs have exited."""
        if self._notifier is not None:
            self._notifier.close()
        running = [*self._running]
        for task in (*running, dispatching):
            task.cancel()
        if running:
            await asyncio.wait(running)
        await asyncio.wait([dispatching], timeout=_GRACE)


async def _each(prompts: Any) -> AsyncGenerator[Any, None]:
    """Yield the prompts. A list is at hand; another plain iterable is read in a thread."""
    if isinstance(prompts, list | tuple):
        for one in cast("Iterable[object]", prompts):
            yield one
    else:
        async with contextlib.aclosing(draw(prompts)) as source:
            async for prompt in source:
                yield prompt


def failed_outcome(error: BridleError) -> Outcome[Any]:
    """Return the outcome of a run that raised this error before its turn began."""
    reason = OutcomeReason.START_FAILED
    if isinstance(error, ControlError):  # the session had started, and the prompt was not sent
        is_stopped = isinstance(error, SessionStopped) and not error.cause
        reason = OutcomeReason.STOPPED if is_stopped else OutcomeReason.CLI_EXITED
    words = [*filter(None, map(str, error.args)), error.fix]
    detail = redact_text(f"{type(error).__name__}: {' '.join(filter(None, words))}")
    return Outcome(reason=reason, detail=detail, process=error.process)
