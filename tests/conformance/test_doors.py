"""What a door does, it does in both flavours: each behaviour is written once and run on each."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.support.doors import DOORS
from tests.support.processes import LIMIT, is_alive, run, until

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
    Limits,
    OptionsError,
    OutcomeReason,
    ResultMessage,
    SdkOptions,
    SessionEnded,
    SessionReady,
    SessionStopped,
    ToolContext,
    ToolServer,
    TransportError,
    UnsupportedCliVersionError,
)
from bridle.errors import TotalLimitError
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

# ---------------------------------------------------------------- the doors


class Place:
    """A door, and the CLI behind it."""

    def __init__(self, door: str, cli: FakeCli) -> None:
        self._door = DOORS[door]
        self.kind = self._door.kind
        self.cli = cli

    def options(self, **options: Any) -> CliOptions:
        return CliOptions(**{"cli_path": self.cli.path, **options})

    def session(
        self, bidir: BidirOptions | None = None, sdk: SdkOptions | None = None, **options: Any
    ) -> Any:
        """A session that is not connected yet."""
        return self._door.session(self.options(**options), sdk, bidir)

    def query(self, prompt: Any, sdk: SdkOptions | None = None) -> Any:
        """A stream that may have begun already."""
        return self._door.query(prompt, self.options(), sdk)

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


async def tools_know_their_session(place: Place) -> None:
    """It is of the flavour of the door."""
    known: list[Any] = []

    @bridle.tool
    async def know(ctx: ToolContext) -> str:
        """Know."""
        known.append(ctx.session)
        return f"{ctx.session.id}"

    bidir = BidirOptions(
        mcp_servers={"self": ToolServer([know])}, on_can_use_tool=lambda _: Allow()
    )
    async with place.session(bidir) as session:
        outcome = await (await session.send_user_message("CALL mcp__self__know"))
        assert outcome.text == session.id
    outcome = await place.run("CALL mcp__self__know", bidir=bidir)
    assert outcome.text == outcome.session_id
    assert [isinstance(one, place.kind) for one in known] == [True, True]


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
    with pytest.raises(OptionsError, match="prompt"):
        place.query(5)


async def a_cli_that_is_too_old_is_refused_whatever_is_permitted(place: Place) -> None:
    with FakeCli.auto().slow_start(0.2).version("1.9.9 (Claude Code)") as place.cli:
        for sdk in (SdkOptions(), SdkOptions(permissive_version_check=True)):
            with pytest.raises(UnsupportedCliVersionError):
                await place.session(sdk=sdk).connect()
            with pytest.raises(UnsupportedCliVersionError):
                await place.run("hello", sdk=sdk)
            with pytest.raises(UnsupportedCliVersionError):
                await read(place.query("hello", sdk))
        unasked = SdkOptions(skip_version_check=True)
        assert (await place.run("hello", sdk=unasked)).ok
        assert results(await read(place.query("hello", unasked))) == ["You said: hello"]


async def a_session_connects_once(place: Place) -> None:
    async with place.session() as session:
        with pytest.raises(RuntimeError, match="already started"):
            await session.connect()


# ---------------------------------------------------------------- the behaviours of queries


async def read(stream: Any, heard: list[Any] | None = None) -> list[Any]:
    """Everything a stream says; also in ``heard``, should it fail."""
    messages = [] if heard is None else heard
    async for message in stream:
        messages.append(message)
    return messages


def results(messages: list[Any]) -> list[str | None]:
    """The texts of the results."""
    return [message.result for message in messages if isinstance(message, ResultMessage)]


async def a_query_says_everything_in_order_and_ends(place: Place) -> None:
    looks = ("Bash", {"command": "ls"}, "nothing")
    with FakeCli().expect_initialize().turn("Hi.", tools=[looks]) as place.cli:
        stream = place.query("hello")
        messages = await read(stream)
        said = [message for message in messages if message.type in ("assistant", "user", "result")]
        assert [message.type for message in said] == ["assistant", "user", "assistant", "result"]
        assert (said[2].text, results(said)) == ("Hi.", ["Hi."])
        assert (stream.warnings, is_alive(stream.pid)) == ((), False)
        assert await read(stream) == [], "what is over stays over"


async def an_error_comes_after_the_last_message(place: Place) -> None:
    with FakeCli().expect_initialize().start_turn().assistant("one").exit(3) as place.cli:
        heard: list[Any] = []
        stream = place.query("hello")
        with pytest.raises(TransportError) as caught:
            await read(stream, heard)
        assert heard[-1].text == "one"
        assert (caught.value.exit_code, is_alive(stream.pid)) == (3, False)
        assert await read(stream) == []


async def after_a_result_an_exit_code_is_a_warning(place: Place) -> None:
    with FakeCli().expect_initialize().turn("Hi.").exit(3) as place.cli:
        stream = place.query("hello")
        assert results(await read(stream)) == ["Hi."]
        assert [str(warning.kind) for warning in stream.warnings] == ["exit_after_result"]


async def a_query_that_is_left_leaves_no_process(place: Place) -> None:
    async with place.query("SLOW") as stream:
        async for _ in stream:
            break
        pid = stream.pid
        assert is_alive(pid)
    assert not is_alive(pid)


async def a_query_that_is_dropped_leaves_no_process(place: Place) -> None:
    stream = place.query("SLOW")
    async for _ in stream:
        break
    pid = stream.pid
    assert is_alive(pid)
    del stream
    gc.collect()
    await until(lambda: not is_alive(pid))


async def prompts_stream_in_as_they_are_answered(place: Place) -> None:
    answered = threading.Semaphore(0)

    def prompts() -> Iterator[str]:
        for word in ("one", "two", "three"):
            yield word
            assert answered.acquire(timeout=LIMIT)

    heard: list[str] = []
    async for message in place.query(prompts()):
        if isinstance(message, ResultMessage):
            heard.append(message.result or "")
            answered.release()
    assert heard == ["You said: one", "You said: two", "You said: three"]


async def prompts_that_fail_end_the_query_with_what_they_raised(place: Place) -> None:
    def prompts() -> Iterator[str]:
        yield "SLOW"
        raise LookupError("no more prompts")

    stream = place.query(prompts())
    with pytest.raises(LookupError, match="no more prompts"):
        await read(stream)
    assert not is_alive(stream.pid)


async def a_limit_ends_a_query_after_what_came(place: Place) -> None:
    stream = place.query("SLOW", SdkOptions(limits=Limits(total=0.5)))
    heard: list[Any] = []
    with pytest.raises(TotalLimitError) as caught:
        await read(stream, heard)
    assert heard
    assert caught.value.outcome.reason is OutcomeReason.LIMIT_TOTAL
    assert caught.value.outcome.duration >= 0.5
    assert not is_alive(stream.pid)


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
        tools_know_their_session,
        settings_change_while_it_runs,
        subscriptions_see_the_whole_session,
        a_refusal_of_the_api_is_an_outcome,
        the_end_of_the_cli_is_an_outcome_and_an_error,
        a_stopped_session_says_so,
        an_answer_may_be_late,
        input_can_be_ended,
        a_missing_cli_is_a_start_error,
        wrong_options_are_refused_at_once,
        a_cli_that_is_too_old_is_refused_whatever_is_permitted,
        a_session_connects_once,
        a_query_says_everything_in_order_and_ends,
        an_error_comes_after_the_last_message,
        after_a_result_an_exit_code_is_a_warning,
        a_query_that_is_left_leaves_no_process,
        a_query_that_is_dropped_leaves_no_process,
        prompts_stream_in_as_they_are_answered,
        prompts_that_fail_end_the_query_with_what_they_raised,
        a_limit_ends_a_query_after_what_came,
    )
}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_on_both_doors(behaviour: str, door: str, flavour: str) -> None:
    """S003, S005, S013, S019."""
    with FakeCli.auto(flavour=flavour) as cli:
        run(lambda: BEHAVIOURS[behaviour](Place(door, cli)))
