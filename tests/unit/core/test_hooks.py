"""The hook policy: registration, matching, order, decisions, failures and their spelling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from bridle._core.hooks import HookAnswer, HookPlan, HookRun, decode_context
from bridle.hooks import (
    CONTEXTS,
    HOOK_EVENTS,
    BatchedToolCall,
    Block,
    Continue,
    EndTurn,
    Hook,
    HookOutput,
    ModifyInput,
    PermissionRequestContext,
    PostToolBatchContext,
    PreToolUseContext,
    StopContext,
    UnknownHookContext,
)
from bridle.options import BidirOptions
from bridle.permissions import AddRules, Allow, Deny, PermissionRule

GO_ON = {"continue": True}
BASE: dict[str, Any] = {
    "session_id": "s1",
    "transcript_path": "/t.jsonl",
    "cwd": "/w",
    "prompt_id": "p1",
}
TOOL: dict[str, Any] = {**BASE, "tool_name": "Bash", "tool_input": {"command": "ls"}}
INPUTS: dict[str, dict[str, Any]] = {
    event: {**TOOL, "prompt": "hi", "hook_event_name": event} for event in HOOK_EVENTS
}

BLOCKED_BY_DECISION = {
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "Stop",
    "SubagentStop",
    "PreCompact",
    "TaskCreated",
    "TaskCompleted",
    "PreModelSwitch",
}
BLOCKED_BY_SOME = {"Elicitation", "ElicitationResult", "TeammateIdle", "ConfigChange"}
NEVER_BLOCKED = (
    HOOK_EVENTS
    - BLOCKED_BY_DECISION
    - BLOCKED_BY_SOME
    - {
        "PreToolUse",
        "PermissionRequest",
    }
)
ENDS_BY_ITSELF = {
    "PostToolUse",
    "PostToolBatch",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "Stop",
}
CARRIES_CONTEXT = {
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "SessionStart",
    "Notification",
    "PostModelSwitch",
}


def callback(context: object) -> None:
    """A hook that is never called: the policy only names it."""


def begin(event: str, *hooks: Hook, hook_input: dict[str, Any] | None = None) -> HookRun:
    """A run of `event` with these hooks, or with two plain ones."""
    plan = HookPlan.from_options({event: hooks or (Hook(callback), Hook(callback))}, 60.0)
    wire = INPUTS.get(event, TOOL) if hook_input is None else hook_input
    return plan.begin("hook_0", wire, "toolu_1")


def answer_of(event: str, *results: object, hooks: tuple[Hook, ...] = ()) -> HookAnswer:
    """The answer after the hooks of `event` returned `results`."""
    run = begin(event, *hooks)
    for result in results:
        run.done(result)
    assert run.answer is not None
    return run.answer


class Said(NamedTuple):
    """What there is to an answer; the order of its members is not."""

    payload: Mapping[str, object]
    warnings: tuple[tuple[str, str], ...] = ()
    ends_turn: bool = False
    needs_interrupt: bool = False


def said(answer: HookAnswer | None) -> Said:
    """What an answer says."""
    assert answer is not None
    return Said(answer.payload, answer.warnings, answer.ends_turn, answer.needs_interrupt)


def kinds(answer: HookAnswer) -> list[str]:
    """The kinds of its warnings."""
    return [kind for kind, _ in answer.warnings]


def specific(event: str, **members: object) -> dict[str, object]:
    """The event's own part of an answer."""
    return {"hookSpecificOutput": {"hookEventName": event, **members}}


# ---------------------------------------------------------------- registration


def test_without_hooks_nothing_is_registered() -> None:
    """R195, R200, R220, R281, R287, C35."""
    assert HookPlan.from_options({}, 60.0).initialize_payload() is None
    assert HookPlan.from_options({"Stop": ()}, 60.0).initialize_payload() is None


def test_each_event_with_hooks_has_one_callback_in_the_order_given() -> None:
    """R194 to R197, R199, R276, R279, R281, C09, C10."""
    plan = HookPlan.from_options(
        {
            "Stop": (Hook(callback),),
            "Notification": (),
            "PreToolUse": (Hook(callback, matcher="Bash"), Hook(callback, timeout=0.5)),
        },
        60.0,
        {"PreToolUse": 5.0},
    )
    assert plan.initialize_payload() == {
        "Stop": [{"matcher": None, "hookCallbackIds": ["hook_0"], "timeout": 70}],
        "PreToolUse": [{"matcher": None, "hookCallbackIds": ["hook_1"], "timeout": 16}],
    }


