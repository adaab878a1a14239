"""Connect sessions to server objects of the ``mcp`` package, in memory.

Several sessions may share a server object. Each session has its own :class:`McpConversation`, which
holds the state of the connection, so no message gets from one session into another.

Servers are recognised by their methods. ``mcp`` is imported when the first conversation is created,
because only programs that use such a server need it.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Self

from bridle._engine.incoming.mcp.messages_of_servers import (
    CANCELLED,
    METHOD_NOT_FOUND,
    error_response,
    is_notification,
)
from bridle._records.raw_line import JsonObject
from bridle.errors import OptionsError

log = logging.getLogger("bridle.mcp")

_GRACE = 1.0
"""Seconds that a server has to end by itself, and again after it is cancelled."""

_INNER = ("_mcp_server", "_lowlevel_server")
"""Attributes in which high-level servers (FastMCP, MCPServer) keep the low-level server."""

Notify = Callable[[JsonObject], object]
"""Takes a notification of a server: progress, a log message, a changed list of tools."""


def protocol_server(server: object) -> Any | None:
    """Return the low-level MCP server: ``server`` itself, the one inside it, or None."""
    inner: list[object] = [getattr(server, name, None) for name in _INNER]
    for candidate in (server, *inner):
        abilities = ("run", "create_initialization_options")
        # Look at the class: a mock has every attribute, and is not a server.
        if all(callable(getattr(type(candidate), name, None)) for name in abilities):
            return candidate
    return None


class McpConversation:
    """The conversation of one session with a server object, on one event loop.

    It begins with the first message and runs in one task until :meth:`close`. Several requests may
    be open at once. If :meth:`handle` is cancelled, the request is cancelled in the server too.
    """

    def __init__(self, name: str, server: object, notify: Notify) -> None:
        """Prepare a conversation with ``server``, which is registered as ``name``.

        Raises:
            OptionsError: ``server`` is not a server object, or ``mcp`` cannot be imported.
        """
        field = f"mcp_servers[{name!r}]"
        self._server = protocol_server(server)
        if self._server is None:
            fix = "Pass a ToolServer, a handler of messages, or a server of the mcp package."
            raise OptionsError(
                field, f"must be an MCP server, got {type(server).__name__}", fix=fix
            )
        try:
            self._wrap = _wrapper()
        except ImportError as error:
            problem = f"needs the mcp package, which cannot be imported ({error})"
            fix = "Install it with `pip install bridle[mcp]`."
            raise OptionsError(field, problem, fix=fix) from error
        self._name = name
        self._notify = notify
        self._inbox = _Inbox()
        # The server gets new request ids, because a CLI that connects twice uses the same ids
        # again.
        self._numbers = itertools.count(1)
        self._waiting: dict[object, asyncio.Future[JsonObject]] = {}
        self._handshake = asyncio.Lock()
        self._greeting: JsonObject | None = None
        self._greeted = False
        self._task: asyncio.Task[None] | None = None
        self._ended: str | None = None

    async def handle(self, message: Mapping[str, object]) -> JsonObject | None:
        """Pass a message to the server and return its answer; None if the message needs no answer.

        Raises:
            RuntimeError: the server has stopped.
            ValueError: the message is not JSON-RPC.
        """
        method = message.get("method")
        if method == "initialize":
            return await self._greet(message)
        # A response is ignored, because no request of the server is passed to the CLI. So is a
        # cancellation: cancelling `handle` has passed it to the server already.
        if method is None or method == CANCELLED:
            return None
        if not is_notification(message):
            return await self._ask(message)
        repeated = method == "notifications/initialized" and self._greeted
        self._greeted = self._greeted or method == "notifications/initialized"
        if not repeated:
            self._tell(message)
        return None

    async def close(self) -> None:
        """End the conversation. Requests that wait for an answer fail with RuntimeError."""
        if self._task is None:
            self._ended = self._ended or "the session is over"
            return
        for number in self._waiting:  # some servers wait for open requests before they end
            self._cancel(number)
        self._inbox.end()
        await asyncio.wait([self._task], timeout=_GRACE)
        self._task.cancel()
        _, stuck = await asyncio.wait([self._task], timeout=_GRACE)
        if stuck:
            log.warning("MCP server %s does not end and is left behind", self._name)

    # -- to the server -----------------------------------------------------------------------------

    async def _greet(self, message: Mapping[str, object]) -> JsonObject:
        """Initialize the server once. Return the same answer if the CLI connects again.

        After a second initialize request, the server would reject requests until it is initialized
        again, also those of the first connection.
        """
        async with self._handshake:
            if self._greeting is None:
                answer = await self._ask(message)
                if "error" in answer:
                    return answer
                self._greeting = answer
        return {**self._greeting, "id": message.get("id")}

    async def _ask(self, message: Mapping[str, object]) -> JsonObject:
        number = next(self._numbers)
        self._tell({**message, "id": number})
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            return {**await answer, "id": message.get("id")}
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        finally:
            del self._waiting[number]

    def _cancel(self, number: object) -> None:
        if self._ended is None:
            self._tell({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": number}})

    def _tell(self, message: Mapping[str, object]) -> None:
        if self._ended is not None:
            raise RuntimeError(f"MCP server {self._name} does not answer: {self._ended}")
        if self._task is None:
            self._task = asyncio.create_task(self._serve(), name=f"MCP server {self._name}")
        self._inbox.put(self._wrap(dict(message)))

    # -- from the server ---------------------------------------------------------------------------

    async def _serve(self) -> None:
        server: Any = self._server
        reason = "the session is over"
        try:
            outbox = _Outbox(self._receive)
            await server.run(self._inbox, outbox, server.create_initialization_options())
        except Exception as error:
            reason = f"it stopped with {type(error).__name__}: {error}"
            log.exception("MCP server %s stopped", self._name)
        finally:
            self._ended = reason
            self._greeting = None
            for answer in self._waiting.values():
                if not answer.done():
                    problem = f"MCP server {self._name} did not answer: {reason}"
                    answer.set_exception(RuntimeError(problem))

    def _receive(self, message: JsonObject) -> None:
        if "method" not in message:
            answer = self._waiting.get(message.get("id"))
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif is_notification(message):
            self._notify(message)
        else:
            # The CLI declares no capability for requests. A server that sends one all the same gets
            # an error, so that it does not wait.
            text = "the client takes no requests"
            self._inbox.put(self._wrap(error_response(message, METHOD_NOT_FOUND, text)))


@functools.cache
def _wrapper() -> Callable[[JsonObject], object]:
    """Return a function that converts a JSON-RPC message to the type that a server reads."""
    # Imported by name: the types of the two major versions differ, but these names are the same.
    message_type = importlib.import_module("mcp.types").JSONRPCMessage
    session_message = importlib.import_module("mcp.shared.message").SessionMessage
    validate = importlib.import_module("pydantic").TypeAdapter(message_type).validate_python

    def wrap(message: JsonObject) -> object:
        return session_message(validate(message))

    return wrap


class _Stream:
    """The methods that a server expects of both its streams."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        pass


class _Inbox(_Stream):
    """The stream of messages that the server reads."""

    _END = object()

    def __init__(self) -> None:
        self._messages: asyncio.Queue[object] = asyncio.Queue()

    def put(self, message: object) -> None:
        self._messages.put_nowait(message)

    def end(self) -> None:
        self._messages.put_nowait(self._END)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> object:
        message = await self._messages.get()
        if message is self._END:
            self.end()  # a further read must end too
            raise StopAsyncIteration
        return message


class _Outbox(_Stream):
    """The stream that the server writes to. Each message is passed on at once, as plain JSON."""

    def __init__(self, receive: Callable[[JsonObject], None]) -> None:
        self._receive = receive

    async def send(self, item: Any) -> None:
        self._receive(item.message.model_dump(mode="json", by_alias=True, exclude_unset=True))
