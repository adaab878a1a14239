"""Events: frozen records, and a closed set of warnings that explain themselves."""

from __future__ import annotations

import re
import typing

import msgspec
import pytest

from bridle import events
from bridle.content import TextBlock
from bridle.errors import ConsumerTooSlow
from bridle.events import (
    ApiRetry,
    RateLimited,
    SdkWarning,
    SessionCompleted,
    SessionEnded,
    SessionEvent,
    SessionFailed,
    SessionReady,
    WarningKind,
    WarningLevel,
)
from bridle.messages import Subagent
from bridle.outcomes import Outcome, OutcomeReason

LEVELS: dict[WarningLevel, set[str]] = {
    "debug": {"late_response", "stray_result", "unknown_message"},
    "info": {"long_line", "missing_capabilities", "unknown_request", "untested_version"},
    "warning": {
        "cost_unknown",
        "usd_limit_passed",
        "unknown_callback",
        "orphan_response",
        "malformed_line",
        "limit_reached",
        "version_inconclusive",
        "mcp_buffer_overflow",
        "approval_lost",
        "cannot_block",
        "cannot_defer",
        "invalid_request",
        "init_failed_late",
        "missed_events",
        "missed_messages",
        "unread_messages",
        "callback_abandoned",
        "duplicate_request",
        "no_permission_callback",
        "result_ignored",
        "unanswered_request",
        "incomplete_line",
        "no_result",
        "exit_after_result",
        "setting_ignored",
        "unknown_value",
        "option_unsupported",
        "session_unlocked",
        "store_failed",
        "hook_failed",
        "hook_timed_out",
    },
    "error": {
        "oversized_line",
        "permission_failed",
        "permission_timed_out",
        "mcp_failed",
        "elicitation_failed",
        "dialog_failed",
        "unencodable_result",
        "stderr_callback_failed",
        "event_callback_failed",
    },
}


def test_every_kind_of_warning_has_the_level_it_is_logged_at() -> None:
    """C53."""
    assert {kind.value: kind.level for kind in WarningKind} == {
        kind: level for level, kinds in LEVELS.items() for kind in kinds
    }


@pytest.mark.parametrize("kind", WarningKind)
def test_every_kind_of_warning_explains_itself_in_one_sentence(kind: WarningKind) -> None:
    assert kind.meaning.endswith(".")
    assert "\n" not in kind.meaning


def test_a_kind_is_the_plain_word_it_is_called_by() -> None:
    assert SdkWarning(WarningKind.HOOK_FAILED).kind == "hook_failed"


def test_a_warning_takes_its_level_from_its_kind() -> None:
    assert SdkWarning(WarningKind.LATE_RESPONSE, "req_1").level == "debug"


@pytest.mark.parametrize(
    ("warning", "text"),
    [
        (SdkWarning(WarningKind.LATE_RESPONSE, "req_1"), "late_response: req_1"),
        (
            SdkWarning(WarningKind.CANNOT_BLOCK),
            "cannot_block: A hook blocked an event that not every CLI can block. The CLI may "
            "continue.",
        ),
    ],
)
def test_a_warning_reads_as_its_detail_or_else_its_meaning(warning: SdkWarning, text: str) -> None:
    assert str(warning) == text


EXAMPLES: list[SessionEvent] = [
    SessionReady("s-1", ("interrupt_receipt_v1",), "2.1.325", 42),
    SessionCompleted(),
    SessionEnded(143),
    SessionFailed("nobody reads", -9, ConsumerTooSlow(2, 1)),
    RateLimited(status="rejected", resets_at=1999999999.0, limit_type="five_hour"),
    ApiRetry(attempt=1, max_retries=10, delay=0.5, error_status=529, error="overloaded"),
    SdkWarning(WarningKind.HOOK_FAILED, "guard", ValueError("no")),
]


def test_the_examples_of_this_file_are_the_whole_union() -> None:
    assert tuple(map(type, EXAMPLES)) == typing.get_args(SessionEvent)


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_cannot_be_changed(event: SessionEvent) -> None:
    field = type(event).__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(event, field, None)


def test_events_say_as_little_as_is_known() -> None:
    assert SessionReady() == SessionReady(None, (), None, None)
    assert SessionCompleted().exit_code == 0
    assert SessionEnded().exit_code is None
    assert SessionFailed("gone") == SessionFailed("gone", None, None)


def test_the_module_exports_its_public_names_in_order() -> None:
    assert events.__all__ == sorted(events.__all__)


# ---------------------------------------------------------------- events of a turn


def test_every_event_of_a_turn_is_json_that_names_its_kind_and_its_agent() -> None:
    path = (Subagent("t1", "helper"),)
    examples: list[events.TurnEvent] = [
        events.TextDelta("a", agent_path=path),
        events.ThinkingDelta("a", agent_path=path),
        events.ToolStarted("t2", "Bash", agent_path=path),
        events.ToolInput("t2", "Bash", {"command": "ls"}, agent_path=path),
        events.ToolEnded("t2", "Bash", [TextBlock("a")], agent_path=path),
        events.BlockEnded("text", TextBlock("a"), agent_path=path),
        events.SubagentStarted("look", "Look.", agent_path=path),
        events.SubagentEnded("completed", agent_path=path),
        events.RetryScheduled(1, 10, 0.5, agent_path=path),
        events.TurnEnded(Outcome(reason=OutcomeReason.COMPLETED), agent_path=path),
    ]
    assert {type(one) for one in examples} == set(typing.get_args(events.TurnEvent))
    for one in examples:
        told = msgspec.json.decode(msgspec.json.encode(one))
        words = [word.lower() for word in re.findall("[A-Z][a-z]+", type(one).__name__)]
        assert told["type"] == "_".join(words)
        assert told["agent_path"] == [{"id": "t1", "type": "helper"}]
        assert "agent_path" in typing.get_type_hints(type(one))


def test_the_text_of_a_result_that_is_not_a_string_is_empty() -> None:
    assert events.ToolEnded("t1", "Bash", "a").text == "a"
    assert events.ToolEnded("t1", "Bash", {"type": "x"}).text == ""
    assert events.ToolEnded("t1", "Bash").text == ""