def test_the_six_single_callbacks_are_announced_under_the_names_of_the_wire() -> None:
    """R191, R194 to R197, R263, R276, R279 to R281: those that are set, and no other."""
    six = BidirOptions(
        on_pre_tool_use=callback,
        on_post_tool_use=callback,
        on_user_prompt_submit=callback,
        on_stop=callback,
        on_subagent_stop=callback,
        on_pre_compact=callback,
    )
    names = ["PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact"]
    assert HookPlan.from_options(six.all_hooks(), 50.0).initialize_payload() == {
        name: [{"matcher": None, "hookCallbackIds": [f"hook_{number}"], "timeout": 60}]
        for number, name in enumerate(names)
    }
    fewer = HookPlan.from_options(six.replace(on_stop=None).all_hooks(), 50.0)
    announced = fewer.initialize_payload()
    assert announced is not None
    assert list(announced) == [name for name in names if name != "Stop"]


def test_the_timeout_sent_never_exceeds_the_longest_timer_of_the_cli() -> None:
    payload = HookPlan.from_options({"Stop": (Hook(callback),)}, 1e9).initialize_payload()
    assert payload is not None
    assert payload["Stop"][0]["timeout"] == 2147483


@pytest.mark.parametrize(
    ("own", "of_event", "expected"),
    [(2.0, 5.0, 2.0), (None, 5.0, 5.0), (None, None, 60.0)],
    ids=["own", "of the event", "general"],
)
def test_the_nearest_timeout_wins(
    own: float | None, of_event: float | None, expected: float
) -> None:
    """R071, R072, R280, R298, C09."""
    timeouts = None if of_event is None else {"Stop": of_event}
    plan = HookPlan.from_options({"Stop": (Hook(callback, timeout=own),)}, 60.0, timeouts)
    [hook] = plan.begin("hook_0", BASE, None).waiting
    assert hook.timeout == expected


# ---------------------------------------------------------------- contexts


def test_a_tool_event_has_the_id_of_its_call_from_beside_the_input() -> None:
    """R217, R227, R264, R270, R274."""
    context = decode_context("PreToolUse", {**TOOL, "new": 1}, "toolu_9")
    assert context == PreToolUseContext(
        session_id="s1",
        transcript_path="/t.jsonl",
        cwd="/w",
        hook_event_name="PreToolUse",
        prompt_id="p1",
        tool_use_id="toolu_9",
        tool_name="Bash",
        tool_input={"command": "ls"},
    )
    assert context.raw == {**TOOL, "new": 1}


