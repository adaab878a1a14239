"""Frames of the control protocol: requests and responses that travel between the messages.

The rule of this file: a frame can always be answered. A field without a default is one that an
answer cannot do without; the wire may still leave it out, and then the decoder fills in an empty
value and names the field in `.misfits`. Requests of a subtype that is not here arrive as
`UnknownControlRequest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct, field

from bridle._source import JsonObject, Sourced, WholeLine, bind_part

__all__ = [
    "CanUseToolRequest",
    "ControlCancel",
    "ControlFailure",
    "ControlRequest",
    "ControlResponse",
    "ControlSuccess",
    "ElicitationRequest",
    "HookCallbackRequest",
    "McpMessageRequest",
    "RequestBody",
    "UnknownControlRequest",
]


class ControlFrame(WholeLine, Struct, frozen=True, repr_omit_defaults=True):
    """A line of the control protocol."""


# ------------------------------------------------------------------------- requests of the CLI


class IncomingRequest(Sourced, Struct, frozen=True, repr_omit_defaults=True, tag_field="subtype"):
    """A request of the CLI, by subtype."""


class HookCallbackRequest(IncomingRequest, tag="hook_callback", frozen=True):
    """A hook is to run. `tool_use_id` is a random id for events without a tool."""

    callback_id: str
    input: JsonObject = field(default_factory=JsonObject)
    tool_use_id: str | None = None


class CanUseToolRequest(IncomingRequest, tag="can_use_tool", frozen=True):
    """May this tool run? `CanUseToolContext` has the same fields, in the same order."""

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
    """A JSON-RPC message for an MCP server that lives in our process."""

    server_name: str
    message: JsonObject


class ElicitationRequest(IncomingRequest, tag="elicitation", frozen=True):
    """An MCP server wants something from the user."""

    mcp_server_name: str = ""
    message: str = ""
    mode: str | None = None
    requested_schema: JsonObject | None = None
    property_order: tuple[str, ...] = ()
    url: str | None = None
    elicitation_id: str | None = None


class UnknownControlRequest(Sourced, Struct, frozen=True):
    """A request that this version of Bridle does not know, kept as it was."""

    subtype: str
    raw: Any


if TYPE_CHECKING:
    RequestBody: TypeAlias = (
        HookCallbackRequest
        | CanUseToolRequest
        | McpMessageRequest
        | ElicitationRequest
        | UnknownControlRequest
    )
    """Every kind of request that the CLI sends."""
else:
    RequestBody = HookCallbackRequest | CanUseToolRequest | McpMessageRequest | ElicitationRequest


class ControlRequest(ControlFrame, tag="control_request", frozen=True):
    """The CLI asks. Without a `request_id` the answer goes without one too."""

    # Behind `.request`, which binds the body before it hands it out.
    _request: RequestBody = field(name="request")
    request_id: str | None = None

    @property
    def request(self) -> RequestBody:
        """What is asked."""
        bind_part(self, self._request, "request")
        return self._request

    @property
    def body(self) -> RequestBody:
        """What is asked, cut off from the line: all but its `.raw` and `.misfits`."""
        return self._request

    def wire_body(self) -> JsonObject:
        """What is asked, as it stands on the wire."""
        return cast("JsonObject", self.request.raw)


# ------------------------------------------------------------------------- answers of the CLI


class Answer(Sourced, Struct, frozen=True, repr_omit_defaults=True, tag_field="subtype"):
    """What the CLI answers, by subtype."""


class ControlSuccess(Answer, tag="success", frozen=True):
    """The answer to a request of ours; a bare acknowledgement has no payload."""

    request_id: str | None = None
    payload: JsonObject | None = field(name="response", default=None)
    pending_permission_requests: tuple[JsonObject, ...] = ()
    pending_user_dialog_requests: tuple[JsonObject, ...] = ()


class ControlFailure(Answer, tag="error", frozen=True):
    """A request of ours was refused."""

    error: str
    request_id: str | None = None
    error_code: str | None = None
    model: str | None = None


class ControlResponse(ControlFrame, tag="control_response", frozen=True):
    """The CLI answers. What is neither success nor error counts as a failure with misfits."""

    _response: ControlSuccess | ControlFailure = field(name="response")
    # The CLI names the request inside the response; other writers of this protocol outside it.
    _outer_request_id: str | None = field(name="request_id", default=None)

    @property
    def response(self) -> ControlSuccess | ControlFailure:
        """What is answered."""
        bind_part(self, self._response, "response")
        return self._response

    @property
    def body(self) -> ControlSuccess | ControlFailure:
        """What is answered, cut off from the line: all but its `.raw` and `.misfits`."""
        return self._response

    @property
    def request_id(self) -> str | None:
        """The request of ours this belongs to."""
        inner = self._response.request_id
        return self._outer_request_id if inner is None else inner


class ControlCancel(ControlFrame, tag="control_cancel_request", frozen=True):
    """The CLI no longer waits for an answer of ours."""

    request_id: str | None = None
