"""Keep the table of open requests: each incoming request gets one answer, unless it is withdrawn.

The first of these decides: the callback's result, its failure, its deadline, the withdrawal, or the
end of the session. The request leaves the table in that same step, so later events find nothing to
answer.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from bridle._engine.actions import Action, Call, CallKind, CancelCall, Warn, Write
from bridle._engine.deadlines import Deadlines
from bridle._engine.incoming.answers import Answer, InvalidReturn
from bridle._engine.shutdown import Shutdown
from bridle._engine.wire.codec import Unencodable, encode_error, encode_json, encode_success
from bridle._records.raw_line import JsonObject
from bridle.controls import ControlRequest
from bridle.events import WarningKind

if TYPE_CHECKING:
    from bridle._engine.incoming.hook_run import Decided

MAX_OPEN_REQUESTS = 4096
"""Incoming requests that may be open at once. It stops a runaway CLI; others stay far below."""

_WARN_AGAIN = 10.0
"""Seconds between two warnings about the same limit."""

CALL = "call"
"""The kind of the deadlines of callbacks."""

CLOSING = "the session is closing"


class IncomingRequest(Struct, frozen=True):
    """An incoming request that has just arrived."""

    id: str
    body: Any
    frame: ControlRequest
    session_id: str
    now: float


class RunningTurn(Protocol):
    """What requests have to know of the running turn."""

    def prompt_of(self, tool_use_id: str | None, agent_id: str | None) -> str | None:
        """Return the prompt that a tool use or a subagent belongs to."""

    def deferral_problem(self) -> str | None:
        """Return why no call of the running turn can wait for approval. None if one can."""


class OpenRequests:
    """Incoming requests whose callbacks have not finished, and the answers to all requests.

    ``shutdown`` says whether the CLI still accepts answers. ``turns`` knows the prompt that a tool
    use and an agent belong to.
    """

    def __init__(
        self,
        limit: int,
        deadlines: Deadlines,
        emit: Callable[[Action], None],
        *,
        shutdown: Shutdown,
        turns: RunningTurn,
    ) -> None:
        self._limit = limit
        self._deadlines = deadlines
        self._emit = emit
        self._shutdown = shutdown
        self._turns = turns
        #: The call that each open request waits for, by the id of the request.
        self.open: dict[str, Call] = {}
        self._by_call: dict[int, Call] = {}
        self._calls = 0
        # Ids of the last answers, as many as may be open at once, because the CLI repeats them.
        self._answered: OrderedDict[str, None] = OrderedDict()
        #: True while the session is closing: no callback is called, and every request is rejected.
        self.is_closing = False
        # The time from which to warn again about a limit.
        self._warn_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self.open)

    def find(self, call_id: int) -> Call | None:
        """Return a call that has not finished, or None."""
        return self._by_call.get(call_id)

    def was_answered(self, request_id: str) -> bool:
        """Return True if the request was answered recently, because the CLI repeats answers."""
        return request_id in self._answered

    # -- calls -------------------------------------------------------------------------------------

    def is_full(self, label: str, now: float) -> bool:
        """Return True if the table cannot take another request, and warn if so."""
        if len(self.open) < self._limit:
            return False
        self.warn_of_limit(f"{self._limit} requests of the CLI are open", label, now)
        return True

    def call(
        self,
        kind: CallKind,
        callback: object,
        argument: object,
        label: str,
        request_id: str,
        timeout: float | None,
        subject: object = None,
        name: str = "",
        tool_use_id: str | None = None,
    ) -> None:
        """Call a callback for a request. The request stays open until the callback has finished.

        ``tool_use_id`` is the tool use that the request belongs to, if ``argument`` is not a
        context that names it.
        """
        self._calls = call_id = self._calls + 1
        tool_use_id = tool_use_id or getattr(argument, "tool_use_id", None)
        prompt = self._turns.prompt_of(tool_use_id, getattr(argument, "agent_id", None))
        call = Call(
            call_id, kind, callback, argument, label, request_id, timeout, subject, prompt, name
        )
        self.open[request_id] = self._by_call[call_id] = call
        self._emit(call)

    def started(self, call_id: int, now: float) -> None:
        """Set the deadline of a callback that has started and did not return at once."""
        call = self._by_call.get(call_id)
        if call is not None and call.timeout is not None:
            self._deadlines.set((CALL, call_id), now + call.timeout)

    def take(self, call_id: int) -> Call | None:
        """Remove and return a call that has finished. Its request is still open."""
        if self._deadlines.soonest < math.inf:  # skip it for the many calls that return at once
            self._deadlines.clear((CALL, call_id))
        return self._by_call.pop(call_id, None)

    def cancel(self, call: Call, *, timed_out: bool = False) -> None:
        """Cancel a call, unless it has finished. Its request is still open."""
        if self.take(call.call_id) is not None:
            self._emit(CancelCall(call.call_id, timed_out=timed_out))

    def drop(self, request_id: str) -> bool:
        """Remove a request and cancel its call. Return False if the request is not open."""
        call = self.open.pop(request_id, None)
        if call is not None:
            self.cancel(call)
        return call is not None

    # -- answers -----------------------------------------------------------------------------------

    def answer(self, request_id: str, answer: Answer, *, warned: bool = False) -> None:
        """Answer a request. ``warned`` is True if the answer's warnings were already given."""
        self.open.pop(request_id, None)
        if not warned:
            for kind, detail in answer.warnings:
                self.warn(WarningKind(kind), detail)
        try:
            line = encode_success(request_id, answer.body)
        except Unencodable as error:
            self.reject(WarningKind.UNENCODABLE_RESULT, request_id, str(error))
        else:
            self._write(request_id, line)

    def send(self, request_id: str, payload: JsonObject) -> None:
        """Answer a request with an object. It may contain ids from the CLI."""
        try:
            body = encode_json(payload)
        except Unencodable as error:
            self.open.pop(request_id, None)
            self.reject(WarningKind.UNENCODABLE_RESULT, request_id, str(error))
        else:
            self.answer(request_id, Answer(body))

    def reject(self, kind: WarningKind, request_id: str, text: str) -> None:
        """Answer a request with an error."""
        self.warn(kind, text)
        self._write(request_id, encode_error(request_id, text))

    def reject_incomplete(self, request: IncomingRequest, *names: str) -> bool:
        """Reject a request if one of these fields is missing. Return True if so.

        The check is slow. A missing field is empty, so handlers call this only for an empty field.
        """
        missing = [name for name in names if name in request.frame.request.misfits]
        if missing:
            self.reject(WarningKind.INVALID_REQUEST, request.id, f"{missing[0]} is missing")
        return bool(missing)

    def _write(self, request_id: str, line: bytes) -> None:
        if not self._shutdown.input_ended:
            self._answered[request_id] = None
            if len(self._answered) > MAX_OPEN_REQUESTS:
                self._answered.popitem(last=False)
            self._emit(Write(line))
        else:
            self.warn(WarningKind.UNANSWERED_REQUEST, f"request id {request_id!r:.80}")

    # -- warnings ----------------------------------------------------------------------------------

    def warn(self, kind: WarningKind, detail: str) -> None:
        """Emit a warning."""
        self._emit(Warn(kind, detail))

    def warn_of_limit(self, limit: str, label: str, now: float) -> None:
        """Warn that a limit was reached, at most every ten seconds for the same limit."""
        if now >= self._warn_at.get(limit, -math.inf):
            self._warn_at[limit] = now + _WARN_AGAIN
            self.warn(WarningKind.LIMIT_REACHED, f"{label}: {limit}")


