"""What a query hears: the CLI's output as messages and warnings, and how it ends.

A query only listens. Nothing the CLI asks is answered, and what its result says is for the
application to judge. The stream goes on to the end of the output, whatever results came before;
it ends with an error only if there was no result, if what came could not be read, or if a limit of
ours was reached.

Inputs are methods that return what there is to tell; the shell calls :meth:`QueryReader.advance`
when :attr:`QueryReader.next_deadline` comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import ClassVar, TypeAlias, cast

from msgspec import structs

from bridle._core.answer import AnswerWatch
from bridle._core.correlation import Deadlines
from bridle._core.ending import OUTPUT, OUTPUT_GRACE, PIPE
from bridle._core.framing import Item, LineFramer, PartialLine
from bridle._core.handshake import early_exit, unknown_session
from bridle._core.news import NEWS, News
from bridle._core.requests import INITIALIZE
from bridle._core.scan import shape_of
from bridle._core.wire import Unencodable, decode_line, encode_request
from bridle._source import tag_of
from bridle.controls import (
    ControlFailure,
    ControlRequest,
    ControlResponse,
    UnknownControlRequest,
)
from bridle.errors import (
    BridleError,
    BufferOverflow,
    CliExitedDuringInit,
    InitializationError,
    InitializationTimeout,
    OptionsError,
    ProcessInfo,
    TransportError,
)
from bridle.events import SdkWarning, SessionEvent, WarningKind
from bridle.messages import MalformedLine, Message, ResultMessage
from bridle.options import Limits
from bridle.outcomes import OUTCOME_ERRORS

MAX_MALFORMED = 5
"""The so-manieth line in a row that is no JSON ends the stream."""

_GREETING_ID = "req_0"
_GREETING = "greeting"
_QUOTED = 200  # bytes of a complaint that an error quotes

Told: TypeAlias = Message | SessionEvent
"""What a reader tells."""


class Phase(Enum):
    """Where a stream stands. It only moves down this list."""

    #: No result has come yet.
    STREAMING = "streaming"
    #: The rest can no longer make the stream fail by the way the CLI ends.
    RESULT_RECEIVED = "result_received"
    #: Nothing more is told.
    OVER = "over"


def greeting(fields: Mapping[str, object]) -> bytes:
    """The first line of a query: the handshake, whose answer nobody waits for.

    Raises:
        OptionsError: the fields hold something JSON cannot carry.
    """
    try:
        return encode_request(_GREETING_ID, INITIALIZE, fields)
    except Unencodable as problem:
        raise OptionsError("options", str(problem), fix="Use JSON values.") from None


class QueryReader:
    """One query's output. Inputs come one at a time; after the end they are ignored."""

    def __init__(self, max_line: int, limits: Limits, *, has_budget: bool = False) -> None:
        self._max_line = max_line
        # The framer's notice of a long line comes the moment a line is over the limit.
        self._framer = LineFramer(max_line + 1, warn_at=max_line)
        self._deadlines = Deadlines()
        self._watch: AnswerWatch | None = None
        if limits != Limits():
            self._watch = AnswerWatch(limits, self._deadlines, echoes=False, has_budget=has_budget)
        self._told: list[Told] = []
        self._news = News()
        self._process = ProcessInfo()
        self._is_greeted = False
        # The handshake or a message came.
        self._has_begun = False
        self._has_exited = False
        self._output_ended = False
        self._malformed_in_a_row = 0
        # The last line that could not be read: it may say why the CLI ended.
        self._last_malformed: MalformedLine | None = None
        # What follows the last newline, if it cannot be read.
        self._rest: MalformedLine | None = None
        # What the last result listed as errors.
        self._last_errors: tuple[str, ...] = ()
        self._init_timeout = 0.0
        self._lost_input = ""
        #: Where the stream stands.
        self.phase = Phase.STREAMING
        #: What ended it, if that was a failure.
        self.error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """True once the stream has ended, well or not."""
        return self.phase is Phase.OVER

    @property
    def next_deadline(self) -> float | None:
        """When :meth:`advance` has to be called next, if nothing else happens before."""
        return self._deadlines.next

    def describe(self, **known: object) -> None:
        """Tell what is known of the process (fields of ``ProcessInfo``), for errors to carry."""
        self._process = structs.replace(self._process, **known)

    # -- inputs ------------------------------------------------------------------------------------

    def start(self, init_timeout: float, now: float) -> None:
        """The greeting is sent. A CLI that says nothing at all for so long is given up."""
        self._init_timeout = init_timeout
        self._deadlines.set((_GREETING, ""), now + init_timeout)

    def prompted(self, now: float) -> None:
        """A prompt was written."""
        if self._watch is not None and not self.is_over:
            self._watch.prompt(now)

    def input_ended(self, now: float) -> None:
        """The last prompt was written, and the CLI can see that it was."""
        if self._watch is not None and not self.is_over:
            self._watch.input_ended(now)

    def receive(self, data: bytes, now: float) -> list[Told]:
        """The CLI wrote something: any piece of its output, in order."""
        if not self.is_over:
            self._read_all(self._framer.feed(data), now)
        return self._take()

    def pause(self, now: float) -> None:
        """Output is left where it is for a while, as nobody takes what there is already."""
        if self._watch is not None and not self.is_over:
            self._watch.hold(now)

    def resume(self, now: float) -> None:
        """Output is read again."""
        if self._watch is not None and not self.is_over:
            self._watch.go_on(now)

    def output_ended(self, now: float) -> list[Told]:
        """The CLI's output is at its end."""
        if not self.is_over and not self._output_ended:
            self._end_output(now)
            self._on_part_gone(now)
        return self._take()

    def exited(self, exit_code: int | None, stderr_tail: str, now: float) -> list[Told]:
        """The process is gone. ``exit_code`` is negative for a signal, None if unknown."""
        if not self.is_over and not self._has_exited:
            self._has_exited = True
            self.describe(exit_code=exit_code, stderr_tail=stderr_tail)
            self._on_part_gone(now)
        return self._take()

    def input_failed(self, reason: str, now: float) -> None:
        """The CLI takes no more prompts. It usually ends by itself then, given a moment."""
        if not self.is_over:
            self._lost_input = reason
            self._deadlines.set((PIPE, ""), now + OUTPUT_GRACE)

    def end(self, error: BaseException | None = None) -> None:
        """Nobody listens any more, or the query cannot go on for a reason of ours."""
        if not self.is_over:
            self._end(error)

    def advance(self, now: float) -> list[Told]:
        """Time has come to ``now``: whatever is due happens."""
        for token in self._deadlines.pop_expired(now):
            kind, _ = cast("tuple[str, str]", token)
            if self.is_over:
                break
            if kind in self._ON_DEADLINE:
                self._ON_DEADLINE[kind](self, now)
            else:
                self._on_limit_overdue(kind, now)
        return self._take()

    # -- lines -------------------------------------------------------------------------------------

    def _read_all(self, items: Iterable[Item], now: float) -> None:
        for item in items:
            if isinstance(item, bytes):
                self._read(item, now)
            elif isinstance(item, PartialLine):
                self._read_rest(item.line, now)
            else:
                self._end(BufferOverflow(self._max_line, item.size))
            if self.is_over:
                break

    def _read_rest(self, line: bytes, now: float) -> None:
        """Read what follows the last newline as a line like any other, if it is whole."""
        frame = decode_line(line)
        if isinstance(frame, MalformedLine):
            self._rest = frame
        else:
            self._read(line, now)

    def _read(self, line: bytes, now: float) -> None:
        frame = decode_line(line)
        if isinstance(frame, MalformedLine):
            self._on_malformed(frame)
            return
        self._malformed_in_a_row = 0
        if isinstance(frame, Message):
            self._deliver(frame, now)
        elif isinstance(frame, ControlResponse):
            self._on_response(frame)
        elif isinstance(frame, ControlRequest):
            self._on_question(frame)

    def _deliver(self, message: Message, now: float) -> None:
        if isinstance(message, ResultMessage):
            self.phase = Phase.RESULT_RECEIVED
            self._last_errors = message.errors
        self._note_life()
        self._told.append(message)
        if type(message) in NEWS:
            self._told.append(self._news.event_of(message, now))
        if self._watch is not None:
            self._watch.hear(message, now)
            self._mind_limits(self._watch, now)

    def _on_limit_overdue(self, kind: str, now: float) -> None:
        assert self._watch is not None, "without limits they have no deadlines"
        self._watch.overdue(kind, now)
        self._mind_limits(self._watch, now)

    def _mind_limits(self, watch: AnswerWatch, now: float) -> None:
        if watch.hit is not None:
            outcome = watch.outcome(self._process, now)
            self._end(OUTCOME_ERRORS[outcome.reason](outcome))

    def _on_question(self, frame: ControlRequest) -> None:
        """With nothing offered to answer, none should come; the CLI has to help itself."""
        body = frame.request
        kind = body.subtype if isinstance(body, UnknownControlRequest) else tag_of(body)
        self._warn(WarningKind.UNANSWERED_REQUEST, f"{kind}: a query answers nothing")

    def _on_response(self, frame: ControlResponse) -> None:
        if frame.request_id != _GREETING_ID:
            self._warn(WarningKind.ORPHAN_RESPONSE, f"request id {frame.request_id!r}")
        elif isinstance(frame.response, ControlFailure):
            self._end(InitializationError(frame.response.error))
        else:
            self._is_greeted = True
            self._note_life()

    def _note_life(self) -> None:
        """Note that the CLI works: how long it takes from here on is the application's business."""
        self._has_begun = True
        self._deadlines.clear((_GREETING, ""))

    def _on_malformed(self, frame: MalformedLine) -> None:
        self._malformed_in_a_row += 1
        self._last_malformed = frame
        if self._malformed_in_a_row < MAX_MALFORMED:
            self._warn(WarningKind.MALFORMED_LINE, _described(frame))
        else:
            last = self._complaint(frame)
            what = f"{MAX_MALFORMED} lines in a row could not be read; the last: {last}"
            self._end(TransportError("query", None, what))

    # -- the end -----------------------------------------------------------------------------------

    def _end_output(self, now: float) -> None:
        self._output_ended = True
        self._read_all(self._framer.finish(), now)

    def _on_part_gone(self, now: float) -> None:
        """Output and process end separately, in whichever order; one waits for the other a bit."""
        if self.is_over:
            return
        if self._has_exited and self._output_ended:
            self._judge()
        else:
            self._deadlines.set((OUTPUT, ""), now + OUTPUT_GRACE)

    def _on_output_overdue(self, now: float) -> None:
        if not self._has_exited:
            self._lose_contact("it closed its output but did not exit")
            return
        self._end_output(now)  # somebody else holds it open
        if not self.is_over:
            self._judge()

    def _on_input_overdue(self, _: float) -> None:
        if not self._has_exited:
            self._lose_contact(f"its input broke ({self._lost_input}) but it did not exit")

    def _on_greeting_overdue(self, _: float) -> None:
        self._end(InitializationTimeout(self._init_timeout))

    def _judge(self) -> None:
        """The process is gone and has said all it had to say."""
        is_clean = self._process.exit_code == 0
        if not self._is_greeted and not is_clean:
            # A CLI that cannot resume says so in a result, but there was no conversation.
            error = unknown_session(self._process, self._last_errors)
            if error is not None:
                self._end(error)
                return
        if self.phase is Phase.STREAMING and not is_clean:
            self._end(self._early_end())
            return
        if self._rest is not None:
            self._warn(WarningKind.INCOMPLETE_LINE, _described(self._rest))
        if self.phase is Phase.STREAMING:
            self._warn(WarningKind.NO_RESULT, "it exited with code 0")
        elif not is_clean:
            ending = self._process.ending or "an unknown exit code"
            self._warn(WarningKind.EXIT_AFTER_RESULT, f"it ended with {ending}")
        self._end(None)

    def _early_end(self) -> BridleError:
        frame = self._rest or self._last_malformed
        said = None if frame is None else self._complaint(frame)
        if not self._is_greeted:
            return early_exit(self._process, () if said is None else (said,))
        ending = self._process.ending or "an unknown exit code"
        last = "" if said is None else f"; the last line could not be read: {said}"
        return TransportError("query", None, f"it ended with {ending} before a result{last}")

    def _complaint(self, frame: MalformedLine) -> str:
        """Describe a line for an error.

        Plain text that comes in place of the handshake is quoted: a CLI, or what was started in its
        place, says so why it does not run, and there is no conversation yet.
        """
        words = frame.line[:_QUOTED].decode("utf-8", "backslashreplace")
        is_plain = not any(mark in words for mark in '{"')
        return words if is_plain and not self._has_begun else _described(frame)

    def _lose_contact(self, what: str) -> None:
        if self.phase is Phase.RESULT_RECEIVED:
            self._warn(WarningKind.EXIT_AFTER_RESULT, what)
            self._end(None)
        elif self._is_greeted:
            self._end(TransportError("query", None, what))
        else:
            self._end(CliExitedDuringInit(what))

    def _end(self, error: BaseException | None) -> None:
        self.phase = Phase.OVER
        self.error = error
        if isinstance(error, BridleError):
            error.with_process(self._process)
        self._deadlines.clear_all()

    def _warn(self, kind: WarningKind, detail: str) -> None:
        self._told.append(SdkWarning(kind, detail))

    def _take(self) -> list[Told]:
        told, self._told = self._told, []
        return told

    _ON_DEADLINE: ClassVar[dict[str, Callable[[QueryReader, float], None]]] = {
        _GREETING: _on_greeting_overdue,
        OUTPUT: _on_output_overdue,
        PIPE: _on_input_overdue,
    }
    """What happens when a deadline passes; all others are those of limits."""


def _described(frame: MalformedLine) -> str:
    """Describe a line without quoting it: it may be a piece of the conversation."""
    return f"{frame.reason}: {shape_of(frame.line)}"
