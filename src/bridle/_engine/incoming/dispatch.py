"""Pass each incoming request to the handler of its kind, and callback results back to it.

Requests wait for their callbacks however many there are, so load never decides an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, ValidationError

from bridle._engine.actions import Action, CallKind
from bridle._engine.deadlines import Deadlines
from bridle._engine.incoming.dialogs import DialogHandler
from bridle._engine.incoming.elicitations import ElicitationHandler
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.hook_requests import HookHandler
from bridle._engine.incoming.hook_run import Decided
from bridle._engine.incoming.mcp.requests_to_servers import McpHandler
from bridle._engine.incoming.open_requests import (
    MAX_OPEN_REQUESTS,
    CallHandler,
    IncomingRequest,
    OpenRequests,
    RequestHandler,
    RunningTurn,
)
from bridle._engine.incoming.permission_hooks import PermissionHooks
from bridle._engine.incoming.permission_requests import PermissionHandler
from bridle._engine.incoming.unknown import UnknownHandler, is_name
from bridle._engine.incoming.waiting_call import Approval, Approvals, Gate
from bridle._engine.shutdown import Shutdown
from bridle._engine.wire.oversized import LineIdentity
from bridle._records.callables import Callback
from bridle._records.raw_line import tag_of
from bridle.approvals._rules import ApprovalRule
from bridle.controls import (
    CanUseToolRequest,
    ControlRequest,
    ElicitationRequest,
    HookCallbackRequest,
    McpMessageRequest,
    UnknownControlRequest,
    UserDialogRequest,
)
from bridle.events import WarningKind
from bridle.tools import ToolServer


class IncomingConfig(Struct, frozen=True, kw_only=True):
    """The callbacks of a session. Only the shell calls them."""

    hooks: HookPlan = HookPlan({})
    can_use_tool: Callback | None = None
    question: Callback | None = None
    plan: Callback | None = None
    elicitation: Callback | None = None
    dialog: Callback | None = None
    #: The kinds of dialogs that the CLI may send.
    dialog_kinds: tuple[str, ...] = ()
    #: The functions that handle raw messages for MCP servers, and the tool servers, by name.
    mcp_handlers: Mapping[str, object] = {}
    tool_servers: Mapping[str, ToolServer] = {}
    #: Seconds that a permission request, an elicitation or a dialog may take. None means no limit.
    permission_timeout: float | None = None
    #: The calls that wait for approval without a hook.
    approve: tuple[ApprovalRule, ...] = ()
    #: The call that the session resumes, and the decision about it.
    approval: Approval | None = None
    #: Requests that may be open at once. Constant in sessions, smaller in simulations.
    max_open: int = MAX_OPEN_REQUESTS

    @property
    def gate(self) -> Gate:
        """What lets calls wait for approval without a hook."""
        return Gate(self.approve, self.tool_servers)

    @property
    def has_gates(self) -> bool:
        """Whether the session has hooks or permission callbacks."""
        asks = (self.can_use_tool, self.question, self.plan)
        return bool(self.hooks.by_callback_id) or any(one is not None for one in asks)


class Incoming:
    """The incoming requests of one session.

    ``shutdown`` says whether the CLI still accepts answers. ``turns`` knows the prompt that a tool
    use and an agent belong to, ``approvals`` the calls that wait for a person. The inputs return a
    verdict when a hook has ended the turn, and for every answer about a prompt.
    """

    def __init__(
        self,
        config: IncomingConfig,
        approvals: Approvals,
        deadlines: Deadlines,
        emit: Callable[[Action], None],
        shutdown: Shutdown,
        turns: RunningTurn,
    ) -> None:
        self._approvals = approvals
        self.table = table = OpenRequests(
            config.max_open, deadlines, emit, shutdown=shutdown, turns=turns
        )
        self.permission_hooks = PermissionHooks(config.hooks, deadlines, table)
        self.hooks = HookHandler(table, config.hooks, turns, approvals, self.permission_hooks)
        self.mcp = McpHandler(table, config.mcp_handlers, config.tool_servers, deadlines, approvals)
        permissions = PermissionHandler(
            table,
            config.can_use_tool,
            config.question,
            config.plan,
            config.permission_timeout,
            self.permission_hooks,
        )
        elicitations = ElicitationHandler(table, config.elicitation, config.permission_timeout)
        dialogs = DialogHandler(
            table, config.dialog, config.dialog_kinds, config.permission_timeout
        )
        self._by_request: dict[type, RequestHandler] = {
            HookCallbackRequest: self.hooks,
            CanUseToolRequest: permissions,
            McpMessageRequest: self.mcp,
            ElicitationRequest: elicitations,
            UserDialogRequest: dialogs,
            UnknownControlRequest: UnknownHandler(table),
        }
        self._by_call: dict[CallKind, CallHandler] = {
            CallKind.HOOK: self.hooks,
            CallKind.PERMISSION: permissions,
            CallKind.QUESTION: permissions,
            CallKind.PLAN: permissions,
            CallKind.ELICITATION: elicitations,
            CallKind.DIALOG: dialogs,
            CallKind.MCP: self.mcp,
            CallKind.TOOL: self.mcp,
        }

    def __len__(self) -> int:
        return len(self.table)

    # -- requests ----------------------------------------------------------------------------------

    def handle(self, frame: ControlRequest, session_id: str, now: float) -> Decided:
        """Handle a request."""
        request_id = frame.request_id
        if request_id is None:
            self.table.warn(WarningKind.INVALID_REQUEST, "a request came without an id")
        elif self._is_open(request_id):
            detail = f"request id {request_id!r} is still open"
            self.table.warn(WarningKind.DUPLICATE_REQUEST, detail)
        else:
            body = frame.body
            request = IncomingRequest(request_id, body, frame, session_id, now)
            try:
                if (
                    self._approvals.resumed is not None
                    and isinstance(body, CanUseToolRequest)
                    and self._approvals.concerns(body.tool_use_id)
                ):
                    return self.hooks.decide(request)
                return self._by_request[type(body)].handle(request)
            except (RecursionError, ValidationError) as error:  # nested too deeply, for example
                text = f"cannot be read ({type(error).__name__}: {error})"
                self._reject_unread(request_id, getattr(body, "callback_id", None), text)
        return None

    def ignore(self, frame: ControlRequest) -> None:
        """Warn about a request to a query, which registers nothing that the CLI could request."""
        body = frame.request
        kind = body.subtype if isinstance(body, UnknownControlRequest) else tag_of(body)
        self.table.warn(WarningKind.UNANSWERED_REQUEST, f"{kind}: a query answers nothing")

    def reject_unread(self, line: LineIdentity, what: str) -> None:
        """Answer a request of which only the ids could be read."""
        if line.request_id is not None and not self._is_open(line.request_id):
            subtype = line.subtype if line.subtype and is_name(line.subtype) else "request"
            text = f"{subtype}: cannot be read ({what})"
            self._reject_unread(line.request_id, line.callback_id, text)

    def _reject_unread(self, request_id: str, callback_id: str | None, text: str) -> None:
        if not self.hooks.refuse_unread(request_id, callback_id, text):
            self.table.reject(WarningKind.INVALID_REQUEST, request_id, text)

    def withdraw(self, request_id: str, now: float) -> None:
        """Remove a request that the CLI has withdrawn, without an answer."""
        call = self.table.open.get(request_id)
        if not self.table.drop(request_id):
            self.mcp.withdraw(request_id)
        elif call is not None and call.kind is CallKind.HOOK:
            self.permission_hooks.withdrawn(call.subject, now)

    def _is_open(self, request_id: str) -> bool:
        early = self.mcp.early
        return request_id in self.table.open or (early is not None and request_id in early)

    # -- callbacks ---------------------------------------------------------------------------------

    def finished(self, call_id: int, result: Any, now: float) -> Decided:
        """Take the serialised result of a callback."""
        call = self.table.take(call_id)
        return None if call is None else self._by_call[call.kind].finished(call, result, now)

    def failed(
        self,
        call_id: int,
        detail: str,
        now: float,
        *,
        error: str = "Error",
        was_called: bool = True,
    ) -> Decided:
        """Answer for a callback that raised, or that could not be called.

        ``error`` is the class of the exception. If it could not be called, a gate blocks and a
        permission is denied.
        """
        call = self.table.take(call_id)
        if call is None:
            return None
        handler = self._by_call[call.kind]
        if was_called:
            text = f"{call.who}: {detail}"
            return handler.failed(call, handler.failed_kind, text, now, error)
        self.table.warn_of_limit(detail, call.who, now)
        return handler.uncallable(call, detail, now)

    def expired(self, call_id: int, now: float) -> Decided:
        """Cancel a callback that missed its deadline, and answer for it."""
        call = self.table.find(call_id)
        assert call is not None, "a deadline is cleared with its call"
        self.table.cancel(call, timed_out=True)
        handler = self._by_call[call.kind]
        detail = f"{call.who} did not answer within {call.timeout:g} s"
        return handler.failed(call, handler.late_kind, detail, now)

    # -- the session -------------------------------------------------------------------------------

    def confirm(self, now: float) -> None:
        """Pass on the MCP messages that waited for the session to be confirmed."""
        self.mcp.confirm(now)

    def refuse_all(self, now: float) -> None:
        """Reject open and later requests, because the session is closing."""
        self.table.is_closing = True
        for call in list(self.table.open.values()):
            self.table.cancel(call)
            self._by_call[call.kind].refuse(call)
        self.confirm(now)

    def drop_all(self) -> None:
        """Remove everything, because the CLI accepts no more answers."""
        self.table.is_closing = True
        for call in list(self.table.open.values()):
            self.table.drop(call.request_id)
        self.mcp.drop_all()
