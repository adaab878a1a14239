"""Option values that this version of Bridle does not know are described for a warning."""

from __future__ import annotations

from typing import Any

import pytest

from bridle._engine.incoming.hook_rules import RULES
from bridle.hooks import HOOK_EVENTS, Hook
from bridle.options import BidirOptions, CliOptions
from bridle.options._unknown_values import unknown_values
from bridle.tools._cli_tools import TOOL_EVENTS

AGENT = {"description": "d", "prompt": "p"}


def hook(_: object) -> None:
    """Do nothing."""


def told(cli: dict[str, Any], bidir: dict[str, Any] | None = None) -> list[str]:
    return list(unknown_values(CliOptions(**cli), BidirOptions(**(bidir or {}))))


@pytest.mark.parametrize(
    ("cli", "field", "value", "guess", "known"),
    [
        ({"permission_mode": "acceptEdit"}, "CliOptions.permission_mode", "acceptEdit",
         "acceptEdits", "bypassPermissions"),
        ({"effort": "hihg"}, "CliOptions.effort", "hihg", "high", "xhigh"),
        ({"thinking": "adaptiv"}, "CliOptions.thinking.type", "adaptiv", "adaptive", "disabled"),
        ({"thinking": {"type": "enabled", "display": "omited"}}, "CliOptions.thinking.display",
         "omited", "omitted", "summarized"),
        ({"setting_sources": ["user", "projct"]}, "CliOptions.setting_sources", "projct",
         "project", "local"),
        ({"tool_config": {"ask_user_question": {"preview_format": "htm"}}},
         "CliOptions.tool_config.ask_user_question.preview_format", "htm", "html", "markdown"),
        ({"agents": {"a": {**AGENT, "permissionMode": "plann"}}},
         "CliOptions.agents['a'].permission_mode", "plann", "plan", "acceptEdits"),
        ({"agents": {"a": {**AGENT, "effort": "lo"}}}, "CliOptions.agents['a'].effort", "lo",
         "low", "max"),
        ({"agents": {"a": {**AGENT, "memory": "locl"}}}, "CliOptions.agents['a'].memory", "locl",
         "local", "user"),
        ({"agents": {"a": {**AGENT, "skils": ["s"]}}}, "CliOptions.agents['a']", "skils",
         "skills", "max_turns"),
        ({"tools": ["Read", "Bahs"]}, "CliOptions.tools", "Bahs", "Bash", "WebFetch"),
        ({"allowed_tools": ["bash(git log:*)", "Read"]}, "CliOptions.allowed_tools", "bash",
         "Bash", "WebFetch"),
        ({"disallowed_tools": ["Wrtie"]}, "CliOptions.disallowed_tools", "Wrtie", "Write", "Edit"),
        ({"agents": {"a": {**AGENT, "tools": ["Gerp"]}}}, "CliOptions.agents['a'].tools", "Gerp",
         "Grep", "Glob"),
    ],
)  # fmt: skip
def test_an_unknown_value_is_described_with_a_guess_and_the_known_ones(
    cli: dict[str, Any], field: str, value: str, guess: str, known: str
) -> None:
    [text] = told(cli)
    assert text.startswith(f"{field} ")
    assert repr(value) in text
    assert f"Did you mean {guess!r}?" in text
    assert known in text.partition("Known: ")[2]


def test_an_unknown_tool_that_waits_for_approval_is_described() -> None:
    rules = ["Bahs", "bash(*)", "Bash(rm *)", "mcp__shop__refund", "mcp__shop__*"]
    first, second = told({}, {"approve": rules})
    assert first.startswith("BidirOptions.approve is 'Bahs'")
    assert "Did you mean 'Bash'?" in first
    assert second.startswith("BidirOptions.approve is 'bash'")


@pytest.mark.parametrize("field", ["hooks", "hook_timeouts"])
def test_an_unknown_hook_event_is_described(field: str) -> None:
    value: object = [Hook(hook)] if field == "hooks" else 5.0
    [text] = told({}, {field: {"PreToolUs": value, "Stop": value}})
    assert text.startswith(f"BidirOptions.{field} is 'PreToolUs'")
    assert "Did you mean 'PreToolUse'?" in text
    assert all(event in text for event in HOOK_EVENTS)


