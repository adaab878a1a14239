"""Routing of MCP messages between the CLI and servers that live in the user's process.

The messages themselves are opaque here: JSON-RPC in, JSON-RPC out, matched by the control
request that carried them in. Only two things are read: ``id``, because an error has to carry it
back, and ``method``, because a cancellation is a notification and not a control frame.

The CLI opens these servers while it still works on our initialize request, so messages can come
before the session is confirmed. They wait in :class:`McpBuffer`. It is bounded and gives up the
oldest first, but never without an answer: the CLI hangs on a server that stays silent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from bridle._source import JsonObject
from bridle.tools import McpResponse

MAX_BUFFERED = 100
"""MCP messages kept while the session is not confirmed."""

BUFFER_PATIENCE = 1.0
"""Seconds the oldest message waits for the confirmation.

Should a CLI hold its initialize answer back until the servers have answered, waiting longer would
be a deadlock. Then the messages are routed as if the session were confirmed.
"""

METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603

CANCELLED = "notifications/cancelled"


class BufferedMessage(Struct, frozen=True):
    """One message that waits, with the control request that carries it."""

    request_id: str
    server: str
    message: JsonObject


class McpBuffer:
    """MCP messages that arrived before the session was confirmed, oldest first."""

    def __init__(self) -> None:
        self._messages: deque[BufferedMessage] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, request_id: str) -> bool:
        return any(message.request_id == request_id for message in self._messages)

    def push(self, message: BufferedMessage) -> BufferedMessage | None:
        """Keep ``message``; return the oldest one if it had to make room."""
        self._messages.append(message)
        return self._messages.popleft() if len(self._messages) > MAX_BUFFERED else None

    def withdraw(self, request_id: str) -> bool:
        """Forget the message of that request; True if it was here."""
        for message in self._messages:
            if message.request_id == request_id:
                self._messages.remove(message)
                return True
        return False

    def take_all(self) -> list[BufferedMessage]:
        """Remove and return everything, oldest first."""
        messages = list(self._messages)
        self._messages.clear()
        return messages


def error_response(message: Mapping[str, object], code: int, text: str) -> dict[str, object]:
    """A JSON-RPC error that answers ``message``, with its id as it was spelled."""
    error = {"code": code, "message": text}
    return {"jsonrpc": "2.0", "id": message.get("id"), "error": error}


def encode_answer(message: Mapping[str, object], result: object) -> dict[str, object]:
    """Turn what a handler returned into the JSON-RPC answer to ``message``.

    A mapping passes through untouched; an McpResponse without an id gets that of ``message``. For
    a notification any return value will do, since only the control request that carried it waits to
    be acknowledged.

    Raises:
        TypeError: ``message`` is a request and the handler returned nothing that answers it.
    """
    if isinstance(result, McpResponse):
        wire = result.to_wire()
        return wire if wire["id"] is not None else {**wire, "id": message.get("id")}
    if isinstance(result, Mapping):
        return dict(cast("Mapping[str, object]", result))
    if is_notification(message):
        return {"jsonrpc": "2.0", "result": {}}
    raise TypeError(
        f"an MCP handler must return a mapping or an McpResponse, not {type(result).__name__}"
    )


def is_notification(message: Mapping[str, object]) -> bool:
    """True if nobody waits for a JSON-RPC answer to ``message``."""
    return "id" not in message


def cancelled_id(message: Mapping[str, object]) -> object | None:
    """The JSON-RPC id a cancellation speaks of; None if ``message`` is not one."""
    if message.get("method") != CANCELLED:
        return None
    params = message.get("params")
    if not isinstance(params, Mapping):
        return None
    return cast("Mapping[str, object]", params).get("requestId")
