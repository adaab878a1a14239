"""Calls that wait for a person: which may wait, and how the decision is applied on resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs
from tests.support.cli import (
    NEWER,
    OLDER,
    asking,
    can_use_tool,
    echo,
    feed,
    finish,
    follow_up,
    hook_callback,
    idle,
    init,
    lifecycle,
    mcp_message,
    only,
    payloads,
    result,
    running,
    started,
    success,
    system,
    user,
    warned,
)

from bridle import (
    Block,
    Continue,
    Defer,
    EndTurn,
    Hook,
    HookOutput,
    ModifyInput,
    PendingApproval,
    ToolServer,
    tool,
)
from bridle._engine.actions import Call, EndInput, Reject, Terminate, TurnEnded
from bridle._engine.engine import Engine
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.waiting_call import Approval
from bridle.approvals._rules import rules_of
from bridle.errors import ApprovalPending, SessionStopped
from bridle.outcomes import Outcome, OutcomeReason

WAITING = {"id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
DEFERS = {"permissionDecision": "defer", "hookEventName": "PreToolUse"}
OTHER_WAITS = "another call is waiting for approval"


def plan(*events: str, needed: str | None = None) -> HookPlan:
    """Return a plan with one hook for each event."""
    return HookPlan.from_options({event: [Hook(idle)] for event in events}, 60.0, None, needed)


def session(info: Mapping[str, Any] = NEWER, **config: Any) -> Engine:
    """Return a session with a PreToolUse hook, in which the prompt `p` runs."""
    engine = running(dict(info), incoming=asking(hooks=plan("PreToolUse")), **config)
    if info is OLDER:
        engine.describe(cli_version="2.1.197")
    engine.send("k", "p", "go", 0.0)
    feed(engine, 0.0, *([init("p")] if info is NEWER else [echo("p"), init()]))
    return engine


def pre_tool_use(request_id: str, tool_use_id: str, **members: object) -> bytes:
    """Return the CLI's request before a call of Bash."""
    called = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": tool_use_id,
        "cwd": "/work",
        "transcript_path": "/t/s1.jsonl",
        "permission_mode": "default",
        **members,
    }
    return hook_callback(request_id, input=called)


def answer(engine: Engine, line: bytes, *returned: object) -> Any:
    """Return the answer to a request whose hooks return these values, and its actions."""
    actions = feed(engine, 1.0, line)
    for value in returned:
        [call] = only(Call, actions)
        actions = finish(engine, call.call_id, value, 1.0)
    [payload] = payloads(actions).values()
    return payload, actions


def outcomes(actions: Any) -> list[Outcome[Any]]:
    """Return the outcomes among the actions."""
    return [action.outcome for action in only(TurnEnded, actions)]


def deferred_result(*uuids: str, **members: object) -> bytes:
    """Return the result of a turn that deferred a call."""
    ending = {"stop_reason": "tool_deferred", "terminal_reason": "tool_deferred"}
    named = {"deferred_tool_use": WAITING, "session_id": "s1"}
    return result(*uuids, **{**ending, **named, **members})


# ------------------------------------------------------------------------- deferring


@pytest.mark.parametrize("returned", [Defer(), HookOutput(permission_decision="defer")])
def test_a_deferred_call_ends_its_turn_and_waits(returned: object) -> None:
    """R309."""
    engine = session()
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_1"), returned)
    assert payload["hookSpecificOutput"] == DEFERS
    [outcome] = outcomes(feed(engine, 2.0, deferred_result("p")))
    assert outcome.reason is OutcomeReason.TOOL_DEFERRED
    assert outcome.pending == PendingApproval(
        session_id="s1",
        tool_name="Bash",
        tool_input={"command": "ls"},
        tool_use_id="toolu_1",
        cwd="/work",
        transcript_path="/t/s1.jsonl",
        permission_mode="default",
        cli_version="2.1.325",
    )


