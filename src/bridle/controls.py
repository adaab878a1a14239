"""Frames of the control protocol, and the replies to the typed operations of a session.

Bridle can respond to every request. A field without a default is required for a response. If the
CLI omits it, the decoder sets an empty value and adds the name of the field to `.misfits`. Requests
of an unknown subtype are decoded as `UnknownControlRequest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct, field

from bridle._records.control_replies import (
    AgentInfo,
    BinaryVersion,
    CommandInfo,
    ContextCategory,
    ContextUsage,
    ConversationExport,
    ConversationPlan,
    FileContents,
    FileSuggestions,
    HookEventInfo,
    HookInfo,
    HookList,
    McpCallResult,
    McpResource,
    McpServerChanges,
    McpServerInfo,
    McpServerList,
    McpToolInfo,
    ModelInfo,
    ModelList,
    OutputStyleList,
    PermissionRuleInfo,
    PermissionRuleList,
    PermissionRuleState,
    PluginInfo,
    PluginReload,
    PromptCancellation,
    RegisteredDirectory,
    Reply,
    ReportedUsage,
    RewindResult,
    SessionCost,
    SessionStatus,
    SessionTitle,
    SettingsReport,
    SettingsSource,
    SideAnswer,
    SkillList,
    StatusRow,
    StatusSection,
    TaskOutput,
    UsageReport,
    WorkspaceDiff,
)
from bridle._records.raw_line import JsonObject, Sourced, WholeLine, bind_part

__all__ = [
    "AgentInfo",
    "BinaryVersion",
    "CanUseToolRequest",
    "CommandInfo",
    "ContextCategory",
    "ContextUsage",
    "ControlCancel",
    "ControlFailure",
    "ControlRequest",
    "ControlResponse",
    "ControlSuccess",
    "ConversationExport",
    "ConversationPlan",
    "ElicitationRequest",
    "FileContents",
    "FileSuggestions",
    "HookCallbackRequest",
    "HookEventInfo",
    "HookInfo",
    "HookList",
    "McpCallResult",
    "McpMessageRequest",
    "McpResource",
    "McpServerChanges",
    "McpServerInfo",
    "McpServerList",
    "McpToolInfo",
    "ModelInfo",
    "ModelList",
    "OutputStyleList",
    "PermissionRuleInfo",
    "PermissionRuleList",
    "PermissionRuleState",
    "PluginInfo",
    "PluginReload",
    "PromptCancellation",
    "RegisteredDirectory",
    "Reply",
    "ReportedUsage",
    "RequestBody",
    "RewindResult",
    "SessionCost",
    "SessionStatus",
    "SessionTitle",
    "SettingsReport",
    "SettingsSource",
    "SideAnswer",
    "SkillList",
    "StatusRow",
    "StatusSection",
    "TaskOutput",
    "UnknownControlRequest",
    "UsageReport",
    "UserDialogRequest",
    "WorkspaceDiff",
]


class ControlFrame(WholeLine, Struct, frozen=True, repr_omit_defaults=True):
    """Base class of the lines of the control protocol."""


# ------------------------------------------------------------------------- incoming requests


class IncomingRequest(Sourced, Struct, frozen=True, repr_omit_defaults=True, tag_field="subtype"):
    """Base class of incoming requests. The decoder selects the class by `subtype`."""


class HookCallbackRequest(IncomingRequest, tag="hook_callback", frozen=True):
    """The CLI calls a hook. For events without a tool, `tool_use_id` is a random id."""

    callback_id: str
    input: JsonObject = field(default_factory=JsonObject)
    tool_use_id: str | None = None


class CanUseToolRequest(IncomingRequest, tag="can_use_tool", frozen=True):
    """The CLI asks whether a tool may run.

    `CanUseToolContext` has the same fields, in the same order.
    """

    tool_name: str
    input: JsonObject
    tool_use_id: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None
    permission_suggestions: tuple[JsonObject, ...] = ()
    blocked_path: str | None = None
    decision_reason: str | None = None
    decision_reason_type: str | None = None
    decision_reason_hook_event: str | None = None
    decision_reason_hook_source: str | None = None
    classifier_approvable: bool | None = None
    suppress_always_allow_rule: bool = False
    requires_user_interaction: bool = False
    server_policy_ask_only: bool = False
    mcp_server: JsonObject | None = None
    agent_id: str | None = None


class McpMessageRequest(IncomingRequest, tag="mcp_message", frozen=True):
    """A JSON-RPC message for an in-process MCP server."""

    server_name: str
    message: JsonObject


class ElicitationRequest(IncomingRequest, tag="elicitation", frozen=True):
    """An MCP server asks the user for data (an elicitation)."""

    mcp_server_name: str = ""
    message: str = ""
    mode: str | None = None
    requested_schema: JsonObject | None = None
    property_order: tuple[str, ...] = ()
    url: str | None = None
    elicitation_id: str | None = None


class UserDialogRequest(IncomingRequest, tag="request_user_dialog", frozen=True):
    """The CLI asks the program to show a dialog to the user."""

    dialog_kind: str = ""
    payload: JsonObject = field(default_factory=JsonObject)
    tool_use_id: str | None = None


class UnknownControlRequest(Sourced, Struct, frozen=True):
    """A request that this version of Bridle does not know. `raw` has its content."""

    subtype: str
    raw: Any


if TYPE_CHECKING:
    RequestBody: TypeAlias = (
        HookCallbackRequest
        | CanUseToolRequest
        | McpMessageRequest
        | ElicitationRequest
        | UserDialogRequest
        | UnknownControlRequest
    )
    """Every kind of request that the CLI sends."""
else:
    RequestBody = (
        HookCallbackRequest
        | CanUseToolRequest
        | McpMessageRequest
        | ElicitationRequest
        | UserDialogRequest
    )


class ControlRequest(ControlFrame, tag="control_request", frozen=True):
    """A request from the CLI. If it has no `request_id`, the response has none either."""

    # Private: `.request` binds the body to the raw line before it returns it.
    _request: RequestBody = field(name="request")
    request_id: str | None = None

    @property
    def request(self) -> RequestBody:
        """Return the body of the request."""
        bind_part(self, self._request, "request")
        return self._request

    @property
    def body(self) -> RequestBody:
        """Return the body without binding it to the raw line.

        Its `.raw` and `.misfits` are not available.
        """
        return self._request

    def wire_body(self) -> JsonObject:
        """Return the JSON object of the body."""
        return cast("JsonObject", self.request.raw)


# ------------------------------------------------------------------------- responses of the CLI


class Answer(Sourced, Struct, frozen=True, repr_omit_defaults=True, tag_field="subtype"):
    """Base class of responses. The decoder selects the class by `subtype`."""


class ControlSuccess(Answer, tag="success", frozen=True):
    """The CLI carried out a request. `payload` is None if the CLI only acknowledges it."""

    request_id: str | None = None
    payload: JsonObject | None = field(name="response", default=None)
    pending_permission_requests: tuple[JsonObject, ...] = ()
    pending_user_dialog_requests: tuple[JsonObject, ...] = ()


class ControlFailure(Answer, tag="error", frozen=True):
    """The CLI rejected a request."""

    error: str
    request_id: str | None = None
    error_code: str | None = None
    model: str | None = None


class ControlResponse(ControlFrame, tag="control_response", frozen=True):
    """A response from the CLI. An unknown subtype is decoded as a failure with misfits."""

    _response: ControlSuccess | ControlFailure = field(name="response")
    # The CLI puts the id inside the response. Other programs put it outside.
    _outer_request_id: str | None = field(name="request_id", default=None)

    @property
    def response(self) -> ControlSuccess | ControlFailure:
        """Return the body of the response."""
        bind_part(self, self._response, "response")
        return self._response

    @property
    def body(self) -> ControlSuccess | ControlFailure:
        """Return the body without binding it to the raw line.

        Its `.raw` and `.misfits` are not available.
        """
        return self._response

    @property
    def request_id(self) -> str | None:
        """Return the id of the request that this response belongs to."""
        inner = self._response.request_id
        return self._outer_request_id if inner is None else inner


class ControlCancel(ControlFrame, tag="control_cancel_request", frozen=True):
    """The CLI cancels a request that it made."""

    request_id: str | None = None
