"""The engine reads what real CLIs wrote, and ends every turn as it really ended.

A recording holds both directions in order. Its prompts and control requests are given to the
engine at their place, its output is fed line by line (with our request ids in place of the
recorder's), and its callbacks are left to the answers of an application that registered none:
what the CLI wrote next is in the recording whatever we answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.cli import delivered, only

from bridle._engine.actions import Action, Finished, TurnEnded, Write
from bridle._engine.config import EngineConfig
from bridle._engine.engine import Engine
from bridle._engine.incoming.dispatch import IncomingConfig
from bridle._engine.incoming.hook_plan import HookPlan
from bridle._engine.incoming.waiting_call import Approval
from bridle._engine.state import Lifecycle
from bridle._engine.wire.codec import decode_line
from bridle.approvals import PendingApproval
from bridle.messages import Message

GOLDEN = Path(__file__).parent / "golden"
OLDER = "2.1.197"
VERSIONS = ("2.1.326", "2.1.325", OLDER)
# Sessions that send a uuid twice, which ours never do: the CLI repeats it at once and runs nothing.
FOREIGN = {"duplicate_uuid", "duplicate_uuid_running"}
RECORDINGS = sorted(
    f"{path.parent.name}/{path.stem}"
    for path in GOLDEN.glob("*/*.ndjson")
    if path.parent.name in VERSIONS and path.stem not in FOREIGN
)

DONE = "completed"
# Reasons of the outcomes by prompt; together in brackets: one turn of several prompts. Where the
# versions differ, a pair: newer, older.
Turns = list[list[str] | str]
ENDINGS: dict[str, Turns | tuple[Turns, Turns]] = {
    "active_goal": [DONE],
    "agent_background": [DONE],
    "agent_default": [DONE],
    "agent_foreground_forward": [DONE],
    "agents_nested": [DONE],
    "api_400": ["api_error"],
    "api_400_credit": ["api_error"],
    "api_400_too_long": ["api_error"],
    "api_401": ["auth_failed"],
    "api_403": ["auth_failed"],
    "api_404": ["api_error"],
    "api_413": ["api_error"],
    "api_429": ["rate_limited"],
    "api_500": ["api_error"],
    "api_529": ["api_error"],
    "api_529_once": [DONE],
    "api_error_then_prompt": ["api_error", DONE],
    "approval_allow": [DONE],
    "approval_awaited": [DONE],
    "approval_deny": [DONE],
    "background_and_prompt_queued": [DONE, DONE, DONE],
    "background_ends_in_tool": [DONE, DONE],
    "background_ends_in_turn": [DONE, DONE],
    "background_fold_into_followup": [DONE, DONE],
    "background_interrupt_followup": [DONE, DONE],
    "background_partial": [DONE, DONE],
    "background_prompt_during": [DONE, DONE],
    "background_prompt_queued_first": [DONE, DONE, DONE],
    "background_shell": [DONE],
    "cancel_queued": [DONE, "interrupted", DONE],
    "claim": [DONE],
    "claim_refused": ["execution_error", DONE],
    "control_operations": [DONE],
    "disconnect": ["api_error"],
    "disconnect_once": [DONE],
    "disconnect_partial": [DONE],
    "eof_after_prompt": [DONE],
    "eof_background": [DONE],
    "eof_with_queue": [DONE, [DONE, DONE]],
    "fold_one": [[DONE, DONE]],
    "fold_two": [[DONE, DONE, DONE]],
    "hook_and_permission": [DONE],
    "hook_post_halt": ["stopped_by_hook"],
    "hook_pre_defer": ["tool_deferred"],
    "hook_pre_defer_two": ["tool_deferred"],
    "hook_pre_halt": ["stopped_by_hook"],
    # An older CLI goes on after the tool it skipped; a hook of ours would interrupt it.
    "hook_pre_halt_deny": (["stopped_by_hook"], [DONE]),
    "hook_stop_block": [DONE],
    "hook_stop_halt": ["stopped_by_hook"],
    "interrupt_at_once": ["interrupted", DONE],
    "interrupt_at_once_queue": ["interrupted", DONE],
    "interrupt_cancel_queued": (
        ["interrupted", "interrupted", "interrupted", DONE],
        ["interrupted", [DONE, DONE], DONE],
    ),
    "interrupt_permission": ["interrupted"],
    "interrupt_queue_one": ["interrupted", DONE],
    "interrupt_queue_two": ["interrupted", [DONE, DONE]],
    "interrupt_stream": ["interrupted", DONE],
    "interrupt_tool": ["interrupted"],
    "interrupt_tool_queue": ["interrupted", DONE],
    "max_budget": ["max_budget", "max_budget"],
    "max_budget_queue": ["max_budget", ["max_budget", "max_budget"]],
    "max_tokens": ["api_error"],
    "max_turns": ["max_turns", DONE],
    "no_api_key": ["auth_failed"],
    "permission_allow": [DONE],
    "permission_deny": [DONE],
    "permission_deny_interrupt": ["interrupted"],
    "plugin_install": [DONE],
    "prompt_blocked": ["prompt_blocked", DONE],
    # An older CLI does not call the hook for a prompt it folds in.
    "prompt_blocked_in_fold": ([DONE, "prompt_blocked"], [[DONE, DONE]]),
    "prompt_blocked_in_queue": [DONE, ["prompt_blocked", "prompt_blocked"]],
    "prompt_halted": ["stopped_by_hook", DONE],
    "queue_four_at_once": [DONE, [DONE, DONE, DONE]],
    "queue_three_at_once": [DONE, [DONE, DONE]],
    "queue_three_spaced": [DONE, [DONE, DONE]],
    "rate_limit_rejected": ["rate_limited"],
    "rate_limit_warning": [DONE],
    "refusal": ["refused"],
    "refusal_fallback": [DONE],
    "sdk_mcp": [DONE],
    "set_model": [DONE, DONE, DONE],
    "set_permission_mode": [DONE],
    "slash_clear": [DONE, DONE, DONE],
    "slash_compact": [DONE, DONE, DONE, DONE, DONE],
    "slash_compact_empty": ["execution_error"],
    "slash_during_tool": [DONE, DONE],
    "slash_in_queue": [DONE, DONE, DONE, DONE],
    "slash_text": [DONE, DONE],
    # A newer CLI asks the model about a command it does not know.
    "slash_unknown": ([DONE], ["execution_error"]),
    "structured_never_valid": ["output_invalid"],
    "structured_ok": [DONE],
    "structured_text_only": ["output_missing"],
    "text_turn": [DONE],
    "thinking_partial": [DONE],
    "two_turns": [DONE, DONE],
    "usage_in_turn": [DONE],
}


# Recorded from the newer CLI only: the older one does not know the flag.
NEWER_ONLY = {"approval_awaited", "claim", "claim_refused"}

RESUMED = Approval(
    pending=PendingApproval(
        session_id="00000000-0000-4000-8000-00000000abcd",
        tool_name="Bash",
        tool_input={"command": "touch made.txt", "description": "run a command"},
        tool_use_id="toolu_touch",
    ),
    decision={"behavior": "allow", "updatedInput": {"command": "touch made.txt"}},
    uuid="resumed",
)


class Replay(NamedTuple):
    """What came of a recording."""

    engine: Engine
    #: The uuids of the prompts, as they were sent.
    sent: list[str]
    actions: list[Action]
    #: The types of the conversation's lines.
    conversation: list[str]


def entries(recording: str) -> Iterator[tuple[float, str, Any, str]]:
    """Time, direction, the line as JSON, and the line."""
    for raw in (GOLDEN / f"{recording}.ndjson").read_text("utf-8").splitlines():
        entry = json.loads(raw)
        if entry["dir"] != "err":
            yield entry["t"], entry["dir"], json.loads(entry["line"]), entry["line"]


def replayed(recording: str) -> Replay:
    wants_output = "/structured" in recording
    resumed = RESUMED if "/approval" in recording else None
    hooks = HookPlan.from_options({}, 60.0, needed="PreToolUse" if resumed else None)
    incoming = IncomingConfig(hooks=hooks, approval=resumed)
    config = EngineConfig(wants_output=wants_output, checkpointing=True, incoming=incoming)
    engine = Engine(config)
    replay = Replay(engine, [resumed.uuid] if resumed else [], [], [])
    # The recorder's request ids, and ours.
    ids: dict[str, str] = {}
    for now, direction, frame, line in entries(recording):
        match direction, frame:
            case "in", {"type": "control_request", "request_id": recorded, "request": request}:
                subtype, *_ = request.values()
                fields = {name: value for name, value in request.items() if name != "subtype"}
                if subtype == "initialize":
                    actions = engine.start("start", now)
                else:
                    actions = engine.submit(recorded, subtype, fields, now)
                (write,) = only(Write, actions)
                ids[recorded] = json.loads(write.data)["request_id"]
            case "in", {"type": "user", "uuid": uuid, "message": message}:
                actions = [
                    *engine.send(f"prompt {len(replay.sent)}", uuid, message["content"], now)
                ]
                if uuid not in replay.sent:
                    replay.sent.append(uuid)
            case "out", {"type": "control_response", "response": response}:
                response["request_id"] = ids.get(response["request_id"], response["request_id"])
                actions = engine.receive(json.dumps(frame).encode() + b"\n", now)
            case "out", _:
                if isinstance(decode_line(line.encode()), Message):
                    replay.conversation.append(frame["type"])
                actions = engine.receive(line.encode() + b"\n", now)
            case "meta", {"stdin": "EOF"}:
                actions = engine.end_input(now)
            case "meta", {"exit": code}:
                actions = engine.output_ended(now) + engine.exited(code, "", now)
            case _:
                actions = []
        replay.actions.extend(actions)
    return replay


def expected(recording: str) -> list[tuple[str, int]]:
    """Reason and number of companions of each prompt, in the order they were sent."""
    version, scenario = recording.split("/")
    ending = ENDINGS[scenario]
    turns = ending[version == OLDER] if isinstance(ending, tuple) else ending
    groups = [turn if isinstance(turn, list) else [turn] for turn in turns]
    return [(reason, len(group) - 1) for group in groups for reason in group]


def test_every_recording_has_its_row() -> None:
    assert sorted({recording.split("/")[1] for recording in RECORDINGS}) == sorted(ENDINGS)
    assert len(RECORDINGS) == len(VERSIONS) * len(ENDINGS) - len(NEWER_ONLY)


@pytest.mark.parametrize("recording", RECORDINGS)
@pytest.mark.requirement("S101")
def test_the_engine_follows_a_real_session_to_its_end(recording: str) -> None:
    """R211, R369, R374: one outcome per prompt, every message delivered, in order."""
    replay = replayed(recording)
    ended = {one.uuid: one.outcome for one in only(TurnEnded, replay.actions)}
    assert len(ended) == len(only(TurnEnded, replay.actions))
    found = [(str(ended[uuid].reason), len(ended[uuid].merged_with)) for uuid in replay.sent]
    assert found == expected(recording)
    assert [kind for kind, _ in delivered(replay.actions)] == replay.conversation
    assert replay.actions[-1] == Finished()
    assert (replay.engine.lifecycle, replay.engine.next_deadline) == (Lifecycle.STOPPED, None)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_every_result_goes_to_the_prompts_it_ends(recording: str) -> None:
    """A result is attributed to exactly the prompts whose outcome it is."""
    replay = replayed(recording)
    owners = [turns for kind, turns in delivered(replay.actions) if kind == "result" and turns]
    outcomes = [one.outcome for one in only(TurnEnded, replay.actions) if one.outcome.result]
    groups = {frozenset((one.uuid or "", *one.merged_with)) for one in outcomes}
    assert {frozenset(turns) for turns in owners} == groups
    assert len(owners) == len(groups)
