"""Our requests: queued, in flight, and settled exactly once."""

from __future__ import annotations

import json

import pytest
from tests.support.cli import only, warned

from bridle import BidirOptions, CliOptions, SdkOptions
from bridle._engine.actions import Action, Reject, Resolve, Warn, Write
from bridle._engine.deadlines import Deadlines
from bridle._engine.incoming.mcp.messages_of_servers import MAX_EARLY
from bridle._engine.incoming.open_requests import MAX_OPEN_REQUESTS
from bridle._engine.outgoing.requests import (
    MAX_PENDING_REQUESTS,
    MAX_QUEUED,
    REQUEST,
    Outgoing,
    Queued,
    QueuedPrompt,
    Request,
)
from bridle._engine.session_state import SessionState
from bridle.controls import ControlFailure, ControlSuccess
from bridle.errors import (
    ControlRejected,
    ControlTimeout,
    InitQueueOverflow,
    OptionsError,
    ProcessInfo,
    SessionNotInitialized,
    SessionStopped,
    TooManyPendingRequests,
)
from bridle.events import WarningKind

PROCESS = ProcessInfo(cli_version="2.1.325")
DONE = ControlSuccess(payload={"ok": 1})


class Desk:
    """A table of requests with what it emits."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.actions: list[Action] = []
        state = SessionState()
        state.process = PROCESS
        self.requests = Outgoing(self.deadlines, self.actions.append, state, timeout=30.0)
        self.requests.begin()

    def taken(self) -> list[Action]:
        actions, self.actions[:] = list(self.actions), []
        return actions

    def ask(self, key: str, operation: str = "interrupt", timeout: float = 30.0) -> None:
        self.requests.ask(Request(key, operation, {}, timeout), 100.0)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def queued(key: str) -> Request:
    return Request(key, "interrupt", {}, 30.0)


# ------------------------------------------------------------------------- waiting for the session


def test_operations_wait_in_order_and_leave_together(desk: Desk) -> None:
    """R251, R253."""
    waiting: list[Queued] = [queued("a"), QueuedPrompt("b", "u1", b"{}\n"), queued("c")]
    for one in waiting:
        desk.requests.enqueue(one, 0.0)
    assert (desk.requests.take_queue(), desk.requests.take_queue()) == (waiting, [])
    assert desk.actions == []


def test_the_seventeenth_operation_is_refused_at_once(desk: Desk) -> None:
    """R251, R252, R258, R259: the text names the limit."""
    assert MAX_QUEUED == 16
    for number in range(17):
        desk.requests.enqueue(queued(f"k{number}"), 0.0)
    warning, refusal = desk.taken()
    assert warning == Warn(WarningKind.LIMIT_REACHED, "interrupt: 16 operations are queued")
    assert isinstance(refusal, Reject)
    assert isinstance(refusal.error, InitQueueOverflow)
    assert (refusal.key, refusal.error.limit, refusal.error.process) == ("k16", 16, PROCESS)
    assert "16" in str(refusal.error)
    assert len(desk.requests.take_queue()) == 16


def test_what_waits_is_rejected_in_order(desk: Desk) -> None:
    """R255, R361."""
    desk.requests.enqueue(queued("a"), 0.0)
    desk.requests.enqueue(QueuedPrompt("b", "u1", b"{}\n"), 0.0)
    desk.requests.reject_queue(lambda operation: SessionNotInitialized(operation, "no"))
    rejections = only(Reject, desk.taken())
    assert [one.key for one in rejections] == ["a", "b"]
    assert [one.error.args[0].split(":")[0] for one in rejections] == [
        "interrupt",
        "send_user_message",
    ]
    assert desk.requests.take_queue() == []


def test_only_the_queued_operation_that_timed_out_is_rejected(desk: Desk) -> None:
    desk.requests.enqueue(Request("a", "interrupt", {}, 30.0), 0.0)
    desk.requests.enqueue(Request("b", "set_model", {}, 30.0), 0.0)
    desk.requests.give_up("b")
    [refusal] = only(Reject, desk.taken())
    assert refusal.key == "b"
    assert isinstance(refusal.error, SessionNotInitialized)
    assert refusal.error.operation == "set_model"
    assert [waiting.key for waiting in desk.requests.take_queue()] == ["a"]


# ------------------------------------------------------------------------- in flight


def test_a_request_is_written_with_its_id_and_its_deadline(desk: Desk) -> None:
    """R179, R340."""
    desk.requests.ask(Request("k", "set_model", {"model": "opus"}, 5.0), 100.0)
    (write,) = only(Write, desk.taken())
    assert write.data.endswith(b"\n")
    assert json.loads(write.data) == {
        "type": "control_request",
        "request_id": "req_0",
        "request": {"subtype": "set_model", "model": "opus"},
    }
    assert (desk.deadlines.next, len(desk.requests)) == (105.0, 1)


def test_the_sixty_fifth_request_is_refused_and_nothing_is_written(desk: Desk) -> None:
    """R256, R258, R259."""
    for number in range(64):
        desk.ask(f"k{number}")
    desk.taken()
    desk.ask("one too many")
    warning, refusal = desk.taken()
    assert warning == Warn(WarningKind.LIMIT_REACHED, "interrupt: 64 requests are pending")
    assert isinstance(refusal, Reject)
    assert isinstance(refusal.error, TooManyPendingRequests)
    assert (refusal.key, refusal.error.limit) == ("one too many", 64)
    assert "64" in str(refusal.error)


def test_a_request_of_our_own_is_not_held_up_by_the_limit(desk: Desk) -> None:
    for number in range(64):
        desk.ask(f"k{number}")
    desk.taken()
    desk.requests.ask(Request(None, "interrupt", {"cancel_queued": True}, 30.0), 100.0)
    (write,) = desk.taken()
    assert isinstance(write, Write)
    assert json.loads(write.data)["request_id"] == "req_64"
    assert desk.requests.answer("req_64", ControlFailure("no")) is not None
    assert desk.taken() == []


def test_fields_json_cannot_carry_are_refused_without_using_up_an_id(desk: Desk) -> None:
    desk.requests.ask(Request("k", "custom", {"x": object()}, 5.0), 100.0)
    (refusal,) = only(Reject, desk.taken())
    assert isinstance(refusal.error, OptionsError)
    assert refusal.error.field == "custom"
    desk.ask("next")
    (write,) = only(Write, desk.taken())
    assert json.loads(write.data)["request_id"] == "req_0"


def test_asking_says_whether_the_request_was_sent(desk: Desk) -> None:
    assert desk.requests.ask(Request("a", "interrupt", {}, 5.0), 100.0)
    assert not desk.requests.ask(Request("b", "interrupt", {"x": object()}, 5.0), 100.0)


# ------------------------------------------------------------------------- settled


def test_a_success_resolves_with_whatever_payload_came(desk: Desk) -> None:
    """R223, R341, R349, R426."""
    desk.ask("a")
    desk.ask("b")
    desk.taken()
    desk.requests.answer("req_1", ControlSuccess())
    desk.requests.answer("req_0", DONE)
    assert desk.taken() == [Resolve("b", None), Resolve("a", {"ok": 1})]
    assert (desk.deadlines.next, len(desk.requests)) == (None, 0)


def test_an_error_answer_rejects_with_the_clis_words(desk: Desk) -> None:
    """R347, R391, R401, R426."""
    desk.ask("a", "rewind_files")
    desk.requests.answer("req_0", ControlFailure("no such message", error_code="not_found"))
    (refusal,) = only(Reject, desk.taken())
    assert isinstance(refusal.error, ControlRejected)
    assert (refusal.error.operation, refusal.error.request_id) == ("rewind_files", "req_0")
    assert (refusal.error.message, refusal.error.error_code) == ("no such message", "not_found")
    assert refusal.error.process == PROCESS


def test_a_timeout_names_the_operation_and_the_request(desk: Desk) -> None:
    """R342, R391, R426."""
    desk.ask("a", timeout=5.0)
    assert list(desk.deadlines.pop_expired(105.0)) == [(REQUEST, "req_0")]
    entry = desk.requests.take("req_0")
    assert entry is not None
    desk.requests.time_out(entry, "req_0")
    (refusal,) = only(Reject, desk.taken())
    assert isinstance(refusal.error, ControlTimeout)
    assert (refusal.error.operation, refusal.error.request_id, refusal.error.timeout) == (
        "interrupt",
        "req_0",
        5.0,
    )


@pytest.mark.parametrize(
    ("request_id", "kind"),
    [("req_0", WarningKind.LATE_RESPONSE), ("req_7", WarningKind.ORPHAN_RESPONSE)],
)
def test_a_response_without_a_waiter_is_reported(
    desk: Desk, request_id: str, kind: WarningKind
) -> None:
    """R225, R226, R342, C53."""
    desk.ask("a")
    desk.requests.take("req_0")
    desk.taken()
    assert desk.requests.answer(request_id, DONE) is None
    desk.requests.answer_late(request_id)
    assert desk.taken() == [Warn(kind, f"request id '{request_id}'")]
    assert (kind.level == "debug") == (kind is WarningKind.LATE_RESPONSE)


def test_a_caller_can_give_up_in_flight_or_in_the_queue(desk: Desk) -> None:
    """R344, R426."""
    desk.ask("a")
    desk.requests.enqueue(queued("b"), 0.0)
    desk.requests.enqueue(queued("c"), 0.0)
    desk.taken()
    for key in ("a", "b", "nobody"):
        desk.requests.cancel(key)
    assert (len(desk.requests), desk.deadlines.next) == (0, None)
    assert desk.requests.take_queue() == [queued("c")]
    assert (desk.requests.answer("req_0", DONE), desk.taken()) == (None, [])


def test_the_end_of_the_session_settles_everything_in_flight(desk: Desk) -> None:
    """R343, R345, R360, R361."""
    desk.ask("a")
    desk.requests.ask(Request(None, "interrupt", {}, 30.0), 100.0)
    desk.ask("b", "set_model")
    desk.taken()
    desk.requests.enqueue(queued("c"), 0.0)
    desk.requests.reject_all(SessionStopped)
    rejections = only(Reject, desk.taken())
    assert [(one.key, type(one.error)) for one in rejections] == [
        ("a", SessionStopped),
        ("b", SessionStopped),
        ("c", SessionStopped),
    ]
    assert [repr(one.error) for one in rejections] == [
        "SessionStopped(operation='interrupt', request_id='req_0', cause='')",
        "SessionStopped(operation='set_model', request_id='req_2', cause='')",
        "SessionStopped(operation='interrupt', request_id=None, cause='')",
    ]
    assert (desk.deadlines.next, len(desk.requests)) == (None, 0)
    assert warned(desk.taken()) == []


# ------------------------------------------------------------------------- prompts taken back


def withdraw(desk: Desk, uuid: str) -> None:
    fields = {"message_uuid": uuid}
    desk.requests.ask(Request(f"k {uuid}", "cancel_async_message", fields, 5.0), 100.0)


YES = ControlSuccess(payload={"cancelled": True})


@pytest.mark.parametrize(
    ("response", "uuid"),
    [
        (YES, "u1"),
        (ControlSuccess(payload={"cancelled": False}), None),
        (ControlSuccess(payload={"cancelled": 1}), None),
        (ControlSuccess(), None),
        (ControlFailure("no"), None),
    ],
    ids=["yes", "no", "odd", "nothing", "refused"],
)
def test_only_a_plain_yes_means_that_a_prompt_was_taken_back(
    desk: Desk, response: ControlSuccess | ControlFailure, uuid: str | None
) -> None:
    withdraw(desk, "u1")
    assert desk.requests.withdrawn_prompt("req_0", response) == uuid
    assert desk.requests.withdrawn_prompt("req_0", response) is None


def test_a_yes_to_another_operation_means_nothing(desk: Desk) -> None:
    desk.ask("a")
    assert desk.requests.withdrawn_prompt("req_0", YES) is None


def test_a_late_success_counts_without_a_waiter(desk: Desk) -> None:
    withdraw(desk, "u1")
    desk.requests.cancel("k u1")
    assert desk.requests.withdrawn_prompt("req_0", YES) == "u1"


def test_of_very_many_withdrawals_the_oldest_are_forgotten(desk: Desk) -> None:
    for number in range(1000):
        withdraw(desk, f"u{number}")
        desk.requests.cancel(f"k u{number}")
    assert desk.requests.withdrawn_prompt("req_0", YES) is None
    assert desk.requests.withdrawn_prompt("req_999", YES) == "u999"


def test_the_limits_are_constants_that_no_option_changes() -> None:
    """R091, R259: 16 queued, 64 pending, 4,096 open requests of the CLI, 100 early messages."""
    limits = (MAX_QUEUED, MAX_PENDING_REQUESTS, MAX_OPEN_REQUESTS, MAX_EARLY)
    assert limits == (16, 64, 4096, 100)
    names = {*CliOptions.fields, *SdkOptions.fields, *BidirOptions.fields}
    assert not [
        name for name in names if "pending" in name or "queue" in name or "capacity" in name
    ]