CHANGED = {"tool_name": "Write", "tool_input": {"file_path": "/f"}}
DECODED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "PreToolUse": (CHANGED, CHANGED),
    "PostToolUse": (
        {**CHANGED, "tool_response": {"ok": 1}, "duration_ms": 7},
        {**CHANGED, "tool_response": {"ok": 1}, "tool_output": {"ok": 1}, "duration_ms": 7.0},
    ),
    "PostToolUseFailure": (
        {**CHANGED, "error": "no", "is_interrupt": True},
        {**CHANGED, "error": "no", "is_interrupt": True},
    ),
    "PermissionRequest": (
        {**CHANGED, "permission_suggestions": []},
        {**CHANGED, "permission_suggestions": ()},
    ),
    "PermissionDenied": ({**CHANGED, "reason": "r"}, {**CHANGED, "reason": "r"}),
    "PostToolBatch": ({"tool_calls": []}, {"tool_calls": ()}),
    "UserPromptSubmit": ({"prompt": "hi"}, {"prompt": "hi"}),
    "UserPromptExpansion": (
        {"prompt": "p", "command_name": "c", "command_args": "a"},
        {"prompt": "p", "command_name": "c", "command_args": "a"},
    ),
    "MessageDisplay": ({"delta": "d", "final": True}, {"delta": "d", "final": True, "index": 0}),
    "Stop": (
        {"stop_hook_active": True, "last_assistant_message": "bye"},
        {"stop_hook_active": True, "last_assistant_message": "bye", "reason": None},
    ),
    "StopFailure": ({"error": "overloaded"}, {"error": "overloaded"}),
    "SubagentStart": (
        {"agent_id": "a1", "agent_type": "Explore"},
        {"agent_id": "a1", "agent_type": "Explore"},
    ),
    "SubagentStop": (
        {"agent_id": "a1", "agent_transcript_path": "/a.jsonl", "stop_hook_active": False},
        {"subagent_id": "a1", "agent_transcript_path": "/a.jsonl", "reason": None},
    ),
    "PreCompact": (
        {"trigger": "manual", "custom_instructions": "short"},
        {"trigger": "manual", "custom_instructions": "short"},
    ),
    "PostCompact": (
        {"trigger": "auto", "compact_summary": "s"},
        {"trigger": "auto", "compact_summary": "s"},
    ),
    "SessionStart": ({"source": "clear", "model": "m"}, {"source": "clear", "model": "m"}),
    "SessionEnd": ({"reason": "clear"}, {"reason": "clear"}),
    "Setup": ({"trigger": "init"}, {"trigger": "init"}),
    "Notification": (
        {"message": "m", "title": "t", "notification_type": "n"},
        {"message": "m", "title": "t", "notification_type": "n"},
    ),
    "Elicitation": (
        {"mcp_server_name": "s", "message": "?", "requested_schema": {}},
        {"mcp_server_name": "s", "message": "?", "mode": "form", "requested_schema": {}},
    ),
    "ElicitationResult": (
        {"mcp_server_name": "s", "action": "accept", "content": {"a": 1}},
        {"mcp_server_name": "s", "action": "accept", "content": {"a": 1}},
    ),
    "TaskCreated": (
        {"task_id": "1", "task_subject": "s"},
        {"task_id": "1", "task_subject": "s", "task_description": None},
    ),
    "TaskCompleted": ({"task_id": "1"}, {"task_id": "1", "task_subject": ""}),
    "TeammateIdle": ({"teammate_name": "n"}, {"teammate_name": "n", "team_name": None}),
    "PreModelSwitch": (
        {"from_model": "a", "to_model": "b", "estimated_cache_write_usd": 1},
        {"from_model": "a", "to_model": "b", "estimated_cache_write_usd": 1.0},
    ),
    "PostModelSwitch": ({"to_model": "b"}, {"to_model": "b", "from_model": ""}),
    "InstructionsLoaded": (
        {"file_path": "/f", "load_reason": "include"},
        {"file_path": "/f", "load_reason": "include", "trigger_file_path": None},
    ),
    "ConfigChange": ({"source": "user", "file_path": "/f"}, {"source": "user", "file_path": "/f"}),
    "DirectoryAdded": ({"directory": "/d", "source": "s"}, {"directory": "/d", "source": "s"}),
    "CwdChanged": ({"old_cwd": "/a", "new_cwd": "/b"}, {"old_cwd": "/a", "new_cwd": "/b"}),
    "FileChanged": ({"file_path": "/f"}, {"file_path": "/f"}),
    "WorktreeCreate": ({"name": "w"}, {"name": "w"}),
    "WorktreeRemove": ({"worktree_path": "/w"}, {"worktree_path": "/w"}),
}


@pytest.mark.parametrize("event", sorted(HOOK_EVENTS))
def test_the_input_of_each_event_is_decoded_into_its_own_context(event: str) -> None:
    """R264 to R269, R274, R417, R420, C31: what it has of its own, and what every hook is told."""
    wire, told = DECODED[event]
    common = {**BASE, "permission_mode": "plan", "hook_event_name": event}
    context = decode_context(event, {**common, **wire, "new": [1]}, None)
    assert type(context) is CONTEXTS[event]
    assert {name: getattr(context, name) for name in {**common, **told}} == {**common, **told}
    assert context.raw == {**common, **wire, "new": [1]}


def test_the_id_in_the_input_of_a_tool_event_wins() -> None:
    context = decode_context("PreToolUse", {**TOOL, "tool_use_id": "toolu_1"}, "toolu_9")
    assert context.tool_use_id == "toolu_1"


def test_other_events_do_not_take_the_made_up_id() -> None:
    """R267."""
    context = decode_context("Stop", {"stop_hook_active": True}, "7cd5b65e")
    assert context == StopContext(hook_event_name="Stop", stop_hook_active=True)


def test_fields_that_do_not_fit_take_their_defaults() -> None:
    """R217, C31."""
    wire = {"stop_hook_active": "yes", "last_assistant_message": "ok", "background_tasks": 3}
    context = decode_context("Stop", wire, None)
    assert context == StopContext(hook_event_name="Stop", last_assistant_message="ok")
    assert context.raw == wire


