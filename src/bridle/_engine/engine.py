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
from bridle import messages as msg
from bridle._engine import actions as act
from bridle._engine.closing import Closing
from bridle._engine.config import EngineConfig
from bridle._engine.deadlines import Deadlines
from bridle._engine.delivery.unread import Delivery
from bridle._engine.handshake import Handshake
from bridle._engine.incoming.dispatch import Incoming
from bridle._engine.incoming.hook_run import HookVerdict, needs_interrupt
from bridle._engine.incoming.mcp.requests_to_servers import EARLY
from bridle._engine.incoming.open_requests import CALL
from bridle._engine.incoming.permission_hooks import HOOK_CALL
from bridle._engine.incoming.waiting_call import Approvals
from bridle._engine.message_events import EVENT_MAKERS, MessageEvents
from bridle._engine.one_way import QueryClosing, QueryLines
from bridle._engine.outgoing import requests as out
from bridle._engine.session_state import SessionState
from bridle._engine.shutdown import OUTPUT, PIPE, STEP, Shutdown
from bridle._engine.state import TERMINAL, Cause, Lifecycle
from bridle._engine.turns import limits
from bridle._engine.turns.book import TurnBook
from bridle._engine.turns.cost import USAGE_TIMEOUT
from bridle._engine.turns.follow_ups import HeldOutcomes
from bridle._engine.turns.query_answers import Answers
from bridle._engine.turns.subagents import AgentBook
from bridle._engine.turns.turn_records import Turns, Used
from bridle._engine.unreadable import Greeting, Unreadable
from bridle._engine.wire.codec import decode_line
from bridle._engine.wire.framing import Item, LongLine, OversizedLine, PartialLine
from bridle._records.raw_line import line_size
from bridle.approvals import PendingApproval
from bridle.content import Content
from bridle.errors import ProcessInfo, SessionStopped, TransportError
from bridle.events import WarningKind
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
        self._emit = emit = self._outbox.emit
        self._framer = config.framer()
        agents = AgentBook()
        has_limits = config.limits != Limits() or config.awaits_follow_ups
        turns = Turns(has_limits=has_limits)
        self.delivery = Delivery(config.delivery, emit, agents, turns)  #: the inputs of readers
        self.deadlines = deadlines = Deadlines()  #: read by the shell, for its timer
        self.state = state = SessionState()  #: what all parts of the engine know
        self._approvals = Approvals(config.incoming.approval, config.incoming.gate, state)
        query = (config.limits, deadlines, self._outbox, agents, self._approvals, state)
        answers = Answers(*query) if config.is_one_way else None
        self._turns = book = answers or TurnBook(
            self._outbox, agents, self._approvals, turns, wants_output=config.wants_output
        )
        self.usage, self.live_tasks = book.usage, book.tasks
        self.is_running = book.is_running  #: whether the CLI certainly works on a prompt
        self.has_tasks = book.has_tasks  #: whether tasks of a prompt run
        self.prompt_of = book.prompt_of  #: the prompt of a tool use or a subagent
        self._outgoing = out.Outgoing(
            deadlines,
            emit,
            state,
            timeout=config.control_timeout,
            is_verbatim=config.verbatim_prompts,
            has_gates=config.incoming.has_gates,
            is_one_way=config.is_one_way,
        )
        self._shutdown = shutdown = Shutdown(deadlines, emit)
        self._incoming = Incoming(config.incoming, self._approvals, deadlines, emit, shutdown, book)
        self.servers = self._incoming.mcp  #: the input that changes in-process MCP servers
        self.handshake = Handshake(emit, config.initialize, state, is_one_way=config.is_one_way)
        ending, lines = (QueryClosing, QueryLines) if answers else (Closing, Unreadable)
        self._closing = ending(
            state, emit, self._ask, shutdown, self.handshake, book, self._outgoing, self._incoming
        )
        self._unreadable = lines(
            config.max_line, emit, book, self._incoming, self._outgoing, self._closing
        )
        self._session_id = config.session_id
        #: Outcomes that wait for background work. None if outcomes do not include that work.
        self.held = HeldOutcomes(turns) if config.awaits_follow_ups else None
        self._closing.budget = answers
        if has_limits and answers is None:
            timeout = min(config.control_timeout, USAGE_TIMEOUT)
            self._closing.budget = limits.TurnBudget(
                config.limits, deadlines, self._outbox, book, self.held, self._ask, state, timeout
            )
        self._message_events = MessageEvents(config.tools)

    # -- state for the shell -----------------------------------------------------------------------

    @property
    def lifecycle(self) -> Lifecycle:
        """Return the lifecycle state of the session."""
        return self.state.lifecycle

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

    @property
    def error(self) -> errors.BridleError | None:
        """Return why the session failed, if it did."""
        return self.state.error

    @property
    def process(self) -> ProcessInfo:
        """Return what is known about the process. Errors carry it."""
        return self.state.process

    def name_session(self, session_id: str) -> None:
        """Set the id of a conversation that was found before the CLI resumes it."""
        self._session_id = session_id

    def describe(self, **known: object) -> None:
        """Set what is known about the process (fields of ``ProcessInfo``). Errors carry it."""
        self.state.process = structs.replace(self.state.process, **known)

    def _take(self, now: float) -> list[act.Action]:
        """Return the actions of an input, of limits that it reached, and of slow readers."""
        outbox, budget = self._outbox, self._closing.budget
        actions = taken = outbox.take() if budget is None else self._take_checked(budget, now)
        while True:
            error = self.delivery.account(taken)
            if error is not None:
                self._closing.break_off(error, now)
            if not outbox.actions:
                return actions
            taken = outbox.take() if budget is None else self._take_checked(budget, now)
            actions += taken

    def _take_checked(self, budget: limits.Budget, now: float) -> list[act.Action]:
        """Return the actions of an input, with those of the limits it reached."""
        actions = budget.sift(self._outbox.take(), now)
        for verdict in budget.check(actions, now, is_waiting=len(self._incoming) > 0):
            self._apply(verdict, now)
        if added := self._outbox.take():
            for verdict in budget.check(added, now, is_waiting=len(self._incoming) > 0):
                self._apply(verdict, now)
            actions += added + self._outbox.take()
        return actions

    def _apply(self, verdict: limits.Verdict | HookVerdict | None, now: float) -> None:
        """Do what follows from a limit that was reached, or from the answer of a hook."""
        if verdict is None:
            return
        match verdict:
            case HookVerdict(event, answer):
                # Not every CLI ends the turn by the answer alone.
                interrupt = needs_interrupt(event, answer, older=self.handshake.is_with_older_cli)
                if self._turns.note_hook(event, answer, interrupt=interrupt):
                    self._ask(out.INTERRUPT, {}, now)
            case limits.Interrupt():
                self._ask(out.INTERRUPT, {}, now)
            case limits.Withdraw(uuid):
                self._ask(out.CANCEL_PROMPT, {"message_uuid": uuid}, now)
            case limits.GiveUp(what):
                self._closing.lose_contact(what, now)
            case limits.Fail(error):
                self._closing.break_off(error, now)
            case limits.Begun():
                self._outgoing.stop_waiting()

    # -- inputs: the process -----------------------------------------------------------------------

    def start(self, key: Hashable, now: float) -> list[act.Action]:
        """Start the protocol, because the process runs. ``key`` is settled with the handshake."""
        self._shutdown.spawned = True
        self._outgoing.begin()
        self.handshake.wait(key)
        if self.state.lifecycle is Lifecycle.STARTING:
            self.state.move(Cause.SPAWNED)
            self._ask(out.INITIALIZE, self._config.initialize, now, self.init_timeout)
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
        if self.state.lifecycle is Lifecycle.STARTING:
            self._closing.fail(Cause.SPAWN_FAILED, error, now)
        else:
            self.handshake.fail(SessionStopped("start"))
        self._emit(act.Finished())
        return self._take(now)

    def receive(self, data: bytes, now: float) -> list[act.Action]:
        """Read bytes of the CLI's output. Chunks may be cut anywhere but must come in order."""
        if self.state.lifecycle not in TERMINAL:
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
            if self.state.lifecycle not in TERMINAL:
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
        if self.state.lifecycle not in TERMINAL and not self._shutdown.input_is_lost:
            self._outgoing.reject_callers(
                lambda operation, request_id: TransportError(operation, request_id, reason)
            )
            self._incoming.drop_all()
            self._shutdown.lose_input(reason, now)
        return self._take(now)

    def version_accepted(self, now: float) -> list[act.Action]:
        """Note that the CLI's version, which the handshake waits for, is supported."""
        if self.handshake.accept_version() and self.state.lifecycle is _INIT_SENT:
            self._confirm(now)
        return self._take(now)

    def advance(self, now: float) -> list[act.Action]:
        """Handle every deadline that is due at ``now``."""
        budget = self._closing.budget
        for token in self.deadlines.pop_expired(now):
            kind, subject = cast("tuple[str, Any]", token)
            verdicts = None if budget is None else budget.overdue(kind, subject, now)
            if verdicts is None:
                self._ON_DEADLINE[kind](self, subject, now)
                continue
            for verdict in verdicts:
                self._apply(verdict, now)
        return self._take(now)

    # -- inputs: the application -------------------------------------------------------------------

    def submit(
        self,
        key: Hashable,
        operation: str,
        fields: out.Fields,
        now: float,
        timeout: float | None = None,
    ) -> list[act.Action]:
        """Send a control request. ``key`` is resolved with the payload of the response."""
        refusal = self.refusal(operation)
        request = self._outgoing.submit(key, operation, fields, now, timeout, refusal)
        if request is not None:
            self._send(request, now)
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
        self._closing.prompt_comes(now)
        refusal, is_used = self.refusal(out.SEND_USER_MESSAGE), uuid in self._turns.turns
        prompt = self._outgoing.send(key, uuid, content, now, refusal, is_used=is_used)
        if prompt is not None:
            self._send(prompt, now)
        if used is not None and uuid in self._turns:
            self._turns.turns.open[uuid].used = used
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
        self._apply(self._incoming.finished(call_id, result, now), now)
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
        verdict = self._incoming.failed(call_id, detail, now, error=error, was_called=was_called)
        self._apply(verdict, now)
        return self._take(now)

    def end_input(self, now: float) -> list[act.Action]:
        """Close the CLI's input after the last prompt. The CLI finishes its work and exits."""
        self._shutdown.input_end_is_due = True
        self._end_input_if_due(now)
        return self._take(now)

    def close(self, now: float) -> list[act.Action]:
        """Shut down gently: interrupt the turn, reject open requests, close the input, wait."""
        if self.state.lifecycle in TERMINAL or self.is_closing:
            return []
        if self.state.lifecycle is not Lifecycle.RUNNING:
            return self.stop(now)
        self._closing.begin(now)
        return self._take(now)

    def stop(self, now: float) -> list[act.Action]:
        """Settle everything that is pending and terminate the process tree now."""
        if self.state.lifecycle not in TERMINAL:
            self._closing.stop(now)
        return self._take(now)

    def break_off(self, error: errors.BridleError, now: float) -> list[act.Action]:
        """Fail the session for a reason on our side."""
        self._closing.break_off(error, now)
        return self._take(now)

    def react(self, now: float) -> list[act.Action]:
        """Return the actions that follow from inputs to :attr:`delivery` and :attr:`servers`."""
        return self._take(now)

    # -- frames ------------------------------------------------------------------------------------

    def _read(self, items: Sequence[Item], now: float) -> None:
        """Handle the lines of one read. Most reads hold only messages, delivered at once."""
        handlers, unreadable = self._HANDLERS, self._unreadable
        if len(items) == 1 and type(items[0]) is bytes:
            frames: list[Any] = [self.delivery.agents.decode(items[0])]
        elif not items:
            return
        else:
            frames, kinds = self.delivery.agents.decode_all(items)
            if handlers.keys().isdisjoint(kinds):
                size = sum(map(len, cast("Sequence[bytes]", items)))
                unreadable.in_a_row = 0
                self._turns.deliver_all(frames, kinds, size)
                return
        for index, frame in enumerate(frames):
            kind: type = type(frame)  # pyright: ignore[reportUnknownVariableType]
            if kind is not msg.MalformedLine:
                unreadable.in_a_row = 0
            handle = handlers.get(kind)
            if handle is None:
                self._turns.deliver(frame)
                continue
            handle(self, frame, now)
            if self.state.lifecycle in TERMINAL:
                self._mirror_rest(frames[index + 1 :], now)
                break

    def _mirror_rest(self, frames: Sequence[Any], now: float) -> None:
        """Handle frames that come after the end of the session: only the store gets them."""
        for frame in frames:
            if type(frame) is msg.TranscriptMirror and self._config.has_store:
                self._on_mirror(frame, now)

    def _on_mirror(self, message: msg.TranscriptMirror, _: float) -> None:
        if self._config.has_store:
            self._emit(act.Mirror(message.file_path, message.entries, line_size(message)))
        else:
            self._turns.deliver(message)

    def _on_request(self, frame: controls.ControlRequest, now: float) -> None:
        if self._config.is_one_way:
            self._incoming.ignore(frame)
            return
        if self.state.lifecycle is _INIT_SENT and type(frame.body) in _CONFIRMING:
            self._confirm(now)
        self._apply(self._incoming.handle(frame, self._session_id, now), now)

    def _on_withdrawal(self, frame: controls.ControlCancel, now: float) -> None:
        if frame.request_id is not None:
            self._incoming.withdraw(frame.request_id, now)

    def _on_report(self, item: LongLine | OversizedLine | PartialLine, now: float) -> None:
        if not isinstance(item, PartialLine):
            self._greet(self._unreadable.report(item, now), now)
        elif isinstance(cut := decode_line(item.line), msg.MalformedLine):
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
        elif request.operation == out.INITIALIZE:
            self._greet(response, now)

    # -- messages that change the session ----------------------------------------------------------

    def _on_session_init(self, message: msg.InitMessage, _: float) -> None:
        self._turns.deliver(message)
        if missing := self._message_events.missing_tools(message):
            self._warn(WarningKind.OPTION_UNSUPPORTED, missing)
        if message.session_id and message.session_id != self._session_id:
            self._session_id = message.session_id
            self._emit(act.SessionNamed(message.session_id))

    def _on_result(self, message: msg.ResultMessage, now: float) -> None:
        self._turns.result(message, now)
        self._closing.last_errors = message.errors
        self._closing.turn_ended(now)

    def _on_lifecycle(self, message: msg.CommandLifecycle, now: float) -> None:
        self._turns.settle(message, now)
        self._closing.drain_if_idle(now)

    def _on_event_message(self, message: msg.Message, now: float) -> None:
        self._turns.deliver(message)
        self._turns.note_event(event := self._message_events.event_of(message, now))
        self._emit(act.Publish(event))

    def _on_unknown(self, message: msg.Message, _: float) -> None:
        self._turns.deliver(message)
        self._unreadable.report_unknown(message)

    # -- the handshake -----------------------------------------------------------------------------

    def _greet(self, response: Greeting | None, now: float) -> None:
        """Handle the response to initialize. A request may have confirmed the session before it."""
        confirmed = self.state.lifecycle is not Lifecycle.INIT_SENT
        if response is None:
            return
        if isinstance(response, controls.ControlSuccess):
            unguarded = self.handshake.answered(response.payload)
            self._incoming.hooks.learn(response.payload or {})
            if unguarded is not None:
                self._closing.break_off(unguarded, now)
                return
            if self._approvals.resumed is not None and not self._approvals.has_begun:
                limit = _IDLE_GRACE if self.handshake.is_idle else self._config.init_timeout
                self.deadlines.set((RESUMED, None), now + limit)
            if not confirmed:
                self._confirm(now)
        elif confirmed:
            self._warn(WarningKind.INIT_FAILED_LATE, response.error)
        else:
            self._closing.fail(Cause.REFUSED, errors.InitializationError(response.error), now)

    def _confirm(self, now: float) -> None:
        if not self.handshake.confirm():
            return
        self.state.move(Cause.CONFIRMED)
        self.handshake.succeed()
        self._emit(act.Publish(self.handshake.ready(self._session_id)))
        for queued in self._outgoing.take_queue():
            self._send(queued, now)
        self._incoming.confirm(now)
        self._end_input_if_due(now)

    def _end_input_if_due(self, now: float) -> None:
        is_ready = self._config.is_one_way or self.state.lifecycle is Lifecycle.RUNNING
        if self._shutdown.input_end_is_due and is_ready:
            self._incoming.refuse_all(now)
            self._shutdown.close_input()

    # -- outgoing requests -------------------------------------------------------------------------

    def refusal(self, operation: str) -> errors.BridleError | None:
        """Return why an operation cannot be accepted now, or None."""
        if operation == out.SEND_USER_MESSAGE and (call := self._approvals.deferred) is not None:
            return errors.ApprovalPending(operation, *call, self.waiting)
        if self.state.lifecycle in TERMINAL or self._shutdown.is_asked_for:
            if self.state.lifecycle is Lifecycle.FAILED and not self.handshake.is_done:
                return errors.SessionNotInitialized(operation, "it failed to start")
            return SessionStopped(operation, cause=self.state.failure)
        if self._shutdown.input_ended:
            return TransportError(operation, None, "the session's input has ended")
        if operation == "rewind_files" and not self._config.checkpointing:
            return errors.CheckpointingNotEnabled(operation)
        return None

    def _ask(
        self, what: str, fields: out.Fields, now: float, timeout: float = 0.0, then: out.Then = None
    ) -> None:
        """Send our own request if the CLI can take it. ``then`` gets the payload or the error."""
        if self.state.lifecycle not in TERMINAL and not self._shutdown.input_ended:
            limit = timeout or self._config.control_timeout
            self._send(out.Request(None, what, fields, limit, then), now)

    def _send(self, queued: out.Queued, now: float) -> None:
        """Send a request or a prompt, and note what it changes for the turn."""
        if isinstance(queued, out.QueuedPrompt):
            self._emit(act.Write(self._outgoing.line_of(queued)))
            self._turns.start(queued.uuid, now)
            self._emit(act.Resolve(queued.key, queued.uuid))
        elif self._outgoing.ask(queued, now) and queued.operation == out.INTERRUPT:
            self._turns.note_interrupt()

    def _on_resumed_overdue(self, _: None, now: float) -> None:
        """End the resumed turn if the CLI did not begin it."""
        resumed = self._approvals.resumed
        if resumed is not None and not self._approvals.has_begun and resumed.uuid in self._turns:
            self._approvals.give_up()
            self._turns.find_nothing(resumed.uuid, now)

    def _on_request_overdue(self, request_id: str, now: float) -> None:
        request = self._outgoing.take(request_id)
        assert request is not None, "a deadline is cleared with its request"
        if request.operation != out.INITIALIZE:
            self._outgoing.time_out(request, request_id)
        elif self.state.lifecycle is Lifecycle.INIT_SENT:
            self._closing.fail(Cause.TIMED_OUT, errors.InitializationTimeout(request.timeout), now)
        else:
            self._warn(WarningKind.INIT_FAILED_LATE, "initialize was never answered")

    # -- shutdown ----------------------------------------------------------------------------------

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
            self._closing.lose_contact("it closed its output but did not exit", now)

    def _on_pipe_overdue(self, reason: str, now: float) -> None:
        if self.is_closing:
            self._shutdown.shut_down(now)
        elif not self._shutdown.exited:
            self._closing.lose_contact(f"its input broke ({reason}) but it did not exit", now)

    def _gone(self, now: float) -> None:
        """Finish, because the process has exited and all its output was read."""
        if self._config.is_one_way and self.state.lifecycle not in TERMINAL:
            # Another process may hold the output open, so that its end was not seen.
            self._read(self._framer.finish(), now)
        self._closing.conclude(now)
        self.deadlines.clear_all()
        self._emit(act.Finished())

    def _warn(self, kind: WarningKind, detail: str) -> None:
        self._emit(act.Warn(kind, detail))

    _HANDLERS: ClassVar[dict[type, Callable[[Engine, Any, float], None]]] = {
        controls.ControlRequest: _on_request,
        controls.ControlResponse: _on_response,
        controls.ControlCancel: _on_withdrawal,
        msg.MalformedLine: lambda engine, line, now: engine._greet(
            engine._unreadable.report_malformed(line, now), now
        ),
        **dict.fromkeys((LongLine, OversizedLine, PartialLine), _on_report),
        msg.InitMessage: _on_session_init,
        msg.ResultMessage: _on_result,
        msg.CommandLifecycle: _on_lifecycle,
        msg.TranscriptMirror: _on_mirror,
        **dict.fromkeys(EVENT_MAKERS, _on_event_message),
        msg.UnknownMessage: _on_unknown,
        msg.UnknownSystemMessage: _on_unknown,
    }
    """The handler of each kind of frame. Other kinds are messages, which are only delivered."""

    _ON_DEADLINE: ClassVar[dict[str, Callable[[Engine, Any, float], None]]] = {
        out.REQUEST: _on_request_overdue,
        out.UNSTARTED: lambda engine, key, now: engine._outgoing.give_up(key),
        CALL: lambda engine, call, now: engine._apply(engine._incoming.expired(call, now), now),
        HOOK_CALL: lambda engine, held, now: engine._incoming.permission_hooks.expired(*held),
        EARLY: lambda engine, _, now: engine._incoming.confirm(now),
        STEP: lambda engine, _, now: engine._shutdown.enter_next(now),
        RESUMED: _on_resumed_overdue,
        OUTPUT: _on_output_overdue,
        PIPE: _on_pipe_overdue,
    }
    """The handler of each kind of deadline."""
