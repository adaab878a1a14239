"""Hooks, permissions and elicitations: each question gets one answer, and failures fail safely."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, get_args

import pytest
from tests.support import cli
from tests.support.cli import begin, errors, feed, only, payloads, running, warned, written
from tests.support.values import Lazy

from bridle import controls
from bridle._engine.actions import Action, Call, CallKind, CancelCall, TurnEnded, Warn
from bridle._engine.engine import Engine
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.open_requests import MAX_OPEN_REQUESTS
from bridle.events import WarningKind
from bridle.hooks import Block, Continue, EndTurn, Hook, HookOutput, ModifyInput, PreToolUseContext
from bridle.permissions import (
    Accept,
    Allow,
    AllowAll,
    AllowOnce,
    Answers,
    Cancel,
    Complete,
    Decline,
    Deny,
    Edit,
    PlanContext,
    QuestionContext,
)
from bridle.tools import ToolContext, ToolServer, tool


def first(_: object) -> None:
    """A callback. The engine only hands it on."""


def second(_: object) -> None:
    """Another one."""


def answering(
    info: cli.Json = cli.NEWER, events: dict[str, list[Hook]] | None = None, **config: Any
) -> Engine:
    plan = HookPlan.from_options(events or {}, 60.0)
    return running(info, incoming=cli.asking(hooks=plan, **config))


def pre_tool_use(*hooks: Hook, **config: Any) -> Engine:
    return answering(events={"PreToolUse": list(hooks)}, **config)


def call_ids(actions: list[Action]) -> list[int]:
    return [call.call_id for call in only(Call, actions)]


DENIED_TOOL = {
    "hookSpecificOutput": {
        "permissionDecision": "deny",
        "permissionDecisionReason": "no",
        "hookEventName": "PreToolUse",
    }
}

# ------------------------------------------------------------------------- hooks


def test_a_hook_is_called_with_its_context_and_its_answer_is_sent() -> None:
    """R182, R203, R274, R294."""
    engine = pre_tool_use(Hook(first))
    actions = begin(engine, 1.0, cli.hook_callback("r", tool_use_id="t1"))
    (call,) = actions
    assert isinstance(call, Call)
    assert (call.kind, call.callback, call.label) == (CallKind.HOOK, first, "PreToolUse hook")
    assert isinstance(call.argument, PreToolUseContext)
    assert (call.argument.tool_name, call.argument.tool_use_id) == ("Bash", "t1")
    assert written(cli.finish(engine, call.call_id, Continue(), 2.0)) == [
        {
            "type": "control_response",
            "response": {
                "subtype": "success",
                "request_id": "r",
                "response": {"continue": True},
            },
        }
    ]
    assert engine.next_deadline is None
    assert cli.finish(engine, call.call_id, Continue(), 3.0) == []


@pytest.mark.parametrize(
    ("result", "payload"),
    [
        (None, {"continue": True}),
        (Continue(), {"continue": True}),
        (Block("no"), DENIED_TOOL),
        (
            ModifyInput({"command": "ls"}),
            {
                "continue": True,
                "hookSpecificOutput": {
                    "updatedInput": {"command": "ls"},
                    "hookEventName": "PreToolUse",
                },
            },
        ),
    ],
    ids=["nothing", "continue", "block", "modify"],
)
def test_a_hooks_result_is_spelled_for_its_event(result: object, payload: cli.Json) -> None:
    """R205, R271, R309."""
    engine = pre_tool_use(Hook(first))
    feed(engine, 1.0, cli.hook_callback("r"))
    assert payloads(cli.finish(engine, 1, result, 2.0)) == {"r": payload}


def test_hooks_of_an_event_are_called_one_after_another() -> None:
    """R284, R285."""
    engine = pre_tool_use(Hook(first), Hook(second))
    (one,) = only(Call, feed(engine, 1.0, cli.hook_callback("r")))
    actions = cli.finish(engine, one.call_id, None, 2.0)
    (two,) = only(Call, actions)
    assert (one.callback, two.callback, written(actions)) == (first, second, [])
    assert payloads(cli.finish(engine, two.call_id, None, 3.0)) == {"r": {"continue": True}}


def test_the_first_decision_skips_the_rest() -> None:
    """R286."""
    engine = pre_tool_use(Hook(first), Hook(second))
    feed(engine, 1.0, cli.hook_callback("r"))
    actions = cli.finish(engine, 1, Block("no"), 2.0)
    assert (payloads(actions), only(Call, actions)) == ({"r": DENIED_TOOL}, [])


def test_each_hook_has_its_own_deadline() -> None:
    """R260, R298: counted from when it started; one that returns at once needs none."""
    engine = pre_tool_use(Hook(first, timeout=5.0), Hook(second))
    feed(engine, 1.0, cli.hook_callback("r"))
    seen = [engine.next_deadline]
    assert engine.started_call(1, 2.0) == []
    seen.append(engine.next_deadline)
    cli.finish(engine, 1, None, 4.0)
    seen.append(engine.next_deadline)
    engine.started_call(2, 5.0)
    engine.started_call(1, 5.0)  # it is over: nothing more comes of it
    assert [*seen, engine.next_deadline] == [None, 7.0, None, 65.0]


def test_a_hook_that_waits_to_be_started_has_no_deadline_yet() -> None:
    engine = pre_tool_use(Hook(first, timeout=5.0, on_error="continue"))
    feed(engine, 1.0, cli.hook_callback("r"))
    assert engine.advance(1000.0) == []
    engine.started_call(1, 1000.0)
    assert engine.advance(1004.9) == []
    assert warned(engine.advance(1005.0)) == [WarningKind.HOOK_TIMED_OUT]


def test_a_hook_that_raises_lets_the_cli_go_on() -> None:
    """R296, R299, R301."""
    engine = pre_tool_use(Hook(first))
    begin(engine, 1.0, cli.hook_callback("r"))
    actions = engine.failed_call(1, "ValueError: x", 2.0)
    assert (payloads(actions), warned(actions)) == (
        {"r": {"continue": True}},
        [WarningKind.HOOK_FAILED],
    )
    assert engine.next_deadline is None


def test_a_hook_that_is_late_is_cancelled_and_the_cli_goes_on() -> None:
    """R260, R293, R295: its late result finds nothing to answer."""
    engine = pre_tool_use(Hook(first, timeout=5.0))
    begin(engine, 1.0, cli.hook_callback("r"))
    actions = engine.advance(6.0)
    assert actions[0] == CancelCall(1, timed_out=True)
    assert (payloads(actions), warned(actions)) == (
        {"r": {"continue": True}},
        [WarningKind.HOOK_TIMED_OUT],
    )
    assert cli.finish(engine, 1, Block("too late"), 7.0) == []
    assert engine.failed_call(1, "too late", 7.0) == []
    assert engine.advance(1000.0) == []


class Guard:
    """A callback that is a method."""

    def decide(self, _: object) -> None: ...


@pytest.mark.parametrize(
    ("callback", "name"),
    [(first, "first"), (Guard().decide, "Guard.decide"), (partial(first), "first")],
)
def test_a_timeout_names_the_callback_and_the_duration(callback: Any, name: str) -> None:
    """R295, R302."""
    engine = pre_tool_use(
        Hook(callback, timeout=2.5),
        can_use_tool=callback,
        elicitation=callback,
        permission_timeout=300.0,
    )
    begin(engine, 1.0, cli.hook_callback("h"), cli.can_use_tool("p"), cli.elicitation("e"))
    details = [warning.detail for warning in only(Warn, engine.advance(1000.0))]
    assert details == [
        f"PreToolUse hook ({name}) did not answer within 2.5 s",
        f"permission for Bash ({name}) did not answer within 300 s",
        f"elicitation of forms ({name}) did not answer within 300 s",
    ]


def test_a_failure_names_the_callback() -> None:
    engine = pre_tool_use(Hook(first))
    begin(engine, 1.0, cli.hook_callback("h"))
    [warning] = only(Warn, engine.failed_call(1, "ValueError: x", 2.0))
    assert warning.detail == "PreToolUse hook (first): ValueError: x"


@pytest.mark.parametrize("late", [False, True])
def test_a_failed_hook_that_is_required_blocks(late: bool) -> None:
    engine = pre_tool_use(Hook(first, timeout=5.0, on_error="block"))
    begin(engine, 1.0, cli.hook_callback("r"))
    actions = engine.advance(6.0) if late else engine.failed_call(1, "boom", 2.0)
    decision = payloads(actions)["r"]["hookSpecificOutput"]["permissionDecision"]
    assert decision == "deny"


def test_after_a_failed_hook_the_next_one_is_still_asked() -> None:
    """R299: and the failure is told at once, not with the answer."""
    engine = pre_tool_use(Hook(first), Hook(second))
    feed(engine, 1.0, cli.hook_callback("r"))
    failed = engine.failed_call(1, "boom", 2.0)
    assert (call_ids(failed), warned(failed)) == ([2], [WarningKind.HOOK_FAILED])
    actions = cli.finish(engine, 2, Block("no"), 3.0)
    assert (payloads(actions), warned(actions)) == ({"r": DENIED_TOOL}, [])


def decision(actions: list[Action], request_id: str = "r") -> str | None:
    """What a PreToolUse hook decided."""
    answer = payloads(actions)[request_id]
    decided: str | None = answer.get("hookSpecificOutput", {}).get("permissionDecision")
    return decided


@pytest.mark.parametrize("result", ["nonsense", 5, False, True], ids=repr)
def test_an_invalid_result_of_a_guard_blocks_with_a_warning(result: object) -> None:
    engine = pre_tool_use(Hook(first))
    feed(engine, 1.0, cli.hook_callback("r"))
    actions = cli.finish(engine, 1, result, 2.0)
    assert (decision(actions), warned(actions)) == ("deny", [WarningKind.HOOK_FAILED])


def test_a_permission_result_of_a_guard_that_denies_blocks() -> None:
    engine = pre_tool_use(Hook(first))
    feed(engine, 1.0, cli.hook_callback("r"))
    actions = cli.finish(engine, 1, Deny("no"), 2.0)
    assert (payloads(actions), warned(actions)) == ({"r": DENIED_TOOL}, [])


def test_a_guard_after_a_changed_input_is_asked_about_it() -> None:
    engine = pre_tool_use(Hook(first), Hook(second))
    feed(engine, 1.0, cli.hook_callback("r"))
    (call,) = only(Call, cli.finish(engine, 1, ModifyInput({"command": "rm"}), 2.0))
    assert (call.callback, call.argument.tool_input) == (second, {"command": "rm"})
    assert payloads(cli.finish(engine, 2, Block("no"), 3.0)) == {"r": DENIED_TOOL}


def test_a_permission_callback_that_changes_its_input_does_not_change_what_is_allowed() -> None:
    engine = permitting()
    (call,) = only(Call, feed(engine, 1.0, cli.can_use_tool("r", input={"a": {"b": [1]}})))
    call.argument.tool_input["a"]["b"].append(2)
    call.argument.tool_input["c"] = 3
    answer = payloads(cli.finish(engine, call.call_id, Allow(), 2.0))["r"]
    assert answer == {"behavior": "allow", "updatedInput": {"a": {"b": [1]}}}


def test_an_input_that_cannot_be_read_blocks_a_gate_without_a_call() -> None:
    """R275."""
    engine = pre_tool_use(Hook(first))
    actions = feed(engine, 1.0, cli.hook_callback("r", input={"tool_name": 5}))
    assert (decision(actions), only(Call, actions)) == ("deny", [])
    assert warned(actions) == [WarningKind.HOOK_FAILED]


@pytest.mark.parametrize("depth", [900, 3000, 100_000])
def test_a_guard_is_not_passed_by_an_input_that_is_nested_too_deeply(depth: int) -> None:
    """An error as the answer would make older CLIs run the tool."""
    engine = pre_tool_use(Hook(first))
    nested = b"[" * depth + b"]" * depth
    line = cli.hook_callback("r", input={"tool_name": "Bash", "tool_input": {"nested": "HERE"}})
    actions = feed(engine, 1.0, line.replace(b'"HERE"', nested))
    for call in only(Call, actions):
        actions += cli.finish(engine, call.call_id, Block("no"), 2.0)
    assert decision(actions) == "deny"


def test_a_guard_is_not_passed_by_a_request_that_is_too_long() -> None:
    plan = HookPlan.from_options({"Stop": [Hook(first)], "PreToolUse": [Hook(first)]}, 60.0)
    engine = running(incoming=cli.asking(hooks=plan), max_line=10_000)
    long = {"tool_name": "Bash", "tool_input": {"command": "x" * 20_000}}
    actions = feed(engine, 1.0, cli.hook_callback("r", "hook_1", input=long))
    actions += feed(engine, 1.0, cli.hook_callback("s", "hook_0", input=long))
    assert (decision(actions), payloads(actions)["s"]) == ("deny", {"continue": True})
    assert errors(actions) == {}


def test_an_unknown_hook_of_an_event_that_cannot_block_continues_with_a_warning() -> None:
    """R278, R426, R454."""
    stop = cli.hook_callback("r", "hook_7", input={"hook_event_name": "Stop"})
    actions = feed(pre_tool_use(Hook(first)), 1.0, stop)
    assert (payloads(actions), warned(actions)) == (
        {"r": {"continue": True}},
        [WarningKind.UNKNOWN_CALLBACK],
    )


def test_hook_requests_are_not_messages() -> None:
    """R291."""
    engine = pre_tool_use(Hook(first))
    actions = feed(engine, 1.0, cli.hook_callback("r")) + cli.finish(engine, 1, None, 2.0)
    assert cli.delivered(actions) == []


@pytest.mark.parametrize(
    ("event", "info", "interrupts"),
    [
        ("PreToolUse", cli.NEWER, False),
        ("PreToolUse", cli.OLDER, True),
        ("PostToolUseFailure", cli.NEWER, True),
        ("PostToolUse", cli.OLDER, False),
    ],
)
def test_a_turn_that_a_hook_ends_is_interrupted_where_the_answer_is_not_enough(
    event: str, info: cli.Json, interrupts: bool
) -> None:
    engine = answering(info, {event: [Hook(first)]})
    engine.send("k", "u1", "hello", 0.5)
    feed(engine, 0.5, cli.init("u1"))
    feed(engine, 1.0, cli.hook_callback("r"))
    actions = cli.finish(engine, 1, EndTurn("enough"), 2.0)
    assert payloads(actions)["r"]["stopReason"] == "enough"
    requests = [line["request"] for line in written(actions) if line["type"] == "control_request"]
    assert requests == ([{"subtype": "interrupt"}] if interrupts else [])
    (ended,) = only(TurnEnded, feed(engine, 3.0, cli.aborted("u1")))
    assert ended.outcome.reason == ("stopped_by_hook" if interrupts else "interrupted")


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "Stop"])
@pytest.mark.parametrize("info", [cli.NEWER, cli.OLDER], ids=["newer", "older"])
def test_the_reason_to_end_a_turn_is_in_its_detail(event: str, info: cli.Json) -> None:
    engine = answering(info, {event: [Hook(first)]})
    engine.send("k", "u1", "hello", 0.5)
    feed(engine, 0.5, cli.init("u1"), cli.hook_callback("r"))
    cli.finish(engine, 1, EndTurn("enough for today"), 2.0)
    stopped = "stop_hook_prevented" if event == "Stop" else "hook_stopped"
    (ended,) = only(TurnEnded, feed(engine, 3.0, cli.result("u1", terminal_reason=stopped)))
    assert ended.outcome.reason == "stopped_by_hook"
    assert ended.outcome.detail.endswith(": enough for today")


def test_the_reason_to_block_a_prompt_that_comes_in_a_turn_is_in_its_detail() -> None:
    engine = answering(cli.NEWER, {"UserPromptSubmit": [Hook(first)]})
    engine.send("k1", "u1", "hello", 0.5)
    feed(engine, 0.5, cli.init("u1"))
    engine.send("k2", "u2", "and this", 0.6)
    called = {"hook_event_name": "UserPromptSubmit", "prompt": "and this"}
    feed(engine, 0.7, cli.hook_callback("r", input=called))
    cli.finish(engine, 1, Block("not now"), 0.8)
    (second,) = only(TurnEnded, feed(engine, 0.9, cli.lifecycle("u2", "completed")))
    assert (second.uuid, second.outcome.reason) == ("u2", "prompt_blocked")
    assert second.outcome.detail.endswith(": not now")
    (turn,) = only(TurnEnded, feed(engine, 1.0, cli.result("u1")))
    assert (turn.outcome.reason, turn.outcome.detail) == ("completed", "")


# ------------------------------------------------------------------------- permissions


def permitting(**config: Any) -> Engine:
    return answering(**{"can_use_tool": first, **config})


def test_a_permission_is_asked_for_without_a_deadline() -> None:
    """R304, R305, C31, C55: a human may think."""
    engine = permitting()
    (call,) = only(Call, begin(engine, 1.0, cli.init(), cli.can_use_tool("r", blocked_path="/x")))
    context: Any = call.argument
    assert (call.kind, call.callback, call.label) == (
        CallKind.PERMISSION,
        first,
        "permission for Bash",
    )
    assert (context.tool_name, context.tool_input) == ("Bash", {"a": 1})
    assert (context.session_id, context.blocked_path) == ("s1", "/x")
    assert context.permission_suggestions == ()
    assert engine.next_deadline is None


RULE = {"toolName": "Bash"}


@pytest.mark.parametrize(
    ("result", "payload"),
    [
        (Allow(), {"behavior": "allow", "updatedInput": {"a": 1}}),
        (AllowOnce(), {"behavior": "allow", "updatedInput": {"a": 1}}),
        (Edit({"b": 2}), {"behavior": "allow", "updatedInput": {"b": 2}}),
        (Deny("no"), {"behavior": "deny", "message": "no"}),
        (Deny("no", interrupt=True), {"behavior": "deny", "message": "no", "interrupt": True}),
    ],
    ids=["allow", "once", "edit", "deny", "deny and interrupt"],
)
def test_a_permission_is_spelled_for_the_cli(result: object, payload: cli.Json) -> None:
    """R306, R307, R309, C11."""
    engine = permitting()
    feed(engine, 1.0, cli.can_use_tool("r"))
    actions = cli.finish(engine, 1, result, 2.0)
    assert (payloads(actions), warned(actions)) == ({"r": payload}, [])


def test_a_permission_for_all_uses_adds_a_rule() -> None:
    """R307, R309, C11."""
    engine = permitting()
    feed(engine, 1.0, cli.can_use_tool("r"))
    answer = payloads(cli.finish(engine, 1, AllowAll(), 2.0))["r"]
    assert answer["updatedPermissions"][0]["rules"] == [RULE]


def expire(engine: Engine) -> list[Action]:
    return engine.advance(6.0)


@pytest.mark.parametrize(
    ("fail", "kind"),
    [
        (lambda engine: engine.failed_call(1, "boom", 2.0), WarningKind.PERMISSION_FAILED),
        (expire, WarningKind.PERMISSION_TIMED_OUT),
        (lambda engine: cli.finish(engine, 1, None, 2.0), WarningKind.PERMISSION_FAILED),
        (lambda engine: cli.finish(engine, 1, True, 2.0), WarningKind.PERMISSION_FAILED),
        (
            lambda engine: cli.finish(engine, 1, Edit({"x": object()}), 2.0),
            WarningKind.UNENCODABLE_RESULT,
        ),
    ],
    ids=["raised", "late", "nothing", "true", "unencodable"],
)
def test_a_permission_that_fails_is_denied(fail: Any, kind: WarningKind) -> None:
    """R295, R296, R300, R310."""
    engine = permitting(permission_timeout=5.0)
    begin(engine, 1.0, cli.can_use_tool("r"))
    actions = fail(engine)
    assert payloads(actions)["r"]["behavior"] == "deny"
    assert warned(actions) == [kind]
    assert cli.finish(engine, 1, Allow(), 7.0) == []


def test_without_a_callback_a_tool_is_denied() -> None:
    """R313."""
    actions = feed(answering(), 1.0, cli.can_use_tool("r"))
    assert payloads(actions)["r"]["behavior"] == "deny"
    assert warned(actions) == [WarningKind.NO_PERMISSION_CALLBACK]


@pytest.mark.parametrize("missing", ["tool_name", "input"])
def test_a_permission_request_that_cannot_be_read_is_not_granted(missing: str) -> None:
    """R218, R221, R275, R310."""
    engine = permitting()
    fields = {"tool_name": "Bash", "input": {}}
    del fields[missing]
    actions = feed(engine, 1.0, cli.request("r", "can_use_tool", **fields))
    assert (errors(actions), only(Call, actions)) == ({"r": f"{missing} is missing"}, [])
    assert warned(actions) == [WarningKind.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("tool", "config", "kind", "callback", "context"),
    [
        ("AskUserQuestion", {"question": second}, CallKind.QUESTION, second, QuestionContext),
        ("AskUserQuestion", {}, CallKind.PERMISSION, first, QuestionContext),
        ("ExitPlanMode", {"plan": second}, CallKind.PLAN, second, PlanContext),
        ("ExitPlanMode", {"question": second}, CallKind.PERMISSION, first, PlanContext),
    ],
)
def test_questions_and_plans_go_to_their_own_callback_if_there_is_one(
    tool: str, config: dict[str, Any], kind: CallKind, callback: object, context: type
) -> None:
    """R304."""
    engine = permitting(**config)
    (call,) = only(Call, feed(engine, 1.0, cli.can_use_tool("r", tool)))
    assert (call.kind, call.callback, type(call.argument)) == (kind, callback, context)


def test_the_answers_to_a_question_travel_in_the_input() -> None:
    engine = answering(question=first)
    asked = {"questions": [{"question": "Which?", "header": "h", "options": []}]}
    feed(engine, 1.0, cli.can_use_tool("r", "AskUserQuestion", input=asked))
    answer = payloads(cli.finish(engine, 1, Answers({"Which?": "that"}), 2.0))["r"]
    assert answer["updatedInput"] == {**asked, "answers": {"Which?": "that"}}


@pytest.mark.parametrize("tool", ["AskUserQuestion", "ExitPlanMode"])
def test_a_question_or_plan_that_fails_is_denied(tool: str) -> None:
    """R300."""
    engine = answering(question=first, plan=first, permission_timeout=5.0)
    begin(engine, 1.0, cli.can_use_tool("r", tool), cli.can_use_tool("r2", tool))
    actions = engine.failed_call(1, "boom", 2.0) + engine.advance(6.0)
    assert [answer["behavior"] for answer in payloads(actions).values()] == ["deny", "deny"]
    assert warned(actions) == [WarningKind.PERMISSION_FAILED, WarningKind.PERMISSION_TIMED_OUT]


# ------------------------------------------------------------------------- elicitations


@pytest.mark.parametrize(
    ("result", "payload"),
    [
        (Accept({"name": "x"}), {"action": "accept", "content": {"name": "x"}}),
        (Decline(), {"action": "decline"}),
    ],
)
def test_an_elicitation_is_put_and_answered(result: object, payload: cli.Json) -> None:
    engine = answering(elicitation=first)
    (call,) = only(Call, feed(engine, 1.0, cli.elicitation("r", message="Name?")))
    context: Any = call.argument
    assert (call.kind, context.mcp_server_name, context.message) == (
        CallKind.ELICITATION,
        "forms",
        "Name?",
    )
    assert payloads(cli.finish(engine, call.call_id, result, 2.0)) == {"r": payload}


@pytest.mark.parametrize(
    "fail",
    [
        lambda engine: engine.failed_call(1, "boom", 2.0),
        expire,
        lambda engine: cli.finish(engine, 1, "x", 2.0),
    ],
    ids=["raised", "late", "nonsense"],
)
def test_an_elicitation_that_fails_is_cancelled(fail: Any) -> None:
    engine = answering(elicitation=first, permission_timeout=5.0)
    begin(engine, 1.0, cli.elicitation("r"))
    actions = fail(engine)
    assert (payloads(actions), warned(actions)) == (
        {"r": {"action": "cancel"}},
        [WarningKind.ELICITATION_FAILED],
    )


def test_without_a_callback_an_elicitation_is_cancelled() -> None:
    actions = feed(answering(), 1.0, cli.elicitation("r"))
    assert (payloads(actions), warned(actions)) == ({"r": {"action": "cancel"}}, [])


# ------------------------------------------------------------------------- dialogs


def showing(**members: Any) -> Engine:
    """Return an engine of a session that can show dialogs of the kind "pick"."""
    return answering(dialog=first, dialog_kinds=("pick",), **members)


@pytest.mark.parametrize(
    ("result", "payload"),
    [
        (Complete({"choice": "a"}), {"behavior": "completed", "result": {"choice": "a"}}),
        (Complete("a"), {"behavior": "completed", "result": "a"}),
        (Cancel(), {"behavior": "cancelled"}),
    ],
)
def test_a_dialog_is_shown_and_answered(result: object, payload: cli.Json) -> None:
    engine = showing()
    (call,) = only(Call, feed(engine, 1.0, cli.dialog("r", tool_use_id="t")))
    context: Any = call.argument
    assert (call.kind, call.label) == (CallKind.DIALOG, "dialog 'pick'")
    assert (context.dialog_kind, context.payload) == ("pick", {"from": ["a", "b"]})
    assert context.tool_use_id == "t"
    assert context.raw["subtype"] == "request_user_dialog"
    assert payloads(cli.finish(engine, call.call_id, result, 2.0)) == {"r": payload}


@pytest.mark.parametrize(
    "fail",
    [
        lambda engine: engine.failed_call(1, "boom", 2.0),
        expire,
        lambda engine: cli.finish(engine, 1, True, 2.0),
    ],
    ids=["raised", "late", "invalid"],
)
def test_a_dialog_that_fails_is_cancelled(fail: Any) -> None:
    engine = showing(permission_timeout=5.0)
    begin(engine, 1.0, cli.dialog("r"))
    actions = fail(engine)
    assert (payloads(actions), warned(actions)) == (
        {"r": {"behavior": "cancelled"}},
        [WarningKind.DIALOG_FAILED],
    )


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        (answering, cli.dialog("r")),
        (showing, cli.dialog("r", dialog_kind="other")),
        (showing, cli.request("r", "request_user_dialog")),
    ],
    ids=["no callback", "undeclared kind", "no kind"],
)
def test_an_undeclared_dialog_is_rejected(engine: Any, line: bytes) -> None:
    actions = feed(engine(), 1.0, line)
    assert list(errors(actions)) == ["r"]
    assert warned(actions) == [WarningKind.UNKNOWN_REQUEST]
    assert only(Call, actions) == []


def test_a_dialog_beyond_the_limit_is_cancelled() -> None:
    engine = showing(max_open=1)
    begin(engine, 1.0, cli.dialog("a"))
    actions = feed(engine, 2.0, cli.dialog("b"))
    assert payloads(actions) == {"b": {"behavior": "cancelled"}}
    assert warned(actions) == [WarningKind.LIMIT_REACHED]


# ------------------------------------------------------------------------- what users return


class Strict(dict[str, object]):
    """Knows its keys and nothing else."""

    def get(self, key: object, default: object = None) -> object:
        raise ValueError(f"no {key}")


@tool
def anything() -> Any:
    """Return something."""


@pytest.mark.parametrize("kind", [Lazy, Strict])
@pytest.mark.parametrize(
    "line",
    [
        cli.hook_callback("r"),
        cli.can_use_tool("r"),
        cli.elicitation("r"),
        cli.mcp_message(
            "r",
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "anything"}},
        ),
    ],
    ids=["hook", "permission", "elicitation", "tool"],
)
def test_a_result_whose_own_methods_raise_is_answered(line: bytes, kind: type) -> None:
    engine = pre_tool_use(
        Hook(first),
        can_use_tool=first,
        elicitation=first,
        mcp_servers={"tools": ToolServer([anything])},
    )
    begin(engine, 1.0, line)
    actions = cli.finish(engine, 1, kind(), 2.0)
    assert list(payloads(actions)) == ["r"]
    # An empty dict of a hook is an output that says nothing.
    is_output = kind is Strict and line == cli.hook_callback("r")
    assert len(warned(actions)) == (0 if is_output else 1)
    assert (engine.next_deadline, cli.finish(engine, 1, None, 3.0)) == (None, [])


class Mute(Exception):
    """Says nothing, and not even that."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unreadable(Mapping[str, object]):
    """An answer that cannot be read, for no reason it could give."""

    def __getitem__(self, key: str) -> object:
        raise Mute

    def __iter__(self) -> Iterator[str]:
        raise Mute

    def __len__(self) -> int:
        return 1


