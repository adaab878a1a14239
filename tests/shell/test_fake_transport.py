"""Sessions without a process: a test says what the CLI says, and reads what the session wrote."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import bridle
from bridle import Allow, BidirOptions, OutcomeReason, SdkOptions, start_session, sync
from bridle.testing import FakeTransport, Transport, TransportEvents

ASSISTANT: dict[str, Any] = {
    "type": "assistant",
    "message": {"id": "m", "content": [{"type": "text", "text": "4"}]},
}


def result(uuid: str) -> dict[str, object]:
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "4",
        "user_message_uuids": [uuid],
    }


def asking(fake: FakeTransport, **more: Any) -> BidirOptions:
    return BidirOptions(transport_factory=fake, **more)


async def test_a_session_runs_on_lines_that_a_test_says() -> None:
    """R416, R434, C51: what it writes is there to be looked at."""

    fake = FakeTransport(server_info={"capabilities": ["x"]})
    async with start_session(bidir=asking(fake)) as session:
        assert (session.capabilities, session.pid) == (("x",), None)
        turn = await session.send_user_message("2 + 2?")
        init = {"type": "system", "subtype": "init", "user_message_uuids": [turn.uuid]}
        fake.say(init, ASSISTANT, result(turn.uuid))
        outcome = await turn
        assert (outcome.reason, outcome.text) == (OutcomeReason.COMPLETED, "4")
    initialize, prompt = fake.written
    assert initialize["request"] == {"subtype": "initialize"}
    assert prompt["message"] == {"role": "user", "content": "2 + 2?"}
    assert fake.input_ended


async def test_a_question_is_answered_on_the_transport() -> None:
    """R416, R434."""

    fake = FakeTransport()
    async with start_session(bidir=asking(fake, on_can_use_tool=lambda _: Allow())):
        request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}}
        fake.say({"type": "control_request", "request_id": "q", "request": request})
        written = await fake.wait_for_written(2)
        assert written[1]["response"] == {
            "subtype": "success",
            "request_id": "q",
            "response": {"behavior": "allow", "updatedInput": {"command": "ls"}},
        }


async def test_the_end_of_the_process_is_said_too() -> None:
    """R434: with its exit code, and what it wrote on stderr."""
    lines: list[str] = []
    fake = FakeTransport()
    sdk = SdkOptions(on_stderr=lines.append)
    async with start_session(sdk=sdk, bidir=asking(fake)) as session:
        turn = await session.send_user_message("hello")
        fake.say_stderr("out of memory")
        fake.exit(137)
        fake.exit(0)
        outcome = await turn
        assert (outcome.reason, outcome.exit_code) == (OutcomeReason.CLI_EXITED, 137)
        assert outcome.stderr_tail == "out of memory"
    assert lines == ["out of memory"]


async def test_the_handshake_can_be_left_to_the_test() -> None:
    fake = FakeTransport(greets=False)
    session = bridle.Session(bidir=asking(fake))
    connecting = asyncio.ensure_future(session.connect())
    (initialize,) = await fake.wait_for_written(1)
    assert session.lifecycle == "init_sent"
    fake.say(b"noise that is no JSON\n")
    fake.answer(initialize["request_id"], {"commands": []})
    await connecting
    assert session.server_info == {"commands": []}
    await session.stop()
    assert session.lifecycle == "stopped"


async def test_a_transport_carries_one_session_and_nothing_before_it() -> None:
    fake = FakeTransport()
    with pytest.raises(RuntimeError, match="begun"):
        fake.say(ASSISTANT)
    async with start_session(bidir=asking(fake)):
        pass
    with pytest.raises(RuntimeError, match="one session"):
        fake(fake._events)  # type: ignore[arg-type]  # that of the session before


def test_the_blocking_door_takes_it_as_well() -> None:
    fake = FakeTransport()
    with sync.start_session(bidir=asking(fake)) as session:
        turn = session.send_user_message("2 + 2?")
        fake.say(ASSISTANT, result(turn.uuid))
        assert turn.outcome().text == "4"


async def test_a_transport_of_ones_own_is_written_from_the_protocol() -> None:
    """C51: the protocol is public, and a fake that keeps to it is one."""

    def factory(events: TransportEvents) -> Transport:
        return FakeTransport()(events)

    async with start_session(bidir=BidirOptions(transport_factory=factory)) as session:
        assert session.alive
