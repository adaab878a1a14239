"""Checks that find requests which the real API would reject.

A model that accepts every request would hide a broken conversation. Each check takes a request and
returns the first problem in the format of the API, `where: what`, or None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby

from bridle.testing.model_request import ModelRequest, content_blocks, is_array, is_object, objects

Check = Callable[[ModelRequest], str | None]

_ROLES = ("user", "assistant", "system")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SMALLEST_BUDGET = 1024
_BLOCK_TYPES = frozenset(
    {
        "text", "image", "document", "search_result", "container_upload", "compaction",
        "thinking", "redacted_thinking",
        "tool_use", "tool_result", "tool_reference",
        "tool_addition", "tool_removal", "tool_search_tool_result",
        "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
        "code_execution_tool_result", "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result", "advisor_tool_result",
        "mcp_tool_use", "mcp_tool_result",
    }
)  # fmt: skip


def complaint(request: ModelRequest) -> tuple[int, str] | None:
    """Return the status and text with which the API would reject this request, or None."""
    for status, check in _CHECKS:
        fault = check(request)
        if fault is not None:
            return status, fault
    return None


def authorized(request: ModelRequest) -> str | None:
    """Check that there is a key or a token. Any value is accepted."""
    if request.headers.get("x-api-key") or request.headers.get("authorization"):
        return None
    return "x-api-key header is required"


def _required(request: ModelRequest) -> str | None:
    for name in ("model", "max_tokens", "messages"):
        if name not in request.raw:
            return f"{name}: Field required"
    return None


def _model(request: ModelRequest) -> str | None:
    return None if request.model else "model: Input should be a non-empty string"


def _max_tokens(request: ModelRequest) -> str | None:
    tokens = request.max_tokens
    if tokens is None or isinstance(tokens, bool):
        return "max_tokens: Input should be a valid integer"
    return None if tokens >= 1 else "max_tokens: Input should be greater than or equal to 1"


def _messages(request: ModelRequest) -> str | None:
    messages = request.raw["messages"]
    if not is_array(messages) or not messages:
        return "messages: at least one message is required"
    for index, message in enumerate(messages):
        if not is_object(message):
            return f"messages.{index}: Input should be an object"
    return None


def _roles(request: ModelRequest) -> str | None:
    for index, message in enumerate(request.messages):
        if message.get("role") not in _ROLES:
            return f"messages.{index}.role: Input should be one of {', '.join(_ROLES)}"
    if request.messages[0].get("role") != "user":
        return "messages.0.role: the first message must have the role user"
    return None


def _content(request: ModelRequest) -> str | None:
    last = len(request.messages) - 1
    for index, message in enumerate(request.messages):
        content = message.get("content")
        if not isinstance(content, str) and not is_array(content):
            return f"messages.{index}.content: Input should be a string or a list of blocks"
        if not content and not (index == last and message.get("role") == "assistant"):
            return f"messages.{index}: all messages must have non-empty content"
    return None


def _blocks(request: ModelRequest) -> str | None:
    for index, message in enumerate(request.messages):
        for number, block in enumerate(content_blocks(message)):
            where = f"messages.{index}.content.{number}"
            if block.get("type") not in _BLOCK_TYPES:
                return f"{where}.type: {block.get('type')!r} is not a block type"
            if block["type"] == "text" and not block.get("text"):
                return f"{where}: text content blocks must be non-empty"
    return None


def _pairing(request: ModelRequest) -> str | None:
    """Check that each tool call has one result in the next message, and each result a call."""
    pending: list[str] = []
    seen: set[str] = set()
    for role, blocks in _speeches(request):
        if role == "assistant":
            pending = _ids(blocks, "tool_use", "id")
            repeated = seen.intersection(pending) or len(set(pending)) < len(pending)
            if repeated:
                return "messages: `tool_use` ids must be unique"
            seen.update(pending)
            continue
        results = _ids(blocks, "tool_result", "tool_use_id")
        for tool_id in results:
            if tool_id not in pending:
                return f"messages: `tool_result` for {tool_id} has no `tool_use` just before it"
        if len(set(results)) < len(results):
            return "messages: each `tool_use` must have a single result"
        if missing := [tool_id for tool_id in pending if tool_id not in results]:
            return f"messages: `tool_use` ids without `tool_result` just after: {missing}"
        pending = []
    return f"messages: `tool_use` ids without `tool_result` after: {pending}" if pending else None


def _speeches(request: ModelRequest) -> Iterator[tuple[object, list[dict[str, object]]]]:
    """Yield role and blocks of consecutive messages of one role, without system messages."""
    spoken = (message for message in request.messages if message.get("role") != "system")
    for role, messages in groupby(spoken, key=lambda message: message.get("role")):
        yield role, [block for message in messages for block in content_blocks(message)]


def _ids(blocks: list[dict[str, object]], kind: str, member: str) -> list[str]:
    return [str(block.get(member)) for block in blocks if block.get("type") == kind]


def _tools(request: ModelRequest) -> str | None:
    for index, tool in enumerate(objects(request.raw.get("tools"))):
        name = tool.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            return f"tools.{index}.name: String should match pattern '{_TOOL_NAME.pattern}'"
        if tool.get("type", "custom") == "custom" and not is_object(tool.get("input_schema")):
            return f"tools.{index}.input_schema: Field required"
    if len(set(request.tools)) < len(request.tools):
        return "tools: Tool names must be unique"
    return None


def _temperature(request: ModelRequest) -> str | None:
    value = request.raw.get("temperature", 1)
    if isinstance(value, int | float) and 0 <= value <= 1:
        return None
    return "temperature: Input should be a number from 0 to 1"


def _thinking(request: ModelRequest) -> str | None:
    asked = request.thinking or {}
    if asked.get("type") != "enabled":
        return None
    budget = asked.get("budget_tokens")
    if not isinstance(budget, int) or budget < _SMALLEST_BUDGET:
        return f"thinking.budget_tokens: Input should be at least {_SMALLEST_BUDGET}"
    if request.max_tokens is not None and budget >= request.max_tokens:
        return "`max_tokens` must be greater than `thinking.budget_tokens`"
    return None


# The order matters: a check relies on what the checks before it accepted.
_CHECKS: tuple[tuple[int, Check], ...] = (
    (401, authorized),
    (400, _required),
    (400, _model),
    (400, _max_tokens),
    (400, _messages),
    (400, _roles),
    (400, _content),
    (400, _blocks),
    (400, _pairing),
    (400, _tools),
    (400, _temperature),
    (400, _thinking),
)
