"""Promises about starting a CLI, its environment and what it understands."""

from __future__ import annotations

import os
import uuid

import bridle
from bridle import (
    Block,
    ControlError,
    SessionCompleted,
    SessionInUseError,
    SessionNotFoundError,
    SessionReady,
)
from bridle.testing._verify.promises import FIRST, TESTED_SINCE, Broken, expect, promise, require
from bridle.testing._verify.stage import DONE, Model, Stage, ended, processes_with, send
from bridle.testing.script import Reply, repeat, text, tool_use


@promise(FIRST, "A session starts, answers a prompt and closes.", depends="everything")
async def start_session(stage: Stage) -> str:
    async with Model([[text("hello")]]) as model:
        async with stage.session(model) as session:
            outcome = await send(session)
        expect("the answer", (outcome.ok, outcome.text), (True, "hello"))
        require(not session.alive, "the CLI still runs after the session was closed")
    return f"CLI pid {session.pid} answered and ended"


@promise(
    "start.version",
    "The version of the CLI is known when the session starts.",
    depends="version checks, options that need a newer CLI",
)
async def version(stage: Stage) -> str:
    async with Model([]) as model, stage.session(model) as session:
        ready = await anext(session.events())
        require(isinstance(ready, SessionReady), f"the first event was {ready!r:.200}")
        found = ready.cli_version if isinstance(ready, SessionReady) else None
        require(found, f"no version is known; warnings: {stage.warned}")
    return f"version {found}"


@promise(
    "start.not_found",
    "Resuming a conversation that does not exist raises SessionNotFoundError.",
    depends="resume_session_id, pools, recovery",
)
async def not_found(stage: Stage) -> str:
    missing = str(uuid.uuid4())
    async with Model([]) as model:
        try:
            await bridle.run("go", **stage.options(model, resume_session_id=missing))
        except SessionNotFoundError as error:
            expect("the id in the error", error.session_id, missing)
            return "SessionNotFoundError with the id"
        except bridle.BridleError as error:
            raise Broken(f"{type(error).__name__} was raised: {error}") from None
    raise Broken("the run started a new conversation")


@promise(
    "start.in_use",
    "A conversation that is open in one process cannot be resumed in another.",
    depends="resume_session_id, pools, recovery",
)
async def in_use(stage: Stage) -> str:
    async with Model([[text("one")]]) as model, stage.session(model) as session:
        await send(session)
        try:
            await bridle.run("go", **stage.options(model, resume_session_id=session.id))
        except SessionInUseError:
            return "SessionInUseError"
        raise Broken("two processes had the same conversation")


def _helper(prompt: str) -> bridle.AgentConfig:
    return bridle.AgentConfig(name="helper", description="helps", prompt=prompt)


_SECRETS = ("prompt", "system", "append", "agent", "schema", "settings", "server", "variable")


@promise(
    "start.argv",
    "Prompts, agents, schemas, settings and secrets are not on any command line.",
    depends="privacy on machines with other users",
)
async def argv(stage: Stage) -> str:
    run = uuid.uuid4().hex
    word = {name: f"{name}{run}" for name in _SECRETS}
    server = {"type": "stdio", "command": "true", "env": {"TOKEN": word["server"]}}
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "description": word["schema"]}},
    }
    hold = Reply(blocks=(text(DONE),), hold=True)
    async with Model([hold, repeat([text(DONE)])]) as model:
        options = stage.options(
            model,
            system_prompt=word["system"],
            append_system_prompt=word["append"],
            agents=[_helper(word["agent"])],
            settings={"env": {"FROM_SETTINGS": word["settings"]}},
            mcp_config={"mcpServers": {"local": server}},
            json_schema=schema,
            env={**model.env, "FROM_OPTIONS": word["variable"]},
        )
        async with bridle.start_session(**options) as session:
            turn = await session.send_user_message(word["prompt"])
            await model.wait_for_hold()
            found = [name for name in _SECRETS if processes_with(word[name])]
            require(session.pid in processes_with(""), "the CLI was not among the processes")
            model.release()
            await turn
        require(not found, f"on a command line: {', '.join(found)}")
        read = str(model.asked[0].messages)
        require(word["prompt"] in read, "the prompt did not reach the model")
    return f"none of {len(_SECRETS)} words was on a command line"


