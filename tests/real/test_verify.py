"""`bridle verify` on the real CLIs: every promise holds, and none of them can hold by accident."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.real.conftest import Lab
from tests.support.sabotaged_cli import sabotaged_cli

from bridle._engine.versions import TESTED, parse_version
from bridle.testing._verify._running.runner import run_all
from bridle.testing._verify.promises import FIRST, all_checks

NO_HOOKS = """
def to_cli(frame):
    if subtype(frame) == "initialize":
        frame["request"].pop("hooks", None)
    return [frame]
"""
BYPASS = """
def argv(words):
    words = [w for w in words if not w.startswith("--permission-mode")]
    return [*words, "--permission-mode=bypassPermissions"]
"""
ALL_DENIED = """
def to_cli(frame):
    reply = frame.get("response", {}).get("response") or {}
    if reply.get("behavior") == "allow":
        frame["response"]["response"] = {"behavior": "deny", "message": "no"}
    return [frame]
"""
NO_ANSWERS = """
def from_cli(frame):
    if subtype(frame) in ("can_use_tool", "elicitation"):
        tell_cli(frame, behavior="deny", message="no", action="cancel")
        return []
    return [frame]
"""
NO_INTERRUPT = """
def to_cli(frame):
    if subtype(frame) in ("interrupt", "cancel_async_message"):
        answer(frame)
        return []
    return [frame]
"""
NO_COST = """
def from_cli(frame):
    reply = frame.get("response", {}).get("response") or {}
    if isinstance(reply.get("session"), dict):
        reply["session"].pop("total_cost_usd", None)
        time.sleep(0.5)  # so that the calls already made have passed the limit
    return [frame]
"""
OTHER_COST_WORDS = """
def from_cli(frame):
    reply = frame.get("response", {}).get("response") or {}
    if isinstance(reply.get("text"), str):
        reply["text"] = reply["text"].replace("cost", "price")
    return [frame]
"""
OTHER_WORDS = """
def from_cli(frame):
    text = json.dumps(frame).replace("No conversation found", "There is nothing").replace(
        "Session not found", "There is nothing")
    return [json.loads(text)]
def stderr(line):
    return line.replace("No conversation found", "There is nothing")
"""
NO_RESULTS = """
def from_cli(frame):
    return [] if frame.get("type") == "result" else [frame]
"""
NEW_CONVERSATIONS = """
def argv(words):
    return [w for w in words if not w.startswith(("--resume", "--fork-session"))]
"""
ON_ARGV = """
def to_cli(frame):
    if frame.get("type") == "user":
        subprocess.Popen(["sh", "-c", "sleep 4; true " + str(frame["message"]["content"])])
    return [frame]
"""
OTHER_TEXT = """
def from_cli(frame):
    for block in frame.get("message", {}).get("content") or []:
        if isinstance(block, dict) and block.get("type") == "text":
            block["text"] = "something else"
    return [frame]
"""
NO_VERSION = """
if "--version" in sys.argv:
    print("the newest one")
    sys.exit(0)
"""
UNKNOWN_SUCCEEDS = """
def to_cli(frame):
    if subtype(frame) == "bridle_no_such_request":
        answer(frame)
        return []
    return [frame]
"""
NO_SETTINGS = """
def to_cli(frame):
    if subtype(frame) in ("set_model", "set_permission_mode"):
        answer(frame)
        return []
    return [frame]
"""
NO_TOOLS = """
def from_cli(frame):
    if subtype(frame) == "mcp_message":
        tell_cli(frame, mcp_response={"jsonrpc": "2.0", "id": frame["request"]["message"].get("id"),
                 "error": {"code": -32000, "message": "broken"}})
        return []
    return [frame]
"""
NO_REWIND = """
def to_cli(frame):
    if subtype(frame) == "rewind_files":
        answer(frame, canRewind=True)
        return []
    return [frame]
"""
NO_MIRROR = """
def from_cli(frame):
    return [] if frame.get("type") == "transcript_mirror" else [frame]
"""
NOT_VERBATIM = """
def to_cli(frame):
    frame.pop("client_composed", None)
    return [frame]
"""
NO_PROMPTS = """
def to_cli(frame):
    if subtype(frame) == "initialize":
        for name in ("systemPrompt", "appendSystemPrompt"):
            frame["request"].pop(name, None)
    return [frame]
"""
NO_SCHEMA = """
def to_cli(frame):
    if subtype(frame) == "initialize":
        frame["request"].pop("jsonSchema", None)
    return [frame]