def test_a_value_unlike_all_known_ones_gets_no_suggestion() -> None:
    [text] = told({"effort": "zzz"})
    assert "Did you mean" not in text


def test_an_unknown_value_of_an_agent_says_what_is_at_stake() -> None:
    """Both tested CLIs start without any agent if one agent has a value that they do not know."""
    [text] = told({"agents": {"a": {**AGENT, "effort": "ultra"}, "b": AGENT}})
    assert text.endswith("A CLI that does not know it ignores all agents.")
    [text] = told({"agents": {"a": {**AGENT, "colour": "red"}}})
    assert "ignores all agents" not in text
    assert "red" not in text


def test_known_values_are_not_described() -> None:
    cli = {
        "permission_mode": "plan",
        "effort": "max",
        "thinking": {"type": "enabled", "budget_tokens": 5},
        "setting_sources": ["user", "project", "local"],
        "agents": {"a": {**AGENT, "effort": 500, "memory": "user", "permission_mode": "auto"}},
        "tool_config": {"ask_user_question": {"preview_format": "html"}},
        "tools": ["Bash", "Task", "KillShell"],
        "allowed_tools": ["Read", "Bash(git log:*)", "mcp__shop", "mcp__shop__*"],
        "disallowed_tools": ["WebFetch(domain:example.com)"],
    }
    assert told(cli, {"hooks": {event: [Hook(hook)] for event in HOOK_EVENTS}}) == []
    assert told({}) == []


def test_a_matcher_that_python_cannot_read_is_named_if_the_cli_reads_it() -> None:
    """The CLI never calls the hook if the matcher is invalid in JavaScript, too."""
    hooks = [Hook(hook, matcher=one) for one in (None, "Bash", "mcp__.*", "Bash(")]
    [text] = told({}, {"hooks": {"PreToolUse": hooks}, "parallel_hooks": True})
    assert text.startswith("BidirOptions.hooks['PreToolUse']: the matcher 'Bash('")
    assert "never calls the hook" in text


@pytest.mark.parametrize(
    ("matcher", "facts"),
    [
        ("bash", ["'bash'", "Did you mean 'Bash'?", "Known: "]),
        ("Write|Edti", ["'Edti'", "Did you mean 'Edit'?"]),
        ("^bash$", ["'^bash$'", "Did you mean 'Bash'?"]),
        ("Bash(git:*)", ["'Bash(git:*)'", "permission rule", "context.tool_input"]),
        ("mcp__shop", ["'mcp__shop'", "never matches", "'^mcp__shop__'"]),
    ],
)
@pytest.mark.parametrize("parallel", [False, True])
def test_a_matcher_that_never_matches_is_described(
    matcher: str, facts: list[str], *, parallel: bool
) -> None:
    hooks = {"PreToolUse": [Hook(hook, matcher=matcher)]}
    [text] = told({}, {"hooks": hooks, "parallel_hooks": parallel})
    assert text.startswith("BidirOptions.hooks['PreToolUse']: the matcher ")
    assert [fact for fact in facts if fact not in text] == []


@pytest.mark.parametrize(
    "matcher",
    [
        None,
        "*",
        "Bash",
        "Task|Agent",
        "Write, Edit",
        "mcp__shop__price",
        "mcp__shop__price|Read",
        "mcp__(shop|bank)__.*",
        "^Notebook",
        "(?i)bash",
        ".*_delete",
        r"\w+_delete",
    ],
)
def test_a_matcher_that_may_match_is_not_described(matcher: str | None) -> None:
    assert told({}, {"hooks": {"PostToolUse": [Hook(hook, matcher=matcher)]}}) == []


def test_matchers_of_events_without_a_tool_are_not_compared_with_tools() -> None:
    assert told({}, {"hooks": {"PreCompact": [Hook(hook, matcher="auto")]}}) == []


def test_tool_events_are_those_whose_matchers_are_compared_with_a_tool() -> None:
    assert {event for event, rule in RULES.items() if rule.subject == "tool_name"} == TOOL_EVENTS
