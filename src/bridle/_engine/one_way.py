"""Judge the output and the end of a query, which differ from those of a session.

The application judges the results of a query. The stream ends with an error if the CLI did not
start, if it ended without a result, if its output cannot be read, or if a limit was reached.
"""

from __future__ import annotations

from bridle._engine.actions import Warn
from bridle._engine.closing import Closing
from bridle._engine.handshake import early_exit
from bridle._engine.session_state import SessionState
from bridle._engine.state import TERMINAL, Cause, Lifecycle
from bridle._engine.turns.query_answers import Answers
from bridle._engine.unreadable import Unreadable
from bridle._engine.wire.framing import LongLine, OversizedLine
from bridle._engine.wire.oversized import shape_of
from bridle.errors import (
    ApprovalPending,
    BridleError,
    BufferOverflow,
    CliExitedDuringInit,
    TransportError,
)
from bridle.events import WarningKind
from bridle.messages import MalformedLine

MAX_MALFORMED = 5
"""Number of consecutive lines that are not JSON after which the stream fails."""

_QUOTED = 200  # bytes of an unreadable line that an error quotes


class QueryClosing(Closing):
    """The end of a query. It closes the input after a call that waits, and judges the exit."""

    @property
    def _answers(self) -> Answers:
        assert isinstance(self._turns, Answers), "the turns of a query"
        return self._turns

    def turn_ended(self, now: float) -> None:
        """Accept no more prompts if a call waits: they would discard the call."""
        if self._answers.waiting is not None:
            self._shutdown.close_input()
            if self._answers.unanswered:
                self.prompt_comes(now)

    def prompt_comes(self, now: float) -> None:
        """End the stream if a call waits for approval, which the prompt would discard."""
        call = self._answers.waiting
        if call is not None:
            error = ApprovalPending("query", call.tool_name, call.tool_use_id, call)
            self.break_off(error, now)

    def lose_contact(self, what: str, now: float) -> None:
        """End the query, because its CLI cannot be reached or does not exit. A result stands."""
        if self.state.lifecycle in TERMINAL:
            return
        if self._answers.has_result:
            self._emit(Warn(WarningKind.EXIT_AFTER_RESULT, what))
            self.stop(now)
        elif self._is_running:
            self.fail(Cause.BROKEN, TransportError("query", None, what), now)
        else:
            self.fail(Cause.PROCESS_ENDED, CliExitedDuringInit(what), now)

    def conclude(self, now: float) -> None:
        """Decide whether the query succeeded, after its process has exited."""
        if self.state.lifecycle in TERMINAL:
            return
        error = self._judge()
        if error is not None:
            self.fail(Cause.BROKEN, error, now)
        else:
            self.stop(now)

    def _judge(self) -> BridleError | None:
        """Return the error that ends the stream, or None. Warn of other problems."""
        process = self.state.process
        is_clean, has_result = process.exit_code == 0, self._answers.has_result
        ending = process.ending or "an unknown exit code"
        if not self._is_running and not is_clean and self.last_errors:
            # A CLI that cannot resume reports it in a result, although there was no conversation.
            return early_exit(process, self.last_errors)
        if not has_result and not is_clean:
            frame = self._answers.rest or self._answers.malformed
            said = None if frame is None else _complaint(frame, self._answers, self.state)
            if not self._is_running:
                return early_exit(process, () if said is None else (said,))
            last = "" if said is None else f"; the last line could not be read: {said}"
            return TransportError("query", None, f"it ended with {ending} before a result{last}")
        if self._answers.rest is not None:
            self._emit(Warn(WarningKind.INCOMPLETE_LINE, _described(self._answers.rest)))
        if not has_result:
            self._emit(Warn(WarningKind.NO_RESULT, "it exited with code 0"))
        elif not is_clean:
            self._emit(Warn(WarningKind.EXIT_AFTER_RESULT, f"it ended with {ending}"))
        return None


class QueryLines(Unreadable):
    """The lines of a query that cannot be read. A line over the limit ends the stream."""

    @property
    def _answers(self) -> Answers:
        assert isinstance(self._turns, Answers), "the turns of a query"
        return self._turns

    def report_malformed(self, frame: MalformedLine, now: float) -> None:
        """Warn of a line that is not JSON. Too many in a row end the stream."""
        self.in_a_row += 1
        self._answers.malformed = frame
        if self.in_a_row < MAX_MALFORMED:
            self._emit(Warn(WarningKind.MALFORMED_LINE, _described(frame)))
        else:
            last = _complaint(frame, self._answers, self._closing.state)
            what = f"{MAX_MALFORMED} lines in a row could not be read; the last: {last}"
            self._closing.break_off(TransportError("query", None, what), now)

    def report_cut(self, frame: MalformedLine) -> None:
        """Note the bytes after the last newline."""
        self._answers.rest = frame

    def report(self, line: LongLine | OversizedLine, now: float) -> None:
        """End the stream, as soon as a line is over the limit."""
        self._closing.break_off(BufferOverflow(self._limit, line.size), now)


def _described(frame: MalformedLine) -> str:
    """Describe a line without quoting it, because it may be part of the conversation."""
    return f"{frame.reason}: {shape_of(frame.line)}"


def _complaint(frame: MalformedLine, answers: Answers, state: SessionState) -> str:
    """Describe a line for an error.

    Plain text before the handshake is quoted: it often says why the program cannot run as the
    CLI, and it cannot be part of a conversation yet.
    """
    words = frame.line[:_QUOTED].decode("utf-8", "backslashreplace")
    is_plain = not any(mark in words for mark in '{"')
    has_begun = answers.has_begun or state.lifecycle is Lifecycle.RUNNING
    return words if is_plain and not has_begun else _described(frame)
