"""Facts about the CLI that the fake reports, for three CLI versions.

Frames are built as the newest CLI sends them. :data:`NEWEST_MEMBERS` and :data:`NEWER` list the
members that an older CLI leaves out, so all versions share the code that builds frames.
"""

from __future__ import annotations

from .values import Json

NEWEST = "2.1.326"
NEWER_VERSION = "2.1.325"
OLDER = "2.1.197"

NEWEST_MEMBERS: dict[str, frozenset[str]] = {
    "initialize": frozenset({"hooks_when_unanswered_kept", "mcp_servers_applied"})
}
"""Members of each kind of object that only the newest CLI sends."""

NEWER: dict[str, frozenset[str]] = {
    "assistant": frozenset(
        {
            "timestamp",
            "user_message_uuid",
            "user_message_uuids",
            "aborted",
            "is_api_error_message",
            "api_error_status",
            "api_error_type",
        }
    ),
    "user": frozenset({"tool_result_meta"}),
    "result": frozenset(
        {
            "fast_mode_disabled_reason",
            "subagent_stats",
            "safety_stops",
            "queued_turn_count",
            "result_index",
            "model_usage_since_last_result",
            "user_message_uuid",
            "user_message_uuids",
            "first_content_frame_ms",
            "request_sent_wall_ms",
            "first_request_input_tokens",
            "first_request_cache_read_input_tokens",
            "api_error_type",
        }
    ),
    "system": frozenset(
        {
            "terminal_slash_commands",
            "capabilities",
            "original_cwd",
            "additional_directories",
            "messaging_socket_path",
            "fast_mode_disabled_reason",
            "per_turn_effort_active",
            "ultrathink_available",
            "ultrathink_typed_raises",
            "view_mode",
            "user_message_uuid",
            "user_message_uuids",
            "prompt_submit_outcome",
        }
    ),
    "stream_event": frozenset({"api_message_id", "thinking_display"}),
    "usage": frozenset({"output_tokens_details", "fallback_credit"}),
    "model_usage": frozenset(
        {
            "thinkingTokens",
            "cacheCreationEphemeral5mInputTokens",
            "cacheCreationEphemeral1hInputTokens",
            "canonicalModel",
            "provider",
            "costBasis",
        }
    ),
    "tool_use_meta": frozenset({"tool_name"}),
    "mcp_server": frozenset({"source"}),
    "mcp_status": frozenset({"transport", "source"}),
    "can_use_tool": frozenset(
        {"mcp_server", "server_policy_ask_only", "requires_user_interaction"}
    ),
    "elicitation": frozenset({"property_order"}),
    "command": frozenset({"builtin"}),
    "model": frozenset({"supportsThinkingOff"}),
    "initialize": frozenset(
        {
            "user_output_styles_dir",
            "claude_code_version",
            "current_permission_mode",
            "hooks_applied",
            "hook_on_failure_supported",
            "other_hook_ask_outranks_host",
            "feedback_mode",
            "analytics_disabled",
            "remote_control_auto_enable",
            "remote_control_auto_connect_default",
            "remote_control_available",
            "remote_control_auto_on_by_default",
            "ide_rc_auto_enable_gate",
            "fast_mode_state",
            "fast_mode_disabled_reason",
            "session_state",
            "capabilities",
        }
    ),
    "error": frozenset({"error_code", "model"}),
}
"""Members of each kind of object that the CLIs since 2.1.325 send."""

MODELS = {
    "default": "claude-opus-5-5",
    "opus": "claude-opus-5-5",
    "sonnet": "claude-sonnet-5-5",
    "haiku": "claude-haiku-5-5",
}
"""Model aliases and their full names."""

TOOLS = ["Task", "AskUserQuestion", "Bash", "Edit", "ExitPlanMode", "Read", "WebFetch", "Write"]
AGENTS = ["Explore", "Plan", "general-purpose"]
SLASH_COMMANDS = ["clear", "compact", "context", "init"]
STYLES = ["default", "Explanatory", "Learning"]
MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")

MCP_VERSION = "2025-11-25"

SESSION_CAPABILITIES = [
    "interrupt_receipt_v1",
    "interrupt_cancel_queued_v1",
    "msg_lifecycle_v1",
    "request_marker_lists_v1",
    "sdk_mcp_manifests",
]

SUBAGENTS: Json = {
    "spawned": 0,
    "requested": {"background": 0, "foreground": 0, "unset": 0},
    "started_in_background": 0,
    "max_depth": 0,
    "spawned_by_subagents": 0,
    "completed": 0,
    "failed": 0,
    "killed": {"parent": 0, "user": 0, "system": 0},
    "refused": {"depth_limit": 0, "concurrency_limit": 0, "budget": 0},
    "by_type": {},
}

COST_OF_A_CALL = 0.000105
INPUT_TOKENS = 10
OUTPUT_TOKENS = 5


def commands() -> list[Json]:
    """Return the slash commands with descriptions."""
    return [
        {"name": name, "description": f"Run /{name}.", "argumentHint": "", "builtin": True}
        for name in SLASH_COMMANDS
    ]


def models() -> list[Json]:
    """Return the available models."""
    return [
        {
            "value": alias,
            "resolvedModel": model,
            "displayName": alias.title(),
            "description": f"The model behind {alias}",
            "supportsEffort": True,
            "supportedEffortLevels": ["low", "medium", "high"],
            "supportsAdaptiveThinking": True,
            "supportsFastMode": True,
            "supportsAutoMode": True,
            "supportsThinkingOff": False,
        }
        for alias, model in MODELS.items()
    ]


def usage(calls: int) -> Json:
    """Return the token usage of ``calls`` model calls."""
    return {
        "input_tokens": INPUT_TOKENS * calls,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": OUTPUT_TOKENS * calls,
        "output_tokens_details": {"thinking_tokens": 0},
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
        "inference_geo": "",
        "iterations": [],
        "speed": "standard",
        "fallback_credit": None,
    }


def model_usage(model: str, calls: int) -> Json:
    """Return the token usage per model."""
    return {
        "inputTokens": INPUT_TOKENS * calls,
        "outputTokens": OUTPUT_TOKENS * calls,
        "cacheReadInputTokens": 0,
        "cacheCreationInputTokens": 0,
        "webSearchRequests": 0,
        "costUSD": COST_OF_A_CALL * calls,
        "contextWindow": 200000,
        "maxOutputTokens": 32000,
        "thinkingTokens": 0,
        "cacheCreationEphemeral5mInputTokens": 0,
        "cacheCreationEphemeral1hInputTokens": 0,
        "canonicalModel": model,
        "provider": "firstParty",
        "costBasis": "list",
    }
