"""What we ask of the CLI: queued until the session is confirmed, then in flight, then settled.

Each caller's key is resolved or rejected exactly once. A key leaves this table with that, so
nothing that happens later can settle it again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from msgspec import Struct

from bridle._core.actions import Action, Reject, Resolve, Warn, Write
from bridle._core.correlation import MAX_PENDING_REQUESTS, Deadlines, Ledger, PendingRequest
from bridle._core.wire import Unencodable, encode_request
from bridle.controls import ControlFailure, ControlSuccess
from bridle.errors import (
    BridleError,
    ControlRejected,
    ControlTimeout,
    InitQueueOverflow,
    OptionsError,
    ProcessInfo,
    TooManyPendingRequests,
)
from bridle.events import WarningKind

MAX_QUEUED = 16
"""Operations that may wait for the session to be confirmed; the next one is refused."""

REQUEST = "request"
"""The kind of deadline token this table sets."""

INITIALIZE = "initialize"
SEND_USER_MESSAGE = "send_user_message"
CANCEL_PROMPT = "cancel_async_message"

_REMEMBERED_WITHDRAWALS = 64
"""Requests to withdraw a prompt whose answer is still understood after its caller has left."""


class QueuedRequest(Struct, frozen=True):
    """A control operation that waits for the session."""

    key: Hashable
    operation: str
    fields: Mapping[str, object]
    timeout: float


class QueuedPrompt(Struct, frozen=True):
    """A prompt that waits for the session."""

    key: Hashable
    uuid: str
    line: bytes
    operation: str = SEND_USER_MESSAGE


Queued = QueuedRequest | QueuedPrompt


class Requests:
    """Our requests. ``process`` tells what errors are to carry about the CLI."""

    def __init__(
        self,
        deadlines: Deadlines,
        emit: Callable[[Action], None],
        process: Callable[[], ProcessInfo],
    ) -> None:
        self._deadlines = deadlines
        self._emit = emit
        self._process = process
        self._ledger = Ledger()
        self._queue: list[Queued] = []
        # Which prompt each request to withdraw one was about.
        self._withdrawals: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._ledger)

    # -- out ---------------------------------------------------------------------------------------

    def enqueue(self, queued: Queued) -> None:
        """Keep an operation until the session is confirmed, if there is room."""
        if len(self._queue) < MAX_QUEUED:
            self._queue.append(queued)
            return
        detail = f"{queued.operation}: {MAX_QUEUED} operations are queued"
        self._emit(Warn(WarningKind.LIMIT_REACHED, detail))
        self.reject(queued.key, InitQueueOverflow(queued.operation, MAX_QUEUED))

    def take_queue(self) -> list[Queued]:
        """Remove and return what waits for the session, in order."""
        queue, self._queue = self._queue, []
        return queue

    def ask(self, request: QueuedRequest, now: float) -> bool:
        """Send a caller's request, within the limit of what may be pending; False: it was not."""
        operation = request.operation
        if self._ledger.is_full:
            detail = f"{operation}: {MAX_PENDING_REQUESTS} requests are pending"
            self._emit(Warn(WarningKind.LIMIT_REACHED, detail))
            self.reject(request.key, TooManyPendingRequests(operation, MAX_PENDING_REQUESTS))
            return False
        try:
            line = encode_request(self._ledger.next_id, operation, request.fields)
        except Unencodable as problem:
            self.reject(request.key, OptionsError(operation, str(problem), fix="Use JSON values."))
            return False
        self._issue(request, request.key, line, now)
        return True

    def ask_for_ourselves(
        self, operation: str, fields: Mapping[str, object], timeout: float, now: float
    ) -> None:
        """Send a request nobody waits for. No limit holds it up: the way out may depend on it."""
        request = QueuedRequest(None, operation, fields, timeout)
        line = encode_request(self._ledger.next_id, operation, fields)
        self._issue(request, None, line, now)

    def _issue(self, request: QueuedRequest, key: Hashable | None, line: bytes, now: float) -> None:
        entry = self._ledger.issue(request.operation, key, request.timeout)
        if request.operation == CANCEL_PROMPT:
            self._withdrawals[entry.request_id] = str(request.fields["message_uuid"])
            if len(self._withdrawals) > _REMEMBERED_WITHDRAWALS:
                del self._withdrawals[next(iter(self._withdrawals))]
        self._deadlines.set((REQUEST, entry.request_id), now + request.timeout)
        self._emit(Write(line))

    # -- in ----------------------------------------------------------------------------------------

    def withdrawn_prompt(
        self, request_id: str, response: ControlSuccess | ControlFailure
    ) -> str | None:
        """The uuid of the prompt that this answer says was taken out of the CLI's queue, if any.

        Newer CLIs say so in a line of its own as well; older ones only here, so it counts even
        when nobody waits for the answer any more.
        """
        uuid = self._withdrawals.pop(request_id, None)
        if (
            isinstance(response, ControlFailure)
            or (response.payload or {}).get("cancelled") is not True
        ):
            return None
        return uuid

    def answer(
        self, request_id: str, response: ControlSuccess | ControlFailure
    ) -> PendingRequest | None:
        """The CLI answers. Tell whoever waits; None if no such request is pending."""
        entry = self.take(request_id)
        if entry is None:
            return None
        if isinstance(response, ControlFailure):
            words = (response.error, response.error_code)
            self.fail(entry, ControlRejected(entry.operation, request_id, *words))
        elif entry.key is not None:
            self._emit(Resolve(entry.key, response.payload))
        return entry

    def report_stranger(self, request_id: str) -> None:
        """An answer nobody waits for came: a late one, or one to no question of ours."""
        late = self._ledger.was_issued(request_id)
        kind = WarningKind.LATE_RESPONSE if late else WarningKind.ORPHAN_RESPONSE
        self._emit(Warn(kind, f"request id {request_id!r:.80}"))

    def take(self, request_id: str) -> PendingRequest | None:
        """Remove and return a pending request, whatever has become of it."""
        entry = self._ledger.take(request_id)
        if entry is not None:
            self._deadlines.clear((REQUEST, request_id))
        return entry

    def fail(self, entry: PendingRequest, error: BridleError) -> None:
        """Tell whoever waits for a request that was taken."""
        if entry.key is not None:
            self.reject(entry.key, error)

    def time_out(self, entry: PendingRequest) -> None:
        """Tell whoever waits for a request that was taken because its time is up."""
        self.fail(entry, ControlTimeout(entry.operation, entry.request_id, entry.timeout))

    def cancel(self, key: Hashable) -> None:
        """Nobody waits for ``key`` any more."""
        entry = self._ledger.take_key(key)
        if entry is not None:
            self._deadlines.clear((REQUEST, entry.request_id))
        self._queue = [queued for queued in self._queue if queued.key != key]

    def reject_all(self, error_for: Callable[[str, str | None], BridleError]) -> None:
        """Settle everything; ``error_for`` makes the error of (operation, request id if sent)."""
        self.reject_callers(error_for)
        for entry in self._ledger.take_all():
            self._deadlines.clear((REQUEST, entry.request_id))

    def reject_callers(self, error_for: Callable[[str, str | None], BridleError]) -> None:
        """Settle what callers wait for; what we asked on our own account keeps its deadline."""
        for entry in self._ledger.take_callers():
            self._deadlines.clear((REQUEST, entry.request_id))
            self.fail(entry, error_for(entry.operation, entry.request_id))
        self.reject_queue(lambda operation: error_for(operation, None))

    def reject_queue(self, error_for: Callable[[str], BridleError]) -> None:
        """Settle everything that waits; ``error_for`` makes the error of an operation."""
        for queued in self.take_queue():
            self.reject(queued.key, error_for(queued.operation))

    def reject(self, key: Hashable, error: BridleError) -> None:
        """Tell whoever waits under ``key``."""
        self._emit(Reject(key, error.with_process(self._process())))
