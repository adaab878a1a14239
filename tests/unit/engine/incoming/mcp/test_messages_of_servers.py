"""Messages for servers in the user's process: waiting, answering, failing."""

from __future__ import annotations

import pytest

from bridle._engine.incoming.mcp.messages_of_servers import (
    INTERNAL_ERROR,
    MAX_EARLY,
    METHOD_NOT_FOUND,
    EarlyMessages,
    McpMessage,
    cancelled_id,
    error_response,
    is_notification,
)

REQUEST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def buffered(number: int) -> McpMessage:
    return McpMessage(f"r{number}", "tools", {"id": number})


def filled(count: int) -> EarlyMessages:
    buffer = EarlyMessages()
    for number in range(count):
        assert buffer.push(buffered(number)) is None
    return buffer


def test_messages_wait_in_the_order_they_came() -> None:
    """R317, R319."""
    buffer = filled(3)
    assert len(buffer) == 3
    assert buffer.take_all() == [buffered(0), buffered(1), buffered(2)]
    assert (len(buffer), buffer.take_all()) == (0, [])


def test_one_message_too_many_drives_out_the_oldest() -> None:
    """R261, R317, R318."""
    buffer = filled(100)
    assert (MAX_EARLY, len(buffer)) == (100, 100)
    assert buffer.push(buffered(100)) == buffered(0)
    assert buffer.push(buffered(101)) == buffered(1)
    assert [message.request_id for message in buffer.take_all()] == [f"r{n}" for n in range(2, 102)]


def test_a_message_can_be_withdrawn() -> None:
    buffer = filled(3)
    assert (buffer.withdraw("r1"), buffer.withdraw("r1"), buffer.withdraw("r9")) == (
        True,
        False,
        False,
    )
    assert buffer.take_all() == [buffered(0), buffered(2)]


@pytest.mark.parametrize("spelling", [1, "1", None, 1.5], ids=repr)
def test_an_error_carries_the_id_as_it_was_spelled(spelling: object) -> None:
    """R209, R323, R325."""
    assert error_response({"id": spelling}, INTERNAL_ERROR, "no") == {
        "jsonrpc": "2.0",
        "id": spelling,
        "error": {"code": -32603, "message": "no"},
    }


@pytest.mark.requirement("S075")
def test_an_error_to_a_notification_has_no_id() -> None:
    assert error_response(NOTIFICATION, METHOD_NOT_FOUND, "no")["id"] is None
    assert METHOD_NOT_FOUND == -32601


@pytest.mark.parametrize(
    ("message", "expected"), [(REQUEST, False), (NOTIFICATION, True), ({"id": None}, False)]
)
def test_a_notification_is_what_has_no_id(message: dict[str, object], expected: bool) -> None:
    assert is_notification(message) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"method": "notifications/cancelled", "params": {"requestId": 4}}, 4),
        ({"method": "notifications/cancelled", "params": {"requestId": "4"}}, "4"),
        ({"method": "notifications/cancelled", "params": {}}, None),
        ({"method": "notifications/cancelled", "params": []}, None),
        ({"method": "notifications/cancelled"}, None),
        ({"method": "tools/call", "params": {"requestId": 4}}, None),
    ],
)
def test_a_cancellation_names_the_call_it_ends(
    message: dict[str, object], expected: object
) -> None:
    assert cancelled_id(message) == expected