def test_nested_parts_of_a_context_are_typed() -> None:
    """R274."""
    update = {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow"}
    request = decode_context("PermissionRequest", {**TOOL, "permission_suggestions": [update]}, "t")
    assert isinstance(request, PermissionRequestContext)
    assert request.permission_suggestions == (AddRules((PermissionRule("Bash"),)),)
    calls = [{"tool_name": "Bash", "tool_input": {"a": 1}, "tool_use_id": "t", "tool_response": 3}]
    batch = decode_context("PostToolBatch", {"tool_calls": calls}, None)
    assert isinstance(batch, PostToolBatchContext)
    assert batch.tool_calls == (
        BatchedToolCall(tool_name="Bash", tool_input={"a": 1}, tool_use_id="t", tool_response=3),
    )


def test_an_event_of_the_future_has_its_raw_input() -> None:
    context = decode_context("Dreaming", {"session_id": "s1", "sheep": 3}, "x")
    assert context == UnknownHookContext(session_id="s1", hook_event_name="Dreaming")
    assert context.raw["sheep"] == 3


@pytest.mark.parametrize(
    ("event", "hook_input"),
    [
        ("PreToolUse", {"tool_input": {}}),
        ("PostToolUse", {"tool_name": 3}),
        ("UserPromptSubmit", {}),
    ],
)
def test_an_input_without_its_key_field_goes_on_with_a_warning(
    event: str, hook_input: dict[str, Any]
) -> None:
    """R275, C31."""
    with pytest.raises(msgspec.ValidationError):
        decode_context(event, hook_input, None)
    run = begin(event, Hook(callback), hook_input=hook_input)
    assert run.answer is not None
    assert run.answer.payload == GO_ON
    [(kind, detail)] = run.answer.warnings
    assert kind == "hook_failed"
    assert f"the input of {event} cannot be read" in detail


def test_an_input_without_its_key_field_blocks_if_a_hook_must_succeed() -> None:
    run = begin("PreToolUse", Hook(callback, matcher="X", on_error="block"), hook_input={})
    assert run.answer is not None
    assert run.answer.payload["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_a_callback_nobody_registered_is_told_to_go_on() -> None:
    """R278."""
    run = HookPlan.from_options({}, 60.0).begin("hook_7", TOOL, None)
    assert said(run.answer) == Said(
        GO_ON, (("unknown_callback", "no hook is registered as 'hook_7'"),)
    )


# ---------------------------------------------------------------- matchers


@pytest.mark.parametrize(
    ("matcher", "tool_name", "expected"),
    [
        (None, "Bash", True),
        ("", "Bash", True),
        ("*", "Bash", True),
        (".*", "Bash", True),
        ("Bash", "Bash", True),
        ("bash", "Bash", False),
        ("Ba", "Bash", False),
        ("Write|Edit", "Edit", True),
        ("Bash,Read", "Read", True),
        ("Bash | Write", "Write", True),
        ("mcp__calc", "mcp__calc__add", False),
        ("mcp__calc__.*", "mcp__calc__add", True),
        ("ash.*", "Bash", True),
        ("B.s", "Bash", True),
        ("^W.*", "Bash", False),
        ("^(?!Bash).*", "Bash", False),
        ("Bash(echo:*)", "Bash", False),
        ("Task", "Agent", True),
        ("^Task$", "Agent", True),
        ("Agent", "Agent", True),
        ("Task", "TaskCreate", False),
    ],
)
def test_a_matcher_reads_like_the_clis(matcher: str | None, tool_name: str, expected: bool) -> None:
    """R220, R283, R288, R431, C10."""
    wire = {**TOOL, "tool_name": tool_name}
    run = begin("PreToolUse", Hook(callback, matcher=matcher), hook_input=wire)
    assert (run.answer is None) is expected


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ("PreToolUse", "tool_name"),
        ("PostToolUse", "tool_name"),
        ("PostToolUseFailure", "tool_name"),
        ("PermissionRequest", "tool_name"),
        ("PermissionDenied", "tool_name"),
        ("UserPromptExpansion", "command_name"),
        ("StopFailure", "error"),
        ("SubagentStart", "agent_type"),
        ("SubagentStop", "agent_type"),
        ("PreCompact", "trigger"),
        ("PostCompact", "trigger"),
        ("Setup", "trigger"),
        ("SessionStart", "source"),
        ("SessionEnd", "reason"),
        ("Notification", "notification_type"),
        ("Elicitation", "mcp_server_name"),
        ("ElicitationResult", "mcp_server_name"),
        ("PreModelSwitch", "to_model"),
        ("PostModelSwitch", "to_model"),
        ("InstructionsLoaded", "load_reason"),
        ("ConfigChange", "source"),
        ("DirectoryAdded", "source"),
    ],
)
def test_a_matcher_is_held_against_what_the_event_is_about(event: str, field: str) -> None:
    hook = Hook(callback, matcher="wanted")
    assert begin(event, hook, hook_input={**TOOL, field: "wanted"}).answer is None
    assert begin(event, hook, hook_input={**TOOL, field: "other"}).answer is not None


