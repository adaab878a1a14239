"""What a session does, it does through every door: each behaviour is written once and run on both.

The behaviours are written for the asynchronous door. The blocking one stands in for it behind
:class:`Blocking`, which makes every call in a thread and knows nothing but the names that differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, NamedTuple

import pytest
from tests.support.processes import is_alive, run

import bridle
from bridle import (
    Allow,
    AssistantMessage,
    BidirOptions,
    Block,
    CliNotFoundError,
    CliOptions,
    ControlTimeout,
    Deny,
    OptionsError,
    OutcomeReason,
    ResultMessage,
    SessionEnded,
    SessionReady,
    SessionStopped,
    ToolServer,
    sync,
)
from bridle._doors.run import run as run_prompt
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

# ---------------------------------------------------------------- the doors

WAITS_FOR_NOTHING = {"messages", "events", "subscribe", "text_stream"}
OVER = object()


class Blocking:
    """A blocking object in the shape of its asynchronous twin."""

    def __init__(self, twin: Any) -> None:
        self._twin = twin

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._twin, "close" if name == "aclose" else name)
        if not callable(value):
            return value
        if name in WAITS_FOR_NOTHING:
            return lambda: Blocking(value())
        return lambda *values, **named: self._call(value, *values, **named)

    async def _call(self, function: Callable[..., Any], *values: Any, **named: Any) -> Any:
        result = await asyncio.to_thread(function, *values, **named)
        return Blocking(result) if isinstance(result, sync.Turn) else result

    def __await__(self) -> Generator[Any, None, Any]:
        outcome: Coroutine[Any, Any, Any] = self.outcome()
        return outcome.__await__()

    async def __aiter__(self) -> AsyncIterator[Any]:
        items = iter(self._twin)
        while (item := await asyncio.to_thread(next, items, OVER)) is not OVER:
            yield item

    async def __aenter__(self) -> Blocking:
        await asyncio.to_thread(self._twin.__enter__)
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await asyncio.to_thread(self._twin.__exit__, *problem)


class Door(NamedTuple):
    """The ways in, in their asynchronous shape."""

    session: Callable[..., Any]
    run: Callable[..., Coroutine[Any, Any, Any]]


DOORS = {
    "async": Door(bridle.Session, run_prompt),
    "sync": Door(
        lambda *options: Blocking(sync.Session(*options)),
        lambda *values, **named: asyncio.to_thread(sync.run, *values, **named),
    ),
}


class Place:
    """A door, and the CLI behind it."""

    def __init__(self, door: str, cli: FakeCli) -> None:
        self._door = DOORS[door]
        self.cli = cli

    def options(self, **options: Any) -> CliOptions:
        return CliOptions(**{"cli_path": self.cli.path, **options})

    def session(self, bidir: BidirOptions | None = None, **options: Any) -> Any:
        """A session that is not connected yet."""
        return self._door.session(self.options(**options), None, bidir)

    async def run(self, prompt: str, **named: Any) -> Any:
        """The outcome of one prompt."""
        return await self._door.run(prompt, **{"cli": self.options(), **named})


# ---------------------------------------------------------------- the behaviours


async def a_turn_has_messages_and_an_outcome(place: Place) -> None:
    async with place.session() as session:
        turn = await session.send_user_message("hello")
        messages = [message async for message in turn]
        assert isinstance(messages[-1], ResultMessage)
        assert [message.text for message in messages if isinstance(message, AssistantMessage)] == [
            "You said: hello"
        ]
        outcome = await turn
        assert (outcome.ok, outcome.text, turn.done) == (True, "You said: hello", True)
        assert outcome.session_id == session.id


async def one_call_gives_one_outcome(place: Place) -> None:
    outcome = await place.run("hello", keep_messages=True)
    assert (outcome.ok, outcome.text) == (True, "You said: hello")
    assert isinstance(outcome.messages[-1], ResultMessage)
    with pytest.raises(CliNotFoundError):
        await place.run("hello", cli=CliOptions(cli_path="/nowhere/claude"))


async def text_comes_in_pieces(place: Place) -> None:
    async with place.session(include_partial_messages=True) as session:
        turn = await session.send_user_message("STREAM 50")
        pieces = [piece async for piece in turn.text_stream()]
        assert "".join(pieces) == "word " * 50
        assert len(pieces) > 10


async def one_prompt_follows_the_other(place: Place) -> None:
    async with place.session() as session:
        for word in ("one", "two", "three"):
            outcome = await (await session.send_user_message(word))
            assert outcome.text == f"You said: {word}"


async def prompts_that_wait_become_one_turn(place: Place) -> None:
    async with place.session() as session:
        turns = [await session.send_user_message(word) for word in ("SLOW", "two", "three")]
        await session.interrupt()
        first, second, third = [await turn for turn in turns]
        assert first.reason is OutcomeReason.INTERRUPTED
        assert (second.ok, third.ok) == (True, True)
        assert second.merged_with == (turns[2].uuid,)
        assert third.merged_with == (turns[1].uuid,)


async def an_interrupted_session_goes_on(place: Place) -> None:
    async with place.session() as session:
        turn = await session.send_user_message("SLOW")
        await session.interrupt()
        assert (await turn).reason is OutcomeReason.INTERRUPTED
        assert (await (await session.send_user_message("again"))).text == "You said: again"


async def hooks_are_asked(place: Place) -> None:
    seen: list[str] = []

    def guard(ctx: bridle.PreToolUseContext) -> Block:
        seen.append(ctx.tool_input["command"])
        return Block("not here")

    async def stopping(_: bridle.StopContext) -> None:
        seen.append("stop")

    async with place.session(BidirOptions(on_pre_tool_use=guard, on_stop=stopping)) as session:
        outcome = await (await session.send_user_message("BASH rm -rf /"))
        assert "not here" in outcome.text
        assert seen == ["rm -rf /", "stop"]


async def permissions_are_asked(place: Place) -> None:
    async def judge(ctx: bridle.CanUseToolContext) -> Allow | Deny:
        return Allow() if ctx.tool_input["command"] == "ls" else Deny("only ls")

    async with place.session(BidirOptions(on_can_use_tool=judge)) as session:
        allowed = await (await session.send_user_message("BASH ls"))
        denied = await (await session.send_user_message("BASH mkfs"))
        assert "only ls" not in allowed.text
        assert "only ls" in denied.text


async def tools_are_called(place: Place) -> None:
    @bridle.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @bridle.tool
    async def double(a: int) -> int:
        """Double."""
        return 2 * a

    bidir = BidirOptions(
        mcp_servers={"calc": ToolServer([add, double])}, on_can_use_tool=lambda _: Allow()
    )
    async with place.session(bidir) as session:
        sum_ = await (await session.send_user_message('CALL mcp__calc__add {"a": 2, "b": 3}'))
        twice = await (await session.send_user_message('CALL mcp__calc__double {"a": 21}'))
        assert (sum_.text, twice.text) == ("5", "42")


async def settings_change_while_it_runs(place: Place) -> None:
    async with place.session() as session:
        await session.set_model("sonnet")
        await session.set_permission_mode("acceptEdits")
        assert await session.ping() > 0.0
        sent = [line["request"] for line in place.cli.received if "request" in line]
        assert {"subtype": "set_model", "model": "sonnet"} in sent
        assert {"subtype": "set_permission_mode", "mode": "acceptEdits"} in sent


async def subscriptions_see_the_whole_session(place: Place) -> None:
    session = place.session()
    async with session:
        await (await session.send_user_message("hello"))
        messages, events, updates = session.messages(), session.events(), session.subscribe()
    told = [event async for event in events]
    assert [type(event) for event in told] == [SessionReady, SessionEnded]
    assert ResultMessage in [type(message) async for message in messages]
    assert [type(update) async for update in updates][-1] is SessionEnded


async def a_refusal_of_the_api_is_an_outcome(place: Place) -> None:
    async with place.session() as session:
        outcome = await (await session.send_user_message("FAIL 529"))
        assert (outcome.ok, outcome.reason) == (False, OutcomeReason.API_ERROR)
        assert (await (await session.send_user_message("and now"))).ok


async def the_end_of_the_cli_is_an_outcome_and_an_error(place: Place) -> None:
    async with place.session() as session:
        outcome = await (await session.send_user_message("EXIT 3"))
        assert outcome.reason is OutcomeReason.CLI_EXITED
        with pytest.raises(bridle.ControlError):
            await session.ping()
        assert not session.alive


async def a_stopped_session_says_so(place: Place) -> None:
    session = place.session()
    await session.connect()
    turn = await session.send_user_message("SLOW")
    await session.stop()
    await session.stop()
    await session.aclose()
    assert (await turn).reason is OutcomeReason.STOPPED
    assert (session.alive, session.lifecycle) == (False, "stopped")
    assert not is_alive(session.pid)
    with pytest.raises(SessionStopped):
        await session.send_user_message("anybody?")


async def an_answer_may_be_late(place: Place) -> None:
    place.cli = FakeCli().expect_initialize().expect_request("mcp_status").ignore()
    async with place.session() as session:
        with pytest.raises(ControlTimeout):
            await session.ping(timeout=0.05)
    place.cli.close()


async def input_can_be_ended(place: Place) -> None:
    session = place.session()
    async with session:
        await session.end_input()
        assert [event async for event in session.events()][-1] == bridle.SessionCompleted()


async def a_missing_cli_is_a_start_error(place: Place) -> None:
    session = place.session(cli_path="/nowhere/claude")
    with pytest.raises(CliNotFoundError):
        await session.connect()
    assert (session.lifecycle, session.pid) == ("failed", None)


async def wrong_options_are_refused_at_once(place: Place) -> None:
    with pytest.raises(OptionsError, match="max_turns"):
        place.session(max_turns=-1)


async def a_session_connects_once(place: Place) -> None:
    async with place.session() as session:
        with pytest.raises(RuntimeError, match="connects once"):
            await session.connect()


BEHAVIOURS: dict[str, Callable[[Place], Coroutine[Any, Any, None]]] = {
    function.__name__: function
    for function in (
        a_turn_has_messages_and_an_outcome,
        one_call_gives_one_outcome,
        text_comes_in_pieces,
        one_prompt_follows_the_other,
        prompts_that_wait_become_one_turn,
        an_interrupted_session_goes_on,
        hooks_are_asked,
        permissions_are_asked,
        tools_are_called,
        settings_change_while_it_runs,
        subscriptions_see_the_whole_session,
        a_refusal_of_the_api_is_an_outcome,
        the_end_of_the_cli_is_an_outcome_and_an_error,
        a_stopped_session_says_so,
        an_answer_may_be_late,
        input_can_be_ended,
        a_missing_cli_is_a_start_error,
        wrong_options_are_refused_at_once,
        a_session_connects_once,
    )
}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_on_both_doors(behaviour: str, door: str, flavour: str) -> None:
    with FakeCli.auto(flavour=flavour) as cli:
        run(lambda: BEHAVIOURS[behaviour](Place(door, cli)))
