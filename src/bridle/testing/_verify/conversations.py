"""Promises about conversations that are resumed, forked, moved and recovered."""

from __future__ import annotations

import asyncio
import os
import signal

from bridle import OutcomeReason, ToolContext, tool
from bridle.sessions import MemoryStore, SessionKey
from bridle.testing._verify.promises import TESTED_SINCE, expect, promise, require
from bridle.testing._verify.stage import Model, Stage, ended
from bridle.testing.model_request import ModelRequest
from bridle.testing.script import Reply, text, tool_use


@promise(
    "conversation.resume",
    "A resumed conversation has its id and its whole history.",
    depends="resume_session_id, pools",
)
async def resume(stage: Stage) -> str:
    async with Model([[text("first answer")], [text("second answer")]]) as model:
        agent = stage.agent(model)
        first = await agent.run("first prompt")
        second = await agent.run("second prompt", resume_session_id=first.session_id)
        read = str(model.asked[1].messages)
    expect("the id", second.session_id, first.session_id)
    require("first prompt" in read and "first answer" in read, "the history is incomplete")
    return "the same id, and the history in the next request"


@promise(
    "conversation.fork",
    "A fork has the history and an id of its own, and leaves the original as it is.",
    depends="fork_session",
    since=TESTED_SINCE,
)
async def fork(stage: Stage) -> str:
    script = [[text("first answer")], [text("forked answer")], [text("third answer")]]
    async with Model(script) as model:
        agent = stage.agent(model)
        first = await agent.run("first prompt")
        original = first.session_id
        forked = await agent.run("forked prompt", resume_session_id=original, fork_session=True)
        await agent.run("third prompt", resume_session_id=original)
        in_fork, in_original = (str(request.messages) for request in model.asked[1:])
    require(forked.session_id != first.session_id, "the fork has the id of the original")
    require("first answer" in in_fork, "the fork lacks the history")
    require("forked prompt" not in in_original, "the original has the prompt of the fork")
    return "another id, and two separate conversations"


@promise(
    "conversation.store",
    "A store gets the conversation, and it resumes from there with another home.",
    depends="store, Agent.session(resume_session_id=...), fleets",
)
async def store(stage: Stage) -> str:
    kept = MemoryStore()
    async with Model([[text("first answer")], [text("second answer")]]) as model:
        first = await stage.agent(model, store=kept).run("first prompt")
        entries = str(await kept.load(SessionKey(str(first.session_id))))
        require("first answer" in entries, "the answer is not in the store")
        home = stage.directory / "elsewhere"
        home.mkdir()
        env = {**model.env, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
        other = stage.agent(model, store=kept, cwd=str(home), env=env)
        second = await other.run("second prompt", resume_session_id=first.session_id)
        read = str(model.asked[1].messages)
    expect("the answer", second.text, "second answer")
    require("first answer" in read, "the history did not come from the store")
    return "mirrored, and resumed with another home and directory"


@promise(
    "conversation.recover",
    "A turn that a killed CLI cut off is recovered once, and its open call is named.",
    depends="Agent.recover, Retry, fleets",
)
async def recover(stage: Stage) -> str:
    calls: list[str] = []

    @tool
    async def crash(line: str, context: ToolContext) -> str:
        """Kill the CLI the first time."""
        calls.append(context.idempotency_key)
        if len(calls) == 1:
            assert context.session.pid is not None, "the session runs"
            os.kill(context.session.pid, signal.SIGKILL)
            await asyncio.Event().wait()
        return f"went on with {line}"

    def reply(request: ModelRequest) -> Reply:
        last = str(request.messages[-1])
        is_prompt = "crash now" in last and "tool_result" not in last
        return Reply(
            blocks=(tool_use("mcp__tools__crash", line="a") if is_prompt else text("recovered"),)
        )

    async with Model(reply) as model:
        agent = stage.agent(model, store=MemoryStore(), tools=[crash])
        session = await agent.session()
        turn = await session.send_user_message("crash now")
        cut_off = await turn
        await session.aclose()
        expect("the reason", cut_off.reason, OutcomeReason.CLI_EXITED)
        recovered = await agent.recover(str(session.id))
        again = await agent.recover(str(session.id))
        read = "\n".join(str(request.messages) for request in model.asked[1:])
    expect("outcomes", [(one.text, one.uuid) for one in recovered], [("recovered", turn.uuid)])
    expect("outcomes of a second recovery", again, [])
    expect("idempotency keys", len(set(calls)), 1)
    require("mcp__tools__crash" in read, "the model was not told of the call")
    return f"one outcome: {ended(recovered[0])}"
