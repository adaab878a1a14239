"""Nobody reads, or somebody too slowly: control goes on, memory is bounded, it is told once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from tests.soak.sessions import long_holds, options, told_by, warnings_of
from tests.support.processes import LIMIT, until

from bridle import (
    Allow,
    BidirOptions,
    ConsumerTooSlow,
    Message,
    OutcomeReason,
    SdkOptions,
    SdkWarning,
    Session,
    SessionFailed,
    SessionStopped,
    Subscription,
    Turn,
    start_session,
)
from bridle.errors import UsageError
from bridle.events import WarningKind
from bridle.testing import FakeCli

MANY = 50_000
MIB = 1024 * 1024
LINE = {
    "type": "assistant",
    "session_id": "s",
    "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "x" * 200}]},
}
SIZE = len(json.dumps(LINE, separators=(",", ":"))) + 1

SHORT_LINE = {
    "type": "assistant",
    "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "x" * 9}]},
}

in_turn = FakeCli().expect_initialize().start_turn()


class Reader:
    """Holds on to iterators without reading them."""

    def __init__(self, session: Session, turn: Turn, what: str) -> None:
        self.messages = session.messages() if what == "a subscription" else None
        self.turn = turn.__aiter__() if what == "a turn" else None


@pytest.mark.parametrize("what", ["nobody", "a subscription", "a turn"])
async def test_control_does_not_wait_behind_fifty_thousand_unread_messages(what: str) -> None:
    """R158, R165, C58: interrupt, hook and permission are answered in their normal time."""
    script = in_turn.emit(LINE).repeat(MANY)
    script = script.ask_hook("PreToolUse", tool_name="Bash", tool_input={}).expect_continue()
    script = script.ask_permission("Bash", command="ls").expect_allow()
    script = script.expect_request("interrupt").reply({}).emit(LINE).repeat(100).result()
    with script as cli:
        bidir = BidirOptions(on_pre_tool_use=lambda _: None, on_can_use_tool=lambda _: Allow())
        async with start_session(options(cli), bidir=bidir) as session:
            turn = await session.send_user_message("go")
            reader = Reader(session, turn, what)
            await until(lambda: len(cli.received) == 4)
            await session.interrupt()
            outcome = await turn
            cli.check()
            assert outcome.result is not None
            if reader.messages is not None:
                assert await count(reader.messages) == MANY + 100
            if reader.turn is not None:
                assert await count(reader.turn) == MANY + 100
        dropped = [] if what == "a turn" else ["missed_messages"]  # of the turn
        assert warnings_of(await told_by(session)) == dropped


async def count(messages: Subscription[Message]) -> int:
    """The messages of the model up to the result."""
    number = 0
    async for message in messages:
        if message.type == "result":
            break
        number += message.type == "assistant"
    return number


# What a program needs for N messages nobody reads, in MiB, beyond what it has at the start.
MEASURE = """
import asyncio, resource, sys
from bridle import CliOptions, SdkOptions, start_session
from bridle.testing import FakeCli

LINE, MANY, READS = {line!r}, {many}, {reads!r}

def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() / 2**20

async def main():
    script = FakeCli().expect_initialize().start_turn().emit(LINE).repeat(MANY).result()
    with script as cli:
        sdk = SdkOptions(max_unread_bytes={limit})
        async with start_session(CliOptions(cli_path=cli.path), sdk) as session:
            before = resident()
            held = session.messages() if READS else None
            turn = await session.send_user_message("go")
            if not READS:
                await turn
            async for event in session.events():
                if type(event).__name__ == "SessionFailed":
                    break
                if not READS:
                    break
            print(resident() - before)

asyncio.run(main())
"""


@pytest.mark.parametrize("reads", [False, True], ids=["nobody", "a subscription"])
def test_memory_stays_within_the_bound_however_much_is_unread(reads: bool) -> None:
    """What may be unread is 2 MiB, or four times that for a reader; what came is 60 MiB."""
    limit, many = 2 * MIB, 60 * MIB // SIZE
    program = MEASURE.format(line=LINE, many=many, reads=reads, limit=limit)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=40
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < (8 if not reads else 16) + 8


# What a program holds in MiB, beyond what it has at the start, after a turn of 60 MiB.
HOLD = """
import asyncio, gc, resource
from bridle import CliOptions, ResultMessage, start_session
from bridle.testing import FakeCli

def resident():
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() / 2**20

async def main():
    script = FakeCli().expect_initialize()
    for count in (100, {many}):
        script = script.start_turn().emit({line!r}).repeat(count).result()
    with script as cli:
        async with start_session(CliOptions(cli_path=cli.path)) as session:
            reading = session.messages() if "{how}" == "kept" else None
            for number in range(2):
                before = resident()
                turn = await session.send_user_message("go")
                if reading is None:
                    await turn
                else:
                    async for message in reading:
                        if isinstance(message, ResultMessage):
                            break
                    reading = session.messages()
            print(resident() - before)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["awaited", "kept"])