def test_an_mcp_answer_whose_parse_error_cannot_be_encoded_is_an_error() -> None:
    engine = answering(mcp_servers={"tools": first})
    begin(engine, 1.0, cli.mcp_message("r", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
    actions = cli.finish(engine, 1, Unreadable(), 2.0)
    assert payloads(actions)["r"]["mcp_response"]["error"]["code"] == -32603
    assert warned(actions) == [WarningKind.UNENCODABLE_RESULT]


def test_nothing_of_an_output_that_cannot_be_sent_is_sent() -> None:
    engine = answering(events={"PostToolUse": [Hook(first)]})
    begin(engine, 1.0, cli.hook_callback("r"))
    output = HookOutput(
        additional_context="of the failed one",
        suppress_output=True,
        updated_tool_output={"a": object()},
    )
    actions = cli.finish(engine, 1, output, 2.0)
    assert (payloads(actions), warned(actions)) == (
        {"r": {"continue": True}},
        [WarningKind.UNENCODABLE_RESULT],
    )


# ------------------------------------------------------------------------- capacity


def test_callbacks_are_called_however_many_are_pending() -> None:
    engine = pre_tool_use(Hook(first), can_use_tool=first)
    for number in range(1000):
        assert len(only(Call, feed(engine, 1.0, cli.hook_callback(f"h{number}")))) == 1
        assert len(only(Call, feed(engine, 1.0, cli.can_use_tool(f"p{number}")))) == 1


def crowded(**config: Any) -> Engine:
    """An engine whose table of open requests is full."""
    events = {
        "PreToolUse": [Hook(first)],
        "PermissionRequest": [Hook(first)],
        "UserPromptSubmit": [Hook(first)],
        "UserPromptExpansion": [Hook(first)],
        "Stop": [Hook(first)],
        "PreCompact": [Hook(first, on_error="block")],
    }
    engine = answering(
        events=events, can_use_tool=first, elicitation=first, mcp_servers={"tools": first}
    )
    for number in range(MAX_OPEN_REQUESTS):
        feed(engine, 1.0, cli.hook_callback(f"open {number}", "hook_4"))
    return engine


def test_beyond_the_bound_against_a_runaway_gates_block_and_permissions_are_denied() -> None:
    """R258, R259, R310."""
    assert MAX_OPEN_REQUESTS == 4096
    engine = crowded()
    prompt = {"prompt": "hi", "tool_name": "Bash", "tool_input": {}}
    lines = [cli.hook_callback(f"h{n}", f"hook_{n}", input=prompt) for n in range(6)]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    lines += [cli.can_use_tool("p"), cli.elicitation("e"), cli.mcp_message("m", message)]
    actions = feed(engine, 1.0, *lines)
    answers = payloads(actions)
    assert only(Call, actions) == []
    assert decision(actions, "h0") == "deny"
    assert answers["h1"]["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    assert [answers[name]["decision"] for name in ("h2", "h3", "h5")] == ["block"] * 3
    assert answers["h4"] == {"continue": True}
    assert (answers["p"]["behavior"], answers["e"]) == ("deny", {"action": "cancel"})
    assert answers["m"]["mcp_response"]["error"]["code"] == -32603


def test_the_bound_is_warned_about_now_and_then() -> None:
    engine = crowded()
    lines = [cli.hook_callback(f"h{number}") for number in range(100)]
    [warning] = only(Warn, feed(engine, 1.0, *lines))
    assert warning.kind is WarningKind.LIMIT_REACHED
    assert "4096 requests of the CLI are open" in warning.detail
    assert warned(feed(engine, 12.0, *lines)) == [WarningKind.LIMIT_REACHED]


@pytest.mark.parametrize(
    ("events", "callbacks", "expected"),
    [
        ({"PreToolUse": [Hook(first)]}, {}, True),
        ({}, {"can_use_tool": first}, True),
        ({}, {"question": first}, True),
        ({}, {"plan": first}, True),
        ({}, {"elicitation": first}, False),
    ],
    ids=["hook", "permission", "question", "plan", "elicitation"],
)
def test_hooks_and_permission_callbacks_are_gates(
    events: dict[str, list[Hook]], callbacks: dict[str, Any], expected: bool
) -> None:
    plan = HookPlan.from_options(events, 60.0)
    assert cli.asking(hooks=plan, **callbacks).has_gates is expected


def test_a_request_that_ends_makes_room_for_another() -> None:
    engine = crowded()
    cli.finish(engine, 1, None, 2.0)
    assert len(only(Call, feed(engine, 2.0, cli.can_use_tool("p")))) == 1


@pytest.mark.parametrize("number", range(4))
def test_a_gate_blocks_when_its_callback_cannot_be_called(number: int) -> None:
    names = ["PreToolUse", "PermissionRequest", "UserPromptSubmit", "UserPromptExpansion"]
    engine = answering(events={name: [Hook(first), Hook(second)] for name in names})
    told = {"prompt": "hi", "tool_name": "Bash", "tool_input": {}}
    feed(engine, 1.0, cli.hook_callback("r", f"hook_{number}", input=told))
    actions = engine.failed_call(1, "no thread is left", 2.0, was_called=False)
    answer = str(payloads(actions)["r"])
    assert "deny" in answer or "block" in answer
    assert (only(Call, actions), warned(actions)) == ([], [WarningKind.LIMIT_REACHED])


def test_other_callbacks_that_cannot_be_called_get_their_failure_answer() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "anything"}}
    engine = answering(
        events={"Stop": [Hook(first)], "PreCompact": [Hook(first, on_error="block")]},
        can_use_tool=first,
        elicitation=first,
        mcp_servers={"raw": first, "tools": ToolServer([anything])},
    )
    feed(
        engine,
        1.0,
        cli.hook_callback("stop", "hook_0"),
        cli.hook_callback("compact", "hook_1"),
        cli.can_use_tool("p"),
        cli.elicitation("e"),
        cli.mcp_message("raw", message, server="raw"),
        cli.mcp_message("tool", message),
    )
    actions = [
        action
        for number in range(1, 7)
        for action in engine.failed_call(number, "no thread is left", 2.0, was_called=False)
    ]
    answers = payloads(actions)
    assert (answers["stop"], answers["compact"]["decision"]) == ({"continue": True}, "block")
    assert (answers["p"]["behavior"], answers["e"]) == ("deny", {"action": "cancel"})
    assert answers["raw"]["mcp_response"]["error"]["code"] == -32603
    assert answers["tool"]["mcp_response"]["result"]["isError"] is True
    assert warned(actions) == [WarningKind.LIMIT_REACHED]
    assert engine.failed_call(1, "again", 3.0, was_called=False) == []


def test_a_withdrawn_request_that_was_never_started_is_not_answered() -> None:
    engine = pre_tool_use(Hook(first))
    feed(engine, 1.0, cli.hook_callback("r"))
    assert feed(engine, 2.0, cli.withdrawal("r")) == [CancelCall(1)]
    assert engine.started_call(1, 3.0) == []
    assert engine.next_deadline is None


def test_many_tool_calls_do_not_delay_a_hook() -> None:
    """R327, R336: servers have no limit of ours below the one against a runaway."""
    engine = pre_tool_use(Hook(first), mcp_servers={"tools": first})
    for number in range(400):
        feed(engine, 1.0, cli.mcp_message(f"m{number}", {"id": number, "method": "tools/call"}))
    assert len(only(Call, feed(engine, 1.0, cli.hook_callback("h")))) == 1


# ------------------------------------------------------------------------- whose prompt


def test_a_call_names_the_prompt_the_cli_works_on() -> None:
    engine = pre_tool_use(Hook(first))

    def prompt_of(line: bytes) -> str | None:
        (call,) = only(Call, feed(engine, 2.0, line))
        return call.prompt

    assert prompt_of(cli.hook_callback("before")) is None
    engine.send("k1", "u1", "one", 1.0)
    engine.send("k2", "u2", "two", 1.0)
    assert prompt_of(cli.hook_callback("submitted")) == "u1"
    feed(engine, 2.0, cli.init("u1"))
    assert prompt_of(cli.hook_callback("in the turn")) == "u1"
    feed(engine, 3.0, cli.aborted("u1"))
    assert prompt_of(cli.hook_callback("the next one")) == "u2"


# ------------------------------------------------------------------------- MCP


def test_a_message_with_an_id_that_cannot_be_written_is_refused() -> None:
    """R417: whatever the CLI names its message, its request is answered."""
    engine = answering(mcp_servers={"tools": ToolServer([])})
    nested: Any = 1
    for _ in range(900):
        nested = [nested]
    line = cli.mcp_message("r", {"jsonrpc": "2.0", "id": nested, "method": "no/such"})

    def deeply(depth: int) -> list[Action]:
        return deeply(depth - 1) if depth else feed(engine, 1.0, line)

    for depth in range(0, 120, 3):  # somewhere here it can still be read and not be written
        actions = deeply(depth)
        assert len(written(actions)) == 1


def test_what_a_tool_does_to_its_message_does_not_change_the_answer() -> None:
    @tool
    async def spoil(context: ToolContext) -> str:
        """Spoil the message."""
        return context.name

    engine = answering(mcp_servers={"tools": ToolServer([spoil])})
    params = {"name": "spoil", "arguments": {}}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    (call,) = only(Call, feed(engine, 1.0, cli.mcp_message("r", message)))
    call.argument.raw.clear()
    answers = payloads(cli.finish(engine, call.call_id, "done", 2.0))
    assert answers["r"]["mcp_response"]["id"] == 7


def test_every_kind_of_request_has_a_handler() -> None:
    kinds = {*get_args(controls.RequestBody), controls.UnknownControlRequest}
    assert kinds == set(answering()._incoming._by_request)
    assert set(CallKind) == set(answering()._incoming._by_call)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (cli.hook_callback("r"), CallKind.HOOK),
        (cli.can_use_tool("r"), CallKind.PERMISSION),
        (cli.mcp_message("r", {"method": "ping"}), CallKind.MCP),
        (cli.elicitation("r"), CallKind.ELICITATION),
        (cli.request("r", "request_user_dialog"), None),
        (cli.request("r", "initialize"), None),
    ],
)
def test_a_request_goes_to_the_callback_of_its_kind_and_an_unknown_one_is_rejected(
    line: bytes, kind: CallKind | None
) -> None:
    """R181, R214, R316, R369."""
    engine = pre_tool_use(
        Hook(first), can_use_tool=first, elicitation=first, mcp_servers={"tools": first}
    )
    actions = feed(engine, 1.0, line)
    assert [call.kind for call in only(Call, actions)] == ([] if kind is None else [kind])
    assert list(errors(actions)) == (["r"] if kind is None else [])
    assert cli.delivered(actions) == []


@pytest.mark.parametrize(
    ("line", "types"),
    [
        (cli.withdrawal("r"), []),
        (cli.success("req_0"), []),
        (cli.failure("req_0", "no"), []),
        (b"[]\n", []),
        (cli.init(), ["system"]),
        (cli.assistant(), ["assistant"]),
        (cli.user("hi"), ["user"]),
        (cli.result(), ["result"]),
        (cli.lifecycle("u", "queued"), ["command_lifecycle"]),
        (cli.system("from_the_future"), ["system"]),
        (cli.line(type="from_the_future"), ["from_the_future"]),
    ],
)
def test_only_the_conversation_is_delivered(line: bytes, types: list[str]) -> None:
    """R215, R372, R427: and none of it makes a call or an answer."""
    actions = feed(answering(), 1.0, line)
    assert [kind for kind, _ in cli.delivered(actions)] == types
    assert (only(Call, actions), written(actions)) == ([], [])
