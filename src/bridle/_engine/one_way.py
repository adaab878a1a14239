"""Configure the engine one-way, for queries: prompts go in, messages come out.

A query does not answer requests of the CLI. Its only control request is ``initialize``, and the
prompts do not wait for the response. The application judges the results. The stream ends with an
error if the CLI did not start, if it ended without a result, if its output cannot be read, or if a
limit of ours was reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from msgspec import structs

from bridle import controls
from bridle._engine import actions as act
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle._engine.handshake import early_exit
from bridle._engine.query_limits import StreamBudget
from bridle._engine.state import TERMINAL, Cause, Lifecycle
from bridle._engine.turns.book import NO_TURN
from bridle._engine.turns.follow_ups import FollowUps
from bridle._engine.turns.limits import GiveUp
from bridle._engine.wire.codec import decode_line
from bridle._engine.wire.framing import Item, LineFramer, LongLine, OversizedLine, PartialLine
from bridle._engine.wire.oversized import shape_of
from bridle._records.raw_line import line_size, tag_of
from bridle.errors import (
    ApprovalPending,
    BridleError,
    BufferOverflow,
    CliExitedDuringInit,
    TransportError,
)
from bridle.events import WarningKind
from bridle.messages import MalformedLine, Message, ResultMessage, UserMessage
from bridle.messages._system import (
    BackgroundTasksChangedMessage,
    InitMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
)
from bridle.options import Limits
from bridle.outcomes import OUTCOME_ERRORS

MAX_MALFORMED = 5
"""Number of consecutive lines that are not JSON after which the stream fails."""

EXIT_GRACE = 30.0
"""Seconds of silence within which a CLI must exit after it has answered every prompt."""

UNSURE_EXIT_GRACE = 600.0
"""The same if a prompt may be unanswered: older CLIs do not say which prompts they answered."""

_EXIT = "exit"
"""The kind of the deadline token set here."""

_QUOTED = 200  # bytes of an unreadable line that an error quotes


class OneWayEngine(Engine):
    """The engine of a query. Prompts are given as lines and have no turns of their own."""

    def __init__(self, config: EngineConfig) -> None:
        # The limits apply to the stream, not to turns.
        super().__init__(structs.replace(config, limits=Limits()))
        # This reports a line as soon as it is over the limit.
        self._framer = LineFramer(config.max_line + 1, warn_at=config.max_line)
        self.handshake.wants_capabilities = False
        self._follow_ups = FollowUps(echoes=False)
        self._stream_budget: StreamBudget | None = None
        if config.limits != Limits():
            self._closing.budget = self._stream_budget = StreamBudget(
                config.limits, self.deadlines, self._follow_ups
            )
        # True once a message arrived, which shows that the CLI works.
        self._has_begun = False
        self._has_result = False
        # Prompts without a result, as far as results name them, and whether a turn runs.
        self._unanswered = 0
        self._is_in_turn = False
        self._malformed_in_a_row = 0
        # The last line that could not be read. It may say why the CLI exited.
        self._last_malformed: MalformedLine | None = None
        # The bytes after the last newline, if they cannot be read.
        self._rest: MalformedLine | None = None

    # -- inputs ------------------------------------------------------------------------------------

    def prompt(self, line: bytes, now: float) -> list[act.Action]:
        """Send a prompt. The stream fails if a call waits for approval, which it would discard."""
        if self.waiting is not None:
            self._refuse_prompts(now)
        elif self.state.lifecycle not in TERMINAL and not self._shutdown.input_ended:
            self._emit(act.Write(line))
            self._unanswered += 1
            if self._stream_budget is not None:
                self._stream_budget.prompt(now)
        return self._take(now)

    def end_input(self, now: float) -> list[act.Action]:
        """Close the CLI's input after the last prompt."""
        self._end_input(now)
        return self._take(now)

    def _end_input(self, now: float) -> None:
        if self.state.lifecycle not in TERMINAL and not self._shutdown.input_ended:
            self._shutdown.close_input()
            if self._stream_budget is not None:
                self._stream_budget.input_ended(now)
            self._expect_exit(now)

    def receive(self, data: bytes, now: float) -> list[act.Action]:
        """Read bytes of the CLI's output. Chunks may be cut anywhere but must come in order."""
        actions = super().receive(data, now)
        if not self._has_begun and any(type(action) is act.Deliver for action in actions):
            self._note_life()
        if self._has_result:
            self._expect_exit(now)
        return actions

    def _take(self, now: float) -> list[act.Action]:
        actions = super()._take(now)
        for action in actions:
            if type(action) is act.PauseReading:
                self._pause(now)
            elif type(action) is act.ResumeReading:
                self._resume(now)
        return actions

    def _pause(self, now: float) -> None:
        """Stop the timers of silence, because reading is paused and the CLI only seems silent."""
        if self._stream_budget is not None:
            self._stream_budget.pause(now)
        self.deadlines.clear((_EXIT, None))

    def _resume(self, now: float) -> None:
        if self._stream_budget is not None:
            self._stream_budget.resume(now)
        self._expect_exit(now)

    # -- frames ------------------------------------------------------------------------------------

    def _read(self, items: Sequence[Item], now: float) -> None:
        if not items:
            return
        frames: list[Any]
        frames, kinds = self.delivery.agents.decode_all(items)
        if self._HANDLERS.keys().isdisjoint(kinds):
            size = sum(map(len, cast("Sequence[bytes]", items)))
            self._malformed_in_a_row = 0
            self._outbox.deliver(frames, NO_TURN, size)
            return
        for frame in frames:
            kind: type = type(frame)  # pyright: ignore[reportUnknownVariableType]
            if kind is not MalformedLine:
                self._malformed_in_a_row = 0
            handle = self._HANDLERS.get(kind)
            if handle is None:
                self._outbox.deliver([frame], NO_TURN, line_size(frame))
            else:
                handle(self, frame, now)
            if self.state.lifecycle in TERMINAL:
                break

    def _on_unanswerable(self, frame: controls.ControlRequest, _: float) -> None:
        """Warn about a request of the CLI. A query registers nothing that the CLI could request."""
        body = frame.request
        kind = body.subtype if isinstance(body, controls.UnknownControlRequest) else tag_of(body)
        self._warn(WarningKind.UNANSWERED_REQUEST, f"{kind}: a query answers nothing")

    def _on_malformed(self, frame: MalformedLine, now: float) -> None:
        self._malformed_in_a_row += 1
        self._last_malformed = frame
        if self._malformed_in_a_row < MAX_MALFORMED:
            self._warn(WarningKind.MALFORMED_LINE, _described(frame))
        else:
            last = self._complaint(frame)
            what = f"{MAX_MALFORMED} lines in a row could not be read; the last: {last}"
            self._closing.fail(Cause.BROKEN, TransportError("query", None, what), now)

    def _on_report(self, item: LongLine | OversizedLine | PartialLine, now: float) -> None:
        if not isinstance(item, PartialLine):
            self._closing.fail(Cause.BROKEN, BufferOverflow(self._config.max_line, item.size), now)
        elif isinstance(frame := decode_line(item.line), MalformedLine):
            self._rest = frame
        else:
            self._read([item.line], now)

    def _on_result(self, message: ResultMessage, now: float) -> None:
        self._has_result = True
        self._last_errors = message.errors
        self._unanswered = max(0, self._unanswered - max(1, len(message.user_message_uuids)))
        self._is_in_turn = False
        self._outbox.deliver([message], NO_TURN, line_size(message))
        self._follow(message)
        # A hook in the settings of the CLI may defer a call. The CLI could begin another turn.
        if self._approvals.end_turn("", message, None) is not None:
            self._end_input(now)
            if self._unanswered:
                self._refuse_prompts(now)

    def _refuse_prompts(self, now: float) -> None:
        if self.waiting is not None and self.state.lifecycle not in TERMINAL:
            name, call = self.waiting.tool_name, self.waiting.tool_use_id
            error = ApprovalPending("query", name, call, self.waiting)
            self._closing.fail(Cause.BROKEN, error, now, by_us=True)

    def _on_turn_start(self, message: InitMessage, now: float) -> None:
        self._is_in_turn = True
        self._on_session_init(message, now)

    def _on_background_work(self, message: Message, _: float) -> None:
        self._outbox.deliver([message], NO_TURN, line_size(message))
        self._follow(message)

    def _follow(self, message: Message) -> None:
        if self._stream_budget is None:  # a stream budget passes the messages on itself
            self._follow_ups.observe(message)

    def _note_life(self) -> None:
        """Remove the deadline of initialize, because the CLI works."""
        self._has_begun = True
        self._outgoing.stop_waiting()

    # -- the end -----------------------------------------------------------------------------------

    def _apply(self, verdict: object, now: float) -> None:
        """End the stream with the error of the limit that an answer has reached."""
        budget = self._stream_budget
        if not isinstance(verdict, GiveUp) or self.state.lifecycle in TERMINAL:
            return
        if budget is not None:
            outcome = budget.outcome(self.process, now)
            self._closing.fail(
                Cause.BROKEN, OUTCOME_ERRORS[outcome.reason](outcome), now, by_us=True
            )

    def _expect_exit(self, now: float) -> None:
        """Limit the silence of a CLI that has answered every prompt and whose input is closed."""
        cannot_tell = self.state.lifecycle in TERMINAL or self.delivery.is_paused
        is_done = self._has_result and self._shutdown.input_ended and not self._is_in_turn
        if cannot_tell or not is_done or self._follow_ups.is_pending:
            self.deadlines.clear((_EXIT, None))
        else:
            grace = UNSURE_EXIT_GRACE if self._unanswered else EXIT_GRACE
            self.deadlines.set((_EXIT, None), now + grace)

    def _on_exit_overdue(self, _: None, now: float) -> None:
        self._lose_contact("it has answered everything but did not exit", now)

    def _lose_contact(self, what: str, now: float) -> None:
        if self.state.lifecycle in TERMINAL:
            return
        if self._has_result:
            self._warn(WarningKind.EXIT_AFTER_RESULT, what)
            self._closing.stop(now)
        elif self.state.lifecycle is Lifecycle.RUNNING:
            self._closing.fail(Cause.BROKEN, TransportError("query", None, what), now)
        else:
            self._closing.fail(Cause.PROCESS_ENDED, CliExitedDuringInit(what), now)

    def _conclude(self, now: float) -> None:
        """Decide whether the query succeeded."""
        if self.state.lifecycle not in TERMINAL:
            # Another process may hold the output open, so that its end was not seen.
            self._read(self._framer.finish(), now)
        if self.state.lifecycle in TERMINAL:
            return
        error = self._judge()
        if error is not None:
            self._closing.fail(Cause.BROKEN, error, now)
        else:
            self._closing.stop(now)

    def _judge(self) -> BridleError | None:
        """Return the error that ends the stream, or None. Warn of other problems."""
        is_greeted = self.state.lifecycle is Lifecycle.RUNNING
        is_clean = self.process.exit_code == 0
        if not is_greeted and not is_clean and self._last_errors:
            # A CLI that cannot resume reports it in a result, although there was no conversation.
            return early_exit(self.process, self._last_errors)
        if not self._has_result and not is_clean:
            return self._early_end(is_greeted=is_greeted)
        if self._rest is not None:
            self._warn(WarningKind.INCOMPLETE_LINE, _described(self._rest))
        if not self._has_result:
            self._warn(WarningKind.NO_RESULT, "it exited with code 0")
        elif not is_clean:
            ending = self.process.ending or "an unknown exit code"
            self._warn(WarningKind.EXIT_AFTER_RESULT, f"it ended with {ending}")
        return None

    def _early_end(self, *, is_greeted: bool) -> BridleError:
        frame = self._rest or self._last_malformed
        said = None if frame is None else self._complaint(frame)
        if not is_greeted:
            return early_exit(self.process, () if said is None else (said,))
        ending = self.process.ending or "an unknown exit code"
        last = "" if said is None else f"; the last line could not be read: {said}"
        return TransportError("query", None, f"it ended with {ending} before a result{last}")

    def _complaint(self, frame: MalformedLine) -> str:
        """Describe a line for an error.

        Plain text before the handshake is quoted: it often says why the program cannot run as the
        CLI, and it cannot be part of a conversation yet.
        """
        words = frame.line[:_QUOTED].decode("utf-8", "backslashreplace")
        is_plain = not any(mark in words for mark in '{"')
        has_begun = self._has_begun or self.state.lifecycle is Lifecycle.RUNNING
        return words if is_plain and not has_begun else _described(frame)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any, float], None]]] = {
        **Engine._HANDLERS,
        controls.ControlRequest: _on_unanswerable,
        controls.ControlCancel: lambda engine, frame, now: None,
        MalformedLine: _on_malformed,
        **dict.fromkeys((LongLine, OversizedLine, PartialLine), _on_report),
        InitMessage: _on_turn_start,
        ResultMessage: _on_result,
        **dict.fromkeys(
            (
                UserMessage,
                TaskStartedMessage,
                TaskUpdatedMessage,
                TaskNotificationMessage,
                BackgroundTasksChangedMessage,
            ),
            _on_background_work,
        ),
    }

    _ON_DEADLINE: ClassVar[dict[str, Callable[[Any, Any, float], None]]] = {
        **Engine._ON_DEADLINE,
        _EXIT: _on_exit_overdue,
    }


def _described(frame: MalformedLine) -> str:
    """Describe a line without quoting it, because it may be part of the conversation."""
    return f"{frame.reason}: {shape_of(frame.line)}"
