"""A tour of a session on the real CLI: everything that works in both directions, once."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import until

from bridle import (
    AllowOnce,
    AssistantMessage,
    BidirOptions,
    CanUseToolContext,
    CheckpointingNotEnabled,
    ControlRejected,
    Deny,
    ModifyInput,
    OutcomeReason,
    PartialMessages,
    PreToolUseContext,
    ResultMessage,
    Session,
    SessionEnded,
    SessionReady,
    StreamEvent,
    ThinkingBlock,
    start_session,
)
from bridle.testing import (
    Block,
    ModelRequest,
    Reply,
    ScriptedModel,
    text,
    thinking,
    tool_use,
)

if TYPE_CHECKING:
    from tests.real.conftest import Lab

Json = dict[str, Any]


def write(lab: Lab, content: str, name: str = "note.txt") -> Block:
    """The model writes a file."""
    return tool_use("Write", file_path=str(lab.work / name), content=content)


# ---------------------------------------------------------------- hooks and permissions


@pytest.mark.longer
@pytest.mark.requirement("S092")
async def test_a_hook_sees_a_tool_call_and_changes_what_really_runs(lab: Lab) -> None:
    """R425, R438."""
    seen: list[PreToolUseContext] = []
    asked: list[Json] = []

    def change(context: PreToolUseContext) -> ModifyInput:
        seen.append(context)
        return ModifyInput({**context.tool_input, "content": "from the hook"})

    def allow(context: CanUseToolContext) -> AllowOnce:
        asked.append(context.tool_input)
        return AllowOnce()

    bidir = BidirOptions(on_pre_tool_use=change, on_can_use_tool=allow)
    script = [[write(lab, "from the model")], [text("done")]]
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        outcome = await (await session.send_user_message("write a note"))
        assert (outcome.reason, outcome.text) == (OutcomeReason.COMPLETED, "done")
        assert seen[0].session_id == session.id
    assert [(one.tool_name, one.tool_input["content"]) for one in seen] == [
        ("Write", "from the model")
    ]
    assert [tool_input["content"] for tool_input in asked] == ["from the hook"]
    assert (lab.work / "note.txt").read_text("utf-8") == "from the hook"


@pytest.mark.longer
@pytest.mark.requirement("S102")
async def test_a_denied_write_leaves_no_file_and_the_model_reads_why(lab: Lab) -> None:
    """R438, R439."""
    bidir = BidirOptions(on_can_use_tool=lambda context: Deny("the disk is a museum"))
    async with (
        ScriptedModel([[write(lab, "graffiti")], [text("sorry")]]) as model,
        start_session(lab.cli(model), lab.sdk, bidir) as session,
    ):
        outcome = await (await session.send_user_message("write"))
        assert outcome.ok
        assert outcome.result is not None
        assert [one.tool_name for one in outcome.result.permission_denials] == ["Write"]
        assert model.requests[1].last_tool_result == "the disk is a museum"
    assert not (lab.work / "note.txt").exists()


# ---------------------------------------------------------------- what the model says


@pytest.mark.requirement("S094")
async def test_thinking_and_text_arrive_whole_and_as_deltas(lab: Lab) -> None:
    """R379, R380, C38."""
    script = [[thinking("First I think."), text("Then I speak.", chunks=["Then ", "I ", "speak."])]]
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model, include_partial_messages=True), lab.sdk) as session,
    ):
        turn = await session.send_user_message("hello")
        messages = [message async for message in turn]
        events = [message for message in messages if isinstance(message, StreamEvent)]
        blocks = [
            block
            for message in messages
            if isinstance(message, AssistantMessage)
            for block in message.content
        ]
        thoughts = [block for block in blocks if isinstance(block, ThinkingBlock)]
        assert [block.thinking for block in thoughts] == ["First I think."]
        assert "".join(event.thinking_delta or "" for event in events) == "First I think."
        told = [event.text_delta for event in events if event.text_delta]
        assert told == ["Then ", "I ", "speak."]
        assert isinstance(messages[-1], ResultMessage)
        growing = PartialMessages()
        partial = [sofar for message in messages if (sofar := growing.feed(message))]
        assert all(message.is_partial for message in partial)
        assert not any(m.is_partial for m in messages if isinstance(m, AssistantMessage))
        assert list(dict.fromkeys(message.text for message in partial)) == [
            "",
            "Then ",
            "Then I ",
            "Then I speak.",
        ]
        thought = partial[-1].content[0]
        assert isinstance(thought, ThinkingBlock)
        assert thought == thoughts[0]


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("partial", [True, False], ids=["partial", "whole"])
async def test_the_text_of_a_turn_is_streamed_without_repetition(lab: Lab, partial: bool) -> None:
    cli_options = {"include_partial_messages": partial}
    async with (
        ScriptedModel([[text("one two three", chunks=3)]]) as model,
        start_session(lab.cli(model, **cli_options), lab.sdk) as session,
    ):
        turn = await session.send_user_message("count")
        pieces = [piece async for piece in turn.text_stream()]
        assert "".join(pieces) == "one two three"
        assert len(pieces) == (3 if partial else 1)
        assert (await turn).text == "one two three"


@pytest.mark.longer(after=1)
@pytest.mark.parametrize("partial", [True, False], ids=["partial", "whole"])
async def test_texts_around_a_tool_call_are_separated_by_a_blank_line(
    lab: Lab, partial: bool
) -> None:
    call = tool_use("Glob", pattern="*", path=str(lab.work))
    script = [[text("Let me look."), call], [text("Done."), text("Really.")]]
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model, include_partial_messages=partial), lab.sdk) as session,
    ):
        turn = await session.send_user_message("look")
        said = "".join([piece async for piece in turn.text_stream()])
        assert said == "Let me look.\n\nDone.\n\nReally."
        assert (await turn).text == "Really."


# ---------------------------------------------------------------- operations


@pytest.mark.longer
async def test_another_model_is_asked_from_the_next_request_on(lab: Lab) -> None:
    """R351, R425, C37."""
    async with (
        ScriptedModel([[text("a")], [text("b")], [text("c")]]) as model,
        start_session(lab.cli(model), lab.sdk) as session,
    ):
        await (await session.send_user_message("first"))
        await session.set_model("claude-haiku-4-5")
        outcome = await (await session.send_user_message("second"))
        await session.set_model(None)
        await (await session.send_user_message("third"))
        assert outcome.text == "b"
        first, second, third = [request.model for request in model.requests]
        assert first == "claude-sonnet-4-5"
        assert second.startswith("claude-haiku-4-5")
        assert not third.startswith("claude-haiku")


@pytest.mark.longer
async def test_another_permission_mode_counts_for_the_next_tool(lab: Lab) -> None:
    """R010, R012, R425: and everything of it comes in one stream, in order."""
    asked: list[str] = []

    def refuse(context: CanUseToolContext) -> Deny:
        asked.append(context.tool_name)
        return Deny("not yet")

    bidir = BidirOptions(on_can_use_tool=refuse)
    script = [[write(lab, "a", "a")], [text("no")], [write(lab, "b", "b")], [text("yes")]]
    async with ScriptedModel(script) as model:
        async with start_session(lab.cli(model), lab.sdk, bidir) as session:
            updates = session.subscribe()
            await (await session.send_user_message("first"))
            await session.set_permission_mode("acceptEdits")
            await (await session.send_user_message("second"))
        told = [update async for update in updates]
    results = [update.result for update in told if isinstance(update, ResultMessage)]
    assert (results, asked) == (["no", "yes"], ["Write"])
    assert (type(told[0]), type(told[-1])) == (SessionReady, SessionEnded)
    assert [path.name for path in sorted(lab.work.iterdir()) if path.is_file()] == ["b"]


async def test_text_of_an_answer_whose_stream_broke_off_comes_once(lab: Lab) -> None:
    answer = text("one two three", chunks=["one ", "two ", "three"])
    cut = Reply(blocks=(answer,), cut_after=4)
    async with (
        ScriptedModel([cut, [answer]]) as model,
        start_session(lab.cli(model, include_partial_messages=True), lab.sdk) as session,
    ):
        turn = await session.send_user_message("count")
        pieces = [piece async for piece in turn.text_stream()]
        assert "".join(pieces) == (await turn).text == "one two three"
        assert len(model.requests) == 2


@pytest.mark.requirement("S093")
async def test_an_interrupt_ends_a_slow_answer_and_the_next_turn_works(lab: Lab) -> None:
    """R425."""
    slow = Reply(blocks=(text("one two", chunks=["one ", "two"]),), hold=True, hold_after=4)
    async with (
        ScriptedModel([slow, [text("still here")]]) as model,
        start_session(lab.cli(model, include_partial_messages=True), lab.sdk) as session,
    ):
        turn = await session.send_user_message("take your time")
        await model.wait_for_hold()
        pieces = turn.text_stream()
        assert await anext(pieces) == "one "
        await session.interrupt()
        outcome = await turn
        assert outcome.reason is OutcomeReason.INTERRUPTED
        assert not outcome.ok
        assert outcome.text == "one "
        again = await (await session.send_user_message("and now?"))
        assert (again.reason, again.text) == (OutcomeReason.COMPLETED, "still here")


@pytest.mark.longer
async def test_files_are_put_back_to_how_they_were_at_a_prompt(lab: Lab) -> None:
    """R403, C34."""
    note = lab.work / "note.txt"
    note.write_text("before", "utf-8")
    bidir = BidirOptions(file_checkpointing_enabled=True)
    script = [
        [tool_use("Read", file_path=str(note))],
        [tool_use("Write", file_path=str(note), content="after")],
        [write(lab, "born", "new.txt")],
        [text("written")],
    ]
    options = {"permission_mode": "acceptEdits"}
    async with (
        ScriptedModel(script) as model,
        start_session(lab.cli(model, **options), lab.sdk, bidir) as session,
    ):
        turn = await session.send_user_message("write")
        assert (await turn).ok
        assert note.read_text("utf-8") == "after"

        preview = await session.rewind_files(turn.uuid, dry_run=True)
        assert preview["canRewind"] is True
        assert set(preview["filesChanged"]) == {  # type: ignore[call-overload]  # any JSON
            str(note),
            str(lab.work / "new.txt"),
        }
        assert note.read_text("utf-8") == "after"

        assert (await session.rewind_files(turn.uuid))["canRewind"] is True
        assert note.read_text("utf-8") == "before"
        assert not (lab.work / "new.txt").exists()

        with pytest.raises(ControlRejected, match="No file checkpoint"):
            await session.rewind_files(str(uuid.uuid4()))
        unknown = await session.rewind_files(str(uuid.uuid4()), dry_run=True)
        assert unknown["canRewind"] is False


@pytest.mark.longer
async def test_the_id_of_a_conversation_is_none_until_the_cli_says_which_goes_on(lab: Lab) -> None:
    async with ScriptedModel([[text("one")], [text("two")]]) as model:
        async with start_session(lab.cli(model), lab.sdk) as session:
            begun = session.id
            assert begun is not None
            assert (await (await session.send_user_message("one"))).session_id == begun
        options = lab.cli(model, continue_session=True)
        async with start_session(options, lab.sdk) as session:
            assert session.id is None
            assert (await (await session.send_user_message("two"))).session_id == begun
            assert str(session.id) == begun


@pytest.mark.longer
async def test_a_file_that_was_edited_is_put_back_prompt_by_prompt(lab: Lab) -> None:
    """R403: Edit is covered as Write is, and each prompt has its own checkpoint."""
    note = lab.work / "note.txt"
    note.write_text("one two", "utf-8")

    def edit(old: str, new: str) -> Block:
        return tool_use("Edit", file_path=str(note), old_string=old, new_string=new)

    script = [
        [tool_use("Read", file_path=str(note))],
        [edit("one", "1")],
        [text("first")],
        [edit("two", "2")],
        [text("second")],
    ]
    async with (
        ScriptedModel(script) as model,
        start_session(
            lab.cli(model, permission_mode="acceptEdits"),
            lab.sdk,
            BidirOptions(file_checkpointing_enabled=True),
        ) as session,
    ):
        first = await session.send_user_message("first")
        assert (await first).text == "first"
        second = await session.send_user_message("second")
        assert (await second).text == "second"
        assert note.read_text("utf-8") == "1 2"
        await session.rewind_files(second.uuid)
        assert note.read_text("utf-8") == "1 two"
        await session.rewind_files(first.uuid)
        assert note.read_text("utf-8") == "one two"


@pytest.mark.longer
async def test_files_cannot_be_put_back_where_checkpoints_were_not_asked_for(lab: Lab) -> None:
    async with (
        ScriptedModel([[text("hi")]]) as model,
        start_session(lab.cli(model), lab.sdk) as session,
    ):
        turn = await session.send_user_message("hello")
        await turn
        with pytest.raises(CheckpointingNotEnabled):
            await session.rewind_files(turn.uuid)
        with pytest.raises(CheckpointingNotEnabled):
            await session.rewind_files(turn.uuid, dry_run=True)
        assert session.alive


@pytest.mark.longer
async def test_operations_issued_before_the_session_is_ready_wait_for_it(lab: Lab) -> None:
    """R251, C29."""
    async with ScriptedModel([[text("early")]]) as model:
        session = Session(lab.cli(model), lab.sdk)
        connecting = asyncio.create_task(session.connect())
        await until(lambda: session.lifecycle == "init_sent")
        turn = await session.send_user_message("as soon as you can")
        assert session.alive
        assert await session.ping() < 30
        await connecting
        assert (await turn).text == "early"
        await session.aclose()


# ---------------------------------------------------------------- who gets which answer


def is_about(request: ModelRequest, words: str) -> bool:
    """Whether the last message speaks of this; the CLI's own reminders count too."""
    return words in str(request.messages[-1]["content"])


