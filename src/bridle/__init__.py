"""Bridle: full-duplex control of the Claude Code CLI.

This module is the public face: every public name, re-exported once. What is not listed in
``__all__`` is private, wherever it lives; the modules taken with a star say in their own
``__all__`` what of them is public. The vocabulary is here at once; what needs an event loop and an
operating system is loaded when it is first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridle import api, content, controls, events, messages, outcomes, permissions, system
from bridle._core.precedence import IgnoredSetting, ResolvedOptions, resolve_options
from bridle._core.wire import decode_line
from bridle.agents import AgentConfig
from bridle.api import *
from bridle.content import *
from bridle.controls import *
from bridle.errors import (
    ApiError,
    AuthFailedError,
    BridleError,
    BufferOverflow,
    CheckpointingNotEnabled,
    CliExitedDuringInit,
    CliExitedError,
    CliNotFoundError,
    ConsumerTooSlow,
    ControlError,
    ControlRejected,
    ControlTimeout,
    ExecutionError,
    FirstEventLimitError,
    IdleLimitError,
    InitializationError,
    InitializationTimeout,
    InitQueueOverflow,
    MaxBudgetError,
    MaxTurnsError,
    MessageLostError,
    OptionsError,
    OutcomeError,
    OutputInvalidError,
    OutputMissingError,
    ProcessInfo,
    PromptBlockedError,
    RateLimitedError,
    RefusedError,
    SessionNotFoundError,
    SessionNotInitialized,
    SessionStopped,
    SpawnError,
    StartError,
    StoppedByHookError,
    ToolDeferredError,
    ToolFailure,
    TooManyPendingRequests,
    TotalLimitError,
    TransportError,
    TurnInterruptedError,
    TurnsLimitError,
    TurnStoppedError,
    UnsupportedCliVersionError,
    UsageError,
    UsdLimitError,
)
from bridle.events import *
from bridle.hooks import (
    HOOK_EVENTS,
    BatchedToolCall,
    Block,
    ConfigChangeContext,
    Continue,
    CwdChangedContext,
    DirectoryAddedContext,
    ElicitationContext,
    ElicitationResultContext,
    EndTurn,
    FileChangedContext,
    Hook,
    HookCallback,
    HookContext,
    HookEvent,
    HookOutput,
    HookResult,
    InstructionsLoadedContext,
    MessageDisplayContext,
    ModifyInput,
    NotificationContext,
    PermissionDeniedContext,
    PermissionRequestContext,
    PostCompactContext,
    PostModelSwitchContext,
    PostToolBatchContext,
    PostToolUseContext,
    PostToolUseFailureContext,
    PreCompactContext,
    PreModelSwitchContext,
    PreToolUseContext,
    SessionEndContext,
    SessionStartContext,
    SetupContext,
    StopContext,
    StopFailureContext,
    SubagentStartContext,
    SubagentStopContext,
    TaskCompletedContext,
    TaskCreatedContext,
    TeammateIdleContext,
    ToolHookContext,
    UnknownHookContext,
    UserPromptExpansionContext,
    UserPromptSubmitContext,
    WorktreeCreateContext,
    WorktreeRemoveContext,
)
from bridle.messages import *
from bridle.options import (
    BidirOptions,
    CliOptions,
    Effort,
    Limits,
    PermissionMode,
    SdkOptions,
    SettingSource,
)
from bridle.outcomes import Outcome, OutcomeReason
from bridle.permissions import *
from bridle.system import *
from bridle.tools import McpError, McpResponse, Tool, ToolContext, ToolServer, tool

if TYPE_CHECKING:
    from bridle._core.growing import PartialMessages
    from bridle._doors.query import QueryStream, query
    from bridle._doors.run import run
    from bridle._doors.session import Session, start_session
    from bridle._doors.subscription import Subscription, TextPieces
    from bridle._doors.turn import Turn
    from bridle.outcomes import Clock
    from bridle.telemetry import Telemetry

_LAZY = {
    "PartialMessages": "bridle._core.growing",
    "QueryStream": "bridle._doors.query",
    "Session": "bridle._doors.session",
    "Subscription": "bridle._doors.subscription",
    "Telemetry": "bridle.telemetry",
    "TextPieces": "bridle._doors.subscription",
    "Turn": "bridle._doors.turn",
    "query": "bridle._doors.query",
    "run": "bridle._doors.run",
    "start_session": "bridle._doors.session",
}


def __getattr__(name: str) -> object:
    """Load a door when it is first named."""
    from importlib import import_module

    if name == "sync":
        return import_module("bridle.sync")
    if name not in _LAZY:
        raise AttributeError(f"module 'bridle' has no attribute {name!r}")
    value: object = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def _clock() -> Clock:
    from bridle._shell import timer

    return timer


outcomes.bind_clock(_clock)

__all__ = [
    "HOOK_EVENTS",
    "AgentConfig",
    "ApiError",
    "AuthFailedError",
    "BatchedToolCall",
    "BidirOptions",
    "Block",
    "BridleError",
    "BufferOverflow",
    "CheckpointingNotEnabled",
    "CliExitedDuringInit",
    "CliExitedError",
    "CliNotFoundError",
    "CliOptions",
    "ConfigChangeContext",
    "ConsumerTooSlow",
    "Continue",
    "ControlError",
    "ControlRejected",
    "ControlTimeout",
    "CwdChangedContext",
    "DirectoryAddedContext",
    "Effort",
    "ElicitationContext",
    "ElicitationResultContext",
    "EndTurn",
    "ExecutionError",
    "FileChangedContext",
    "FirstEventLimitError",
    "Hook",
    "HookCallback",
    "HookContext",
    "HookEvent",
    "HookOutput",
    "HookResult",
    "IdleLimitError",
    "IgnoredSetting",
    "InitQueueOverflow",
    "InitializationError",
    "InitializationTimeout",
    "InstructionsLoadedContext",
    "Limits",
    "MaxBudgetError",
    "MaxTurnsError",
    "McpError",
    "McpResponse",
    "MessageDisplayContext",
    "MessageLostError",
    "ModifyInput",
    "NotificationContext",
    "OptionsError",
    "Outcome",
    "OutcomeError",
    "OutcomeReason",
    "OutputInvalidError",
    "OutputMissingError",
    "PartialMessages",
    "PermissionDeniedContext",
    "PermissionMode",
    "PermissionRequestContext",
    "PostCompactContext",
    "PostModelSwitchContext",
    "PostToolBatchContext",
    "PostToolUseContext",
    "PostToolUseFailureContext",
    "PreCompactContext",
    "PreModelSwitchContext",
    "PreToolUseContext",
    "ProcessInfo",
    "PromptBlockedError",
    "QueryStream",
    "RateLimitedError",
    "RefusedError",
    "ResolvedOptions",
    "SdkOptions",
    "Session",
    "SessionEndContext",
    "SessionNotFoundError",
    "SessionNotInitialized",
    "SessionStartContext",
    "SessionStopped",
    "SettingSource",
    "SetupContext",
    "SpawnError",
    "StartError",
    "StopContext",
    "StopFailureContext",
    "StoppedByHookError",
    "SubagentStartContext",
    "SubagentStopContext",
    "Subscription",
    "TaskCompletedContext",
    "TaskCreatedContext",
    "TeammateIdleContext",
    "Telemetry",
    "TextPieces",
    "TooManyPendingRequests",
    "Tool",
    "ToolContext",
    "ToolDeferredError",
    "ToolFailure",
    "ToolHookContext",
    "ToolServer",
    "TotalLimitError",
    "TransportError",
    "Turn",
    "TurnInterruptedError",
    "TurnStoppedError",
    "TurnsLimitError",
    "UnknownHookContext",
    "UnsupportedCliVersionError",
    "UsageError",
    "UsdLimitError",
    "UserPromptExpansionContext",
    "UserPromptSubmitContext",
    "WorktreeCreateContext",
    "WorktreeRemoveContext",
    "decode_line",
    "query",
    "resolve_options",
    "run",
    "start_session",
    "tool",
]
__all__ += api.__all__
__all__ += content.__all__
__all__ += controls.__all__
__all__ += events.__all__
__all__ += messages.__all__
__all__ += permissions.__all__
__all__ += system.__all__
