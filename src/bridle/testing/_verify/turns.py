"""Promises about turns and their outcomes."""

from __future__ import annotations

import asyncio
import math
import os
import signal

import bridle
from bridle import AssistantMessage, OutcomeReason, ResultMessage
from bridle.testing._verify.promises import TESTED_SINCE, expect, promise, require
from bridle.testing._verify.stage import DONE, Model, Stage, ended
from bridle.testing.model_request import ModelRequest
from bridle.testing.script import Answer, Block, Reply, error, repeat, text, tool_use

_ANSWER = {"animal": "horse", "legs": 4}


@promise(
    "turn.merged",
    "Prompts that the CLI merges get one outcome each, and are paid for once.",
    depends="Turn, Outcome.merged_with, Outcome.cost_usd",
)
async def merged(stage: Stage) -> str:
    first = Reply(blocks=(text("to the first"),), hold=True)
    async with (
        Model([first, repeat([text("to the others")])]) as model,
        stage.session(model) as session,
    ):
        turns = [await session.send_user_message("one")]
        await model.wait_for_hold()
        turns += [await session.send_user_message(words) for words in ("two", "three")]
        await session.ping()
        model.release()
        outcomes = await asyncio.gather(*(turn.outcome() for turn in turns))
    expect("the answers", [one.text for one in outcomes], ["to the first"] + ["to the others"] * 2)
    merged = [one.merged_with for one in outcomes]
    is_merged = merged == [(), (turns[2].uuid,), (turns[1].uuid,)]
    require(is_merged or merged == [(), (), ()], f"merged with: {merged}")
    result = outcomes[2].result
    total = result.total_cost_usd if result else None
    paid = sum(one.cost_usd or 0.0 for one in outcomes)
    require(total and math.isclose(paid, total, rel_tol=1e-6), f"paid {paid}, in total {total}")
    answers = "two" if is_merged else "three"
    return f"three prompts, {answers} answers, three outcomes"


@promise(
    "turn.typed_output",
    "The answer of a run with an output type is a value of that type.",
    depends="output_type",
    since=TESTED_SINCE,
)
async def typed_output(stage: Stage) -> str:
    script = [[tool_use("StructuredOutput", **_ANSWER)], [text(DONE)]]
    async with Model(script) as model:
        agent = stage.agent(model)
        outcome = await agent.run("go", output_type=dict[str, str | int])
        expect("the output", outcome.output, _ANSWER)
    return f"the output was {outcome.output}"


@promise(
    "turn.output_missing",
    "A run whose typed output does not come is not a success.",
    depends="output_type",
)
async def output_missing(stage: Stage) -> str:
    async with Model(lambda _: [text("no idea")]) as model:
        agent = stage.agent(model)
        outcome = await agent.run("go", output_type=dict[str, int], output_retries=0)
    require(
        outcome.reason in (OutcomeReason.OUTPUT_MISSING, OutcomeReason.OUTPUT_INVALID),
        ended(outcome),
    )
    expect("the output", outcome.output, None)
    return ended(outcome)


@promise(
    "turn.verbatim",
    "With verbatim_prompts, a path after @ in a prompt does not attach the file.",
    depends="verbatim_prompts",
)
async def verbatim(stage: Stage) -> str:
    secret = stage.directory / "secret.txt"
    secret.write_text("the content of the file")
    prompt = f"look at @{secret} please"
    _, model = await stage.ask([[text(DONE)]], prompt, verbatim_prompts=True)
    read = str(model.asked[0].messages)
    require("the content of the file" not in read, "the model read the file")
    require(prompt in read, "the prompt did not reach the model unchanged")
    return "the model read the prompt only"


@promise(
    "turn.api_error",
    "An error of the API ends the turn with a typed, retryable outcome.",
    depends="Outcome.reason, Outcome.retryable, Retry",
    since=TESTED_SINCE,
)
async def api_error(stage: Stage) -> str:
    def reply(request: ModelRequest) -> Answer:
        return [text("next")] if "again" in request.last_user_text else error(529)

    (failed, after), _ = await stage.ask(reply, "go", "again")
    expect("reason and retryable", (failed.reason, failed.retryable), ("api_error", True))
    expect("status", failed.api_status, 529)
    expect("the next answer", after.text, "next")
    return f"{ended(failed)}, status {failed.api_status}"


