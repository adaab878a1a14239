"""Lines that cannot be read: too long, cut off, no JSON. What they owe is paid all the same."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.soak.sessions import options, told_by, warnings_of
from tests.support.processes import until

from bridle import (
    Allow,
    BidirOptions,
    CanUseToolContext,
    OutcomeReason,
    SdkOptions,
    SessionFailed,
    SessionReady,
    TransportError,
    start_session,
)
from bridle.testing import FakeCli

HUGE = 20 * 1024 * 1024
"""More than is kept by default."""

in_turn = FakeCli().expect_initialize().start_turn()


async def test_a_message_that_is_too_long_is_dropped_and_the_session_goes_on() -> None:
    """R175, C25: 20 MiB against the default of 16."""
    with in_turn.huge_line(HUGE).assistant("after").result("after") as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            texts = [m.raw["message"]["content"] async for m in turn if m.type == "assistant"]
            assert [blocks[0]["text"] for blocks in texts] == ["after"]
            assert (await turn).ok
        assert warnings_of(await told_by(session)) == ["oversized_line"]


async def test_a_message_that_is_not_too_long_for_a_larger_buffer_passes() -> None:
    """R060, C25."""
    sdk = SdkOptions(max_buffer_size=2 * HUGE)
    with in_turn.huge_line(HUGE).result("after") as cli:
        async with start_session(options(cli), sdk) as session:
            turn = await session.send_user_message("go")
            sizes = [len(m.text) async for m in turn if m.type == "assistant"]  # type: ignore[attr-defined]  # the type says so
            assert len(sizes) == 1
            assert HUGE - 2000 < sizes[0] < HUGE
            assert (await turn).ok
        assert warnings_of(await told_by(session)) == []


async def test_a_result_that_is_too_long_ends_its_turn_as_lost() -> None:
    with in_turn.huge_line(HUGE, "result").turn("next") as cli:
        async with start_session(options(cli)) as session:
            outcome = await (await session.send_user_message("go"))
            assert outcome.reason is OutcomeReason.MESSAGE_LOST
            assert (await (await session.send_user_message("more"))).text == "next"


async def test_a_question_that_is_too_long_is_answered_with_an_error() -> None:
    """R275, R310: nobody is asked, and the CLI does not wait for ever."""
    asked: list[CanUseToolContext] = []

    def allow(context: CanUseToolContext) -> Allow:
        asked.append(context)
        return Allow()

    script = in_turn.huge_line(HUGE, "control_request").expect_error().result()
    with script as cli:
        async with start_session(options(cli), bidir=BidirOptions(on_can_use_tool=allow)) as it:
            assert (await (await it.send_user_message("go"))).ok
        cli.check()
    assert asked == []


async def test_an_answer_that_is_too_long_fails_its_operation_at_once() -> None:
    """R176, R346."""
    script = FakeCli().expect_initialize().expect_request("mcp_status")
    with script.huge_line(200_000, "control_response").turn() as cli:
        async with start_session(options(cli), SdkOptions(max_buffer_size=100_000)) as session:
            with pytest.raises(TransportError, match="100000"):
                await session.control("mcp_status")
            assert (await (await session.send_user_message("go"))).ok


NOISE = {
    "no text": in_turn.invalid_utf8(),
    "no JSON": in_turn.garbage(),
    "no object": in_turn.garbage(b"[1, 2]\n"),
    "half a line and the next": in_turn.half_line().garbage(b"\n"),
    "a NUL": in_turn.garbage(b"\x00\x00\n"),
    "deep": in_turn.garbage(b"[" * 100_000 + b"\n"),
}


@pytest.mark.parametrize("name", NOISE)
async def test_noise_is_warned_about_and_skipped(name: str) -> None:
    with NOISE[name].assistant("after").result("after") as cli:
        async with start_session(options(cli)) as session:
            outcome = await (await session.send_user_message("go"))
            assert (outcome.ok, outcome.text) == (True, "after")
            assert session.alive
        assert warnings_of(await told_by(session)) == ["malformed_line"]


async def test_blank_lines_and_carriage_returns_mean_nothing() -> None:
    """C56."""
    with in_turn.garbage(b"\n\r\n\n").result("after") as cli:
        async with start_session(options(cli)) as session:
            assert (await (await session.send_user_message("go"))).ok
        assert warnings_of(await told_by(session)) == []


async def test_a_last_line_without_its_newline_is_still_read() -> None:
    frame = b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"last"}]}}'
    with in_turn.half_line(frame).exit(0) as cli:
        async with start_session(options(cli), prompt="go") as session:
            texts = [
                message.raw["message"]["content"][0]["text"]
                async for message in session.messages()
                if message.type == "assistant"
            ]
            assert texts == ["last"]


async def test_a_flood_on_stderr_reaches_its_listener_in_order_and_blocks_nothing() -> None:
    """R061, R414, C24."""
    lines: list[str] = []
    with in_turn.flood_stderr(100_000).stderr("the end").result() as cli:
        async with start_session(options(cli), SdkOptions(on_stderr=lines.append)) as session:
            assert (await (await session.send_user_message("go"))).ok
            await until(lambda: lines and lines[-1] == "the end")
    assert len(lines) == -(-100_000 // len("the fake CLI complains\n")) + 1


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
async def test_listeners_have_received_everything_when_the_session_ends(is_async: bool) -> None:
    """R414: whoever collects stderr or events by callback has them all then, if not too slow."""
    lines: list[str] = []
    events: list[object] = []

    async def hear(line: str) -> None:
        await asyncio.sleep(0.002)
        lines.append(line)

    def hear_in_thread(line: str) -> None:
        time.sleep(0.002)
        lines.append(line)

    said = [f"word {number}" for number in range(50)]
    with in_turn.stderr("\n".join(said)).exit(1) as cli:
        sdk = SdkOptions(on_stderr=hear if is_async else hear_in_thread)
        bidir = BidirOptions(on_event=events.append)
        async with start_session(options(cli), sdk, bidir) as session:
            outcome = await (await session.send_user_message("go"))
            assert outcome.stderr_tail.splitlines() == said
        assert lines == said
        assert [type(event) for event in events] == [SessionReady, SessionFailed]
