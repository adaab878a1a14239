"""Where each incoming frame goes, as a table."""

from __future__ import annotations

from enum import Enum, auto

from bridle.controls import (
    CanUseToolRequest,
    ControlCancel,
    ControlRequest,
    ControlResponse,
    ElicitationRequest,
    HookCallbackRequest,
    McpMessageRequest,
    UnknownControlRequest,
)
from bridle.messages import Frame, MalformedLine


class Route(Enum):
    """Who takes a frame."""

    #: A question for the hooks.
    HOOK = auto()
    #: A question for the permission callbacks.
    PERMISSION = auto()
    #: A message for an MCP server of ours.
    MCP = auto()
    #: A question for the elicitation callback.
    ELICITATION = auto()
    #: A question nobody can answer: it is refused.
    REFUSAL = auto()
    #: The CLI takes a question back.
    WITHDRAWAL = auto()
    #: An answer to a request of ours.
    RESPONSE = auto()
    #: Part of the conversation: the only frames that subscribers see.
    SUBSCRIBERS = auto()
    #: Not a frame at all.
    REPORT = auto()


_QUESTIONS: dict[type, Route] = {
    HookCallbackRequest: Route.HOOK,
    CanUseToolRequest: Route.PERMISSION,
    McpMessageRequest: Route.MCP,
    ElicitationRequest: Route.ELICITATION,
    UnknownControlRequest: Route.REFUSAL,
}

_FRAMES: dict[type, Route] = {
    ControlResponse: Route.RESPONSE,
    ControlCancel: Route.WITHDRAWAL,
    MalformedLine: Route.REPORT,
}


def route_incoming(frame: Frame) -> Route:
    """Classify a frame. Whatever is not control traffic is for the subscribers."""
    if type(frame) is ControlRequest:
        return _QUESTIONS[type(frame.request)]
    return _FRAMES.get(type(frame), Route.SUBSCRIBERS)