@pytest.mark.longer
async def test_the_turns_of_background_agents_do_not_shift_answers(lab: Lab) -> None:
    agent_may_end = threading.Event()

    def model_says(request: ModelRequest) -> Reply | list[Block]:
        if request.agent_id is not None:
            return Reply(blocks=(text("the agent's report"),), hold=agent_may_end)
        if is_about(request, "task-notification"):
            return Reply(blocks=(text("the agent is done"),), hold=True)
        if is_about(request, "beta"):
            return [text("answer to beta")]
        if request.last_tool_result is None:
            task = {"description": "look", "prompt": "look around", "run_in_background": True}
            return [tool_use("Task", subagent_type="general-purpose", **task)]
        return [text("answer to alpha")]

    async with (
        ScriptedModel(model_says) as model,
        start_session(lab.cli(model), lab.sdk) as session,
    ):
        alpha = await (await session.send_user_message("alpha"))
        assert (alpha.reason, alpha.text) == (OutcomeReason.COMPLETED, "answer to alpha")
        agent_may_end.set()
        # The first hold was the agent's; the second is the turn about it, which nobody asked.
        await model.wait_for_hold(2)
        turn = await session.send_user_message("beta")
        await session.ping()  # answered in order: by now the prompt is read
        model.release()
        beta = await turn
        assert (beta.reason, beta.text) == (OutcomeReason.COMPLETED, "answer to beta")
        assert beta.merged_with == ()


