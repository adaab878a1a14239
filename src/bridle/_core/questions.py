"""The requests of the CLI, from the moment they come to the one answer each of them gets.

Each request is answered exactly once, unless the CLI withdraws it first. Whichever comes first
decides: the callback's result, its failure, its deadline, the withdrawal, or the end of the
session. The request leaves the table in that same step, so whatever comes later finds nothing to
answer. A hook that fails lets the CLI go on unless its `on_error` says otherwise, a permission that
fails is denied, an MCP call that fails is an error for the model; each with a warning.

Load decides nothing: requests wait for their callbacks, as many as there are. Where none can be
asked (the table is full, a request cannot be read, no thread is left), gates block.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct, structs

from bridle._core import mcp, toolserver
from bridle._core.actions import Action, Call, CallKind, CancelCall, Warn, Write
from bridle._core.deadlines import Deadlines
from bridle._core.ending import Departure
from bridle._core.hook_run import HookAnswer, HookRun
from bridle._core.hooks import HookPlan
from bridle._core.permissions import (
    Answer,
    cancel,
    checked,
    copied,
    decode_can_use_tool,
    decode_elicitation,
    deny,
    encode_elicitation,
    encode_permission,
    words_of,
)
from bridle._core.scan import LineIdentity
from bridle._core.wire import Unencodable, encode_error, encode_json, encode_success
from bridle._source import JsonObject
from bridle.controls import (
    CanUseToolRequest,
    ControlRequest,
    ElicitationRequest,
    HookCallbackRequest,
    McpMessageRequest,
    UnknownControlRequest,
)
from bridle.events import WarningKind
from bridle.permissions import bind_raw
from bridle.tools import ToolServer

MAX_OPEN_REQUESTS = 4096
"""Requests of the CLI that may be open at once. Real CLIs stay far below: this stops a runaway."""

_WARN_AGAIN = 10.0
"""Seconds between two warnings about the same limit."""

CALL = "call"
MCP_PATIENCE = "mcp"
"""Kinds of deadline tokens this table sets."""

_CLOSING = "the session is closing"
_DENIED: JsonObject = {"behavior": "deny", "message": f"Permission denied: {_CLOSING}."}
_CANCELLED: JsonObject = {"action": "cancel"}
_NO_CALLBACK: JsonObject = {
    "behavior": "deny",
    "message": "Permission denied: this application answers no permission questions.",
}

# At hand: reaching a member by its name is slow.
_HOOK = CallKind.HOOK
_PERMISSION = CallKind.PERMISSION
_ELICITATION = CallKind.ELICITATION
_MCP = CallKind.MCP
_TOOL = CallKind.TOOL

# Warnings about a callback that failed, and about one that missed its deadline.
_WARNINGS: dict[CallKind, tuple[WarningKind, WarningKind]] = {
    _HOOK: (WarningKind.HOOK_FAILED, WarningKind.HOOK_TIMED_OUT),
    **dict.fromkeys(
        (_PERMISSION, CallKind.QUESTION, CallKind.PLAN),
        (WarningKind.PERMISSION_FAILED, WarningKind.PERMISSION_TIMED_OUT),
    ),
    _ELICITATION: (WarningKind.ELICITATION_FAILED, WarningKind.ELICITATION_FAILED),
    **dict.fromkeys((_MCP, _TOOL), (WarningKind.MCP_FAILED, WarningKind.MCP_FAILED)),
}


class QuestionsConfig(Struct, frozen=True, kw_only=True):
    """Who answers. The callbacks themselves are opaque here: the shell calls them."""

    hooks: HookPlan = HookPlan({})
    can_use_tool: object | None = None
    question: object | None = None
    plan: object | None = None
    elicitation: object | None = None
    mcp_servers: Mapping[str, object] = {}
    #: Seconds a permission or an elicitation may take; None: a human may think for ever.
    permission_timeout: float | None = None
    #: Requests that may be open at once; a constant of sessions, smaller in simulations.
    max_open: int = MAX_OPEN_REQUESTS


class _Asked(Struct):
    """A request of the CLI that has just come."""

    id: str
    body: Any
    frame: ControlRequest
    session_id: str
    now: float


class Questions:
    """The table of open requests of the CLI.

    ``departure`` tells whether the CLI still takes answers. ``prompt`` tells which prompt the CLI
    works on. ``end_turn`` is called with the event and the answer when a hook has ended the turn,
    and with every answer about a prompt.
    """

    def __init__(
        self,
        config: QuestionsConfig,
        deadlines: Deadlines,
        emit: Callable[[Action], None],
        *,
        departure: Departure,
        prompt: Callable[[], str | None],
        end_turn: Callable[[str, HookAnswer, float], None],
    ) -> None:
        self._config = config
        self._deadlines = deadlines
        self._emit = emit
        self._departure = departure
        self._prompt = prompt
        self._end_turn = end_turn
        # The call that each open question waits for, by the question's id and by the call's.
        self._open: dict[str, Call] = {}
        self._by_call: dict[int, Call] = {}
        self._calls = 0
        # MCP messages that came before the session was confirmed; None once it is.
        self._early: mcp.McpBuffer | None = mcp.McpBuffer()
        # Ids of the last answers, as many as may be due at once: the CLI repeats them.
        self._answered: OrderedDict[str, None] = OrderedDict()
        # The session is closing: no callback is called, everything is refused at once.
        self._refusing = False
        # When to warn again about a limit, by the words for it.
        self._warn_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._open)

    def was_answered(self, request_id: str) -> bool:
        """True if we answered that question lately. The CLI repeats our answers on its output."""
        return request_id in self._answered

    # -- questions in ------------------------------------------------------------------------------

    def ask(self, frame: ControlRequest, session_id: str, now: float) -> None:
        """The CLI asks something."""
        request_id = frame.request_id
        if request_id is None:
            self._warn(WarningKind.INVALID_REQUEST, "a request came without an id")
        elif self._is_open(request_id):
            self._warn(WarningKind.DUPLICATE_REQUEST, f"request id {request_id!r} is still open")
        else:
            try:
                body = frame.body
                self._ASK[type(body)](self, _Asked(request_id, body, frame, session_id, now))
            except Exception as error:  # nested too deeply, or raised by types of the user's
                callback_id = getattr(frame.body, "callback_id", None)
                self._refuse_unread(request_id, callback_id, f"cannot be read ({words_of(error)})")

    def _refuse_incomplete(self, asked: _Asked, *names: str) -> bool:
        """Refuse a request if the wire left one of these fields out; True if so.

        Finding out is slow. A missing field is empty, so it is called only where one is.
        """
        missing = [name for name in names if name in asked.frame.request.misfits]
        if missing:
            self._refuse(WarningKind.INVALID_REQUEST, asked.id, f"{missing[0]} is missing")
        return bool(missing)

    def _ask_unknown(self, asked: _Asked) -> None:
        text = f"unknown control request subtype {asked.body.subtype!r:.80}"
        self._refuse(WarningKind.UNKNOWN_REQUEST, asked.id, text)

    def refuse_unread(self, line: LineIdentity, what: str) -> None:
        """Answer a request of which only the identity could be read."""
        if line.request_id is not None and not self._is_open(line.request_id):
            text = f"{line.subtype or 'request'}: cannot be read ({what})"
            self._refuse_unread(line.request_id, line.callback_id, text)

    def _refuse_unread(self, request_id: str, callback_id: str | None, text: str) -> None:
        """Answer a request that cannot be read: a gate blocks, the rest gets an error.

        An error would let the tool run: older CLIs take it for an empty answer of the hook.
        """
        run = self._config.hooks.unreadable(callback_id)
        if run is None:
            self._refuse(WarningKind.INVALID_REQUEST, request_id, text)
        else:
            self._warn(WarningKind.INVALID_REQUEST, text)
            self._answer(request_id, run.settled)

    def withdraw(self, request_id: str) -> None:
        """The CLI takes a question back. It gets no answer then."""
        call = self._open.pop(request_id, None)
        if call is not None:
            self._cancel(call)
        elif self._early is not None:
            self._early.withdraw(request_id)

    # -- answers out -------------------------------------------------------------------------------

    def started(self, call_id: int, now: float) -> None:
        """Keep the deadline of a callback that has started and not returned at once."""
        call = self._by_call.get(call_id)
        if call is not None and call.timeout is not None:
            self._deadlines.set((CALL, call_id), now + call.timeout)

    def finished(self, call_id: int, result: object, now: float) -> None:
        """A callback returned."""
        call = self._take_call(call_id)
        if call is None:
            return
        try:
            self._conclude(call, result, now)
        except Exception as error:  # raised by the result's own methods: they are the user's
            kind, text = WarningKind.UNENCODABLE_RESULT, f"its result raised {words_of(error)}"
            if call.kind is _HOOK:
                call.subject.invalid(kind, text)
                self._step_hook(call.request_id, call.subject, now)
            else:
                self._fail(call, kind, f"{call.who}: {text}", now)

    def _conclude(self, call: Call, result: object, now: float) -> None:
        kind, request_id = call.kind, call.request_id
        if kind is _HOOK:
            call.subject.done(result)
            self._step_hook(request_id, call.subject, now)
        elif kind is _TOOL:
            message = call.subject.message
            self._answer(request_id, toolserver.answer_result(message, result, call.label))
        elif kind is _MCP:
            del self._open[request_id]
            self._answer_mcp(call.subject, result)
        elif kind is _ELICITATION:
            self._answer(request_id, encode_elicitation(result))
        else:
            self._answer(request_id, encode_permission(result, call.subject))

    def failed(self, call_id: int, detail: str, now: float, *, was_called: bool = True) -> None:
        """Answer for a callback that raised, or that could not be called.

        In the second case the callback decided nothing: a gate blocks, a permission is denied.
        """
        call = self._take_call(call_id)
        if call is None:
            return
        if was_called:
            self._fail(call, _WARNINGS[call.kind][0], f"{call.who}: {detail}", now)
            return
        self._warn_of_limit(detail, call.who, now)
        if call.kind is _HOOK:
            call.subject.refuse()
            self._step_hook(call.request_id, call.subject, now)
        else:
            text = f"{call.label}: {detail}"
            self._fail(call, WarningKind.LIMIT_REACHED, text, now, warned=True)

    def expired(self, call_id: int, now: float) -> None:
        """A callback missed its deadline. It is cancelled; what it still reports is ignored."""
        call = self._take_call(call_id)
        assert call is not None, "a deadline is cleared with its call"
        self._emit(CancelCall(call_id, timed_out=True))
        text = f"{call.who} did not answer within {call.timeout:g} s"
        self._fail(call, _WARNINGS[call.kind][1], text, now)

    # -- the session's own life --------------------------------------------------------------------

    def confirm(self, now: float) -> None:
        """The session is confirmed: MCP messages that waited for it are routed, oldest first."""
        if self._early is None:
            return
        waiting, self._early = self._early.take_all(), None
        self._deadlines.clear((MCP_PATIENCE, None))
        for message in waiting:
            self._route_mcp(message, now)

    def refuse_all(self, now: float) -> None:
        """Turn down what is open and whatever else comes: the session is closing."""
        self._refusing = True
        for call in list(self._open.values()):
            self._cancel(call)
            if call.kind is _HOOK:
                self._answer(call.request_id, call.subject.close(_CLOSING))
            elif call.kind is _TOOL or call.kind is _MCP:
                self._refuse_mcp(call.subject, _CLOSING)
            else:
                self._send(call.request_id, _CANCELLED if call.kind is _ELICITATION else _DENIED)
        self._open.clear()
        self.confirm(now)

    def drop_all(self) -> None:
        """Forget everything: nobody is left to answer to."""
        self._refusing = True
        for call in self._open.values():
            self._cancel(call)
        self._open.clear()
        self._early = None
        self._deadlines.clear((MCP_PATIENCE, None))

    # -- hooks -------------------------------------------------------------------------------------

    def _ask_hook(self, asked: _Asked) -> None:
        request_id, now = asked.id, asked.now
        body: HookCallbackRequest = asked.body
        if not body.callback_id and self._refuse_incomplete(asked, "callback_id"):
            return
        run = self._config.hooks.begin(body.callback_id, body.input, body.tool_use_id)
        if self._refusing:
            self._answer(request_id, run.close(_CLOSING))
            return
        if run.answer is None and self._is_full(run.label, now):
            run.refuse()
        self._step_hook(request_id, run, now)

    def _step_hook(self, request_id: str, run: HookRun, now: float) -> None:
        """Call the next hook of the run, or send the answer the run has come to."""
        answer = run.answer
        if answer is None:
            # A hook that failed is told of now: there may never be an answer.
            if run.warnings:
                for kind, detail in run.take_warnings():
                    self._warn(WarningKind(kind), detail)
            hook, timeout = run.waiting[0].hook, run.waiting[0].timeout
            self._call(_HOOK, hook.callback, run.context, run.label, request_id, timeout, run)
            return
        self._answer(request_id, answer)
        if answer.ends_turn or run.event == "UserPromptSubmit":
            self._end_turn(run.event, answer, now)

    # -- permissions and elicitations --------------------------------------------------------------

    def _ask_permission(self, asked: _Asked) -> None:
        request_id, now = asked.id, asked.now
        body: CanUseToolRequest = asked.body
        if not (body.tool_name and body.input) and self._refuse_incomplete(
            asked, "tool_name", "input"
        ):
            return
        subject = decode_can_use_tool(body, asked.session_id)
        kind, callback = self._permission_callback(subject.tool_name)
        label = f"permission for {subject.tool_name}"
        if self._refusing:
            self._send(request_id, _DENIED)
        elif callback is None:
            self._warn(WarningKind.NO_PERMISSION_CALLBACK, label)
            self._send(request_id, _NO_CALLBACK)
        elif self._is_full(label, now):
            self._answer(request_id, deny(WarningKind.LIMIT_REACHED, label), warned=True)
        else:
            # The callback may change its copy. What `Allow` sends back stays what the CLI asked.
            context = structs.replace(subject, tool_input=copied(subject.tool_input))
            bind_raw(context, asked.frame.wire_body)
            timeout = self._config.permission_timeout
            self._call(kind, callback, context, label, request_id, timeout, subject)

    def _permission_callback(self, tool_name: str) -> tuple[CallKind, object | None]:
        """Two tools ask the user rather than for permission; they may have their own callback."""
        config = self._config
        if tool_name == "AskUserQuestion" and config.question is not None:
            return CallKind.QUESTION, config.question
        if tool_name == "ExitPlanMode" and config.plan is not None:
            return CallKind.PLAN, config.plan
        return _PERMISSION, config.can_use_tool

    def _ask_elicitation(self, asked: _Asked) -> None:
        request_id, now = asked.id, asked.now
        body: ElicitationRequest = asked.body
        callback = self._config.elicitation
        label = f"elicitation of {body.mcp_server_name}"
        if self._refusing:
            self._send(request_id, _CANCELLED)
        elif callback is None:
            # Nothing failed: an application that offers no answers gives none.
            self._send(request_id, {"action": "decline"})
        elif self._is_full(label, now):
            self._send(request_id, _CANCELLED)
        else:
            wire = {**asked.frame.wire_body(), "mcp_server_name": body.mcp_server_name}
            context = decode_elicitation(wire)
            bind_raw(context, asked.frame.wire_body)
            timeout = self._config.permission_timeout
            self._call(_ELICITATION, callback, context, label, request_id, timeout)

    # -- MCP ---------------------------------------------------------------------------------------

    def _ask_mcp(self, asked: _Asked) -> None:
        request_id, now = asked.id, asked.now
        body: McpMessageRequest = asked.body
        if not (body.server_name and body.message) and self._refuse_incomplete(
            asked, "server_name", "message"
        ):
            return
        message = mcp.BufferedMessage(request_id, body.server_name, body.message)
        if self._early is None:
            self._route_mcp(message, now)
            return
        if not len(self._early):
            self._deadlines.set((MCP_PATIENCE, None), now + mcp.BUFFER_PATIENCE)
        dropped = self._early.push(message)
        if dropped is not None:
            detail = f"more than {mcp.MAX_BUFFERED} messages before the session was confirmed"
            self._warn(WarningKind.MCP_BUFFER_OVERFLOW, detail)
            self._refuse_mcp(dropped, detail)

    def _route_mcp(self, message: mcp.BufferedMessage, now: float) -> None:
        if self._refusing:
            self._refuse_mcp(message, _CLOSING)
            return
        handler = self._config.mcp_servers.get(message.server)
        if handler is None:
            text = f"no MCP server is registered as {message.server!r:.80}"
            self._refuse_mcp(message, text, mcp.METHOD_NOT_FOUND)
            return
        method = message.message.get("method")
        if method == mcp.CANCELLED:
            self._cancel_mcp(message)
        if self._is_full(f"MCP server {message.server:.80}", now):
            self._refuse_mcp(message, "too many requests are open")
            return
        if isinstance(handler, ToolServer):
            self._route_tool(handler, message)
            return
        label = f"{method or 'answer'} for MCP server {message.server}"
        # A copy: what the handler does to it must not change whom the answer is for.
        asked = dict(message.message)
        self._call(_MCP, handler, asked, label, message.request_id, None, message)

    def _route_tool(self, server: ToolServer, message: mcp.BufferedMessage) -> None:
        call = toolserver.handle(message.server, server, message.message)
        if isinstance(call, toolserver.ToolCall):
            label = f"tool {call.context.name} of MCP server {message.server}"
            request_id, timeout = message.request_id, call.tool.timeout
            self._call(_TOOL, call, call.context, label, request_id, timeout, message)
        else:
            self._send(message.request_id, {"mcp_response": call})

    def _cancel_mcp(self, message: mcp.BufferedMessage) -> None:
        """A cancellation is a message of its own; the call it speaks of ends with an error."""
        cancelled = mcp.cancelled_id(message.message)
        if cancelled is None:
            return
        for call in self._open.values():
            waiting = call.subject
            if type(waiting) is not mcp.BufferedMessage or waiting.server != message.server:
                continue
            if waiting.message.get("id") == cancelled:
                self._cancel(call)
                del self._open[call.request_id]
                self._refuse_mcp(waiting, "cancelled")
                return

    def _answer_mcp(self, message: mcp.BufferedMessage, result: object) -> None:
        try:
            answer = mcp.encode_answer(message.message, result)
            line = encode_success(
                message.request_id, checked(encode_json({"mcp_response": answer}))
            )
        except Exception as error:  # what a handler returns is the user's, and may raise anything
            self._warn(
                WarningKind.UNENCODABLE_RESULT, f"MCP server {message.server}: {words_of(error)}"
            )
            self._refuse_mcp(message, "the server's answer is no JSON-RPC message")
        else:
            self._write(message.request_id, line)

    def _refuse_mcp(
        self, message: mcp.BufferedMessage, text: str, code: int = mcp.INTERNAL_ERROR
    ) -> None:
        answer = mcp.error_response(message.message, code, text)
        self._send(message.request_id, {"mcp_response": answer})

    # -- common ------------------------------------------------------------------------------------

    def _is_open(self, request_id: str) -> bool:
        return request_id in self._open or (self._early is not None and request_id in self._early)

    def _is_full(self, label: str, now: float) -> bool:
        """Tell whether no further request can be taken, and warn if so."""
        limit = self._config.max_open
        if len(self._open) < limit:
            return False
        self._warn_of_limit(f"{limit} requests of the CLI are open", label, now)
        return True

    def _warn_of_limit(self, limit: str, label: str, now: float) -> None:
        """Warn that a limit was reached; about the same limit only now and then."""
        if now >= self._warn_at.get(limit, -math.inf):
            self._warn_at[limit] = now + _WARN_AGAIN
            self._warn(WarningKind.LIMIT_REACHED, f"{label}: {limit}")

    def _call(
        self,
        kind: CallKind,
        callback: object,
        argument: object,
        label: str,
        request_id: str,
        timeout: float | None,
        subject: object = None,
    ) -> None:
        self._calls = call_id = self._calls + 1
        prompt = self._prompt()
        call = Call(call_id, kind, callback, argument, label, request_id, timeout, subject, prompt)
        self._open[request_id] = self._by_call[call_id] = call
        self._emit(call)

    def _take_call(self, call_id: int) -> Call | None:
        if self._deadlines.soonest < math.inf:  # most calls return at once and never had one
            self._deadlines.clear((CALL, call_id))
        return self._by_call.pop(call_id, None)

    def _cancel(self, call: Call) -> None:
        self._take_call(call.call_id)
        self._emit(CancelCall(call.call_id))

    def _fail(
        self, call: Call, kind: WarningKind, detail: str, now: float, *, warned: bool = False
    ) -> None:
        """Answer for a callback that gave no answer; ``warned`` if the warning was given."""
        request_id = call.request_id
        if call.kind is _HOOK:
            call.subject.failed(kind, detail)
            self._step_hook(request_id, call.subject, now)
        elif call.kind is _TOOL:
            message = call.subject.message
            answer = toolserver.answer_failure(message, kind, detail, call.label)
            self._answer(request_id, answer, warned=warned)
        elif call.kind is _MCP:
            if not warned:
                self._warn(kind, detail)
            self._open.pop(request_id, None)
            self._refuse_mcp(call.subject, "the server failed to handle the message")
        elif call.kind is _ELICITATION:
            self._answer(request_id, cancel(kind, detail), warned=warned)
        else:
            self._answer(request_id, deny(kind, detail), warned=warned)

    def _answer(self, request_id: str, answer: Answer, *, warned: bool = False) -> None:
        self._open.pop(request_id, None)
        if not warned:
            for kind, detail in answer.warnings:
                self._warn(WarningKind(kind), detail)
        try:
            line = encode_success(request_id, answer.body)
        except Unencodable as error:
            self._refuse(WarningKind.UNENCODABLE_RESULT, request_id, str(error))
        else:
            self._write(request_id, line)

    def _send(self, request_id: str, payload: JsonObject) -> None:
        """Answer in our own words, and perhaps an id of the CLI's, which may be anything."""
        try:
            body = encode_json(payload)
        except Unencodable as error:
            self._refuse(WarningKind.UNENCODABLE_RESULT, request_id, str(error))
        else:
            self._answer(request_id, Answer(body))

    def _refuse(self, kind: WarningKind, request_id: str, text: str) -> None:
        self._warn(kind, text)
        self._write(request_id, encode_error(request_id, text))

    def _write(self, request_id: str, line: bytes) -> None:
        if not self._departure.input_ended:
            self._answered[request_id] = None
            if len(self._answered) > MAX_OPEN_REQUESTS:
                self._answered.popitem(last=False)
            self._emit(Write(line))
        else:
            self._warn(WarningKind.UNANSWERED_REQUEST, f"request id {request_id!r:.80}")

    def _warn(self, kind: WarningKind, detail: str) -> None:
        self._emit(Warn(kind, detail))

    _ASK: ClassVar[dict[type, Callable[[Questions, _Asked], None]]] = {
        HookCallbackRequest: _ask_hook,
        CanUseToolRequest: _ask_permission,
        McpMessageRequest: _ask_mcp,
        ElicitationRequest: _ask_elicitation,
        UnknownControlRequest: _ask_unknown,
    }
    """Who takes a question."""