@promise(
    "start.system_prompt",
    "The system prompt of the program reaches the model.",
    depends="system_prompt, append_system_prompt",
    since=TESTED_SINCE,
)
async def system_prompt(stage: Stage) -> str:
    given = {"system_prompt": "You are a groom.", "append_system_prompt": "Be brief."}
    _, model = await stage.ask([[text(DONE)]], **given)
    told = model.asked[0].system_text
    missing = [name for name, words in given.items() if words not in told]
    require(not missing, f"the model did not read {' and '.join(missing)}")
    return "the model read both"


@promise(
    "start.environment",
    "Variables of the program that switch hooks off in the CLI do not reach it.",
    depends="guards in programs with a foreign environment",
)
async def environment(stage: Stage) -> str:
    names = ("CLAUDE_CODE_SIMPLE",)
    seen: list[str] = []

    def block(context: bridle.PreToolUseContext) -> Block:
        seen.append(context.tool_name)
        return Block("not here")

    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        async with Model(stage.script(stage.write())) as model:
            env = {name: value for name, value in model.env.items() if name not in names}
            given = stage.options(
                model,
                env=env,
                inherit_env=True,
                on_pre_tool_use=block,
                permission_mode="acceptEdits",
            )
            outcome = await bridle.run("go", **given)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    require(seen, f"the hook was not called; {ended(outcome)}")
    expect("files", stage.files, [])
    return "the hook was called and the tool did not run"


@promise(
    "start.unknown_request",
    "A control request that the CLI does not know ends in a typed error.",
    depends="session.control, typed control methods on older CLIs",
)
async def unknown_request(stage: Stage) -> str:
    async with Model([[text("hello")]]) as model, stage.session(model) as session:
        try:
            reply = await session.control("bridle_no_such_request", timeout=2.0)
        except ControlError as error:
            outcome = await send(session)
            require(outcome.ok, f"after the request, {ended(outcome)}")
            return f"{type(error).__name__}; the session went on"
        raise Broken(f"the CLI answered {reply!r:.100}")


@promise(
    "start.settings",
    "set_model and set_permission_mode take effect in a running session.",
    depends="Session.set_model, Session.set_permission_mode",
)
async def settings(stage: Stage) -> str:
    script = [[text("one")], [stage.write()], [text("two")]]
    async with Model(script) as model, stage.session(model) as session:
        await send(session)
        await session.set_model("claude-opus-4-5")
        await session.set_permission_mode("acceptEdits")
        outcome = await send(session)
        models = [request.model for request in model.asked]
    require(models[1].startswith("claude-opus-4-5"), f"the next request was for {models[1]}")
    expect("files", stage.files, ["note.txt"])
    return f"{models[1]}; the file was written without a permission request; {ended(outcome)}"


@promise(
    "start.mcp_server",
    "A tool of an MCP server process is called, and its status is readable.",
    depends="mcp_config, session.mcp.status",
)
async def mcp_server(stage: Stage) -> str:
    from bridle.testing._verify.asking_server import server_config

    config = {"mcpServers": {"form": server_config(stage.directory, asks=False)}}
    async with Model([[tool_use("mcp__form__ask")], [text(DONE)]]) as model:
        allowed = ["mcp__form__ask"]
        async with stage.session(model, mcp_config=config, allowed_tools=allowed) as session:
            outcome = await send(session)
            status = await session.mcp.status()
        result = model.asked[1].last_tool_result
    expect("the result of the tool", result, "plain")
    states = {server.name: server.status for server in status.servers}
    expect("the status", states.get("form"), "connected")
    return f"the tool returned {result!r}; {ended(outcome)}"


@promise(
    "start.end_input",
    "After end_input the CLI finishes its turn and exits with 0.",
    depends="Session.end_input, Session.aclose, one-way queries",
)
async def end_input(stage: Stage) -> str:
    held = Reply(blocks=(text("finished"),), hold=True)
    async with Model([held]) as model, stage.session(model) as session:
        events = session.events()
        turn = await session.send_user_message("go")
        await model.wait_for_hold()
        await session.end_input()
        model.release()
        outcome = await turn
        last = [event async for event in events][-1]
    expect("the answer", outcome.text, "finished")
    require(
        isinstance(last, SessionCompleted) and last.exit_code == 0,
        f"the last event was {last!r:.200}",
    )
    return "the turn completed, exit code 0"
