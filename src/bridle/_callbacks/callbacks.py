"""Call functions of the user. Only telemetry (:mod:`observing`) is called elsewhere.

The task or thread of a call also validates the arguments of a tool and serialises the result (see
:mod:`serialise`). So user code never runs inside the engine.

Starting a call does not wait for it. Its result or failure is reported once, on the event loop. An
``async def`` starts at once (see :mod:`tasks`) and is cancelled when its result is no longer
needed. A plain ``def`` runs in a daemon thread as soon as its lane has a free slot (see
:mod:`lanes`). It cannot be stopped, so it is abandoned with a warning when its result is no longer
needed.

:class:`Notifier` calls the callbacks for stderr, warnings and events: in order, one call at a time,
and without delaying the session.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol, TypeGuard, cast

from msgspec import Struct

from bridle._callbacks.call_limits import MAX_ABANDONED, Lane, lanes
from bridle._callbacks.prompt_contexts import Sender
from bridle._callbacks.results.serialise import invoke, serialise
from bridle._engine.actions import Call, CallKind
from bridle._observe.user_values import describe_error, keep_texts
from bridle._runtime.tasks import Starter
from bridle._runtime.workers import WORKERS, Worker
from bridle.errors import ToolFailure
from bridle.permissions import Withdrawable, bind_withdrawal

log = logging.getLogger("bridle.callbacks")

_TOOL = CallKind.TOOL


class Running(Struct, eq=False):
    """A call that has started. It tells its callback when the CLI withdraws the request.

    An async callback awaits :meth:`wait`; a plain one calls :meth:`wait_sync`.
    """

    loop: asyncio.AbstractEventLoop
    call: Call
    #: The context that it runs in.
    context: Context
    #: The deps of the prompt that it belongs to.
    deps: Any
    #: The task in which it continues; None for a thread.
    task: asyncio.Task[Any] | None = None
    is_withdrawn: bool = False
    waiters: tuple[asyncio.Future[None], ...] = ()
    #: For threads; created by the first one that waits.
    event: threading.Event | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the callback is awaiting the withdrawal."""
        return any(not waiter.done() for waiter in self.waiters)

    def is_set(self) -> bool:
        """Return whether the request was withdrawn."""
        return self.is_withdrawn

    def wait(self) -> Awaitable[None]:
        """Return an awaitable that is done when the request is withdrawn."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        if self.is_withdrawn:
            waiter.set_result(None)
        else:
            # A callback may wait repeatedly with short timeouts. Keep only the waits that go on.
            self.waiters = (*(each for each in self.waiters if not each.done()), waiter)
        return waiter

    def wait_sync(self, timeout: float | None) -> bool:
        """Block this thread until the request is withdrawn, at most ``timeout`` seconds."""
        event = self.event = self.event or threading.Event()
        # Check the flag after the event exists: `withdraw` sets the flag before it reads the event.
        return self.is_withdrawn or event.wait(timeout)

    def withdraw(self) -> None:
        """Tell the callback that the request was withdrawn. Call this on the event loop."""
        self.is_withdrawn = True
        if self.event is not None:
            self.event.set()
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters = ()


class CallEvents(Protocol):
    """Receives reports about calls. All methods are called on the event loop."""

    def sender_of(self, call: Call) -> Sender:
        """Return the sender of the prompt that a new call belongs to."""
        ...

    def call_starts(self, call: Call, sender: Sender) -> None:
        """Report that a call is about to start."""
        ...

    def call_goes_on(self, call_id: int, started_at: float) -> None:
        """Report that a call has started and did not return at once."""
        ...

    def call_ended(self, call: Call, result: Any, error: BaseException | None) -> None:
        """Report the end of a call: its serialised result, or its exception."""
        ...

    def call_refused(self, call_id: int, why: str) -> None:
        """Report that a call will never start."""
        ...

    def call_abandoned(self, call: Call) -> None:
        """Report that a plain function goes on although its result is no longer needed."""
        ...


class Callbacks:
    """The calls of one session. ``events`` gets the end of each call that was not cancelled."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        events: CallEvents,
        serialise: Callable[[Call, object], object] = serialise,
    ) -> None:
        self._loop = loop
        self._events = events
        self._serialise = serialise
        # Calls in a task or a thread. Most calls end before they need one.
        self._running: dict[int, Running] = {}
        self._lanes = lanes()
        self._starter = Starter(loop)
        # Whether a function is async, by its id. The function is kept so that its id stays unique.
        self._are_async: dict[int, tuple[object, bool]] = {}
        # Tasks that were told of the withdrawal and may still return by themselves.
        self._lingering: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """Return the number of calls that have not ended, including those that have not started."""
        waiting = {id(lane): len(lane.waiting) for lane in self._lanes.values()}
        return len(self._running) + sum(waiting.values())

    def start(self, call: Call) -> None:
        """Start a call.

        An async function starts at once. If it returns without waiting, its end is reported before
        this method returns. A plain function starts in a thread when a slot is free.
        """
        function = call.callback.function if call.kind is _TOOL else call.callback
        known = self._are_async.get(id(function))
        if known is None:
            known = self._are_async[id(function)] = (function, is_async(function))
        if known[1]:
            self._start_at_once(call)
        else:
            lane = self._lanes[call.kind]
            # The prompt may end while the call waits, so its sender is looked up now.
            lane.waiting[call.call_id] = call, self._events.sender_of(call)
            self._fill(lane)

    def _start_at_once(self, call: Call) -> None:
        call_id, started_at = call.call_id, self._loop.time()
        running = self._begin(call, self._events.sender_of(call))
        try:
            work = self._finish(call)
            task, result = self._starter.start(work, call.label, running.context)
        except (SystemExit, KeyboardInterrupt) as error:
            # Let the program end. Report the failure later, in case the program handles the
            # exception.
            self._loop.call_soon(self._events.call_ended, call, None, error)
            raise
        except BaseException as error:  # also what is not an Exception, such as `pytest.fail`
            self._events.call_ended(call, None, error)
        else:
            if task is None:
                self._events.call_ended(call, result, None)
            else:
                self._await(call_id, running, task)
                self._events.call_goes_on(call_id, started_at)

    def _begin(self, call: Call, sender: Sender) -> Running:
        self._events.call_starts(call, sender)
        running = Running(self._loop, call, sender.context, sender.deps)
        if isinstance(call.argument, Withdrawable):
            bind_withdrawal(call.argument, running)
        return running

    async def _finish(self, call: Call, returned: Awaitable[object] | None = None) -> object:
        """Await an async function, or what a plain one returned, and serialise the result."""
        try:
            result = await (invoke(call) if returned is None else returned)
        except ToolFailure as failure:
            result = _failure_of(call, failure)
        return self._serialise(call, result)

    def _run_plain(self, call: Call) -> object:
        """Call a plain function and serialise its result. Return an awaitable result as it is."""
        try:
            result = invoke(call)
        except ToolFailure as failure:
            result = _failure_of(call, failure)
        return result if _is_awaitable(result) else self._serialise(call, result)

    def cancel(self, call_id: int) -> None:
        """Cancel a call whose result is no longer needed."""
        running = self._running.pop(call_id, None)
        if running is None:
            for lane in self._lanes.values():
                lane.waiting.pop(call_id, None)
            return
        is_told = running.is_awaited
        running.withdraw()
        if running.task is None:
            lane = self._lanes[running.call.kind]
            lane.abandon(call_id)
            self._fill_soon(lane)
            self._events.call_abandoned(running.call)
        elif is_told:
            # The callback is about to return by itself. It has until the end of the session.
            self._lingering.add(running.task)
            running.task.add_done_callback(self._lingering.discard)
        else:
            running.task.cancel()

    def close(self) -> None:
        """Cancel all calls at the end of the session."""
        for lane in self._lanes.values():
            lane.waiting.clear()
        for call_id in list(self._running):
            self.cancel(call_id)
        for task in list(self._lingering):
            task.cancel()

    # -- threads -----------------------------------------------------------------------------------

    def _fill(self, lane: Lane) -> None:
        """Start waiting calls while slots are free."""
        lane.is_due = False
        while lane.waiting and not lane.is_full:
            call_id = next(iter(lane.waiting))
            if lane.is_exhausted:
                why = f"{MAX_ABANDONED} functions have outlived their calls and still run"
            else:
                try:
                    worker = WORKERS.take()
                except Exception as error:
                    if lane.running:
                        return  # the call starts when one of these threads is free
                    why = f"no thread can be started ({describe_error(error)})"
                else:
                    self._start_in_thread(lane, *lane.waiting.pop(call_id), worker)
                    continue
            del lane.waiting[call_id]
            self._events.call_refused(call_id, why)

    def _fill_soon(self, lane: Lane) -> None:
        """Fill free slots in the next iteration, because this one may cancel more calls."""
        if lane.waiting and not lane.is_due:
            lane.is_due = True
            self._loop.call_soon(self._fill, lane)

    def _start_in_thread(self, lane: Lane, call: Call, sender: Sender, worker: Worker) -> None:
        call_id, started_at = call.call_id, self._loop.time()
        try:
            running = self._begin(call, sender)
        except BaseException:  # the program ends; release the thread, which waits for a job
            worker.do(lambda: None)
            raise
        lane.running.add(call_id)
        self._running[call_id] = running
        worker.do(lambda: self._run_in_thread(lane, call, running.context))
        self._events.call_goes_on(call_id, started_at)

    def _run_in_thread(self, lane: Lane, call: Call, context: Context) -> None:
        result: object = None
        error: BaseException | None = None
        try:
            result = context.run(self._run_plain, call)
        except BaseException as problem:  # report every exception on the event loop
            keep_texts(problem)
            error = problem
        try:
            self._loop.call_soon_threadsafe(self._on_thread_done, lane, call.call_id, result, error)
        except RuntimeError:
            _drop(result)
            log.debug("a callback returned after its event loop was closed")

    def _on_thread_done(
        self, lane: Lane, call_id: int, result: object, error: BaseException | None
    ) -> None:
        lane.returned(call_id)
        self._fill_soon(lane)
        running = self._running.get(call_id)
        if running is None:
            _drop(result)
        elif error is None and _is_awaitable(result):
            # A plain function returned a coroutine, for example a lambda that calls an async
            # function.
            work = self._finish(running.call, result)
            task = self._loop.create_task(work, name=running.call.label, context=running.context)
            self._await(call_id, running, task)
        else:
            del self._running[call_id]
            self._events.call_ended(running.call, result, error)

    def _await(self, call_id: int, running: Running, task: asyncio.Task[Any]) -> None:
        running.task = task
        self._running[call_id] = running
        task.add_done_callback(lambda done: self._on_task_done(call_id, done))

    def _on_task_done(self, call_id: int, task: asyncio.Task[Any]) -> None:
        running = self._running.pop(call_id, None)
        if running is None:
            # Cancelled by us. Read the exception, so that asyncio does not log it as never
            # retrieved.
            if not task.cancelled() and (error := task.exception()) is not None:
                log.debug("%s failed after it was cancelled: %s", task.get_name(), type(error))
            return
        if task.cancelled():
            self._events.call_ended(running.call, None, asyncio.CancelledError())
        else:
            error = task.exception()
            result = task.result() if error is None else None
            self._events.call_ended(running.call, result, error)


