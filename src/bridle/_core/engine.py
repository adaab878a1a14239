"""Run the protocol of one session: each input reports an event and returns the actions to perform.

The engine never raises for anything the CLI does, never waits and owns no resource. The shell calls
the inputs, performs the actions, and calls :meth:`Engine.advance` at :attr:`Engine.next_deadline`.
It reports the end of the output and the exit of the process separately, in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, cast

from msgspec import structs

from bridle import controls, errors
from bridle._core import actions as act
from bridle._core.agents import AgentBook
from bridle._core.budget import Budget, TurnBudget, Used
from bridle._core.classify import ProcessEnd
from bridle._core.closing import GentleClose
from bridle._core.config import EngineConfig
from bridle._core.deadlines import Deadlines
from bridle._core.delivery import Delivery
from bridle._core.events_from_messages import EVENT_MAKERS, MessageEvents
from bridle._core.follow_ups import HeldOutcomes
from bridle._core.framing import Item, LineFramer, LongLine, OversizedLine, PartialLine
from bridle._core.handshake import Handshake, early_exit
from bridle._core.incoming.approvals import Approvals
from bridle._core.incoming.handling import Incoming
from bridle._core.incoming.hook_run import HookAnswer, needs_interrupt
from bridle._core.incoming.mcp import EARLY
from bridle._core.incoming.permission_hooks import HOOK_CALL
from bridle._core.incoming.table import CALL
from bridle._core.outgoing import (
    INITIALIZE,
    INTERRUPT,
    REQUEST,
    SEND_USER_MESSAGE,
    UNSTARTED,
    Fields,
    Outgoing,
    QueuedPrompt,
    Request,
    Then,
)
from bridle._core.shutdown import OUTPUT, PIPE, STEP, Shutdown, last_event
from bridle._core.spending import USAGE_TIMEOUT
from bridle._core.state import TERMINAL, UNCONFIRMED, Cause, Lifecycle, transition
from bridle._core.turns import TurnBook
from bridle._core.unreadable import Unreadable
from bridle._core.wire import decode_line
from bridle._raw_line import line_size
from bridle.approvals import PendingApproval
from bridle.content import Content
from bridle.errors import ProcessInfo, SessionStopped, TransportError
from bridle.events import SessionFailed, WarningKind
from bridle.messages import (
    CommandLifecycle,
    InitMessage,
    MalformedLine,
    Message,
    ResultMessage,
    TranscriptMirror,
    UnknownMessage,
    UnknownSystemMessage,
)
from bridle.options import Limits

_INIT_SENT = Lifecycle.INIT_SENT  # bound to a local name because enum attribute access is slow

RESUMED = "resumed"
"""The kind of the deadline by which the CLI must begin the turn that it resumes."""

_IDLE_GRACE = 5.0
"""Seconds to wait for a resumed turn if the CLI says that it does nothing."""

_CONFIRMING = frozenset({controls.HookCallbackRequest, controls.CanUseToolRequest})
"""Requests that a CLI makes only in a session it has accepted. It opens MCP servers earlier."""


class Engine:
    """One session. Not safe for concurrent use: call one input at a time.

    A ``key`` identifies an operation that the caller awaits: any hashable value, unique among
    those in use. Each key is resolved or rejected exactly once, unless it is cancelled.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self.init_timeout = config.init_timeout  #: seconds that the CLI has for the handshake
        self._outbox = act.Outbox()
        self._emit = self._outbox.emit
        self._framer = LineFramer(config.max_line)
        agents = AgentBook()
        self.delivery = Delivery(config.delivery, self._emit, agents)  #: the inputs of readers
        self.deadlines = Deadlines()  #: read by the shell, for its timer
        self._approvals = Approvals(
            config.incoming.approval,
            config.incoming.gate,
            cli_version=lambda: self.handshake.describe(self.process).cli_version,
            problem=lambda: self._turns.deferral_problem(),
        )
        self._turns = TurnBook(
            self._outbox, agents, wants_output=config.wants_output, approvals=self._approvals
        )
        self.usage, self.live_tasks = self._turns.usage, self._turns.live_tasks
        self.is_running = self._turns.is_running  #: whether the CLI certainly works on a prompt
        self.has_tasks = self._turns.has_tasks  #: whether tasks of a prompt run
        self.prompt_of = self._turns.prompt_of  #: the prompt of a tool use or a subagent
        self._outgoing = Outgoing(
            self.deadlines,
            self._emit,
            lambda: self.handshake.describe(self.process),
            refusal=self.refusal,
            is_running=lambda: self._lifecycle is Lifecycle.RUNNING,
            on_interrupt=self._turns.note_interrupt,
            on_prompt=self._prompt,
            timeout=config.control_timeout,
            is_verbatim=config.verbatim_prompts,
            has_gates=config.incoming.has_gates,
        )
        self._shutdown = Shutdown(self.deadlines, self._emit)
        self._incoming = Incoming(
            config.incoming,
            self.deadlines,
            self._emit,
            shutdown=self._shutdown,
            prompt=self._turns.prompt_of,
            end_turn=self._on_hook_verdict,
            approvals=self._approvals,
        )
        self.servers = self._incoming.mcp  #: the input that changes in-process MCP servers
        self._closing = GentleClose(
            self._shutdown, self._turns, self._outgoing, self._incoming, self._ask
        )
        self._unreadable = Unreadable(
            config.max_line,
            self._emit,
            self._turns,
            self._incoming,
            self._outgoing,
            on_turn_end=self._closing.turn_ended,
            on_handshake=self._on_handshake,
        )
        self._lifecycle = Lifecycle.STARTING
        self.handshake = Handshake(self._emit, config.initialize)
        self.process = ProcessInfo()  #: what is known about the process; errors carry it
        self._session_id = config.session_id
        #: Outcomes that wait for background work. None if outcomes do not include that work.
        self.held = HeldOutcomes() if config.awaits_follow_ups else None
        self._budget: Budget | None = None
        if config.limits != Limits() or self.held is not None:
            self._budget = TurnBudget(
                config.limits,
                self.deadlines,
                self._outbox,
                self._turns,
                self.held,
                ask=self._ask,
                is_waiting=lambda: len(self._incoming) > 0,
                give_up=self._lose_contact,
                cli_version=self._approvals.cli_version,
                usage_timeout=min(config.control_timeout, USAGE_TIMEOUT),
            )
        self._message_events = MessageEvents(config.tools)
        self.error: errors.BridleError | None = None  #: why the session failed, if it did
        self._failure = ""
        # The errors of the last result, in case the CLI exits without text on stderr.
        self._last_errors: tuple[str, ...] = ()

    # -- state for the shell -----------------------------------------------------------------------

    @property
    def lifecycle(self) -> Lifecycle:
        """Return the lifecycle state of the session."""
        return self._lifecycle

    @property
    def next_deadline(self) -> float | None:
        """Return when :meth:`advance` has to be called next, if no other input comes before."""
        return self.deadlines.next

    @property
    def session_id(self) -> str:
        """Return the conversation's id. It changes when the user clears the conversation."""
        return self._session_id

    @property
    def is_closing(self) -> bool:
        """True once a shutdown was requested."""
        return self._shutdown.is_asked_for

    @property
    def is_stopped(self) -> bool:
        """True if `stop` ended the process."""
        return self._shutdown.is_stopped

    @property
    def is_quiet(self) -> bool:
        """True if no turn or task runs, no prompt waits, and no turn about a task will follow."""
        return self._turns.is_quiet

    @property
    def awaits_decision(self) -> bool:
        """True until the CLI has the decision about the tool call that the session resumes."""
        return self._approvals.awaits_decision

    @property
    def waiting(self) -> PendingApproval | None:
        """The tool call that waits for approval since its turn ended. None if no call waits."""
        return self._approvals.waiting

    def name_session(self, session_id: str) -> None:
        """Set the id of a conversation that was found before the CLI resumes it."""
        self._session_id = session_id

    def describe(self, **known: object) -> None:
        """Set what is known about the process (fields of ``ProcessInfo``). Errors carry it."""
        self.process = structs.replace(self.process, **known)

    def _take(self, now: float) -> list[act.Action]:
        """Return the actions of an input, of limits that it reached, and of slow readers."""
        outbox, budget = self._outbox, self._budget
        actions = taken = outbox.take() if budget is None else budget.take(now)
        while True:
            error = self.delivery.account(taken)
            if error is not None:
                self._break_off(error, now)
            if not outbox.actions:
                return actions
            taken = outbox.take() if budget is None else budget.take(now)
            actions += taken

    # -- inputs: the process -----------------------------------------------------------------------

    def start(self, key: Hashable, now: float) -> list[act.Action]:
        """Start the protocol, because the process runs. ``key`` is settled with the handshake."""
        self._shutdown.spawned = True
        self._outgoing.begin()
        self.handshake.wait(key)
        if self._lifecycle is Lifecycle.STARTING:
            self._lifecycle = transition(self._lifecycle, Cause.SPAWNED)
            self._ask(INITIALIZE, self._config.initialize, now, self.init_timeout)
            if (resumed := self._approvals.resumed) is not None:
                self._turns.resume(resumed.uuid, now)
        else:
            self.handshake.fail(SessionStopped("start"))
            self._shutdown.shut_down(now)
        return self._take(now)

    def spawn_failed(self, key: Hashable, error: errors.StartError, now: float) -> list[act.Action]:
        """Fail the session, because the process could not be started."""
        self._shutdown.exited = self._shutdown.output_ended = True
        self.handshake.wait(key)
        if self._lifecycle is Lifecycle.STARTING:
            self._fail(Cause.SPAWN_FAILED, error, now)
        else:
            self.handshake.fail(SessionStopped("start"))
        self._emit(act.Finished())
        return self._take(now)

    def receive(self, data: bytes, now: float) -> list[act.Action]:
        """Read bytes of the CLI's output. Chunks may be cut anywhere but must come in order."""
        if self._lifecycle not in TERMINAL:
            self._read(self._framer.feed(data), now)
        elif self._config.has_store:
            self._mirror_rest(self.delivery.agents.decode_all(self._framer.feed(data))[0], now)
        else:
            return []
        return self._take(now)

    def output_ended(self, now: float) -> list[act.Action]:
        """Note that the CLI's output has ended."""
        if not self._shutdown.output_ended:
            self._shutdown.output_ended = True
            if self._lifecycle not in TERMINAL:
                self._read(self._framer.finish(), now)
            self._on_part_gone(now)
        return self._take(now)

    def exited(self, exit_code: int | None, stderr_tail: str, now: float) -> list[act.Action]:
        """Note that the process exited. ``exit_code``: negative for a signal, None if unknown."""
        if not self._shutdown.exited:
            self._shutdown.exited = True
            self.describe(exit_code=exit_code, stderr_tail=stderr_tail)
            self._on_part_gone(now)
        return self._take(now)

    def write_failed(self, reason: str, now: float) -> list[act.Action]:
        """Note that writing to the CLI failed. The CLI usually exits shortly after that."""
        # Also after the end of input: the report of an earlier failure may come late.
        if self._lifecycle not in TERMINAL and not self._shutdown.input_is_lost:
            self._outgoing.reject_callers(
                lambda operation, request_id: TransportError(operation, request_id, reason)
            )
            self._incoming.drop_all()
            self._shutdown.lose_input(reason, now)
        return self._take(now)

    def version_accepted(self, now: float) -> list[act.Action]:
        """Note that the CLI's version, which the handshake waits for, is supported."""
        if self.handshake.accept_version() and self._lifecycle is _INIT_SENT:
            self._confirm(now)
        return self._take(now)

    def advance(self, now: float) -> list[act.Action]:
        """Handle every deadline that is due at ``now``."""
        for token in self.deadlines.pop_expired(now):
            kind, subject = cast("tuple[str, Any]", token)
            if self._budget is not None and self._budget.overdue(kind, subject, now):
                continue
            self._ON_DEADLINE[kind](self, subject, now)
        return self._take(now)

    # -- inputs: the application -------------------------------------------------------------------

    def submit(
        self,
        key: Hashable,
        operation: str,
        fields: Fields,
        now: float,
        timeout: float | None = None,
    ) -> list[act.Action]:
        """Send a control request. ``key`` is resolved with the payload of the response."""
        self._outgoing.submit(key, operation, fields, now, timeout)
        return self._take(now)

    def send(
        self,
        key: Hashable,
        uuid: str,
        content: Content | bytes,
        now: float,
        used: Used | None = None,
    ) -> list[act.Action]:
        """Send a prompt. ``key`` is resolved once the prompt is written and its turn has begun.

        ``content`` may be the whole line, encoded with that uuid. ``used`` is what earlier prompts
        of the same answer have used of the limits.
        """
        self._outgoing.send(key, uuid, content, now, is_used=uuid in self._turns)
        if used is not None and uuid in self._turns and isinstance(self._budget, TurnBudget):
            self._budget.carry(uuid, used)
        return self._take(now)

    def cancel(self, key: Hashable) -> list[act.Action]:
        """Stop waiting for ``key``. A response that still comes is dropped."""
        self._outgoing.cancel(key)
        self.handshake.cancel(key)
        return []

    def started_call(self, call_id: int, now: float) -> list[act.Action]:
        """Note that a callback started at ``now`` and still runs. Its deadline starts now."""
        self._incoming.table.started(call_id, now)
        return self._take(now)

    def finished_call(self, call_id: int, result: object, now: float) -> list[act.Action]:
        """Take the serialised ``result`` of a callback."""
        self._incoming.finished(call_id, result, now)
        return self._take(now)

    def failed_call(
        self,
        call_id: int,
        detail: str,
        now: float,
        *,
        error: str = "Error",
        was_called: bool = True,
    ) -> list[act.Action]:
        """Note that a callback raised an ``error`` or could not be called: ``detail``, for logs."""
        self._incoming.failed(call_id, detail, now, error=error, was_called=was_called)
        return self._take(now)

    def end_input(self, now: float) -> list[act.Action]:
        """Close the CLI's input after the last prompt. The CLI finishes its work and exits."""
        self._shutdown.input_end_is_due = True
        self._end_input_if_due(now)
        return self._take(now)

    def close(self, now: float) -> list[act.Action]:
        """Shut down gently: interrupt the turn, reject open requests, close the input, wait."""
        if self._lifecycle in TERMINAL or self.is_closing:
            return []
        if self._lifecycle is not Lifecycle.RUNNING:
            return self.stop(now)
        self._closing.begin(now)
        return self._take(now)

    def stop(self, now: float) -> list[act.Action]:
        """Settle everything that is pending and terminate the process tree now."""
        if self._lifecycle not in TERMINAL:
            self._stop(now)
        return self._take(now)

    def _stop(self, now: float) -> None:
        self._lifecycle = transition(self._lifecycle, Cause.STOP_REQUESTED)
        self._settle(ProcessEnd(process=self.process, by_us=True), now)
        self._shutdown.stop(now)

    def break_off(self, error: errors.BridleError, now: float) -> list[act.Action]:
        """Fail the session for a reason on our side."""
        self._break_off(error, now)
        return self._take(now)

    def react(self, now: float) -> list[act.Action]:
        """Return the actions that follow from inputs to :attr:`delivery` and :attr:`servers`."""
        return self._take(now)

    # -- frames ------------------------------------------------------------------------------------

    def _read(self, items: Sequence[Item], now: float) -> None:
        """Handle the lines of one read. Most reads hold only messages, delivered at once."""
        handlers = self._HANDLERS
        if len(items) == 1 and type(items[0]) is bytes:
            frames: list[Any] = [self.delivery.agents.decode(items[0])]
        elif not items:
            return
        else:
            frames, kinds = self.delivery.agents.decode_all(items)
            if handlers.keys().isdisjoint(kinds):
                size = sum(map(len, cast("Sequence[bytes]", items)))
                self._turns.deliver_all(frames, kinds, size)
                return
        for index, frame in enumerate(frames):
            handle = handlers.get(type(frame))  # pyright: ignore[reportUnknownArgumentType]
            if handle is None:
                self._turns.deliver(frame)
                continue
            handle(self, frame, now)
            if self._lifecycle in TERMINAL:
                self._mirror_rest(frames[index + 1 :], now)
                break

    def _mirror_rest(self, frames: Sequence[Any], now: float) -> None:
        """Handle frames that come after the end of the session: only the store gets them."""
        for frame in frames:
            if type(frame) is TranscriptMirror and self._config.has_store:
                self._on_mirror(frame, now)

    def _on_mirror(self, message: TranscriptMirror, _: float) -> None:
        if self._config.has_store:
            self._emit(act.Mirror(message.file_path, message.entries, line_size(message)))
        else:
            self._turns.deliver(message)

    def _on_request(self, frame: controls.ControlRequest, now: float) -> None:
        if self._lifecycle is _INIT_SENT and type(frame.body) in _CONFIRMING:
            self._confirm(now)
        self._incoming.handle(frame, self._session_id, now)

    def _on_withdrawal(self, frame: controls.ControlCancel, now: float) -> None:
        if frame.request_id is not None:
            self._incoming.withdraw(frame.request_id, now)

    def _on_report(self, item: LongLine | OversizedLine | PartialLine, now: float) -> None:
        if not isinstance(item, PartialLine):
            self._unreadable.report(item, now)
        elif isinstance(cut := decode_line(item.line), MalformedLine):
            self._unreadable.report_cut(cut)
        else:
            self._read([item.line], now)

    def _on_response(self, frame: controls.ControlResponse, now: float) -> None:
        response = frame.body
        request_id = response.request_id or frame.request_id or ""
        if request_id in self._outgoing.withdrawals:
            withdrawn = self._outgoing.withdrawn_prompt(request_id, response)
            if withdrawn is not None:
                self._turns.withdraw(withdrawn, now)
                self._closing.drain_if_idle(now)
        request = self._outgoing.answer(request_id, response)
        if request is None:
            # The CLI repeats our own answers on its output, for example.
            if not self._incoming.table.was_answered(request_id):
                self._outgoing.answer_late(request_id)
        elif request.operation == INITIALIZE:
            self._on_handshake(response, now)

    # -- messages that change the session ----------------------------------------------------------

    def _on_session_init(self, message: InitMessage, _: float) -> None:
        self._turns.deliver(message)
        if missing := self._message_events.missing_tools(message):
            self._warn(WarningKind.OPTION_UNSUPPORTED, missing)
        if message.session_id and message.session_id != self._session_id:
            self._session_id = message.session_id
            self._emit(act.SessionNamed(message.session_id))

    def _on_result(self, message: ResultMessage, now: float) -> None:
        self._turns.result(message, now)
        self._last_errors = message.errors
        self._closing.turn_ended(now)

    def _on_lifecycle(self, message: CommandLifecycle, now: float) -> None:
        self._turns.settle(message, now)
        self._closing.drain_if_idle(now)

    def _on_event_message(self, message: Message, now: float) -> None:
        self._turns.deliver(message)
        self._turns.note_event(event := self._message_events.event_of(message, now))
        self._emit(act.Publish(event))

    def _on_unknown(self, message: Message, _: float) -> None:
        self._turns.deliver(message)
        self._unreadable.report_unknown(message)

    # -- the handshake -----------------------------------------------------------------------------

    def _on_handshake(
        self, response: controls.ControlSuccess | controls.ControlFailure, now: float
    ) -> None:
        """Handle the response to initialize. A request may have confirmed the session before it."""
        confirmed = self._lifecycle is not Lifecycle.INIT_SENT
        if isinstance(response, controls.ControlSuccess):
            unguarded = self.handshake.answered(response.payload)
            self._incoming.hooks.cli_blocks = self.handshake.blocks_on_failure
            if unguarded is not None:
                self._break_off(unguarded, now)
                return
            if self._approvals.resumed is not None and not self._approvals.has_begun:
                limit = _IDLE_GRACE if self.handshake.is_idle else self._config.init_timeout
                self.deadlines.set((RESUMED, None), now + limit)
            if not confirmed:
                self._confirm(now)
        elif confirmed:
            self._warn(WarningKind.INIT_FAILED_LATE, response.error)
        else:
            self._fail(Cause.REFUSED, errors.InitializationError(response.error), now)

    def _confirm(self, now: float) -> None:
        if not self.handshake.confirm():
            return
        self._lifecycle = transition(self._lifecycle, Cause.CONFIRMED)
        self.handshake.succeed()
        self._emit(act.Publish(self.handshake.ready(self._session_id, self.process)))
        for queued in self._outgoing.take_queue():
            if isinstance(queued, QueuedPrompt):
                self._prompt(queued, now)
            else:
                self._outgoing.ask(queued, now)
        self._incoming.confirm(now)
        self._end_input_if_due(now)

    def _end_input_if_due(self, now: float) -> None:
        if self._shutdown.input_end_is_due and self._lifecycle is Lifecycle.RUNNING:
            self._incoming.refuse_all(now)
            self._shutdown.close_input()

    # -- outgoing requests -------------------------------------------------------------------------

    def refusal(self, operation: str) -> errors.BridleError | None:
        """Return why an operation cannot be accepted now, or None."""
        if self._lifecycle in TERMINAL or self._shutdown.is_asked_for:
            if self._lifecycle is Lifecycle.FAILED and not self.handshake.is_done:
                return errors.SessionNotInitialized(operation, "it failed to start")
            return SessionStopped(operation, cause=self._failure)
        if self._shutdown.input_ended:
            return TransportError(operation, None, "the session's input has ended")
        if operation == SEND_USER_MESSAGE and (call := self._approvals.deferred) is not None:
            return errors.ApprovalPending(operation, *call, self.waiting)
        if operation == "rewind_files" and not self._config.checkpointing:
            return errors.CheckpointingNotEnabled(operation)
        return None

    def _ask(
        self, what: str, fields: Fields, now: float, timeout: float = 0.0, then: Then = None
    ) -> None:
        """Send our own request if the CLI can take it. ``then`` gets the payload or the error."""
        if self._lifecycle not in TERMINAL and not self._shutdown.input_ended:
            limit = timeout or self._config.control_timeout
            self._outgoing.ask(Request(None, what, fields, limit, then), now)

    def _prompt(self, prompt: QueuedPrompt, now: float) -> None:
        self._emit(act.Write(self._outgoing.line_of(prompt)))
        self._turns.start(prompt.uuid, now)
        self._emit(act.Resolve(prompt.key, prompt.uuid))

    def _on_hook_verdict(self, event: str, answer: HookAnswer, now: float) -> None:
        """Note why a hook ended the turn. Interrupt it if the answer alone does not end it."""
        interrupt = needs_interrupt(event, answer, older=self.handshake.is_with_older_cli)
        if self._turns.note_hook(event, answer, interrupt=interrupt):
            self._ask(INTERRUPT, {}, now)

    def _on_resumed_overdue(self, _: None, now: float) -> None:
        """End the resumed turn if the CLI did not begin it."""
        resumed = self._approvals.resumed
        if resumed is not None and not self._approvals.has_begun and resumed.uuid in self._turns:
            self._approvals.give_up()
            self._turns.find_nothing(resumed.uuid, now)

    def _on_request_overdue(self, request_id: str, now: float) -> None:
        request = self._outgoing.take(request_id)
        assert request is not None, "a deadline is cleared with its request"
        if request.operation != INITIALIZE:
            self._outgoing.time_out(request, request_id)
        elif self._lifecycle is Lifecycle.INIT_SENT:
            self._fail(Cause.TIMED_OUT, errors.InitializationTimeout(request.timeout), now)
        else:
            self._warn(WarningKind.INIT_FAILED_LATE, "initialize was never answered")

    # -- shutdown ----------------------------------------------------------------------------------

    def _fail(
        self, cause: Cause, error: errors.BridleError, now: float, *, by_us: bool = False
    ) -> None:
        """End the session with an error."""
        self._lifecycle = transition(self._lifecycle, cause)
        self.error = error.with_process(self.process)
        self.handshake.fail(error)
        self._failure = reason = str(error.args[0])
        self._outgoing.reject_queue(lambda what: errors.SessionNotInitialized(what, reason))
        self._settle(ProcessEnd(process=self.process, by_us=by_us, cause=reason), now)
        self._emit(act.Publish(SessionFailed(reason, self.process.exit_code, error)))
        self._shutdown.shut_down(now)

    def _break_off(self, error: errors.BridleError, now: float) -> None:
        if self._lifecycle is Lifecycle.RUNNING or self._lifecycle is Lifecycle.INIT_SENT:
            self._fail(Cause.BROKEN, error, now, by_us=True)

    def _settle(self, ending: ProcessEnd, now: float) -> None:
        """Settle all outgoing and incoming requests and all turns, and stop watching the limits."""
        self.handshake.fail(SessionStopped("start").with_process(self.process))
        self._outgoing.reject_all(lambda what, id: SessionStopped(what, id, self._failure))
        self._incoming.drop_all()
        self._turns.end_all(ending, now)
        if self._budget is not None:
            self._budget.end(ending, now)

    def _on_part_gone(self, now: float) -> None:
        """End the session once both the output and the process have ended."""
        self._shutdown.wait_for_rest(now)
        if self._shutdown.is_complete:
            self._gone(now)

    def _on_output_overdue(self, _: None, now: float) -> None:
        if self._shutdown.exited:
            self._shutdown.output_ended = True
            self._gone(now)
        elif self.is_closing:
            self._shutdown.shut_down(now)
        else:
            self._lose_contact("it closed its output but did not exit", now)

    def _on_pipe_overdue(self, reason: str, now: float) -> None:
        if self.is_closing:
            self._shutdown.shut_down(now)
        elif not self._shutdown.exited:
            self._lose_contact(f"its input broke ({reason}) but it did not exit", now)

    def _lose_contact(self, what: str, now: float) -> None:
        if self._lifecycle is Lifecycle.RUNNING:
            self._fail(Cause.BROKEN, TransportError("session", None, what), now)
        elif self._lifecycle in UNCONFIRMED:
            self._fail(Cause.PROCESS_ENDED, errors.CliExitedDuringInit(what), now)

    def _gone(self, now: float) -> None:
        """Finish, because the process has exited and all its output was read."""
        self._conclude(now)
        self.deadlines.clear_all()
        self._emit(act.Finished())

    def _conclude(self, now: float) -> None:
        """Decide how the session ended."""
        if self._lifecycle in UNCONFIRMED:
            self._fail(Cause.PROCESS_ENDED, early_exit(self.process, self._last_errors), now)
        elif self._lifecycle is Lifecycle.RUNNING:
            self._lifecycle = transition(self._lifecycle, Cause.PROCESS_ENDED)
            last = last_event(self.process, asked_for=self.is_closing)
            self._failure = last.reason if isinstance(last, SessionFailed) else ""
            self._settle(ProcessEnd(process=self.process, by_us=self.is_closing), now)
            self._emit(act.Publish(last))
        elif self._shutdown.is_stopped:
            self._emit(act.Publish(last_event(self.process, asked_for=True)))

    def _warn(self, kind: WarningKind, detail: str) -> None:
        self._emit(act.Warn(kind, detail))

    _HANDLERS: ClassVar[dict[type, Callable[[Engine, Any, float], None]]] = {
        controls.ControlRequest: _on_request,
        controls.ControlResponse: _on_response,
        controls.ControlCancel: _on_withdrawal,
        MalformedLine: lambda engine, line, now: engine._unreadable.report_malformed(line, now),
        **dict.fromkeys((LongLine, OversizedLine, PartialLine), _on_report),
        InitMessage: _on_session_init,
        ResultMessage: _on_result,
        CommandLifecycle: _on_lifecycle,
        TranscriptMirror: _on_mirror,
        **dict.fromkeys(EVENT_MAKERS, _on_event_message),
        UnknownMessage: _on_unknown,
        UnknownSystemMessage: _on_unknown,
    }
    """The handler of each kind of frame. Other kinds are messages, which are only delivered."""

    _ON_DEADLINE: ClassVar[dict[str, Callable[[Engine, Any, float], None]]] = {
        REQUEST: _on_request_overdue,
        UNSTARTED: lambda engine, key, now: engine._outgoing.give_up(key),
        CALL: lambda engine, call_id, now: engine._incoming.expired(call_id, now),
        HOOK_CALL: lambda engine, held, now: engine._incoming.permission_hooks.expired(*held),
        EARLY: lambda engine, _, now: engine._incoming.confirm(now),
        STEP: lambda engine, _, now: engine._shutdown.enter_next(now),
        RESUMED: _on_resumed_overdue,
        OUTPUT: _on_output_overdue,
        PIPE: _on_pipe_overdue,
    }
    """The handler of each kind of deadline."""
