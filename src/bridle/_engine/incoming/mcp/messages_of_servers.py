"""Represent JSON-RPC messages for MCP servers in the user's process, and queue early ones.

Only two fields of a message are read here: ``id``, because an error has to carry it back, and
``method``, because a cancellation is a notification and not a control frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from bridle._records.raw_line import JsonObject

MAX_EARLY = 100
"""MCP messages that are kept while the session is not confirmed."""

EARLY_TIMEOUT = 1.0
"""Seconds that the oldest message waits for the session to be confirmed.

A CLI may delay its response to initialize until the servers have answered. So the messages are
passed on after this time even if the session is not confirmed.
"""

METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603

CANCELLED = "notifications/cancelled"


class McpMessage(Struct, frozen=True):
    """A message for a server, with the id of the control request that carries it."""

    request_id: str
    server: str
    message: JsonObject


class EarlyMessages:
    """MCP messages that arrived before the session was confirmed, oldest first.

    Their number is bounded. A message that is pushed out is answered with an error, because the CLI
    would wait for an answer without limit.
    """

    def __init__(self) -> None:
        self._messages: deque[McpMessage] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, request_id: str) -> bool:
        return any(message.request_id == request_id for message in self._messages)

    def push(self, message: McpMessage) -> McpMessage | None:
        """Keep ``message``. Return the oldest message if it was pushed out."""
        self._messages.append(message)
        return self._messages.popleft() if len(self._messages) > MAX_EARLY else None

    def withdraw(self, request_id: str) -> bool:
        """Remove the message of that request. Return True if it was found."""
        for message in self._messages:
            if message.request_id == request_id:
                self._messages.remove(message)
                return True
        return False

    def take_all(self) -> list[McpMessage]:
        """Remove and return all messages, oldest first."""
        messages = list(self._messages)
        self._messages.clear()
        return messages


def error_response(message: Mapping[str, object], code: int, text: str) -> dict[str, object]:
    """Return a JSON-RPC error that answers ``message``, with its id unchanged."""
    error = {"code": code, "message": text}
    return {"jsonrpc": "2.0", "id": message.get("id"), "error": error}


def acknowledge() -> dict[str, object]:
    """Return the answer to a notification. Only the control request that carried it needs one."""
    return {"jsonrpc": "2.0", "result": {}}


def is_notification(message: Mapping[str, object]) -> bool:
    """Return True if ``message`` needs no JSON-RPC answer."""
    return "id" not in message


def cancelled_id(message: Mapping[str, object]) -> object | None:
    """Return the JSON-RPC id that a cancellation names. None if ``message`` is not one."""
    if message.get("method") != CANCELLED:
        return None
    params = message.get("params")
    if not isinstance(params, Mapping):
        return None
    return cast("Mapping[str, object]", params).get("requestId")