@pytest.mark.both_clis
async def test_an_agent_runs_in_the_background_only_where_the_cli_puts_it_there(lab: Lab) -> None:
    def model_says(request: ModelRequest) -> list[Block]:
        if request.agent_id is not None:
            return [text("the agent's report")]
        if is_about(request, "task-notification"):
            return [text("the agent is done")]
        if request.last_tool_result is None:
            task = {"description": "look", "prompt": "look around"}
            return [tool_use("Task", subagent_type="general-purpose", **task)]
        return [text("answer")]

    async with (
        ScriptedModel(model_says) as model,
        start_session(lab.cli(model), lab.sdk) as session,
    ):
        results: asyncio.Queue[ResultMessage] = asyncio.Queue()
        reader = asyncio.create_task(forward_results(session, results))
        outcome = await (await session.send_user_message("go"))
        assert outcome.text == "answer"
        assert (await results.get()).result == "answer"
        if lab.is_newest:
            follow_up = await results.get()
            assert follow_up.result == "the agent is done"
            assert follow_up.origin is not None
        reader.cancel()


async def forward_results(session: Session, results: asyncio.Queue[ResultMessage]) -> None:
    """Pass on the results among a session's messages."""
    async for message in session.messages():
        if isinstance(message, ResultMessage):
            results.put_nowait(message)


@pytest.mark.longer
async def test_three_prompts_at_once_get_an_outcome_each_and_are_counted_once(lab: Lab) -> None:
    first = Reply(blocks=(text("to the first"),), hold=True)
    async with (
        ScriptedModel([first, [text("to the others")]]) as model,
        start_session(lab.cli(model), lab.sdk) as session,
    ):
        turns = [await session.send_user_message("one")]
        await model.wait_for_hold()
        turns += [await session.send_user_message(words) for words in ("two", "three")]
        await session.ping()  # answered in order: by now both are read
        model.release()
        one, two, three = await asyncio.gather(*(turn.outcome() for turn in turns))
        assert [o.text for o in (one, two, three)] == ["to the first"] + ["to the others"] * 2
        assert (one.merged_with, two.merged_with, three.merged_with) == (
            (),
            (turns[2].uuid,),
            (turns[1].uuid,),
        )
        assert three.result is not None
        costs = [outcome.cost_usd or 0.0 for outcome in (one, two, three)]
        assert sum(costs) == pytest.approx(three.result.total_cost_usd)
        assert costs[0] > 0
        assert sorted(costs[1:])[0] == 0
