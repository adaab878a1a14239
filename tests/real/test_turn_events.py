"""The events of a turn on the real CLIs: the same with and without partial messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.real.conftest import Lab
from tests.support.processes import until
from tests.support.turn_lines import joined

from bridle import (
    Allow,
    BidirOptions,
    OutcomeReason,
    ResultMessage,
    Session,
    Turn,
    start_session,
    sync,
)
from bridle.events import (
    BlockEnded,
    RetryScheduled,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolInput,
    ToolStarted,
    TurnEnded,
    TurnEvent,
)
from bridle.messages import AgentPath
from bridle.testing import (
    ModelRequest,
    Reply,
    Script,
    ScriptedModel,
    error,
    text,
    thinking,
    tool_use,
)
from bridle.testing.script import Answer

pytestmark = pytest.mark.longer

Act = Callable[[Turn, ScriptedModel], Coroutine[Any, Any, None]]

LIMIT = 60.0

Told = list[tuple[object, ...]]


def allow(_: object) -> Allow:
    return Allow()


async def events_of(
    lab: Lab,
    script: Script,
    *,
    partial: bool,
    act: Act | None = None,
    interrupt_at: Callable[[TurnEvent], bool] = lambda event: False,
    retries: int = 0,
) -> list[TurnEvent]:
    """Return the events of one turn."""
    async with (
        asyncio.timeout(LIMIT),
        ScriptedModel(script, retries=retries) as model,
        start_session(
            lab.cli(model, include_partial_messages=partial, forward_subagent_text=True),
            lab.sdk,
            BidirOptions(on_can_use_tool=allow),
        ) as session,
    ):
        turn = await session.send_user_message("go")
        acting = None if act is None else asyncio.create_task(act(turn, model))
        events: list[TurnEvent] = []
        async for event in turn.events():
            events.append(event)
            if interrupt_at(event):
                await turn.interrupt()
        if acting is not None:
            await acting
        return events


def names(path: AgentPath) -> str:
    return "/".join(part.type or "" for part in path)


def told(event: TurnEvent) -> tuple[object, ...]:
    """Return an event without ids, delays and the words of the CLI, which differ between runs."""
    rest: tuple[object, ...]
    match event:
        case TextDelta() | ThinkingDelta():
            rest = (event.text,)
        case ToolInput():
            rest = (event.name, event.input)
        case ToolEnded():
            is_ours = event.name == "Bash" and not event.is_error
            rest = (event.name, event.is_error, event.text if is_ours else "")
        case ToolStarted():
            rest = (event.name,)
        case BlockEnded():
            rest = (event.kind,)
        case SubagentStarted():
            rest = (event.description, event.prompt)
        case SubagentEnded():
            rest = (event.status,)
        case RetryScheduled():
            rest = (event.attempt, event.error_status, event.error)
        case _:
            rest = (str(event.outcome.reason), event.outcome.text)
    return (type(event).__name__, names(event.agent_path), *rest)


def play(lab: Lab, script: Callable[[], Script], act: Act | None = None, **rest: Any) -> Told:
    """Return the joined events, after checking that both ways give the same."""
    seen: list[Told] = []
    for partial in (True, False):
        events = asyncio.run(events_of(lab, script(), partial=partial, act=act, **rest))
        seen.append([told(event) for event in joined(events)])
    assert seen[0] == seen[1]
    return seen[0]


def call(name: str, path: str = "", **input: object) -> Told:
    """Return the events of a tool call up to the end of its block."""
    return [
        ("ToolStarted", path, name),
        ("ToolInput", path, name, input),
        ("BlockEnded", path, "tool_use"),
    ]


def said(words: str, path: str = "") -> Told:
    return [("TextDelta", path, words), ("BlockEnded", path, "text")]


@pytest.mark.longer
@pytest.mark.requirement("S118")
def test_text_thinking_and_tools(lab: Lab) -> None:
    script = [
        [thinking("hmm"), text("I look."), tool_use("Bash", command="echo hi")],
        [text("Done.")],
    ]
    assert play(lab, lambda: script) == [
        ("ThinkingDelta", "", "hmm"),
        ("BlockEnded", "", "thinking"),
        *said("I look."),
        *call("Bash", command="echo hi"),
        ("ToolEnded", "", "Bash", False, "hi"),
        *said("Done."),
        ("TurnEnded", "", "completed", "Done."),
    ]


AGENT: dict[str, Any] = {
    "description": "look",
    "prompt": "ALPHA",
    "subagent_type": "general-purpose",
    "run_in_background": False,
}
PATH = "general-purpose"


def with_subagent(request: ModelRequest) -> Answer:
    inside = "ALPHA" in str(request.messages[0])
    if request.last_tool_result:
        return [text("Inner done." if inside else "Done.")]
    if inside:
        return [thinking("inner"), tool_use("Bash", command="echo x")]
    return [text("I ask."), tool_use("Task", **AGENT)]


@pytest.mark.longer
def test_a_subagent(lab: Lab) -> None:
    assert play(lab, lambda: with_subagent) == [
        *said("I ask."),
        *call("Task", **AGENT),
        ("SubagentStarted", PATH, "look", "ALPHA"),
        ("ThinkingDelta", PATH, "inner"),
        ("BlockEnded", PATH, "thinking"),
        *call("Bash", PATH, command="echo x"),
        ("ToolEnded", PATH, "Bash", False, "x"),
        *said("Inner done.", PATH),
        ("SubagentEnded", PATH, "completed"),
        ("ToolEnded", "", "Task", False, ""),
        *said("Done."),
        ("TurnEnded", "", "completed", "Done."),
    ]


@pytest.mark.longer
def test_parallel_subagents_have_their_own_paths(lab: Lab) -> None:
    def player(request: ModelRequest) -> Answer:
        first = str(request.messages[0])
        for name in ("ALPHA", "BETA"):
            if name in first:
                return [text(name.lower()), text("more")]
        if request.last_tool_result:
            return [text("Done.")]
        return [tool_use("Task", **{**AGENT, "prompt": name}) for name in ("ALPHA", "BETA")]

    events = asyncio.run(events_of(lab, player, partial=True))
    calls = [event.id for event in events if isinstance(event, ToolStarted)]
    for id, word in zip(calls, ("alpha", "beta"), strict=True):
        mine = [event for event in events if [part.id for part in event.agent_path] == [id]]
        assert [told(event)[0:1] + told(event)[2:] for event in mine] == [
            ("SubagentStarted", "look", word.upper()),
            ("TextDelta", word),
            ("BlockEnded", "text"),
            ("TextDelta", "more"),
            ("BlockEnded", "text"),
            ("SubagentEnded", "completed"),
        ]


@pytest.mark.longer
def test_a_retry(lab: Lab) -> None:
    assert play(lab, lambda: [error(529), [text("Done.")]], retries=2) == [
        ("RetryScheduled", "", 1, 529, "overloaded"),
        *said("Done."),
        ("TurnEnded", "", "completed", "Done."),
    ]


@pytest.mark.longer
@pytest.mark.parametrize("first", [(), (thinking("hm"),)], ids=["text", "thinking first"])
def test_an_answer_whose_stream_broke_off_counts_once(lab: Lab, first: tuple[Any, ...]) -> None:
    words = text("one two three", chunks=["one ", "two ", "three"])
    script: Script = [Reply(blocks=(words,), cut_after=5, chunk_delay=0.2), [*first, words]]
    thought = [("ThinkingDelta", "", "hm"), ("BlockEnded", "", "thinking")] if first else []
    assert play(lab, lambda: script) == [
        *thought,
        *said("one two three"),
        ("TurnEnded", "", "completed", "one two three"),
    ]


@pytest.mark.longer
def test_an_interrupted_answer(lab: Lab) -> None:
    """The model has written one block, and pauses before the next one."""

    def held() -> Script:
        blocks = (text("one", 1), text("two"))
        return [Reply(blocks=blocks, hold=True, hold_after=5)]

    def is_end(event: TurnEvent) -> bool:
        return isinstance(event, BlockEnded)

    assert play(lab, held, interrupt_at=is_end) == [
        *said("one"),
        ("TurnEnded", "", "interrupted", "one"),
    ]


@pytest.mark.longer
def test_an_interrupted_subagent(lab: Lab) -> None:
    def sleeping(request: ModelRequest) -> Answer:
        if "ALPHA" in str(request.messages[0]):
            return [tool_use("Bash", command="touch started; sleep 60; echo y")]
        return [tool_use("Task", **AGENT)]

    async def act(turn: Turn, _: ScriptedModel) -> None:
        await until(lambda: (lab.work / "started").exists())
        (lab.work / "started").unlink()
        await turn.interrupt()

    assert play(lab, lambda: sleeping, act) == [
        *call("Task", **AGENT),
        ("SubagentStarted", PATH, "look", "ALPHA"),
        *call("Bash", PATH, command="touch started; sleep 60; echo y"),
        ("SubagentEnded", PATH, "stopped"),
        ("ToolEnded", "", "Task", True, ""),
        ("TurnEnded", "", "interrupted", ""),
    ]


# ---------------------------------------------------------------- interrupt


def with_session(lab: Lab, script: Script, body: Callable[[Session, ScriptedModel], Any]) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(LIMIT),
            ScriptedModel(script) as model,
            start_session(lab.cli(model), lab.sdk) as session,
        ):
            await body(session, model)

    asyncio.run(main())


@pytest.mark.longer
def test_a_queued_turn_is_cancelled_and_the_running_one_goes_on(lab: Lab) -> None:
    async def body(session: Session, model: ScriptedModel) -> None:
        first = await session.send_user_message("first")
        await model.wait_for_hold()
        second = await session.send_user_message("second")
        await second.interrupt()
        ended = [event async for event in second.events()][-1]
        assert isinstance(ended, TurnEnded)
        assert ended.outcome.reason is OutcomeReason.INTERRUPTED
        assert not first.done
        model.release()
        assert (await first).text == "one"
        assert len(model.requests) == 1

    with_session(lab, [Reply(blocks=(text("one"),), hold=True)], body)


def test_an_ended_turn_is_left_alone_while_the_next_one_runs(lab: Lab) -> None:
    async def body(session: Session, model: ScriptedModel) -> None:
        first = await session.send_user_message("first")
        await first
        second = await session.send_user_message("second")
        await model.wait_for_hold()
        await first.interrupt()
        model.release()
        assert (await second).text == "two"

    with_session(lab, [[text("one")], Reply(blocks=(text("two"),), hold=True)], body)


def test_the_running_turn_ends_and_the_queued_one_runs(lab: Lab) -> None:
    async def body(session: Session, model: ScriptedModel) -> None:
        first = await session.send_user_message("first")
        await model.wait_for_hold()
        second = await session.send_user_message("second")
        await first.interrupt()
        assert (await first).reason is OutcomeReason.INTERRUPTED
        assert (await second).text == "two"

    with_session(lab, [Reply(blocks=(text("one"),), hold=True), [text("two")]], body)


def test_a_turn_that_was_just_sent_is_ended(lab: Lab) -> None:
    """It may wait in the queue, or begin at this moment."""

    async def body(session: Session, _: ScriptedModel) -> None:
        turn = await session.send_user_message("first")
        await turn.interrupt()
        assert (await turn).reason is OutcomeReason.INTERRUPTED

    with_session(lab, [Reply(blocks=(text("one"),), hold=True)], body)


@pytest.mark.longer
def test_the_blocking_twins(lab: Lab) -> None:
    held = Reply(blocks=(text("one two", ["one ", "two"]),), hold=True, hold_after=4)
    with (
        ScriptedModel([held, [text("Done.")]]) as model,
        sync.start_session(lab.cli(model, include_partial_messages=True), lab.sdk) as session,
    ):
        turn = session.send_user_message("go")
        seen = []
        for event in turn.events():
            seen.append(told(event))
            if isinstance(event, TextDelta):
                turn.interrupt()
        assert seen == [*said("one "), ("TurnEnded", "", "interrupted", "one ")]
        messages = list(session.send_user_message("again"))
        assert isinstance(messages[-1], ResultMessage)
