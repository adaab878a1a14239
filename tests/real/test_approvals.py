"""Tool calls that wait for a person, on the real CLI: deferred, stored, decided, finished."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs
from tests.real.conftest import Lab
from tests.support import waiting_calls
from tests.support.processes import LIMIT, until

from bridle import (
    Agent,
    Allow,
    Block,
    Defer,
    Deny,
    Edit,
    HookOutput,
    Limits,
    ModifyInput,
    OptionsError,
    Outcome,
    OutcomeReason,
    PendingApproval,
    PreToolUseContext,
    SessionEvent,
    SessionInUseError,
    SessionNotFoundError,
    SessionReady,
    tool,
)
from bridle.errors import ApprovalPending, UsageError
from bridle.messages import TaskNotificationMessage
from bridle.sessions import MemoryStore, SessionKey, fork, rename
from bridle.testing import ModelRequest, Reply, ScriptedModel, repeat, text, tool_use
from bridle.testing.script import Turn


def bash(command: str) -> Any:
    """Return a call of Bash."""
    return tool_use("Bash", command=command, description="run it")


def wait(_: PreToolUseContext) -> Defer:
    """Let every call wait."""
    return Defer()


def agent_of(lab: Lab, model: ScriptedModel, **options: Any) -> Agent:
    """Return an agent whose hook defers every call."""
    given: dict[str, Any] = {
        "cli_path": lab.cli_path,
        "env": model.env,
        "cwd": str(lab.work),
        "model": "claude-sonnet-4-5",
        "inherit_env": ["PATH"],
        "on_pre_tool_use": wait,
    }
    return Agent(**given | options)


def deferred(outcome: Outcome[Any]) -> PendingApproval:
    """Return the call that waits, read from its stored form."""
    assert outcome.reason is OutcomeReason.TOOL_DEFERRED
    assert outcome.pending is not None
    return PendingApproval.from_json(outcome.pending.to_json())


def files(lab: Lab) -> list[str]:
    """Return the names of the files that tools have made."""
    return sorted(path.name for path in lab.work.iterdir())


def results(model: ScriptedModel) -> list[tuple[str, bool]]:
    """Return the tool results in the last request to the model: text, and whether it failed."""
    found: list[tuple[str, bool]] = []
    for message in model.requests[-1].messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        for block in blocks:
            if block.get("type") == "tool_result":
                content = block["content"]
                said = content if isinstance(content, str) else content[0]["text"]
                found.append((said, bool(block.get("is_error"))))
    return found


@pytest.mark.longer
async def test_an_allowed_call_runs_and_finishes_its_turn(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a; echo hi")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model)
        pending = deferred(await agent.run("go"))
        assert (pending.tool_name, pending.tool_input["command"]) == ("Bash", "touch a; echo hi")
        assert pending.cwd == str(lab.work)
        assert pending.deferred_at is not None
        assert files(lab) == []
        outcome = await agent.resume(pending, Allow())
        assert outcome.ok, outcome
        assert (outcome.text, outcome.session_id) == ("done", pending.session_id)
        assert outcome.pending is None
        assert files(lab) == ["a"]
        assert results(model) == [("hi", False)]


@pytest.mark.longer
async def test_a_denied_call_does_not_run_and_the_model_reads_why(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model, allowed_tools=["Bash"])
        pending = deferred(await agent.run("go"))
        outcome = await agent.resume(pending, Deny("not today"))
        assert outcome.ok, outcome
        assert files(lab) == []
        assert results(model) == [("not today", True)]


@pytest.mark.longer
@pytest.mark.parametrize(
    "options",
    [
        {"allowed_tools": ["Bash", "Read", "Write"]},
        {"permission_mode": "bypassPermissions", "allow_dangerously_skip_permissions": True},
    ],
    ids=["allowed", "bypass"],
)
@pytest.mark.parametrize("call", [bash("touch a"), tool_use("Read", file_path="note")])
async def test_no_option_lets_a_denied_call_run(
    lab: Lab, call: Any, options: dict[str, Any]
) -> None:

    (lab.work / "note").write_text("x")
    async with ScriptedModel([[call], repeat([text("done")])]) as model:
        agent = agent_of(lab, model, **options)
        pending = deferred(await agent.run("go"))
        env = {**model.env, "IS_SANDBOX": "1"}
        # The process that decides has lost the hook, too.
        bare = agent.replace(on_pre_tool_use=None, env=env)
        assert (await bare.resume(pending, Deny("no"))).ok
        assert results(model) == [("no", True)]
        assert files(lab) == ["note"]


@pytest.mark.longer
async def test_an_edited_call_runs_with_the_new_input(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        seen: list[str] = []

        def look(context: PreToolUseContext) -> Defer:
            seen.append(context.tool_input["command"])
            return Defer()

        agent = agent_of(lab, model, on_pre_tool_use=look)
        pending = deferred(await agent.run("go"))
        edit = Edit({**pending.tool_input, "command": "touch b; echo edited"})
        assert (await agent.resume(pending, edit)).ok
        assert seen == ["touch a", "touch b; echo edited"]
        assert files(lab) == ["b"]
        assert results(model) == [("edited", False)]


@pytest.mark.longer
async def test_hooks_run_again_and_can_block_or_change_what_a_person_allowed(lab: Lab) -> None:
    """If a hook answers before the model's message has ended, CLI 2.1.197 asks the model again."""
    warned: list[str] = []

    def reply(request: ModelRequest) -> Any:
        if "tool_result" in str(request.messages[-1]):
            return [text("done")]
        return [bash("touch a" if request.last_user_text == "go" else "touch c")]

    async with ScriptedModel(reply) as model:
        agent = agent_of(lab, model, on_warning=lambda one: warned.append(one.kind))
        pending = deferred(await agent.run("go"))
        changed = {**pending.tool_input, "command": "touch b"}
        changing = agent.replace(on_pre_tool_use=lambda _: ModifyInput(changed))
        assert (await changing.resume(pending, Allow())).ok
        assert files(lab) == ["b"]

        pending = deferred(await agent.run("again"))
        blocking = agent.replace(on_pre_tool_use=lambda _: Block("the account is closed"))
        assert (await blocking.resume(pending, Allow())).ok
        assert files(lab) == ["b"]
        if "approval_lost" not in warned:  # otherwise the model does not get the result
            [(said, failed)] = results(model)
            assert failed
            assert "the account is closed" in said


