"""Translate `ClaudeAgentOptions` to the option records of Bridle."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from bridle import ResolvedOptions
from bridle._spi import settle_options
from bridle.compat.claude_agent_sdk._callbacks import native_hooks, native_permission
from bridle.compat.claude_agent_sdk._loops.bridge import Bridge
from bridle.compat.claude_agent_sdk._stored.official_stores import AdaptedStore, has_method
from bridle.compat.claude_agent_sdk._tools import bridged_server
from bridle.compat.claude_agent_sdk._types.agent_options import ClaudeAgentOptions
from bridle.compat.claude_agent_sdk._types.permission_types import CanUseToolShadowedWarning
from bridle.errors import OptionsError
from bridle.options import STDIO, BidirOptions, CliOptions, SdkOptions
from bridle.permissions import Deny

CONTROL_TIMEOUT = 60.0
"""Seconds that the CLI has to answer a request, as in the official SDK."""

_SHORTEST = 0.001
"""Seconds for a timeout of 0, which Bridle does not accept."""

_LEAST_LINE = 1024
"""The smallest `SdkOptions.max_buffer_size`."""

REPLAY = "replay-user-messages"
"""The flag that makes the CLI repeat prompts. Bridle always sets it for sessions."""

_ALWAYS_SET = frozenset({"verbose", "print", "input-format", "output-format", REPLAY})
_CHECKPOINTING = "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"
_RULE = re.compile(r"[^\s,()](?:[^\s,()]|\([^)]*\)|\))*")
"""One permission rule. The CLI separates rules by commas and spaces outside parentheses."""

_WHOLE_TOOL = re.compile(r"([^()]+)(?:\(\*?\))?")
_NOT_IN_SKILLS = re.compile(r"[(),\x00-\x1f\x7f-\x9f\ufeff\ud800-\udfff]|\\\\")


def native_options(
    options: ClaudeAgentOptions,
    bridge: Bridge,
    transport: Callable[..., object] | None,
    store: AdaptedStore | None,
) -> ResolvedOptions:
    """Return the options of the session or query.

    Raises:
        ValueError: options contradict each other, or a value is invalid. `OptionsError` is one.
        TypeError: ``skills`` is neither a list nor "all".
    """
    _check(options)
    bidir = _bidir(options, bridge)
    if transport is not None:
        bidir["transport_factory"] = transport
    cli = _cli(options)
    if cli["permission_prompt_tool_name"] == STDIO:  # Bridle sets it for a callback
        cli["permission_prompt_tool_name"] = None
        bidir.setdefault("on_can_use_tool", _deny)
    elif options.can_use_tool is None and cli["permission_prompt_tool_name"] is None:
        cli["permission_prompts"] = "cli"
    return settle_options(
        CliOptions(**{name: value for name, value in cli.items() if value is not None}),
        SdkOptions(**_sdk(options, bridge, store)),
        BidirOptions(**bidir),
        environ={},  # the official SDK takes no options from the environment
    )


async def _deny(_: object) -> Deny:
    """Answer the permission requests of a program that wants them and has no callback."""
    return Deny("The program has no callback for permission requests.")


def wants_replay(options: ClaudeAgentOptions) -> bool:
    """Return whether the program wants the CLI to repeat its prompts."""
    return REPLAY in options.extra_args


# ---------------------------------------------------------------- checks


def _check(options: ClaudeAgentOptions) -> None:
    if options.can_use_tool is not None:
        if options.permission_prompt_tool_name is not None:
            raise ValueError(
                "can_use_tool callback cannot be used with permission_prompt_tool_name. Both "
                "answer permission requests: remove one of them."
            )
        _warn_if_shadowed(options)
    store = options.session_store
    continues = options.continue_conversation and not options.resume
    if store is not None and continues and not has_method(store, "list_sessions"):
        raise ValueError(
            "continue_conversation with session_store requires the store to implement "
            "list_sessions(), to find the last session. Add the method, or set resume."
        )
    if store is not None and options.enable_file_checkpointing:
        raise ValueError(
            "session_store cannot be combined with enable_file_checkpointing: checkpoints are not "
            "copied to the store. Remove one of them."
        )


def _warn_if_shadowed(options: ClaudeAgentOptions) -> None:
    """Warn if other options allow tools for which the program expects a permission request."""
    if options.permission_mode == "bypassPermissions":
        reason = "permission_mode 'bypassPermissions' allows every tool"
    else:
        matches = (_WHOLE_TOOL.fullmatch(rule.strip()) for rule in options.allowed_tools)
        whole = [found[1] for found in matches if found]
        if options.skills == "all":
            whole.append("Skill")
        if not whole:
            return
        reason = f"allowed_tools allows these tools: {', '.join(whole)}"
    warnings.warn(
        f"can_use_tool is not called for every tool, because {reason}. Use a PreToolUse hook to "
        "see every call.",
        CanUseToolShadowedWarning,
        stacklevel=_level_of_program(),
    )


def _level_of_program() -> int:
    """Return the ``stacklevel`` with which the caller warns about the line of the program."""
    frame = inspect.currentframe()
    frame = None if frame is None else frame.f_back
    level = 1
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("bridle."):
        frame, level = frame.f_back, level + 1
    return level


def _checked_skill(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"skills must contain names, got {type(name).__name__}")
    is_pattern = name == "*" or name.endswith((":*", " *"))
    is_path = name.startswith("/") or name.endswith("\\")
    if not name.strip() or name != name.strip() or is_pattern or is_path:
        raise ValueError(f"skills contains {name!r}, which is not the name of a skill")
    if _NOT_IN_SKILLS.search(name):
        raise ValueError(f"skills contains {name!r}, which has a character that names cannot have")
    return name


# ---------------------------------------------------------------- CliOptions


def _cli(options: ClaudeAgentOptions) -> dict[str, Any]:
    """Return the fields of `CliOptions`. None means that a field is not set."""
    cli: dict[str, Any] = {
        name: getattr(options, name) or None
        for name in (
            "max_turns",
            "model",
            "fallback_model",
            "permission_mode",
            "permission_prompt_tool_name",
            "session_id",
            "settings",
            "resume_session_at",
            "betas",
            "effort",
            "sandbox",
            "add_dirs",
            "plugins",
            "cwd",
            "cli_path",
            "user",
        )
    }
    cli |= {
        name: getattr(options, name)
        for name in (
            "max_budget_usd",
            "strict_mcp_config",
            "include_partial_messages",
            "include_hook_events",
            "forward_subagent_text",
            "verbatim_prompts",
            "resume_drops_turn",
            "client_app",
        )
    }
    cli["resume_session_id"] = options.resume or None
    cli["continue_session"] = options.continue_conversation
    cli["fork_session"] = options.fork_session
    if options.task_budget is not None:
        cli["task_budget"] = options.task_budget["total"]
    if options.agents is not None:
        cli["agents"] = {
            name: {
                key: value for key, value in dataclasses.asdict(agent).items() if value is not None
            }
            for name, agent in options.agents.items()
        }
    cli |= _prompt(options)
    cli |= _tools(options)
    cli |= _thinking(options)
    cli |= _servers(options)
    schema = options.output_format or {}
    if schema.get("type") == "json_schema":
        cli["json_schema"] = schema.get("schema")
    cli["env"] = _environment(options) or None
    return _settled(_with_flags(cli, options), options)


def _settled(cli: dict[str, Any], options: ClaudeAgentOptions) -> dict[str, Any]:
    """Remove what has no effect in the CLI. Bridle would reject it."""
    if cli["resume_session_id"] and cli["continue_session"]:
        # The CLI continues the last session. With a store, the official SDK resumes the given one.
        loser = "resume_session_id" if options.session_store is None else "continue_session"
        cli[loser] = None
    if not cli["resume_session_id"] and not cli["continue_session"]:
        cli["fork_session"] = False
    if cli["max_turns"] is not None:
        cli["max_turns"] = max(1, cli["max_turns"]) if cli["max_turns"] else None  # 0: no limit
    return cli


def _prompt(options: ClaudeAgentOptions) -> dict[str, Any]:
    prompt = options.system_prompt
    if prompt is None or isinstance(prompt, str):
        return {"system_prompt": prompt or ""}
    if prompt["type"] == "file":
        return {"system_prompt_file": prompt["path"]}
    snapshot = prompt.get("snapshot")
    fields: dict[str, Any] = {
        "system_prompt_snapshot": snapshot if isinstance(snapshot, bool) else None
    }
    if prompt["type"] == "custom":
        return {**fields, "system_prompt": prompt["prompt"]}
    excludes = prompt.get("exclude_dynamic_sections")
    return {
        **fields,
        "append_system_prompt": prompt.get("append"),
        "exclude_dynamic_sections": excludes if isinstance(excludes, bool) else None,
    }


def _tools(options: ClaudeAgentOptions) -> dict[str, Any]:
    tools = options.tools
    allowed = list(options.allowed_tools)
    sources = options.setting_sources
    skills = options.skills
    if skills is not None:
        if skills == "all":
            rules = ["Skill"]
        elif isinstance(cast("object", skills), list):
            rules = [f"Skill({_checked_skill(name)})" for name in skills]
        else:
            raise TypeError(f"skills must be a list or 'all', got {type(skills).__name__}")
        allowed += [rule for rule in rules if rule not in allowed]
        if sources is None:
            sources = ["user", "project"]
    return {
        "tools": tools if tools is None or isinstance(tools, list) else "default",
        "allowed_tools": _RULE.findall(",".join(allowed)) or None,
        "disallowed_tools": _RULE.findall(",".join(options.disallowed_tools)) or None,
        "skills": skills,
        "setting_sources": sources,
    }


def _thinking(options: ClaudeAgentOptions) -> dict[str, Any]:
    thinking = options.thinking
    if thinking is None:
        return {"max_thinking_tokens": options.max_thinking_tokens}
    if thinking["type"] == "disabled":
        return {"thinking": "disabled"}
    display = thinking.get("display")
    fields: dict[str, object] = {"type": thinking["type"]}
    if thinking["type"] == "enabled":
        fields["budget_tokens"] = thinking["budget_tokens"]
    return {"thinking": fields if display is None else {**fields, "display": display}}


def _servers(options: ClaudeAgentOptions) -> dict[str, Any]:
    servers = options.mcp_servers
    if not isinstance(servers, dict):
        return {"mcp_config": servers or None}
    outside = {name: one for name, one in servers.items() if one.get("type") != "sdk"}
    return {"mcp_config": {"mcpServers": outside} if outside else None}


def _environment(options: ClaudeAgentOptions) -> dict[str, str]:
    # Bridle sets or removes these itself.
    managed = {"CLAUDECODE", _CHECKPOINTING}
    if options.client_app is not None:
        managed.add("CLAUDE_AGENT_SDK_CLIENT_APP")
    env = {name: value for name, value in options.env.items() if name not in managed}
    return {"PWD": str(options.cwd), **env} if options.cwd else env


def _with_flags(cli: dict[str, Any], options: ClaudeAgentOptions) -> dict[str, Any]:
    """Return the fields with those of ``extra_args``.

    A flag that belongs to an option of Bridle sets the option. As in the CLI, a flag that can be
    repeated adds to what is there. Any other flag replaces it.
    """
    rows = {
        name: row
        for row in CliOptions.fields.values()
        for name in (row.channel.name, *row.channel.also)
    }
    rest: list[str] = []
    for flag, value in options.extra_args.items():
        if flag in _ALWAYS_SET:
            continue
        row = rows.get(f"--{flag}")
        if flag == "dangerously-skip-permissions":
            cli["permission_mode"] = "bypassPermissions"
        elif row is None:
            rest.append(f"--{flag}" if value is None else f"--{flag}={value}")
        elif value is None:
            cli[row.name] = True
        else:
            before, given = cli.get(row.name), _parsed(row.name, value)
            if row.name in _REPEATED and isinstance(before, list | tuple):
                given = [*cast("list[object]", before), *given]
            elif row.name == "mcp_config" and before:
                given = _joined_servers(before, given, options.cwd)
            cli[row.name] = given
    return {**cli, "extra_args": rest or None}


def _joined_servers(first: Any, second: Any, cwd: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Return one MCP configuration for two. Of two servers with one name, the second is used."""
    servers: dict[str, Any] = {}
    for config in (first, second):
        if isinstance(config, dict):
            servers |= cast("dict[str, Any]", config)["mcpServers"]
        else:
            servers |= _read_servers(str(cast("object", config)), cwd)
    return {"mcpServers": servers}


