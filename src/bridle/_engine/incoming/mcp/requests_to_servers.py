"""Handle messages for MCP servers in the user's process: tool servers and raw handlers.

The CLI opens these servers while it still works on our initialize request, so messages can arrive
before the session is confirmed. They wait in :class:`EarlyMessages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from bridle._engine.actions import Call, CallKind
from bridle._engine.deadlines import Deadlines
from bridle._engine.incoming.answers import InvalidReturn
from bridle._engine.incoming.mcp import messages_of_servers as mcp
from bridle._engine.incoming.mcp import tool_server
from bridle._engine.incoming.open_requests import CLOSING, IncomingRequest, OpenRequests
from bridle._engine.incoming.waiting_call import Approvals
from bridle._records.raw_line import JsonObject
from bridle.controls import McpMessageRequest
from bridle.events import WarningKind
from bridle.tools import ToolServer

# Bound to local names because enum attribute access is slow.
_MCP = CallKind.MCP
_TOOL = CallKind.TOOL

_NOT_APPROVED = "the call is not approved"

EARLY = "early"
"""The kind of the deadline of messages that wait for the session to be confirmed."""


class McpHandler:
    """Handle messages for the MCP servers, given by name.

    ``approvals`` knows the call that the session resumes.
    """

    failed_kind = WarningKind.MCP_FAILED
    late_kind = WarningKind.MCP_FAILED

    def __init__(
        self,
        table: OpenRequests,
        handlers: Mapping[str, object],
        tool_servers: Mapping[str, ToolServer],
        deadlines: Deadlines,
        approvals: Approvals,
    ) -> None:
        self._table = table
        self._approvals = approvals
        self._handlers = dict(handlers)
        self._tool_servers = dict(tool_servers)
        self._deadlines = deadlines
        #: Messages that arrived before the session was confirmed. None once it is.
        self.early: mcp.EarlyMessages | None = mcp.EarlyMessages()

    def set_server(self, name: str, handler: object | None) -> None:
        """Register a server. None removes it, cancels its calls and answers them with an error."""
        self._handlers.pop(name, None)
        self._tool_servers.pop(name, None)
        if isinstance(handler, ToolServer):
            self._tool_servers[name] = handler
        elif handler is not None:
            self._handlers[name] = handler
        else:
            for call in list(self._table.open.values()):
                waiting = call.subject
                if type(waiting) is mcp.McpMessage and waiting.server == name:
                    self._table.cancel(call)
                    self._reject(waiting, "the server was removed")

    def handle(self, request: IncomingRequest) -> None:
        """Pass a message to its server, or keep it until the session is confirmed."""
        body: McpMessageRequest = request.body
        if not (body.server_name and body.message) and self._table.reject_incomplete(
            request, "server_name", "message"
        ):
            return
        message = mcp.McpMessage(request.id, body.server_name, body.message)
        if self.early is None:
            self._pass_on(message, request.now)
            return
        if not len(self.early):
            self._deadlines.set((EARLY, None), request.now + mcp.EARLY_TIMEOUT)
        dropped = self.early.push(message)
        if dropped is not None:
            detail = f"more than {mcp.MAX_EARLY} messages before the session was confirmed"
            self._table.warn(WarningKind.MCP_BUFFER_OVERFLOW, detail)
            self._reject(dropped, detail)

    def confirm(self, now: float) -> None:
        """Pass on the messages that waited for the session, oldest first."""
        if self.early is None:
            return
        waiting, self.early = self.early.take_all(), None
        self._deadlines.clear((EARLY, None))
        for message in waiting:
            self._pass_on(message, now)

    def withdraw(self, request_id: str) -> None:
        """Remove a message that waits for the session."""
        if self.early is not None:
            self.early.withdraw(request_id)

    def drop_all(self) -> None:
        """Remove all messages that wait for the session."""
        self.early = None
        self._deadlines.clear((EARLY, None))

    def finished(self, call: Call, result: Any, now: float) -> None:
        """Answer with the return value of the tool or the handler."""
        if type(result) is not InvalidReturn:
            self._table.answer(call.request_id, result)
            return
        kind, detail = result.kind or self.failed_kind, f"{call.who}: {result.problem}"
        told = "the result of the tool cannot be sent"
        self._fail(call, kind, detail, told, "the server's answer is no JSON-RPC message")

    def failed(self, call: Call, kind: str, detail: str, now: float, error: str = "") -> None:
        """Answer for the tool or the handler. The model reads the class of an exception."""
        told = error or f"the tool did not answer within {call.timeout or 0:g} s"
        self._fail(call, kind, detail, told)

    def uncallable(self, call: Call, limit: str, now: float) -> None:
        """Answer for the tool or the handler. The warning was already given."""
        kind, detail = WarningKind.LIMIT_REACHED, f"{call.label}: {limit}"
        self._fail(call, kind, detail, "the tool cannot be called now", warned=True)

    def _fail(
        self,
        call: Call,
        kind: str,
        detail: str,
        told: str,
        text: str = "the server failed to handle the message",
        *,
        warned: bool = False,
    ) -> None:
        """Answer a tool call with a result that the model reads, a raw message with an error.

        ``detail`` is for the application: it may quote an exception. ``told`` and ``text`` must
        not.
        """
        if call.kind is _TOOL:
            answer = tool_server.answer_failure(call.subject.message, kind, detail, told)
            self._table.answer(call.request_id, answer, warned=warned)
        else:
            if not warned:
                self._table.warn(WarningKind(kind), detail)
            self._reject(call.subject, text)

    def refuse(self, call: Call) -> None:
        """Answer with an error because the session is closing."""
        self._reject(call.subject, CLOSING)

    def _pass_on(self, message: mcp.McpMessage, now: float) -> None:
        table, name = self._table, message.server
        server, handler = self._tool_servers.get(name), self._handlers.get(name)
        if table.is_closing:
            self._reject(message, CLOSING)
        elif server is None and handler is None:
            text = f"no MCP server is registered as {name!r:.80}"
            self._reject(message, text, mcp.METHOD_NOT_FOUND)
        else:
            if message.message.get("method") == mcp.CANCELLED:
                self._cancel(message)
            if table.is_full(f"MCP server {name:.80}", now):
                self._reject(message, "too many requests are open")
            elif server is not None:
                self._pass_to_tool(server, message)
            else:
                self._pass_to_handler(handler, message)

    def _pass_to_handler(self, handler: object, message: mcp.McpMessage) -> None:
        params = message.message.get("params")
        known = cast("JsonObject", params) if isinstance(params, dict) else {}
        used = tool_server.tool_use_of(known)
        is_call = message.message.get("method") == "tools/call"
        name = _full_name(message.server, known.get("name")) if is_call else None
        if self._approvals.forbids(used, name):
            self._reject(message, _NOT_APPROVED)
            return
        label = f"{message.message.get('method') or 'answer'} for MCP server {message.server}"
        # A copy, because a handler that changes it must not change the id of the answer.
        argument = dict(message.message)
        request_id = message.request_id
        self._table.call(_MCP, handler, argument, label, request_id, None, message, "", used)

    def _pass_to_tool(self, server: ToolServer, message: mcp.McpMessage) -> None:
        call = tool_server.handle(message.server, server, message.message)
        if isinstance(call, tool_server.ToolCall):
            name = _full_name(message.server, call.tool.name)
            if self._approvals.forbids(call.context.tool_use_id, name):
                self._reject(message, _NOT_APPROVED)
                return
            label = f"tool {call.context.name} of MCP server {message.server}"
            tool, timeout = call.tool, call.tool.timeout
            request_id = message.request_id
            self._table.call(_TOOL, tool, call.context, label, request_id, timeout, message)
        else:
            self._table.send(message.request_id, {"mcp_response": call})

    def _cancel(self, message: mcp.McpMessage) -> None:
        """Cancel the call that a cancellation names, and answer it with an error."""
        cancelled = mcp.cancelled_id(message.message)
        if cancelled is None:
            return
        for call in list(self._table.open.values()):
            waiting = call.subject
            if type(waiting) is not mcp.McpMessage or waiting.server != message.server:
                continue
            if waiting.message.get("id") == cancelled:
                self._table.cancel(call)
                self._reject(waiting, "cancelled")
                return

    def _reject(self, message: mcp.McpMessage, text: str, code: int = mcp.INTERNAL_ERROR) -> None:
        answer = mcp.error_response(message.message, code, text)
        self._table.send(message.request_id, {"mcp_response": answer})


def _full_name(server: str, tool: object) -> str:
    """Return the name under which the model knows a tool of a server."""
    return f"mcp__{server}__{tool}"