def argv(words):
    return [w for w in words if not w.startswith("--json-schema")]
"""
NO_DELTAS = """
def from_cli(frame):
    return [] if frame.get("type") == "stream_event" else [frame]
"""
NEVER_ENDS = """
leave = os._exit
def stay(code):
    time.sleep(60)
    leave(code)
os._exit = stay
"""

BREAKAGES = {
    "start.version": NO_VERSION,
    "start.not_found": NEW_CONVERSATIONS,
    "start.argv": ON_ARGV,
    "start.system_prompt": NO_PROMPTS,
    "start.environment": NO_HOOKS,
    "start.unknown_request": UNKNOWN_SUCCEEDS,
    "start.settings": NO_SETTINGS,
    "start.mcp_server": NO_RESULTS,
    "start.end_input": NEVER_ENDS,
    "guard.parallel": NO_HOOKS,
    "guard.block": NO_HOOKS,
    "guard.deny": NO_HOOKS,
    "guard.official_output": NO_HOOKS,
    "guard.end_turn": NO_HOOKS,
    "guard.invalid_result": NO_HOOKS,
    "guard.raises": NO_HOOKS,
    "guard.timeout": NO_HOOKS,
    "guard.modify_input": NO_HOOKS,
    "permission.allow": ALL_DENIED,
    "permission.deny": BYPASS,
    "permission.raises": BYPASS,
    "permission.no_callback": BYPASS,
    "permission.edit": BYPASS,
    "permission.hook_blocks": NO_HOOKS,
    "permission.hook_wins": BYPASS,
    "permission.question": NO_ANSWERS,
    "permission.plan": NO_ANSWERS,
    "permission.elicitation": NO_ANSWERS,
    "hook.prompt_blocked": NO_HOOKS,
    "hook.feedback": NO_HOOKS,
    "hook.stop_blocked": NO_HOOKS,
    "hook.context": NO_HOOKS,
    "hook.events": NO_HOOKS,
    "hook.newer_events": NO_HOOKS,
    "interrupt.stream": NO_INTERRUPT,
    "interrupt.tool": NO_INTERRUPT,
    "interrupt.hook": NO_INTERRUPT,
    "interrupt.permission": NO_INTERRUPT,
    "interrupt.queued": NO_INTERRUPT,
    "limit.usd": NO_COST,
    "limit.usd_query": NO_COST,
    "limit.cost_readable": NO_COST,
    "limit.turns": NO_INTERRUPT,
    "limit.total": NO_INTERRUPT,
    "limit.idle": NO_INTERRUPT,
    "turn.merged": NO_RESULTS,
    "turn.typed_output": NO_SCHEMA,
    "turn.verbatim": NOT_VERBATIM,
    "turn.api_error": NO_RESULTS,
    "turn.stream": NO_DELTAS,
    "turn.query": OTHER_TEXT,
    "turn.background": NO_RESULTS,
    "turn.subagent": NO_RESULTS,
    "turn.rewind": NO_REWIND,
    "tool.function": NO_TOOLS,
    "tool.arguments": NO_TOOLS,
    "tool.failure": NO_TOOLS,
    "conversation.resume": NEW_CONVERSATIONS,
    "conversation.fork": NEW_CONVERSATIONS,
    "conversation.store": NEW_CONVERSATIONS,
    "conversation.recover": NO_TOOLS,
    "approval.allow": NO_HOOKS,
    "approval.deny": NO_HOOKS,
    "approval.prompt_refused": NO_HOOKS,
    "approval.after_resume": NO_HOOKS,
    "approval.rule": NO_HOOKS,
    "approval.tool": NO_HOOKS,
}
"""Promise → the breakage on which it is seen failing."""

KEPT_BY_BRIDLE = {
    FIRST,
    "start.in_use",
    "turn.output_missing",
    "turn.cli_killed",
    "process.stop",
    "process.close",
    "process.program_killed",
}
"""Promises that Bridle keeps alone: no word of the CLI can break them."""


@pytest.mark.longer
@pytest.mark.parametrize("cli_path", ["newest"], indirect=True)
@pytest.mark.parametrize("id", BREAKAGES)
def test_a_promise_is_named_as_broken_on_a_cli_that_breaks_it(
    lab: Lab, id: str, tmp_path: Path
) -> None:
    broken = sabotaged_cli(tmp_path / "claude", lab.cli_path, BREAKAGES[id])
    [promise] = run_all(broken, only=[id], timeout=12.0).promises
    assert (promise.id, promise.state) == (id, "broken"), promise


def test_all_promises_hold(lab: Lab) -> None:
    found = run_all(lab.cli_path).promises
    assert [one.id for one in found] == [*all_checks(), "process.nothing_left"]
    assert [one for one in found if not one.held] == []


@pytest.mark.longer
@pytest.mark.parametrize(
    ("id", "breakage", "state"),
    [
        ("start.not_found", OTHER_WORDS, "broken"),
        ("limit.usd", OTHER_COST_WORDS, "held"),
        ("limit.cost_readable", OTHER_COST_WORDS, "held"),
        ("limit.usd", NO_COST, "broken"),
        ("limit.cost_readable", NO_COST, "broken"),
    ],
)
def test_a_promise_is_broken_only_by_the_words_and_fields_it_depends_on(
    lab: Lab, tmp_path: Path, id: str, breakage: str, state: str
) -> None:
    changed = sabotaged_cli(tmp_path / "claude", lab.cli_path, breakage)
    [promise] = run_all(changed, only=[id], timeout=20.0).promises
    assert (promise.id, promise.state) == (id, state), promise


NO_STATES = """
def without_states(frame):
    return [] if frame.get("type") == "command_lifecycle" else [frame]
