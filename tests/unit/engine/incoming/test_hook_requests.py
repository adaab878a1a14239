"""The hook that follows all others before a tool runs: when it is called, and what it decides."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import cli
from tests.support.cli import asking, begin, feed, finish, only, payloads, started, warned

from bridle import Block, Defer, EndTurn, Hook, HookOutput, ModifyInput, PendingApproval
from bridle._engine.actions import Action, Call
from bridle._engine.engine import Engine
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.waiting_call import Approval
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


AFTER_TOOL, AFTER_BATCH = "hook_0", "hook_1"


def after(event: str, request_id: str, turn: str | None = "t", agent: str | None = None) -> bytes:
    """A tool, or all tools of a message, have run in a turn of an agent."""
    about = {"hook_event_name": event, "tool_name": "Bash", "tool_input": {}, "tool_calls": []}
    about |= {} if turn is None else {"prompt_id": turn}
    about |= {} if agent is None else {"agent_id": agent}
    id = AFTER_TOOL if event == "PostToolUse" else AFTER_BATCH
    return cli.hook_callback(request_id, id, input=about)


def after_tools(*hooks: Hook) -> Engine:
    listed = {"PostToolUse": [Hook(own)], "PostToolBatch": hooks}
    return cli.running(cli.OLDER, incoming=asking(hooks=HookPlan.from_options(listed, 60.0)))


def test_a_turn_that_a_hook_ends_after_a_tool_ends_after_all_tools() -> None:
    """CLI 2.1.197 goes on if the message of the model has not ended at the first answer."""
    engine = after_tools()
    feed(engine, 1.0, after("PostToolUse", "a"), after("PostToolUse", "b"))
    ending = {"continue": False, "stopReason": "enough"}
    assert payloads(finish(engine, 1, EndTurn("enough"), 2.0)) == {"a": ending}
    assert payloads(finish(engine, 2, None, 2.0)) == {"b": {"continue": True}}
    assert payloads(feed(engine, 3.0, after("PostToolBatch", "c"))) == {"c": ending}
    assert payloads(feed(engine, 4.0, after("PostToolBatch", "d"))) == {"d": {"continue": True}}


@pytest.mark.parametrize(
    ("ended", "asked"),
    [
        (("t", None), ("other", None)),
        (("t", "subagent"), ("t", None)),
        (("t", None), ("t", "subagent")),
        ((None, None), (None, None)),
    ],
    ids=["another turn", "its subagent", "a subagent", "an unknown turn"],
)
def test_the_end_of_a_turn_after_a_tool_ends_no_other_turn(
    ended: tuple[str | None, str | None], asked: tuple[str | None, str | None]
) -> None:
    engine = after_tools()
    feed(engine, 1.0, after("PostToolUse", "a", *ended))
    finish(engine, 1, EndTurn("enough"), 2.0)
    actions = feed(engine, 3.0, after("PostToolBatch", "b", *asked))
    assert payloads(actions) == {"b": {"continue": True}}


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        (HookOutput(additional_context="more"), {"stopReason": "enough"}),
        (EndTurn("too much"), {"stopReason": "too much"}),
    ],
    ids=["goes on", "ends it too"],
)
def test_a_hook_after_all_tools_does_not_undo_the_end_of_the_turn(
    returned: object, answer: dict[str, Any]
) -> None:
    engine = after_tools(Hook(own))
    feed(engine, 1.0, after("PostToolUse", "a"))
    finish(engine, 1, EndTurn("enough"), 2.0)
    feed(engine, 3.0, after("PostToolBatch", "b"))
    payload = payloads(finish(engine, 2, returned, 4.0))["b"]
    assert payload["continue"] is False
    assert answer.items() <= payload.items()


def test_only_the_last_turns_that_a_hook_ended_are_remembered() -> None:
    """Most CLIs do not ask after all tools then."""
    engine = after_tools()
    for number in range(102):
        feed(engine, 1.0, after("PostToolUse", f"a{number}", f"t{number}"))
        finish(engine, number + 1, EndTurn("enough"), 2.0)
    ends = {
        number: payloads(feed(engine, 3.0, after("PostToolBatch", f"b{number}", f"t{number}")))
        for number in (0, 1, 2, 101)
    }
    went_on = [number for number, sent in ends.items() if sent[f"b{number}"]["continue"]]
    assert went_on == [0, 1]


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
@pytest.mark.parametrize("version", ["2.0.0", "2.0.9", None])
def test_a_changed_input_blocks_on_clis_that_would_run_the_original_one(
    version: str | None, output: Any
) -> None:
    """A CLI of unknown version may be one of them, unless its handshake has a later field."""
    engine = cli.running({"commands": []}, incoming=asking(hooks=OWN))
    engine.describe(cli_version=version)
    [call] = only(Call, begin(engine, 0.0, ask()))
    actions = finish(engine, call.call_id, output, 1.0)
    specific = payloads(actions)["r"]["hookSpecificOutput"]
    assert specific["permissionDecision"] == "deny"
    assert "updatedInput" not in specific
    assert warned(actions) == [WarningKind.HOOK_FAILED]


@pytest.mark.parametrize(
    ("version", "info"),
    [("2.0.10", {}), ("2.1.197", {}), (None, {"pid": 7}), (None, cli.NEWER)],
    ids=["2.0.10", "2.1.197", "a handshake with a pid", "a handshake with a version"],
)
def test_a_changed_input_is_sent_to_clis_that_use_it(
    version: str | None, info: dict[str, Any]
) -> None:
    engine = cli.running(info, incoming=asking(hooks=OWN))
    if version is not None:
        engine.describe(cli_version=version)
    [call] = only(Call, begin(engine, 0.0, ask()))
    actions = finish(engine, call.call_id, ModifyInput(CHANGED), 1.0)
    assert payloads(actions)["r"]["hookSpecificOutput"]["updatedInput"] == CHANGED