@tool
def refund(order: int) -> str:
    """Refund an order."""
    refunded.append(order)
    return f"refunded {order}"


refunded: list[int] = []


@pytest.mark.longer
@pytest.mark.parametrize("decision", [Allow(), Deny("no"), Edit({"order": 8})], ids=repr)
async def test_an_in_process_tool_waits_and_is_decided(lab: Lab, decision: Any) -> None:

    script: list[Turn] = [[tool_use("mcp__tools__refund", order=7)], repeat([text("done")])]
    async with ScriptedModel(script) as model:
        refunded.clear()
        agent = agent_of(lab, model, tools=[refund])
        pending = deferred(await agent.run("go"))
        assert (pending.tool_name, pending.tool_input) == ("mcp__tools__refund", {"order": 7})
        assert refunded == []
        outcome = await agent.resume(pending, decision)
        assert outcome.ok, outcome
        expected = {"Allow": [7], "Deny": [], "Edit": [8]}[type(decision).__name__]
        assert refunded == expected


@pytest.mark.longer
async def test_without_its_in_process_tool_the_call_keeps_waiting(lab: Lab) -> None:

    script: list[Turn] = [[tool_use("mcp__tools__refund", order=7)], repeat([text("done")])]
    async with ScriptedModel(script) as model:
        refunded.clear()
        agent = agent_of(lab, model, tools=[refund])
        pending = deferred(await agent.run("go"))
        outcome = await agent.replace(tools=None).resume(pending, Allow())
        assert outcome.reason is OutcomeReason.EXECUTION_ERROR, outcome
        assert "not available" in outcome.detail
        assert outcome.pending == pending
        assert (await agent.resume(pending, Allow())).ok
        assert refunded == [7]


@pytest.mark.longer
async def test_one_call_of_a_message_waits_and_the_other_is_denied(lab: Lab) -> None:

    script: list[Turn] = [[bash("touch a; echo ran"), bash("touch b")], repeat([text("done")])]
    async with ScriptedModel(script) as model:
        warned: list[str] = []
        agent = agent_of(lab, model, on_warning=lambda warning: warned.append(warning.kind))
        pending = deferred(await agent.run("go"))
        assert pending.tool_input["command"] == "touch a; echo ran"
        assert "cannot_defer" in warned
        outcome = await agent.resume(pending, Allow())
        assert outcome.ok, outcome
        assert files(lab) == ["a"]
        told = [said for said, _ in results(model)]
        assert any("another call is waiting for approval" in said for said in told)


