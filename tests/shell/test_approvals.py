"""`Agent.resume` and its blocking twin on the fake CLI: what they refuse, and how they start it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.support.stored import assistant, call, entry, lines, result, user

from bridle import (
    Agent,
    Allow,
    BidirOptions,
    CliOptions,
    Continue,
    Deny,
    Edit,
    OptionsError,
    PendingApproval,
    SdkOptions,
    ToolServer,
    UnsupportedCliVersionError,
    tool,
)
from bridle._process.launch.plan import Launch, ResumedCall, plan_session, secrets
from bridle._session.parts.waiting_part import stamped
from bridle.errors import UsageError
from bridle.outcomes import Outcome, OutcomeReason
from bridle.sessions._waiting_calls import (
    check_waiting,
    conversation_of,
    decision_about,
    resumed_options,
    waiting_in_file,
)
from bridle.testing import FakeCli

PENDING = PendingApproval(
    session_id="01234567-89ab-4def-8123-456789abcdef",
    tool_name="Bash",
    tool_input={"command": "ls"},
    tool_use_id="toolu_1",
)


@tool
def price(item: str) -> int:
    """Return the price of an item."""
    return len(item)


# ------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("twin", [False, True])
def test_a_cli_that_cannot_resume_calls_is_refused_before_it_starts(twin: bool) -> None:
    with FakeCli().version("2.1.100 (Claude Code)") as cli:
        agent = Agent(cli_path=cli.path)
        resume = agent.sync.resume if twin else lambda *given: asyncio.run(agent.resume(*given))
        with pytest.raises(UnsupportedCliVersionError) as refused:
            resume(PENDING, Allow())
        assert (refused.value.found, refused.value.minimum) == ("2.1.100", "2.1.197")
        assert "resume a call" in refused.value.fix


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"permission_mode": "dontAsk"}, "permission_mode"),
        ({"permission_prompts": "none"}, "permission_prompts"),
        ({"permission_prompts": "cli"}, "permission_prompts"),
        ({"permission_prompt_tool_name": "mcp__x__ask"}, "permission_prompt_tool_name"),
        ({"no_session_persistence": True}, "no_session_persistence"),
    ],
)
def test_options_with_which_the_decision_has_no_effect_are_refused(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(OptionsError) as refused:
        resumed_options(CliOptions(**changes), PENDING)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "decision", [None, True, "allow", Continue(), Edit({}), Edit({"x": object()}), Allow]
)
def test_something_else_than_a_decision_is_refused(decision: Any) -> None:
    with pytest.raises(OptionsError) as refused:
        asyncio.run(Agent().resume(PENDING, decision))
    assert refused.value.field == "decision"


@pytest.mark.parametrize("pending", [None, "{}", PENDING.to_json()])
def test_something_else_than_a_pending_call_is_refused(pending: Any) -> None:
    with pytest.raises(OptionsError) as refused:
        Agent().sync.resume(pending, Allow())
    assert refused.value.field == "pending"


# ------------------------------------------------------------------------- what is needed


def test_a_decision_has_the_form_of_an_answer_to_a_permission_request() -> None:
    allowed = {"behavior": "allow", "updatedInput": {"command": "ls"}}
    assert decision_about(PENDING, Allow()) == allowed
    assert decision_about(PENDING, Edit({"a": 1})) == {
        "behavior": "allow",
        "updatedInput": {"a": 1},
    }
    assert decision_about(PENDING, Deny("no")) == {"behavior": "deny", "message": "no"}


def test_the_transcript_and_the_directory_are_used_if_they_exist(tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    pending = structs.replace(PENDING, transcript_path=str(transcript), cwd=str(tmp_path / "gone"))
    assert conversation_of(pending) == PENDING.session_id
    assert resumed_options(CliOptions(cwd="/"), pending).cwd == "/"
    transcript.touch()
    pending = structs.replace(pending, cwd=str(tmp_path))
    options = resumed_options(CliOptions(cwd="/"), pending)
    assert (options.resume_session_id, options.cwd) == (str(transcript), str(tmp_path))


def test_an_outcome_with_a_new_pending_call_gets_the_time() -> None:
    reason = OutcomeReason.TOOL_DEFERRED
    first: Outcome[Any] = stamped(Outcome(reason=reason, pending=PENDING))
    assert first.pending is not None
    assert first.pending.deferred_at is not None
    assert stamped(first) is first


# ------------------------------------------------------------------------- the launch


def launched(*, awaits: bool, servers: bool = False) -> Launch:
    """Return the launch of a session that resumes the call."""
    tools = {"mine": ToolServer([price])} if servers else None
    config = {"mcpServers": {"other": {"command": "x"}}}
    return plan_session(
        CliOptions(resume_session_id=PENDING.session_id, mcp_config=config),
        SdkOptions(),
        BidirOptions(mcp_servers=tools),
        session_id="unused",
        hooks={"PreToolUse": []},
        resumed=ResumedCall("Bash", awaits),
    )


@pytest.mark.parametrize("awaits", [False, True])
def test_a_newer_cli_waits_for_the_handshake_and_an_older_one_gets_a_rule(awaits: bool) -> None:
    launch = launched(awaits=awaits)
    settings = next(file for file in launch.files if "settings" in file.token)
    assert ("--await-initialize" in launch.argv) is awaits
    assert (b'"ask":["Bash"]' in settings.content) is not awaits


def test_in_process_servers_are_on_the_command_line_beside_those_of_the_program() -> None:
    launch = launched(awaits=True, servers=True)
    configs = [file for file in launch.files if "mcp-config" in file.token]
    assert [b'"mine"' in file.content for file in configs] == [False, True]
    paths = {file.token: f"/private/{number}" for number, file in enumerate(launch.files)}
    flags = [arg for arg in launch.arguments(paths) if arg.startswith("--mcp-config=")]
    assert len(set(flags)) == 2
    assert not any("\0" in flag for flag in flags)


@pytest.mark.parametrize("awaits", [False, True])
def test_an_older_cli_reads_the_system_prompts_from_private_files(awaits: bool) -> None:
    launch = plan_session(
        CliOptions(system_prompt=["Be brief.", "Be kind."], append_system_prompt="No secrets."),
        SdkOptions(),
        BidirOptions(),
        session_id=PENDING.session_id,
        resumed=ResumedCall("Bash", awaits),
    )
    found = [(file.token.strip("\0"), file.content) for file in launch.files]
    prompts = [(flag, text) for flag, text in found if flag.endswith("-file")]
    assert prompts == (
        []
        if awaits
        else [
            ("--system-prompt-file", b"Be brief.\n\nBe kind."),
            ("--append-system-prompt-file", b"No secrets."),
        ]
    )
    assert list(secrets(launch)) == []


# ------------------------------------------------------------------------- the call that waits

CALLED = assistant("a1", "p1", call("toolu_1"))
DEFERRED = entry(
    "attachment",
    "d1",
    "a1",
    attachment={
        "type": "hook_deferred_tool",
        "toolUseID": "toolu_1",
        "toolName": "Bash",
        "toolInput": {"command": "ls"},
    },
)
# A tool whose input looks like the entry of a deferred call.
LOOKS_ALIKE = assistant("a2", "d1", {"type": "tool_use", "input": {"type": "hook_deferred_tool"}})


@pytest.mark.parametrize(
    ("entries", "waits"),
    [
        ((CALLED, DEFERRED), True),
        ((CALLED, DEFERRED, LOOKS_ALIKE), True),
        ((CALLED, DEFERRED, b"not json hook_deferred_tool"), True),
        # The CLI runs it although a prompt followed.
        ((CALLED, DEFERRED, user("p2", "d1", "more"), assistant("a3", "p2")), True),
        ((CALLED, DEFERRED, user("n1", "d1", "x", origin={"kind": "task-notification"})), True),
        # An API request, as newer CLIs save it.
        ((CALLED, DEFERRED, b'{"x":[{"tool_use_id":"toolu_1"}]}'), False),
        ((CALLED, DEFERRED, b'{"x":[{"tool_use_id":"toolu_10"}]}'), True),
        ((CALLED, DEFERRED, user("r1", "a1", result("toolu_1")), LOOKS_ALIKE), False),
        ((CALLED, LOOKS_ALIKE), False),
        ((CALLED,), False),
        ((), False),
    ],
)
def test_the_call_is_found_in_the_transcript(
    tmp_path: Path, entries: tuple[Any, ...], *, waits: bool
) -> None:
    path = tmp_path / f"{PENDING.session_id}.jsonl"
    path.write_bytes(lines(*entries))
    expected = structs.replace(PENDING, transcript_path=str(path))
    assert waiting_in_file(path) == (expected if waits else None)


def test_a_transcript_that_does_not_exist_has_no_call(tmp_path: Path) -> None:
    assert waiting_in_file(tmp_path / "no.jsonl") is None


def test_a_transcript_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        waiting_in_file(tmp_path)


def test_a_decision_is_about_the_call_that_waits() -> None:
    check_waiting(PENDING, structs.replace(PENDING, cwd="/other", deferred_at=1.0))
    check_waiting(structs.replace(PENDING, cwd="/other"), PENDING)  # the transcript has none
    with pytest.raises(UsageError, match="toolu_1 of Bash does not wait"):
        check_waiting(PENDING, None)
    with pytest.raises(UsageError, match="toolu_2 of Write does"):
        check_waiting(PENDING, structs.replace(PENDING, tool_use_id="toolu_2", tool_name="Write"))


@pytest.mark.parametrize(
    "change",
    [
        {"tool_input": {"command": "rm x"}},
        {"tool_name": "Write"},
        {"session_id": "other"},
        {"cwd": "/other"},
    ],
)
def test_a_record_that_was_changed_is_refused(change: dict[str, Any]) -> None:
    waiting = structs.replace(PENDING, cwd="/work")
    with pytest.raises(OptionsError, match=next(iter(change))):
        check_waiting(structs.replace(waiting, **change), waiting)


@pytest.mark.parametrize("given", [1.0, True, "1", object()])
def test_an_input_is_compared_as_json(given: object) -> None:
    waiting = structs.replace(PENDING, tool_input={"order": 1, "of": 2})
    check_waiting(structs.replace(PENDING, tool_input={"of": 2, "order": 1}), waiting)
    with pytest.raises(OptionsError, match="tool_input"):
        check_waiting(structs.replace(PENDING, tool_input={"of": 2, "order": given}), waiting)
