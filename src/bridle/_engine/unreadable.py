"""Report lines that cannot be read: too long to keep, not a frame, or of an unknown kind.

Warnings about them name lengths and kinds and quote nothing, because a line may be part of the
conversation. What waits for the line is still settled: an incoming request is answered with an
error, a response ends its outgoing request, and a result ends its turn. A shallow scan of the
line's bytes is enough for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from bridle._engine.actions import Action, Mirror, Warn
from bridle._engine.incoming.dispatch import Incoming
from bridle._engine.outgoing.requests import INITIALIZE, Outgoing
from bridle._engine.turns.book import TurnBook
from bridle._engine.wire.framing import LongLine, OversizedLine
from bridle._engine.wire.oversized import LineIdentity, identify, shape_of
from bridle._records.raw_line import line_size
from bridle.controls import ControlFailure, ControlSuccess
from bridle.errors import TransportError
from bridle.events import WarningKind
from bridle.messages import MalformedLine, Message, SystemMessage

if TYPE_CHECKING:
    from bridle._engine.closing import Closing


Greeting: TypeAlias = ControlSuccess | ControlFailure
"""The response to initialize."""


class Unreadable:
    """Report lines that could not be read, and settle what waited for them."""

    def __init__(
        self,
        limit: int,
        emit: Callable[[Action], None],
        turns: TurnBook,
        incoming: Incoming,
        requests: Outgoing,
        closing: Closing,
    ) -> None:
        self._limit = limit
        self._emit = emit
        self._turns = turns
        self._incoming = incoming
        self._requests = requests
        self._closing = closing
        #: Lines in a row that are not frames. The engine sets it to 0 after each frame.
        self.in_a_row = 0

    def report_malformed(self, frame: MalformedLine, now: float) -> Greeting | None:
        """Warn of a line that is not a frame, and settle what waited for it.

        Return the response to initialize, as far as it is known, if the line was that response.
        """
        self.report_cut(frame)
        if b"{" in frame.line:
            return self._end_lost(identify(frame.line), f"a line that is {frame.reason}", now)
        return None

    def report_cut(self, frame: MalformedLine) -> None:
        """Warn of a line that cannot be decoded. The CLI's exit settles what waited for it."""
        detail = f"{frame.reason}: {shape_of(frame.line)}"
        self._emit(Warn(WarningKind.MALFORMED_LINE, detail))

    def report(self, line: LongLine | OversizedLine, now: float) -> Greeting | None:
        """Do the same for a long line that was dropped. Warn of one that is not over the limit."""
        if isinstance(line, LongLine):
            self._emit(Warn(WarningKind.LONG_LINE, f"{line.size} bytes so far"))
            return None
        what = f"{line.type or 'a line'} of {line.size} bytes, over {self._limit}"
        self._emit(Warn(WarningKind.OVERSIZED_LINE, what))
        return self._end_lost(line, what, now)

    def report_unknown(self, message: Message) -> None:
        """Warn of a message whose type or subtype is unknown."""
        subtype = f", subtype {message.subtype!r:.60}" if isinstance(message, SystemMessage) else ""
        what = f"type {message.type!r:.60}{subtype}, {line_size(message)} bytes"
        self._emit(Warn(WarningKind.UNKNOWN_MESSAGE, what))

    def _end_lost(self, line: LineIdentity, what: str, now: float) -> Greeting | None:
        if line.type == "result":
            self._turns.lose_result(line.user_message_uuid, what, now)
            self._closing.turn_ended(now)
        elif line.type == "user" and line.uuid is not None:
            self._turns.lose_echo(line.uuid)
        elif line.type == "control_request" and line.request_id is not None:
            self._incoming.reject_unread(line, what)
        elif line.type == "control_response" and line.request_id is not None:
            return self._end_request(line.request_id, line.subtype, what)
        elif line.type == "transcript_mirror":
            self._emit(Mirror("", (), 0))
        return None

    def _end_request(self, request_id: str, subtype: str | None, what: str) -> Greeting | None:
        entry = self._requests.take(request_id)
        if entry is None:
            return None
        if entry.operation == INITIALIZE:
            return ControlSuccess() if subtype == "success" else ControlFailure(what)
        self._requests.fail(entry, TransportError(entry.operation, request_id, what))
        return None
