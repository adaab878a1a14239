"""Every operation on the fake CLI: answered, refused, too late, withdrawn, cut short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.soak.sessions import Clock, long_holds, options, told_by
from tests.support.processes import LIMIT, is_alive, run, until

from bridle import (
    BidirOptions,
    CheckpointingNotEnabled,
    CliOptions,
    ConsumerTooSlow,
    ControlRejected,
    ControlTimeout,
    InitQueueOverflow,
    OptionsError,
    SdkOptions,
    Session,
    SessionCompleted,
    SessionEnded,
    SessionNotInitialized,
    SessionReady,
    SessionStopped,
    StartError,
    TooManyPendingRequests,
    start_session,
)
from bridle.testing import FakeCli
from bridle.testing.fake_cli import FLAVOURS

Operation = Callable[[Session], Awaitable[object]]
Json = Mapping[str, Any]

CHECKPOINTS = BidirOptions(file_checkpointing_enabled=True)

# Every operation: how it is called, and what the CLI is asked.
OPERATIONS: dict[str, tuple[Operation, Json]] = {
    "interrupt": (lambda s: s.interrupt(timeout=9.0), {"subtype": "interrupt"}),
    "interrupt all": (
        lambda s: s.interrupt(cancel_queued=True),
        {"subtype": "interrupt", "cancel_queued": True},
    ),
    "set_permission_mode": (
        lambda s: s.set_permission_mode("acceptEdits"),
        {"subtype": "set_permission_mode", "mode": "acceptEdits"},
    ),
    "set_model": (lambda s: s.set_model("opus"), {"subtype": "set_model", "model": "opus"}),
    "set_model default": (lambda s: s.set_model(None), {"subtype": "set_model", "model": None}),
    "rewind_files": (
        lambda s: s.rewind_files("u", dry_run=True),
        {"subtype": "rewind_files", "user_message_id": "u", "dry_run": True},
    ),
    "ping": (lambda s: s.ping(), {"subtype": "mcp_status"}),
    "control": (lambda s: s.control("of_tomorrow", a=[1], b={}), {"subtype": "of_tomorrow",
                                                                  "a": [1], "b": {}}),
}  # fmt: skip
SHORT: dict[str, Operation] = {
    "interrupt": lambda s: s.interrupt(timeout=0.1),
    "set_permission_mode": lambda s: s.set_permission_mode("plan", timeout=0.1),
    "set_model": lambda s: s.set_model("opus", timeout=0.1),
    "rewind_files": lambda s: s.rewind_files("u", timeout=0.1),
    "mcp_status": lambda s: s.ping(timeout=0.1),
    "of_tomorrow": lambda s: s.control("of_tomorrow", timeout=0.1),
}

greeted = FakeCli().expect_initialize()


# ---------------------------------------------------------------- one operation


@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_operation_sends_its_request_and_returns_with_the_answer(name: str) -> None:
    """R011 to R014."""
    operation, request = OPERATIONS[name]
    script = greeted.expect_request(str(request["subtype"])).reply({"seen": True})
    with script as cli:
        async with start_session(options(cli), bidir=CHECKPOINTS) as session:
            answer = await operation(session)
            sent = [line["request"] for line in cli.received if line["type"] != "user"]
            assert sent[1:] == [request]
            if name in ("control", "interrupt", "rewind_files"):
                assert answer == {"seen": True}
            elif name == "ping":
                assert isinstance(answer, float)
                assert answer > 0


@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_operation_the_cli_refuses_says_why(name: str) -> None:
    """R152, R347, R401, C04."""
    operation, request = OPERATIONS[name]
    subtype = str(request["subtype"])
    script = greeted.expect_request(subtype).refuse("not today", code="closed_on_sundays")
    with script.turn() as cli:
        async with start_session(options(cli), bidir=CHECKPOINTS) as session:
            with pytest.raises(ControlRejected, match="not today") as caught:
                await operation(session)
            error = caught.value
            assert (error.operation, error.error_code) == (subtype, "closed_on_sundays")
            assert error.request_id == "req_1"
            assert error.cli_path == cli.path
            assert (await (await session.send_user_message("go"))).ok


@pytest.mark.parametrize("subtype", SHORT)
async def test_an_operation_that_is_not_answered_in_time_says_so_and_a_late_answer_is_dropped(
    subtype: str,
) -> None:
    """R337, R342, C03."""
    script = greeted.expect_request(subtype).expect_request("get_settings").reply({"n": 2})
    with script.reply({"n": 1}).turn() as cli:
        async with start_session(options(cli), bidir=CHECKPOINTS) as session:
            clock = Clock()
            with pytest.raises(ControlTimeout) as caught:
                await SHORT[subtype](session)
            assert clock.elapsed > 0.09
            assert (caught.value.operation, caught.value.timeout) == (subtype, 0.1)
            assert isinstance(caught.value, TimeoutError)
            assert await session.control("get_settings") == {"n": 2}
            assert (await (await session.send_user_message("go"))).ok
        assert [type(event) for event in await told_by(session)] == [SessionReady, SessionEnded]


async def test_the_default_timeout_is_that_of_the_options() -> None:
    """R083, R339, C03."""
    with greeted.silence() as cli:
        async with start_session(options(cli), SdkOptions(control_timeout=0.1)) as session:
            with pytest.raises(ControlTimeout):
                await session.interrupt()
            await session.stop()


def test_a_cancelled_operation_is_withdrawn(caplog: pytest.LogCaptureFixture) -> None:
    """R019, R344: its answer is logged as one that nothing waits for."""
    caplog.set_level(logging.DEBUG, "bridle")

    async def main() -> None:
        script = greeted.expect_request("set_model").expect_request("get_settings").reply().reply()
        with script.turn() as cli:
            async with start_session(options(cli)) as session:
                asking = asyncio.ensure_future(session.set_model("opus"))
                await until(lambda: len(cli.received) == 2)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                await session.control("get_settings")
                assert (await (await session.send_user_message("go"))).ok

    run(main)
    assert len([one for one in caplog.messages if one.startswith("late_response: ")]) == 1


@pytest.mark.requirement("S078")
async def test_answers_find_their_operations_in_whatever_order_they_come() -> None:
    """R166, R167, R254: requests in flight beside a turn, answered last first."""
    script = greeted.start_turn().assistant("talking")
    for number in range(5):
        script = script.expect_request(f"ask_{number}")
    for number in reversed(range(5)):
        script = script.reply({"number": number}).assistant("and talking")
    with script.result() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            asked = [session.control(f"ask_{number}") for number in range(5)]
            answers = await asyncio.gather(*asked)
            assert answers == [{"number": number} for number in range(5)]
            assert (await turn).ok


@pytest.mark.parametrize("way", ["stop", "aclose"])
async def test_the_end_of_the_session_settles_what_is_pending_and_refuses_the_rest(
    way: str,
) -> None:
    """R007, R345, R358, C02."""
    with greeted.silence() as cli:
        session = await start_session(options(cli), bidir=CHECKPOINTS)
        pending = [
            asyncio.ensure_future(operation(session)) for operation, _ in OPERATIONS.values()
        ]
        await until(lambda: len(cli.received) == 1 + len(pending))
        ending = asyncio.ensure_future(session.stop() if way == "stop" else session.aclose())
        for answer in await asyncio.gather(*pending, return_exceptions=True):
            assert isinstance(answer, SessionStopped)
            assert answer.request_id is not None
        await session.stop()
        await ending
        for operation, _ in OPERATIONS.values():
            with pytest.raises(SessionStopped):
                await operation(session)
        with pytest.raises(SessionStopped):
            _ = await session.send_user_message("hello?")
        await session.end_input()
        assert len(cli.received) == 1 + len(pending)


# ---------------------------------------------------------------- nothing malformed leaves


WEDGES: dict[str, Operation] = {
    "set_model.model": lambda s: s.set_model(7),  # type: ignore[arg-type]  # what is refused
    "set_model.model ": lambda s: s.set_model(""),
    "set_permission_mode.mode": lambda s: s.set_permission_mode(""),
    "rewind_files.user_message_id": lambda s: s.rewind_files(""),
    "set_max_thinking_tokens.max_thinking_tokens": lambda s: s.control(
        "set_max_thinking_tokens", max_thinking_tokens="many"
    ),
    "mcp_set_servers.servers": lambda s: s.control("mcp_set_servers", servers=[]),
    "mcp_toggle.enabled": lambda s: s.control("mcp_toggle", serverName="a"),
    "subtype": lambda s: s.control(""),
    "subtype ": lambda s: s.control("initialize"),
    "of_tomorrow.value": lambda s: s.control("of_tomorrow", value=object()),
    "content": lambda s: s.send_user_message(object()),  # type: ignore[arg-type]  # what is refused
    "content ": lambda s: s.send_user_message([]),
    "server": lambda s: s.mcp.add("calc", None),
    "servers": lambda s: s.mcp.set_servers([]),  # type: ignore[arg-type]  # what is refused
    "servers ": lambda s: s.mcp.set_servers(None),  # type: ignore[arg-type]  # it, too
    "servers['calc']": lambda s: s.mcp.add("calc", {"foo": 1}),
    "timeout": lambda s: s.send_user_message("x", timeout="1"),  # type: ignore[arg-type]  # it, too
    "timeout ": lambda s: s.send_user_message("x", timeout=0.0),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_request_the_cli_could_not_take_is_refused_before_anything_is_written(
    flavour: str,
) -> None:
    """R352: an older CLI would go deaf over it."""
    with FakeCli.auto(flavour=flavour) as cli:
        async with start_session(options(cli), bidir=CHECKPOINTS) as session:
            for field, wedge in WEDGES.items():
                with pytest.raises(OptionsError) as caught:
                    await wedge(session)
                assert caught.value.field == field.strip()
                assert len(cli.received) == 1, field
            await session.ping()


async def test_files_cannot_be_rewound_without_checkpoints() -> None:
    """R400."""
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            with pytest.raises(CheckpointingNotEnabled):
                await session.rewind_files("u")
            assert len(cli.received) == 1


# ---------------------------------------------------------------- before the session runs


async def test_operations_wait_for_the_session_in_order_and_the_seventeenth_is_refused() -> None:
    """R251, R252, R253, R262: prompts wait too."""
    with FakeCli.auto().slow_start(0.2) as cli:
        session = Session(options(cli))
        connecting = asyncio.ensure_future(session.connect())
        models = [asyncio.ensure_future(session.set_model(f"m{n}")) for n in range(15)]
        prompt = asyncio.ensure_future(session.send_user_message("hello"))
        await asyncio.sleep(0)
        with pytest.raises(InitQueueOverflow, match="16"):
            await session.ping()
        await connecting
        await asyncio.gather(*models)
        assert (await (await prompt)).text == "You said: hello"
        kinds = [line.get("request", line).get("model") for line in cli.received]
        assert kinds[1:16] == [f"m{number}" for number in range(15)]
        await session.stop()


async def test_operations_of_a_session_that_fails_to_start_were_not_sent() -> None:
    """R255, C49."""
    with FakeCli().expect_initialize(error="no") as cli:
        session = Session(options(cli))
        early = [
            asyncio.ensure_future(session.ping()),
            asyncio.ensure_future(session.set_model("m")),
        ]
        prompt = asyncio.ensure_future(session.send_user_message("hello"))
        with pytest.raises(StartError):
            await session.connect()
        for one in [*early, prompt]:
            with pytest.raises(SessionNotInitialized):
                await one
        with pytest.raises(SessionNotInitialized):
            await session.interrupt()
        assert [line["request"]["subtype"] for line in cli.received] == ["initialize"]


async def test_operations_of_a_session_that_is_never_started_fail() -> None:
    """R255: after as long as an answer may take; it can still be started."""
    with FakeCli.auto() as cli:
        session = Session(options(cli), SdkOptions(control_timeout=0.1))
        for operate in (session.ping, lambda: session.send_user_message("hello")):
            with pytest.raises(SessionNotInitialized, match=r"connect\(\) was not called"):
                await operate()
        patient = asyncio.ensure_future(session.ping(timeout=LIMIT))
        with pytest.raises(SessionNotInitialized):
            await session.ping(timeout=0.01)
        async with session:
            assert await patient >= 0


async def test_operations_after_a_failure_fail_with_it() -> None:
    with greeted.silence() as cli:
        session = await start_session(options(cli))
        pending = asyncio.ensure_future(session.interrupt())
        await until(lambda: len(cli.received) == 2)
        session._actor.fail(ConsumerTooSlow(40, 32))
        for operation in (pending, session.ping()):
            with pytest.raises(SessionStopped, match="stopped: 40 bytes of messages"):
                await operation
        await session.stop()


async def test_operations_after_the_cli_died_fail_with_how_it_died() -> None:
    with greeted.start_turn().exit(3) as cli:
        session = await start_session(options(cli))
        assert not (await (await session.send_user_message("go"))).ok
        await until(lambda: not session.alive)
        with pytest.raises(SessionStopped) as stopped:
            await session.ping()
        assert stopped.value.cause == "the CLI ended with exit code 3"


async def test_the_sixty_fifth_pending_request_is_refused() -> None:
    """R256, R258."""
    with greeted.silence() as cli:
        session = await start_session(options(cli))
        pending = [asyncio.ensure_future(session.control(f"op_{n}")) for n in range(64)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyPendingRequests, match="64"):
            await session.interrupt()
        pending.pop().cancel()
        await asyncio.sleep(0)
        pending.append(asyncio.ensure_future(session.control("room")))
        await until(lambda: len(cli.received) == 66)
        await session.stop()
        answers = await asyncio.gather(*pending, return_exceptions=True)
        assert {type(answer) for answer in answers} == {SessionStopped}


async def test_a_session_connects_once() -> None:
    with FakeCli.auto() as cli:
        async with Session(options(cli)) as session:
            with pytest.raises(RuntimeError, match="already started"):
                await session.connect()
            assert session.alive


# ---------------------------------------------------------------- the end


async def test_input_that_ends_lets_the_cli_finish_by_itself() -> None:
    """R368, C57."""
    with FakeCli.auto(latency=0.1) as cli:
        session = await start_session(options(cli))
        turn = await session.send_user_message("hello")
        await session.end_input()
        await session.end_input()
        assert (await turn).ok
        ready, ended = await told_by(session)
        assert isinstance(ready, SessionReady)
        assert (ready.session_id, ready.capabilities) == (session.id, session.capabilities)
        assert ready.pid == session.pid
        assert ended == SessionCompleted(0)
        await session.aclose()


async def test_many_tasks_may_end_a_session_at_once() -> None:
    """R015, R358, C01."""
    with FakeCli.auto() as cli:
        session = await start_session(options(cli))
        turn = await session.send_user_message("SLOW")
        ends = [session.aclose() if n % 2 else session.stop() for n in range(20)]
        await asyncio.gather(*ends)
        assert not is_alive(session.pid or 0)
        assert not (await turn).ok
        assert [type(event) for event in await told_by(session)] == [SessionReady, SessionEnded]


@pytest.mark.requirement("S119")
@pytest.mark.parametrize("way", ["stop", "aclose"])
async def test_an_end_whose_wait_is_cancelled_goes_on(way: str) -> None:
    """R356, C01."""
    with FakeCli.auto() as cli:
        session = await start_session(options(cli))
        ending = asyncio.ensure_future(session.stop() if way == "stop" else session.aclose())
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        await until(lambda: not is_alive(session.pid or 0))
        await session.stop()


@pytest.mark.parametrize("way", ["stop", "aclose"])
async def test_a_session_may_be_ended_while_it_connects(way: str) -> None:
    with FakeCli().silence() as cli:
        session = Session(options(cli))
        connecting = asyncio.ensure_future(session.connect())
        await until(lambda: session.pid)
        with long_holds():
            await (session.stop() if way == "stop" else session.aclose())
        with pytest.raises(SessionStopped):
            await connecting
        assert (session.lifecycle, is_alive(session.pid or 0)) == ("stopped", False)


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    with FakeCli().silence() as cli:
        session = Session(options(cli))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.connect(), 0.2)
        assert not is_alive(session.pid or 0)
        assert session.lifecycle == "stopped"


async def test_a_first_prompt_that_cannot_be_sent_leaves_nothing() -> None:
    """R001: start_session returns a running session or raises, and then nothing is left."""
    with FakeCli.auto() as cli:
        with pytest.raises(OptionsError) as caught:
            await start_session(options(cli), prompt=object())  # type: ignore[arg-type]  # it is refused
        assert caught.value.field == "prompt"
        assert cli.pid is None or not is_alive(cli.pid)


@pytest.mark.parametrize("way", ["stop", "aclose"])
async def test_a_session_that_never_connected_ends_at_once(way: str) -> None:
    with FakeCli.auto() as cli:
        session = Session(options(cli))
        with long_holds():
            await (session.stop() if way == "stop" else session.aclose())
        assert not session.alive


def test_an_option_that_is_wrong_is_reported_before_anything_starts() -> None:
    """R001."""
    with pytest.raises(OptionsError):
        _ = start_session(CliOptions(fork_session=True))