@pytest.mark.longer
async def test_a_session_ends_when_a_call_waits_and_refuses_prompts(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model, limits=Limits(usd=5.0))
        async with agent.session() as session:
            pending = deferred(await (await session.send_user_message("go")))
            with pytest.raises(ApprovalPending) as refused:
                _ = await session.send_user_message("more")
            assert refused.value.pending == session.pending is not None
            assert refused.value.tool_use_id == pending.tool_use_id
            assert not session.alive
            # The session has not been closed yet.
            assert (await agent.resume(pending, Allow())).ok
        assert files(lab) == ["a"]


async def test_background_work_that_ends_while_a_call_waits_does_not_drop_it(lab: Lab) -> None:
    """A session that stayed open would begin a turn about the work."""

    command = "until [ -e go ]; do sleep 0.01; done"
    work = tool_use("Bash", command=command, description="d", run_in_background=True)
    async with ScriptedModel([[work], [bash("touch a")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model, allowed_tools=["Bash"], on_pre_tool_use=wait_for_a)
        async with agent.session() as session:
            pending = deferred(await (await session.send_user_message("go")))
            (lab.work / "go").touch()
            await until(lambda: not session.alive)
            assert session.pending is not None
        assert (await agent.resume(pending, Allow())).ok
        assert "a" in files(lab)
        assert (await agent.run("more", resume_session_id=pending.session_id)).ok


@pytest.mark.longer
async def test_a_call_waits_only_after_the_model_has_read_how_background_work_ended(
    lab: Lab,
) -> None:
    """The CLI would begin a turn about the work as soon as the call waits, and drop it."""

    noted = threading.Event()

    def reply(request: ModelRequest) -> Any:
        said = str(request.messages)
        if "running in background" not in said:
            work = "echo x > log"
            return [tool_use("Bash", command=work, description="d", run_in_background=True)]
        if "touch a" not in said:
            noted.wait(LIMIT)
            return [bash("touch a")]
        is_denied = "make it again" in str(request.last_tool_result)
        return [bash("touch a")] if is_denied else [text("done")]

    async with ScriptedModel(reply) as model:
        agent = agent_of(lab, model, allowed_tools=["Bash"], on_pre_tool_use=wait_for_a)
        async with agent.session() as session:
            messages = session.messages()
            turn = await session.send_user_message("go")
            async for message in messages:
                if isinstance(message, TaskNotificationMessage):
                    noted.set()
                    break
            pending = deferred(await turn)
        assert "task-notification" in str(model.requests[-1].messages)
        assert (await agent.resume(pending, Allow())).ok
        assert "a" in files(lab)


def wait_for_a(context: PreToolUseContext) -> Defer | None:
    """Let the command wait that makes the file ``a``."""
    return Defer() if "touch a" in context.tool_input["command"] else None


@pytest.mark.longer
async def test_a_call_of_a_subagent_is_denied(lab: Lab) -> None:

    kind: dict[str, Any] = {"subagent_type": "general-purpose", "run_in_background": False}
    task = tool_use("Task", prompt="SUB", description="d", **kind)
    begun: set[str | None] = set()

    def reply(request: ModelRequest) -> Reply:
        """Answer by the agent that asks: a subagent may run beside the main conversation."""
        if request.agent_id in begun:
            return Reply(blocks=(text("done"),))
        begun.add(request.agent_id)
        return Reply(blocks=(task if request.agent_id is None else bash("touch a"),))

    async with ScriptedModel(reply) as model:

        def wait_for_bash(context: PreToolUseContext) -> Defer | None:
            return Defer() if context.tool_name == "Bash" else None

        warned: list[str] = []
        agent = agent_of(
            lab,
            model,
            on_pre_tool_use=wait_for_bash,
            on_warning=lambda warning: warned.append(warning.detail),
        )
        outcome = await agent.run("go")
        assert outcome.ok, outcome
        assert files(lab) == []
        assert any("subagent" in detail for detail in warned)


@pytest.mark.longer
async def test_a_decision_takes_effect_for_the_call_that_it_names_only(lab: Lab) -> None:

    script: list[Turn] = [[bash("echo x >> log")], [bash("echo y >> log")], repeat([text("done")])]
    async with ScriptedModel(script) as model:
        agent = agent_of(lab, model)
        first = deferred(await agent.run("go"))
        second = deferred(await agent.resume(first, Allow()))
        # The second person has seen the first call, while the second one waits.
        with pytest.raises(UsageError) as late:
            await agent.resume(first, Allow())
        assert second.tool_use_id in str(late.value)
        changes: list[dict[str, Any]] = [
            {"tool_input": {"command": "echo other >> log"}},
            {"tool_name": "Write"},
            {"session_id": str(uuid4())},
        ]
        for change in changes:
            with pytest.raises(OptionsError, match=next(iter(change))):
                await agent.resume(structs.replace(second, **change), Allow())
        assert (lab.work / "log").read_text() == "x\n"
        assert (await agent.resume(second, Allow())).ok
        with pytest.raises(UsageError):
            await agent.resume(second, Allow())
        assert (lab.work / "log").read_text() == "x\ny\n"


@pytest.mark.longer
async def test_a_call_waits_on_if_the_cli_dies_or_the_caller_leaves_before_the_decision(
    lab: Lab,
) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        asked, release = asyncio.Event(), asyncio.Event()

        async def hold(context: PreToolUseContext) -> None:
            asked.set()
            await release.wait()

        agent = agent_of(lab, model)
        pending = deferred(await agent.run("go"))
        slow = agent.replace(on_pre_tool_use=hold)
        left = asyncio.ensure_future(slow.resume(pending, Allow()))
        await asked.wait()
        left.cancel()
        await asyncio.wait([left])
        assert left.cancelled()
        assert files(lab) == []

        pids: list[int] = []

        async def kill(context: PreToolUseContext) -> None:
            # CLI 2.1.197 asks before it has answered the handshake.
            await until(lambda: pids)
            os.kill(pids[0], signal.SIGKILL)
            await release.wait()

        def note(event: SessionEvent) -> None:
            if isinstance(event, SessionReady) and event.pid is not None:
                pids.append(event.pid)

        killing = agent.replace(on_pre_tool_use=kill, on_event=note)
        outcome = await killing.resume(pending, Allow())
        assert outcome.reason is OutcomeReason.CLI_EXITED, outcome
        assert outcome.pending == pending
        assert files(lab) == []

        assert (await agent.resume(pending, Allow())).ok
        assert files(lab) == ["a"]


@pytest.mark.longer
async def test_a_limit_reached_before_the_decision_drops_the_call(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:

        async def hold(context: PreToolUseContext) -> None:
            await asyncio.Event().wait()

        agent = agent_of(lab, model)
        pending = deferred(await agent.run("go"))
        slow = agent.replace(on_pre_tool_use=hold)
        outcome = await slow.resume(pending, Allow(), limits=Limits(total=8.0))
        assert outcome.reason is OutcomeReason.LIMIT_TOTAL, outcome
        assert outcome.pending is None
        assert (await agent.run("more", resume_session_id=pending.session_id)).ok
        assert files(lab) == []


AGENT = '''
import os, sys, time
from bridle import *

@tool
def refund(order: int) -> str:
    """Refund an order."""
    open("refunded", "a").write(f"{order}\\n")
    return f"refunded {order}"

def check(context):
    return Defer() if context.tool_name.endswith("refund") else None

def agent():
    env = {name: os.environ[name] for name in os.environ if name != "BRIDLE_TEST_CLI"}
    return Agent(tools=[refund], on_pre_tool_use=check, env=env, model="claude-sonnet-4-5",
                 cli_path=os.environ["BRIDLE_TEST_CLI"])
'''

PROCESSES = {
    # The support desk: runs until a call waits, and stores it.
    "first": """
outcome = agent().sync.run("Refund order 7")
assert outcome.reason == "tool_deferred", outcome
open("pending.json", "w").write(outcome.pending.to_json())
""",
    # A day later, a program without any CLI: shows the call to a person, and stores the decision.
    "second": """
import json
pending = PendingApproval.from_json(open("pending.json").read())
assert time.time() - pending.deferred_at > 86_000
assert (pending.tool_name, pending.tool_input) == ("mcp__tools__refund", {"order": 7})
open("decision.json", "w").write(json.dumps({"new_input": {"order": 8}}))
""",
    # A worker: applies the decision and gets the outcome.
    "third": """
import json
pending = PendingApproval.from_json(open("pending.json").read())
decision = Edit(**json.load(open("decision.json")))
outcome = agent().sync.resume(pending, decision)
assert outcome.ok, outcome
print(outcome.text, outcome.session_id == pending.session_id)
""",
}


def environment(lab: Lab, model: ScriptedModel) -> dict[str, str]:
    """Return the variables of another program, which imports the same Bridle."""
    path = os.pathsep.join(filter(None, sys.path))
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "BRIDLE_TEST_CLI": lab.cli_path}
    return {**own, **model.env}


@pytest.mark.longer
async def test_a_call_waits_a_day_across_three_processes(lab: Lab) -> None:
    def run(name: str, env: Mapping[str, str]) -> str:
        code = AGENT + PROCESSES[name]
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=lab.work, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    script: list[Turn] = [[tool_use("mcp__tools__refund", order=7)], repeat([text("Refunded.")])]
    async with ScriptedModel(script) as model:
        env = environment(lab, model)
        await asyncio.to_thread(run, "first", env)
        assert not (lab.work / "refunded").exists()
        # A day goes by: the stored call is a day older.
        stored = lab.work / "pending.json"
        call = json.loads(stored.read_text())
        call["call"]["deferred_at"] -= 86_400
        stored.write_text(json.dumps(call))
        await asyncio.to_thread(run, "second", env)
        assert (await asyncio.to_thread(run, "third", env)).strip() == "Refunded. True"
        assert (lab.work / "refunded").read_text() == "8\n"
        assert results(model) == [("refunded 8", False)]


@pytest.mark.longer
async def test_a_call_is_resumed_from_its_transcript_in_another_directory(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model)
        pending = deferred(await agent.run("go"))
        other = lab.work.parent / "other"
        other.mkdir()
        moved = structs.replace(pending, cwd=None)
        assert (await agent.replace(cwd=str(other)).resume(moved, Allow())).ok
        assert [path.name for path in other.iterdir()] == ["a"]

        lost = structs.replace(pending, session_id=str(uuid4()), transcript_path="/no/file.jsonl")
        with pytest.raises(SessionNotFoundError):
            await agent.resume(lost, Allow())


@pytest.mark.longer
async def test_a_record_with_another_directory_or_transcript_is_refused(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model)
        pending = deferred(await agent.run("go"))
        assert pending.transcript_path is not None
        other = lab.work.parent / "other"
        other.mkdir()
        with pytest.raises(OptionsError, match="another cwd"):
            await agent.resume(structs.replace(pending, cwd=str(other)), Allow())

        copy = other / f"{pending.session_id}.jsonl"
        copy.write_text(Path(pending.transcript_path).read_text().replace("touch a", "touch b"))
        changed = {**pending.tool_input, "command": "touch b"}
        elsewhere = structs.replace(pending, transcript_path=str(copy))
        with pytest.raises(OptionsError, match="another tool_input"):
            await agent.resume(structs.replace(elsewhere, tool_input=changed), Allow())
        assert (files(lab), os.listdir(other)) == ([], [copy.name])
        assert (await agent.resume(elsewhere, Allow())).ok
        assert files(lab) == ["a"]


@pytest.mark.longer
async def test_a_call_that_is_decided_twice_at_once_runs_once(lab: Lab) -> None:
    async with ScriptedModel([[bash("echo x >> a")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model)
        pending = deferred(await agent.run("go"))
        both = [agent.resume(pending, Allow()) for _ in range(2)]
        found = await asyncio.gather(*both, return_exceptions=True)
        # The second one waits some seconds for the first one, which may have finished the turn.
        (refused,) = [one for one in found if isinstance(one, Exception)]
        assert isinstance(refused, SessionInUseError | UsageError), refused
        assert (lab.work / "a").read_text() == "x\n"


@pytest.mark.longer
async def test_a_call_is_resumed_from_a_store_on_another_machine(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        homes = [lab.work.parent / name for name in ("home-a", "home-b")]
        environments: list[dict[str, str]] = []
        for home in homes:
            home.mkdir()
            config = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
            environments.append({**model.env, **config})
        agent = agent_of(lab, model, env=environments[0], store=MemoryStore())
        pending = deferred(await agent.run("go"))
        shutil.rmtree(homes[0])
        other = lab.work.parent / "other"
        other.mkdir()
        there = agent.replace(env=environments[1], cwd=str(other))
        outcome = await there.resume(structs.replace(pending, cwd=None), Allow())
        assert (outcome.ok, outcome.session_id) == (True, pending.session_id)
        assert [path.name for path in other.iterdir()] == ["a"]


@pytest.mark.longer
async def test_the_resumed_turn_has_the_system_prompt_and_the_output_type(lab: Lab) -> None:

    def reply(request: ModelRequest) -> Any:
        if not request.answers_tool_call and len(request.messages) == 1:
            return [bash("touch a")]
        if "StructuredOutput" not in request.tools:
            return [text("five")]  # 2.1.197 offers the tool from the next prompt on
        if "5" in str(request.tool_results.values()):
            return [text("done")]
        return [tool_use("StructuredOutput", value=5)]

    async with ScriptedModel(reply) as model:
        agent = agent_of(
            lab,
            model,
            on_pre_tool_use=lambda context: Defer() if context.tool_name == "Bash" else None,
            append_system_prompt="Never mention the moon.",
            output_type=int,
        )
        pending = deferred(await agent.run("go"))
        outcome = await agent.resume(pending, Allow())
        assert (outcome.reason, outcome.output) == (OutcomeReason.COMPLETED, 5)
        assert all("the moon" in str(request.raw) for request in model.requests)


# ---------------------------------------------------------------- prompts while a call waits


@pytest.mark.longer
@pytest.mark.parametrize("one", waiting_calls.REPRESENTATIVE, ids=str)
def test_a_prompt_to_a_resumed_conversation_is_refused_and_its_call_stays_approvable(
    lab: Lab, one: waiting_calls.Combination
) -> None:
    asyncio.run(asyncio.wait_for(waiting_calls.play(one, lab.cli_path, lab.work), 120))


PROMPTS = """
import asyncio, sys
from bridle.errors import ApprovalPending

async def main(session_id, transcript):
    a = other_agent()
    async def opened(**how):
        async with a.session(**how) as session:
            await session.send_user_message("more")
    async def queried(**how):
        async for message in a.query("more", **how):
            pass
    ways = [
        lambda: opened(resume_session_id=session_id),
        lambda: a.run("more", resume_session_id=session_id),
        lambda: a.run("more", continue_session=True),
        lambda: a.run("more", resume_session_id=transcript),
        lambda: a.run("more", resume_session_id="orders"),
        lambda: a.run("more", resume_session_id=session_id, fork_session=True),
        lambda: queried(resume_session_id=session_id),
        lambda: queried(continue_session=True),
    ]
    for number, way in enumerate(ways):
        try:
            await way()
        except ApprovalPending as error:
            print(error.tool_use_id == error.pending.tool_use_id)
        else:
            print("accepted", number)

def official(session_id):
    from bridle.compat import claude_agent_sdk as sdk
    async def main(**how):
        options = sdk.ClaudeAgentOptions(allowed_tools=["Bash"], cli_path=CLI, env=ENV, **how)
        try:
            async for message in sdk.query(prompt="more", options=options):
                pass
        except sdk.ClaudeSDKError as error:
            print(type(error.__cause__) is ApprovalPending)
    asyncio.run(main(resume=session_id))
    asyncio.run(main(continue_conversation=True))

asyncio.run(main(*sys.argv[1:]))
official(sys.argv[1])
"""

OTHER = """
import os
from bridle import Agent
CLI = os.environ["BRIDLE_TEST_CLI"]
ENV = {name: os.environ[name] for name in os.environ if name != "BRIDLE_TEST_CLI"}
def other_agent():
    return Agent(env=ENV, model="claude-sonnet-4-5", cli_path=CLI, allowed_tools=["Bash"])
"""


@pytest.mark.longer
async def test_another_program_without_the_hook_can_send_nothing_while_a_call_waits(
    lab: Lab,
) -> None:
    """By every way to resume: the deferred command does not run, and the prompt is not sent."""
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model)
        pending = deferred(await agent.run("go"))
        assert pending.transcript_path is not None
        await rename(pending.session_id, "orders", config_dir=model.env["CLAUDE_CONFIG_DIR"])
        env = environment(lab, model)
        code, names = OTHER + PROMPTS, (pending.session_id, pending.transcript_path)
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", code, *names],
            cwd=lab.work,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.stdout.split() == ["True"] * 10, done.stdout + done.stderr
        assert files(lab) == []
        assert len(model.requests) == 1
        assert (await agent.resume(pending, Allow())).ok
        assert files(lab) == ["a"]


async def test_a_title_is_compared_as_the_cli_does(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        pending = deferred(await agent_of(lab, model).run("go"))
        assert pending.transcript_path is not None
        other = agent_of(lab, model, allowed_tools=["Bash"], on_pre_tool_use=None)

        async def refused(error: type[Exception], title: str) -> None:
            with pytest.raises(error):
                await other.run("more", resume_session_id=title)
            assert files(lab) == []

        with open(pending.transcript_path, "a") as file:
            file.write(json.dumps({"type": "ai-title", "aiTitle": "By the AI"}) + "\n")
        await refused(ApprovalPending, "by the ai")
        await rename(pending.session_id, "My Title", config_dir=model.env["CLAUDE_CONFIG_DIR"])
        await refused(ApprovalPending, " my title ")
        await refused(SessionNotFoundError, "\ufeffmy title")
        assert len(model.requests) == 1


@pytest.mark.longer
async def test_a_call_beside_one_that_ran_waits_in_a_resumed_conversation(lab: Lab) -> None:
    """The entry of the call lies beside the branch that the CLI resumes. The CLI finds it there."""

    def first_waits(context: PreToolUseContext) -> Defer | None:
        return Defer() if "touch a" in context.tool_input["command"] else None

    async with ScriptedModel([[bash("touch a"), bash("touch b")], repeat([text("done")])]) as model:
        options = {"allowed_tools": ["Bash"], "on_pre_tool_use": first_waits}
        pending = deferred(await agent_of(lab, model, **options).run("go"))
        other = agent_of(lab, model, allowed_tools=["Bash"], on_pre_tool_use=None)
        with pytest.raises(ApprovalPending):
            await other.run("more", resume_session_id=pending.session_id)
        assert files(lab) == ["b"]
        await other.resume(pending, Allow())
        assert files(lab) == ["a", "b"]


def followed_by_a_prompt(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what another program adds to a transcript with a prompt and its answer."""
    last = next(one for one in reversed(entries) if one.get("uuid"))
    asked = next(one for one in entries if one["type"] == "user")
    said = next(one for one in reversed(entries) if one["type"] == "assistant")
    message = {"role": "user", "content": "from another program"}
    prompt = {**asked, "uuid": str(uuid4()), "parentUuid": last["uuid"], "message": message}
    content = [{"type": "text", "text": "answered"}]
    ending: dict[str, Any] = {"id": "msg_x", "content": content, "stop_reason": "end_turn"}
    linked: dict[str, Any] = {"uuid": str(uuid4()), "parentUuid": prompt["uuid"]}
    return [prompt, {**said, **linked, "message": said["message"] | ending}]


async def test_a_call_waits_although_another_program_has_sent_a_prompt(lab: Lab) -> None:
    """The CLI would run it: it looks for the result of the call, not for prompts."""
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model)
        pending = deferred(await agent.run("go"))
        assert pending.transcript_path is not None
        path = Path(pending.transcript_path)
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        with open(path, "a") as file:
            for one in followed_by_a_prompt(entries):
                file.write(json.dumps(one, separators=(",", ":")) + "\n")
        other = agent_of(lab, model, allowed_tools=["Bash"], on_pre_tool_use=None)
        with pytest.raises(ApprovalPending):
            await other.run("more", resume_session_id=pending.session_id)
        assert files(lab) == []
        assert (await other.resume(pending, Deny("no"))).ok
        assert (await other.run("more", resume_session_id=pending.session_id)).ok
        assert files(lab) == []


async def test_a_call_that_a_prompt_has_dropped_from_a_store_does_not_run(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        store = MemoryStore()
        pending = deferred(await agent_of(lab, model, store=store).run("first prompt"))
        key = SessionKey(pending.session_id)
        entries = [dict(one) for one in await store.load(key) or ()]
        await store.append(key, followed_by_a_prompt(entries))
        other = agent_of(lab, model, allowed_tools=["Bash"], on_pre_tool_use=None, store=store)
        assert (await other.run("more", resume_session_id=pending.session_id)).ok
        assert files(lab) == []
        said = str(model.requests[-1].messages)
        assert "first prompt" in said
        assert "from another program" in said


@pytest.mark.longer
async def test_a_copy_of_a_conversation_does_not_wait(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        agent = agent_of(lab, model)
        pending = deferred(await agent.run("go"))
        copy = await fork(pending.session_id, config_dir=model.env["CLAUDE_CONFIG_DIR"])
        allowed = agent_of(lab, model, allowed_tools=["Bash"], on_pre_tool_use=None)
        assert (await allowed.run("more", resume_session_id=copy)).ok
        assert files(lab) == []
        assert (await agent.resume(pending, Allow())).ok
        assert files(lab) == ["a"]


# ---------------------------------------------------------------- approval without a hook


@pytest.mark.longer
@pytest.mark.parametrize("call", [bash("rm -f x; touch a"), tool_use("mcp__tools__refund")])
async def test_a_call_that_needs_an_approval_waits_whatever_the_hooks_say(
    lab: Lab, call: Any
) -> None:
    """`approve` and `@tool(approval=True)` hold if a hook raises, allows, or is not there."""

    @tool(approval=True)
    def refund() -> str:
        """Refund an order."""
        (lab.work / "a").touch()
        return "refunded"

    def fail(_: PreToolUseContext) -> None:
        raise RuntimeError

    def allow(_: PreToolUseContext) -> HookOutput:
        return HookOutput(permission_decision="allow")

    async with ScriptedModel([[call], [call], [call], repeat([text("done")])]) as model:
        agent = agent_of(
            lab,
            model,
            approve=["Bash(rm *)"],
            tools=[refund],
            permission_mode="bypassPermissions",
            allow_dangerously_skip_permissions=True,
        )
        for hook in (fail, allow):
            deferred(await agent.replace(on_pre_tool_use=hook).run("go"))
        agent = agent.replace(on_pre_tool_use=None)
        pending = deferred(await agent.run("go"))
        assert files(lab) == []
        assert (await agent.resume(pending, Allow())).ok
        assert files(lab) == ["a"]


@pytest.mark.longer
async def test_a_call_that_needs_no_approval_runs(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        agent = agent_of(
            lab, model, on_pre_tool_use=None, approve=["Bash(rm *)"], allowed_tools=["Bash"]
        )
        assert (await agent.run("go")).ok
        assert files(lab) == ["a"]


@pytest.mark.longer
async def test_a_blocking_pool_decides_by_key(lab: Lab) -> None:
    """The process of the key is closed when its call waits, and `agent.resume` works as well."""

    def work(model: ScriptedModel) -> None:
        agent = agent_of(lab, model)
        with agent.sync.pool(size=2) as pool:

            def send(key: str) -> PendingApproval:
                with pool.session(key=key) as session:
                    found = deferred(session.send_user_message("go").outcome())
                    assert session.pending is not None
                    assert session.pending.tool_use_id == found.tool_use_id
                return found

            send("a")
            pending = send("b")
            assert pool.metrics.idle == 0
            with pytest.raises(ApprovalPending), pool.session(key="a"):
                pass
            with pytest.raises(UsageError, match=pending.tool_use_id):
                pool.resume("a", Allow(), pending=pending)
            assert pool.resume("a", Allow()).ok
            assert agent.sync.resume(pending, Allow()).ok
            with pytest.raises(UsageError):
                pool.resume("a", Allow())
            with pytest.raises(UsageError):
                pool.resume("c", Allow())
        assert (lab.work / "log").read_text() == "x\nx\n"

    calls = [[bash("echo x >> log")], [bash("echo x >> log")]]
    async with ScriptedModel([*calls, repeat([text("done")])]) as model:
        await asyncio.to_thread(work, model)


async def test_an_approval_of_a_configuration_file_holds_in_a_query(lab: Lab) -> None:
    async with ScriptedModel([[bash("touch a")], repeat([text("done")])]) as model:
        config = lab.work.parent / "bridle.toml"
        config.write_text('[bidir]\napprove = ["Bash"]\n')
        options: dict[str, Any] = {"allowed_tools": ["Bash"], "on_pre_tool_use": None}
        agent = agent_of(lab, model, config_file=str(config), **options)
        async for _ in agent.query("go"):
            pass
        assert files(lab) == []
        assert len(model.requests) == 1
