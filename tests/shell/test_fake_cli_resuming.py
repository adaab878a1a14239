"""The fake CLI resumes conversations as the real one does: deferred calls, and turns cut off."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.shell.test_fake_cli import ASK, Client, prompt, running

from bridle import (
    Agent,
    Allow,
    Continue,
    Defer,
    Deny,
    Edit,
    Outcome,
    OutcomeReason,
    PreToolUseContext,
    tool,
)
from bridle.errors import ApprovalPending, UsageError
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

Json = dict[str, Any]

PAY = "CALL mcp__tools__pay "


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "config"


def entries(config: Path) -> list[Json]:
    [file] = config.glob("projects/*/*.jsonl")
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def wait(_: PreToolUseContext) -> Defer:
    return Defer()


@asynccontextmanager
async def deferring_agent(flavour: str, **options: Any) -> AsyncIterator[tuple[Agent, list[int]]]:
    """Return an agent that defers every call, and a list of what its tool paid."""
    paid: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    with FakeCli.auto(flavour=flavour, transcripts=True, lifetime=60) as cli:
        given: Json = {"on_pre_tool_use": wait, "tools": [pay], **options}
        yield Agent(cli_path=cli.path, **given), paid


def pending_of(outcome: Outcome[Any]) -> Any:
    assert outcome.reason is OutcomeReason.TOOL_DEFERRED, outcome
    assert outcome.pending is not None
    return outcome.pending


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_deferred_call_waits_and_runs_once_after_the_decision(flavour: str) -> None:
    async with deferring_agent(flavour) as (agent, paid):
        pending = pending_of(await agent.run(f'{PAY}{{"amount": 7}}'))
        assert (pending.tool_input, paid) == ({"amount": 7}, [])
        with pytest.raises(ApprovalPending):
            await agent.run("hello", resume_session_id=pending.session_id)
        outcome = await agent.resume(pending, Allow())
        assert (outcome.ok, outcome.text, paid) == (True, "paid 7", [7]), outcome
        with pytest.raises(UsageError):
            await agent.resume(pending, Allow())
        assert (await agent.run("hello", resume_session_id=pending.session_id)).ok
        assert paid == [7]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    ("decision", "expected"),
    [(Deny("not today"), ([], "not today")), (Edit({"amount": 8}), ([8], "paid 8"))],
)
async def test_a_decision_can_deny_or_change_the_call(
    flavour: str, decision: Any, expected: tuple[list[int], str]
) -> None:
    async with deferring_agent(flavour) as (agent, paid):
        pending = pending_of(await agent.run(f'{PAY}{{"amount": 7}}'))
        outcome = await agent.resume(pending, decision)
        assert (paid, outcome.text) == expected


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_only_one_of_several_calls_waits(flavour: str, config: Path) -> None:
    async with deferring_agent(flavour) as (agent, paid):
        both = f'{PAY}{{"amount": 1}}\n{PAY}{{"amount": 2}}'
        pending = pending_of(await agent.run(both))
        assert pending.tool_input == {"amount": 1}
        assert (await agent.resume(pending, Allow())).ok
        assert paid == [1]
    types = [entry["type"] for entry in entries(config)]
    assert types.count("attachment") == 1


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_built_in_tool_can_wait_too(flavour: str) -> None:
    async with deferring_agent(flavour, allowed_tools=["Bash", "Read"]) as (agent, _):
        pending = pending_of(await agent.run("BASH ls"))
        assert (await agent.resume(pending, Allow())).text == "Bash ran: ls"


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_prompt_of_another_program_does_not_end_the_wait(
    flavour: str, config: Path
) -> None:
    async with deferring_agent(flavour) as (agent, paid):
        pending = pending_of(await agent.run(f'{PAY}{{"amount": 7}}'))
        [file] = config.glob("projects/*/*.jsonl")
        prompt = next(one for one in entries(config) if one["type"] == "user")
        with open(file, "a") as transcript:
            transcript.write(json.dumps({**prompt, "uuid": "another"}) + "\n")
        assert (await agent.resume(pending, Allow())).ok
        assert paid == [7]


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_second_call_of_a_resumed_turn_waits_too(flavour: str) -> None:
    @tool
    def count(number: int) -> str:
        """Ask for the next number."""
        return f'CALL mcp__tools__count {{"number": {number + 1}}}'

    async with deferring_agent(flavour, tools=[count]) as (agent, _):
        pending = pending_of(await agent.run('CALL mcp__tools__count {"number": 1}'))
        for number in (1, 2, 3):
            assert pending.tool_input == {"number": number}
            pending = pending_of(await agent.resume(pending, Allow()))


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_tool_result_controls_the_model(flavour: str) -> None:
    @tool
    def count(number: int) -> str:
        """Ask for the next number."""
        return f'CALL mcp__tools__count {{"number": {number + 1}}}' if number < 3 else "done"

    async with deferring_agent(flavour, tools=[count], on_pre_tool_use=None) as (agent, _):
        outcome = await agent.run('CALL mcp__tools__count {"number": 1}')
        assert (outcome.ok, outcome.text, outcome.tool_calls) == (True, "done", 3)


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_turn_that_was_cut_off_is_closed_as_the_real_cli_does_it(
    flavour: str, config: Path
) -> None:
    """A newer CLI writes a result for the call. An older one leaves the call out."""

    @tool
    async def crash() -> str:
        """Kill the CLI."""
        [file] = config.glob("projects/*/*.jsonl")
        while "crash" not in file.read_text("utf-8").split("\n")[-2]:
            pass
        os.kill(pids[-1], 9)
        return ""

    pids: list[int] = []
    async with deferring_agent(flavour, tools=[crash], on_pre_tool_use=None) as (agent, _):
        async with agent.session() as session:
            pids.append(session.pid or 0)
            assert (await (await session.send_user_message("hello"))).ok
            outcome = await (await session.send_user_message("CALL mcp__tools__crash"))
            assert outcome.reason is OutcomeReason.CLI_EXITED
        assert (await agent.run("more", resume_session_id=str(session.id))).ok
    sent, call, told, closed, *others = entries(config)[2:]
    assert [one["type"] for one in (sent, call, told, closed)] == ["user", "assistant"] * 2
    assert [one["type"] for one in others] == ["user", "assistant"]
    assert closed["message"]["model"] == "<synthetic>"
    if flavour == FLAVOURS[-1]:
        assert (told["isMeta"], told["parentUuid"]) == (True, sent["uuid"])
    else:
        assert (told["toolDenialKind"], told["parentUuid"]) == ("interrupted", call["uuid"])


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("is_live", [True, False])
def test_a_prompt_after_a_deferred_call_lets_it_wait_unless_its_process_lives(
    flavour: str, is_live: bool, config: Path
) -> None:
    """Newer CLIs save what the model reads in place of the result. The call does not wait then."""
    hooks = {"PreToolUse": [{"hookCallbackIds": ["h"]}]}
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "defer"}
    session_id = "00000000-0000-4000-8000-00000000abcd"

    def asked(client: Client) -> list[str]:
        """The calls that the process asks about until the end of a turn."""
        found: list[str] = []
        while (frame := client.read())["type"] != "result":
            if frame["type"] == "control_request":
                found.append(frame["request"]["subtype"])
                client.answer(frame, {"behavior": "deny", "message": "no"})
        return found

    with FakeCli.auto(flavour=flavour, transcripts=True, lifetime=60) as cli:
        with running(cli, *ASK, f"--session-id={session_id}") as client:
            client.start(hooks=hooks)
            client.write(prompt("BASH ls"))
            question = client.until("control_request", "hook_callback")
            client.answer(question, {"hookSpecificOutput": decision})
            assert client.until("result")["stop_reason"] == "tool_deferred"
            if is_live:
                client.write(prompt("hello"))
                client.until("result")
            client.leave()
        is_dropped = is_live and flavour != FLAVOURS[-1]
        with running(cli, *ASK, f"--resume={session_id}") as client:
            client.write(prompt("hello"))
            assert asked(client) == ([] if is_dropped else ["can_use_tool"])


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_hook_can_add_what_the_model_does(flavour: str, config: Path) -> None:
    """The transcript has the stop reason of the whole message with each of its blocks."""
    async with deferring_agent(flavour, on_pre_tool_use=None) as (agent, paid):
        added = Continue(additional_context=f'{PAY}{{"amount": 7}}\nSAY paid')
        outcome = await agent.replace(on_user_prompt_submit=lambda _: added).run("hello")
        assert (outcome.ok, paid) == (True, [7])
    messages = [one["message"] for one in entries(config) if one["type"] == "assistant"]
    stops = [(one["content"][0]["type"], one["stop_reason"]) for one in messages]
    assert stops == [("tool_use", "tool_use"), ("text", "tool_use"), ("text", "end_turn")]
