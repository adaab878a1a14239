"""Outgoing requests: queued until the session is confirmed, then pending, then settled.

The key of each caller is resolved or rejected exactly once. A key leaves this table with that, so
nothing that happens later can settle it again.

Request ids are ``req_<n>`` with a counter that only grows. So an id that is no longer pending can
be judged without a history: the answer to an id we issued is late, any other id is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from msgspec import Struct

from bridle._core.actions import Action, Reject, Resolve, Warn, Write
from bridle._core.deadlines import Deadlines
from bridle._core.operations import default_timeout, prepare_operation
from bridle._core.wire import Unencodable, encode_request, encode_user_message
from bridle.content import Content
from bridle.controls import ControlFailure, ControlSuccess
from bridle.errors import (
    BridleError,
    ControlRejected,
    ControlTimeout,
    InitQueueOverflow,
    OptionsError,
    ProcessInfo,
    SessionNotInitialized,
    TooManyPendingRequests,
)
from bridle.events import WarningKind

MAX_PENDING_REQUESTS = 64
"""Requests that may wait for the CLI at once; the next one is rejected."""

_PREFIX = "req_"

MAX_QUEUED = 16
"""Operations that may wait for the session to be confirmed; the next one is refused."""

REQUEST = "request"
UNSTARTED = "unstarted"
"""The kinds of deadline tokens this table sets."""

INITIALIZE = "initialize"
INTERRUPT = "interrupt"
SEND_USER_MESSAGE = "send_user_message"
CANCEL_PROMPT = "cancel_async_message"

_REMEMBERED_WITHDRAWALS = 64
"""Requests to withdraw a prompt whose answer is still understood after its caller has left."""


Fields = Mapping[str, object]
"""The fields of a request, without its subtype."""

Then = Callable[[object], None] | None
"""Takes the payload of an answer, or the error in its place."""


class Request(Struct, frozen=True):
    """One of our requests: it waits for the session first, if it has to, then for its answer."""

    #: The caller's handle: what the engine resolves or rejects. None: nobody waits for it.
    key: Hashable | None
    #: The control subtype, as errors name it.
    operation: str
    fields: Fields
    #: Seconds the CLI has for its answer.
    timeout: float
    #: Called with the payload of the answer, or with the error, where the engine itself asks.
    then: Then = None


class Ledger:
    """Our requests that the CLI has not answered yet."""

    def __init__(self) -> None:
        #: By id, in the order they were issued.
        self.pending: dict[str, Request] = {}
        #: The id the next request will have.
        self.next_id = f"{_PREFIX}0"
        self._issued = 0

    def issue(self, request: Request) -> str:
        """Enter a new request under a fresh id, which is returned.

        The limit is the caller's to check first: some requests of our own making (the interrupt
        of a gentle close) must go out even when callers have filled the ledger.
        """
        request_id = self.next_id
        self.pending[request_id] = request
        self._issued += 1
        self.next_id = f"{_PREFIX}{self._issued}"
        return request_id

    def id_for(self, key: Hashable) -> str | None:
        """The request somebody waits for under ``key``."""
        return next((id for id, request in self.pending.items() if request.key == key), None)

    def was_issued(self, request_id: str) -> bool:
        """True if ``request_id`` is one of ours, pending or not."""
        digits = request_id.removeprefix(_PREFIX)
        # No number of ours has more digits than the next one; longer ones int() may even refuse.
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(self._issued))
        if digits == request_id or not is_number:
            return False
        # Only the spelling we use ourselves: "req_007" is nobody's.
        return str(int(digits)) == digits and int(digits) < self._issued


class QueuedPrompt(Struct, frozen=True):
    """A prompt that waits for the session."""

    key: Hashable
    uuid: str
    line: bytes
    operation: str = SEND_USER_MESSAGE


Queued = Request | QueuedPrompt


class Outgoing:
    """The requests of one session.

    ``refusal`` returns why an operation cannot be taken now, if it cannot; ``is_running`` whether
    requests are sent at once. ``process`` returns what errors say about the CLI. ``on_interrupt``
    is called for each interrupt that is sent, ``on_prompt`` sends a prompt. ``timeout`` is the
    default, in seconds; it also limits how long a prompt waits for a session that is never started.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        emit: Callable[[Action], None],
        process: Callable[[], ProcessInfo],
        *,
        refusal: Callable[[str], BridleError | None],
        is_running: Callable[[], bool],
        on_interrupt: Callable[[], None],
        on_prompt: Callable[[QueuedPrompt, float], None],
        timeout: float,
    ) -> None:
        self._deadlines = deadlines
        self._emit = emit
        self._process = process
        self._refusal = refusal
        self._is_running = is_running
        self._on_interrupt = on_interrupt
        self._on_prompt = on_prompt
        self._timeout = timeout
        self._has_begun = False
        self._ledger = Ledger()
        self._queue: list[Queued] = []
        #: Which prompt each request to withdraw one was about.
        self.withdrawals: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._ledger.pending)

    # -- out ---------------------------------------------------------------------------------------

    def submit(
        self,
        key: Hashable,
        operation: str,
        fields: Fields,
        now: float,
        timeout: float | None,
    ) -> None:
        """Send the control request of a caller, or queue or reject it."""
        try:
            fields = prepare_operation(operation, fields, timeout)
            error = self._refusal(operation)
        except OptionsError as problem:
            error = problem
        limit = timeout or default_timeout(operation, self._timeout)
        request = Request(key, operation, fields, limit)
        if error is not None:
            self.fail(request, error)
        elif self._is_running():
            self.ask(request, now)
        else:
            self.enqueue(request, now)

    def send(
        self, key: Hashable, uuid: str, content: Content | bytes, now: float, *, is_used: bool
    ) -> None:
        """Send a prompt, or queue it; reject it if it cannot be sent, or its uuid is used."""
        error = self._refusal(SEND_USER_MESSAGE)
        if is_used:
            error = error or OptionsError("uuid", "is in use", fix="Give each prompt its own.")
        try:
            line = content if isinstance(content, bytes) else encode_user_message(content, uuid)
        except Unencodable as problem:
            error = error or OptionsError("content", str(problem), fix="Send text or JSON blocks.")
            line = b""
        prompt = QueuedPrompt(key, uuid, line)
        if error is not None:
            self.reject(key, error)
        elif self._is_running():
            self._on_prompt(prompt, now)
        else:
            self.enqueue(prompt, now)

    def begin(self) -> None:
        """The session is being started: what waits for it has a reason to."""
        self._has_begun = True
        for queued in self._queue:
            self._deadlines.clear((UNSTARTED, queued.key))

    def enqueue(self, queued: Queued, now: float) -> None:
        """Keep an operation until the session is confirmed, if there is room."""
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
        """Nobody has started the session that the operation under ``key`` waits for."""
        for queued in self._queue:
            if queued.key == key:
                self.reject(
                    key, SessionNotInitialized(queued.operation, "connect() was not called")
                )
        self.cancel(key)

    def stop_waiting(self) -> None:
        """Let the requests that are under way wait for their answers without a deadline."""
        for request_id in self._ledger.pending:
            self._deadlines.clear((REQUEST, request_id))

    def take_queue(self) -> list[Queued]:
        """Remove and return what waits for the session, in order."""
        queue, self._queue = self._queue, []
        for queued in queue:
            self._deadlines.clear((UNSTARTED, queued.key))
        return queue

    def ask(self, request: Request, now: float) -> None:
        """Send a request, or refuse it.

        How many may be pending is a limit for callers. What we ask on our own account is never
        held up: the way out may depend on it.
        """
        ledger, operation = self._ledger, request.operation
        if len(ledger.pending) >= MAX_PENDING_REQUESTS and request.key is not None:
            detail = f"{operation}: {MAX_PENDING_REQUESTS} requests are pending"
            self._emit(Warn(WarningKind.LIMIT_REACHED, detail))
            self.fail(request, TooManyPendingRequests(operation, MAX_PENDING_REQUESTS))
            return
        try:
            line = encode_request(ledger.next_id, operation, request.fields)
        except Unencodable as problem:
            if request.key is None:
                raise  # nobody would hear of it
            self.fail(request, OptionsError(operation, str(problem), fix="Use JSON values."))
            return
        request_id = ledger.issue(request)
        if operation == INTERRUPT:
            self._on_interrupt()
        elif operation == CANCEL_PROMPT:
            self._remember(request_id, str(request.fields["message_uuid"]))
        self._deadlines.set((REQUEST, request_id), now + request.timeout)
        self._emit(Write(line))

    def _remember(self, request_id: str, uuid: str) -> None:
        self.withdrawals[request_id] = uuid
        if len(self.withdrawals) > _REMEMBERED_WITHDRAWALS:
            del self.withdrawals[next(iter(self.withdrawals))]

    # -- in ----------------------------------------------------------------------------------------

    def withdrawn_prompt(
        self, request_id: str, response: ControlSuccess | ControlFailure
    ) -> str | None:
        """The uuid of the prompt that this answer says was taken out of the CLI's queue, if any.

        Newer CLIs say so in a line of its own as well; older ones only here, so it counts even
        when nobody waits for the answer any more.
        """
        uuid = self.withdrawals.pop(request_id, None)
        if isinstance(response, ControlFailure) or response.payload is None:
            return None
        return uuid if response.payload.get("cancelled") is True else None

    def answer(self, request_id: str, response: ControlSuccess | ControlFailure) -> Request | None:
        """The CLI answers. Tell whoever waits; None if no such request is pending."""
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

    def report_stranger(self, request_id: str) -> None:
        """An answer nobody waits for came: a late one, or one to no question of ours."""
        late = self._ledger.was_issued(request_id)
        kind = WarningKind.LATE_RESPONSE if late else WarningKind.ORPHAN_RESPONSE
        self._emit(Warn(kind, f"request id {request_id!r:.80}"))

    def take(self, request_id: str) -> Request | None:
        """Remove and return a pending request, whatever has become of it."""
        request = self._ledger.pending.pop(request_id, None)
        if request is not None:
            self._deadlines.clear((REQUEST, request_id))
        return request

    def fail(self, request: Request, error: BridleError) -> None:
        """Tell whoever waits for a request that was taken, or was never sent."""
        if request.key is not None:
            self.reject(request.key, error)
        elif request.then is not None:
            request.then(error)

    def time_out(self, request: Request, request_id: str) -> None:
        """Tell whoever waits for a request that was taken because its time is up."""
        self.fail(request, ControlTimeout(request.operation, request_id, request.timeout))

    def cancel(self, key: Hashable) -> None:
        """Nobody waits for ``key`` any more."""
        request_id = self._ledger.id_for(key)
        if request_id is not None:
            self.take(request_id)
        self._queue = [queued for queued in self._queue if queued.key != key]
        self._deadlines.clear((UNSTARTED, key))

    def reject_all(self, error_for: Callable[[str, str | None], BridleError]) -> None:
        """Settle everything; ``error_for`` makes the error of (operation, request id if sent)."""
        self.reject_callers(error_for)
        for request_id in list(self._ledger.pending):
            self.take(request_id)

    def reject_callers(self, error_for: Callable[[str, str | None], BridleError]) -> None:
        """Settle what callers wait for; what we asked on our own account keeps its deadline."""
        for request_id, request in list(self._ledger.pending.items()):
            if request.key is not None:
                self.take(request_id)
                self.reject(request.key, error_for(request.operation, request_id))
        self.reject_queue(lambda operation: error_for(operation, None))

    def reject_queue(self, error_for: Callable[[str], BridleError]) -> None:
        """Settle everything that waits; ``error_for`` makes the error of an operation."""
        for queued in self.take_queue():
            self.reject(queued.key, error_for(queued.operation))

    def reject(self, key: Hashable, error: BridleError) -> None:
        """Tell whoever waits under ``key``."""
        self._emit(Reject(key, error.with_process(self._process())))