def test_nothing_is_held_for_readers_that_do_not_exist(how: str) -> None:
    """A turn that is awaited, or kept while session.messages() is read; with default options."""
    program = HOLD.format(line=LINE, many=60 * MIB // SIZE, how=how)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 8


# The most memory in MiB that a program had while it read 100,000 messages.
PEAK = """
import asyncio
from bridle import CliOptions, ResultMessage, start_session
from bridle.testing import FakeCli

async def main():
    script = FakeCli().expect_initialize().start_turn().emit({line!r}).repeat(100_000).result()
    with script as cli:
        async with start_session(CliOptions(cli_path=cli.path)) as session:
            reading = session.messages()
            turn = await session.send_user_message("go")
            if not {keeps}:
                del turn
            async for message in reading:
                if isinstance(message, ResultMessage):
                    break
            # (Not getrusage: its maximum includes the program that started this one.)
            [peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
            print(int(peak.split()[1]) / 1024)

asyncio.run(main())
"""


@pytest.mark.longer
def test_a_turn_that_is_kept_and_not_read_takes_little_memory() -> None:
    """At most 1.3 times that of the same program without the turn."""

    def peak(*, keeps: bool) -> float:
        program = PEAK.format(line=SHORT_LINE, keeps=keeps)
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return float(done.stdout)

    assert peak(keeps=True) <= 1.3 * peak(keeps=False)


async def test_a_turn_that_is_iterated_late_raises_if_its_messages_were_dropped() -> None:
    with in_turn.emit(LINE).repeat(9 * MIB // SIZE).result() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            await until(lambda: turn.done)
            with pytest.raises(ConsumerTooSlow, match="right after sending"):
                _ = [message async for message in turn]
            assert (await turn).ok
        [warning] = [each for each in await told_by(session) if isinstance(each, SdkWarning)]
        assert warning.kind is WarningKind.MISSED_MESSAGES
        assert turn.uuid in warning.detail


IMAGE = {"type": "image", "source": {"type": "base64", "data": "x" * 10 * MIB}}


async def test_a_turn_with_a_large_prompt_can_be_iterated_when_it_has_ended() -> None:
    """The CLI repeats the prompt, which does not count against what is held for the turn."""
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message([IMAGE])
            await until(lambda: turn.done)
            types = [message.type async for message in turn]
            assert types[-2:] == ["assistant", "result"]
        assert warnings_of(await told_by(session)) == []


async def test_two_turns_sent_at_once_can_be_read_one_after_the_other() -> None:
    script = in_turn.result().start_turn().emit(LINE).repeat(2 * MIB // SIZE).result()
    with script as cli:
        async with start_session(options(cli)) as session:
            first = await session.send_user_message("one")
            await until(lambda: first.done)
            second = await session.send_user_message("two")
            await until(lambda: second.done)
            assert await count(first.__aiter__()) == 0
            assert await count(second.__aiter__()) == 2 * MIB // SIZE
        assert warnings_of(await told_by(session)) == []


async def test_turns_whose_loop_was_left_share_one_bound() -> None:
    """The turn that was left first is dropped first, with a warning."""
    script = FakeCli().expect_initialize()
    for _ in range(3):
        script = script.start_turn().emit(LINE).repeat(300).result()
    with script as cli:
        sdk = SdkOptions(max_unread_bytes=SIZE * 700)
        async with start_session(options(cli), sdk) as session:
            turns = [await left_turn(session) for _ in range(3)]
            with pytest.raises(ConsumerTooSlow):
                _ = [message async for message in turns[0]]
            for turn in turns[1:]:
                assert (await count(turn.__aiter__())) > 290
        [warning] = [each for each in await told_by(session) if isinstance(each, SdkWarning)]
        assert warning.kind is WarningKind.MISSED_MESSAGES
        assert turns[0].uuid in warning.detail


async def left_turn(session: Session) -> Turn:
    """Return a turn that has ended and of which only the first message was read."""
    turn = await session.send_user_message("go")
    async for _ in turn:
        break
    await until(lambda: turn.done)
    return turn


@pytest.mark.parametrize("when", ["running", "done", "timed out"])
async def test_iterating_a_turn_after_awaiting_it_raises_whatever_the_timing(when: str) -> None:
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("SLOW" if when == "timed out" else "hi")
            if when == "timed out":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(turn.outcome(), 0.01)
                await session.interrupt()
            if when == "done":
                await until(lambda: turn.done)
            outcome = await turn
            with pytest.raises(UsageError, match="not kept"):
                _ = [message async for message in turn]
            assert await turn is outcome


async def test_a_turn_that_is_iterated_right_after_sending_gets_everything() -> None:
    with in_turn.emit(LINE).repeat(MANY).result() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("go")
            assert await count(turn.__aiter__()) == MANY


async def test_messages_read_on_another_event_loop_raise() -> None:
    """They would never wake their reader."""
    with FakeCli.auto() as cli:
        async with start_session(options(cli)) as session:
            turn = await session.send_user_message("SLOW 0.1")
            for reading in (session.messages(), session.events(), turn.__aiter__()):
                for _ in range(2):
                    with pytest.raises(RuntimeError, match="event loop it was started on"):
                        await asyncio.to_thread(asyncio.run, next_of(reading))
            assert (await turn).ok


async def next_of(items: Subscription[Any]) -> object:
    async with asyncio.timeout(LIMIT):
        return await anext(items)


@pytest.mark.requirement("S099")
async def test_a_reader_that_falls_behind_is_warned_once_and_then_the_session_ends() -> None:
    """C58: a warning at the limit, the end at four times that; what was kept can be read."""
    warned: list[SdkWarning] = []
    with in_turn.emit(LINE).forever() as cli:
        sdk = SdkOptions(max_unread_bytes=100_000, on_warning=warned.append)
        session = await start_session(options(cli), sdk)
        messages = session.messages()
        turn = await session.send_user_message("go")
        outcome = await turn
        assert outcome.reason is OutcomeReason.STOPPED
        assert "unread" in outcome.detail
        events = await told_by(session)
        assert warnings_of(events) == ["unread_messages"]
        assert isinstance(events[-1], SessionFailed)
        assert isinstance(events[-1].error, ConsumerTooSlow)
        read: list[int] = []
        with pytest.raises(ConsumerTooSlow, match="max_unread_bytes") as caught:
            await measure(messages, read)
        assert 400_000 - SIZE < sum(read) < 400_000 + 70_000
        assert caught.value.limit == 400_000
        assert not session.alive
        with pytest.raises(SessionStopped):
            await session.ping()
        await session.stop()
        await until(lambda: warned)
    assert [str(warning.kind) for warning in warned] == ["unread_messages"]


async def measure(messages: Subscription[Message], sizes: list[int]) -> None:
    """Read everything, noting how long each line was."""
    async for message in messages:
        sizes.append(len(json.dumps(message.raw, separators=(",", ":"))) + 1)


async def test_a_program_that_never_reads_messages_is_not_a_slow_consumer() -> None:
    """R371: it may only wait for outcomes, or not even for these."""
    script = in_turn.emit(LINE).repeat(2000).result()
    for _ in range(3):
        script = script.start_turn().emit(LINE).repeat(2000).result()
    with script as cli:
        sdk = SdkOptions(max_unread_bytes=100_000)
        async with start_session(options(cli), sdk) as session:
            held = await session.send_user_message("held, not awaited")
            await until(lambda: held.done)
            for _ in range(3):
                assert (await (await session.send_user_message("go"))).ok
            assert session.alive
            late = session.messages()
            await late.aclose()
            # What the held turn had was too much to keep, which whoever reads it now is told.
            with pytest.raises(ConsumerTooSlow):
                _ = [message async for message in held]
        # One warning for the held turn, one for the late subscription.
        assert warnings_of(await told_by(session)) == ["missed_messages"] * 2


async def test_a_reader_that_keeps_up_may_read_for_ever() -> None:
    with in_turn.emit(LINE).repeat(20_000).result() as cli:
        sdk = SdkOptions(max_unread_bytes=300_000)
        async with start_session(options(cli), sdk) as session:
            messages = session.messages()
            _ = await session.send_user_message("go")
            del _
            assert await count(messages) == 20_000
        assert warnings_of(await told_by(session)) == []


async def test_a_cli_that_does_not_read_delays_only_senders() -> None:
    """R157: a prompt larger than the pipe waits to be read; everything else goes on."""
    script = FakeCli().expect_initialize().silence(0.3, reading=False).turn("read at last")
    with script as cli:
        async with start_session(options(cli)) as session:
            sending = asyncio.ensure_future(session.send_user_message("x" * MIB))
            await asyncio.sleep(0)
            assert not sending.done()
            outcome = await (await sending)
            assert outcome.text == "read at last"


async def test_a_prompt_that_is_never_read_does_not_hold_up_the_end() -> None:
    """R007, R356."""
    with FakeCli().expect_initialize().silence(reading=False) as cli:
        session = await start_session(options(cli))
        sending = asyncio.ensure_future(session.send_user_message("x" * MIB))
        await asyncio.sleep(0)
        with long_holds():
            await session.stop()
        turn = await sending
        assert (await turn).reason is OutcomeReason.STOPPED
