"""Messages: shapes, shortcuts, and what happens when a line is not as it should be."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest

from bridle import messages
from bridle._engine.wire.codec import decode_line
from bridle.content import ContentBlock, TextBlock, ThinkingBlock, ToolUseBlock, UnknownBlock
from bridle.messages import (
    ActiveGoal,
    ActiveGoalMessage,
    ApiMessage,
    ApiUserMessage,
    AssistantMessage,
    AuthStatus,
    CommandLifecycle,
    ConversationReset,
    DeferredToolUse,
    KeepAlive,
    Message,
    ModelUsage,
    Origin,
    PermissionDenial,
    PromptSuggestion,
    RateLimitEvent,
    RateLimitInfo,
    ResultMessage,
    ToolProgress,
    ToolUseSummary,
    TranscriptMirror,
    UnknownMessage,
    Usage,
    UserMessage,
)

Kind = TypeVar("Kind", bound=Message)


def read(kind: type[Kind], **members: object) -> Kind:
    message = decode_line(msgspec.json.encode(members))
    assert isinstance(message, kind)
    return message


def test_every_message_class_is_listed() -> None:
    classes = {
        n for n, v in vars(messages).items() if isinstance(v, type) and issubclass(v, Message)
    }
    assert classes <= set(messages.__all__)


# ---------------------------------------------------------------- assistant


def assistant(*content: object, **members: object) -> AssistantMessage:
    message = {"id": "m", "model": "opus", "content": content, "stop_reason": "end_turn"}
    return read(AssistantMessage, type="assistant", message=message, **members)


@pytest.mark.requirement("S037")
def test_an_assistant_message_yields_its_api_message_in_parts() -> None:
    """R375, R376, R429."""
    message = read(
        AssistantMessage,
        type="assistant",
        uuid="u",
        session_id="s",
        message={
            "id": "m",
            "model": "opus",
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 1, "service_tier": None},
        },
    )
    assert (message.type, message.uuid, message.session_id) == ("assistant", "u", "s")
    assert (message.message_id, message.model, message.stop_reason) == ("m", "opus", "end_turn")
    assert message.content == [ThinkingBlock("hm"), TextBlock("a")]
    assert message.message.content is message.content
    assert message.text == "a"
    assert message.usage == Usage(input_tokens=3, output_tokens=1)


def test_text_is_every_text_block_joined() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "new"}, {"type": "text", "text": "b"}]
    assert assistant(*blocks).text == "ab"


@pytest.mark.parametrize(
    ("members", "partial"),
    [({}, False), ({"is_partial": False}, False), ({"is_partial": True}, True)],
)
def test_is_partial_is_read_and_false_when_absent(
    members: dict[str, object], partial: bool
) -> None:
    """R380, R429, C38."""
    assert assistant(**members).is_partial is partial


def test_a_line_whose_only_block_is_not_text_has_no_text() -> None:
    assert assistant({"type": "thinking", "thinking": "hm"}).text == ""


def test_a_partial_message_may_be_empty() -> None:
    """R381, R429."""
    message = assistant(is_partial=True)
    assert (message.content, message.text, message.is_partial) == ([], "", True)


def test_an_assistant_message_is_built_by_hand() -> None:
    growing = AssistantMessage(ApiMessage(id="m", content=[TextBlock("a")]), is_partial=True)
    assert (growing.text, growing.message_id, growing.is_partial) == ("a", "m", True)
    assert growing.content[0].raw == {"type": "text", "text": "a"}
    assert decode_line(msgspec.json.encode(growing.raw)) == growing


def test_a_line_without_a_message_is_an_empty_one() -> None:
    message = read(AssistantMessage, type="assistant")
    assert (message.content, message.model, message.usage) == ([], None, None)
    assert message.misfits == ()


@pytest.mark.parametrize(
    ("body", "content", "misfits"),
    [
        (5, [], ("message",)),
        ({"content": None}, [], ("message.content",)),
        ({"content": "text"}, [], ("message.content",)),
        ({"content": [5]}, [UnknownBlock("", 5)], ("message.content[0]",)),
        ({"content": [], "usage": {"input_tokens": "many"}}, [], ("message.usage.input_tokens",)),
        (
            {"content": [{"type": "tool_use", "id": "t", "name": "n", "input": None}], "id": 5},
            [ToolUseBlock("t", "n", {})],
            ("message.id", "message.content[0].input"),
        ),
    ],
)
def test_an_assistant_message_that_does_not_fit_stays_one(
    body: object, content: list[ContentBlock], misfits: tuple[str, ...]
) -> None:
    message = read(AssistantMessage, type="assistant", message=body, uuid="u")
    assert (message.content, message.misfits, message.uuid) == (content, misfits, "u")
    assert message.raw == {"type": "assistant", "message": body, "uuid": "u"}


# ---------------------------------------------------------------- user


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "flat"])
@pytest.mark.parametrize(
    ("content", "text"),
    [("hi", "hi"), ("", ""), ([], ""), ([{"type": "text", "text": "hi", "new": 1}], "hi")],
)
@pytest.mark.requirement("S038")
def test_a_user_line_may_nest_its_content_or_not(
    nested: bool, content: str | list[object], text: str
) -> None:
    """R375, C15."""
    body = {"role": "user", "content": content}
    message = read(UserMessage, type="user", **({"message": body} if nested else body))
    assert message.text == text
    assert message.message == ApiUserMessage(message.content)
    raws = message.content
    assert (raws if isinstance(raws, str) else [block.raw for block in raws]) == content or not raws


def test_a_user_line_without_content_is_an_empty_one() -> None:
    assert read(UserMessage, type="user").content == ""


def test_a_user_message_is_built_by_hand() -> None:
    """R384."""
    message = UserMessage(ApiUserMessage("hi"), uuid="u")
    assert (message.content, message.text) == ("hi", "hi")
    assert decode_line(msgspec.json.encode(message.raw)) == message


def test_a_user_message_has_its_origin() -> None:
    message = read(
        UserMessage,
        type="user",
        message={"role": "user", "content": "hi"},
        isReplay=True,
        isSynthetic=True,
        tool_use_result={"stdout": ""},
        tool_result_meta=[{"id": "t"}],
        origin={"kind": "task-notification", "runId": "r"},
    )
    assert (message.is_replay, message.is_synthetic) == (True, True)
    assert (message.tool_use_result, message.tool_result_meta) == ({"stdout": ""}, ({"id": "t"},))
    assert message.origin == Origin(kind="task-notification", run_id="r")


@pytest.mark.parametrize(
    ("members", "misfits"),
    [
        ({"message": "hi"}, ("message",)),
        ({"message": {"content": 5}}, ("message.content",)),
        ({"content": 5}, ("content",)),
    ],
)
def test_a_user_line_that_does_not_fit_stays_one(
    members: dict[str, object], misfits: tuple[str, ...]
) -> None:
    message = read(UserMessage, type="user", **members)
    assert (message.content, message.misfits) == ("", misfits)


# ---------------------------------------------------------------- result


@pytest.mark.requirement("S040", "S041")
def test_a_result_is_typed_throughout() -> None:
    """R375."""
    message = read(
        ResultMessage,
        type="result",
        subtype="success",
        is_error=False,
        num_turns=2,
        duration_ms=12,
        total_cost_usd=1,
        result="done",
        usage={"output_tokens": 5, "cache_creation": {"ephemeral_5m_input_tokens": 1}},
        modelUsage={"opus": {"inputTokens": 1, "costUSD": 0.5, "contextWindow": 200000}},
        permission_denials=[{"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"a": 1}}],
        deferred_tool_use={"id": "t", "name": "Bash", "input": {}},
        structured_output={"total": 3},
        errors=["a"],
        origin={"kind": "task-notification"},
    )
    assert (message.subtype, message.num_turns, message.result) == ("success", 2, "done")
    assert (message.duration_ms, message.total_cost_usd) == (12.0, 1.0)
    assert message.usage is not None
    assert message.usage.cache_creation is not None
    assert message.usage.cache_creation.ephemeral_5m_input_tokens == 1
    usage = ModelUsage(input_tokens=1, cost_usd=0.5, context_window=200000)
    assert message.model_usage == {"opus": usage}
    assert message.permission_denials == (PermissionDenial("Bash", "t", {"a": 1}),)
    assert message.deferred_tool_use == DeferredToolUse("t", "Bash")
    assert (message.structured_output, message.errors) == ({"total": 3}, ("a",))
    assert message.origin == Origin(kind="task-notification")


def test_a_broken_result_still_ends_its_turn() -> None:
    message = read(
        ResultMessage,
        type="result",
        subtype=None,
        is_error="yes",
        num_turns=1.5,
        usage=[],
        modelUsage={"opus": {"inputTokens": "x", "costUSD": 0.5}, "sonnet": 5},
        errors=["a", {"b": 1}],
        user_message_uuids=["u"],
    )
    assert message.misfits == (
        "subtype",
        "is_error",
        "errors[1]",
        "num_turns",
        "usage",
        "model_usage.opus.input_tokens",
        "model_usage.sonnet",
    )
    assert message == ResultMessage(
        subtype="",
        is_error=False,
        errors=("a",),
        model_usage={"opus": ModelUsage(cost_usd=0.5)},
        user_message_uuids=("u",),
    )


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (
            {
                "type": "rate_limit_event",
                "rate_limit_info": {
                    "status": "allowed_warning",
                    "resetsAt": 17,
                    "rateLimitType": "five_hour",
                    "utilization": 0.9,
                    "overageStatus": "allowed",
                    "isUsingOverage": True,
                },
            },
            RateLimitEvent(
                rate_limit_info=RateLimitInfo(
                    status="allowed_warning",
                    resets_at=17.0,
                    rate_limit_type="five_hour",
                    utilization=0.9,
                    overage_status="allowed",
                    is_using_overage=True,
                )
            ),
        ),
        (
            {"type": "command_lifecycle", "command_uuid": "c", "state": "queued"},
            CommandLifecycle("c", "queued"),
        ),
        (
            {"type": "conversation_reset", "new_conversation_id": "n", "trigger": "clear"},
            ConversationReset("n", "clear"),
        ),
        (
            {
                "type": "tool_progress",
                "tool_use_id": "t",
                "tool_name": "Bash",
                "elapsed_time_seconds": 30,
                "heartbeat": True,
            },
            ToolProgress("t", "Bash", None, 30.0, True),
        ),
        (
            {"type": "tool_use_summary", "summary": "s", "preceding_tool_use_ids": ["t"]},
            ToolUseSummary("s", ("t",)),
        ),
        (
            {"type": "transcript_mirror", "filePath": "f", "entries": [{"type": "user"}]},
            TranscriptMirror("f", ({"type": "user"},)),
        ),
        (
            {"type": "auth_status", "isAuthenticating": True, "output": ["o"]},
            AuthStatus(True, ("o",)),
        ),
        ({"type": "prompt_suggestion", "suggestion": "s"}, PromptSuggestion("s")),
        (
            {"type": "active_goal", "value": {"condition": "green", "iterations": 2, "set_at": 5}},
            ActiveGoalMessage(ActiveGoal(condition="green", iterations=2, set_at=5.0)),
        ),
        ({"type": "active_goal", "value": None}, ActiveGoalMessage()),
        ({"type": "keep_alive"}, KeepAlive()),
        ({"type": "omen"}, UnknownMessage("omen")),
    ],
)
def test_every_other_message_is_read_into_its_class(
    wire: dict[str, object], message: Message
) -> None:
    found = read(Message, uuid="u", session_id="s", **wire)
    assert found == msgspec.structs.replace(message, uuid="u", session_id="s")
    assert (found.type, found.raw) == (wire["type"], {"uuid": "u", "session_id": "s", **wire})
    assert decode_line(msgspec.json.encode(message.raw)) == message


@pytest.mark.parametrize(
    ("members", "type_", "misfits"),
    [
        ({"type": "omen", "depth": 3}, "omen", ()),
        ({}, "", ("type",)),
        ({"type": None}, "", ("type",)),
        ({"type": ["user"]}, "", ("type",)),
        ({"type": "omen", "uuid": 5}, "omen", ("uuid",)),
    ],
)
def test_an_unknown_message_is_kept_whole(
    members: dict[str, object], type_: str, misfits: tuple[str, ...]
) -> None:
    message = read(UnknownMessage, **members)
    assert (message.type, message.misfits, message.raw) == (type_, misfits, members)