"""
NO_UUIDS = """
def without_uuids(frame):
    frame.pop("user_message_uuid", None)
    frame.pop("user_message_uuids", None)
    return [frame]
"""
NO_ECHOES = """
def without_echoes(frame):
    return [] if frame.get("isReplay") else [frame]
"""
HIDES = """
hidden = {name: hide for name, hide in globals().items() if name.startswith("without_")}
def from_cli(frame):
    frames = [frame]
    for hide in hidden.values():
        frames = [kept for one in frames for kept in hide(one)]
    return frames
"""


@pytest.mark.longer
@pytest.mark.parametrize("cli_path", ["newest"], indirect=True)
@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ([NO_STATES], "held"),
        ([NO_UUIDS], "held"),
        ([NO_ECHOES], "held"),
        ([NO_STATES, NO_UUIDS, NO_ECHOES], "broken"),
    ],
    ids=["states", "uuids", "echoes", "all"],
)
def test_merged_prompts_are_known_by_each_of_three_ways_to_name_them(
    lab: Lab, tmp_path: Path, changes: list[str], state: str
) -> None:
    changed = sabotaged_cli(tmp_path / "claude", lab.cli_path, "".join([*changes, HIDES]))
    [promise] = run_all(changed, only=["turn.merged"], timeout=12.0).promises
    assert (promise.id, promise.state) == ("turn.merged", state), promise


SLOW_AT_FIRST = """
delays = [2.5]
def to_cli(frame):
    if frame.get("type") == "user" and delays:
        time.sleep(delays.pop())
    return [frame]
"""


@pytest.mark.parametrize("cli_path", ["newest"], indirect=True)
@pytest.mark.longer
def test_a_busy_machine_breaks_no_limit(lab: Lab, tmp_path: Path) -> None:
    """The limit is reached before the CLI has read the prompt."""
    slow = sabotaged_cli(tmp_path / "claude", lab.cli_path, SLOW_AT_FIRST)
    [promise] = run_all(slow, only=["limit.total"]).promises
    assert promise.held, promise


OLD_VERSION = """
if "--version" in sys.argv:
    print("2.0.0 (Claude Code)")
    sys.exit(0)
"""


@pytest.mark.parametrize("cli_path", ["newest"], indirect=True)
def test_a_feature_that_a_cli_is_known_not_to_have_is_not_tried(lab: Lab, tmp_path: Path) -> None:
    old = sabotaged_cli(tmp_path / "claude", lab.cli_path, OLD_VERSION)
    told, tried = run_all(old, only=["approval.allow", "guard.block"]).promises[::-1]
    assert (told.id, told.state, told.seconds) == ("approval.allow", "unsupported", 0.0)
    assert told.observed == "not in this CLI (known from 2.1.197 on): not tried"
    assert (tried.id, tried.state) == ("guard.block", "held")


@pytest.mark.pinned
@pytest.mark.parametrize("cli_path", ["newest"], indirect=True)
def test_the_newest_tested_version_is_the_installed_one(lab: Lab) -> None:
    found = run_all(lab.cli_path, only=[FIRST]).cli_version
    assert parse_version(found or "") == TESTED
