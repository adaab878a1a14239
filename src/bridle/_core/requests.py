"""What we ask of the CLI: queued until the session is confirmed, then in flight, then settled.

Each caller's key is resolved or rejected exactly once. A key leaves this table with that, so
nothing that happens later can settle it again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from msgspec import Struct

from bridle._core.actions import Action, Reject, Resolve, Warn, Write
from bridle._core.correlation import MAX_PENDING_REQUESTS, Deadlines, Ledger, Request
from bridle._core.wire import Unencodable, encode_request
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


class QueuedPrompt(Struct, frozen=True):
    """A prompt that waits for the session."""

    key: Hashable
    uuid: str
    line: bytes
    operation: str = SEND_USER_MESSAGE


Queued = Request | QueuedPrompt


class Requests:
    """Our requests.

    ``process`` tells what errors are to carry about the CLI. ``on_interrupt`` is told of each
    interrupt that goes out. ``patience`` is for how many seconds a prompt waits for a session that
    nobody starts; a request has its own timeout.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        emit: Callable[[Action], None],
        process: Callable[[], ProcessInfo],
        *,
        on_interrupt: Callable[[], None],
        patience: float,
    ) -> None:
        self._deadlines = deadlines
        self._emit = emit
        self._process = process
        self._on_interrupt = on_interrupt
        self._patience = patience
        self._has_begun = False
        self._ledger = Ledger()
        self._queue: list[Queued] = []
        #: Which prompt each request to withdraw one was about.
        self.withdrawals: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._ledger.pending)

    # -- out ---------------------------------------------------------------------------------------

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
                limit = queued.timeout if isinstance(queued, Request) else self._patience
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