@pytest.mark.parametrize(
    "event", ["UserPromptSubmit", "Stop", "PostToolBatch", "TaskCreated", "MessageDisplay", "Dream"]
)
def test_events_about_nothing_in_particular_ignore_matchers(event: str) -> None:
    """C10."""
    run = begin(event, Hook(callback, matcher="zzz"), hook_input=INPUTS["Stop"])
    assert run.answer is None


def test_an_event_that_does_not_say_what_it_is_about_matches_no_name() -> None:
    run = begin("SubagentStart", Hook(callback, matcher="Explore"), hook_input={})
    assert run.answer is not None


def test_hooks_that_do_not_match_are_left_out() -> None:
    """R431, C10."""
    first, second = Hook(callback, matcher="Write"), Hook(callback, matcher="Bash")
    [hook] = begin("PreToolUse", first, second).waiting
    assert hook.hook is second


def test_no_matching_hook_goes_on_at_once() -> None:
    assert said(begin("PreToolUse", Hook(callback, matcher="Write")).answer) == Said(GO_ON)


# ---------------------------------------------------------------- order and decisions


def test_hooks_run_in_their_order_and_then_the_event_goes_on() -> None:
    """R203, R271, R284, R285, R431, R464."""
    hooks = (Hook(callback, timeout=1.0), Hook(callback, timeout=2.0))
    run = begin("Stop", *hooks)
    seen: list[Hook] = []
    while run.answer is None:
        seen.append(run.waiting[0].hook)
        run.done(None)
    assert seen == list(hooks)
    assert said(run.answer) == Said(GO_ON)


@pytest.mark.parametrize(
    "decision",
    [Block("no"), ModifyInput({}), EndTurn("enough"), HookOutput(permission_decision="allow")],
    ids=lambda decision: type(decision).__name__,
)
def test_the_first_decision_skips_the_hooks_behind_it(decision: object) -> None:
    """R286, R431, C10."""
    run = begin("PreToolUse", Hook(callback), Hook(callback))
    run.done(decision)
    assert run.answer is not None


def test_reports_after_the_answer_change_nothing() -> None:
    """R290, C48."""
    run = begin("PreToolUse", Hook(callback))
    run.done(Block("no"))
    answer = run.answer
    run.done(Continue())
    run.failed("hook_failed", "late")
    run.abandon("limit_reached", "later")
    assert run.answer is answer


def test_added_context_and_messages_accumulate_into_the_answer() -> None:
    answer = answer_of(
        "PostToolUse",
        Continue("one", "first"),
        HookOutput(additional_context="two", system_message="second", suppress_output=True),
        Block("feedback"),
        hooks=(Hook(callback),) * 3,
    )
    assert said(answer) == Said(
        {
            "decision": "block",
            "reason": "feedback",
            **specific("PostToolUse", additionalContext="one\ntwo"),
            "systemMessage": "first\nsecond",
            "suppressOutput": True,
        }
    )


@pytest.mark.parametrize("event", sorted(HOOK_EVENTS | {"Dream"}))
def test_context_reaches_the_model_or_is_warned_about(event: str) -> None:
    answer = answer_of(event, Continue("look"), None)
    if event in CARRIES_CONTEXT:
        assert said(answer) == Said({**GO_ON, **specific(event, additionalContext="look")})
    else:
        assert said(answer) == Said(
            GO_ON, (("result_ignored", f"{event} carries no additional context"),)
        )


# ---------------------------------------------------------------- blocking


def test_a_blocked_tool_is_denied() -> None:
    """R271, R417, C13."""
    assert said(answer_of("PreToolUse", Block("no"))) == Said(
        specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="no")
    )


