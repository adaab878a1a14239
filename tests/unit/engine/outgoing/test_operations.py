"""A malformed control request never leaves: an older CLI would hang on it."""

from __future__ import annotations

import pytest

from bridle._engine.outgoing.operations import (
    OPERATIONS,
    default_timeout,
    prepare_operation,
    unknown_mode,
)
from bridle.errors import OptionsError
from bridle.options._checks import PERMISSION_MODES

GOOD: list[tuple[str, dict[str, object]]] = [
    ("interrupt", {}),
    ("interrupt", {"cancel_queued": True}),
    ("set_model", {"model": "opus"}),
    ("set_model", {"model": None}),
    *[("set_permission_mode", dict[str, object](mode=mode)) for mode in PERMISSION_MODES],
    ("set_max_thinking_tokens", {"max_thinking_tokens": 0}),
    ("set_max_thinking_tokens", {"max_thinking_tokens": None}),
    ("rewind_files", {"user_message_id": "u"}),
    ("rewind_files", {"user_message_id": "u", "dry_run": False}),
    ("cancel_async_message", {"message_uuid": "u"}),
    ("apply_flag_settings", {"settings": {}}),
    ("mcp_set_servers", {"servers": {}}),
    ("mcp_reconnect", {"serverName": "s"}),
    ("mcp_toggle", {"serverName": "s", "enabled": False}),
    ("mcp_call", {"tool": "t"}),
    ("mcp_call", {"tool": "t", "arguments": {"a": 1}}),
    ("mcp_message", {"server_name": "s", "message": {}}),
    ("stop_task", {"task_id": "t"}),
    ("get_task_output", {"task_id": "t"}),
    ("background_tasks", {"tool_use_id": "t"}),
    ("mcp_read_resource", {"serverName": "s", "uri": "ui://s/page"}),
    ("get_context_usage", {"detail": "summary"}),
    ("update_settings", {"source": "localSettings", "settings": {}}),
    ("read_file", {"path": "p", "max_bytes": 1, "encoding": "base64"}),
    ("file_suggestions", {"query": ""}),
    ("seed_read_state", {"path": "p", "mtime": 1.5}),
    ("register_repo_root", {"directory": "d", "reload_skills": True}),
    ("reload_plugins", {"add_plugins": [{"path": "p"}], "refuse_if_busy": False}),
    ("rename_session", {"title": "t"}),
    ("generate_session_title", {"description": "d", "persist": False}),
    ("side_question", {"question": "q"}),
    ("end_session", {"reason": "r"}),
    ("get_usage", {"skip_behaviors": True}),
    ("set_has_subscribers", {"has_subscribers": None}),
    *[(subtype, dict[str, object]()) for subtype, row in OPERATIONS.items() if not row.fields],
    ("from_the_future", {"anything": object()}),
]

THINKING = "set_max_thinking_tokens"
ODD: tuple[object, ...] = (-1, 1.5, "9", True)
BAD: list[tuple[str, dict[str, object], str]] = [
    ("interrupt", {"cancel_queued": "yes"}, "interrupt.cancel_queued"),
    ("set_model", {"model": 5}, "set_model.model"),
    ("set_model", {"model": ""}, "set_model.model"),
    ("set_model", {}, "set_model.model"),
    ("set_permission_mode", {"mode": ""}, "set_permission_mode.mode"),
    ("set_permission_mode", {"mode": ["plan"]}, "set_permission_mode.mode"),
    ("set_permission_mode", {}, "set_permission_mode.mode"),
    *[(THINKING, {"max_thinking_tokens": odd}, f"{THINKING}.max_thinking_tokens") for odd in ODD],
    ("rewind_files", {}, "rewind_files.user_message_id"),
    ("rewind_files", {"user_message_id": ""}, "rewind_files.user_message_id"),
    ("rewind_files", {"user_message_id": "u", "dry_run": 1}, "rewind_files.dry_run"),
    ("cancel_async_message", {"message_uuid": None}, "cancel_async_message.message_uuid"),
    ("apply_flag_settings", {}, "apply_flag_settings.settings"),
    ("apply_flag_settings", {"settings": []}, "apply_flag_settings.settings"),
    ("mcp_set_servers", {}, "mcp_set_servers.servers"),
    ("mcp_set_servers", {"servers": ["s"]}, "mcp_set_servers.servers"),
    ("mcp_reconnect", {"server_name": "s"}, "mcp_reconnect.serverName"),
    ("mcp_toggle", {"serverName": "s"}, "mcp_toggle.enabled"),
    ("mcp_toggle", {"serverName": "s", "enabled": "on"}, "mcp_toggle.enabled"),
    ("mcp_call", {}, "mcp_call.tool"),
    ("mcp_call", {"tool": "t", "arguments": "a"}, "mcp_call.arguments"),
    ("mcp_message", {"server_name": "s"}, "mcp_message.message"),
    ("stop_task", {}, "stop_task.task_id"),
    ("get_task_output", {"task_id": 5}, "get_task_output.task_id"),
    ("background_tasks", {"tool_use_id": 5}, "background_tasks.tool_use_id"),
    ("mcp_read_resource", {"serverName": "s"}, "mcp_read_resource.uri"),
    ("get_context_usage", {"detail": True}, "get_context_usage.detail"),
    ("update_settings", {"source": "localSettings"}, "update_settings.settings"),
    ("read_file", {"path": "p", "max_bytes": -1}, "read_file.max_bytes"),
    ("file_suggestions", {"query": None}, "file_suggestions.query"),
    ("seed_read_state", {"path": "p", "mtime": True}, "seed_read_state.mtime"),
    (
        "register_repo_root",
        {"directory": "d", "reload_skills": 1},
        "register_repo_root.reload_skills",
    ),
    ("reload_plugins", {"add_plugins": "p"}, "reload_plugins.add_plugins"),
    ("rename_session", {"title": ""}, "rename_session.title"),
    ("generate_session_title", {}, "generate_session_title.description"),
    ("side_question", {}, "side_question.question"),
    ("end_session", {"reason": ""}, "end_session.reason"),
    ("get_usage", {"skip_behaviors": "yes"}, "get_usage.skip_behaviors"),
    ("set_has_subscribers", {"has_subscribers": 1}, "set_has_subscribers.has_subscribers"),
    ("", {}, "subtype"),
    ("initialize", {"hooks": {}}, "subtype"),
]


