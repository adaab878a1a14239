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
from bridle._core.actions import Call
from bridle._core.engine import Engine
from bridle._core.incoming.hook_plan import HookPlan
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
    hooks = Hook(idle, matcher="Bash"), Hook(idle, matcher="Write"), Hook(idle, matcher="(?<a>B)")
    engine = session(*hooks, Hook(idle), parallel=True)
    finish(engine, permission(engine), Allow(), 1.0)
    assert payloads(finish(engine, hooked(engine, "h0", "hook_0"), None, 2.0)).keys() == {"h0"}
    assert payloads(finish(engine, hooked(engine, "h3", "hook_3"), None, 2.0)).keys() == {"h3", "p"}


@pytest.mark.parametrize(
    "hooks", [(Hook(idle, matcher="Write"),), (Hook(idle, matcher="Write|Edit"),)]
)
def test_a_tool_without_a_hook_does_not_wait(hooks: tuple[Hook, ...]) -> None:
    engine = session(*hooks, parallel=True)
    assert payloads(finish(engine, permission(engine), Allow(), 1.0))["p"]["behavior"] == "allow"


def test_an_old_cli_names_no_tool_call_and_has_no_such_hooks() -> None:
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
