"""The hook that follows all others before a tool runs: when it is called, and what it decides."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import cli
from tests.support.cli import asking, begin, feed, finish, only, payloads, started, warned

from bridle import Block, Defer, EndTurn, Hook, HookOutput, ModifyInput, PendingApproval
from bridle._core.actions import Action, Call
from bridle._core.engine import Engine
from bridle._core.incoming.approvals import Approval
from bridle._core.incoming.hook_plan import HookPlan
from bridle.events import WarningKind


def own(_: object) -> None:
    """A hook of the program."""


def last(_: object) -> None:
    """The hook that follows."""


def plan(*hooks: Hook, event: str = "PreToolUse") -> HookPlan:
    listed = {event: hooks} if hooks else {}
    return HookPlan.from_options(listed, 60.0, last=Hook(last, timeout=9.0, on_error="block"))


def session(*hooks: Hook, **config: Any) -> Engine:
    return cli.running(cli.NEWER, incoming=asking(hooks=plan(*hooks), **config))


def ask(request_id: str = "r") -> bytes:
    called = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": "toolu_1",
    }
    return cli.hook_callback(request_id, input=called)


def called(actions: list[Action]) -> list[object]:
    return [call.callback for call in only(Call, actions)]


def decision(actions: list[Action], request_id: str = "r") -> Any:
    return payloads(actions)[request_id].get("hookSpecificOutput", {}).get("permissionDecision")


def test_the_last_hook_needs_a_callback_even_without_other_hooks() -> None:
    assert set(plan().initialize_payload() or {}) == {"PreToolUse"}
    stop = plan(Hook(own), event="Stop").initialize_payload()
    assert list(stop or {}) == ["PreToolUse", "Stop"]


def test_the_last_hook_is_called_without_other_hooks() -> None:
    engine = session()
    [call] = only(Call, feed(engine, 1.0, ask()))
    assert (call.callback, call.timeout) == (last, 9.0)
    assert payloads(finish(engine, call.call_id, None, 2.0)) == {"r": {"continue": True}}


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        (None, {"continue": True}),
        (
            HookOutput(permission_decision="allow"),
            {
                "hookSpecificOutput": {
                    "permissionDecision": "allow",
                    "hookEventName": "PreToolUse",
                }
            },
        ),
        (HookOutput(decision="approve"), {"decision": "approve"}),
        (
            HookOutput(permission_decision="ask"),
            {"hookSpecificOutput": {"permissionDecision": "ask", "hookEventName": "PreToolUse"}},
        ),
    ],
    ids=["nothing", "allow", "approve", "ask"],
)
def test_the_last_hook_follows_every_decision_that_lets_the_tool_run(
    returned: object, answer: object
) -> None:
    """It is called once, and the decision stays."""
    engine = session(Hook(own))
    assert called(feed(engine, 1.0, ask())) == [own]
    actions = finish(engine, 1, returned, 2.0)
    assert (called(actions), payloads(actions)) == ([last], {})
    assert payloads(finish(engine, 2, None, 3.0)) == {"r": answer}


def test_the_last_hook_sees_the_changed_input() -> None:
    engine = session(Hook(own))
    feed(engine, 1.0, ask())
    [call] = only(Call, finish(engine, 1, ModifyInput({"command": "pwd"}), 2.0))
    assert call.argument.tool_input == {"command": "pwd"}
    payload = payloads(finish(engine, 2, None, 3.0))["r"]
    assert payload["hookSpecificOutput"]["updatedInput"] == {"command": "pwd"}


@pytest.mark.parametrize("returned", [Block("no"), EndTurn("no"), Defer()])
def test_the_last_hook_is_not_called_for_a_call_that_does_not_run(returned: object) -> None:
    engine = session(Hook(own))
    feed(engine, 1.0, ask())
    actions = finish(engine, 1, returned, 2.0)
    assert called(actions) == []
    assert set(payloads(actions)) >= {"r"}


def test_the_last_hook_is_only_for_tool_calls() -> None:
    engine = cli.running(
        cli.NEWER, incoming=asking(hooks=plan(Hook(own), event="UserPromptSubmit"))
    )
    input_ = {"hook_event_name": "UserPromptSubmit", "prompt": "x"}
    feed(engine, 1.0, cli.hook_callback("r", "hook_1", input=input_))
    actions = finish(engine, 1, None, 2.0)
    assert (called(actions), payloads(actions)) == ([], {"r": {"continue": True}})


def test_a_refusal_of_the_last_hook_wins() -> None:
    engine = session(Hook(own))
    feed(engine, 1.0, ask())
    finish(engine, 1, HookOutput(permission_decision="allow"), 2.0)
    actions = finish(engine, 2, Block("not written"), 3.0)
    specific = payloads(actions)["r"]["hookSpecificOutput"]
    assert specific["permissionDecision"] == "deny"
    assert specific["permissionDecisionReason"] == "not written"


@pytest.mark.parametrize("how", ["raises", "is late", "cannot be called", "is closed"])
def test_a_last_hook_that_fails_refuses_the_call(how: str) -> None:
    engine = session()
    begin(engine, 1.0, ask())
    match how:
        case "raises":
            actions = engine.failed_call(1, "boom", 2.0)
        case "is late":
            actions = engine.advance(10.0)
        case "cannot be called":
            actions = engine.failed_call(1, "no thread", 2.0, was_called=False)
        case _:
            actions = engine.close(2.0)
    assert decision(actions) == "deny"


def test_calls_above_the_limit_are_refused_before_the_last_hook() -> None:
    engine = session(max_open=1)
    feed(engine, 1.0, ask("one"))
    actions = feed(engine, 1.0, ask("two"))
    assert (called(actions), decision(actions, "two")) == ([], "deny")
    assert warned(actions) == [WarningKind.LIMIT_REACHED]


def test_the_warnings_of_other_hooks_are_given_once() -> None:
    engine = session(Hook(own))
    feed(engine, 1.0, ask())
    before = engine.failed_call(1, "boom", 2.0)
    assert (called(before), warned(before)) == ([last], [WarningKind.HOOK_FAILED])
    assert warned(finish(engine, 2, None, 3.0)) == []


# ------------------------------------------------------------------------- approved calls

PENDING = PendingApproval(
    session_id="s1", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="toolu_1"
)
ALLOW = {"behavior": "allow", "updatedInput": {"command": "ls"}}
DENY = {"behavior": "deny", "message": "no"}


def resumed(decision: dict[str, Any]) -> Engine:
    approval = Approval(pending=PENDING, decision=decision, uuid="turn")
    return started(incoming=asking(hooks=plan(), approval=approval))


def permission() -> bytes:
    return cli.can_use_tool("c", input={"command": "ls"}, tool_use_id="toolu_1")


@pytest.mark.parametrize("asks_hooks", [True, False])
def test_the_last_hook_is_called_when_an_approved_call_is_about_to_run(asks_hooks: bool) -> None:
    engine = resumed(ALLOW)
    if asks_hooks:
        actions = feed(engine, 1.0, ask())
        assert (called(actions), decision(actions)) == ([], "ask")
    actions = feed(engine, 1.0, permission())
    assert (called(actions), payloads(actions)) == ([last], {})
    [call] = only(Call, actions)
    assert call.argument.tool_use_id == "toolu_1"
    assert payloads(finish(engine, call.call_id, None, 2.0)) == {"c": ALLOW}


@pytest.mark.parametrize("asks_hooks", [True, False])
def test_the_last_hook_can_refuse_an_approved_call(asks_hooks: bool) -> None:
    engine = resumed(ALLOW)
    if asks_hooks:
        feed(engine, 1.0, ask())
    [call] = only(Call, feed(engine, 1.0, permission()))
    actions = finish(engine, call.call_id, Block("not written"), 2.0)
    assert payloads(actions) == {"c": {"behavior": "deny", "message": "not written"}}


def test_the_last_hook_is_not_called_for_a_call_that_a_person_denied() -> None:
    engine = resumed(DENY)
    actions = feed(engine, 1.0, permission())
    assert (called(actions), payloads(actions)) == ([], {"c": DENY})


CHANGED = {"command": "pwd"}
OWN = HookPlan.from_options({"PreToolUse": [Hook(own)]}, 60.0)


@pytest.mark.parametrize("output", [ModifyInput(CHANGED), HookOutput(updated_input=CHANGED)])
@pytest.mark.parametrize("version", ["2.0.0", "2.0.9"])
def test_a_changed_input_blocks_on_clis_that_would_run_the_original_one(
    version: str, output: Any
) -> None:
    engine = cli.running(incoming=asking(hooks=OWN))
    engine.describe(cli_version=version)
    [call] = only(Call, begin(engine, 0.0, ask()))
    actions = finish(engine, call.call_id, output, 1.0)
    specific = payloads(actions)["r"]["hookSpecificOutput"]
    assert specific["permissionDecision"] == "deny"
    assert "updatedInput" not in specific
    assert warned(actions) == [WarningKind.HOOK_FAILED]


@pytest.mark.parametrize("version", ["2.0.10", "2.1.197", None])
def test_a_changed_input_is_sent_to_clis_that_use_it(version: str | None) -> None:
    engine = cli.running(incoming=asking(hooks=OWN))
    if version is not None:
        engine.describe(cli_version=version)
    [call] = only(Call, begin(engine, 0.0, ask()))
    actions = finish(engine, call.call_id, ModifyInput(CHANGED), 1.0)
    assert payloads(actions)["r"]["hookSpecificOutput"]["updatedInput"] == CHANGED
