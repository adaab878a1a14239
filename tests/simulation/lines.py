"""What the model CLI writes: templates of real lines, cut down to the fields that matter.

The rule of this file: bytes and tables only. A template is filled with ``%``; nothing is encoded
while a simulation runs. The kinds of results are rows of :data:`RESULTS`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from bridle.outcomes import OutcomeReason as Reason


class Kind(IntEnum):
    """What the engine is to do with a line."""

    #: Part of the conversation: delivered, byte for byte.
    MESSAGE = 0
    #: Control traffic: nobody sees it.
    CONTROL = 1
    #: Too long to keep: a warning stands for it.
    OVERSIZED = 2
    #: No JSON object: a warning stands for it.
    JUNK = 3


Turns = tuple[str, ...]
Reasons = frozenset[Reason]


class Line(Struct):
    """One line of output and the truth about it, which only the model knows."""

    data: bytes
    #: Where it ends in the output, newline included.
    end: int
    kind: Kind
    #: The prompts whose turn it belongs to.
    turns: Turns
    #: The prompts that end with it, and as what.
    ends: dict[str, Reasons] | None = None
    #: The question it puts, or takes back.
    asks: Question | None = None
    withdraws: Question | None = None
    #: The request of ours it answers.
    answers: str = ""
    #: A result that came before: nothing may come of it.
    is_stale: bool = False
    #: The total it tells, as an answer to get_usage, while `turns` run.
    total: float | None = None


class Question(Struct):
    """Something the CLI asked, followed from both ends."""

    request_id: str
    #: hook, permission, elicitation, mcp, or odd for what nobody can answer.
    kind: str
    #: The event of a hook, the id of an MCP request.
    about: str = ""
    #: The only verdicts that may come where no callback is asked.
    instant: frozenset[str] = frozenset()
    #: The CLI's view: what it was told.
    verdict: str = ""
    #: How often the engine has read it, and how often it has answered.
    seen: int = 0
    answers: int = 0
    #: The engine has read that it was taken back.
    withdrawn: bool = False
    #: The engine dropped it, because the CLI reads no more answers.
    dropped: bool = False
    #: How many hooks have been called for it.
    stage: int = 0
    #: One of them has deferred the tool.
    is_deferred: bool = False
    #: The tool call that a permission and the hooks of PermissionRequest are about.
    use: str = ""
    #: The engine's last answer, in one word.
    told: str = ""


# ---------------------------------------------------------------- control

#: The events hooks are registered for, under the ids the engine gives them.
CALLBACKS: dict[str, bytes] = {
    event: b"hook_%d" % number
    for number, event in enumerate(
        (
            "PreToolUse",
            "PostToolUse",
            "UserPromptSubmit",
            "Stop",
            "Notification",
            "PermissionRequest",
        )
    )
}

INITIALIZED_NEWER = (
    b'{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":'
    b'{"commands":[],"models":[],"claude_code_version":"2.1.325","capabilities":["a","b"]},'
    b'"pending_permission_requests":[]}}'
)
INITIALIZED_OLDER = (
    b'{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":'
    b'{"commands":[],"models":[],"pid":7}}}'
)
SUCCESS = (
    b'{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":%s}}'
)
ACK = b'{"type":"control_response","response":{"subtype":"success","request_id":"%s"}}'
FAILURE = (
    b'{"type":"control_response","response":{"subtype":"error","request_id":"%s",'
    b'"error":"it cannot be done"}}'
)
CANCEL = b'{"type":"control_cancel_request","request_id":"%s"}'
HOOK = (
    b'{"type":"control_request","request_id":"%(id)s","request":{"subtype":"hook_callback",'
    b'"callback_id":"%(callback)s","input":{"session_id":"s","hook_event_name":"%(event)s",'
    b'"prompt_id":"%(id)s","tool_name":"Bash","tool_input":{"command":"ls"},"prompt":"p",'
    b'"message":"m"},"tool_use_id":"%(use)s"}}'
)
PERMISSION = (
    b'{"type":"control_request","request_id":"%s","request":{"subtype":"can_use_tool",'
    b'"tool_name":"%s","input":{"command":"ls"},"description":"%s","tool_use_id":"%s",'
    b'"permission_suggestions":[]}}'
)
ELICITATION = (
    b'{"type":"control_request","request_id":"%s","request":{"subtype":"elicitation",'
    b'"mcp_server_name":"forms","message":"%s","mode":"form","requested_schema":{}}}'
)
MCP = (
    b'{"type":"control_request","request_id":"%s","request":{"subtype":"mcp_message",'
    b'"server_name":"%s","message":{"jsonrpc":"2.0","method":"%s","tag":"%s"%s}}}'
)
UNKNOWN_REQUEST = (
    b'{"type":"control_request","request_id":"%s","request":{"subtype":"read_mind","depth":3}}'
)
MALFORMED_REQUEST = (
    b'{"type":"control_request","request_id":"%s","request":{"subtype":"can_use_tool","input":7}}'
)

# ---------------------------------------------------------------- conversation

INIT = b'{"type":"system","subtype":"init","session_id":"s","model":"m","tools":[]%s}'
NAMED = b',"user_message_uuids":[%s]'
ECHO = (
    b'{"type":"user","message":{"role":"user","content":"%s"},"session_id":"s",'
    b'"parent_tool_use_id":null,"uuid":"%s","isReplay":true}'
)
FOREIGN_ECHO = (
    b'{"type":"user","message":{"role":"user","content":"<local-command-stdout>%s'
    b'</local-command-stdout>"},"session_id":"s","uuid":"foreign-%d","isReplay":true}'
)
LIFECYCLE = b'{"type":"command_lifecycle","command_uuid":"%s","state":"%s","session_id":"s"}'
ASSISTANT = (
    b'{"type":"assistant","message":{"id":"msg_%d","role":"assistant","model":"m","content":'
    b'[{"type":"text","text":"hello"}]},"parent_tool_use_id":null,"session_id":"s"%s}'
)
TOOL_USE = (
    b'{"type":"assistant","message":{"id":"msg_%d","role":"assistant","model":"m","content":'
    b'[{"type":"tool_use","id":"toolu_%d","name":"Bash","input":{"command":"ls"}}]},'
    b'"parent_tool_use_id":null,"session_id":"s"}'
)
SUBAGENT = (
    b'{"type":"assistant","message":{"id":"msg_%d","role":"assistant","model":"m","content":'
    b'[{"type":"text","text":"inside"}]},"parent_tool_use_id":"toolu_%d","session_id":"s"}'
)
TOOL_RESULT = (
    b'{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_%d","type":'
    b'"tool_result","content":"x","is_error":false}]},"parent_tool_use_id":null,"session_id":"s"}'
)
INTERRUPTED = (
    b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":'
    b'"[Request interrupted by user]"}]},"parent_tool_use_id":null,"session_id":"s"}'
)
DELTA = (
    b'{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":'
    b'{"type":"text_delta","text":"he"}},"session_id":"s","parent_tool_use_id":null}'
)
TASK_STARTED = (
    b'{"type":"system","subtype":"task_started","task_id":"t%d","tool_use_id":"toolu_%d",'
    b'"is_backgrounded":true,"task_type":"local_agent","session_id":"s"}'
)
TASK_UPDATED = b'{"type":"system","subtype":"task_updated","task_id":"t%d","patch":{}}'
TASK_NOTIFICATION = (
    b'{"type":"system","subtype":"task_notification","task_id":"t%d","tool_use_id":"toolu_%d",'
    b'"status":"completed","summary":"done","session_id":"s"}'
)
COMPACT_BOUNDARY = b'{"type":"system","subtype":"compact_boundary","compact_metadata":{}}'
HOOK_NOTICE_OLDER = (
    b'{"type":"system","subtype":"informational","content":"%s","level":"warning",'
    b'"prevent_continuation":true}'
)
HOOK_NOTICE_NEWER = (
    b'{"type":"system","subtype":"informational","content":"%s","level":"warning",'
    b'"prevent_continuation":true,"prompt_submit_outcome":{"kind":"%s","reason":"R"}}'
)

#: Lines that may come at any time and change nothing.
NOISE: tuple[bytes, ...] = (
    b'{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","resetsAt":9}}',
    b'{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"retry_delay_ms":500.5,'
    b'"error_status":529,"error":"overloaded"}',
    b'{"type":"system","subtype":"informational","content":"by the way","level":"notice"}',
    b'{"type":"system","subtype":"status","status":null,"permissionMode":"plan"}',
    b'{"type":"tool_progress","tool_use_id":"toolu_0-heartbeat-0","elapsed_time_seconds":30}',
    b'{"type":"system","subtype":"background_tasks_changed","tasks":[]}',
    b'{"type":"keep_alive"}',
    b'{"type":"brand_new_kind","uuid":"n","payload":[1,2,3]}',
    b'{"type":"system","subtype":"brand_new_subtype","x":{"y":null}}',
    b'{"type":"assistant","message":{"content":"not a list"},"parent_tool_use_id":"toolu_none"}',
)

# ---------------------------------------------------------------- results

_RESULT = b'{"type":"result",%s,"total_cost_usd":%.6f,"session_id":"s"%s}'


class Ending(NamedTuple):
    """A way a turn can end: what the result says, and what that means."""

    fields: bytes
    reasons: Reasons
    is_error: bool = False
    #: `error` of the assistant line before it.
    assistant_error: bytes = b""
    #: A success as far as the CLI is concerned; structured output may still be missing.
    is_success: bool = False
    #: What newer CLIs say of the prompt afterwards.
    state: bytes = b"completed"


def _failed(status: int, error: bytes, reason: Reason) -> Ending:
    fields = (
        b'"subtype":"success","is_error":true,"result":"API Error","stop_reason":"stop_sequence",'
        b'"terminal_reason":"api_error","num_turns":1,"api_error_status":%d' % status
    )
    return Ending(fields, frozenset({reason}), True, error, state=b"cancelled")


def _error(subtype: bytes, terminal: bytes, reason: Reason, state: bytes) -> Ending:
    fields = (
        b'"subtype":"%s","is_error":true,"errors":["so it is"],"stop_reason":"tool_use",'
        b'"num_turns":3%s' % (subtype, terminal)
    )
    return Ending(fields, frozenset({reason}), True, state=state)


def _clean(text: bytes, rest: bytes, reason: Reason) -> Ending:
    fields = b'"subtype":"success","is_error":false,"result":"%s"%s' % (text, rest)
    return Ending(fields, frozenset({reason}), is_success=reason is Reason.COMPLETED)


_TURN = b',"stop_reason":"end_turn","terminal_reason":"completed","num_turns":1'
_LOCAL = b',"stop_reason":null,"num_turns":0'

#: Endings of a turn that went its way; some are more frequent than others.
RESULTS: dict[str, Ending] = {
    "completed": _clean(b"ok", _TURN, Reason.COMPLETED),
    "structured": _clean(b"{}", _TURN + b',"structured_output":{"a":1}', Reason.COMPLETED),
    "api_error": _failed(529, b"server_error", Reason.API_ERROR),
    "auth": _failed(401, b"authentication_failed", Reason.AUTH_FAILED),
    "rate_limit": _failed(429, b"rate_limit", Reason.RATE_LIMITED),
    "max_turns": _error(
        b"error_max_turns", b',"terminal_reason":"max_turns"', Reason.MAX_TURNS, b"completed"
    ),
    "output_retries": _error(
        b"error_max_structured_output_retries", b"", Reason.OUTPUT_INVALID, b"cancelled"
    ),
    # Without a terminal reason only our own interrupt could explain it.
    "crashed": _error(b"error_during_execution", b"", Reason.EXECUTION_ERROR, b"cancelled"),
    "refused": _clean(
        b"no", b',"stop_reason":"refusal","terminal_reason":"completed"', Reason.REFUSED
    ),
    "cut_off": _clean(
        b"par", b',"stop_reason":"max_tokens","terminal_reason":"completed"', Reason.API_ERROR
    ),
    "brand_new": _clean(b"?", b',"terminal_reason":"brand_new"', Reason.EXECUTION_ERROR),
    "unreadable": Ending(
        b'"subtype":["success"],"is_error":"maybe","result":7', frozenset({Reason.EXECUTION_ERROR})
    ),
}
USUAL = ("completed", "completed", "completed", "completed", "completed", "structured")
UNUSUAL = tuple(RESULTS)

#: Endings that something has to lead to.
BUDGET = _error(b"error_max_budget_usd", b"", Reason.MAX_BUDGET, b"cancelled")
ABORTED = _error(
    b"error_during_execution", b',"terminal_reason":"aborted_%s"', Reason.INTERRUPTED, b"cancelled"
)
LOCAL = _clean(b"## Context", _LOCAL, Reason.COMPLETED)
UNKNOWN_COMMAND = _clean(b"Unknown command: /no", _LOCAL, Reason.EXECUTION_ERROR)
BLOCKED = _clean(b"UserPromptSubmit operation blocked by hook:\\nR", _LOCAL, Reason.PROMPT_BLOCKED)
HALTED = _clean(b"Operation stopped by hook: R", _LOCAL, Reason.STOPPED_BY_HOOK)
HOOK_STOPPED = _clean(
    b"", b',"stop_reason":"tool_use","terminal_reason":"hook_stopped"', Reason.STOPPED_BY_HOOK
)
STOP_PREVENTED = _clean(b"t", b',"terminal_reason":"stop_hook_prevented"', Reason.STOPPED_BY_HOOK)
DEFERRED = _clean(
    b"", b',"terminal_reason":"tool_deferred","deferred_tool_use":{"id":"x"}', Reason.TOOL_DEFERRED
)


def result_line(ending: Ending, total: float, rest: bytes) -> bytes:
    """A result; ``rest`` names its prompts and its origin, in JSON."""
    return _RESULT % (ending.fields, total, rest)
