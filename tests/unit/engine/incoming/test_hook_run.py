"""A run of the hooks of one event: order, decisions, changed inputs, failures, the one answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.hook_runs import (
    BASE,
    GO_ON,
    TOOL,
    Said,
    answer_of,
    begin,
    callback,
    done,
    kinds,
    said,
    specific,
)

from bridle._engine.incoming.hook_run import CheckedOutput, HookAnswer
from bridle.hooks import (
    HOOK_EVENTS,
    Block,
    Continue,
    EndTurn,
    Hook,
    HookOutput,
    ModifyInput,
    PostToolUseContext,
    PreToolUseContext,
)
from bridle.permissions import Allow, Deny

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


# ---------------------------------------------------------------- order and decisions


def test_hooks_run_in_their_order_and_then_the_event_goes_on() -> None:
    """R203, R271, R285, R464."""
    hooks = (Hook(callback, timeout=1.0), Hook(callback, timeout=2.0))
    run = begin("Stop", *hooks)
    seen: list[Hook] = []
    while run.answer is None:
        seen.append(run.waiting[0].hook)
        done(run, None)
    assert seen == list(hooks)
    assert said(run.answer) == Said(GO_ON)


@pytest.mark.parametrize(
    "decision",
    [
        Block("no"),
        Deny("no"),
        EndTurn("enough"),
        HookOutput(permission_decision="allow"),
        HookOutput(permission_decision="ask"),
        HookOutput(decision="approve"),
    ],
    ids=repr,
)
def test_the_first_decision_skips_the_hooks_behind_it(decision: object) -> None:
    """R286, R431, C10."""
    run = begin("PreToolUse", Hook(callback), Hook(callback))
    done(run, decision)
    assert run.answer is not None


def test_reports_after_the_answer_change_nothing() -> None:
    """R290, C48."""
    run = begin("PreToolUse", Hook(callback))
    done(run, Block("no"))
    answer = run.answer
    done(run, Continue())
    run.failed("hook_failed", "late")
    run.invalid("hook_failed", "later")
    run.refuse()
    assert run.close("even later") is answer


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
            GO_ON, (("result_ignored", f"{event} does not support additional context"),)
        )


# ---------------------------------------------------------------- blocking


def test_a_blocked_tool_is_denied() -> None:
    """R271, R417."""
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
    """R417."""
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
    """R309."""
    denied = specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="enough")
    assert said(answer_of("PreToolUse", EndTurn("enough"))) == Said(
        {"continue": False, "stopReason": "enough", **denied},
        ends_turn=True,
        needs_interrupt=True,
    )


def test_ending_the_turn_at_a_permission_denies_it_too() -> None:
    """R309."""
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
    """R309."""
    assert said(answer_of(event, EndTurn("enough"))) == Said(
        {"continue": False, "stopReason": "enough"},
        ends_turn=True,
        needs_interrupt=event not in ENDS_BY_ITSELF,
    )


# ---------------------------------------------------------------- changing the input


def test_a_changed_input_leaves_the_permission_to_be_asked() -> None:
    """R205, R271, R417."""
    answer = answer_of("PreToolUse", ModifyInput({"command": "pwd"}), None)
    assert said(answer) == Said(
        {**GO_ON, **specific("PreToolUse", updatedInput={"command": "pwd"})}
    )


GATES = {"PreToolUse", "PermissionRequest", "UserPromptSubmit", "UserPromptExpansion"}


@pytest.mark.parametrize("event", sorted(GATES - {"PreToolUse"}))
def test_a_changed_input_blocks_a_gate_that_has_no_input_to_change(event: str) -> None:
    """R272."""
    answer = answer_of(event, ModifyInput({"command": "pwd"}))
    assert blocks(event, answer)
    detail = f"{event} hook (callback): {event} does not support updated_input (ModifyInput)"
    assert answer.warnings == (("hook_failed", detail),)


@pytest.mark.parametrize("event", sorted(HOOK_EVENTS - GATES))
def test_a_changed_input_is_ignored_with_a_warning_after_the_fact(event: str) -> None:
    """R272."""
    run = begin(event)
    done(run, ModifyInput({"command": "pwd"}))
    assert run.answer is None
    done(run, None)
    assert said(run.answer) == Said(
        GO_ON, (("result_ignored", f"{event} does not support updated_input (ModifyInput)"),)
    )


def test_an_input_that_json_cannot_carry_blocks() -> None:
    """The hook wanted another input, so the original one must not run."""
    answer = answer_of("PreToolUse", ModifyInput({"command": object()}))
    assert blocks("PreToolUse", answer)
    assert kinds(answer) == ["unencodable_result"]


def test_an_answer_does_not_change_with_the_object_it_was_made_from() -> None:
    new_input = {"command": ["ls"]}
    run = begin("PreToolUse")
    done(run, ModifyInput(new_input))
    new_input["command"].append("-l")
    done(run, None)
    assert updated_input(run.settled) == {"command": ["ls"]}


def blocks(event: str, answer: HookAnswer) -> bool:
    """Tell whether the answer is a refusal as the CLI understands it for this event."""
    payload = answer.payload
    specific = payload.get("hookSpecificOutput", {})
    if event == "PreToolUse":
        return bool(specific.get("permissionDecision") == "deny")
    if event == "PermissionRequest":
        return bool(specific.get("decision", {}).get("behavior") == "deny")
    return bool(payload.get("decision") == "block")


def updated_input(answer: HookAnswer) -> object:
    """Return the input the tool runs with, if the answer changes it."""
    return answer.payload.get("hookSpecificOutput", {}).get("updatedInput")


@pytest.mark.parametrize(
    "change",
    [ModifyInput({"command": "pwd"}), HookOutput(updated_input={"command": "pwd"})],
    ids=["ModifyInput", "HookOutput"],
)
def test_the_hooks_after_a_changed_input_see_it_and_decide(change: object) -> None:
    run = begin("PreToolUse", Hook(callback), Hook(callback))
    done(run, change)
    assert run.answer is None
    context = run.context
    assert isinstance(context, PreToolUseContext)
    assert context.tool_input == context.raw["tool_input"] == {"command": "pwd"}
    done(run, Block("no"))
    assert blocks("PreToolUse", run.settled)
    assert updated_input(run.settled) is None


@pytest.mark.parametrize(
    ("later", "decision"),
    [
        (None, None),
        (Continue("context"), None),
        (HookOutput(permission_decision="allow"), "allow"),
        (HookOutput(permission_decision="ask"), "ask"),
        ({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}},
         "allow"),
    ],
    ids=["nothing", "context", "allow", "ask", "a dict"],
)  # fmt: skip
def test_what_finally_runs_is_the_changed_input(later: object, decision: str | None) -> None:
    answer = answer_of("PreToolUse", ModifyInput({"command": "pwd"}), later)
    assert updated_input(answer) == {"command": "pwd"}
    assert answer.payload["hookSpecificOutput"].get("permissionDecision") == decision


@pytest.mark.parametrize(
    "output",
    [
        HookOutput(specific={"hookEventName": "PreToolUse"}),
        HookOutput(updated_input={"command": "pwd"}, permission_decision_reason="shorter"),
        HookOutput(continue_turn=True, reason="fine"),
        {"continue_": True, "reason": "fine"},
    ],
    ids=repr,
)
def test_an_output_that_does_not_decide_does_not_skip_the_guard_behind_it(output: object) -> None:
    run = begin("PreToolUse")
    done(run, output)
    assert run.answer is None
    done(run, Block("no"))
    assert blocks("PreToolUse", run.settled)


def test_the_last_changed_input_counts() -> None:
    hooks = (Hook(callback),) * 3
    run = begin("PreToolUse", *hooks)
    done(run, ModifyInput({"command": "pwd"}))
    run.failed("hook_failed", "it raised")
    done(run, HookOutput(updated_input={"command": "id"}, permission_decision="allow"))
    assert updated_input(run.settled) == {"command": "id"}


def test_a_changed_input_outlives_a_later_hook_that_fails() -> None:
    run = begin("PreToolUse")
    done(run, ModifyInput({"command": "pwd"}))
    run.failed("hook_timed_out", "too slow")
    assert updated_input(run.settled) == {"command": "pwd"}


def test_an_empty_input_blocks_because_a_cli_would_run_the_original_one() -> None:
    answer = answer_of("PreToolUse", ModifyInput({}))
    assert (blocks("PreToolUse", answer), kinds(answer)) == (True, ["hook_failed"])
    no_input = {**TOOL, "tool_input": {}}
    run = begin("PreToolUse", Hook(callback), hook_input=no_input)
    done(run, ModifyInput({}))
    assert run.settled.payload == {**GO_ON, **specific("PreToolUse", updatedInput={})}


def test_a_changed_tool_output_is_what_the_following_hooks_see_and_what_the_model_reads() -> None:
    run = begin("PostToolUse", hook_input={**TOOL, "tool_response": "secret"})
    done(run, HookOutput(updated_tool_output="***"))
    context = run.context
    assert isinstance(context, PostToolUseContext)
    assert context.tool_response == "***"
    done(run, Block("feedback"))
    assert run.settled.payload == {
        "decision": "block",
        "reason": "feedback",
        **specific("PostToolUse", updatedToolOutput="***"),
    }


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "PermissionRequest"])
def test_each_hook_has_its_own_copy_of_the_input(event: str) -> None:
    wire = {**TOOL, "tool_input": {"command": "ls", "nested": {"list": [1]}}}
    run = begin(event, Hook(callback), Hook(callback), hook_input=wire)
    for raises in (False, True):
        context: Any = run.context
        assert context.tool_input == {"command": "ls", "nested": {"list": [1]}}
        context.tool_input["command"] = "rm"
        context.tool_input["nested"]["list"].append(2)
        context.raw["tool_input"].clear()
        if raises:
            run.failed("hook_failed", "it raised")
        else:
            done(run, None)
    assert run.settled.payload == GO_ON
    assert wire["tool_input"] == {"command": "ls", "nested": {"list": [1]}}


def test_a_hook_that_changes_its_copy_does_not_change_what_it_allows() -> None:
    run = begin("PermissionRequest", Hook(callback))
    context: Any = run.context
    context.tool_input["command"] = "rm"
    done(run, HookOutput(permission=Allow()))
    decision = run.settled.payload["hookSpecificOutput"]["decision"]
    assert decision == {"behavior": "allow", "updatedInput": {"command": "ls"}}


# ---------------------------------------------------------------- deferring


@pytest.mark.parametrize(
    ("later", "decision"),
    [
        (None, "defer"),
        (HookOutput(permission_decision="allow"), "defer"),
        (HookOutput(decision="approve"), "defer"),
        (Block("no"), "deny"),
        (EndTurn("enough"), "deny"),
    ],
    ids=["nothing", "allow", "approve", "block", "end"],
)
def test_a_deferral_holds_unless_a_later_hook_refuses(later: object, decision: str) -> None:
    answer = answer_of("PreToolUse", HookOutput(permission_decision="defer"), later)
    assert answer.payload["hookSpecificOutput"]["permissionDecision"] == decision
    assert "decision" not in answer.payload


# ---------------------------------------------------------------- refusals in other words


def official(event: str, **members: object) -> dict[str, object]:
    return {"hookSpecificOutput": {"hookEventName": event, **members}}


@pytest.mark.parametrize("event", sorted(GATES))
@pytest.mark.parametrize(
    "result",
    [
        Deny("no"),
        {"decision": "block", "reason": "no"},
        HookOutput(decision="block", reason="no"),
        HookOutput(permission_decision="deny", permission_decision_reason="no"),
        HookOutput(permission_decision="deny", reason="no", updated_input={"a": 1}),
        HookOutput(permission=Deny("no")),
        HookOutput(specific={"permissionDecision": "deny", "permissionDecisionReason": "no"}),
        HookOutput(specific={"decision": {"behavior": "deny", "message": "no"}}),
        HookOutput(decision="approve", permission_decision="deny", reason="no"),
        HookOutput(permission=Allow(), decision="block", reason="no"),
        HookOutput(permission_decision="allow", decision="block", reason="no"),
        "deny",
        "decide",
    ],
    ids=repr,
)
def test_a_refusal_in_any_words_blocks_a_gate(event: str, result: object) -> None:
    if result == "deny":
        denied = {"permissionDecision": "deny", "permissionDecisionReason": "no"}
        result = official(event, **denied)
    elif result == "decide":
        result = {"continue_": True, "decision": "block", "reason": "no", "systemMessage": None}
    answer = answer_of(event, result)
    assert blocks(event, answer)
    assert answer.warnings == ()
    assert "no" in str(answer.payload)
    assert "updatedInput" not in str(answer.payload)


def test_the_denial_of_a_permission_is_understood_as_a_dict() -> None:
    denial = {"behavior": "deny", "message": "no", "interrupt": True}
    answer = answer_of("PermissionRequest", official("PermissionRequest", decision=denial))
    assert said(answer) == Said(specific("PermissionRequest", decision=denial))


def test_the_allowance_of_a_permission_is_understood_as_a_dict() -> None:
    allowance = official("PermissionRequest", decision={"behavior": "allow"})
    answer = answer_of("PermissionRequest", allowance)
    decision = {"behavior": "allow", "updatedInput": {"command": "ls"}}
    assert said(answer) == Said(specific("PermissionRequest", decision=decision))


def test_a_denial_that_interrupts_ends_the_turn_where_the_event_can() -> None:
    ends = {event: answer_of(event, Deny("no", interrupt=True)) for event in GATES}
    assert all(blocks(event, answer) for event, answer in ends.items())
    assert ends["PreToolUse"].ends_turn
    decision = ends["PermissionRequest"].payload["hookSpecificOutput"]["decision"]
    assert decision["interrupt"] is True


@pytest.mark.parametrize("event", sorted(GATES))
@pytest.mark.parametrize("result", [{"continue_": False}, {"continue": False, "stopReason": "x"}])
def test_a_gate_does_not_pass_when_an_output_ends_the_turn(
    event: str, result: dict[str, object]
) -> None:
    answer = answer_of(event, result)
    assert answer.ends_turn
    if event in ("PreToolUse", "PermissionRequest"):  # the others end before anything happens
        assert blocks(event, answer)


def test_an_output_that_blocks_a_prompt_and_ends_the_turn_does_both() -> None:
    result = {"continue_": False, "stopReason": "x", "decision": "block", "reason": "no"}
    assert answer_of("UserPromptSubmit", result).payload == {
        "continue": False,
        "stopReason": "x",
        "decision": "block",
        "reason": "no",
    }


@pytest.mark.parametrize(
    ("event", "result", "payload"),
    [
        ("PreToolUse", {}, GO_ON),
        ("PreToolUse", {"continue_": True}, GO_ON),
        ("PreToolUse", {"async_": True, "asyncTimeout": 1000}, GO_ON),
        ("PreToolUse", {"async": True}, GO_ON),
        ("PostToolUse", {"reason": None, "hookSpecificOutput": None}, GO_ON),
        ("PostToolUse", official("PostToolUse", additionalContext=None), GO_ON),
        ("PreToolUse", {"systemMessage": "m", "suppressOutput": True},
         {**GO_ON, "systemMessage": "m", "suppressOutput": True}),
        ("PreToolUse", official("PreToolUse", permissionDecision="ask"),
         specific("PreToolUse", permissionDecision="ask")),
        ("PreToolUse", official("PreToolUse", additionalContext="c"),
         {**GO_ON, **specific("PreToolUse", additionalContext="c")}),
        ("UserPromptSubmit", official("UserPromptSubmit", additionalContext="c"),
         {**GO_ON, **specific("UserPromptSubmit", additionalContext="c")}),
        ("PostToolUse", {"continue_": False, "stopReason": "s"},
         {"continue": False, "stopReason": "s"}),
        ("PostToolUse", official("PostToolUse", updatedMCPToolOutput=1),
         {**GO_ON, **specific("PostToolUse", updatedMCPToolOutput=1)}),
        ("Stop", {"decision": "block", "reason": "go on"},
         {"decision": "block", "reason": "go on"}),
        ("WorktreeCreate", official("WorktreeCreate", worktreePath="/w"),
         specific("WorktreeCreate", worktreePath="/w")),
    ],
)  # fmt: skip
def test_the_official_output_dicts_are_understood(
    event: str, result: dict[str, object], payload: dict[str, object]
) -> None:
    run = begin(event, Hook(callback))
    done(run, result)
    assert said(run.answer)[:2] == (payload, ())


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
            "PostToolUse",
            HookOutput(updated_tool_output="x", updated_mcp_tool_output=["y"]),
            {**GO_ON, **specific("PostToolUse", updatedToolOutput="x", updatedMCPToolOutput=["y"])},
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
        "tool output",
        "allow a permission",
        "deny a permission",
        "deny a model",
        "anything else",
    ],
)
@pytest.mark.requirement("S049", "S050")
def test_an_output_is_sent_as_it_is(
    event: str, output: HookOutput, payload: dict[str, object]
) -> None:
    """R309."""
    run = begin(event, Hook(callback))
    done(run, output)
    assert said(run.answer) == Said(payload)


@pytest.mark.parametrize("member", ["sessionTitle", "suppressOriginalPrompt"])
def test_a_prompt_hook_may_send_every_member_that_the_cli_knows(member: str) -> None:
    run = begin("UserPromptSubmit", Hook(callback))
    done(run, HookOutput(specific={member: "x"}))
    sent = {"hookEventName": "UserPromptSubmit", member: "x"}
    assert said(run.answer).payload["hookSpecificOutput"] == sent


def test_nothing_of_a_result_that_fails_is_sent() -> None:
    class Silent:
        def __str__(self) -> str:
            raise ValueError("not a word")

    silent: Any = Silent()
    failing = Continue(additional_context="half", system_message=silent)
    answer = answer_of("PostToolUse", failing, None)
    detail = "PostToolUse hook (callback): its result raised ValueError: not a word"
    assert said(answer) == Said(GO_ON, (("hook_failed", detail),))


def test_an_output_can_end_the_turn() -> None:
    answer = answer_of("PreToolUse", HookOutput(continue_turn=False, stop_reason="enough"))
    denied = specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="enough")
    assert said(answer) == Said(
        {"continue": False, "stopReason": "enough", **denied},
        ends_turn=True,
        needs_interrupt=True,
    )


@pytest.mark.parametrize(
    "output",
    [HookOutput(), HookOutput(continue_turn=True), HookOutput(suppress_output=False)],
    ids=["nothing", "go on", "not quiet"],
)
def test_an_output_without_a_decision_decides_nothing(output: HookOutput) -> None:
    run = begin("PreToolUse")
    done(run, output)
    assert run.answer is None
    done(run, None)
    assert said(run.answer) == Said(GO_ON)


def test_a_decision_the_event_does_not_read_is_warned_about() -> None:
    answer = answer_of("SessionStart", HookOutput(decision="block", reason="no"))
    assert answer.warnings == (("cannot_block", "SessionStart cannot be blocked"),)


def test_a_decision_the_event_does_not_know_leaves_it_to_the_following_hooks() -> None:
    run = begin("PostToolUse")
    done(run, HookOutput(permission_decision="deny"))
    assert run.answer is None
    done(run, Block("no"))
    assert kinds(run.settled) == ["result_ignored"]
    assert blocks("PostToolUse", run.settled)


def test_an_invalid_permission_of_a_hook_denies() -> None:
    answer = answer_of("PermissionRequest", HookOutput(permission="yes"))  # type: ignore[arg-type]  # nonsense on purpose
    assert answer.payload["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    assert kinds(answer) == ["hook_failed"]


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


WRONG: Any = "nonsense"  # what no type checker would let pass

INVALID: list[tuple[Any, str]] = [
    (True, "PreToolUse hook (callback): it returned bool; return Continue(), Block(reason)"),
    (False, "it returned bool; return Continue(), Block(reason)"),
    ("no", "it returned str; return"),
    ([], "it returned list; return"),
    (Allow(), "it returned Allow; return"),
    (Block, "it returned the class Block; return"),
    (Continue, "it returned the class Continue; return"),
    (ModifyInput(WRONG), "ModifyInput.updated_input is str, not a mapping"),
    (HookOutput(decision=WRONG), "HookOutput.decision cannot be 'nonsense'"),
    (HookOutput(permission_decision=WRONG), "permission_decision cannot be 'nonsense'"),
    (HookOutput(continue_turn=WRONG), "continue_turn cannot be 'nonsense'"),
    (HookOutput(suppress_output=1), "suppress_output cannot be 1"),  # type: ignore[arg-type]  # wrong on purpose
    (HookOutput(specific=WRONG), "specific is str, not a mapping"),
    (HookOutput(specific=Hostile()), "its result raised OSError: unreadable"),
    (HookOutput(permission=Allow()), "PreToolUse does not support permission"),
    (HookOutput(reason="no"), "it gives a reason but no decision; return"),
    (HookOutput(permission_decision_reason="no"), "it gives a reason but no decision"),
    (HookOutput(stop_reason="no"), "it gives a reason but no decision"),
    (HookOutput(specific={"updatedInput": {"a": 1}}, updated_input={"b": 1}),
     "HookOutput has updated_input and specific['updatedInput']"),
    (HookOutput(specific={"permission_decision": "deny"}),
     "HookOutput: hookSpecificOutput of PreToolUse has no member 'permission_decision'"),
    (HookOutput(specific={"permission_decision": "deny"}, permission_decision="allow"),
     "HookOutput: hookSpecificOutput of PreToolUse has no member"),
    (Hostile(), "its result raised OSError: unreadable"),
    ({"decision": "deny"}, "its dict.decision cannot be 'deny'"),
    ({"reason": "no"}, "it gives a reason but no decision"),
    ({"decison": "block"}, "its dict has the unknown key 'decison'"),
    ({"permissionDecision": "deny"}, "its dict has the unknown key 'permissionDecision'"),
    ({"continue_": "no"}, "its dict.continue_turn cannot be 'no'"),
    ({"continue_": True, "continue": False}, "its dict sets continue_turn twice"),
    ({5: True}, "its dict has the unknown key 5"),
    ({"hookSpecificOutput": "deny"}, "its hookSpecificOutput is str, not a dict"),
    ({"hookSpecificOutput": {"permissionDecision": "deny"}}, "hookEventName is not 'PreToolUse'"),
    (official("PostToolUse", permissionDecision="deny"), "hookEventName is not 'PreToolUse'"),
    (official("PreToolUse", permissionDecison="deny"),
     "its dict: hookSpecificOutput of PreToolUse has no member 'permissionDecison'"),
    (official("PreToolUse", permissionDecision=["deny"]), "permission_decision cannot be ['deny']"),
    (official("PreToolUse", updatedInput="x"), "its dict.updated_input is str, not a mapping"),
]  # fmt: skip


@pytest.mark.parametrize(("result", "detail"), INVALID, ids=range(len(INVALID)))
def test_an_invalid_result_blocks_a_gate_with_a_warning(result: object, detail: str) -> None:
    """The hooks behind it need not be asked."""
    answer = answer_of("PreToolUse", result)
    assert blocks("PreToolUse", answer)
    assert "no" not in answer.payload["hookSpecificOutput"].get("additionalContext", "")
    [(kind, why)] = answer.warnings
    assert kind == "hook_failed"
    assert detail in why


@pytest.mark.parametrize("event", sorted(GATES))
@pytest.mark.parametrize("result", [False, True, "no", 0, {"x": 1}, Allow()], ids=range(6))
def test_every_gate_blocks_on_an_invalid_result(event: str, result: object) -> None:
    answer = answer_of(event, result)
    assert (blocks(event, answer), kinds(answer)) == (True, ["hook_failed"])


@pytest.mark.parametrize("event", sorted(HOOK_EVENTS - GATES))
@pytest.mark.parametrize("result", [False, {"x": 1}], ids=repr)
def test_an_invalid_result_of_another_event_is_a_failure_of_its_hook_alone(
    event: str, result: object
) -> None:
    run = begin(event)
    done(run, result)
    assert len(run.waiting) == 1
    done(run, None)
    assert said(run.answer)[0] == GO_ON
    assert kinds(run.settled) == ["hook_failed"]


@pytest.mark.parametrize("result", [True, ModifyInput({"a": object()})], ids=["junk", "no JSON"])
def test_an_invalid_result_blocks_where_the_hook_must_succeed(result: object) -> None:
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
    run.refuse()
    assert said(run.answer) == Said(payload)


@pytest.mark.parametrize("event", sorted(GATES))
def test_a_gate_whose_hooks_cannot_be_asked_blocks(event: str) -> None:
    run = begin(event)
    done(run, Continue("context"))
    run.refuse()
    assert blocks(event, run.settled)


@pytest.mark.parametrize("event", sorted(HOOK_EVENTS))
def test_a_closing_session_blocks_gates_and_lets_the_rest_go_on(event: str) -> None:
    answer = begin(event).close("closing")
    if event in GATES:
        assert blocks(event, answer)
    else:
        assert answer.payload == {}


def test_the_argument_of_the_next_hook_that_cannot_be_made_blocks_a_gate() -> None:
    run = begin("PreToolUse")
    nested: Any = 1
    for _ in range(100_000):
        nested = [nested]
    run.wire = {**TOOL, "tool_input": {"nested": nested}}
    done(run, None)
    assert blocks("PreToolUse", run.settled)
    assert kinds(run.settled) == ["hook_failed"]
    while nested != 1:  # taken apart by hand: the interpreter would recurse
        nested = nested.pop()


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
def test_a_changed_value_that_is_nested_too_deeply_to_be_sent_is_not_sent(event: str) -> None:
    """A value may be encoded in a callback's thread and be too deep for the engine's stack."""
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    run = begin(event, Hook(callback))
    output = HookOutput(updated_tool_output=nested)
    if event == "PreToolUse":
        output = HookOutput(updated_input={"nested": nested})
    run.done(CheckedOutput(output, "HookOutput"))
    assert kinds(run.settled) == ["unencodable_result"]
    if event == "PreToolUse":
        assert blocks(event, run.settled)
    else:
        assert run.settled.payload == GO_ON
    while nested:  # taken apart by hand: the interpreter would recurse
        nested = nested.pop()


def test_an_allowed_permission_without_an_input_is_sent_with_an_empty_one() -> None:
    run = begin("PermissionRequest", Hook(callback), hook_input={**BASE, "tool_name": "Bash"})
    done(run, HookOutput(specific={"decision": {"behavior": "allow"}}))
    decision = run.settled.payload["hookSpecificOutput"]["decision"]
    assert decision == {"behavior": "allow", "updatedInput": {}}


@pytest.mark.requirement("S051")
def test_no_answer_ever_claims_to_be_asynchronous() -> None:
    """R290, C48."""
    for event in HOOK_EVENTS:
        for result in (None, Block("b"), EndTurn("e"), ModifyInput({}), HookOutput(reason="r")):
            run = begin(event, Hook(callback))
            done(run, result)
            assert run.answer is not None
            assert "async" not in run.answer.payload


def test_a_field_the_event_does_not_know_leaves_the_others() -> None:
    output = HookOutput(permission_decision="deny", updated_tool_output="shorter")
    run = begin("PostToolUse")
    done(run, output)
    done(run, None)
    assert run.settled is not None
    assert said(run.answer).payload == {
        **GO_ON,
        **specific("PostToolUse", updatedToolOutput="shorter"),
    }


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, "decision.updatedInput is empty, which makes the CLI run the original input"),
        (None, "decision.updatedInput is NoneType, not a mapping"),
        ("ls", "decision.updatedInput is str, not a mapping"),
        ([1], "decision.updatedInput is list, not a mapping"),
    ],
    ids=["empty", "null", "text", "list"],
)
@pytest.mark.parametrize("form", ["dict", "HookOutput"])
def test_a_decision_with_an_input_that_the_cli_cannot_use_is_a_refusal(
    form: str, changed: object, problem: str
) -> None:
    decision = {"behavior": "allow", "updatedInput": changed}
    output: object = HookOutput(specific={"decision": decision})
    if form == "dict":
        output = official("PermissionRequest", decision=decision)
    answer = answer_of("PermissionRequest", output)
    assert blocks("PermissionRequest", answer)
    [(kind, why)] = answer.warnings
    assert kind == "hook_failed"
    assert problem in why


def test_a_decision_may_change_an_empty_input_to_an_empty_one() -> None:
    run = begin("PermissionRequest", Hook(callback), hook_input={**BASE, "tool_name": "Bash"})
    done(run, HookOutput(specific={"decision": {"behavior": "allow", "updatedInput": {}}}))
    decision = run.settled.payload["hookSpecificOutput"]["decision"]
    assert decision == {"behavior": "allow", "updatedInput": {}}


# ---------------------------------------------------------------- timeouts and invalid outputs


def test_a_late_hook_blocks_if_it_says_so_though_a_failing_one_may_pass() -> None:
    run = begin("PreToolUse", Hook(callback, on_timeout="block"))
    run.failed("hook_timed_out", "after 1 s")
    assert blocks("PreToolUse", run.settled)
    run = begin("PreToolUse", Hook(callback, on_timeout="block"))
    run.failed("hook_failed", "ValueError")
    assert run.settled.payload == GO_ON


def test_a_late_hook_may_pass_though_a_failing_one_blocks() -> None:
    run = begin("PreToolUse", Hook(callback, on_error="block", on_timeout="continue"))
    run.failed("hook_timed_out", "after 1 s")
    assert run.settled.payload == GO_ON


SENDING = Hook(callback, on_invalid="send")

NO_STRINGS: dict[str, dict[str, Any]] = {
    "reason": {"decision": "approve", "reason": 5},
    "systemMessage": {"systemMessage": 5},
    "stopReason": {"continue_": True, "stopReason": KeyError("x")},
    "additionalContext": official("PreToolUse", additionalContext=["a"]),
    "permissionDecisionReason": official(
        "PreToolUse", permissionDecision="allow", permissionDecisionReason=5
    ),
}
NULLS: dict[str, dict[str, Any]] = {
    "decision": {"decision": None},
    "systemMessage": {"systemMessage": None},
    "hookSpecificOutput": {"hookSpecificOutput": None},
    "permissionDecision": official("PreToolUse", permissionDecision=None),
    "updatedInput": official("PreToolUse", permissionDecision="allow", updatedInput=None),
}


@pytest.mark.parametrize("output", [*NO_STRINGS.values(), *NULLS.values()], ids=str)
def test_a_gate_blocks_after_a_null_or_a_text_that_is_not_a_string(output: dict[str, Any]) -> None:
    answer = answer_of("PreToolUse", output, hooks=(Hook(callback),))
    assert blocks("PreToolUse", answer)
    assert kinds(answer) == ["hook_failed"]


@pytest.mark.parametrize("name", [name for name in NO_STRINGS if name != "stopReason"])
def test_a_text_that_is_not_a_string_is_sent_if_the_hook_says_so(name: str) -> None:
    output = NO_STRINGS[name]
    answer = answer_of("PreToolUse", output, hooks=(SENDING,))
    assert answer.payload == output
    assert kinds(answer) == ["hook_failed"]
    assert blocks("PreToolUse", answer_of("PreToolUse", output, hooks=(REQUIRED,)))


@pytest.mark.parametrize(
    "output",
    [
        HookOutput(system_message=5),  # type: ignore[arg-type]  # what this is about
        HookOutput(specific={"permissionDecision": None}),
        HookOutput(permission_decision="allow", specific={"updatedInput": None}),
    ],
    ids=["text", "null", "null beside a decision"],
)
def test_a_hook_output_with_a_null_or_a_text_that_is_not_a_string_blocks(
    output: HookOutput,
) -> None:
    assert blocks("PreToolUse", answer_of("PreToolUse", output, hooks=(Hook(callback),)))


@pytest.mark.parametrize("other", [5, None])
@pytest.mark.parametrize("form", ["dict", "permission", "specific"])
def test_a_denied_permission_holds_whatever_is_beside_it(form: str, other: Any) -> None:
    decision = {"behavior": "deny", "message": "policy 7", "interrupt": True}
    text: Any = 5
    specific = {"hookEventName": "PermissionRequest", "decision": decision}
    outputs: dict[str, object] = {
        "dict": {"hookSpecificOutput": specific, "systemMessage": other},
        "permission": HookOutput(
            permission=Deny("policy 7", interrupt=True), system_message=text, specific={"x": other}
        ),
        "specific": HookOutput(specific={"decision": decision, "x": other}, system_message=text),
    }
    answer = answer_of("PermissionRequest", outputs[form], hooks=(Hook(callback),))
    sent = answer.payload["hookSpecificOutput"]["decision"]
    assert {name: sent[name] for name in decision} == decision
    assert kinds(answer) == []


@pytest.mark.parametrize("event", [*sorted(GATES), "PreModelSwitch"])
@pytest.mark.parametrize("reason", [5, None])
def test_a_refusal_holds_whatever_its_reason_is(event: str, reason: object) -> None:
    output = {"decision": "block", "reason": reason, "systemMessage": reason}
    answer = answer_of(event, output, hooks=(Hook(callback),))
    assert blocks(event, answer)
    assert kinds(answer) == []


@pytest.mark.parametrize("text", [5, Path("/x")], ids=["number", "path"])
def test_a_redaction_holds_whatever_texts_are_beside_it(text: Any) -> None:
    output = HookOutput(updated_tool_output="hidden", system_message=text, additional_context=text)
    answer = answer_of("PostToolUse", output, hooks=(Hook(callback),))
    specific = answer.payload["hookSpecificOutput"]
    assert specific["updatedToolOutput"] == "hidden"
    assert specific["additionalContext"] == answer.payload["systemMessage"] == str(text)
    assert kinds(answer) == []


@pytest.mark.parametrize(
    "output",
    [
        {"trace": 1},
        {"decision": "bogus"},
        {"reason": "why"},
        {"hookSpecificOutput": "text"},
        {"hookSpecificOutput": {"hookEventName": "Stop"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "score": 1}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "perhaps"}},
    ],
    ids=str,
)
def test_an_invalid_output_is_sent_as_it_is_if_the_hook_says_so(output: dict[str, Any]) -> None:
    answer = answer_of("PreToolUse", output, hooks=(SENDING,))
    assert answer.payload == output
    assert kinds(answer) == ["hook_failed"]
    assert blocks("PreToolUse", answer_of("PreToolUse", output, hooks=(Hook(callback),)))


def test_an_invalid_output_is_sent_with_the_names_of_the_wire() -> None:
    output = {"continue_": True, "async_": False, "trace": 1}
    answer = answer_of("PreToolUse", output, hooks=(SENDING,))
    assert answer.payload == {"continue": True, "async": False, "trace": 1}


@pytest.mark.parametrize("event", sorted(GATES))
@pytest.mark.parametrize(
    "refusal",
    [
        {"decision": "block", "reason": "no"},
        {"continue_": False, "stopReason": "no"},
        {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}},
        {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": "no"}}},
    ],
    ids=str,
)
def test_an_invalid_output_that_refuses_blocks_for_its_reason(
    event: str, refusal: dict[str, Any]
) -> None:
    answer = answer_of(event, {**refusal, "trace": 1}, hooks=(SENDING,))
    assert answer.refuses
    assert answer.payload.get("trace") is None
    assert "no" in str(answer.payload)


def test_an_invalid_output_that_is_not_json_blocks_a_gate() -> None:
    answer = answer_of("PreToolUse", {"trace": object()}, hooks=(SENDING,))
    assert blocks("PreToolUse", answer)


def before_tool(**members: object) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **members}}


@pytest.mark.parametrize("hook", [SENDING, Hook(callback)], ids=["send", "block"])
@pytest.mark.parametrize("name", ["async", "async_"])
@pytest.mark.parametrize(
    "rest",
    [
        before_tool(permissionDecision="allow"),
        before_tool(permissionDecision="allow", updatedInput={"command": "other"}),
        before_tool(permissionDecision="allow", score=1),
        {"decision": "approve", "asyncTimeout": 1000},
        {"trace": 1},
    ],
    ids=str,
)
def test_an_asynchronous_output_decides_nothing(hook: Hook, name: str, rest: Any) -> None:
    """The CLI goes on without it, so an `allow` beside `async` allows nothing."""
    answer = answer_of("PreToolUse", {name: True, **rest}, hooks=(hook,))
    assert answer.payload == GO_ON


@pytest.mark.parametrize("hook", [SENDING, Hook(callback)], ids=["send", "block"])
@pytest.mark.parametrize(
    "rest",
    [
        before_tool(permissionDecision="deny", permissionDecisionReason="no"),
        {"decision": "block", "reason": "no", "trace": 1},
        {"continue_": False, "stopReason": "no"},
    ],
    ids=str,
)
def test_an_asynchronous_output_refuses(hook: Hook, rest: Any) -> None:
    answer = answer_of("PreToolUse", {"async_": True, **rest}, hooks=(hook,))
    assert blocks("PreToolUse", answer)
    assert answer.refuses


def test_an_asynchronous_output_that_cannot_be_read_blocks() -> None:
    output = {"async_": True, "asyncTimeout": object(), **before_tool(permissionDecision="allow")}
    assert blocks("PreToolUse", answer_of("PreToolUse", output, hooks=(SENDING,)))


def test_async_that_is_not_a_bool_is_invalid() -> None:
    output = {"async": 1, **before_tool(permissionDecision="allow")}
    assert blocks("PreToolUse", answer_of("PreToolUse", output, hooks=(Hook(callback),)))
    assert answer_of("PreToolUse", output, hooks=(SENDING,)).payload == output


@pytest.mark.parametrize(
    "output",
    [
        {"decision": None, **before_tool(permissionDecision="allow")},
        {"async": None, **before_tool(permissionDecision="allow")},
        {"hookSpecificOutput": None},
        before_tool(permissionDecision="allow", permissionDecisionReason=None),
        before_tool(permissionDecision="allow", updatedInput=None),
    ],
    ids=str,
)
def test_the_cli_decides_what_a_null_means(output: dict[str, Any]) -> None:
    """It rejects an output with a null, so an `allow` beside it allows nothing."""
    answer = answer_of("PreToolUse", output, hooks=(SENDING,))
    assert answer.payload == output
    assert kinds(answer) == ["hook_failed"]


def test_an_output_with_a_null_refuses() -> None:
    output = {"decision": None, **before_tool(permissionDecision="deny")}
    assert blocks("PreToolUse", answer_of("PreToolUse", output, hooks=(SENDING,)))


@pytest.mark.parametrize(
    "output",
    [
        {"trace": 1, **before_tool(permissionDecision="defer")},
        before_tool(permissionDecision="defer", score=1),
    ],
    ids=str,
)
def test_an_invalid_output_defers_the_call(output: dict[str, Any]) -> None:
    answer = answer_of("PreToolUse", output, hooks=(SENDING,))
    assert answer.defers
    assert (
        answer.payload["hookSpecificOutput"]
        == before_tool(permissionDecision="defer")["hookSpecificOutput"]
    )
    assert kinds(answer) == ["hook_failed"]


REQUIRED = Hook(callback, on_invalid="send", on_error="block")


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
@pytest.mark.parametrize("output", [{"trace": 1}, {"decision": None}], ids=str)
def test_a_required_hook_needs_a_cli_that_blocks_if_it_cannot_read_the_output(
    event: str, output: dict[str, Any]
) -> None:
    for cli_blocks in (True, False):
        run = begin(event, REQUIRED)
        run.cli_blocks = cli_blocks
        done(run, output)
        if cli_blocks:
            assert run.settled.payload == output
        else:
            assert "Blocked because" in str(run.settled.payload)


@pytest.mark.parametrize("event", ["Stop", "PostToolUse", "SubagentStop"])
@pytest.mark.parametrize("hook", [SENDING, Hook(callback)], ids=["send", "block"])
def test_an_asynchronous_output_refuses_nothing_at_other_events(event: str, hook: Hook) -> None:
    """A block of Stop would make the agent go on."""
    output = {"async_": True, "decision": "block", "reason": "no"}
    assert answer_of(event, output, hooks=(hook,)).payload == GO_ON
