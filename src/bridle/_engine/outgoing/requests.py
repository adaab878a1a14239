"""Manage outgoing requests: queued until the session is confirmed, then pending, then settled.

The key of each caller is resolved or rejected exactly once, and removed from this table in the same
step. So later events cannot settle it again.

Request ids are ``req_<n>`` with a counter that only grows. So no history is needed to judge an id
that is no longer pending: the response to an id we issued is late, any other id is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from msgspec import Struct

from bridle._engine.actions import Action, Reject, Resolve, Warn, Write
from bridle._engine.deadlines import Deadlines
from bridle._engine.outgoing.operations import default_timeout, prepare_operation, unknown_mode
from bridle._engine.outgoing.prompts import close_verbatim
from bridle._engine.session_state import SessionState
from bridle._engine.state import Lifecycle
from bridle._engine.wire.codec import Unencodable, encode_request, encode_user_message
from bridle.content import Content
from bridle.controls import ControlFailure, ControlSuccess
from bridle.errors import (
    BridleError,
    ControlRejected,
    ControlTimeout,
    InitQueueOverflow,
    OptionsError,
    SessionNotInitialized,
    TooManyPendingRequests,
)
from bridle.events import WarningKind

MAX_PENDING_REQUESTS = 64
"""Requests that may be pending at once. The next one is rejected."""

_PREFIX = "req_"

MAX_QUEUED = 16
"""Operations that may wait for the session to be confirmed. The next one is rejected."""

REQUEST = "request"
UNSTARTED = "unstarted"
"""The kinds of the deadline tokens set here."""

INITIALIZE = "initialize"
INTERRUPT = "interrupt"
SEND_USER_MESSAGE = "send_user_message"
CANCEL_PROMPT = "cancel_async_message"

_REMEMBERED_WITHDRAWALS = 64
"""Requests to withdraw a prompt whose response is still used after the caller was cancelled."""


Fields = Mapping[str, object]
"""The fields of a request, without its subtype."""

Then = Callable[[object], None] | None
"""Takes the payload of a response, or the error in its place."""


def used_uuid() -> OptionsError:
    """Return the error for a prompt with the UUID of another one that has no outcome yet."""
    return OptionsError("uuid", "is already in use", fix="Use another UUID.")


class Request(Struct, frozen=True):
    """An outgoing request. It may wait for the session first, then for its response."""

    #: The caller's key, which the engine resolves or rejects. None for our own requests.
    key: Hashable | None
    #: The control subtype. Errors name it.
    operation: str
    fields: Fields
    #: Seconds that the CLI may take to respond.
    timeout: float
    #: Called with the payload or the error, for requests of the engine itself.
    then: Then = None


class Ledger:
    """Outgoing requests that the CLI has not answered yet."""

    def __init__(self) -> None:
        #: By id, in the order they were issued.
        self.pending: dict[str, Request] = {}
        #: The id of the next request.
        self.next_id = f"{_PREFIX}0"
        self._issued = 0

    def issue(self, request: Request) -> str:
        """Add a new request and return its id.

        The caller checks the limit first, because some of our own requests (the interrupt of a
        gentle close) must go out even if callers have filled the ledger.
        """
        request_id = self.next_id
        self.pending[request_id] = request
        self._issued += 1
        self.next_id = f"{_PREFIX}{self._issued}"
        return request_id

    def id_for(self, key: Hashable) -> str | None:
        """Return the id of the request that the caller awaits under ``key``."""
        return next((id for id, request in self.pending.items() if request.key == key), None)

    def was_issued(self, request_id: str) -> bool:
        """Return True if we issued ``request_id``, pending or not."""
        digits = request_id.removeprefix(_PREFIX)
        # Longer numbers cannot be ours, and int() may reject very long ones.
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(self._issued))
        if digits == request_id or not is_number:
            return False
        # Accept only our own form: "req_007" is not ours.
        return str(int(digits)) == digits and int(digits) < self._issued


class QueuedPrompt(Struct, frozen=True):
    """A prompt that waits for the session to be confirmed."""

    key: Hashable
    uuid: str
    line: bytes
    operation: str = SEND_USER_MESSAGE


Queued = Request | QueuedPrompt


class Outgoing:
    """The outgoing requests of one session.

    Before the session runs, operations are queued. ``timeout`` is the default in seconds. It also
    limits how long a prompt waits for a session that is never started. ``is_verbatim`` keeps the
    CLI from interpreting prompts. ``has_gates``: the session has hooks or permission callbacks.
    ``is_one_way``: prompts do not wait for the handshake.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        emit: Callable[[Action], None],
        state: SessionState,
        *,
        timeout: float,
        is_verbatim: bool = False,
        has_gates: bool = False,
        is_one_way: bool = False,
    ) -> None:
        self._has_gates = has_gates
        self._is_one_way = is_one_way
        self._is_verbatim = is_verbatim
        self._deadlines = deadlines
        self._emit = emit
        self._state = state
        self._timeout = timeout
        self._has_begun = False
        self._ledger = Ledger()
        self._queue: list[Queued] = []
        #: The uuid of the prompt that each withdrawal request is about, by request id.
        self.withdrawals: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._ledger.pending)

    # -- sending -----------------------------------------------------------------------------------

    def submit(
        self,
        key: Hashable,
        operation: str,
        fields: Fields,
        now: float,
        timeout: float | None,
        error: BridleError | None,
    ) -> Request | None:
        """Queue or reject the control request of a caller, or return it if it can be sent now.

        ``error`` says why no request is accepted now.
        """
        try:
            fields = prepare_operation(operation, fields, timeout, has_gates=self._has_gates)
        except OptionsError as problem:
            error = problem
        limit = timeout or default_timeout(operation, self._timeout)
        request = Request(key, operation, fields, limit)
        if error is None and (unknown := unknown_mode(operation, fields)):
            self._emit(Warn(WarningKind.UNKNOWN_VALUE, unknown))
        if error is not None:
            self.fail(request, error)
        elif self._state.lifecycle is Lifecycle.RUNNING:
            return request
        else:
            self.enqueue(request, now)
        return None

    def send(
        self,
        key: Hashable,
        uuid: str,
        content: Content | bytes,
        now: float,
        error: BridleError | None,
        *,
        is_used: bool,
    ) -> QueuedPrompt | None:
        """Queue or reject a prompt, or return it if it can be sent now.

        ``error`` says why no prompt is accepted now, ``is_used`` whether its uuid is in use.
        """
        if is_used:
            error = error or used_uuid()
        try:
            line = content if isinstance(content, bytes) else self._encode(content, uuid)
        except Unencodable as problem:
            error = error or OptionsError("content", str(problem), fix="Send text or JSON blocks.")
            line = b""
        prompt = QueuedPrompt(key, uuid, line)
        if error is not None:
            self.reject(key, error)
        elif self._is_one_way or self._state.lifecycle is Lifecycle.RUNNING:
            return prompt
        else:
            self.enqueue(prompt, now)
        return None

    def _encode(self, content: Content, uuid: str) -> bytes:
        return encode_user_message(content, uuid, client_composed=self._is_verbatim)

    def line_of(self, prompt: QueuedPrompt) -> bytes:
        """Return the line of a prompt in the form for this CLI. Call it when it is sent."""
        if not self._is_verbatim:
            return prompt.line
        return close_verbatim(prompt.line, self._state.cli_version)

    def begin(self) -> None:
        """Remove the deadlines of queued operations, because the session is being started."""
        self._has_begun = True
        for queued in self._queue:
            self._deadlines.clear((UNSTARTED, queued.key))

    def enqueue(self, queued: Queued, now: float) -> None:
        """Queue an operation until the session is confirmed. Reject it if the queue is full."""
        if len(self._queue) < MAX_QUEUED:
            self._queue.append(queued)
            if not self._has_begun:
                limit = queued.timeout if isinstance(queued, Request) else self._timeout
                self._deadlines.set((UNSTARTED, queued.key), now + limit)
            return
        detail = f"{queued.operation}: {MAX_QUEUED} operations are queued"
        self._emit(Warn(WarningKind.LIMIT_REACHED, detail))
        self.reject(queued.key, InitQueueOverflow(queued.operation, MAX_QUEUED))

    def give_up(self, key: Hashable) -> None:
        """Reject the operation under ``key``, because the session was not started in time."""
        for queued in self._queue:
            if queued.key == key:
                self.reject(
                    key, SessionNotInitialized(queued.operation, "connect() was not called")
                )
        self.cancel(key)

    def stop_waiting(self) -> None:
        """Remove the deadlines of pending requests."""
        for request_id in self._ledger.pending:
            self._deadlines.clear((REQUEST, request_id))

    def take_queue(self) -> list[Queued]:
        """Remove and return the queued operations, in order."""
        queue, self._queue = self._queue, []
        for queued in queue:
            self._deadlines.clear((UNSTARTED, queued.key))
        return queue

    def ask(self, request: Request, now: float) -> bool:
        """Send a request, or reject it. Return True if it was sent.

        The limit of pending requests applies only to callers. Our own requests are always sent,
        because the shutdown may depend on them.
        """
        ledger, operation = self._ledger, request.operation
        if len(ledger.pending) >= MAX_PENDING_REQUESTS and request.key is not None:
            detail = f"{operation}: {MAX_PENDING_REQUESTS} requests are pending"
            self._emit(Warn(WarningKind.LIMIT_REACHED, detail))
            self.fail(request, TooManyPendingRequests(operation, MAX_PENDING_REQUESTS))
            return False
        try:
            line = encode_request(ledger.next_id, operation, request.fields)
        except Unencodable as problem:
            if request.key is None:
                raise  # a request of our own has no caller to report the error to
            self.fail(request, OptionsError(operation, str(problem), fix="Use JSON values."))
            return False
        request_id = ledger.issue(request)
        if operation == CANCEL_PROMPT:
            self._remember(request_id, str(request.fields["message_uuid"]))
        self._deadlines.set((REQUEST, request_id), now + request.timeout)
        self._emit(Write(line))
        return True

    def _remember(self, request_id: str, uuid: str) -> None:
        self.withdrawals[request_id] = uuid
        if len(self.withdrawals) > _REMEMBERED_WITHDRAWALS:
            del self.withdrawals[next(iter(self.withdrawals))]

    # -- responses ---------------------------------------------------------------------------------

    def withdrawn_prompt(
        self, request_id: str, response: ControlSuccess | ControlFailure
    ) -> str | None:
        """Return the uuid of the prompt if this response confirms its withdrawal, else None.

        Newer CLIs also confirm it in a separate line, older ones only here. So the response counts
        even if its caller was cancelled.
        """
        uuid = self.withdrawals.pop(request_id, None)
        if isinstance(response, ControlFailure) or response.payload is None:
            return None
        return uuid if response.payload.get("cancelled") is True else None

    def answer(self, request_id: str, response: ControlSuccess | ControlFailure) -> Request | None:
        """Settle a request with its response. Return it, or None if no such request is pending."""
        request = self._ledger.pending.pop(request_id, None)
        if request is None:
            return None
        self._deadlines.clear((REQUEST, request_id))
        if type(response) is ControlSuccess:
            if request.key is not None:
                self._emit(Resolve(request.key, response.payload))
            elif request.then is not None:
                request.then(response.payload)
        elif isinstance(response, ControlFailure):
            words = (response.error, response.error_code)
            self.fail(request, ControlRejected(request.operation, request_id, *words))
        return request

    def answer_late(self, request_id: str) -> None:
        """Drop a response without a pending request: it is late, or its id is unknown."""
        late = self._ledger.was_issued(request_id)
        kind = WarningKind.LATE_RESPONSE if late else WarningKind.ORPHAN_RESPONSE
        self._emit(Warn(kind, f"request id {request_id!r:.80}"))

    def take(self, request_id: str) -> Request | None:
        """Remove and return a pending request, or None. Does not settle it."""
        request = self._ledger.pending.pop(request_id, None)
        if request is not None:
            self._deadlines.clear((REQUEST, request_id))
        return request

    def fail(self, request: Request, error: BridleError) -> None:
        """Report an error to the caller of a request that is no longer pending."""
        if request.key is not None:
            self.reject(request.key, error)
        elif request.then is not None:
            request.then(error)

    def time_out(self, request: Request, request_id: str) -> None:
        """Report a timeout to the caller of a request that is no longer pending."""
        self.fail(request, ControlTimeout(request.operation, request_id, request.timeout))

    def cancel(self, key: Hashable) -> None:
        """Stop waiting for ``key``."""
        request_id = self._ledger.id_for(key)
        if request_id is not None:
            self.take(request_id)
        self._queue = [queued for queued in self._queue if queued.key != key]
        self._deadlines.clear((UNSTARTED, key))

    def reject_all(self, error_for: Callable[[str, str | None], BridleError]) -> None:
        """Settle everything. ``error_for`` gets the operation, and the id if it was sent."""
        self.reject_callers(error_for)
        for request_id in list(self._ledger.pending):
            self.take(request_id)

    def reject_callers(self, error_for: Callable[[str, str | None], BridleError]) -> None:
        """Settle the requests of callers. Our own requests keep their deadlines."""
        for request_id, request in list(self._ledger.pending.items()):
            if request.key is not None:
                self.take(request_id)
                self.reject(request.key, error_for(request.operation, request_id))
        self.reject_queue(lambda operation: error_for(operation, None))

    def reject_queue(self, error_for: Callable[[str], BridleError]) -> None:
        """Reject every queued operation. ``error_for`` makes the error from the operation."""
        for queued in self.take_queue():
            self.reject(queued.key, error_for(queued.operation))

    def reject(self, key: Hashable, error: BridleError) -> None:
        """Reject ``key`` with an error that carries the process information."""
        self._emit(Reject(key, error.with_process(self._state.describe())))