def _read_servers(config: str, cwd: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Return the servers of a configuration, which is JSON or the path of a file with it."""
    fix = 'Use JSON of the form {"mcpServers": {...}}, or the path of a file with it.'
    try:
        is_json = config.lstrip().startswith("{")
        text = config if is_json else Path(cwd or "", config).read_text("utf-8")
        return dict(json.loads(text)["mcpServers"])
    except OSError as error:
        problem = f"names {config}, which cannot be read: {error.strerror}"
        raise OptionsError("mcp_config", problem, fix=fix) from None
    except (ValueError, KeyError, TypeError):
        raise OptionsError("mcp_config", "is not an MCP configuration", fix=fix) from None


_REPEATED = frozenset(
    {"allowed_tools", "disallowed_tools", "tools", "add_dirs", "betas", "plugins"}
)
_LISTS = frozenset({"tools", "betas", "setting_sources"})
_NUMBERS = frozenset({"max_turns", "max_thinking_tokens", "task_budget"})


def _parsed(name: str, value: str) -> Any:
    """Return the value of an option from the value of its flag."""
    try:
        return _read_value(name, value)
    except ValueError:
        problem = f"has the value {value!r} in extra_args, which cannot be read"
        raise OptionsError(name, problem, fix="Use the form that the CLI accepts.") from None


def _read_value(name: str, value: str) -> Any:
    if name in ("allowed_tools", "disallowed_tools"):
        return _RULE.findall(value)
    if name in ("add_dirs", "plugins"):
        return [value]
    if name in _LISTS:
        return [item for item in value.split(",") if item]
    if name in _NUMBERS:
        return int(value)
    if name == "max_budget_usd":
        return float(value)
    return json.loads(value) if name == "agents" else value


# ---------------------------------------------------------------- SdkOptions and BidirOptions


def _sdk(options: ClaudeAgentOptions, bridge: Bridge, store: AdaptedStore | None) -> dict[str, Any]:
    show = options.stderr or _print_line

    async def tell(line: str) -> None:
        show(line)

    fields: dict[str, Any] = {
        "on_stderr": bridge.callback(tell),
        "control_timeout": CONTROL_TIMEOUT,
        "init_timeout": CONTROL_TIMEOUT,
    }
    if store is not None:
        fields["store"] = store
        fields["load_timeout"] = max(options.load_timeout_ms / 1000, _SHORTEST)
    if options.max_buffer_size is not None:
        fields["max_buffer_size"] = max(options.max_buffer_size, _LEAST_LINE)
    return fields


def _print_line(line: str) -> None:
    """Show a line of stderr where the CLI would write it without Bridle."""
    if cast("object", sys.stderr) is not None:  # it is None in a program without a console
        print(line, file=sys.stderr)


def _bidir(options: ClaudeAgentOptions, bridge: Bridge) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if options.hooks and (hooks := native_hooks(options.hooks, bridge)):
        fields |= {"hooks": hooks, "parallel_hooks": True}
    if options.can_use_tool is not None:
        fields["on_can_use_tool"] = native_permission(options.can_use_tool, bridge)
    if isinstance(options.mcp_servers, dict):
        servers = cast("Mapping[str, Mapping[str, Any]]", options.mcp_servers)
        inside = {
            name: bridged_server(one["instance"], bridge)
            for name, one in servers.items()
            if one.get("type") == "sdk"
        }
        if inside:
            fields["mcp_servers"] = inside
    if options.enable_file_checkpointing or options.env.get(_CHECKPOINTING):
        fields["file_checkpointing_enabled"] = True
    return fields
