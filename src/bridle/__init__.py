"""Bridle: run the Claude Code CLI as a subprocess, and control it while it works.

This module exports the names that most programs need, at most 120. Every other public name is in
the ``__all__`` of its module: `bridle.messages`, `bridle.hooks`, `bridle.permissions` and so on.
Importing this module loads the types. Names that need an event loop are loaded at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridle import approvals as approvals
from bridle import content as content
from bridle import controls as controls
from bridle import errors as errors
from bridle import events as events
from bridle import hooks as hooks
from bridle import messages as messages
from bridle import options as options
from bridle import outcomes as outcomes
from bridle import permissions as permissions
from bridle import telemetry as telemetry
from bridle import tools as tools
from bridle._engine.wire.codec import decode_line
from bridle.approvals import PendingApproval
from bridle.content import (
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownBlock,
)
from bridle.errors import (
    BridleError,
    BufferOverflow,
    CheckpointingNotEnabled,
    CliExitedDuringInit,
    CliNotFoundError,
    ConsumerTooSlow,
    ControlError,
    ControlRejected,
    ControlTimeout,
    InitializationError,
    InitializationTimeout,
    InitQueueOverflow,
    OptionsError,
    OutcomeError,
    PoolTimeout,
    SessionInUseError,
    SessionNotFoundError,
    SessionNotInitialized,
    SessionStopped,
    SpawnError,
    StartError,
    ToolFailure,
    TooManyPendingRequests,
    TransportError,
    UnsupportedCliVersionError,
)
from bridle.events import (
    ApiRetry,
    RateLimited,
    SdkWarning,
    SessionCompleted,
    SessionEnded,
    SessionEvent,
    SessionFailed,
    SessionReady,
)
from bridle.hooks import (
    Block,
    Continue,
    Defer,
    EndTurn,
    Hook,
    HookContext,
    HookOutput,
    HookResult,
    ModifyInput,
    PostToolUseContext,
    PreCompactContext,
    PreToolUseContext,
    StopContext,
    SubagentStopContext,
    UserPromptSubmitContext,
)
from bridle.messages import (
    AssistantMessage,
    InitMessage,
    Message,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    UnknownMessage,
    UserMessage,
)
from bridle.options import AgentConfig, BidirOptions, CliOptions, Limits, Retry, SdkOptions
from bridle.options._precedence import IgnoredSetting, ResolvedOptions, resolve_options
from bridle.outcomes import Outcome, OutcomeReason
from bridle.permissions import (
    Accept,
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    Cancel,
    CanUseToolContext,
    Decline,
    Deny,
    Edit,
    ElicitationAnswer,
    ElicitationRequestContext,
    PermissionResult,
    PlanContext,
    PlanResult,
    QuestionContext,
    QuestionResult,
)
from bridle.tools import McpError, McpResponse, Tool, ToolContext, ToolServer, tool

if TYPE_CHECKING:
    from bridle import operations as operations
    from bridle import sessions as sessions
    from bridle import sync as sync
    from bridle._engine.delivery.partial_messages import PartialMessages
    from bridle._engine.state import Lifecycle
    from bridle._session.one_way.query import QueryStream, query
    from bridle._session.readers.subscription import Subscription, TextPieces, TurnEvents
    from bridle._session.run import run
    from bridle._session.session import Session
    from bridle._session.session_start import SessionStart, start_session
    from bridle._session.turn import Turn
    from bridle.agent import Agent
    from bridle.outcomes import Clock

_LAZY = {
    "Agent": "bridle.agent",
    "Lifecycle": "bridle._engine.state",
    "PartialMessages": "bridle._engine.delivery.partial_messages",
    "QueryStream": "bridle._session.one_way.query",
    "Session": "bridle._session.session",
    "SessionStart": "bridle._session.session_start",
    "Subscription": "bridle._session.readers.subscription",
    "TextPieces": "bridle._session.readers.subscription",
    "Turn": "bridle._session.turn",
    "TurnEvents": "bridle._session.readers.subscription",
    "query": "bridle._session.one_way.query",
    "run": "bridle._session.run",
    "start_session": "bridle._session.session_start",
}

_MODULES = (
    approvals,
    content,
    controls,
    errors,
    events,
    hooks,
    messages,
    options,
    outcomes,
    permissions,
    telemetry,
    tools,
)


if not TYPE_CHECKING:  # otherwise type checkers would accept every attribute

    def __getattr__(name: str) -> object:
        """Load a name at its first use. For a name of another public module, name that module."""
        from importlib import import_module

        if name in ("operations", "sessions", "sync"):
            return import_module(f"bridle.{name}")
        if name in _LAZY:
            value: object = getattr(import_module(_LAZY[name]), name)
            globals()[name] = value
            return value
        for module in _MODULES:
            if name in module.__all__:
                raise AttributeError(
                    f"module 'bridle' has no attribute {name!r}. Use {module.__name__}.{name}."
                )
        raise AttributeError(f"module 'bridle' has no attribute {name!r}")


def _clock() -> Clock:
    from bridle._runtime import timer

    return timer


outcomes.bind_clock(_clock)

__all__ = [
    "Accept",
    "Agent",
    "AgentConfig",
    "Allow",
    "AllowAll",
    "AllowOnce",
    "Answers",
    "ApiRetry",
    "AssistantMessage",
    "BidirOptions",
    "Block",
    "BridleError",
    "BufferOverflow",
    "CanUseToolContext",
    "Cancel",
    "CheckpointingNotEnabled",
    "CliExitedDuringInit",
    "CliNotFoundError",
    "CliOptions",
    "ConsumerTooSlow",
    "ContentBlock",
    "Continue",
    "ControlError",
    "ControlRejected",
    "ControlTimeout",
    "Decline",
    "Defer",
    "Deny",
    "Edit",
    "ElicitationAnswer",
    "ElicitationRequestContext",
    "EndTurn",
    "Hook",
    "HookContext",
    "HookOutput",
    "HookResult",
    "IgnoredSetting",
    "ImageBlock",
    "InitMessage",
    "InitQueueOverflow",
    "InitializationError",
    "InitializationTimeout",
    "Lifecycle",
    "Limits",
    "McpError",
    "McpResponse",
    "Message",
    "ModifyInput",
    "OptionsError",
    "Outcome",
    "OutcomeError",
    "OutcomeReason",
    "PartialMessages",
    "PendingApproval",
    "PermissionResult",
    "PlanContext",
    "PlanResult",
    "PoolTimeout",
    "PostToolUseContext",
    "PreCompactContext",
    "PreToolUseContext",
    "QueryStream",
    "QuestionContext",
    "QuestionResult",
    "RateLimited",
    "ResolvedOptions",
    "ResultMessage",
    "Retry",
    "SdkOptions",
    "SdkWarning",
    "Session",
    "SessionCompleted",
    "SessionEnded",
    "SessionEvent",
    "SessionFailed",
    "SessionInUseError",
    "SessionNotFoundError",
    "SessionNotInitialized",
    "SessionReady",
    "SessionStart",
    "SessionStopped",
    "SpawnError",
    "StartError",
    "StopContext",
    "StreamEvent",
    "SubagentStopContext",
    "Subscription",
    "SystemMessage",
    "TextBlock",
    "TextPieces",
    "ThinkingBlock",
    "TooManyPendingRequests",
    "Tool",
    "ToolContext",
    "ToolFailure",
    "ToolResultBlock",
    "ToolServer",
    "ToolUseBlock",
    "TransportError",
    "Turn",
    "TurnEvents",
    "UnknownBlock",
    "UnknownMessage",
    "UnsupportedCliVersionError",
    "UserMessage",
    "UserPromptSubmitContext",
    "decode_line",
    "query",
    "resolve_options",
    "run",
    "start_session",
    "tool",
]