def test_one_call_of_a_turn_waits_and_further_ones_are_denied() -> None:
    engine = session()
    answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    payload, actions = answer(engine, pre_tool_use("r2", "toolu_2"), Defer())
    assert payload["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert payload["hookSpecificOutput"]["permissionDecisionReason"] == OTHER_WAITS
    assert warned(actions) == ["cannot_defer"]
    payload, _ = answer(engine, pre_tool_use("r3", "toolu_3"), Continue())
    assert payload == {"continue": True}


def test_a_call_of_a_subagent_a_nameless_one_and_one_before_a_queued_prompt_are_denied() -> None:
    engine = session()
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_1", agent_id="a1"), Defer())
    assert "subagent" in payload["hookSpecificOutput"]["permissionDecisionReason"]
    payload, _ = answer(engine, pre_tool_use("r2", ""), Defer())
    assert "did not name" in payload["hookSpecificOutput"]["permissionDecisionReason"]
    engine.send("k2", "q", "next", 1.0)
    payload, _ = answer(engine, pre_tool_use("r3", "toolu_3"), Defer())
    assert "queued" in payload["hookSpecificOutput"]["permissionDecisionReason"]


def test_a_call_of_a_turn_without_a_prompt_is_denied() -> None:
    """No outcome could tell the program about it."""
    engine = running(incoming=asking(hooks=plan("PreToolUse")))
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    assert "without a prompt" in payload["hookSpecificOutput"]["permissionDecisionReason"]


@pytest.mark.parametrize("version", ["2.1.196", "2.0.0", "1.9.999", None, "unreadable"])
def test_a_cli_that_is_too_old_or_unknown_never_gets_a_deferral(version: str | None) -> None:
    """Such a CLI might ignore the answer and run the tool."""
    engine = session(OLDER)
    engine.describe(cli_version=version)
    payload, actions = answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    assert payload["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert warned(actions) == ["cannot_defer"]


@pytest.mark.parametrize(
    ("later", "decision"), [(Block("no"), "deny"), (EndTurn("stop"), "deny"), (None, "defer")]
)
def test_a_later_block_or_end_of_the_turn_wins_over_a_deferral(later: Any, decision: str) -> None:
    hooks = HookPlan.from_options({"PreToolUse": [Hook(idle), Hook(idle)]}, 60.0)
    engine = running(incoming=asking(hooks=hooks))
    engine.send("k", "p", "go", 0.0)
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_1"), Defer(), later)
    assert payload["hookSpecificOutput"]["permissionDecision"] == decision
    blocked = decision == "deny"
    assert (engine._approvals.deferred is None) is blocked


def test_a_deferral_leaves_out_a_changed_input_because_the_hooks_run_again() -> None:
    hooks = HookPlan.from_options({"PreToolUse": [Hook(idle), Hook(idle)]}, 60.0)
    engine = running(incoming=asking(hooks=hooks))
    engine.send("k", "p", "go", 0.0)
    changed = ModifyInput({"command": "rm"})
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_1"), changed, Defer())
    assert payload["hookSpecificOutput"] == DEFERS


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PermissionRequest"])
def test_another_gate_blocks_if_its_hook_defers(event: str) -> None:
    engine = running(incoming=asking(hooks=plan(event)))
    called = {"hook_event_name": event, "tool_name": "Bash", "tool_input": {}, "prompt": "x"}
    payload, actions = answer(engine, hook_callback("r1", input=called), Defer())
    assert payload.get("decision") == "block" or "deny" in str(payload)
    assert warned(actions) == ["hook_failed"]


def test_an_event_that_decides_nothing_warns_if_its_hook_defers() -> None:
    engine = running(incoming=asking(hooks=plan("PostToolUse")))
    called = {"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {}}
    payload, actions = answer(engine, hook_callback("r1", input=called), Defer())
    assert payload == {"continue": True}
    assert warned(actions) == ["hook_failed"]


def test_a_permission_callback_that_defers_denies() -> None:
    engine = running(incoming=asking(can_use_tool=idle))
    [call] = only(Call, feed(engine, 1.0, can_use_tool("r1")))
    actions = finish(engine, call.call_id, Defer(), 1.0)
    assert payloads(actions)["r1"]["behavior"] == "deny"
    assert warned(actions) == ["permission_failed"]


@pytest.mark.parametrize("ended", [False, True])
def test_prompts_are_refused_from_the_deferral_on(ended: bool) -> None:
    engine = session()
    answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    if ended:
        feed(engine, 2.0, deferred_result("p"))
    [refused] = only(Reject, engine.send("k2", "q", "more", 3.0))
    assert isinstance(refused.error, ApprovalPending)
    assert refused.error.tool_use_id == "toolu_1"


@pytest.mark.parametrize("state", ["completed", "cancelled"])
def test_a_late_report_about_an_earlier_prompt_changes_nothing_about_a_call_that_waits(
    state: str,
) -> None:
    engine = session()
    answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    feed(engine, 2.0, lifecycle("earlier", state))
    [refused] = only(Reject, engine.send("k2", "q", "more", 3.0))
    assert isinstance(refused.error, ApprovalPending)
    payload, _ = answer(engine, pre_tool_use("r2", "toolu_2"), Defer())
    assert payload["hookSpecificOutput"]["permissionDecisionReason"] == OTHER_WAITS
    [outcome] = outcomes(feed(engine, 4.0, deferred_result("p")))
    assert outcome.pending is not None
    assert outcome.pending.transcript_path == "/t/s1.jsonl"


def test_prompts_are_accepted_again_if_the_turn_ends_without_the_deferral() -> None:
    engine = session()
    answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    [outcome] = outcomes(feed(engine, 2.0, result("p")))
    assert outcome.pending is None
    assert only(Reject, engine.send("k2", "q", "more", 3.0)) == []


STARTED = system("task_started", task_id="b", tool_use_id="t", is_backgrounded=True)
ENDED = system("task_updated", task_id="b", patch={"status": "completed", "end_time": 1})
NOTICE = system("task_notification", task_id="b", tool_use_id="t", status="completed")
TOLD = user("a tool result")


@pytest.mark.parametrize(("before", "step"), [((), EndInput), ((STARTED,), Terminate)])
def test_a_session_ends_when_a_call_waits(before: tuple[bytes, ...], step: type) -> None:
    """The CLI could begin a turn by itself, for example about a task, and drop the call."""
    engine = session()
    feed(engine, 0.5, *before)
    answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    actions = feed(engine, 2.0, deferred_result("p"))
    assert outcomes(actions)[0].pending is not None
    assert only(step, actions)
    [refused] = only(Reject, engine.send("k2", "q", "more", 3.0))
    assert isinstance(refused.error, ApprovalPending)
    assert refused.error.pending == engine.waiting is not None
    [refused] = only(Reject, engine.submit("k3", "mcp_status", {}, 3.0))
    assert isinstance(refused.error, SessionStopped)


@pytest.mark.parametrize(
    ("before", "waits"),
    [
        ((STARTED,), True),
        ((STARTED, ENDED), False),
        ((STARTED, NOTICE), False),
        ((STARTED, ENDED, NOTICE, TOLD), True),
        ((STARTED, ENDED, echo("p")), False),
        ((STARTED, ENDED, user("of a subagent", parent_tool_use_id="t")), False),
        ((system("background_tasks_changed", tasks=[{"task_id": "b"}]),), True),
        (
            (
                system("background_tasks_changed", tasks=[{"task_id": "b"}]),
                system("background_tasks_changed", tasks=[]),
            ),
            False,
        ),
    ],
)
def test_no_call_waits_before_the_model_knows_how_a_task_ended(
    before: tuple[bytes, ...], waits: bool
) -> None:
    """The CLI would begin a turn about the task at once, and drop the call."""
    engine = session()
    feed(engine, 0.5, *before)
    payload, actions = answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    decision = payload["hookSpecificOutput"]["permissionDecision"]
    assert decision == ("defer" if waits else "deny")
    assert warned(actions) == ([] if waits else ["cannot_defer"])


def test_a_call_can_wait_after_a_turn_about_a_task() -> None:
    engine = session()
    feed(engine, 0.5, result("p"), STARTED, ENDED, NOTICE, init(), follow_up())
    engine.send("k2", "q", "more", 1.0)
    feed(engine, 1.0, init("q"))
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    assert payload["hookSpecificOutput"] == DEFERS


@pytest.mark.parametrize(("size", "waits"), [(500_000, True), (600_000, False)])
def test_a_call_with_a_very_large_input_cannot_wait(size: int, waits: bool) -> None:
    """The CLI would not find it at the end of its transcript."""
    engine = session()
    given = {"command": "x" * size}
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_1", tool_input=given), Defer())
    decision = payload["hookSpecificOutput"]["permissionDecision"]
    assert decision == ("defer" if waits else "deny")


def test_a_call_of_a_turn_without_a_prompt_waits_if_a_hook_of_the_settings_deferred_it() -> None:
    engine = session()
    feed(engine, 0.5, result("p"), init())
    actions = feed(engine, 2.0, deferred_result(origin={"kind": "task-notification"}))
    assert outcomes(actions) == []
    assert engine.waiting is not None
    assert only(EndInput, actions)


def test_a_call_still_waits_after_a_turn_of_the_clis_own_and_its_result_is_lost() -> None:
    engine = session()
    answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    feed(engine, 2.0, deferred_result("p"))
    waiting = engine.waiting
    assert waiting is not None
    assert warned(feed(engine, 3.0, init())) == ["approval_lost"]
    assert engine.waiting == waiting
    assert outcomes(feed(engine, 4.0, result())) == []
    assert engine.waiting == waiting


@pytest.mark.parametrize(
    ("info", "second", "terminal_reason", "lost"),
    [
        (OLDER, False, "tool_deferred", False),
        (OLDER, True, "tool_deferred", True),
        (OLDER, False, "completed", True),
        (NEWER, True, "tool_deferred", False),
    ],
)
def test_an_older_cli_that_went_on_after_a_deferral_will_hide_the_result(
    info: Mapping[str, Any], second: bool, terminal_reason: str, lost: bool
) -> None:
    engine = session(info)
    answer(engine, pre_tool_use("r1", "toolu_1"), Defer())
    if second:
        answer(engine, pre_tool_use("r2", "toolu_2"), Continue())
    actions = feed(engine, 2.0, deferred_result("p", terminal_reason=terminal_reason))
    assert outcomes(actions)[0].reason is OutcomeReason.TOOL_DEFERRED
    assert ("approval_lost" in warned(actions)) is lost


def test_a_call_that_a_settings_hook_deferred_waits_too() -> None:
    engine = running()
    engine.send("k", "p", "go", 0.0)
    [outcome] = outcomes(feed(engine, 2.0, init("p"), deferred_result("p")))
    assert outcome.pending is not None
    assert (outcome.pending.tool_use_id, outcome.pending.transcript_path) == ("toolu_1", None)


# ------------------------------------------------------------------------- resuming

PENDING = PendingApproval(
    session_id="s1",
    tool_name="Bash",
    tool_input={"command": "ls"},
    tool_use_id="toolu_1",
    cwd="/work",
)
ALLOW = {"behavior": "allow", "updatedInput": {"command": "ls"}}
DENY = {"behavior": "deny", "message": "not today"}
EDIT = {"behavior": "allow", "updatedInput": {"command": "pwd"}}


def resumed(decision: Mapping[str, Any] = ALLOW, *events: str, **config: Any) -> Engine:
    """Return a session that resumes the call, before its handshake is answered."""
    approval = Approval(pending=PENDING, decision=dict(decision), uuid="turn")
    hooks = plan(*events, needed="PreToolUse")
    return started(incoming=asking(hooks=hooks, approval=approval), **config)


def permission(request_id: str = "c1", command: str = "ls", tool_use_id: str = "toolu_1") -> bytes:
    """Return the CLI's permission request."""
    return can_use_tool(request_id, input={"command": command}, tool_use_id=tool_use_id)


@pytest.mark.parametrize("decision", [ALLOW, DENY, EDIT])
def test_a_cli_that_asks_only_for_permission_gets_the_decision(decision: dict[str, Any]) -> None:
    engine = resumed(decision)
    payload, _ = answer(engine, permission())
    assert payload == decision
    feed(engine, 1.0, success("req_0", OLDER), user("tool result"), init())
    [outcome] = outcomes(feed(engine, 2.0, result(session_id="s1")))
    assert (outcome.uuid, outcome.ok, outcome.pending) == ("turn", True, None)


@pytest.mark.parametrize("decision", [ALLOW, DENY, EDIT])
def test_a_cli_that_asks_for_the_hooks_must_ask_for_permission_next(
    decision: dict[str, Any],
) -> None:
    engine = resumed(decision)
    feed(engine, 1.0, lifecycle("other", "started"), success("req_0", NEWER))
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_1"))
    specific = payload["hookSpecificOutput"]
    assert specific["permissionDecision"] == "ask"
    assert specific.get("updatedInput") == (EDIT["updatedInput"] if decision is EDIT else None)
    payload, _ = answer(engine, permission())
    assert payload == decision
    [outcome] = outcomes(feed(engine, 2.0, init(), result(session_id="s1")))
    assert (outcome.uuid, outcome.ok) == ("turn", True)


@pytest.mark.parametrize("asks_hooks", [True, False])
def test_the_hooks_see_the_edited_input_and_may_change_it(asks_hooks: bool) -> None:
    engine = resumed(EDIT, "PreToolUse")
    line = pre_tool_use("r1", "toolu_1") if asks_hooks else permission()
    actions = feed(engine, 1.0, line)
    [call] = only(Call, actions)
    seen: Any = call.argument
    assert (seen.tool_input, seen.tool_use_id) == ({"command": "pwd"}, "toolu_1")
    actions = finish(engine, call.call_id, ModifyInput({"command": "id"}), 1.0)
    if asks_hooks:
        specific = payloads(actions)["r1"]["hookSpecificOutput"]
        assert specific["updatedInput"] == {"command": "id"}
        actions = feed(engine, 1.0, permission(command="id"))
    assert payloads(actions)["c1"] == {"behavior": "allow", "updatedInput": {"command": "id"}}


@pytest.mark.parametrize("returned", [Block("closed"), HookOutput(permission_decision="deny")])
@pytest.mark.parametrize("asks_hooks", [True, False])
def test_a_hook_denies_what_the_person_allowed(returned: object, asks_hooks: bool) -> None:
    engine = resumed(ALLOW, "PreToolUse")
    line = pre_tool_use("r1", "toolu_1") if asks_hooks else permission()
    payload, _ = answer(engine, line, returned)
    if asks_hooks:
        assert payload["hookSpecificOutput"]["permissionDecision"] == "deny"
        payload, _ = answer(engine, permission())
    assert payload["behavior"] == "deny"


@pytest.mark.parametrize(
    "returned",
    [
        Continue(),
        Defer(),
        HookOutput(permission_decision="allow"),
        HookOutput(decision="approve"),
        HookOutput(permission_decision="defer"),
        HookOutput(permission_decision="ask"),
    ],
)
@pytest.mark.parametrize("asks_hooks", [True, False])
def test_no_hook_allows_what_the_person_denied(returned: object, asks_hooks: bool) -> None:
    engine = resumed(DENY, "PreToolUse")
    if asks_hooks:
        payload, _ = answer(engine, pre_tool_use("r1", "toolu_1"), returned)
        assert payload["hookSpecificOutput"]["permissionDecision"] == "ask"
        payload, _ = answer(engine, permission())
    else:
        payload, _ = answer(engine, permission(), returned)
    assert payload == DENY


def test_a_hook_that_ends_the_turn_denies_and_interrupts() -> None:
    engine = resumed(ALLOW, "PreToolUse")
    payload, _ = answer(engine, permission(), EndTurn("enough"))
    assert payload == {"behavior": "deny", "message": "enough", "interrupt": True}


def test_context_that_an_older_cli_cannot_take_is_reported() -> None:
    engine = resumed(ALLOW, "PreToolUse")
    payload, actions = answer(engine, permission(), Continue("remember"))
    assert payload == ALLOW
    assert warned(actions) == ["result_ignored"]


def test_context_goes_to_a_cli_that_asks_for_the_hooks() -> None:
    engine = resumed(ALLOW, "PreToolUse")
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_1"), Continue("remember"))
    assert payload["hookSpecificOutput"]["additionalContext"] == "remember"
    payload, actions = answer(engine, permission())
    assert payload == ALLOW
    assert warned(actions) == []


def test_permission_hooks_are_not_asked_about_the_call() -> None:
    engine = resumed(ALLOW, "PermissionRequest")
    callback = next(iter(set(engine._config.incoming.hooks.by_callback_id) - {"hook_0"}))
    called = {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {}}
    line = hook_callback("r1", callback, input=called, tool_use_id="toolu_1")
    payload, _ = answer(engine, line)
    assert payload == {"continue": True}


@pytest.mark.parametrize("is_raw", [False, True])
@pytest.mark.parametrize("decision", [None, DENY, ALLOW])
def test_an_in_process_tool_runs_only_if_the_call_was_allowed(
    decision: dict[str, Any] | None, *, is_raw: bool
) -> None:
    """A CLI that does not ask for permission does not get the tool to run."""

    @tool
    def refund(order: int) -> str:
        """Refund an order."""
        return str(order)

    async def handle_message(message: dict[str, Any]) -> dict[str, Any]:
        return message

    approval = Approval(pending=PENDING, decision=decision or ALLOW, uuid="turn")
    servers = {"tools": handle_message if is_raw else ToolServer([refund])}
    hooks = plan(needed="PreToolUse")
    engine = started(incoming=asking(hooks=hooks, approval=approval, mcp_servers=servers))
    feed(engine, 1.0, success("req_0", OLDER))
    if decision is not None:
        answer(engine, permission())
    params = {
        "name": "refund",
        "arguments": {"order": 7},
        "_meta": {"claudecode/toolUseId": "toolu_1"},
    }
    message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
    actions = feed(engine, 1.0, mcp_message("m1", message))
    assert len(only(Call, actions)) == (decision is ALLOW)
    assert ("error" in str(payloads(actions))) is (decision is not ALLOW)


def test_other_calls_are_judged_as_always() -> None:
    engine = resumed(ALLOW, "PreToolUse")
    payload, _ = answer(engine, permission("c2", tool_use_id="toolu_2"))
    assert payload["behavior"] == "deny"
    payload, _ = answer(engine, pre_tool_use("r1", "toolu_2"), Continue())
    assert payload == {"continue": True}


def test_a_closing_session_denies_the_call() -> None:
    engine = resumed(ALLOW, "PreToolUse")
    feed(engine, 1.0, success("req_0", NEWER))
    answer(engine, pre_tool_use("r1", "toolu_1"), Continue())
    engine.close(1.0)
    payload, _ = answer(engine, permission())
    assert payload["behavior"] == "deny"


def test_a_close_while_the_hook_runs_denies_the_call() -> None:
    engine = resumed(ALLOW, "PreToolUse")
    feed(engine, 1.0, success("req_0", OLDER), permission())
    assert payloads(engine.close(1.0))["c1"]["behavior"] == "deny"


@pytest.mark.parametrize("decided", [False, True])
def test_the_call_waits_on_if_the_cli_exits_before_the_decision(decided: bool) -> None:
    engine = resumed()
    feed(engine, 1.0, success("req_0", OLDER))
    if decided:
        answer(engine, permission())
    engine.output_ended(2.0)
    [outcome] = outcomes(engine.exited(-9, "", 2.0))
    assert outcome.reason is OutcomeReason.CLI_EXITED
    assert outcome.pending == (None if decided else PENDING)
    assert engine.awaits_decision is not decided


def test_the_call_waits_on_if_its_tool_is_not_available() -> None:
    engine = resumed()
    unavailable = result(
        is_error=True,
        stop_reason="tool_deferred_unavailable",
        terminal_reason=None,
        deferred_tool_use=WAITING,
    )
    [outcome] = outcomes(feed(engine, 1.0, unavailable))
    assert outcome.reason is OutcomeReason.EXECUTION_ERROR
    assert outcome.pending == PENDING


@pytest.mark.parametrize(("info", "seconds"), [(NEWER | {"session_state": "idle"}, 5), (OLDER, 60)])
def test_a_cli_that_continues_no_turn_gives_a_named_outcome(
    info: dict[str, Any], seconds: float
) -> None:
    engine = resumed()
    feed(engine, 1.0, success("req_0", info))
    assert outcomes(engine.advance(seconds)) == []
    [outcome] = outcomes(engine.advance(seconds + 1))
    assert outcome.reason is OutcomeReason.EXECUTION_ERROR
    assert "no call waits" in outcome.detail
    assert outcome.pending is None
    assert not engine.awaits_decision


def test_a_turn_that_has_begun_has_no_deadline_to_begin() -> None:
    engine = resumed()
    feed(engine, 1.0, success("req_0", OLDER))
    answer(engine, permission())
    assert outcomes(engine.advance(100.0)) == []


# ------------------------------------------------------------------------- without a hook


@tool(approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def gated(*rules: str, hooks: int = 1) -> Engine:
    """Return a session whose rules let calls wait, in which the prompt `p` runs."""
    listed = {"PreToolUse": [Hook(idle)] * hooks}
    planned = HookPlan.from_options(listed, 60.0, None, "PreToolUse")
    engine = running(
        dict(NEWER),
        incoming=asking(
            hooks=planned, approve=rules_of(rules), mcp_servers={"tools": ToolServer([pay])}
        ),
    )
    engine.send("k", "p", "go", 0.0)
    feed(engine, 0.0, init("p"))
    return engine


@pytest.mark.parametrize(
    ("rules", "members"),
    [
        (["Bash(ls *)"], {}),
        (["Bash"], {}),
        ([], {"tool_name": "mcp__tools__pay", "tool_input": {}}),
        (["mcp__other"], {"tool_name": "mcp__other__x", "tool_input": {}}),
        (["Task"], {"tool_name": "Agent", "tool_input": {}}),
        (["Write"], {"tool_name": ""}),
        (["Bash(rm *)"], {"tool_name": "RunScript", "tool_input": {"command": "ls"}}),
    ],
)
@pytest.mark.parametrize(
    "returned",
    [None, Continue(), HookOutput(permission_decision="allow"), HookOutput(decision="approve")],
)
def test_a_call_that_needs_an_approval_waits_whatever_the_hooks_return(
    rules: list[str], members: dict[str, Any], returned: object
) -> None:
    engine = gated(*rules, hooks=0 if returned is None else 1)
    line = pre_tool_use("r1", "toolu_1", **members)
    payload, _ = answer(engine, line, *([] if returned is None else [returned]))
    assert payload["hookSpecificOutput"]["permissionDecision"] == "defer"
    assert "decision" not in payload
    with pytest.raises(ApprovalPending):
        raise engine.refusal("send_user_message") or AssertionError


def test_a_hook_that_fails_does_not_let_the_call_run() -> None:
    engine = gated("Bash(ls *)")
    [call] = only(Call, feed(engine, 1.0, pre_tool_use("r1", "toolu_1")))
    actions = engine.failed_call(call.call_id, "boom", 1.0)
    assert payloads(actions)["r1"]["hookSpecificOutput"] == DEFERS


@pytest.mark.parametrize(
    ("returned", "decision"), [(Block("no"), "deny"), (EndTurn("no"), "deny"), (Defer(), "defer")]
)
def test_a_hook_that_decides_against_the_call_wins(returned: object, decision: str) -> None:
    payload, _ = answer(gated("Bash"), pre_tool_use("r1", "toolu_1"), returned)
    assert payload["hookSpecificOutput"]["permissionDecision"] == decision


def test_the_rules_see_the_input_that_a_hook_has_changed() -> None:
    changed = ModifyInput({"command": "rm x"})
    payload, _ = answer(gated("Bash(rm *)"), pre_tool_use("r1", "toolu_1"), changed)
    assert payload["hookSpecificOutput"] == DEFERS


@pytest.mark.parametrize(
    ("rule", "tool_name"),
    [("Bash(rm *)", "Bash"), ("Bash", "mcp__shop__new"), ("Write", "RunScript")],
)
def test_a_call_that_no_rule_concerns_runs(rule: str, tool_name: str) -> None:
    line = pre_tool_use("r1", "toolu_1", tool_name=tool_name)
    payload, _ = answer(gated(rule), line, None)
    assert payload == {"continue": True}


@pytest.mark.parametrize("name", ["pay", "other"])
def test_a_tool_that_needs_an_approval_does_not_run_without_the_hooks(name: str) -> None:
    """A CLI that skips the hooks does not get the tool to run."""
    engine = gated()
    params = {"name": name, "arguments": {}, "_meta": {"claudecode/toolUseId": "toolu_1"}}
    message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
    actions = feed(engine, 1.0, mcp_message("m1", message))
    assert only(Call, actions) == []
    assert ("not approved" in str(payloads(actions))) is (name == "pay")


def test_the_resumed_call_of_a_tool_of_the_program_runs() -> None:
    pending = structs.replace(PENDING, tool_name="mcp__tools__pay", tool_input={})
    approval = Approval(pending=pending, decision=ALLOW, uuid="turn")
    servers = {"tools": ToolServer([pay])}
    hooks = plan(needed="PreToolUse")
    engine = started(incoming=asking(hooks=hooks, approval=approval, mcp_servers=servers))
    feed(engine, 1.0, success("req_0", OLDER))
    answer(engine, can_use_tool("c1", tool_name="mcp__tools__pay", tool_use_id="toolu_1"))
    params = {"name": "pay", "arguments": {}, "_meta": {"claudecode/toolUseId": "toolu_1"}}
    message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
    assert len(only(Call, feed(engine, 1.0, mcp_message("m1", message)))) == 1


def test_the_session_shows_the_call_that_waits() -> None:
    engine = gated("Bash")
    answer(engine, pre_tool_use("r1", "toolu_1"), None)
    assert engine.waiting is None
    [outcome] = outcomes(feed(engine, 2.0, deferred_result("p")))
    assert engine.waiting == outcome.pending
    refused = engine.refusal("send_user_message")
    assert isinstance(refused, ApprovalPending)
    assert refused.pending == outcome.pending
