"""Run a session: feed the engine, perform its actions, and keep its one timer.

Everything runs in callbacks of one event loop, so no cancellation can interrupt it half way. The
read callback passes pipe data to the engine, and performs the actions of the engine before it
returns. This module never calls user code (see :mod:`callbacks`) and never waits for a consumer.

One task waits for the end of the process. If it is cancelled, for example by ``asyncio.run`` when
the program ends, it stops the session and waits on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar
from uuid import uuid4

from msgspec import structs

from bridle._callbacks.call_reports import CallReports, Failure
from bridle._callbacks.callbacks import Callbacks, Notifier
from bridle._callbacks.prompt_contexts import Senders
from bridle._engine import actions as act
from bridle._engine.engine import Engine
from bridle._engine.outgoing.requests import SEND_USER_MESSAGE
from bridle._engine.state import TERMINAL, Lifecycle
from bridle._engine.turns.turn_records import Used
from bridle._observe.known_secrets import clean, clean_outcome
from bridle._observe.listeners import LISTENER_FAILED, Listeners, WarningOutlet
from bridle._observe.observer import SessionObserver
from bridle._observe.user_values import describe_error, plain_fields
from bridle._process.transport import Transport
from bridle._runtime.forked_loops import is_inherited
from bridle._runtime.stored_errors import to_raise
from bridle._runtime.tasks import StartedCoroutine
from bridle._session.parts.part import Part, shown_to
from bridle._session.parts.waiting_part import stamped
from bridle._session.preflight import running_loop
from bridle._session.readers.queues import Subscriptions, foreign_loop
from bridle._session.readers.turn_state import TurnState
from bridle.content import Content
from bridle.errors import (
    BridleError,
    ControlTimeout,
    SessionStopped,
    SpawnError,
    StartError,
    UnsupportedCliVersionError,
)
from bridle.errors._redaction import redact_text
from bridle.events import SdkWarning, SessionFailed, SessionReady, WarningKind
from bridle.tools import bind_key, bind_session

log = logging.getLogger("bridle.session")

_TOOL = act.CallKind.TOOL  # Bound to a local name because enum attribute access is slow.

_UNKILLABLE = 5.0
"""Seconds after SIGKILL after which the session no longer waits for the process to exit."""

_LAST_WORDS = 1.0
"""Seconds that the callbacks for events, warnings and stderr have to finish at the end."""


class Actor:
    """The process, engine, timer, calls and subscriptions of one session, on one event loop."""

    def __init__(
        self,
        engine: Engine,
        observer: SessionObserver,
        *,
        listeners: Listeners | None = None,
        owner: Callable[[], object | None] = lambda: None,
        closers: Sequence[Callable[[], Awaitable[None]]] = (),
        parts: Sequence[Part] = (),
        redact: Callable[[str], str] = redact_text,
        deps: Any = None,
    ) -> None:
        self._loop = running_loop()
        self._engine = engine
        self._deadlines = engine.deadlines
        self.observer = observer
        # Removes secrets from text of the CLI that errors, warnings and events quote.
        self._redact = redact
        # Returns the session, or None. A reference to it would keep an unused session alive.
        self._owner = owner
        # Called at the end of the session, to release what depends on it.
        self._closers = closers
        #: What the session does beside the conversation.
        self.parts = parts
        self._transport: Transport | None = None
        # Actions of the engine that have not been performed yet.
        self._to_do: deque[act.Action | Failure] = deque()
        self._is_doing = False
        #: The control requests that were sent so far.
        self.operations: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._armed = math.inf
        self.subscriptions = Subscriptions(self._loop, engine.delivery, self._react_to_readers)
        self._senders = Senders(deps, engine.has_tasks)
        self._callbacks = Callbacks(
            self._loop,
            CallReports(engine, self.observer, self._senders, self._loop.time, self._do),
        )
        # Begins the idempotency keys of tool calls that the CLI does not identify.
        self._key_prefix = uuid4().hex[:20]
        #: Done when no process of the session is left.
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._guard: asyncio.Task[None] | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._version_check: asyncio.Task[None] | None = None
        self.outlet = WarningOutlet(self._loop, self._deliver_warning, redact)
        self.warn = self._tell = self.outlet.tell
        told = listeners or Listeners()
        self._stderr = self._notifier(told.on_stderr, WarningKind.STDERR_CALLBACK_FAILED)
        self._warning = self._notifier(told.on_warning, WarningKind.EVENT_CALLBACK_FAILED)
        self._event = self._notifier(told.on_event, WarningKind.EVENT_CALLBACK_FAILED)
        for part in parts:
            part.join(self)
        self._perform = shown_to(parts, self._PERFORM)

    # -- properties --------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine of this session. Callers only read from it."""
        return self._engine

    @property
    def pid(self) -> int | None:
        """The process id of the CLI, or None before it is started."""
        return self._transport.pid if self._transport else None

    @property
    def is_started(self) -> bool:
        """Whether the CLI was started."""
        return self._transport is not None

    @property
    def is_alive(self) -> bool:
        """Whether the session can be used."""
        return self._engine.lifecycle is Lifecycle.RUNNING and not self._engine.is_closing

    @property
    def is_gone(self) -> bool:
        """Whether no process of the session is left."""
        return self.gone.done()

    # -- the application ---------------------------------------------------------------------------

    async def start(self, spawn: Callable[[Actor], Transport], *warnings: SdkWarning) -> None:
        """Report warnings about the options, start the process and wait until the session is ready.

        Raises:
            StartError: the session could not be started. No process is left.
        """
        try:
            with self.observer.operation("start"):
                await self.launch(spawn, *warnings)
                self._arm(self._deadlines.next)  # drop the timer of the start deadline
        except BaseException:
            await self.stop()
            raise

    def launch(
        self, spawn: Callable[[Actor], Transport], *warnings: SdkWarning
    ) -> asyncio.Future[None]:
        """Report warnings about the options and start the process.

        The future is done when the session is ready, and has the exception if it failed.
        """
        key: asyncio.Future[None] = self._loop.create_future()
        for warning in warnings:
            self._tell(warning)
        watching = StartedCoroutine(self._watch_over())
        self._guard = self._loop.create_task(watching, name="bridle-session")
        self._spawn(key, spawn)
        return key

    def _spawn(self, key: asyncio.Future[None], spawn: Callable[[Actor], Transport]) -> None:
        try:
            self._transport = spawn(self)
        except StartError as error:
            self._do(self._engine.spawn_failed(key, error, self._loop.time()))
        except BaseException as error:
            # The error is not about the CLI, but the engine must know that there is no process.
            failed = SpawnError(describe_error(error))
            self._do(self._engine.spawn_failed(key, failed, self._loop.time()))
            key.exception()
            raise
        else:
            self._do(self._engine.start(key, self._loop.time()))

    def await_version(self, check: Callable[[], Coroutine[Any, Any, SdkWarning | None]]) -> None:
        """Check the version of the CLI while it starts. The session is ready after both."""
        self._engine.handshake.awaits_version = True
        self._version_check = self._loop.create_task(self._await(check), name="bridle-version")

    async def _await(self, check: Callable[[], Coroutine[Any, Any, SdkWarning | None]]) -> None:
        # With an eager task factory, the engine has not been started yet at this point.
        await asyncio.sleep(0)
        try:
            warning = await check()
        except UnsupportedCliVersionError as error:
            self.fail(error)
            return
        if warning is not None:
            self._tell(warning)
        self._do(self._engine.version_accepted(self._loop.time()))

    async def submit(
        self, operation: str, fields: Mapping[str, object], timeout: float | None = None
    ) -> Mapping[str, object] | None:
        """Send a control request and return the response.

        Cancelling the call drops the request if it is not sent yet, and otherwise its response.
        """
        now, key = self._now(), self._loop.create_future()
        began = self.observer.operation_began(operation, now)
        was_asked = False
        try:
            fields = plain_fields(operation, fields)
            self.operations.add(operation)
            self._do(self._engine.submit(key, operation, fields, now, timeout))
            was_asked = not key.done()
            answer: Mapping[str, object] | None = await key
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._do(self._engine.cancel(key))
            stopped = isinstance(error, SessionStopped) and self._engine.is_closing
            # The end of the session cancelled the request, which is not a failure of the request.
            told = None if stopped and was_asked else error
            self.observer.operation_failed(operation, now, began, told)
            raise
        if began is not None:
            self.observer.operation_ended(began)
        return answer

    async def send(
        self,
        uuid: str,
        content: Content | bytes,
        timeout: float | None = None,
        *,
        deps: Any,
        used: Used | None = None,
    ) -> TurnState:
        """Send a prompt, or its encoded line, and wait until it is written to the CLI.

        Args:
            uuid: the id of the turn.
            content: the prompt, or its encoded line.
            timeout: the longest wait in seconds; None waits without a limit.
            deps: the object that the callbacks of this turn get as ``deps``.
            used: what earlier prompts of the same answer have used of the limits.

        Raises:
            ControlTimeout: the timeout has passed.
        """
        now, key = self._now(), self._loop.create_future()
        state = self._turn(uuid)
        with self.observer.operation(SEND_USER_MESSAGE):
            self._senders.sending(uuid, deps)
            deadline = asyncio.timeout(timeout)
            try:
                self._do(self._engine.send(key, uuid, content, now, used))
                async with deadline:
                    await key
                    if self._transport is not None:
                        await self._transport.drain()
            except BaseException as error:
                self._do(self._engine.cancel(key))
                if not key.done() or key.cancelled() or key.exception() is not None:
                    self._senders.failed(uuid)
                    self.subscriptions.cancel_turn(uuid)
                if isinstance(error, TimeoutError) and timeout is not None and deadline.expired():
                    raise ControlTimeout(SEND_USER_MESSAGE, None, timeout) from None
                raise
        return state

    def post(self, uuid: str, line: bytes) -> bool:
        """Send a prompt of a query. Return False if the CLI takes no more prompts."""
        key: asyncio.Future[str] = self._loop.create_future()
        self._do(self._engine.send(key, uuid, line, self._loop.time()))
        return key.exception() is None

    def resume(self, uuid: str, *, deps: Any) -> TurnState:
        """Return the state of a turn that the CLI continues when it starts. Call it before that."""
        self._senders.sending(uuid, deps)
        return self._turn(uuid)

    def _turn(self, uuid: str) -> TurnState:
        is_running = self._engine.is_running
        return TurnState(
            self._loop, uuid, self.subscriptions, submit=self.submit, is_running=is_running
        )

    def forward(self, server: str, message: Mapping[str, object]) -> None:
        """Send a notification of an in-process MCP server to the CLI. Ignore the response."""
        key: asyncio.Future[Any] = self._loop.create_future()
        key.add_done_callback(lambda done: done.cancelled() or done.exception())
        fields = {"server_name": server, "message": message}
        self._do(self._engine.submit(key, "mcp_message", fields, self._loop.time()))

    def set_server(self, name: str, handler: object | None) -> None:
        """Register the handler of an in-process MCP server. None removes it and its calls."""
        self._engine.servers.set_server(name, handler)
        self._do(self._engine.react(self._loop.time()))

    def lend(self, deps: Any) -> None:
        """Give an idle session to another caller, without the readers of the last one."""
        self._senders.reset(deps)
        self.subscriptions.restart()

    async def version_checked(self) -> None:
        """Wait until the version check has ended, if one was started."""
        if self._version_check is not None:
            await asyncio.wait([self._version_check])

    def end_input(self) -> None:
        """Close the input of the CLI. The CLI finishes its work and exits."""
        self._do(self._engine.end_input(self._loop.time()))

    async def close(self) -> None:
        """Shut down the CLI and wait for its end. Cancelling the call does not stop this."""
        await self._end(self._engine.close)

    async def stop(self) -> None:
        """Stop the CLI now and wait for its end. Cancelling the call does not stop this."""
        await self._end(self._engine.stop)

    def kill(self) -> None:
        """Kill the CLI now. The session then ends as after a crash. Safe from any thread."""
        if self._transport is not None:
            self._transport.kill()

    def abandon(self) -> None:
        """Stop a session that the program no longer refers to. Safe to call from any thread."""
        self.subscriptions.forget_early()
        if self.is_gone:
            return
        try:
            self._loop.call_soon_threadsafe(self._stop_soon)
        except RuntimeError:
            if self._transport is not None:
                log.warning("a session outlived its event loop; the watchdog ends its process")

    def fail(self, error: BridleError) -> None:
        """End the session with this error."""
        self._tell_stderr()
        self._do(self._engine.break_off(error, self._loop.time()))

    @property
    def newest_turn(self) -> str | None:
        """The turn of the last prompt that was sent."""
        return self.subscriptions.newest_turn

    async def wait_ended(self) -> None:
        """Wait until all turns and requests have ended, so that no prompt can be sent any more."""
        await asyncio.shield(self._ended)

    async def wait_gone(self) -> None:
        """Wait until no process of the session is left."""
        await asyncio.shield(self.gone)

    def _now(self) -> float:
        """Return the time. Raise UsageError on another event loop than that of the session."""
        if asyncio.get_running_loop() is not self._loop:
            raise foreign_loop()
        return self._loop.time()

    # -- the transport (TransportEvents) -----------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Pass output of the CLI to the engine."""
        self.subscriptions.settle()  # the core must know which turns a loop reads
        self._do(self._engine.receive(data, self._loop.time()))

    def output_ended(self) -> None:
        """Report the end of the CLI's output to the engine."""
        self._do(self._engine.output_ended(self._loop.time()))

    def wrote_stderr(self, line: str) -> None:
        """Pass a line of stderr to the callback, if there is one."""
        if self._stderr is not None:
            self._stderr.tell(line)

    def exited(self, exit_code: int | None) -> None:
        """Report the exit of the process to the engine."""
        tail = self._redact(self._transport.stderr_tail) if self._transport else ""
        self._do(self._engine.exited(exit_code, tail, self._loop.time()))

    def input_failed(self, reason: str) -> None:
        """Report to the parts and to the engine that the CLI has closed its input."""
        for part in self.parts:
            part.input_lost()
        self._do(self._engine.write_failed(reason, self._loop.time()))

    # -- actions of the engine ---------------------------------------------------------------------

    def _do(self, actions: Iterable[act.Action | Failure]) -> None:
        (to_do := self._to_do).extend(actions)
        if self._is_doing:
            return  # the transport called back in a write: the loop below performs these actions
        self._is_doing = True
        try:
            while to_do:
                action = to_do.popleft()
                self._perform[type(action)](self, action)
        except BaseException:  # perform the other actions later: callers wait for them
            self._loop.call_soon(self._do, ())
            raise
        finally:
            self._is_doing = False
        # A timer that fires too early is set again. That is cheaper than one timer per deadline.
        if self._deadlines.soonest < self._armed:
            self._arm(self._deadlines.next)

    def _arm(self, deadline: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = math.inf if deadline is None else deadline
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._advance)

    def _advance(self) -> None:
        armed, self._armed = self._armed, math.inf
        due = self._deadlines.next
        if due is None or due > armed:
            self._do([])
            return
        self._tell_stderr()
        # A timer may fire slightly early, and the engine must find its deadline in the past.
        self._do(self._engine.advance(max(self._loop.time(), due)))

    def _write(self, action: act.Write) -> None:
        assert self._transport is not None, "there is a process to write to"
        try:
            self._transport.write(action.data)
        except Exception as error:  # raised by a transport of the application
            self.input_failed(self._redact(describe_error(error)))

    def _end_input(self, _: act.EndInput) -> None:
        self._process.end_input()

    def _terminate(self, _: act.Terminate) -> None:
        self._process.terminate()

    def _kill(self, _: act.Kill) -> None:
        self._process.kill()
        self._loop.call_later(_UNKILLABLE, self._presume_dead)

    def _presume_dead(self) -> None:
        """Treat a process that survives SIGKILL as exited, so that the session can end."""
        if not self.gone.done() and self._releasing is None:
            log.error("the CLI (pid %s) could not be killed", self.pid)
            self.exited(None)
            self.output_ended()

    def _deliver(self, action: act.Deliver | act.Attribute) -> None:
        self.subscriptions.put(action.readers, action.messages, action.size)

    def _discard(self, action: act.Discard) -> None:
        self.subscriptions.discard(action.reader)

    def _drop_oldest(self, action: act.DropOldest) -> None:
        self.subscriptions.drop_oldest(action.reader, action.notice)

    def _pause_reading(self, _: act.PauseReading) -> None:
        self._process.pause_reading()

    def _resume_reading(self, _: act.ResumeReading) -> None:
        self._process.resume_reading()

    def _react_to_readers(self) -> None:
        self._do(self._engine.react(self._loop.time()))

    def _start_turn(self, action: act.TurnStarted) -> None:
        self.observer.turn_began(action.uuid, self._senders.of(action.uuid).context)

    def _end_turn(self, action: act.TurnEnded) -> None:
        outcome = stamped(clean_outcome(action.outcome, self._redact))
        self.observer.turn_ended(action.uuid, outcome)
        self._senders.ended(action.uuid)
        self.subscriptions.end_turn(action.uuid, outcome)

    def _resolve(self, action: act.Resolve) -> None:
        key: Any = action.key
        if not key.done():
            key.set_result(action.value)

    def _reject(self, action: act.Reject) -> None:
        key: Any = action.key
        clean(action.error, self._redact)
        if not key.done():
            key.set_exception(to_raise(action.error))

    def _call(self, action: act.Call) -> None:
        if action.kind is _TOOL:
            bind_session(action.argument, self._owner())
            if action.argument.tool_use_id is None:
                # Nothing else identifies the call. A uuid for each call takes much longer.
                bind_key(action.argument, f"{self._key_prefix}{action.call_id:012x}")
        self._callbacks.start(action)

    def _cancel_call(self, action: act.CancelCall) -> None:
        self.observer.call_cancelled(action.call_id, timed_out=action.timed_out)
        self._callbacks.cancel(action.call_id)

    def _publish(self, action: act.Publish) -> None:
        event = action.event
        if isinstance(event, SessionReady):
            event = structs.replace(event, pid=self.pid)
        elif isinstance(event, SessionFailed):
            self._add_stderr(event.error)
            clean(event.error, self._redact)
            event = structs.replace(event, reason=self._redact(event.reason))
        if self._engine.lifecycle in TERMINAL:
            self.outlet.flush()  # the final event must be the last one
        self.observer.happened(event)
        self.subscriptions.put_event(event)
        if self._event is not None:
            self._event.tell(event)

    def _warn(self, action: act.Warn) -> None:
        self._tell(SdkWarning(action.kind, action.detail))

    def _warn_of(self, failure: Failure) -> None:
        self._tell(SdkWarning(failure.warning.kind, failure.warning.detail, failure.error))

    def _leave_to_parts(self, _: act.Mirror | act.SessionNamed) -> None:
        """Do nothing."""

    def _finish(self, _: act.Finished) -> None:
        """Start to release the process and everything else. All turns and requests have ended."""
        if not self._ended.done():
            self._ended.set_result(None)
        self._releasing = self._loop.create_task(
            StartedCoroutine(self._release()), name="bridle-release"
        )
        self.outlet.flush()
        self.subscriptions.close()
        self.observer.finished()

    # -- notifications -----------------------------------------------------------------------------

    def _notifier(
        self, listener: Callable[[Any], object] | None, kind: WarningKind
    ) -> Notifier | None:
        if listener is None:
            return None

        def failed(error: BaseException) -> None:
            self._tell(SdkWarning(kind, describe_error(error), error))

        return Notifier(self._loop, listener, failed)

    def _deliver_warning(self, warning: SdkWarning) -> None:
        self.observer.happened(warning)
        may_tell = warning.kind not in LISTENER_FAILED
        if self._warning is not None and may_tell and warning.level != "debug":
            self._warning.tell(warning)
        if warning.level in {"warning", "error"}:
            self.subscriptions.put_event(warning)
            if self._event is not None and may_tell:
                self._event.tell(warning)

    # -- the end -----------------------------------------------------------------------------------

    def _tell_stderr(self) -> None:
        """Pass the stderr so far to the engine, for errors about a process that has not exited."""
        if self._transport is not None:
            self._engine.describe(stderr_tail=self._redact(self._transport.stderr_tail))

    def _add_stderr(self, error: BridleError | None) -> None:
        """Add the stderr of the CLI to an error that the engine made without it."""
        if error is not None and error.process is not None and self._transport is not None:
            tail = error.stderr_tail or self._redact(self._transport.stderr_tail)
            error.with_process(structs.replace(error.process, stderr_tail=tail))

    def _stop_soon(self) -> None:
        self._do([] if is_inherited(self._loop) else self._engine.stop(self._loop.time()))

    async def _end(self, how: Callable[[float], list[act.Action]]) -> None:
        if is_inherited(self._loop):
            return
        self._do(how(self._now()))
        if self._guard is None and self._releasing is None:  # never started: no process has to exit
            self._finish(act.Finished())
        await asyncio.shield(self.gone)

    async def _watch_over(self) -> None:
        is_cancelled = False
        while not self.gone.done() and not is_inherited(self._loop):
            try:
                await asyncio.shield(self.gone)
            except asyncio.CancelledError:  # maybe again; not kept: it would keep the session
                is_cancelled = True
                self._stop_soon()
        if is_cancelled:
            raise asyncio.CancelledError

    async def _release(self) -> None:
        """Release everything. If this is cancelled, the parts and the process are still closed."""
        self._arm(None)
        self._callbacks.close()
        try:
            try:
                if self._version_check is not None:
                    self._version_check.cancel()
                    await asyncio.wait([self._version_check])
                for close in self._closers:
                    await close()
            finally:
                await self._close_parts()
            told = [each for each in (self._stderr, self._warning, self._event) if each is not None]
            if told:
                await asyncio.wait([each.drained() for each in told], timeout=_LAST_WORDS)
            for each in told:
                each.close()
        finally:
            self.outlet.flush()
            try:
                await self.release_process()
            finally:
                if not self.gone.done():
                    self.gone.set_result(None)

    async def _close_parts(self) -> None:
        failed: BaseException | None = None
        for part in self.parts:
            try:
                await part.close()
            except BaseException as error:
                if failed is not None:
                    log.debug("another part could not be closed: %s", type(error).__name__)
                failed = failed or error
        if failed is not None:
            raise failed

    async def release_process(self) -> None:
        """Wait until no process of the CLI is left. End it if it still runs."""
        if self._transport is not None:
            await self._transport.aclose()

    @property
    def _process(self) -> Transport:
        assert self._transport is not None, "actions on a process follow its start"
        return self._transport

    _PERFORM: ClassVar[dict[type, Callable[[Actor, Any], None]]] = {
        act.Write: _write,
        act.EndInput: _end_input,
        act.Terminate: _terminate,
        act.Kill: _kill,
        act.Deliver: _deliver,
        act.Attribute: _deliver,
        act.Discard: _discard,
        act.DropOldest: _drop_oldest,
        act.PauseReading: _pause_reading,
        act.ResumeReading: _resume_reading,
        act.TurnStarted: _start_turn,
        act.TurnEnded: _end_turn,
        act.Resolve: _resolve,
        act.Reject: _reject,
        act.Call: _call,
        act.CancelCall: _cancel_call,
        act.Publish: _publish,
        act.Warn: _warn,
        act.Mirror: _leave_to_parts,
        act.SessionNamed: _leave_to_parts,
        Failure: _warn_of,
        act.Finished: _finish,
    }
    """The method that performs each action."""