def is_async(function: object) -> bool:
    """Return whether a function is async: a function, method, partial or callable object."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = cast("Any", inner.func)
    try:
        return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(inner.__call__)
    except Exception:  # attribute access of a proxy or a mock may raise
        return False


def _failure_of(call: Call, failure: ToolFailure) -> ToolFailure:
    """Return what a tool raised to answer the model; raise what another callback raised."""
    if call.kind is not _TOOL:
        raise failure
    return failure


def _is_awaitable(result: object) -> TypeGuard[Awaitable[object]]:
    try:
        return inspect.isawaitable(result)
    except Exception:  # a proxy whose object is not available here
        return False


async def _finish(result: Awaitable[object]) -> object:
    return await result


def _drop(result: object) -> None:
    """Close a coroutine that will not be awaited."""
    if inspect.iscoroutine(result):
        result.close()


async def _tell(listener: Callable[[Any], object], item: object) -> None:
    await cast("Awaitable[object]", listener(item))


_UNTOLD = 10_000
"""Notifications that wait for a slow callback. Above this number the oldest one is dropped."""


class Notifier:
    """Calls one notification callback, in order and one call at a time. Never blocks.

    If the callback raises, ``failed`` gets the exception, and later notifications are still
    delivered.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: Callable[[Any], object],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._failed = failed
        self._waiting: deque[object] = deque(maxlen=_UNTOLD)
        self._busy = False
        self._idle: asyncio.Future[None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_closed = False

    def tell(self, item: object) -> None:
        """Queue a call of the callback with ``item``. Call this on the event loop."""
        if self._is_closed:
            return
        self._waiting.append(item)
        if not self._busy:
            self._busy = True
            self._next()

    def drained(self) -> asyncio.Future[None]:
        """Return a future that is done when the callback has got all notifications."""
        idle: asyncio.Future[None] = self._idle or self._loop.create_future()
        if self._busy:
            self._idle = idle
        elif not idle.done():
            idle.set_result(None)
        return idle

    def close(self) -> None:
        """Drop the queued notifications and accept no more."""
        self._is_closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def _next(self) -> None:
        if not self._waiting:
            self._busy = False
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)
            return
        item = self._waiting.popleft()
        if is_async(self._listener):
            self._await(_tell(self._listener, item))
        else:
            try:
                WORKERS.run(lambda: self._run_in_thread(item))
            except RuntimeError as error:  # no thread could be started
                self._loop.call_soon(self._done, error)

    def _await(self, telling: Coroutine[Any, Any, object]) -> None:
        self._task = self._loop.create_task(telling)
        self._task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SystemExit | KeyboardInterrupt):
            # The program ends. Another call of the callback could interrupt the clean-up.
            self._is_closed = True
            self._waiting.clear()
        self._done(error)

    def _run_in_thread(self, item: object) -> None:
        result: object = None
        error: BaseException | None = None
        try:
            result = self._listener(item)
        except BaseException as problem:  # report every exception on the event loop
            keep_texts(problem)
            error = problem
        try:
            self._loop.call_soon_threadsafe(self._on_thread_done, result, error)
        except RuntimeError:
            _drop(result)
            log.debug("a listener returned after its event loop was closed")

    def _on_thread_done(self, result: object, error: BaseException | None) -> None:
        if not _is_awaitable(result):
            self._done(error)
        elif self._is_closed:
            _drop(result)
            self._done(None)
        else:  # a plain function returned a coroutine
            self._await(_finish(result))

    def _done(self, error: BaseException | None) -> None:
        try:
            if error is not None:
                self._failed(error)
        finally:
            self._next()
