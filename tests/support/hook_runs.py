"""Runs of hooks without a session: their input, and what their answer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from bridle._callbacks.results.serialise import serialise
from bridle._engine.actions import Call, CallKind
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.hook_run import HookAnswer, HookReturn, HookRun
from bridle.hooks import HOOK_EVENTS, Hook

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


def callback(context: object) -> None:
    """A hook that is never called: the policy only names it."""


def begin(event: str, *hooks: Hook, hook_input: dict[str, Any] | None = None) -> HookRun:
    """A run of `event` with these hooks, or with two plain ones."""
    plan = HookPlan.from_options({event: hooks or (Hook(callback), Hook(callback))}, 60.0)
    wire = INPUTS.get(event, TOOL) if hook_input is None else hook_input
    return plan.begin("hook_0", wire, "toolu_1")


def done(run: HookRun, result: object) -> None:
    """Report the result of a hook, serialised as the shell does."""
    call = Call(1, CallKind.HOOK, callback, run.context, run.label, subject=run)
    run.done(cast("HookReturn", serialise(call, result)))


def answer_of(event: str, *results: object, hooks: tuple[Hook, ...] = ()) -> HookAnswer:
    """The answer after the hooks of `event` returned `results`."""
    run = begin(event, *hooks)
    for result in results:
        done(run, result)
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