@pytest.mark.parametrize(("operation", "fields"), GOOD)
@pytest.mark.requirement("S055")
def test_a_well_formed_operation_passes(operation: str, fields: dict[str, object]) -> None:
    """R192, R352."""
    prepare_operation(operation, fields)


@pytest.mark.parametrize(("operation", "fields", "named"), BAD)
def test_a_malformed_operation_is_refused_by_name_with_a_way_out(
    operation: str, fields: dict[str, object], named: str
) -> None:
    """R352."""
    with pytest.raises(OptionsError) as refused:
        prepare_operation(operation, fields)
    assert refused.value.field == named
    assert refused.value.fix


def test_every_operation_of_the_table_is_tried_both_ways() -> None:
    assert set(OPERATIONS) <= {operation for operation, _ in GOOD}
    checked = {subtype for subtype, row in OPERATIONS.items() if row.fields}
    assert checked <= {operation for operation, _, _ in BAD}


TIMEOUT_FACTORS = {
    "mcp_reconnect": 2,
    "mcp_toggle": 2,
    "mcp_set_servers": 2,
    "mcp_call": 4,
    "get_context_usage": 2,
    "register_repo_root": 2,
    "rewind_files": 4,
    "reload_plugins": 2,
    "generate_session_title": 4,
    "side_question": 4,
}


@pytest.mark.parametrize("operation", [*OPERATIONS, "x"])
def test_slow_operations_have_the_documented_multiple_of_the_timeout(operation: str) -> None:
    assert default_timeout(operation, 30.0) == 30.0 * TIMEOUT_FACTORS.get(operation, 1)


def test_an_unknown_permission_mode_is_sent_with_a_warning() -> None:
    fields = {"mode": "pln"}
    assert prepare_operation("set_permission_mode", fields) == fields
    text = unknown_mode("set_permission_mode", fields) or ""
    assert "'pln'" in text
    assert "Did you mean 'plan'?" in text
    assert unknown_mode("set_permission_mode", {"mode": "plan"}) is None
    assert unknown_mode("set_model", {"model": "pln"}) is None


def test_a_long_value_is_not_quoted_in_full() -> None:
    with pytest.raises(OptionsError) as refused:
        prepare_operation("set_model", {"model": ["x" * 1000]})
    assert len(refused.value.problem) < 100


@pytest.mark.parametrize("operation", ["apply_flag_settings", "update_settings"])
def test_settings_cannot_switch_off_the_hooks_of_the_program(operation: str) -> None:
    fields = {"source": "x", "settings": {"env": {"CLAUDE_CODE_SIMPLE": "1"}}}
    assert prepare_operation(operation, fields) == fields
    with pytest.raises(OptionsError, match="CLAUDE_CODE_SIMPLE") as caught:
        prepare_operation(operation, fields, has_gates=True)
    assert caught.value.field == f"{operation}.settings"
    for settings in ({}, {"env": None}, {"env": {"OTHER": "1"}}):
        prepare_operation(operation, {**fields, "settings": settings}, has_gates=True)
