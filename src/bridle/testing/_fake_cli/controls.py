"""Answer the control requests of the client like a real CLI.

A table has one row per subtype. Other subtypes get an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import payloads
from .payloads import MODELS, MODES
from .servers import judge_manifest
from .transcripts import place_of
from .values import Json, as_list, as_object, is_list, is_object

if TYPE_CHECKING:
    from .talk import Talk


def answer(talk: Talk, request: Json) -> None:
    """Execute a control request and send the response."""
    subtype = request["request"].get("subtype")
    handle = HANDLERS.get(str(subtype))
    if handle is None or (str(subtype) in NEWEST_ONLY and not talk.frames.newer):
        text = f"Unsupported control request subtype: {subtype}"
        _refuse(talk, request, text, error_code="unsupported_request")
    else:
        handle(talk, request)


def _send(talk: Talk, request: Json, payload: Json | None = None) -> None:
    talk.port.send(talk.frames.answer(request, payload))


def _refuse(talk: Talk, request: Json, error: str, **beside: object) -> None:
    talk.port.send(talk.frames.refusal(request, error, **beside))


# ------------------------------------------------------------------------- the session


def _initialize(talk: Talk, request: Json) -> None:
    fields: Json = request["request"]
    hooks = fields.get("hooks")
    servers = as_list(fields.get("sdkMcpServers"))
    if hooks is not None and not _are_hooks(hooks):
        text = (
            "initialize: hooks must map hook events to arrays of matchers carrying"
            " hookCallbackIds arrays and string matchers"
        )
        _reject_or_wedge(talk, request, text)
        return
    if talk.frames.newer or not talk.hooks:
        talk.hooks = hooks or {}
    manifests: Json = {}
    if talk.frames.newer and "sdkMcpServerManifests" in fields:
        given = fields["sdkMcpServerManifests"]
        manifests = given if is_object(given) else dict.fromkeys(servers)
    talk.is_initialized = True
    talk.servers.connect([*servers, *talk.flags["servers"]], manifests)
    parked = {name: judge_manifest(manifests[name]) for name in servers if name in manifests}
    talk.port.send(talk.frames.initialized(request, parked=parked))


def _are_hooks(hooks: object) -> bool:
    return is_object(hooks) and all(
        isinstance(as_object(entry).get("hookCallbackIds"), list)
        for entries in as_object(hooks).values()
        for entry in (as_list(entries) if is_list(entries) else [None])
    )


def _reject_or_wedge(talk: Talk, request: Json, text: str, **beside: object) -> None:
    """Reject an invalid request like the newest CLI, or hang like an older one."""
    if talk.frames.newer:
        _refuse(talk, request, text, **beside)
    else:
        talk.port.note(wedged=text)
        talk.port.go_deaf()


def _end_session(talk: Talk, request: Json) -> None:
    _send(talk, request)
    talk.leaving = int(talk.in_turn)
    talk.on_interrupt()


def _claim_session(talk: Talk, request: Json) -> None:
    """Let the process work in a directory, like one that was started there."""
    cwd = request["request"].get("cwd")
    if not talk.flags["spare"]:
        _refuse(
            talk,
            request,
            "not_a_spare: claim_session is only accepted by a process started with --await-claim"
            " that has not been claimed yet",
        )
    elif not isinstance(cwd, str):
        text = "invalid_request: cwd — Invalid input: expected string, received undefined"
        _refuse(talk, request, text)
    elif not os.path.isabs(cwd) or not os.path.exists(cwd):
        text = "cwd_not_found: the claim cwd does not exist or is not accessible"
        _refuse(talk, request, text)
    elif not os.path.isdir(cwd):
        _refuse(talk, request, "cwd_not_a_directory: the claim cwd is not a directory")
    elif _sets_environment(cwd):
        _refuse(
            talk,
            request,
            "project_settings_not_claimable: settings.json in the claimed directory sets env, which"
            " a cold start applies during start-up and a claim cannot; start this session cold",
        )
    else:
        talk.flags["spare"] = False
        os.chdir(cwd)
        talk.frames.cwd = cwd
        if talk.port.transcript is not None:
            talk.frames.transcript_path = place_of(None, talk.frames.session_id)
            talk.port.transcript.move(talk.frames.transcript_path)
        talk.port.note(claimed=cwd)
        payload = {"session_id": talk.frames.session_id, "parked_ms": 1, "sdk_mcp_settled": True}
        _send(talk, request, {"status": "ok", "cwd": cwd, **payload})


def _sets_environment(directory: str) -> bool:
    try:
        with open(os.path.join(directory, ".claude", "settings.json"), "rb") as file:
            return "env" in as_object(json.load(file))
    except (OSError, ValueError):
        return False


def refuse_prompt(talk: Talk) -> None:
    """Answer a prompt that came before the claim."""
    error = (
        "not_claimed: this process was started with --await-claim and has not been claimed; send"
        " claim_session before the first message"
    )
    failed: Json = {"subtype": "error_during_execution", "is_error": True, "errors": [error]}
    absent = dict.fromkeys(("terminal_reason", "fast_mode_state", "fast_mode_disabled_reason"), ...)
    absent |= dict.fromkeys(("subagent_stats", "safety_stops", "queued_turn_count"), ...)
    talk.port.send(talk.frames.result([], 0, **failed, **absent, stop_reason=None))


# ------------------------------------------------------------------------- turns


def _interrupt(talk: Talk, request: Json) -> None:
    talk.on_interrupt()
    if not talk.frames.newer:
        _send(talk, request)
        return
    payload: Json = {}
    if request["request"].get("cancel_queued") is True:
        gone, talk.queue = talk.queue, []
        for prompt in gone:
            talk.speaker.lifecycle(prompt, "cancelled")
        payload["cancelled"] = [prompt.uuid for prompt in gone if prompt.uuid]
    waiting = [prompt.uuid for prompt in talk.queue if prompt.uuid]
    _send(talk, request, {"still_queued": waiting, **payload})


def _cancel_async_message(talk: Talk, request: Json) -> None:
    uuid = request["request"].get("message_uuid")
    found = [prompt for prompt in talk.queue if prompt.uuid == uuid]
    for prompt in found:
        talk.queue.remove(prompt)
        talk.speaker.lifecycle(prompt, "cancelled")
    _send(talk, request, {"cancelled": bool(found)})


# ------------------------------------------------------------------------- settings


def _set_model(talk: Talk, request: Json) -> None:
    frames, wanted = talk.frames, request["request"].get("model")
    if wanted is not None and not isinstance(wanted, str):
        text = "set_model: model must be a string"
        _reject_or_wedge(talk, request, text, error_code="invalid_request", model=frames.model)
        return
    if wanted == "" and frames.newer:
        text = "The model is not a recognized model id."
        _refuse(talk, request, text, error_code="catalog_unknown", model=frames.model)
        return
    model = MODELS.get(wanted or "default", wanted or "")
    changed, frames.model = model != frames.model, model
    shown = f"`{model}`" if frames.newer else model
    if not frames.newer or (talk.begun and changed):
        text = f"<local-command-stdout>Set model to {shown}</local-command-stdout>"
        talk.port.send(frames.echo(text, None))
    _send(talk, request, {"model": model} if frames.newer else None)


def _set_permission_mode(talk: Talk, request: Json) -> None:
    mode = request["request"].get("mode")
    refusal = _mode_refusal(talk, mode) if talk.frames.newer else None
    if refusal is not None:
        code, text = refusal
        _refuse(talk, request, text, error_code=code)
        return
    mode = "default" if mode == "manual" else mode
    _send(talk, request, {"mode": mode})
    talk.set_mode(str(mode))


def _mode_refusal(talk: Talk, mode: object) -> tuple[str, str] | None:
    cannot = "Cannot set permission mode"
    if mode == "auto":
        return "auto_mode_model", f"{cannot} to auto: auto mode unavailable for this model"
    if mode == "bypassPermissions" and not talk.flags["may_bypass"]:
        why = "the session was not launched with --dangerously-skip-permissions"
        return "bypass_not_launched", f"{cannot} to bypassPermissions because {why}"
    if mode not in (*MODES, "manual"):
        return "invalid_mode", f"{cannot}: must be one of {', '.join(MODES)}"
    return None


def _set_max_thinking_tokens(talk: Talk, request: Json) -> None:
    value = request["request"].get("max_thinking_tokens")
    if talk.frames.newer and not isinstance(value, int | None):
        text = "set_max_thinking_tokens: max_thinking_tokens must be an integer or null"
        _refuse(talk, request, text)
    else:
        _send(talk, request)


def _apply_flag_settings(talk: Talk, request: Json) -> None:
    settings = request["request"].get("settings")
    if is_object(settings):
        if "permissions" in settings:  # replaced as a whole; the rules of the start stay
            rules = as_list(as_object(settings["permissions"]).get("ask"))
            talk.flags["must_ask"] = [*talk.flags["started_asking"], *rules]
        _send(talk, request)
    else:
        text = "apply_flag_settings requires `settings` to be an object, got undefined"
        _reject_or_wedge(talk, request, text)


def _rewind_files(talk: Talk, request: Json) -> None:
    fields: Json = request["request"]
    problem = None
    if not talk.flags["checkpoints"]:
        problem = "File rewinding is not enabled."
    elif not talk.known.get(str(fields.get("user_message_id"))):
        problem = "No file checkpoint found for this message."
    if problem is not None and fields.get("dry_run") is not True:
        _refuse(talk, request, problem)
    elif problem is not None:
        _send(talk, request, {"canRewind": False, "error": problem})
    elif fields.get("dry_run") is True:
        changes: Json = {"filesChanged": [], "insertions": 0, "deletions": 0}
        _send(talk, request, {"canRewind": True, **changes})
    else:
        links = {"skippedLinks": 0} if talk.frames.newer else {}
        _send(talk, request, {"canRewind": True, **links})


# ------------------------------------------------------------------------- MCP


def _mcp_status(talk: Talk, request: Json) -> None:
    _send(talk, request, {"mcpServers": talk.servers.status()})


def _mcp_set_servers(talk: Talk, request: Json) -> None:
    servers = request["request"].get("servers")
    if not is_object(servers):
        text = "mcp_set_servers: servers must be an object of config objects"
        _reject_or_wedge(talk, request, text)
        return
    added = [name for name in as_object(servers) if name not in talk.servers]
    removed = [name for name in talk.servers if name not in servers]
    talk.servers.disconnect(removed)
    talk.servers.connect(added)
    _send(talk, request, {"added": added, "removed": removed, "errors": {}})


def _mcp_reconnect(talk: Talk, request: Json) -> None:
    name = request["request"].get("serverName")
    if not isinstance(name, str):
        _refuse(talk, request, "mcp_reconnect: serverName must be a string")
    elif name in talk.servers:
        _refuse(talk, request, "SDK servers should be handled in print.ts")
    else:
        _refuse(talk, request, f"Server not found: {name}")


def _mcp_toggle(talk: Talk, request: Json) -> None:
    fields: Json = request["request"]
    name = str(fields.get("serverName"))
    if name not in talk.servers:
        _refuse(talk, request, f"Server not found: {name}")
        return
    talk.servers.disconnect([name])
    if fields.get("enabled") is True:
        talk.servers.connect([name])
    _send(talk, request)


def _mcp_message(talk: Talk, request: Json) -> None:
    message = as_object(request["request"].get("message"))
    _send(talk, request)
    if talk.frames.newer and message.get("method") == "notifications/tools/list_changed":
        talk.servers.refresh(request["request"].get("server_name"))


# ------------------------------------------------------------------------- queries


def _get_context_usage(talk: Talk, request: Json) -> None:
    used = {"name": "System prompt", "tokens": 120, "color": "promptBorder"}
    newer = {"id": "system_prompt", "kind": "used"} if talk.frames.newer else {}
    sizes = {"totalTokens": 120, "maxTokens": 200000, "rawMaxTokens": 200000, "percentage": 0}
    _send(talk, request, {"categories": [{**newer, **used}], **sizes, "gridRows": []})


def _get_settings(talk: Talk, request: Json) -> None:
    applied = {"model": talk.frames.model, "effort": None}
    rules = talk.flags["must_ask"]
    effective: Json = {"permissions": {"ask": rules}} if rules else {}
    _send(talk, request, {"effective": effective, "sources": [], "applied": applied})


def _get_session_cost(talk: Talk, request: Json) -> None:
    # The wording of each generation, for people. No program can rely on it.
    words = "Estimated cost:        " if talk.frames.newer else "Total cost:            "
    _send(talk, request, {"text": f"{words}${talk.frames.total_cost:.4f}"})


def _get_usage(talk: Talk, request: Json) -> None:
    if not isinstance(request["request"].get("skip_behaviors"), bool | None):
        _refuse(talk, request, "get_usage: skip_behaviors must be a boolean")
        return
    rates: Json = {"rate_limits_available": False, "rate_limits": None, "behaviors": None}
    _send(talk, request, {"session": talk.frames.usage(), "subscription_type": None, **rates})


def _get_binary_version(talk: Talk, request: Json) -> None:
    _send(talk, request, {"version": talk.frames.flavour, "buildTime": "2026-01-01T00:00:00Z"})


def _list_models(talk: Talk, request: Json) -> None:
    _send(talk, request, {"models": payloads.models()})


def _get_task_output(talk: Talk, request: Json) -> None:
    _refuse(talk, request, "get_task_output: no shell or Monitor task with that task_id")


def _empty(talk: Talk, request: Json) -> None:
    _send(talk, request, {})


def _acknowledge(talk: Talk, request: Json) -> None:
    _send(talk, request)


HANDLERS: dict[str, Callable[[Talk, Json], None]] = {
    "initialize": _initialize,
    "end_session": _end_session,
    "claim_session": _claim_session,
    "interrupt": _interrupt,
    "cancel_async_message": _cancel_async_message,
    "set_model": _set_model,
    "set_permission_mode": _set_permission_mode,
    "set_max_thinking_tokens": _set_max_thinking_tokens,
    "apply_flag_settings": _apply_flag_settings,
    "rewind_files": _rewind_files,
    "mcp_status": _mcp_status,
    "mcp_set_servers": _mcp_set_servers,
    "mcp_reconnect": _mcp_reconnect,
    "mcp_toggle": _mcp_toggle,
    "mcp_message": _mcp_message,
    "get_context_usage": _get_context_usage,
    "get_settings": _get_settings,
    "get_session_cost": _get_session_cost,
    "get_usage": _get_usage,
    "get_binary_version": _get_binary_version,
    "get_task_output": _get_task_output,
    "list_models": _list_models,
    "stop_task": _empty,
    "background_tasks": _empty,
    "seed_read_state": _acknowledge,
    "rename_session": _acknowledge,
    "set_has_subscribers": _acknowledge,
}

NEWEST_ONLY = frozenset({"claim_session", "get_task_output", "list_models", "set_has_subscribers"})
