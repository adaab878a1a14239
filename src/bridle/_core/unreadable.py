"""Report lines that cannot be read: too long to keep, not a frame, or of an unknown kind.

Warnings about them name lengths and kinds and quote nothing, because a line may be part of the
conversation. What waits for the line is still settled: an incoming request is answered with an
error, a response ends its outgoing request, and a result ends its turn. A shallow scan of the
line's bytes is enough for that.
"""

from __future__ import annotations

from collections.abc import Callable

from bridle._core.actions import Action, Mirror, Warn
from bridle._core.framing import LongLine, OversizedLine
from bridle._core.incoming.handling import Incoming
from bridle._core.outgoing import INITIALIZE, Outgoing
from bridle._core.oversized import LineIdentity, identify, shape_of
from bridle._core.turns import TurnBook
from bridle._raw_line import line_size
from bridle.controls import ControlFailure, ControlSuccess
from bridle.errors import TransportError
from bridle.events import WarningKind
from bridle.messages import MalformedLine, Message, SystemMessage


class Unreadable:
    """Report lines that could not be read, and settle what waited for them."""

    def __init__(
        self,
        limit: int,
        emit: Callable[[Action], None],
        turns: TurnBook,
        incoming: Incoming,
        requests: Outgoing,
        *,
        on_turn_end: Callable[[float], None],
        on_handshake: Callable[[ControlSuccess | ControlFailure, float], None],
    ) -> None:
        self._limit = limit
        self._emit = emit
        self._turns = turns
        self._incoming = incoming
        self._requests = requests
        self._on_turn_end = on_turn_end
        self._on_handshake = on_handshake

    def report_malformed(self, frame: MalformedLine, now: float) -> None:
        """Warn of a line that is not a frame, and settle what waited for it."""
        self.report_cut(frame)
        if b"{" in frame.line:
            self._end_lost(identify(frame.line), f"a line that is {frame.reason}", now)

    def report_cut(self, frame: MalformedLine) -> None:
        """Warn of a line that cannot be decoded. The CLI's exit settles what waited for it."""
        detail = f"{frame.reason}: {shape_of(frame.line)}"
        self._emit(Warn(WarningKind.MALFORMED_LINE, detail))

    def report(self, line: LongLine | OversizedLine, now: float) -> None:
        """Warn of a long line. If it was too long and dropped, settle what waited for it."""
        if isinstance(line, LongLine):
            self._emit(Warn(WarningKind.LONG_LINE, f"{line.size} bytes so far"))
            return
        what = f"{line.type or 'a line'} of {line.size} bytes, over {self._limit}"
        self._emit(Warn(WarningKind.OVERSIZED_LINE, what))
        self._end_lost(line, what, now)

    def report_unknown(self, message: Message) -> None:
        """Warn of a message whose type or subtype is unknown."""
        subtype = f", subtype {message.subtype!r:.60}" if isinstance(message, SystemMessage) else ""
        what = f"type {message.type!r:.60}{subtype}, {line_size(message)} bytes"
        self._emit(Warn(WarningKind.UNKNOWN_MESSAGE, what))

    def _end_lost(self, line: LineIdentity, what: str, now: float) -> None:
        if line.type == "result":
            self._turns.lose_result(line.user_message_uuid, what, now)
            self._on_turn_end(now)
        elif line.type == "user" and line.uuid is not None:
            self._turns.lose_echo(line.uuid)
        elif line.type == "control_request" and line.request_id is not None:
            self._incoming.reject_unread(line, what)
        elif line.type == "control_response" and line.request_id is not None:
            self._end_request(line.request_id, line.subtype, what, now)
        elif line.type == "transcript_mirror":
            self._emit(Mirror("", (), 0))

    def _end_request(self, request_id: str, subtype: str | None, what: str, now: float) -> None:
        entry = self._requests.take(request_id)
        if entry is None:
            return
        if entry.operation == INITIALIZE:
            lost = ControlSuccess() if subtype == "success" else ControlFailure(what)
            self._on_handshake(lost, now)
        else:
            self._requests.fail(entry, TransportError(entry.operation, request_id, what))