class RequestHandler(Protocol):
    """Handle one kind of request."""

    def handle(self, request: IncomingRequest) -> Decided:
        """Call the callback for a request, or answer it. Return what a hook decided."""


class CallHandler(RequestHandler, Protocol):
    """Handle one kind of request with callbacks, and answer it even if the callback fails."""

    #: The kinds of the warnings about a callback that failed, and one that timed out.
    failed_kind: WarningKind
    late_kind: WarningKind

    def finished(self, call: Call, result: Any, now: float) -> Decided:
        """Take the serialised result of a callback. Return what a hook decided."""

    def failed(self, call: Call, kind: str, detail: str, now: float, error: str = "") -> Decided:
        """Answer for a callback that raised, missed its deadline or returned an invalid value.

        ``error`` is the class of the exception, if it raised.
        """

    def uncallable(self, call: Call, limit: str, now: float) -> Decided:
        """Answer for a callback that could not be called. The warning was already given."""

    def refuse(self, call: Call) -> None:
        """Answer an open request because the session is closing."""


class OneCallback:
    """Answer requests that have one callback, whose serialised result is the answer.

    ``failure`` makes the answer if the callback gave none, from the kind and the detail of the
    warning. ``closing`` is the answer while the session is closing.
    """

    failed_kind: WarningKind
    late_kind: WarningKind

    def __init__(
        self, table: OpenRequests, failure: Callable[[str, str], Answer], closing: Answer
    ) -> None:
        self._table = table
        self._failure = failure
        self._closing = closing

    def finished(self, call: Call, result: Any, now: float) -> None:
        """Answer with the result. Treat an invalid result as a failure."""
        if type(result) is InvalidReturn:
            kind = result.kind or self.failed_kind
            self.failed(call, kind, f"{call.who}: {result.problem}", now)
        else:
            self._table.answer(call.request_id, result)

    def failed(self, call: Call, kind: str, detail: str, now: float, error: str = "") -> None:
        """Answer for the callback."""
        self._table.answer(call.request_id, self._failure(kind, detail))

    def uncallable(self, call: Call, limit: str, now: float) -> None:
        """Answer for the callback. The warning was already given."""
        answer = self._failure(WarningKind.LIMIT_REACHED, limit)
        self._table.answer(call.request_id, answer, warned=True)

    def refuse(self, call: Call) -> None:
        """Answer that the session is closing."""
        self._table.answer(call.request_id, self._closing)