def test_a_blocked_permission_is_denied() -> None:
    decision = {"behavior": "deny", "message": "no"}
    assert said(answer_of("PermissionRequest", Block("no"))) == Said(
        specific("PermissionRequest", decision=decision)
    )


@pytest.mark.parametrize("event", sorted(BLOCKED_BY_DECISION))
def test_most_events_are_blocked_by_a_decision(event: str) -> None:
    """R417, C13."""
    assert said(answer_of(event, Block("no"))) == Said({"decision": "block", "reason": "no"})


@pytest.mark.parametrize("event", sorted(BLOCKED_BY_SOME | {"Dream"}))
def test_a_block_that_not_every_cli_honours_is_sent_with_a_warning(event: str) -> None:
    answer = answer_of(event, Block("no"))
    assert answer.payload == {"decision": "block", "reason": "no"}
    assert answer.warnings == (("cannot_block", f"not every CLI lets a hook block {event}"),)


@pytest.mark.parametrize("event", sorted(NEVER_BLOCKED))
def test_what_cannot_be_blocked_goes_on_with_a_warning(event: str) -> None:
    answer = answer_of(event, Block("no"), None)
    assert said(answer) == Said(GO_ON, (("cannot_block", f"{event} cannot be blocked"),))


@pytest.mark.parametrize(
    ("reason", "text"),
    [(None, "None"), (3, "3"), ("cut \ud83d", "cut ?")],
    ids=["None", "number", "broken character"],
)
def test_an_odd_reason_still_blocks(reason: Any, text: str) -> None:
    assert answer_of("Stop", Block(reason)).payload == {"decision": "block", "reason": text}


# ---------------------------------------------------------------- ending the turn


def test_ending_the_turn_before_a_tool_denies_it_too() -> None:
    denied = specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="enough")
    assert said(answer_of("PreToolUse", EndTurn("enough"))) == Said(
        {"continue": False, "stopReason": "enough", **denied},
        ends_turn=True,
        needs_interrupt=True,
    )


def test_ending_the_turn_at_a_permission_denies_it_too() -> None:
    decision = {"behavior": "deny", "message": "enough", "interrupt": True}
    assert said(answer_of("PermissionRequest", EndTurn("enough"))) == Said(
        {
            "continue": False,
            "stopReason": "enough",
            **specific("PermissionRequest", decision=decision),
        },
        ends_turn=True,
        needs_interrupt=True,
    )


@pytest.mark.parametrize("event", sorted(HOOK_EVENTS - {"PreToolUse", "PermissionRequest"}))
def test_the_answer_says_whether_the_cli_ends_the_turn_by_itself(event: str) -> None:
    assert said(answer_of(event, EndTurn("enough"))) == Said(
        {"continue": False, "stopReason": "enough"},
        ends_turn=True,
        needs_interrupt=event not in ENDS_BY_ITSELF,
    )


# ---------------------------------------------------------------- changing the input


def test_a_changed_input_leaves_the_permission_to_be_asked() -> None:
    """R205, R271, R417, C13."""
    answer = answer_of("PreToolUse", ModifyInput({"command": "pwd"}))
    assert said(answer) == Said(
        {**GO_ON, **specific("PreToolUse", updatedInput={"command": "pwd"})}
    )


@pytest.mark.parametrize("event", sorted(HOOK_EVENTS - {"PreToolUse"}))
def test_a_changed_input_elsewhere_counts_as_going_on(event: str) -> None:
    """R272."""
    run = begin(event)
    run.done(ModifyInput({"command": "pwd"}))
    assert run.answer is None
    run.done(None)
    assert said(run.answer) == Said(
        GO_ON, (("result_ignored", f"{event} knows no updated_input (ModifyInput)"),)
    )


def test_an_input_that_json_cannot_carry_goes_on_with_a_warning() -> None:
    """R273."""
    answer = answer_of("PreToolUse", ModifyInput({"command": object()}), None)
    assert answer.payload == GO_ON
    assert kinds(answer) == ["unencodable_result"]


def test_an_answer_does_not_change_with_the_object_it_was_made_from() -> None:
    new_input = {"command": ["ls"]}
    answer = answer_of("PreToolUse", ModifyInput(new_input))
    new_input["command"].append("-l")
    assert answer.payload["hookSpecificOutput"]["updatedInput"] == {"command": ["ls"]}


# ---------------------------------------------------------------- every wire field


