"""Make the official message classes from the messages of Bridle.

Every field is taken from the JSON of the message, so that it has the value that the official SDK
gives it. A missing field has an empty value: a message of an unusual form does not end the
conversation. Messages and content blocks of other types than these are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, TypeAlias, cast

from msgspec import Struct, json

from bridle import content
from bridle import messages as native
from bridle.compat.claude_agent_sdk._types.message_types import (
    AssistantMessage,
    ContentBlock,
    ConversationResetMessage,
    DeferredToolUse,
    HookEventMessage,
    Message,
    MessageOrigin,
    RateLimitEvent,
    RateLimitInfo,
    ResultMessage,
    ServerToolResultBlock,
    ServerToolUseBlock,
    StreamEvent,
    SystemMessage,
    TaskNotificationMessage,
    TaskProgressMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

Raw: TypeAlias = dict[str, Any]


def parse(message: native.Message) -> Message | None:
    """Return the official message, or None if the official SDK has no class for it."""
    raw = message.raw
    make = _BY_TYPE.get(raw.get("type"))
    return None if make is None else make(raw)


def parse_alike(messages: list[native.Message]) -> list[Message] | None:
    """Return the official messages for many of one frequent kind, or None for any other list.

    This does what `parse` does, in less time.
    """
    kinds = set(map(type, messages))
    if len(kinds) != 1 or kinds.isdisjoint(_FREQUENT):
        return None
    try:
        lines: list[Any] = [one._place for one in messages]  # pyright: ignore[reportPrivateUsage]
        if set(map(type, lines)) != {bytes}:  # a field of one has another type than expected
            return None
        if native.StreamEvent in kinds:
            return list(map(_decode_event, lines))
        return list(map(_assistant_of, messages, map(_decode_usage, lines)))
    except (AttributeError, KeyError, ValueError):  # not from the wire, or of an unusual form
        return None


_FREQUENT = {native.StreamEvent, native.AssistantMessage}


class _Usage(Struct):
    usage: Any = None


class _WithUsage(Struct):
    message: _Usage
    user_message_uuids: list[str] | None = None


_decode_event = json.Decoder(StreamEvent).decode
_decode_usage = json.Decoder(_WithUsage).decode


def _assistant_of(message: Any, told: _WithUsage) -> Message:
    """Make a message from the fields that Bridle has decoded, and from two in ``told``.

    Raises:
        KeyError: it has a content block of a less frequent kind.
    """
    inner = message._message
    return AssistantMessage(
        [
            TextBlock(block.text) if type(block) is _TEXT else _SHORT_BLOCKS[type(block)](block)
            for block in inner.content
        ],
        inner.model or "",
        message.parent_tool_use_id,
        message.error,
        told.message.usage,
        inner.id,
        inner.stop_reason,
        message.session_id,
        message.uuid,
        message.user_message_uuid,
        told.user_message_uuids,
    )


_TEXT = content.TextBlock

_SHORT_BLOCKS: Mapping[type, Callable[[Any], ContentBlock]] = {
    content.ToolUseBlock: lambda block: ToolUseBlock(block.id, block.name, block.input),
}


# ---------------------------------------------------------------- content


def _text(raw: Raw) -> ContentBlock:
    return TextBlock(raw.get("text", ""))


def _thinking(raw: Raw) -> ContentBlock:
    return ThinkingBlock(raw.get("thinking", ""), raw.get("signature", ""))


def _tool_use(raw: Raw) -> ContentBlock:
    return ToolUseBlock(raw.get("id", ""), raw.get("name", ""), raw.get("input", {}))


def _tool_result(raw: Raw) -> ContentBlock:
    return ToolResultBlock(raw.get("tool_use_id", ""), raw.get("content"), raw.get("is_error"))


def _server_tool_use(raw: Raw) -> ContentBlock:
    return ServerToolUseBlock(raw.get("id", ""), raw.get("name", ""), raw.get("input", {}))


def _server_tool_result(raw: Raw) -> ContentBlock:
    return ServerToolResultBlock(raw.get("tool_use_id", ""), raw.get("content", {}))


_Blocks: TypeAlias = Mapping[str, Callable[[Raw], ContentBlock]]

_OF_USERS: _Blocks = {"text": _text, "tool_use": _tool_use, "tool_result": _tool_result}
_OF_ASSISTANTS: _Blocks = {
    **_OF_USERS,
    "thinking": _thinking,
    "server_tool_use": _server_tool_use,
    "advisor_tool_result": _server_tool_result,
}


def _content(value: object, known: _Blocks) -> list[ContentBlock]:
    blocks: list[ContentBlock] = []
    for item in cast("list[object]", value) if isinstance(value, list) else ():
        raw = cast("Raw", item) if isinstance(item, dict) else {}
        make = known.get(raw.get("type", ""))
        if make is not None:
            blocks.append(make(raw))
    return blocks


def _inner(raw: Raw) -> Raw:
    """Return the message of the API inside a message of the CLI."""
    inner = raw.get("message")
    return cast("Raw", inner) if isinstance(inner, dict) else raw


def _origin(raw: Raw) -> MessageOrigin | None:
    origin = raw.get("origin")
    is_origin = isinstance(origin, dict) and isinstance(cast("Raw", origin).get("kind"), str)
    return cast("MessageOrigin", origin) if is_origin else None


# ---------------------------------------------------------------- messages


def _user(raw: Raw) -> Message:
    said = _inner(raw).get("content", "")
    return UserMessage(
        said if isinstance(said, str) else _content(said, _OF_USERS),
        raw.get("uuid"),
        raw.get("parent_tool_use_id"),
        raw.get("tool_use_result"),
        _origin(raw),
    )


def _assistant(raw: Raw) -> Message:
    inner = _inner(raw)
    return AssistantMessage(
        _content(inner.get("content"), _OF_ASSISTANTS),
        inner.get("model", ""),
        raw.get("parent_tool_use_id"),
        raw.get("error"),
        inner.get("usage"),
        inner.get("id"),
        inner.get("stop_reason"),
        raw.get("session_id"),
        raw.get("uuid"),
        raw.get("user_message_uuid"),
        raw.get("user_message_uuids"),
    )


def _stream_event(raw: Raw) -> Message:
    return StreamEvent(
        raw.get("uuid", ""),
        raw.get("session_id", ""),
        raw.get("event", {}),
        raw.get("parent_tool_use_id"),
        raw.get("user_message_uuid"),
        raw.get("user_message_uuids"),
    )


_ALIKE = (
    *("stop_reason", "total_cost_usd", "usage", "result", "structured_output", "errors", "uuid"),
    *("permission_denials", "api_error_status", "terminal_reason"),
    *("user_message_uuid", "user_message_uuids"),
)
"""The fields of a result that have the name of the key and may be None."""


def _result(raw: Raw) -> Message:
    return ResultMessage(
        subtype=raw.get("subtype", ""),
        duration_ms=raw.get("duration_ms", 0),
        duration_api_ms=raw.get("duration_api_ms", 0),
        is_error=raw.get("is_error", False),
        num_turns=raw.get("num_turns", 0),
        session_id=raw.get("session_id", ""),
        model_usage=raw.get("modelUsage"),
        deferred_tool_use=_deferred(raw.get("deferred_tool_use")),
        origin=_origin(raw),
        **{name: raw.get(name) for name in _ALIKE},
    )


def _deferred(value: object) -> DeferredToolUse | None:
    if not isinstance(value, dict):
        return None
    raw = cast("Raw", value)
    return DeferredToolUse(raw.get("id", ""), raw.get("name", ""), raw.get("input", {}))


def _rate_limit(raw: Raw) -> Message:
    info = cast("Raw", raw.get("rate_limit_info") or {})
    return RateLimitEvent(
        RateLimitInfo(
            status=info.get("status", "allowed"),
            resets_at=info.get("resetsAt"),
            rate_limit_type=info.get("rateLimitType"),
            utilization=info.get("utilization"),
            overage_status=info.get("overageStatus"),
            overage_resets_at=info.get("overageResetsAt"),
            overage_disabled_reason=info.get("overageDisabledReason"),
            raw=info,
        ),
        raw.get("uuid", ""),
        raw.get("session_id", ""),
    )


def _conversation_reset(raw: Raw) -> Message:
    return ConversationResetMessage(
        raw.get("new_conversation_id", ""), raw.get("uuid", ""), raw.get("session_id", "")
    )


# ---------------------------------------------------------------- messages of type system


def _system(raw: Raw) -> Message:
    subtype = raw.get("subtype", "")
    make = _BY_SUBTYPE.get(subtype)
    return SystemMessage(subtype, raw) if make is None else make(subtype, raw)


def _task(kind: Callable[..., Message], defaults: Raw) -> Callable[[str, Raw], Message]:
    """Return the function that makes a message about a task, with defaults for missing keys."""
    members = {"task_id": "", "uuid": "", "session_id": "", "tool_use_id": None, **defaults}

    def make(subtype: str, raw: Raw) -> Message:
        return kind(subtype, raw, **{name: raw.get(name, copy(it)) for name, it in members.items()})

    return make


_NO_USAGE = {"total_tokens": 0, "tool_uses": 0, "duration_ms": 0}


def _task_updated(subtype: str, raw: Raw) -> Message:
    patch = raw.get("patch")
    changes = cast("Raw", patch) if isinstance(patch, dict) else {}
    return TaskUpdatedMessage(
        subtype,
        raw,
        task_id=raw.get("task_id", ""),
        patch=changes,
        status=changes.get("status"),
        session_id=raw.get("session_id"),
        uuid=raw.get("uuid"),
    )


def _hook_event(subtype: str, raw: Raw) -> Message:
    names = ("hook_event", "hook_name", "hook_event_name")
    return HookEventMessage(
        subtype,
        raw,
        hook_event_name=next((raw[name] for name in names if raw.get(name)), ""),
        session_id=raw.get("session_id"),
        uuid=raw.get("uuid"),
    )


_BY_SUBTYPE: Mapping[str, Callable[[str, Raw], Message]] = {
    "task_started": _task(TaskStartedMessage, {"description": "", "task_type": None}),
    "task_progress": _task(
        TaskProgressMessage, {"description": "", "usage": _NO_USAGE, "last_tool_name": None}
    ),
    "task_notification": _task(
        TaskNotificationMessage,
        {"status": "completed", "output_file": "", "summary": "", "usage": None},
    ),
    "task_updated": _task_updated,
    "hook_started": _hook_event,
    "hook_response": _hook_event,
}

_BY_TYPE: Mapping[str, Callable[[Raw], Message]] = {
    "stream_event": _stream_event,
    "assistant": _assistant,
    "user": _user,
    "result": _result,
    "system": _system,
    "rate_limit_event": _rate_limit,
    "conversation_reset": _conversation_reset,
}
