"""Build every line that the fake CLI writes, with the members of a real CLI.

This module builds frames and counts; it does not write. Ids are unique within a run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from . import payloads
from .payloads import COST_OF_A_CALL, NEWER, NEWEST, NEWEST_MEMBERS, OLDER
from .port import encode
from .values import Json

REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file). STOP what you are doing and wait"
    " for the user to tell you how to proceed."
)
"""The text that the model reads about a tool call that the user rejected."""


def new_session_id() -> str:
    """Return a random id in the format of session ids."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


def timestamp() -> str:
    """Return the present time in ISO format."""
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"


class Frames:
    """The frames of one session."""

    def __init__(self, flavour: str, session_id: str, model: str, permission_mode: str) -> None:
        #: Whether the process started with the flag for MCP servers in the handshake.
        self.awaits_initialize = False
        #: Eight random digits for the ids of this process, which no other one has.
        self.run = os.urandom(4).hex()
        self.flavour = flavour
        self.newer = flavour != OLDER
        self.session_id = session_id
        self.model = model
        self.permission_mode = permission_mode
        self.cwd = os.getcwd()
        #: The path of the transcript. It exists only if the fake keeps transcripts.
        self.transcript_path = f"{self.cwd}/.claude/{session_id}.jsonl"
        #: The id of the prompt of the turn. Empty for a turn without a prompt.
        self.prompt_id = ""
        #: Why the current message of the model ends. Its lines do not say it, the transcript does.
        self.stop_reason = "end_turn"
        #: The number of model calls since the start, and of those reported in a result.
        self.calls = 0
        self._accounted = 0
        self._results = 0
        self._serial = 0

    # -- ids and versions --------------------------------------------------------------------------

    def new_id(self) -> str:
        """Return a new uuid."""
        self._serial += 1
        return f"{self.run}-0000-4000-8000-{self._serial:012x}"

    def fit(self, kind: str, members: Json) -> Json:
        """Remove the members that this version does not send."""
        unknown: frozenset[str] = frozenset()
        if self.flavour != NEWEST:
            unknown |= NEWEST_MEMBERS.get(kind, frozenset())
        if not self.newer:
            unknown |= NEWER.get(kind, frozenset())
        if not unknown:
            return members
        return {name: value for name, value in members.items() if name not in unknown}

    def _frame(self, kind: str, **members: object) -> Json:
        return self.fit(
            kind,
            {"type": kind, **members, "uuid": self.new_id(), "session_id": self.session_id},
        )

    # -- control frames ----------------------------------------------------------------------------

    def question(self, subtype: str, **fields: object) -> Json:
        """Return a control request of the CLI."""
        request = self.fit(subtype, {"subtype": subtype, **fields})
        return {"type": "control_request", "request_id": self.new_id(), "request": request}

    def withdrawal(self, request_id: str) -> Json:
        """Return the withdrawal of a request."""
        return {"type": "control_cancel_request", "request_id": request_id}

    def answer(self, request: Json, payload: Json | None = None, **beside: object) -> Json:
        """Return a success response. Without a payload, it only acknowledges the request."""
        response: Json = {"subtype": "success", **_id_of(request)}
        if payload is not None:
            response["response"] = payload
        return {"type": "control_response", "response": {**response, **beside}}

    def refusal(self, request: Json, error: str, **beside: object) -> Json:
        """Return an error response."""
        response = {"subtype": "error", **_id_of(request), "error": error, **beside}
        return {"type": "control_response", "response": self.fit("error", response)}

    def initialized(
        self, request: Json, payload: Json | None = None, parked: Json | None = None
    ) -> Json:
        """Return the response to initialize. `parked` is what it says about manifests, if any."""
        if payload is None:
            asked = request["request"]
            servers = "mcpServers" in asked
            payload = self.introduction(hooks=bool(asked.get("hooks")), servers=servers)
            if parked:
                payload["sdk_mcp_manifests_parked"] = parked
        lists: Json = {"pending_permission_requests": [], "pending_user_dialog_requests": []}
        return self.answer(request, payload, **(lists if self.newer else {}))

    def introduction(self, *, hooks: bool = False, servers: bool = False) -> Json:
        """Return the facts about the CLI for the response to initialize."""
        told: Json = {
            "commands": [self.fit("command", one) for one in payloads.commands()],
            "agents": [{"name": n, "description": f"The agent {n}."} for n in payloads.AGENTS],
            "output_style": "default",
            "available_output_styles": payloads.STYLES,
            "user_output_styles_dir": f"{self.cwd}/.claude/output-styles",
            "models": [self.fit("model", one) for one in payloads.models()],
            "account": {
                "tokenSource": "none",
                "apiKeySource": "ANTHROPIC_API_KEY",
                "apiProvider": "firstParty",
            },
            "pid": os.getpid(),
            "claude_code_version": self.flavour,
            "current_permission_mode": self.permission_mode,
            "hook_on_failure_supported": True,
            "hooks_when_unanswered_kept": 0,
            "other_hook_ask_outranks_host": True,
            "feedback_mode": {"kind": "disabled"},
            "analytics_disabled": True,
            "remote_control_auto_enable": False,
            "remote_control_auto_connect_default": False,
            "remote_control_available": False,
            "remote_control_auto_on_by_default": False,
            "ide_rc_auto_enable_gate": False,
            "fast_mode_state": "off",
            "fast_mode_disabled_reason": "sdk_opt_in_required",
            "session_state": "idle",
            "capabilities": ["ui_surface_v1"],
        }
        if hooks:
            told["hooks_applied"] = True
        if servers:
            told["mcp_servers_applied"] = self.awaits_initialize
        return self.fit("initialize", told)

    # -- requests of the CLI -----------------------------------------------------------------------

    def hook_callback(
        self, callback_id: str, event: str, fields: Json, tool_use_id: str | None = None
    ) -> Json:
        """Return a request to run a hook."""
        prompt = {"prompt_id": self.prompt_id} if self.prompt_id else {}
        about: Json = {
            "session_id": self.session_id,
            "transcript_path": self.transcript_path,
            "cwd": self.cwd,
            **prompt,
            "permission_mode": self.permission_mode,
            "hook_event_name": event,
            **fields,
        }
        return self.question(
            "hook_callback",
            callback_id=callback_id,
            input=about,
            tool_use_id=tool_use_id or self.new_id(),
        )

    def can_use_tool(self, tool: str, tool_input: Json, tool_use_id: str, **more: object) -> Json:
        """Return a permission request."""
        server, _, name = tool.removeprefix("mcp__").partition("__")
        rule: Json = {"toolName": tool}
        about: Json = {"tool_name": tool, "display_name": tool}
        if tool.startswith("mcp__"):
            about |= {
                "mcp_server": {"name": server, "source": "sdk"},
                "display_name": name.title(),
                "server_policy_ask_only": True,
            }
        command = tool_input.get("command")
        if isinstance(command, str):
            rule["ruleContent"] = command
            about["description"] = command
        suggestion = {
            "type": "addRules",
            "rules": [rule],
            "behavior": "allow",
            "destination": "localSettings",
        }
        return self.question(
            "can_use_tool",
            **about,
            input=tool_input,
            permission_suggestions=[suggestion],
            tool_use_id=tool_use_id,
            **more,
        )

    def mcp_message(self, server: str, message: Json) -> Json:
        """Return a JSON-RPC message for an MCP server in the client."""
        return self.question("mcp_message", server_name=server, message=message)

    def rpc_id(self, number: int) -> str | int:
        """Return the id of a JSON-RPC request: a text on the newest CLI."""
        return f"{self.run}:{number}" if self.flavour == NEWEST else number

    def mcp_initialize(self) -> Json:
        """Return the initialize message for an MCP server."""
        client = {
            "name": "claude-code",
            "title": "Claude Code",
            "description": "A fake of the CLI",
            "websiteUrl": "https://claude.com/claude-code",
            "version": self.flavour,
        }
        params = {"protocolVersion": payloads.MCP_VERSION, "capabilities": {}, "clientInfo": client}
        return {"method": "initialize", "params": params, "jsonrpc": "2.0", "id": self.rpc_id(0)}

    # -- the session -------------------------------------------------------------------------------

    def lifecycle(self, uuid: str, state: str) -> Json:
        """Return the state of a prompt."""
        return self._frame("command_lifecycle", command_uuid=uuid, state=state)

    def init(
        self, uuids: list[str], tools: Iterable[str] = (), servers: Iterable[Json] = ()
    ) -> Json:
        """Return the init message of a turn."""
        frame = self._frame(
            "system",
            subtype="init",
            cwd=self.cwd,
            tools=[*payloads.TOOLS, *tools],
            mcp_servers=[self.fit("mcp_server", server) for server in servers],
            model=self.model,
            permissionMode=self.permission_mode,
            slash_commands=payloads.SLASH_COMMANDS,
            terminal_slash_commands=[],
            apiKeySource="ANTHROPIC_API_KEY",
            claude_code_version=self.flavour,
            output_style="default",
            agents=payloads.AGENTS,
            skills=[],
            plugins=[],
            capabilities=payloads.SESSION_CAPABILITIES,
            analytics_disabled=True,
            product_feedback_disabled=True,
            memory_paths={"auto": f"{self.cwd}/.claude/memory/"},
            original_cwd=self.cwd,
            additional_directories=[],
            messaging_socket_path=f"{self.cwd}/.claude/{os.getpid()}.sock",
            fast_mode_state="off",
            fast_mode_disabled_reason="sdk_opt_in_required",
            per_turn_effort_active=False,
            ultrathink_available=False,
            ultrathink_typed_raises=False,
            view_mode="default",
        )
        return {**frame, "user_message_uuids": uuids} if uuids and self.newer else frame

    def status(self, status: str | None, **members: object) -> Json:
        """Return a status message."""
        return self._frame("system", subtype="status", status=status, **members)

    def system(self, subtype: str, **members: object) -> Json:
        """Return any other system message."""
        return self._frame("system", subtype=subtype, **members)

    # -- the conversation --------------------------------------------------------------------------

    def echo(self, content: object, uuid: str | None, *, timestamped: bool = True) -> Json:
        """Return the echo of a prompt."""
        frame = self._user(content, isReplay=True)
        frame["uuid"] = uuid or frame["uuid"]
        return {**frame, "timestamp": timestamp()} if timestamped else frame

    def words(self, text: str, **members: object) -> Json:
        """Return a user message that the CLI writes itself."""
        return self._user([{"type": "text", "text": text}], timestamp=timestamp(), **members)

    def tool_result(
        self, tool_use_id: str, content: object, result: object, meta: Json, *, is_error: bool
    ) -> Json:
        """Return the result of a tool call."""
        block = {
            "type": "tool_result",
            "content": content,
            "is_error": is_error,
            "tool_use_id": tool_use_id,
        }
        return self._user(
            [block],
            timestamp=timestamp(),
            tool_use_result=result,
            tool_result_meta=[{"id": tool_use_id, **meta}],
        )

    def resumed_result(self, result: Json, source: str) -> Json:
        """Return the result of a resumed call, which older CLIs send like a transcript's entry."""
        if self.newer:
            return result
        changed = {name: value for name, value in result.items() if name != "tool_use_result"}
        whole = {"toolUseResult": result["tool_use_result"], "sourceToolAssistantUUID": source}
        return {**changed, **whole}

    def hook_ran(self, tool_use_id: str) -> Json:
        """Return the message about the PreToolUse hook of a call that the process resumed."""
        attachment = {
            "type": "hook_success",
            "hookName": "PreToolUse:Callback",
            "toolUseID": tool_use_id,
            "hookEvent": "PreToolUse",
            "content": "",
            "command": "callback",
        }
        return self._frame(
            "attachment", attachment=attachment, timestamp=timestamp(), parent_tool_use_id=None
        )

    def _user(self, content: object, **members: object) -> Json:
        message = {"role": "user", "content": content}
        return self._frame("user", message=message, parent_tool_use_id=None, **members)

    @property
    def message_id(self) -> str:
        """The id of the current message of the model."""
        return f"msg_{self.run}{self.calls:04d}"

    def api_message(self, content: list[Json]) -> Json:
        """Return a message of the Messages API, as known while it is streamed."""
        return {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": payloads.INPUT_TOKENS,
                "output_tokens": 1,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        }

    def assistant(self, block: Json, **members: object) -> Json:
        """Return a message of the model with one block."""
        if str(block.get("name", "")).startswith("mcp__"):
            server, _, name = str(block["name"]).removeprefix("mcp__").partition("__")
            meta = {"id": block["id"], "display_name": name.title(), "server_display_name": server}
            members["tool_use_meta"] = [self.fit("tool_use_meta", {**meta, "tool_name": name})]
        return self._frame(
            "assistant",
            message={**self.api_message([block]), "context_management": None},
            parent_tool_use_id=None,
            timestamp=timestamp(),
            request_id=f"req_{self.run}{self.calls:04d}",
            **members,
        )

    def api_failure(self, text: str, status: int, **members: object) -> Json:
        """Return the message that the CLI writes in place of the model after an API error."""
        frame = self.assistant({"type": "text", "text": text}, **members)
        frame["message"] |= {
            "id": self.new_id(),
            "container": None,
            "model": "<synthetic>",
            "stop_details": None,
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
        }
        failure = {
            "error": "server_error",
            "is_api_error_message": True,
            "api_error_status": status,
            "api_error_type": "overloaded_error",
        }
        return self.fit("assistant", {**frame, **failure})

    def stream_event(self, event: Json, **members: object) -> Json:
        """Return a stream event."""
        return self._frame(
            "stream_event",
            event=event,
            parent_tool_use_id=None,
            api_message_id=self.message_id,
            **members,
        )

    def delta_lines(self, text: str, count: int) -> list[bytes]:
        """Return ``count`` equal text deltas, encoded once and numbered."""
        delta = {"type": "text_delta", "text": text}
        event = {"type": "content_block_delta", "index": 0, "delta": delta}
        line = encode(self.stream_event(event))
        before, after = line.split(b"%012x" % self._serial)
        first, self._serial = self._serial, self._serial + count - 1
        return [b"%b%012x%b" % (before, first + n, after) for n in range(count)]

    # -- the end of a turn -------------------------------------------------------------------------

    def result(self, uuids: list[str], calls: int, **members: object) -> Json:
        """Return the result of a turn. `members` replace those of a successful result."""
        model_usage = self._model_usage(self.calls)
        counted: Json = {
            "duration_api_ms": 5 * calls,
            "stop_reason": "end_turn",
            "session_id": self.session_id,
            "total_cost_usd": self.total_cost,
            "usage": self.fit("usage", payloads.usage(calls)),
            "modelUsage": model_usage,
            "permission_denials": [],
            "terminal_reason": "completed",
            "fast_mode_state": "off",
            "fast_mode_disabled_reason": "sdk_opt_in_required",
            "subagent_stats": payloads.SUBAGENTS,
            "safety_stops": 0,
            "is_error": False,
            "num_turns": calls,
            "subtype": "success",
            "type": "result",
            "duration_ms": 10 * calls,
            "uuid": self.new_id(),
        }
        ours = {"user_message_uuid": uuids[-1], "user_message_uuids": uuids} if uuids else {}
        since = {
            "queued_turn_count": 0,
            "result_index": self._results,
            "model_usage_since_last_result": self._model_usage(self.calls - self._accounted),
        }
        if "total_cost_usd" in members:  # the script sets its own cost
            del since["model_usage_since_last_result"]
        self._accounted = self.calls
        self._results += 1
        whole = {**counted, **ours, **since, **members}
        return self.fit("result", {n: value for n, value in whole.items() if value is not ...})

    @property
    def total_cost(self) -> float:
        """Return the dollars that the model calls so far have cost."""
        return round(COST_OF_A_CALL * self.calls, 9)

    def usage(self) -> Json:
        """Return the totals of the process, as in the response to `get_usage`."""
        return {
            "total_cost_usd": self.total_cost,
            "total_api_duration_ms": 5 * self.calls,
            "total_duration_ms": 10 * self.calls,
            "total_lines_added": 0,
            "total_lines_removed": 0,
            "model_usage": self._model_usage(self.calls),
        }

    def _model_usage(self, calls: int) -> Json:
        if not calls:
            return {}
        return {self.model: self.fit("model_usage", payloads.model_usage(self.model, calls))}


TIMINGS: Json = {
    "ttft_ms": 5,
    "ttft_stream_ms": 4,
    "time_to_request_ms": 2,
    "first_content_frame_ms": 4,
    "request_sent_wall_ms": 1767225600000,
    "first_request_input_tokens": payloads.INPUT_TOKENS,
    "first_request_cache_read_input_tokens": 0,
}
"""Members of a result about the first model call."""


def _id_of(request: Json) -> Json:
    """Return the id member for a response; empty if the request has no id."""
    return {"request_id": request["request_id"]} if "request_id" in request else {}
