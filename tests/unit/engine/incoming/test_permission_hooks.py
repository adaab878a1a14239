"""An allow is sent only when the PermissionRequest hooks of the same tool call let it run."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cli import (
    asking,
    can_use_tool,
    feed,
    finish,
    hook_callback,
    idle,
    only,
    payloads,
    running,
    warned,
    withdrawal,
)

from bridle import Allow, AllowAll, Block, Continue, Deny, Edit, EndTurn, HookOutput
from bridle._engine.actions import Call, CancelCall
from bridle._engine.engine import Engine
from bridle._engine.incoming.hook_plan import HookPlan
from bridle.events import WarningKind
from bridle.hooks import Hook

USE: dict[str, Any] = {"tool_use_id": "t1"}
ASKED: dict[str, Any] = {
    "hook_event_name": "PermissionRequest",
    "tool_name": "Bash",
    "tool_input": {},
}


def session(*hooks: Hook, parallel: bool = False) -> Engine:
    """Return an engine with a permission callback and these PermissionRequest hooks."""
    planned = {"PermissionRequest": list(hooks or (Hook(idle),))}
    plan = HookPlan.from_options(planned, callback_timeout=60.0, parallel=parallel)
    return running(incoming=asking(hooks=plan, can_use_tool=idle))


def permission(engine: Engine, now: float = 1.0, **fields: Any) -> int:
    """Send a permission request and return the id of its call."""
    actions = feed(engine, now, can_use_tool("p", input={"command": "ls"}, **{**USE, **fields}))
    return only(Call, actions)[0].call_id


def hooked(engine: Engine, request_id: str = "h", callback_id: str = "hook_0") -> int:
    """Call the hooks and return the id of the call."""
    line = hook_callback(request_id, callback_id, input=ASKED, **USE)
    return only(Call, feed(engine, 2.0, line))[0].call_id


@pytest.mark.parametrize("allow", [Allow(), AllowAll(), Edit({"command": "pwd"})])
@pytest.mark.parametrize("refusal", [Block("no"), EndTurn("no"), HookOutput(decision="block"), 42])
def test_a_block_wins_over_an_allow_that_came_first(allow: object, refusal: object) -> None:
    engine = session()
    call = permission(engine)
    assert finish(engine, call, allow, 1.0) == []
    answers = payloads(finish(engine, hooked(engine), refusal, 3.0))
    assert list(answers) == ["h"]
    assert payloads(engine.advance(13.0))["p"]["behavior"] == "deny"


def test_a_block_wins_over_an_allow_that_comes_later() -> None:
    engine = session()
    call = permission(engine)
    finish(engine, hooked(engine), Block("no"), 2.0)
    assert finish(engine, call, Allow(), 3.0) == []
    assert payloads(engine.advance(13.0))["p"]["behavior"] == "deny"


def test_the_cli_withdraws_the_request_after_a_block() -> None:
    engine = session()
    call = permission(engine)
    finish(engine, call, AllowAll(), 1.0)
    finish(engine, hooked(engine), Block("no"), 2.0)
    feed(engine, 2.1, withdrawal("p"))
    assert payloads(engine.advance(100.0)) == {}


@pytest.mark.parametrize("result", [Continue(), None])
def test_an_allow_is_sent_after_the_hooks_have_let_the_call_run(result: object) -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    answers = payloads(finish(engine, hooked(engine), result, 50.0))
    assert list(answers) == ["h", "p"]
    assert answers["p"] == {"behavior": "allow", "updatedInput": {"command": "ls"}}
    assert engine.next_deadline is None


def test_an_allow_is_sent_at_once_if_the_hooks_have_answered() -> None:
    engine = session()
    call = permission(engine)
    finish(engine, hooked(engine), None, 2.0)
    assert payloads(finish(engine, call, Allow(), 3.0))["p"]["behavior"] == "allow"


def test_a_deny_does_not_wait() -> None:
    engine = session()
    answers = payloads(finish(engine, permission(engine), Deny("no"), 1.0))
    assert answers["p"]["behavior"] == "deny"


def test_hooks_that_are_never_called_deny() -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    assert engine.next_deadline == 11.0
    actions = engine.advance(11.0)
    assert payloads(actions)["p"]["behavior"] == "deny"
    assert warned(actions) == [WarningKind.HOOK_TIMED_OUT]


def test_hooks_that_are_running_have_their_own_deadline() -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    call = hooked(engine)
    engine.started_call(call, 2.0)
    assert payloads(engine.advance(30.0)) == {}
    answers = payloads(engine.advance(62.0))
    assert answers["p"]["behavior"] == "allow"  # a hook that fails lets the CLI go on


@pytest.mark.parametrize("failure", ["raised", "timed out"])
def test_a_hook_that_must_not_fail_blocks(failure: str) -> None:
    engine = session(Hook(idle, on_error="block"))
    finish(engine, permission(engine), Allow(), 1.0)
    call = hooked(engine)
    if failure == "raised":
        engine.failed_call(call, "ValueError", 2.0)
    else:
        engine.started_call(call, 2.0)
        engine.advance(62.0)
    assert payloads(engine.advance(80.0))["p"]["behavior"] == "deny"


def test_hooks_that_are_withdrawn_let_nothing_run() -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    hooked(engine)
    assert payloads(feed(engine, 3.0, withdrawal("h"))) == {}
    assert payloads(engine.advance(13.0))["p"]["behavior"] == "deny"


def test_hooks_with_their_own_matcher_are_awaited_if_it_matches() -> None:
    """In parallel, the CLI calls each hook whose matcher fits."""
    hooks = Hook(idle, matcher="Bash"), Hook(idle, matcher="Write"), Hook(idle, matcher="^W")
    engine = session(*hooks, Hook(idle), parallel=True)
    finish(engine, permission(engine), Allow(), 1.0)
    assert payloads(finish(engine, hooked(engine, "h0", "hook_0"), None, 2.0)).keys() == {"h0"}
    assert payloads(finish(engine, hooked(engine, "h3", "hook_3"), None, 2.0)).keys() == {"h3", "p"}


def test_a_hook_whose_matcher_only_the_cli_can_read_is_awaited() -> None:
    engine = session(Hook(idle, matcher="(?<a>B)"), parallel=True)
    assert payloads(finish(engine, permission(engine), Allow(), 1.0)) == {}
    finish(engine, hooked(engine), Block("no"), 2.0)
    assert payloads(engine.advance(12.0))["p"]["behavior"] == "deny"


@pytest.mark.parametrize(
    "hooks", [(Hook(idle, matcher="Write"),), (Hook(idle, matcher="Write|Edit"),)]
)
def test_a_tool_without_a_hook_does_not_wait(hooks: tuple[Hook, ...]) -> None:
    engine = session(*hooks, parallel=True)
    assert payloads(finish(engine, permission(engine), Allow(), 1.0))["p"]["behavior"] == "allow"


def test_an_old_cli_names_no_tool_call_and_lacks_these_hooks() -> None:
    engine = session()
    call = permission(engine, tool_use_id=None)
    assert payloads(finish(engine, call, Allow(), 1.0))["p"]["behavior"] == "allow"


def test_other_calls_do_not_wait_for_each_other() -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    line = can_use_tool("q", input={}, tool_use_id="t2")
    second = only(Call, feed(engine, 1.0, line))[0].call_id
    finish(engine, second, Allow(), 1.0)
    assert payloads(finish(engine, hooked(engine), Continue(), 2.0)).keys() == {"h", "p"}


def test_many_calls_are_remembered_in_bounded_memory() -> None:
    engine = session()
    for number in range(4200):
        line = hook_callback("h", input=ASKED, tool_use_id=f"t{number}")
        call = only(Call, feed(engine, 1.0, line))[0].call_id
        finish(engine, call, None, 1.0)
    assert len(engine._incoming.permission_hooks._calls) == 4096


def asked_again(engine: Engine, request_id: str = "q", now: float = 1.5) -> int:
    """Send another permission request about the same tool call and return the id of its call."""
    line = can_use_tool(request_id, input={"command": "ls"}, **USE)
    return only(Call, feed(engine, now, line))[0].call_id


def test_every_request_about_one_tool_call_is_answered_when_the_hooks_let_it_run() -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    finish(engine, asked_again(engine), Allow(), 1.5)
    answers = payloads(finish(engine, hooked(engine), Continue(), 3.0))
    assert [(name, answers[name].get("behavior")) for name in answers] == [
        ("h", None),
        ("p", "allow"),
        ("q", "allow"),
    ]
    assert engine.next_deadline is None


def test_every_request_about_one_tool_call_has_its_own_deadline() -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    finish(engine, asked_again(engine), Allow(), 5.0)
    assert payloads(engine.advance(11.0)).keys() == {"p"}
    assert payloads(engine.advance(15.0))["q"]["behavior"] == "deny"
    assert engine.next_deadline is None


def test_a_withdrawn_request_does_not_shorten_the_deadline_of_the_next() -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    feed(engine, 2.0, withdrawal("p"))
    finish(engine, asked_again(engine, "p", 9.0), Allow(), 9.0)
    assert payloads(engine.advance(11.0)) == {}
    assert payloads(engine.advance(19.0))["p"]["behavior"] == "deny"


def test_an_allow_waits_for_every_run_of_the_hooks() -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    first, second = hooked(engine, "h1"), hooked(engine, "h2")
    assert payloads(finish(engine, first, Continue(), 3.0)).keys() == {"h1"}
    assert payloads(finish(engine, second, Block("no"), 4.0)).keys() == {"h2"}
    assert payloads(engine.advance(14.0))["p"]["behavior"] == "deny"


@pytest.mark.parametrize("end", ["withdrawn", "closed", "stopped"])
def test_a_callback_that_has_returned_is_not_cancelled(end: str) -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    if end == "withdrawn":
        actions = feed(engine, 2.0, withdrawal("p"))
    else:
        actions = engine.close(2.0) if end == "closed" else engine.stop(2.0)
    assert only(CancelCall, actions) == []
    assert payloads(actions).keys() == ({"p"} if end == "closed" else set())


def test_a_hook_that_runs_is_not_forgotten_however_many_calls_follow() -> None:
    engine = session()
    running_hook = hooked(engine)
    for number in range(4200):
        line = hook_callback("other", input=ASKED, tool_use_id=f"other{number}")
        finish(engine, only(Call, feed(engine, 3.0, line))[0].call_id, None, 3.0)
    finish(engine, permission(engine, 4.0), Allow(), 4.0)
    assert payloads(finish(engine, running_hook, None, 5.0)).keys() == {"h", "p"}
    assert engine.next_deadline is None


# ------------------------------------------------------------------------- ids that are used again


@pytest.mark.parametrize("first", ["allow last", "hook last", "denied", "withdrawn"])
def test_a_later_call_with_the_same_id_waits_for_its_own_hooks(first: str) -> None:
    engine = session()
    call = permission(engine)
    if first == "allow last":
        finish(engine, hooked(engine), None, 2.0)
        assert payloads(finish(engine, call, Allow(), 2.0)).keys() == {"p"}
    elif first == "hook last":
        finish(engine, call, Allow(), 1.0)
        assert payloads(finish(engine, hooked(engine), None, 2.0)).keys() == {"h", "p"}
    elif first == "denied":
        finish(engine, hooked(engine), None, 2.0)
        assert payloads(finish(engine, call, Deny("no"), 2.0)).keys() == {"p"}
    else:
        finish(engine, hooked(engine), None, 2.0)
        feed(engine, 2.0, withdrawal("p"))
    second = asked_again(engine, "q", 3.0)
    assert payloads(finish(engine, second, Allow(), 3.0)) == {}
    finish(engine, hooked(engine, "h2"), Block("no"), 4.0)
    assert payloads(engine.advance(14.0))["q"]["behavior"] == "deny"


@pytest.mark.parametrize("first", ["denied at its deadline", "withdrawn"])
def test_a_block_does_not_deny_a_later_call_with_the_same_id(first: str) -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    finish(engine, hooked(engine), Block("no"), 2.0)
    if first == "withdrawn":
        feed(engine, 2.1, withdrawal("p"))
    assert payloads(engine.advance(12.0)).keys() == (set() if first == "withdrawn" else {"p"})
    finish(engine, asked_again(engine, "q", 13.0), Allow(), 13.0)
    answers = payloads(finish(engine, hooked(engine, "h2"), None, 14.0))
    assert answers["q"]["behavior"] == "allow"


def test_the_hooks_of_a_later_call_may_come_before_its_permission_request() -> None:
    engine = session()
    finish(engine, permission(engine), Allow(), 1.0)
    finish(engine, hooked(engine), None, 2.0)
    finish(engine, hooked(engine, "h2"), Block("no"), 3.0)
    assert payloads(finish(engine, asked_again(engine, "q", 4.0), Allow(), 4.0)) == {}
    assert payloads(engine.advance(14.0))["q"]["behavior"] == "deny"
