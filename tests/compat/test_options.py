"""The options of the official SDK as options of Bridle."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

from bridle.compat.claude_agent_sdk import (
    AgentDefinition,
    CanUseToolShadowedWarning,
    ClaudeAgentOptions,
    ClaudeSDKError,
    HookMatcher,
    InMemorySessionStore,
    PermissionResultAllow,
    ProcessError,
    query,
)
from bridle.compat.claude_agent_sdk._loops.bridge import AsyncioBridge
from bridle.compat.claude_agent_sdk._options import _print_line, native_options
from bridle.options import CliOptions


def cli(**options: Any) -> CliOptions:
    return native_options(ClaudeAgentOptions(**options), AsyncioBridge(), None, None).cli


async def allow(*_: object) -> PermissionResultAllow:
    return PermissionResultAllow()


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({}, "system_prompt", ""),
        ({"system_prompt": "Be brief."}, "system_prompt", "Be brief."),
        ({"system_prompt": {"type": "preset", "preset": "claude_code"}}, "system_prompt", None),
        (
            {"system_prompt": {"type": "preset", "preset": "claude_code", "append": "More."}},
            "append_system_prompt",
            "More.",
        ),
        ({"max_turns": 0}, "max_turns", None),
        ({"max_turns": -1}, "max_turns", 1),
        ({"extra_args": {"fork-session": None}}, "fork_session", False),
        ({"extra_args": {"permission-prompt-tool": "stdio"}}, "permission_prompts", None),
        ({"tools": []}, "tools", ()),
        ({"tools": {"type": "preset", "preset": "claude_code"}}, "tools", "default"),
        (
            {"allowed_tools": ["Read,Write", "Bash(a, b)"]},
            "allowed_tools",
            ("Read", "Write", "Bash(a, b)"),
        ),
        ({"skills": "all"}, "allowed_tools", ("Skill",)),
        ({"skills": ["pdf"]}, "allowed_tools", ("Skill(pdf)",)),
        ({"skills": ["pdf"]}, "setting_sources", ("user", "project")),
        ({"resume": ""}, "resume_session_id", None),
        ({"fork_session": True}, "fork_session", False),
        ({"task_budget": {"total": 7}}, "task_budget", 7),
        ({"extra_args": {"debug-to-stderr": None}}, "extra_args", ("--debug-to-stderr",)),
        ({"extra_args": {"model": "opus"}}, "model", "opus"),
        ({"extra_args": {"max-turns": "3"}}, "max_turns", 3),
        ({"extra_args": {"max-turns": "0"}}, "max_turns", None),
        ({"extra_args": {"max-turns": "-1"}}, "max_turns", 1),
        ({"extra_args": {"verbose": None}}, "extra_args", None),
        (
            {"extra_args": {"dangerously-skip-permissions": None}},
            "permission_mode",
            "bypassPermissions",
        ),
        (
            {"disallowed_tools": ["Bash"], "extra_args": {"disallowedTools": "Write"}},
            "disallowed_tools",
            ("Bash", "Write"),
        ),
        (
            {"allowed_tools": ["Bash"], "extra_args": {"allowed-tools": "Write Read"}},
            "allowed_tools",
            ("Bash", "Write", "Read"),
        ),
        ({"add_dirs": ["/a"], "extra_args": {"add-dir": "/b,c"}}, "add_dirs", ("/a", "/b,c")),
        (
            {
                "mcp_servers": {"a": {"command": "x"}},
                "extra_args": {"mcp-config": '{"mcpServers": {"b": {"command": "y"}}}'},
            },
            "mcp_config",
            {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}},
        ),
        ({"resume": "s", "continue_conversation": True}, "resume_session_id", None),
        ({"resume": "s", "extra_args": {"continue": None}}, "continue_session", True),
        (
            {
                "resume": "11111111-1111-4111-8111-111111111111",
                "continue_conversation": True,
                "session_store": InMemorySessionStore(),
            },
            "resume_session_id",
            "11111111-1111-4111-8111-111111111111",
        ),
        ({"env": {"CLAUDECODE": "", "A": "b"}}, "env", {"A": "b"}),
        ({"thinking": {"type": "disabled"}, "max_thinking_tokens": 5}, "max_thinking_tokens", None),
        ({"can_use_tool": None}, "permission_prompts", "cli"),
        ({"can_use_tool": allow}, "permission_prompts", None),
        ({"permission_prompt_tool_name": "mcp__a__b"}, "permission_prompts", None),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_an_option_has_its_meaning(given: dict[str, Any], field: str, value: object) -> None:
    assert getattr(cli(**given), field) == value


def test_an_agent_keeps_the_fields_that_are_set() -> None:
    agents: Any = cli(agents={"a": AgentDefinition("d", "p", maxTurns=2)}).agents
    [agent] = agents
    assert (agent.name, agent.description, agent.max_turns, agent.model) == ("a", "d", 2, None)


def test_servers_of_this_process_are_separated_from_others() -> None:
    from bridle.compat.claude_agent_sdk import create_sdk_mcp_server

    given: Any = {"mine": create_sdk_mcp_server("mine"), "other": {"command": "x"}}
    options = native_options(ClaudeAgentOptions(mcp_servers=given), AsyncioBridge(), None, None)
    assert options.cli.mcp_config == {"mcpServers": {"other": {"command": "x"}}}
    assert options.bidir.server_names() == ("mine",)


def test_hooks_are_called_in_parallel_with_the_timeout_of_the_cli() -> None:
    async def hook(*_: object) -> Any:
        return {}

    matchers = [
        HookMatcher("Bash", [hook], on_failure="block"),
        HookMatcher(hooks=[hook], timeout=5),
    ]
    given = ClaudeAgentOptions(hooks={"PreToolUse": matchers})
    bidir = native_options(given, AsyncioBridge(), None, None).bidir
    hooks = bidir.all_hooks()["PreToolUse"]
    assert bidir.parallel_hooks
    assert [(one.matcher, one.timeout, one.on_error) for one in hooks] == [
        ("Bash", 600.0, "block"),
        (None, 5, "continue"),
    ]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"can_use_tool": allow, "permission_prompt_tool_name": "x"}, ValueError),
        ({"skills": "pdf"}, TypeError),
        ({"skills": [1]}, TypeError),
        ({"skills": ["a(b)"]}, ValueError),
        ({"skills": ["/a"]}, ValueError),
        ({"session_id": "abc"}, ValueError),
        ({"plugins": [{"type": "remote", "path": "x"}]}, ValueError),
    ],
)
def test_an_invalid_option_is_rejected(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        cli(**given)


@pytest.mark.parametrize(
    ("given", "warns"),
    [
        ({"allowed_tools": ["Read"]}, True),
        ({"allowed_tools": ["Bash(ls:*)"]}, False),
        ({"permission_mode": "bypassPermissions"}, True),
        ({}, False),
    ],
)
def test_a_callback_that_is_not_always_called_is_reported(
    given: dict[str, Any], warns: bool
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cli(can_use_tool=allow, **given)
    assert [one.category for one in caught] == [CanUseToolShadowedWarning] * warns


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"settings": "/no/such/mcp_config"}, "settings names /no/such/mcp_config,"),
        ({"mcp_servers": "/no/such/file"}, "mcp_servers names /no/such/file,"),
        ({"resume_session_at": "x"}, "Set resume as well"),
        ({"extra_args": {"max-turns": "many"}}, "max_turns has the value 'many'"),
        (
            {
                "mcp_servers": {"a": {"command": "x"}},
                "extra_args": {"mcp-config": '{"mcpServers": ["x"]}'},
            },
            "mcp_servers is not an MCP configuration",
        ),
    ],
)
async def test_a_rejected_option_is_reported_under_its_official_name(
    given: dict[str, Any], text: str
) -> None:
    """The error has the class of the official SDK, and is a ValueError as well."""
    with pytest.raises(ProcessError) as caught:
        async for _ in query(prompt="Hi", options=ClaudeAgentOptions(**given)):
            pass
    assert isinstance(caught.value, ValueError)
    assert text in str(caught.value)


async def test_the_warning_names_the_line_of_the_program() -> None:
    given = ClaudeAgentOptions(can_use_tool=allow, allowed_tools=["Read"], cli_path="/no/such/cli")
    with pytest.warns(CanUseToolShadowedWarning) as caught, pytest.raises(ClaudeSDKError):
        async for _ in query(prompt="Hi", options=given):
            pass
    assert caught[0].filename == __file__


def test_stderr_of_the_cli_is_not_printed_without_a_console(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    _print_line("a line")
    assert capsys.readouterr().out == ""