@pytest.mark.parametrize(
    ("event", "output", "payload"),
    [
        (
            "PreToolUse",
            HookOutput(permission_decision="ask", permission_decision_reason="sure?"),
            specific("PreToolUse", permissionDecision="ask", permissionDecisionReason="sure?"),
        ),
        (
            "PreToolUse",
            HookOutput(permission_decision="allow", updated_input={"a": 1}, continue_turn=True),
            {**GO_ON, **specific("PreToolUse", permissionDecision="allow", updatedInput={"a": 1})},
        ),
        ("PreToolUse", HookOutput(decision="approve"), {"decision": "approve"}),
        (
            "PreToolUse",
            HookOutput(decision="block", reason="no"),
            {"decision": "block", "reason": "no"},
        ),
        (
            "PostToolUse",
            HookOutput(updated_tool_output="x", updated_mcp_tool_output=["y"]),
            specific("PostToolUse", updatedToolOutput="x", updatedMCPToolOutput=["y"]),
        ),
        (
            "PermissionRequest",
            HookOutput(permission=Allow()),
            specific(
                "PermissionRequest",
                decision={"behavior": "allow", "updatedInput": {"command": "ls"}},
            ),
        ),
        (
            "PermissionRequest",
            HookOutput(permission=Deny("no", interrupt=True)),
            specific(
                "PermissionRequest",
                decision={"behavior": "deny", "message": "no", "interrupt": True},
            ),
        ),
        (
            "PreModelSwitch",
            HookOutput(permission_decision="deny"),
            specific("PreModelSwitch", permissionDecision="deny"),
        ),
        (
            "WorktreeCreate",
            HookOutput(specific={"worktreePath": "/w"}),
            specific("WorktreeCreate", worktreePath="/w"),
        ),
    ],
    ids=[
        "ask",
        "allow with input",
        "approve",
        "block",
        "tool output",
        "allow a permission",
        "deny a permission",
        "deny a model",
        "anything else",
    ],
)
def test_an_output_is_sent_as_it_is(
    event: str, output: HookOutput, payload: dict[str, object]
) -> None:
    """C13."""
    assert said(answer_of(event, output)) == Said(payload)


@pytest.mark.parametrize("kind", [Continue, HookOutput])
def test_nothing_of_a_result_that_fails_is_sent(kind: Any) -> None:
    class Silent:
        def __str__(self) -> str:
            raise ValueError("not a word")

    failing = kind(additional_context="half", system_message=Silent())
    answer = answer_of("PreToolUse", failing, None)
    failure = ("hook_failed", "PreToolUse hook callback: its result raised ValueError: not a word")
    assert said(answer) == Said(GO_ON, (failure,))


def test_an_output_can_end_the_turn() -> None:
    answer = answer_of("PreToolUse", HookOutput(continue_turn=False, stop_reason="enough"))
    assert said(answer) == Said(
        {"continue": False, "stopReason": "enough"}, ends_turn=True, needs_interrupt=True
    )


@pytest.mark.parametrize(
    "output",
    [HookOutput(), HookOutput(continue_turn=True), HookOutput(suppress_output=False)],
    ids=["nothing", "go on", "not quiet"],
)
def test_an_output_without_a_decision_decides_nothing(output: HookOutput) -> None:
    run = begin("PreToolUse")
    run.done(output)
    assert run.answer is None
    run.done(None)
    assert said(run.answer) == Said(GO_ON)


@pytest.mark.parametrize("event", ["PermissionRequest", "SessionStart"])
def test_a_decision_the_event_does_not_read_is_warned_about(event: str) -> None:
    answer = answer_of(event, HookOutput(decision="block", reason="no"))
    assert answer.warnings == (("cannot_block", f"{event} cannot be blocked"),)


