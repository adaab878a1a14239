"""The hooks of a session: registration, contexts and matching."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.hook_runs import (
    BASE,
    GO_ON,
    INPUTS,
    TOOL,
    Said,
    begin,
    callback,
    kinds,
    said,
)

from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.hook_run import decode_context
from bridle.errors import OptionsError
from bridle.hooks import (
    CONTEXTS,
    HOOK_EVENTS,
    BatchedToolCall,
    Hook,
    PermissionRequestContext,
    PostToolBatchContext,
    PreToolUseContext,
    StopContext,
    UnknownHookContext,
)
from bridle.options import BidirOptions
from bridle.permissions import AddRules, PermissionRule

DAY = 24 * 3600

# ---------------------------------------------------------------- registration

CLASSIC = ["PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact"]
"""The events with an option of their own."""


def test_without_hooks_nothing_is_registered() -> None:
    """R195, R200, R281, R287."""
    assert HookPlan.from_options({}, 60.0).initialize_payload() is None
    assert HookPlan.from_options({"Stop": ()}, 60.0).initialize_payload() is None


@pytest.mark.requirement("S079")
def test_each_event_with_hooks_has_one_callback_in_the_order_given() -> None:
    """R194, R196, R197."""
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
        "Stop": [{"matcher": None, "hookCallbackIds": ["hook_0"], "timeout": DAY + 60}],
        "PreToolUse": [
            {
                "matcher": None,
                "hookCallbackIds": ["hook_1"],
                "timeout": DAY + 6,
                "onFailure": "block",
            }
        ],
    }


def test_parallel_hooks_are_registered_one_by_one_with_their_matchers() -> None:
    plan = HookPlan.from_options(
        {"PreToolUse": (Hook(callback, matcher="Bash"), Hook(callback, timeout=5.0))},
        60.0,
        parallel=True,
    )
    payload = plan.initialize_payload()
    assert payload is not None
    assert [(one["matcher"], one["hookCallbackIds"]) for one in payload["PreToolUse"]] == [
        ("Bash", ["hook_0"]),
        (None, ["hook_1"]),
    ]
    assert [one["timeout"] for one in payload["PreToolUse"]] == [DAY + 60, DAY + 5]
    # The CLI has applied the matcher already.
    assert len(plan.begin("hook_0", {**BASE, **TOOL, "tool_name": "Read"}, None).waiting) == 1


def test_with_a_last_hook_one_hook_of_pre_tool_use_is_planned_in_order() -> None:
    plan = HookPlan.from_options(
        {"PreToolUse": (Hook(callback, matcher="Bash"),), "Stop": (Hook(callback),) * 2},
        60.0,
        last=Hook(callback),
        parallel=True,
    )
    payload = plan.initialize_payload()
    assert payload is not None
    # The CLI has to ask for every tool, because the last hook follows every call.
    assert [one["matcher"] for one in payload["PreToolUse"]] == [None]
    assert len(payload["Stop"]) == 2
    [callback_id] = payload["PreToolUse"][0]["hookCallbackIds"]
    run = plan.begin(callback_id, {**BASE, **TOOL, "tool_name": "Read"}, None)
    assert run.waiting == ()
    assert run.needs_last


@pytest.mark.parametrize("follower", [{"last": Hook(callback)}, {"needed": "PreToolUse"}])
def test_parallel_hooks_of_pre_tool_use_are_rejected_if_something_follows_them(
    follower: Any,
) -> None:
    hooks = {"PreToolUse": (Hook(callback), Hook(callback))}
    with pytest.raises(OptionsError, match="parallel_hooks cannot be used with 2 hooks"):
        HookPlan.from_options(hooks, 60.0, parallel=True, **follower)


def test_the_six_single_callbacks_are_announced_under_the_names_of_the_wire() -> None:
    """R191, R276, R281: those that are set, and no other."""
    six = BidirOptions(
        on_pre_tool_use=callback,
        on_post_tool_use=callback,
        on_user_prompt_submit=callback,
        on_stop=callback,
        on_subagent_stop=callback,
        on_pre_compact=callback,
    )
    payload = HookPlan.from_options(six.all_hooks(), 50.0).initialize_payload()
    assert payload is not None
    assert {name: matcher["hookCallbackIds"] for name, [matcher] in payload.items()} == {
        name: [f"hook_{number}"] for number, name in enumerate([*CLASSIC, "PostToolBatch"])
    }
    fewer = HookPlan.from_options(six.replace(on_stop=None).all_hooks(), 50.0)
    announced = fewer.initialize_payload()
    assert announced is not None
    assert list(announced) == [*(name for name in CLASSIC if name != "Stop"), "PostToolBatch"]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize(
    ("events", "announced"),
    [
        (["PreToolUse"], 0),
        (["PostToolUse"], 1),
        (["PostToolUse", "PostToolBatch"], 1),
        (["PostToolBatch", "PostToolUse"], 1),
    ],
)
def test_hooks_after_a_tool_need_the_event_after_all_tools(
    events: list[str], announced: int, *, parallel: bool
) -> None:
    hooks = {event: (Hook(callback),) for event in events}
    payload = HookPlan.from_options(hooks, 50.0, parallel=parallel).initialize_payload()
    assert payload is not None
    assert len(payload.get("PostToolBatch", [])) == announced


def test_the_timeout_sent_never_exceeds_the_longest_timer_of_the_cli() -> None:
    payload = HookPlan.from_options({"Stop": (Hook(callback),)}, 1e9).initialize_payload()
    assert payload is not None
    assert payload["Stop"][0]["timeout"] == 2147483


@pytest.mark.parametrize(
    ("own", "of_event", "expected"),
    [(2.0, 5.0, 2.0), (None, 5.0, 5.0), (None, None, 60.0)],
    ids=["own", "of the event", "general"],
)
@pytest.mark.requirement("S084")
def test_the_nearest_timeout_wins(
    own: float | None, of_event: float | None, expected: float
) -> None:
    """R071, R072, C09."""
    timeouts = None if of_event is None else {"Stop": of_event}
    plan = HookPlan.from_options({"Stop": (Hook(callback, timeout=own),)}, 60.0, timeouts)
    [hook] = plan.begin("hook_0", BASE, None).waiting
    assert hook.timeout == expected


def test_the_timeout_of_an_event_leaves_other_events_alone() -> None:
    """R090."""
    hooks = {"Stop": (Hook(callback),), "PreCompact": (Hook(callback),)}
    plan = HookPlan.from_options(hooks, 60.0, {"Stop": 5.0})
    waiting = [plan.begin(f"hook_{number}", BASE, None).waiting for number in range(2)]
    assert [hook.timeout for [hook] in waiting] == [5.0, 60.0]


# ---------------------------------------------------------------- contexts


def test_a_tool_event_has_the_id_of_its_call_from_beside_the_input() -> None:
    """R217, R227, R270."""
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


@pytest.mark.parametrize(
    "event",
    [
        pytest.param("PreToolUse", marks=pytest.mark.requirement("R264")),
        pytest.param("PostToolUse", marks=pytest.mark.requirement("R265")),
        pytest.param("UserPromptSubmit", marks=pytest.mark.requirement("R266")),
        pytest.param("Stop", marks=pytest.mark.requirement("R267")),
        pytest.param("SubagentStop", marks=pytest.mark.requirement("R268")),
        pytest.param("PreCompact", marks=pytest.mark.requirement("R269")),
        *sorted(HOOK_EVENTS.difference(CLASSIC)),
    ],
)
@pytest.mark.requirement("S047", "S048")
def test_the_input_of_each_event_is_decoded_into_its_own_context(event: str) -> None:
    """R420: what it has of its own, and what every hook is told."""
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
def test_an_input_without_its_key_field_blocks_a_gate_and_lets_other_events_go_on(
    event: str, hook_input: dict[str, Any]
) -> None:
    """R275, C31."""
    with pytest.raises(msgspec.ValidationError):
        decode_context(event, hook_input, None)
    run = begin(event, Hook(callback), hook_input=hook_input)
    assert run.answer is not None
    assert (run.answer.payload == GO_ON) is (event == "PostToolUse")
    [(kind, detail)] = run.answer.warnings
    assert kind == "hook_failed"
    assert f"the input of {event} cannot be read" in detail


def test_an_input_without_its_key_field_blocks_if_a_hook_must_succeed() -> None:
    run = begin("PreToolUse", Hook(callback, matcher="X", on_error="block"), hook_input={})
    assert run.answer is not None
    assert run.answer.payload["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_a_callback_of_which_only_the_id_is_known_blocks_a_gate() -> None:
    hooks = {"PreToolUse": [Hook(callback)], "Stop": [Hook(callback)]}
    plan = HookPlan.from_options(hooks, 60.0)
    gate, other = plan.unreadable("hook_0"), plan.unreadable("hook_1")
    assert gate is not None
    assert gate.settled.payload["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert other is not None
    assert other.settled.payload == GO_ON
    assert (plan.unreadable("hook_7"), plan.unreadable(None)) == (None, None)


@pytest.mark.parametrize("hook_input", [TOOL, INPUTS["Stop"], {"hook_event_name": ["PreToolUse"]}])
def test_an_unknown_callback_of_an_event_that_cannot_block_continues(
    hook_input: dict[str, Any],
) -> None:
    """R278."""
    run = HookPlan.from_options({}, 60.0).begin("hook_7", hook_input, None)
    assert said(run.answer) == Said(
        GO_ON, (("unknown_callback", "no hook is registered as 'hook_7'"),)
    )


def test_an_unknown_callback_of_a_gate_blocks() -> None:
    """R278."""
    run = HookPlan.from_options({}, 60.0).begin("hook_7", INPUTS["PreToolUse"], None)
    assert run.settled.payload["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert kinds(run.settled) == ["unknown_callback"]


@pytest.mark.parametrize("tool_input", ["rm -rf /", ["rm"], None, 3])
@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest", "PostToolUse"])
def test_a_tool_input_that_is_not_an_object_blocks_a_gate(event: str, tool_input: object) -> None:
    """A guard that was shown an empty input in its place would let the tool run."""
    run = begin(event, hook_input={**INPUTS[event], "tool_input": tool_input})
    if event == "PostToolUse":
        assert run.answer is None
    else:
        assert "deny" in str(run.settled.payload)
        [(kind, detail)] = run.settled.warnings
        assert (kind, "tool_input" in detail, "rm -rf" in detail) == ("hook_failed", True, False)


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
        ("Agent", "Task", True),
        ("KillShell", "TaskStop", True),
        ("TaskStop", "KillBash", True),
        ("KillShell", "KillBash", True),
        ("BashOutput|Read", "TaskOutput", True),
        ("TaskOutput", "TaskStop", False),
    ],
)
@pytest.mark.requirement("S052")
def test_a_matcher_reads_like_the_clis(matcher: str | None, tool_name: str, expected: bool) -> None:
    """R220, R283, R288."""
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
def test_a_matcher_is_compared_with_the_subject_of_its_event(event: str, field: str) -> None:
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


def test_the_cli_reads_the_matchers_of_parallel_hooks() -> None:
    hooks = {"PreToolUse": (Hook(callback, matcher="(?<name>Bash)"), Hook(callback, matcher="["))}
    payload = HookPlan.from_options(hooks, 60.0, parallel=True).initialize_payload()
    assert payload is not None
    assert [one["matcher"] for one in payload["PreToolUse"]] == ["(?<name>Bash)", "["]


def test_a_matcher_that_bridle_has_to_read_must_be_valid_in_python() -> None:
    hooks = {"PreToolUse": (Hook(callback, matcher="(?<name>Bash)"),)}
    with pytest.raises(OptionsError, match=r"Hook\.matcher is invalid"):
        HookPlan.from_options(hooks, 60.0, parallel=True, needed="PreToolUse")


@pytest.mark.parametrize(
    ("event", "on_invalid", "on_error", "on_failure"),
    [
        ("PreToolUse", "block", "continue", "block"),
        ("PreToolUse", "block", "block", "block"),
        ("PreToolUse", "send", "continue", None),
        ("PreToolUse", "send", "block", "block"),
        ("PostToolUse", "block", "block", None),
        ("PostToolUse", "send", "continue", None),
        ("PostToolUse", "send", "block", "block"),
    ],
)
def test_the_cli_decides_about_invalid_outputs_that_are_sent(
    event: str, on_invalid: Any, on_error: Any, on_failure: str | None
) -> None:
    hooks = {event: (Hook(callback, on_invalid=on_invalid, on_error=on_error),)}
    payload = HookPlan.from_options(hooks, 60.0).initialize_payload()
    assert payload is not None
    assert payload[event][0].get("onFailure") == on_failure


@pytest.mark.parametrize("follower", [{"last": Hook(callback)}, {"needed": "PreToolUse"}])
def test_outputs_that_bridle_cannot_read_are_not_sent_if_something_follows_them(
    follower: Any,
) -> None:
    """Only the CLI knows which input the call has after such an output."""
    hook = Hook(callback, on_invalid="send")
    with pytest.raises(OptionsError, match=r'Hook\.on_invalid is "send", .* PreToolUse'):
        HookPlan.from_options({"PreToolUse": (hook,)}, 60.0, **follower)
    HookPlan.from_options({"Stop": (hook,)}, 60.0, **follower)