@promise(
    "turn.stream",
    "The deltas of an answer join to its text.",
    depends="Turn.text_stream, Turn.events",
    since=TESTED_SINCE,
)
async def stream(stage: Stage) -> str:
    answer = text("one two three", chunks=["one ", "two ", "three"])
    async with (
        Model([[answer]]) as model,
        stage.session(model, include_partial_messages=True) as session,
    ):
        turn = await session.send_user_message("go")
        deltas = [delta async for delta in turn.text_stream()]
        outcome = await turn
    expect("the text", ("".join(deltas), outcome.text), ("one two three",) * 2)
    require(len(deltas) > 1, f"the text came in {len(deltas)} delta")
    return f"{len(deltas)} deltas"


@promise(
    "turn.query",
    "A one-way query yields its messages up to the result, and ends.",
    depends="bridle.query",
)
async def query(stage: Stage) -> str:
    async with Model([[text("hello")]]) as model:
        stream = bridle.query("go", **stage.options(model))
        messages = [message async for message in stream]
    said = [one.text for one in messages if isinstance(one, AssistantMessage)]
    results = [one.subtype for one in messages if isinstance(one, ResultMessage)]
    expect("the answers", said, ["hello"])
    expect("the results", results, ["success"])
    return f"{len(messages)} messages"


@promise(
    "turn.background",
    "A run waits for the background commands that its turn started.",
    depends="bridle.run, Agent.run",
    since=TESTED_SINCE,
)
async def background(stage: Stage) -> str:
    call = tool_use(
        "Bash", command="sleep 0.5; touch made", run_in_background=True, description="wait"
    )
    async with Model([[call], [text("started")], [text("it is done")]]) as model:
        given = stage.options(model, allowed_tools=["Bash"])
        outcome = await bridle.run("go", **given)
    expect("the answer", outcome.text, "it is done")
    expect("files", stage.files, ["made"])
    return ended(outcome)


@promise(
    "turn.subagent",
    "A run waits for a subagent, and its model calls count.",
    depends="bridle.run, Outcome.cost_usd",
)
async def subagent(stage: Stage) -> str:
    usage = {"input_tokens": 1000, "output_tokens": 100}

    def reply(request: ModelRequest) -> Reply:
        blocks: list[Block]
        if request.agent_id is not None or "look around" in request.last_user_text:
            blocks = [text("the agent's report")]
        elif request.last_tool_result is None:
            task = {"description": "look", "prompt": "look around", "run_in_background": False}
            blocks = [tool_use("Task", subagent_type="general-purpose", **task)]
        else:
            blocks = [text(DONE)]
        return Reply(blocks=tuple(blocks), usage=usage)

    async with Model(reply) as model:
        outcome = await bridle.run("go", **stage.options(model))
        reported = "the agent's report" in str(model.asked[-1].messages)
        calls = len(model.asked)
    require(outcome.ok and reported, f"{ended(outcome)}, with the report: {reported}")
    expect("the cost", round(outcome.cost_usd or 0, 6), round(calls * 0.0045, 6))
    return f"{calls} model calls, ${outcome.cost_usd:.4f}"


@promise(
    "turn.rewind",
    "rewind_files puts back the files of a turn.",
    depends="file_checkpointing_enabled, Session.rewind_files",
    since=TESTED_SINCE,
)
async def rewind(stage: Stage) -> str:
    (stage.work / "note.txt").write_text("before")
    path = str(stage.work / "note.txt")
    script = [
        [tool_use("Read", file_path=path)],
        [stage.write("note.txt", "after"), stage.write("new.txt")],
        [text(DONE)],
    ]
    options = {"file_checkpointing_enabled": True, "permission_mode": "acceptEdits"}
    async with Model(script) as model, stage.session(model, **options) as session:
        turn = await session.send_user_message("go")
        await turn
        expect("the file after the turn", (stage.work / "note.txt").read_text(), "after")
        await session.rewind_files(turn.uuid, timeout=10.0)
    expect("the file after the rewind", (stage.work / "note.txt").read_text(), "before")
    expect("files", stage.files, ["note.txt"])
    return "one file has its old content, one is gone"


@promise(
    "turn.cli_killed",
    "A turn whose CLI is killed ends at once as cli_exited.",
    depends="Outcome.reason, Retry, pools",
)
async def cli_killed(stage: Stage) -> str:
    held = Reply(blocks=(text(DONE),), hold=True)
    async with Model([held]) as model, stage.session(model) as session:
        turn = await session.send_user_message("go")
        await model.wait_for_hold()
        assert session.pid is not None, "the session runs"
        os.kill(session.pid, signal.SIGKILL)
        outcome = await turn
    expect("reason and retryable", (outcome.reason, outcome.retryable), ("cli_exited", True))
    return ended(outcome)