def test_nonsense_as_a_permission_denies() -> None:
    answer = answer_of("PermissionRequest", HookOutput(permission="yes"))  # type: ignore[arg-type]  # nonsense on purpose
    assert answer.payload["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    assert kinds(answer) == ["permission_failed"]


def test_a_broken_reason_does_not_break_a_denial() -> None:
    output = HookOutput(permission_decision="deny", permission_decision_reason="cut \ud83d")
    answer = answer_of("PreToolUse", output)
    assert answer.payload == specific(
        "PreToolUse", permissionDecision="deny", permissionDecisionReason="cut ?"
    )


# ---------------------------------------------------------------- failures


class Hostile(Mapping[str, object]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> object:
        raise OSError("unreadable")

    def __iter__(self) -> Iterator[str]:
        raise OSError("unreadable")

    def __len__(self) -> int:
        return 1


NONSENSE: list[tuple[Any, str]] = [
    (True, "PreToolUse hook callback: it returned bool; return Continue()"),
    ({"decision": "block"}, "it returned dict; return Continue(), Block(reason)"),
    (Block, "it returned the class Block; return"),
    (ModifyInput([1]), "ModifyInput.updated_input is list"),  # type: ignore[arg-type]  # nonsense on purpose
    (HookOutput(decision="nonsense"), "HookOutput.decision cannot be 'nonsense'"),  # type: ignore[arg-type]  # nonsense on purpose
    (HookOutput(permission_decision="maybe"), "permission_decision cannot be 'maybe'"),  # type: ignore[arg-type]  # nonsense on purpose
    (HookOutput(continue_turn="false"), "continue_turn is str, not a bool"),  # type: ignore[arg-type]  # nonsense on purpose
    (HookOutput(suppress_output=1), "suppress_output is int, not a bool"),  # type: ignore[arg-type]  # nonsense on purpose
    (HookOutput(specific=[1]), "specific is list, not a mapping"),  # type: ignore[arg-type]  # nonsense on purpose
    (HookOutput(specific=Hostile()), "its result raised OSError: unreadable"),
]


@pytest.mark.parametrize(("result", "detail"), NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_a_failure_of_its_hook_alone(result: object, detail: str) -> None:
    run = begin("PreToolUse")
    run.done(result)
    assert len(run.waiting) == 1
    run.done(Block("no"))
    assert run.answer is not None
    assert run.answer.payload["hookSpecificOutput"]["permissionDecision"] == "deny"
    [(kind, why)] = run.answer.warnings
    assert kind == "hook_failed"
    assert detail in why


@pytest.mark.parametrize("result", [True, ModifyInput({"a": object()})], ids=["junk", "no JSON"])
def test_nonsense_blocks_where_the_hook_must_succeed(result: object) -> None:
    answer = answer_of("Stop", result, hooks=(Hook(callback, on_error="block"),))
    if result is True:
        assert answer.payload["decision"] == "block"
    answer = answer_of("PreToolUse", result, hooks=(Hook(callback, on_error="block"),))
    assert answer.payload["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_a_failing_hook_lets_the_next_one_decide() -> None:
    """R299."""
    run = begin("PreToolUse")
    run.failed("hook_timed_out", "after 60 s")
    assert run.answer is None
    run.failed("hook_failed", "ValueError")
    assert said(run.answer) == Said(
        GO_ON, (("hook_timed_out", "after 60 s"), ("hook_failed", "ValueError"))
    )


def test_a_failing_hook_that_must_succeed_blocks_without_telling_the_model_why() -> None:
    run = begin("PreToolUse", Hook(callback, on_error="block"), Hook(callback))
    run.failed("hook_failed", "secret")
    assert run.answer is not None
    assert run.answer.payload["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "secret" not in str(run.answer.payload)
    assert run.answer.warnings == (("hook_failed", "secret"),)


def test_a_failing_hook_cannot_block_what_cannot_be_blocked() -> None:
    run = begin("Notification", Hook(callback, on_error="block"))
    run.failed("hook_failed", "ValueError")
    assert run.answer is not None
    assert run.answer.payload == GO_ON
    assert kinds(run.answer) == ["hook_failed", "cannot_block"]


@pytest.mark.parametrize(
    ("on_error", "payload"),
    [
        ("continue", GO_ON),
        (
            "block",
            {
                "decision": "block",
                "reason": "Blocked because a required hook of the application did not succeed.",
            },
        ),
    ],
)
def test_a_run_that_cannot_start_fails_all_its_hooks(
    on_error: Any, payload: dict[str, object]
) -> None:
    run = begin("Stop", Hook(callback), Hook(callback, on_error=on_error))
    run.abandon("limit_reached", "32 callbacks are pending")
    assert said(run.answer) == Said(payload, (("limit_reached", "32 callbacks are pending"),))


def test_no_answer_ever_claims_to_be_asynchronous() -> None:
    """R290, C48."""
    for event in HOOK_EVENTS:
        for result in (None, Block("b"), EndTurn("e"), ModifyInput({}), HookOutput(reason="r")):
            run = begin(event, Hook(callback))
            run.done(result)
            assert run.answer is not None
            assert "async" not in run.answer.payload
