"""Real server objects of the ``mcp`` package, spoken to in memory.

A server object describes; a conversation with it has state. So every session of Bridle has its own
:class:`McpConversation`, however many sessions share the object, and nothing that is said in one
can be heard in another.

Servers are recognised by what they can do, and ``mcp`` is imported when the first conversation is
made: whoever brings such an object has the package, and nobody else pays for it.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Self

from bridle._core.incoming.mcp_messages import (
    CANCELLED,
    METHOD_NOT_FOUND,
    error_response,
    is_notification,
)
from bridle._raw_line import JsonObject
from bridle.errors import OptionsError

log = logging.getLogger("bridle.mcp")

_GRACE = 1.0
"""Seconds a server has to end by itself when it is closed, and again when it is cancelled."""

_INNER = ("_mcp_server", "_lowlevel_server")
"""Where the high-level servers (FastMCP, MCPServer) keep the one that speaks the protocol."""

Notify = Callable[[JsonObject], object]
"""Takes what a server says unasked: progress, log lines, a changed list of tools."""


def protocol_server(server: object) -> Any | None:
    """The object that speaks MCP: ``server`` itself or the one inside it; None if it is neither."""
    inner: list[object] = [getattr(server, name, None) for name in _INNER]
    for candidate in (server, *inner):
        abilities = ("run", "create_initialization_options")
        # Those of its class: an object that answers to every name, a mock say, is none.
        if all(callable(getattr(type(candidate), name, None)) for name in abilities):
            return candidate
    return None


class McpConversation:
    """One session's conversation with a server object, on one event loop.

    It begins with the first message and runs as one task until :meth:`close`. Requests overlap as
    the server likes. One whose :meth:`handle` is cancelled is cancelled in the server as well.
    """

    def __init__(self, name: str, server: object, notify: Notify) -> None:
        """Get ready to talk to ``server``, which is registered as ``name``.

        Raises:
            OptionsError: It is no server object, or the ``mcp`` package cannot be imported.
        """
        field = f"mcp_servers[{name!r}]"
        self._server = protocol_server(server)
        if self._server is None:
            fix = "Give a ToolServer, a handler of messages, or a server of the mcp package."
            raise OptionsError(field, f"is of type {type(server).__name__}", fix=fix)
        try:
            self._wrap = _wrapper()
        except ImportError as error:
            problem = f"needs the mcp package, which cannot be imported ({error})"
            fix = "Install it with `pip install bridle[mcp]`."
            raise OptionsError(field, problem, fix=fix) from error
        self._name = name
        self._notify = notify
        self._inbox = _Inbox()
        # Requests are numbered anew: a CLI that connects twice uses its ids twice.
        self._numbers = itertools.count(1)
        self._waiting: dict[object, asyncio.Future[JsonObject]] = {}
        self._handshake = asyncio.Lock()
        self._greeting: JsonObject | None = None
        self._greeted = False
        self._task: asyncio.Task[None] | None = None
        self._ended: str | None = None

    async def handle(self, message: Mapping[str, object]) -> JsonObject | None:
        """Give the server a message and return its answer; None if there is none to wait for.

        Raises:
            RuntimeError: The server has stopped.
            ValueError: The message is no JSON-RPC.
        """
        method = message.get("method")
        if method == "initialize":
            return await self._greet(message)
        # An answer, though no question was ever passed on; or news of a cancellation, which the
        # server has heard already from the call that was cancelled.
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
        """End the conversation. Whoever still waits for an answer gets an error."""
        if self._task is None:
            self._ended = self._ended or "the session is over"
            return
        for number in self._waiting:  # some servers would wait for these before they end
            self._cancel(number)
        self._inbox.end()
        await asyncio.wait([self._task], timeout=_GRACE)
        self._task.cancel()
        _, stuck = await asyncio.wait([self._task], timeout=_GRACE)
        if stuck:
            log.warning("MCP server %s does not end and is left behind", self._name)

    # -- to the server -----------------------------------------------------------------------------

    async def _greet(self, message: Mapping[str, object]) -> JsonObject:
        """Introduce the CLI once; when it connects again it gets the first answer again.

        A second introduction would take the server back to where it accepts no requests, while
        those of the first connection are still on their way.
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
            # The CLI says in its introduction that it takes no requests; a server that asks all
            # the same must not be left waiting.
            text = "the client takes no requests"
            self._inbox.put(self._wrap(error_response(message, METHOD_NOT_FOUND, text)))


@functools.cache
def _wrapper() -> Callable[[JsonObject], object]:
    """A function that makes of a JSON-RPC message what a server reads."""
    # By name: the two major versions of the package differ in types, and agree on this.
    message_type = importlib.import_module("mcp.types").JSONRPCMessage
    session_message = importlib.import_module("mcp.shared.message").SessionMessage
    validate = importlib.import_module("pydantic").TypeAdapter(message_type).validate_python

    def wrap(message: JsonObject) -> object:
        return session_message(validate(message))

    return wrap


class _Stream:
    """What both ends of a conversation have to be: something to enter, leave and close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        pass


class _Inbox(_Stream):
    """What the server reads, until the end."""

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
            self.end()  # for whoever asks again
            raise StopAsyncIteration
        return message


class _Outbox(_Stream):
    """What the server writes: handed over as plain JSON, at once."""

    def __init__(self, receive: Callable[[JsonObject], None]) -> None:
        self._receive = receive

    async def send(self, item: Any) -> None:
        self._receive(item.message.model_dump(mode="json", by_alias=True, exclude_unset=True))
