"""The native name for each public name of the official SDK, its arguments and its methods.

This module contains data. An empty name means that a program written for Bridle needs none.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bridle.compat._failed_hooks import CANNOT_FAIL, GUARDS, HOOK_TIMEOUT


class Native(msgspec.Struct, frozen=True):
    """A name of Bridle with the module to import it from, and what to know about it."""

    name: str
    module: str = "bridle"
    note: str = ""


_HOOK_DICTIONARY = "Bridle has a record for each hook result in place of dictionaries."
_PLAIN = "A plain string. Bridle has no literal type for it."
_DICTIONARY = "Pass a plain dictionary."
_TYPED = "The reply is a record with attributes, not a dictionary."
_STORED = "Await it, or call it without await in bridle.sync.sessions."
_FROM_STORE = "Pass store=... to the same function that reads the CLI's files."


def _same(module: str, *names: str) -> dict[str, Native]:
    return {name: Native(name, module) for name in names}


def _nothing(note: str, *names: str) -> dict[str, Native]:
    return {name: Native("", "", note) for name in names}


def _outputs(*events: str) -> dict[str, Native]:
    return {
        f"{event}HookSpecificOutput": Native("HookOutput", "bridle", _HOOK_DICTIONARY)
        for event in events
    }


def _contexts(module: str, *events: str) -> dict[str, Native]:
    return {f"{event}HookInput": Native(f"{event}Context", module) for event in events}


NAMES: Mapping[str, Native] = {
    # entry points
    "query": Native("query", note="query(prompt, model=..., ...), or agent.query(prompt)."),
    "ClaudeSDKClient": Native("Session", note="agent.session() returns one. Use `async with`."),
    "ClaudeAgentOptions": Native("Agent", note="agent.replace(...) returns a changed copy."),
    "Transport": Native("", "", "Use transport_factory, or runner for queries without callbacks."),
    "__version__": Native("", "", "importlib.metadata.version('bridle')"),
    # messages and blocks
    **_same(
        *("bridle", "AssistantMessage", "ContentBlock", "Message", "TextBlock", "ThinkingBlock"),
        *("ToolResultBlock", "ToolUseBlock", "UserMessage"),
    ),
    "ResultMessage": Native(
        "ResultMessage", note="usage, model_usage and permission_denials are records."
    ),
    "StreamEvent": Native("StreamEvent", note="event is a record. event.raw is the dictionary."),
    "SystemMessage": Native("SystemMessage", note="raw is the dictionary that data was."),
    **_same(
        *("bridle.messages", "DeferredToolUse", "MirrorErrorMessage", "ModelUsage"),
        *("RateLimitEvent", "RateLimitInfo", "TaskNotificationMessage", "TaskProgressMessage"),
        *("TaskStartedMessage", "TaskUpdatedMessage", "TaskUsage"),
    ),
    "ServerToolUseBlock": Native("ServerToolUseBlock", "bridle.content"),
    "ServerToolResultBlock": Native(
        "AdvisorToolResultBlock",
        "bridle.content",
        "Each server tool has a result class of its own, such as WebSearchToolResultBlock.",
    ),
    "ConversationResetMessage": Native("ConversationReset", "bridle.messages"),
    "HookEventMessage": Native(
        "HookStartedMessage", "bridle.messages", "HookResponseMessage reports the end of the hook."
    ),
    "MessageOrigin": Native("Origin", "bridle.messages"),
    **{
        name: Native("InitMessage", "bridle", "The fields are attributes of the message.")
        for name in (
            *("SystemInitData", "SystemInitMcpServer", "SystemInitPlugin"),
            "SystemInitPluginError",
        )
    },
    **_nothing(
        _PLAIN,
        *("EffortLevel", "FastModeDisabledReason", "FastModeState", "McpServerConnectionStatus"),
        *("MessageOriginKind", "RateLimitStatus", "RateLimitType", "SdkBeta", "ServerToolName"),
        *("TaskNotificationOriginSubkind", "TaskNotificationStatus", "TaskUpdatedStatus"),
        *("AssistantMessageError", "ThinkingDisplay", "PermissionUpdateDestination"),
    ),
    "TERMINAL_TASK_STATUSES": Native("", "", "session.tasks.list() lists the tasks that run."),
    # options
    **_same("bridle.options", "PermissionMode", "SettingSource"),
    "AgentDefinition": Native(
        "AgentConfig", note="It has its name itself, and names in snake case. agents is a list."
    ),
    **_nothing(
        _DICTIONARY,
        *("McpHttpServerConfig", "McpServerConfig", "McpSSEServerConfig", "McpStdioServerConfig"),
        *("SandboxIgnoreViolations", "SandboxNetworkConfig", "SandboxSettings", "ThinkingConfig"),
        *("ThinkingConfigAdaptive", "ThinkingConfigDisabled", "ThinkingConfigEnabled"),
    ),
    "SdkPluginConfig": Native("", "", "Pass the path of the plugin."),
    "SystemPromptCustom": Native("", "", "Use system_prompt and system_prompt_snapshot."),
    "SystemPromptFile": Native("", "", "Use system_prompt_file."),
    "SystemPromptPreset": Native("", "", "Use append_system_prompt and exclude_dynamic_sections."),
    "TaskBudget": Native("", "", "Pass the number: task_budget=n."),
    "ToolsPreset": Native("", "", "Use tools='default'."),
    # permissions
    "CanUseTool": Native("CanUseToolCallback", "bridle.permissions"),
    "CanUseToolShadowedWarning": Native("SdkWarning", note="It goes to on_warning."),
    "PermissionBehavior": Native("PermissionBehavior", "bridle.permissions"),
    "PermissionResult": Native("PermissionResult"),
    "PermissionResultAllow": Native("Allow", note="With updated_input: Edit(new_input)."),
    "PermissionResultDeny": Native("Deny", note="Deny(reason, interrupt=False)."),
    "PermissionRuleValue": Native("PermissionRule", "bridle.permissions"),
    "PermissionUpdate": Native(
        "PermissionUpdate",
        "bridle.permissions",
        "One class for each type: AddRules, ReplaceRules, RemoveRules, AddDirectories, "
        "RemoveDirectories, SetMode.",
    ),
    "ToolPermissionContext": Native("CanUseToolContext"),
    # hooks
    **_contexts(
        *("bridle", "PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop"),
        "PreCompact",
    ),
    **_contexts(
        *("bridle.hooks", "Notification", "PermissionRequest", "PostToolUseFailure"),
        "SubagentStart",
    ),
    **_outputs(
        *("CwdChanged", "Elicitation", "ElicitationResult", "FileChanged", "MessageDisplay"),
        *("Notification", "PermissionDenied", "PermissionRequest", "PostModelSwitch"),
        *("PostToolBatch", "PostToolUse", "PostToolUseFailure", "PreModelSwitch", "PreToolUse"),
        *("SessionStart", "Stop", "SubagentStart", "SubagentStop", "UserPromptExpansion"),
        *("UserPromptSubmit", "WorktreeCreate"),
    ),
    "BackgroundTaskSummary": Native("", "", "Read ctx.background_tasks."),
    "BaseHookInput": Native("HookContext"),
    "HookCallback": Native("HookCallback", "bridle.hooks"),
    "HookContext": Native("HookContext", note="It also has the input of the hook."),
    "HookEffort": Native("", "", "Read ctx.raw['effort']."),
    "HookEvent": Native("HookEvent", "bridle.hooks"),
    "HookInput": Native("HookContext"),
    "AsyncHookJSONOutput": Native("", "", "Start a task and return Continue()."),
    "SyncHookJSONOutput": Native("HookResult", note=_HOOK_DICTIONARY),
    "HookJSONOutput": Native("HookResult", note=_HOOK_DICTIONARY),
    "HookMatcher": Native("Hook", note="One Hook for each function: Hook(function, matcher=...)."),
    "HookSpecificOutput": Native("HookOutput", note=_HOOK_DICTIONARY),
    "SessionCronSummary": Native("", "", "Read ctx.session_crons."),
    # tools and MCP servers
    "create_sdk_mcp_server": Native("ToolServer", note="Its name is the key in mcp_servers."),
    "SdkMcpTool": Native("Tool"),
    "tool": Native("tool", note="Bridle reads the signature and the docstring, or schema=..."),
    "ToolAnnotations": Native("", "", "Pass a mapping: @tool(annotations={...})."),
    "McpSdkServerConfig": Native("ToolServer"),
    "McpSdkServerConfigStatus": Native("ToolServer"),
    "McpServerInfo": Native("McpServerInfo", "bridle.controls"),
    "McpServerStatus": Native("McpServerStatus", "bridle.messages", _TYPED),
    "McpToolInfo": Native("McpToolInfo", "bridle.controls"),
    "McpStatusResponse": Native("McpServerList", "bridle.controls", _TYPED),
    **_nothing(
        _TYPED, "McpServerStatusConfig", "McpToolAnnotations", "McpClaudeAIProxyServerConfig"
    ),
    "ContextUsageResponse": Native("ContextUsage", "bridle.controls", _TYPED),
    "ContextUsageCategory": Native("ContextCategory", "bridle.controls"),
    # stored sessions
    "SDKSessionInfo": Native("SessionInfo", "bridle.sessions"),
    "SessionMessage": Native("Message", "bridle", "read_messages returns ordinary messages."),
    "ForkSessionResult": Native("", "", "fork returns the id of the new session."),
    "list_sessions": Native(
        "list_sessions", "bridle.sessions", f"{_STORED} Only those of the directory itself."
    ),
    "get_session_info": Native(
        "get_session", "bridle.sessions", "It raises SessionNotFoundError if there is no session."
    ),
    "get_session_messages": Native(
        "read_messages", "bridle.sessions", "For limit and offset, take a slice."
    ),
    "list_subagents": Native("read_transcript", "bridle.sessions", "Its attribute subagents."),
    "get_subagent_messages": Native(
        "read_transcript", "bridle.sessions", "Its attribute subagents."
    ),
    "rename_session": Native("rename", "bridle.sessions", _STORED),
    "tag_session": Native("tag", "bridle.sessions", _STORED),
    "delete_session": Native("delete", "bridle.sessions", _STORED),
    "fork_session": Native("fork", "bridle.sessions", "up_to_message_id is up_to."),
    "list_sessions_from_store": Native("list_sessions", "bridle.sessions", _FROM_STORE),
    "get_session_info_from_store": Native("get_session", "bridle.sessions", _FROM_STORE),
    "get_session_messages_from_store": Native("read_messages", "bridle.sessions", _FROM_STORE),
    "list_subagents_from_store": Native("read_transcript", "bridle.sessions", _FROM_STORE),
    "get_subagent_messages_from_store": Native("read_transcript", "bridle.sessions", _FROM_STORE),
    "rename_session_via_store": Native("rename", "bridle.sessions", _FROM_STORE),
    "tag_session_via_store": Native("tag", "bridle.sessions", _FROM_STORE),
    "delete_session_via_store": Native("delete", "bridle.sessions", _FROM_STORE),
    "fork_session_via_store": Native("fork", "bridle.sessions", _FROM_STORE),
    # stores
    "SessionStore": Native("SessionStore", "bridle.sessions", "Official stores are accepted, too."),
    "InMemorySessionStore": Native("MemoryStore", "bridle.sessions"),
    "SessionKey": Native("SessionKey", "bridle.sessions"),
    "SessionStoreEntry": Native("Entry", "bridle.sessions"),
    "SessionStoreListEntry": Native("StoredSession", "bridle.sessions"),
    "import_session_to_store": Native(
        "", "", "Append the entries of read_transcript(session_id) to the store."
    ),
    **_nothing(
        "A store of Bridle has append, load, list and delete only.",
        *("SessionListSubkeysKey", "SessionStoreFlushMode", "SessionSummaryEntry"),
        *("fold_session_summary", "project_key_for_directory"),
    ),
    "run_session_store_conformance": Native("check_store", "bridle.testing.stores"),
    # errors
    "ClaudeSDKError": Native("BridleError"),
    "CLIConnectionError": Native("StartError", note="After the start: TransportError."),
    "CLINotFoundError": Native("CliNotFoundError"),
    "CLIJSONDecodeError": Native("", "", "A line that is not JSON is dropped with a warning."),
    "MessageParseError": Native("", "", "A message that does not fit is an UnknownMessage."),
    "ProcessError": Native("StartError", note="In a turn: outcome.reason is 'cli_exited'."),
    "ResultError": Native("OutcomeError", note="outcome.raise_for_reason() raises it."),
}
"""Official name → native name."""


_CONVERSATION = "It is an argument of agent.run, agent.query and agent.session."

OPTIONS: Mapping[str, Native] = {
    "can_use_tool": Native("on_can_use_tool", "", "The callback gets one context."),
    "continue_conversation": Native("continue_session", "", _CONVERSATION),
    "debug_stderr": Native("", "", "Use on_stderr, which takes a function."),
    "enable_file_checkpointing": Native("file_checkpointing_enabled"),
    "extra_args": Native("extra_args", "", "A list of arguments, such as ['--flag=value']."),
    "fork_session": Native("fork_session", "", _CONVERSATION),
    "hooks": Native("hooks", "", "The callbacks get one context."),
    "load_timeout_ms": Native("load_timeout", "", "In seconds."),
    "mcp_servers": Native(
        "mcp_servers", "", "Servers outside the process go to mcp_config={'mcpServers': {...}}."
    ),
    "output_format": Native("json_schema", "", "Or pass output_type=... to agent.run."),
    "plugins": Native("plugins", "", "A list of paths."),
    "resume": Native("resume_session_id", "", _CONVERSATION),
    "resume_drops_turn": Native("resume_drops_turn", "", _CONVERSATION),
    "resume_session_at": Native("resume_session_at", "", _CONVERSATION),
    "session_id": Native("session_id", "", _CONVERSATION),
    "session_store": Native("store", "", "Stores for the official protocol are accepted."),
    "session_store_flush": Native("", "", "Remove it: Bridle sends entries as they come."),
    "stderr": Native("on_stderr"),
    "system_prompt": Native(
        "system_prompt",
        "",
        "For a preset: append_system_prompt. For a file: system_prompt_file.",
    ),
    "task_budget": Native("task_budget", "", "The number itself."),
}
"""Options whose name or meaning differs. Every other option has the same name and meaning."""

METHODS: Mapping[str, str] = {
    "connect": "session.connect",
    "disconnect": "session.aclose",
    "get_context_usage": "session.context.usage",
    "get_mcp_status": "session.mcp.status",
    "get_server_info": "session.server_info",
    "interrupt": "session.interrupt",
    "query": "session.send_user_message",
    "receive_messages": "session.messages",
    "receive_response": "turn",
    "reconnect_mcp_server": "session.mcp.reconnect",
    "rewind_files": "session.rewind_files",
    "set_model": "session.set_model",
    "set_permission_mode": "session.set_permission_mode",
    "stop_task": "session.tasks.stop",
    "toggle_mcp_server": "session.mcp.toggle",
}
"""Methods of ClaudeSDKClient. `turn` is what ``session.send_user_message`` returned."""

ARGUMENTS: Mapping[str, Mapping[str, Native]] = {
    "ClaudeAgentOptions": OPTIONS,
    "HookMatcher": {
        "hooks": Native("", "", "One Hook for each function."),
        "on_failure": Native("on_error", "", f"Leave it out at {', '.join(sorted(CANNOT_FAIL))}."),
        "timeout": Native("timeout", "", f"Without it: {HOOK_TIMEOUT} seconds, and 60 in Bridle."),
    },
    "PermissionResultAllow": {"updated_input": Native("", "", "Edit(new_input)")},
    "PermissionResultDeny": {"message": Native("reason")},
    "query": {
        "options": Native("", "", "The options are arguments of query, or of Agent."),
        "transport": Native("transport_factory"),
    },
}
"""Arguments whose name or meaning differs, by the function or class that takes them."""

DIFFERENCES: Mapping[str, str] = {
    "system prompt": (
        "Without system_prompt, the CLI uses its own system prompt. The official SDK sends an "
        "empty one: set system_prompt=''."
    ),
    "hooks": (
        "A hook and a permission callback get one context. It has the fields as attributes, and "
        "ctx.raw is the dictionary. A hook returns Block, ModifyInput, EndTurn or HookOutput. A "
        "hook that returns None lets the work continue, also with on_error. At "
        f"{', '.join(sorted(GUARDS))}, set on_timeout='block'. Without timeout=, a hook has 60 "
        f"seconds and not {HOOK_TIMEOUT}. Set parallel_hooks=True if an event has several hooks; "
        "with a store, PreToolUse can then have one."
    ),
    "results": (
        "Each turn ends with one Outcome: `outcome = await turn`, or `await run(prompt)`. Its "
        "reason says how the turn ended; check outcome.ok, not the subtype of a ResultMessage. A "
        "tool returns the result itself, and raises ToolFailure(text) for an error."
    ),
}
"""What differs in all programs, by topic."""
