"""Generated sets of options, each in the spelling of Bridle and of the official Python SDK."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import claude_agent_sdk as official

import bridle
from bridle import Hook, ToolServer

TEXTS = [
    "Answer briefly.",
    "--not-a-flag",
    "two\nlines, 'quotes' and \"more\" \\ $HOME",
    "häßlich, 日本語 🐎",
    " spaces ",
]
RULES = ["Read", "Bash(git log:*)", "Bash(echo a, b)", "mcp__files__read", "Edit(//tmp/**)"]
BETAS = ["context-1m-2025-08-07", "other"]
# ---------------------------------------------------------------- option sets


class Choice(NamedTuple):
    """One choice of options, in the spelling of both."""

    cli: dict[str, Any]
    theirs: dict[str, Any]
    bidir: dict[str, Any] = {}  # noqa: RUF012  # never changed


Facet = Callable[[random.Random, Path], Choice]


def named(ours: str, theirs: str, *values: Any) -> Facet:
    """An option of both whose values are written alike."""

    def choose(rng: random.Random, _: Path) -> Choice:
        value = rng.choice(values)
        return Choice({ours: value}, {theirs: value})

    return choose


def same(name: str, *values: Any) -> Facet:
    """An option that both call alike."""
    return named(name, name, *values)


def some(name: str, *items: Any) -> Facet:
    """A list of some of these items, at least one."""

    def choose(rng: random.Random, _: Path) -> Choice:
        value = rng.sample(items, rng.randint(1, len(items)))
        return Choice({name: value}, {name: value})

    return choose


def system_prompt(rng: random.Random, place: Path) -> Choice:
    text, snapshot = rng.choice(TEXTS), rng.choice([True, False])
    file = place / "prompt.txt"
    preset = {"type": "preset", "preset": "claude_code"}
    return rng.choice(
        [
            Choice({"system_prompt": ""}, {"system_prompt": None}),
            Choice({"system_prompt": text}, {"system_prompt": text}),
            Choice(
                {"system_prompt": text, "system_prompt_snapshot": snapshot},
                {"system_prompt": {"type": "custom", "prompt": text, "snapshot": snapshot}},
            ),
            Choice(
                {"system_prompt_file": file},
                {"system_prompt": {"type": "file", "path": str(file)}},
            ),
            Choice({"append_system_prompt": text}, {"system_prompt": {**preset, "append": text}}),
            Choice(
                {"exclude_dynamic_sections": snapshot, "system_prompt_snapshot": snapshot},
                {
                    "system_prompt": {
                        **preset,
                        "exclude_dynamic_sections": snapshot,
                        "snapshot": snapshot,
                    }
                },
            ),
        ]
    )


def tools(rng: random.Random, _: Path) -> Choice:
    preset = {"type": "preset", "preset": "claude_code"}
    listed = rng.sample(["Read", "Bash", "Edit"], rng.randint(0, 3))
    return rng.choice(
        [Choice({"tools": "default"}, {"tools": preset}), same("tools", listed)(rng, _)]
    )


def rules_and_skills(rng: random.Random, _: Path) -> Choice:
    """With skills the official SDK adds rules and sources of settings, unless they are there."""
    rules = rng.sample(RULES, rng.randint(1, 4))
    if rng.random() < 0.5:
        return Choice({"allowed_tools": rules}, {"allowed_tools": rules})
    skills = rng.sample(["review", "shop:price"], rng.randint(0, 2))
    options = {
        "allowed_tools": rules + [f"Skill({name})" for name in skills],
        "setting_sources": rng.choice([[], ["user", "project"]]),
        "skills": skills,
    }
    return Choice(options, options)


def conversation(rng: random.Random, _: Path) -> Choice:
    # Each set has its own ids, because a session can run only once at a time.
    first, other, message, turn = (str(UUID(int=rng.getrandbits(128), version=4)) for _ in range(4))
    fork = {"resume_session_id": first, "fork_session": True}
    their_fork = {"resume": first, "fork_session": True}
    at = {"resume_session_at": message, "resume_drops_turn": turn}
    return rng.choice(
        [
            Choice({"session_id": first}, {"session_id": first}),
            Choice({"resume_session_id": first}, {"resume": first}),
            Choice({"resume_session_id": "-a title"}, {"resume": "-a title"}),
            Choice(fork, their_fork),
            Choice({**fork, "session_id": other}, {**their_fork, "session_id": other}),
            Choice({"continue_session": True}, {"continue_conversation": True}),
            Choice({"resume_session_id": first, **at}, {"resume": first, **at}),
        ]
    )


def thinking(rng: random.Random, _: Path) -> Choice:
    budget = {"type": "enabled", "budget_tokens": rng.choice([1024, 9999])}
    shown = {"display": rng.choice(["summarized", "omitted"])}
    return rng.choice(
        [
            same("thinking", {"type": "disabled"}, budget, {**budget, **shown})(rng, _),
            same("thinking", {"type": "adaptive"}, {"type": "adaptive", **shown})(rng, _),
            same("max_thinking_tokens", 0, 2048)(rng, _),
        ]
    )


def servers(rng: random.Random, place: Path) -> Choice:
    external = {
        "files": {"command": "serve", "args": ["--root", "/"], "env": {"TOKEN": "secret"}},
        "web": {"type": "http", "url": "http://127.0.0.1:1/", "headers": {"X": "y"}},
    }
    chosen = dict(rng.sample(sorted(external.items()), rng.randint(1, 2)))
    config = {"mcpServers": chosen}
    inside = official.create_sdk_mcp_server("calc", tools=[their_tool])
    file = place / "servers.json"
    return rng.choice(
        [
            Choice({"mcp_config": config}, {"mcp_servers": chosen}),
            Choice({"mcp_config": json.dumps(config)}, {"mcp_servers": json.dumps(config)}),
            Choice({"mcp_config": file}, {"mcp_servers": str(file)}),
            Choice({}, {"mcp_servers": {"calc": inside}}, {"mcp_servers": {"calc": our_tools}}),
            Choice(
                {"mcp_config": config},
                {"mcp_servers": {**chosen, "calc": inside}},
                {"mcp_servers": {"calc": our_tools}},
            ),
        ]
    )


def settings(rng: random.Random, place: Path) -> Choice:
    document = {"permissions": {"deny": ["Bash(rm:*)"]}, "env": {"A": "1"}}
    given = rng.choice([json.dumps(document), str(place / "settings.json"), None])
    sandbox = rng.choice([None, {"enabled": True, "network": {"allowLocalBinding": True}}])
    options = {"settings": given, "sandbox": sandbox}
    return Choice(options, options)


def permission_requests(rng: random.Random, _: Path) -> Choice:
    tool = "mcp__auth__approve"
    return rng.choice(
        [
            same("permission_prompt_tool_name", tool)(rng, _),
            Choice({}, {"can_use_tool": their_permission}, {"on_can_use_tool": our_permission}),
        ]
    )


def hooks(rng: random.Random, _: Path) -> Choice:
    events = rng.sample(["PreToolUse", "PostToolUse", "Stop", "UserPromptSubmit"], 2)
    matcher = rng.choice([None, "Bash|Write"])
    return Choice(
        {},
        {"hooks": {event: [official.HookMatcher(matcher, [their_hook])] for event in events}},
        {"hooks": {event: [Hook(our_hook, matcher=matcher)] for event in events}},
    )


def agents(rng: random.Random, _: Path) -> Choice:
    details = {
        "tools": ["Read"],
        "disallowedTools": ["Bash"],
        "model": "haiku",
        "skills": ["review"],
        "memory": "project",
        "mcpServers": ["files", {"web": {"type": "http", "url": "http://127.0.0.1:1/"}}],
        "initialPrompt": "Begin.",
        "maxTurns": 3,
        "background": False,
        "effort": rng.choice(["low", 2000]),
        "permissionMode": "plan",
    }
    given: dict[str, Any] = {"description": "Reviews.", "prompt": rng.choice(TEXTS)}
    given |= dict(rng.sample(sorted(details.items()), rng.randint(0, len(details))))
    return Choice(
        {"agents": {"reviewer": given}},
        {"agents": {"reviewer": official.AgentDefinition(**given)}},
    )


def output_format(rng: random.Random, _: Path) -> Choice:
    schema = {"type": "object", "properties": {"é": {"type": "number"}}, "required": ["é"]}
    return Choice(
        {"json_schema": schema}, {"output_format": {"type": "json_schema", "schema": schema}}
    )


def plugins(_: random.Random, place: Path) -> Choice:
    return Choice(
        {"plugins": [place / "a", place / "b"]},
        {"plugins": [{"type": "local", "path": str(place / name)} for name in "ab"]},
    )


def extra_args(rng: random.Random, _: Path) -> Choice:
    given = {"brief": None, "autocompact": "auto", "file": "-x:y z"}
    chosen = dict(rng.sample(sorted(given.items()), 2))
    ours = [f"--{flag}" if value is None else f"--{flag}={value}" for flag, value in chosen.items()]
    return Choice({"extra_args": ours}, {"extra_args": chosen})


def task_budget(_: random.Random, __: Path) -> Choice:
    return Choice({"task_budget": 5000}, {"task_budget": {"total": 5000}})


def checkpointing(_: random.Random, __: Path) -> Choice:
    return Choice({}, {"enable_file_checkpointing": True}, {"file_checkpointing_enabled": True})


FACETS: dict[str, Facet] = {
    "add_dirs": some("add_dirs", "/tmp", "/a dir", "/x,y"),
    "agents": agents,
    "betas": same("betas", BETAS[:1], BETAS),
    "checkpointing": checkpointing,
    "client_app": same("client_app", "shop/1.2"),
    "conversation": conversation,
    "disallowed_tools": some("disallowed_tools", *RULES),
    "effort": same("effort", "low", "medium", "high", "xhigh", "max"),
    "env": same("env", {"A": "1"}, {"CLAUDE_CODE_ENTRYPOINT": "mine", "EMPTY": ""}),
    "extra_args": extra_args,
    "fallback_model": same("fallback_model", "haiku", "haiku,sonnet"),
    "forward_subagent_text": same("forward_subagent_text", True),
    "hooks": hooks,
    "include_hook_events": same("include_hook_events", True),
    "include_partial_messages": same("include_partial_messages", True),
    "max_budget_usd": same("max_budget_usd", 0.5, 3),
    "max_turns": same("max_turns", 1, 20),
    "model": same("model", "sonnet", "claude-opus-4-1[1m]"),
    "output_format": output_format,
    "permission_mode": same(
        "permission_mode", "default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions"
    ),
    "permission_requests": permission_requests,
    "plugins": plugins,
    "rules_and_skills": rules_and_skills,
    "servers": servers,
    "settings": settings,
    "strict_mcp_config": same("strict_mcp_config", True),
    "system_prompt": system_prompt,
    "task_budget": task_budget,
    "thinking": thinking,
    "tools": tools,
}
"""Every option of the official SDK that reaches the CLI."""


@official.tool("add", "Add.", {"a": float})
async def their_tool(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": []}


def add(a: float) -> float:
    """Add."""
    return a


our_tools = ToolServer([add])


async def their_permission(*_: object) -> Any:
    raise AssertionError("never called")


def our_permission(_: bridle.CanUseToolContext) -> bridle.Deny:
    return bridle.Deny("never called")


async def their_hook(*_: object) -> Any:
    raise AssertionError("never called")


def our_hook(_: object) -> None:
    raise AssertionError("never called")


class OptionSet(NamedTuple):
    """Some options, in both spellings."""

    facets: list[str]
    cli: dict[str, Any]
    bidir: dict[str, Any]
    theirs: dict[str, Any]
    prompt: str
    is_session: bool


def option_set(seed: int, place: Path) -> OptionSet:
    """Choose about a third of the facets."""
    rng = random.Random(seed)
    facets = [name for name in FACETS if rng.random() < 0.35]
    default_prompt = {"system_prompt": {"type": "preset", "preset": "claude_code"}}
    cli: dict[str, Any] = {"cwd": place}
    bidir: dict[str, Any] = {}
    theirs: dict[str, Any] = {"cwd": str(place), **default_prompt}
    for name in facets:
        choice = FACETS[name](rng, place)
        cli |= choice.cli
        bidir |= choice.bidir
        theirs |= choice.theirs
    is_session = bool(bidir) or rng.random() < 0.5
    return OptionSet(facets, cli, bidir, theirs, rng.choice(TEXTS), is_session)
