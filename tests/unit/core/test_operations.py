"""A malformed control request never leaves: an older CLI would hang on it."""

from __future__ import annotations

import pytest

from bridle._core.operations import FIELDS, prepare_operation, unknown_mode
from bridle._option_checks import PERMISSION_MODES
from bridle.errors import OptionsError

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
    ("from_the_future", {"anything": object()}),
    ("mcp_status", {}),
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
    assert set(FIELDS) <= {operation for operation, _ in GOOD}
    assert set(FIELDS) <= {operation for operation, _, _ in BAD}


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
