"""The actor with a transport made for the purpose: no process, every step in the test's hands."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.limits import SetLimits
from tests.support.processes import until

import bridle
from bridle import BidirOptions, SdkOptions, Session
from bridle._engine.shutdown import ShutdownStep
from bridle._process.transport import Transport, TransportEvents
from bridle.errors import UsageError

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def debug_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the event loops of these tests in debug mode."""
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")


class Puppet:
    """A transport that does what the test says. It answers initialize unless told not to."""

    def __init__(self, *, greets: bool = True, deaf: bool = False) -> None:
        self.greets = greets
        self.deaf = deaf
        self.written: list[Json] = []
        self.signals: list[str] = []
        self.closed = 0
        self.pid: int | None = 4242
        self.stderr_tail = "last words"

    def __call__(self, events: TransportEvents) -> Puppet:
        self.events = events
        return self

    def say(self, *frames: Mapping[str, object]) -> None:
        self.events.received(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))

    def answer(self, request_id: str, payload: Json | None = None) -> None:
        response = {"subtype": "success", "request_id": request_id, "response": payload or {}}
        self.say({"type": "control_response", "response": response})

    def end(self, code: int = 0) -> None:
        self.events.exited(code)
        self.events.output_ended()

    def write(self, data: bytes) -> None:
        frame = json.loads(data)
        self.written.append(frame)
        if self.greets and frame.get("request", {}).get("subtype") == "initialize":
            asyncio.get_running_loop().call_soon(self.answer, frame["request_id"])

    async def drain(self) -> None:
        pass

    def end_input(self) -> None:
        self.signals.append("eof")
        if not self.deaf:
            asyncio.get_running_loop().call_soon(self.end)

    def terminate(self) -> None:
        self.signals.append("term")
        asyncio.get_running_loop().call_soon(self.end, -15)

    def kill(self) -> None:
        self.signals.append("kill")

    async def aclose(self) -> None:
        self.closed += 1


def session(puppet: Puppet, sdk: SdkOptions | None = None, **bidir: Any) -> Session:
    return Session(sdk=sdk, bidir=BidirOptions(transport_factory=puppet, **bidir))


def assistant(text: str) -> Json:
    message = {"id": "m", "role": "assistant", "content": [{"type": "text", "text": text}]}
    return {"type": "assistant", "message": message, "session_id": "s"}


def init(uuid: str) -> Json:
    return {"type": "system", "subtype": "init", "session_id": "s", "user_message_uuids": [uuid]}


def result(uuid: str, text: str = "done") -> Json:
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "terminal_reason": "completed",
        "result": text,
        "num_turns": 1,
        "user_message_uuids": [uuid],
    }


async def test_a_session_runs_a_turn_and_ends() -> None:
    """R020, R024, R163, R247: a fake transport carries a whole session."""
    puppet = Puppet()
    async with session(puppet) as talk:
        assert (talk.lifecycle, talk.alive, talk.pid) == ("running", True, 4242)
        turn = await talk.send_user_message("hello")
        assert [frame["type"] for frame in puppet.written] == ["control_request", "user"]
        puppet.say(init(turn.uuid), assistant("hi"), result(turn.uuid))
        kinds = [type(message).__name__ async for message in turn]
        assert kinds == ["InitMessage", "AssistantMessage", "ResultMessage"]
        assert (await turn).ok
    assert (talk.lifecycle, talk.alive) == ("stopped", False)
    assert (puppet.signals, puppet.closed) == (["eof"], 1)


async def test_a_session_makes_its_process_when_it_is_started() -> None:
    """R156."""
    made: list[Puppet] = []

    def factory(events: TransportEvents) -> Puppet:
        made.append(Puppet()(events))
        return made[0]

    talk = Session(bidir=BidirOptions(transport_factory=factory))
    assert made == []
    await talk.connect()
    assert len(made) == 1
    await talk.stop()


async def test_only_the_event_loop_of_the_session_writes_to_the_process() -> None:
    """R155: a callback in a worker thread hands its answer over."""
    writing: list[int] = []
    calling: list[int] = []

    class Watched(Puppet):
        def write(self, data: bytes) -> None:
            writing.append(threading.get_ident())
            super().write(data)

    def permission(_: bridle.CanUseToolContext) -> object:
        calling.append(threading.get_ident())
        return bridle.Allow()

    puppet = Watched()
    async with session(puppet, on_can_use_tool=permission):
        ask = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}
        for number in range(8):
            puppet.say({"type": "control_request", "request_id": f"q{number}", "request": ask})
        await until(lambda: len(puppet.written) >= 9)
    assert len(calling) == 8
    assert threading.get_ident() not in calling
    assert set(writing) == {threading.get_ident()}


def test_a_transport_needs_few_members() -> None:
    """R164: what the fake transport of this file has, and two that only a real process needs."""
    needed = {name for name in vars(Transport) if not name.startswith("_")}
    assert needed - vars(Puppet()).keys() - vars(Puppet).keys() == {
        "pause_reading",
        "resume_reading",
    }
    assert len(needed) == 10


async def test_a_transport_may_answer_from_within_a_write() -> None:
    """What it says is taken up after what was under way: nothing overtakes anything."""

    class Prompt(Puppet):
        def write(self, data: bytes) -> None:
            frame = json.loads(data)
            self.written.append(frame)
            if frame["type"] == "user":
                self.say(init(frame["uuid"]), result(frame["uuid"], "at once"))
            else:
                self.answer(frame["request_id"])

    async with session(Prompt()) as talk:
        assert (await (await talk.send_user_message("hello"))).text == "at once"
        assert await talk.ping() >= 0


async def test_a_transport_that_raises_has_lost_its_input() -> None:
    puppet = Puppet()
    async with session(puppet) as talk:

        def broken(data: bytes) -> None:
            raise OSError("no more")

        puppet.write = broken  # type: ignore[method-assign]  # it breaks under way
        with pytest.raises(bridle.TransportError, match="no more"):
            await talk.interrupt()
    assert puppet.closed == 1


async def test_a_prompt_that_does_not_leave_in_time_is_given_up() -> None:
    class Clogged(Puppet):
        async def drain(self) -> None:
            await asyncio.Event().wait()

    async with session(Clogged()) as talk:
        with pytest.raises(bridle.ControlTimeout) as late:
            _ = await talk.send_user_message("hello", timeout=0.01)
        assert (late.value.operation, late.value.timeout) == ("send_user_message", 0.01)


async def test_a_prompt_that_waits_for_the_start_can_be_withdrawn() -> None:
    puppet = Puppet(greets=False)
    talk = session(puppet)
    connecting = asyncio.ensure_future(talk.connect())
    with pytest.raises(bridle.ControlTimeout):
        _ = await talk.send_user_message("hello", timeout=0.01)
    puppet.answer("req_0")
    await connecting
    assert [frame["type"] for frame in puppet.written] == ["control_request"]
    await talk.stop()


async def test_a_listener_whose_error_cannot_be_printed_still_gets_events() -> None:
    class Unprintable(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("nor this")

        __str__ = __repr__

    told: list[object] = []

    def listener(event: object) -> None:
        told.append(event)
        raise Unprintable

    logging.getLogger("bridle.session").disabled = True  # its handlers would print it
    try:
        async with session(Puppet(), on_event=listener):
            pass
    finally:
        logging.getLogger("bridle.session").disabled = False
    assert [type(event).__name__ for event in told] == ["SessionReady", "SessionEnded"]


async def test_a_late_subscription_reports_what_is_missing() -> None:
    puppet = Puppet()
    talk = session(puppet)
    await talk.connect()
    puppet.say(*[assistant("x" * 100)] * 300)
    events = talk.events()
    talk.messages()
    await talk.stop()
    warned = [event async for event in events if isinstance(event, bridle.SdkWarning)]
    assert [event.kind for event in warned] == ["missed_messages"]
    assert "44 messages" in warned[0].detail


async def test_a_start_that_fails_carries_what_the_cli_said() -> None:
    """R249, R412, R413: stderr is attached although the process still lives."""
    puppet = Puppet(greets=False)
    talk = session(puppet, SdkOptions(init_timeout=0.01))
    with pytest.raises(bridle.InitializationTimeout) as failure:
        await talk.connect()
    assert failure.value.stderr_tail == "last words"
    assert (talk.lifecycle, puppet.closed) == ("failed", 1)


async def _collect(items: Any) -> list[Any]:
    return [item async for item in items]


async def test_unread_messages_never_hold_up_control_and_are_bounded() -> None:
    """C58: a warning at the limit, the end at four times it."""
    puppet = Puppet()
    talk = session(puppet, SdkOptions(max_unread_bytes=20_000))
    await talk.connect()
    unread = talk.messages()
    flood = [assistant("x" * 100)] * 100
    puppet.say(*flood)
    asking = asyncio.ensure_future(talk.interrupt())
    await asyncio.sleep(0)
    puppet.answer("req_1", {"still_queued": []})
    assert await asking == {"still_queued": []}
    for _ in range(4):
        puppet.say(*flood)
    assert talk.lifecycle == "failed"
    with pytest.raises(bridle.ConsumerTooSlow) as caught:
        await _collect(unread)
    assert caught.value.stderr_tail == "last words"
    kinds = [event.kind async for event in talk.events() if isinstance(event, bridle.SdkWarning)]
    assert kinds.count(bridle.events.WarningKind.UNREAD_MESSAGES) == 1


async def test_a_session_that_is_dropped_is_stopped() -> None:
    puppet = Puppet()
    talk = session(puppet)
    await talk.connect()
    del talk
    gc.collect()
    await until(lambda: puppet.closed)
    assert puppet.signals == ["term"]


def test_the_end_of_the_event_loop_ends_the_session() -> None:
    puppet = Puppet()

    async def main() -> Session:
        talk = session(puppet)
        await talk.connect()
        return talk

    kept = asyncio.run(main())
    assert (kept.lifecycle, puppet.signals, puppet.closed) == ("stopped", ["term"], 1)


@pytest.mark.parametrize("way", ["stop", "aclose"])
async def test_nothing_is_pending_any_more_when_the_end_returns(way: str) -> None:
    """R357, R360, C02."""
    puppet = Puppet()
    talk = session(puppet)
    await talk.connect()
    turn = await talk.send_user_message("hello")
    asking = [asyncio.ensure_future(talk.control(f"op_{number}")) for number in range(3)]
    await asyncio.sleep(0)
    await getattr(talk, way)()
    assert all(one.done() for one in asking)
    assert [type(one.exception()) for one in asking] == [bridle.SessionStopped] * 3
    assert turn.done


async def test_callbacks_answer_requests_and_their_failures_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R082, R304, R451, C54: deny on failure, a traceback in the log, a warning for the
    application.
    """
    warnings: list[bridle.SdkWarning] = []

    def permission(context: bridle.CanUseToolContext) -> object:
        if context.tool_input["command"] == "ls":
            return bridle.Allow()
        raise ValueError("boom")

    with caplog.at_level(logging.ERROR, logger="bridle"):
        puppet = Puppet()
        sdk = SdkOptions(on_warning=warnings.append)
        async with session(puppet, sdk, on_can_use_tool=permission):

            async def answered(count: int) -> None:
                await until(lambda: len(puppet.written) == 1 + count)

            for number, command in enumerate(("ls", "rm")):
                request = {
                    "subtype": "can_use_tool",
                    "tool_name": "Bash",
                    "input": {"command": command},
                }
                frame = {"type": "control_request", "request_id": f"q{number}", "request": request}
                puppet.say(frame)
                await answered(number + 1)
            answers = [frame["response"]["response"] for frame in puppet.written[1:]]
            assert [answer["behavior"] for answer in answers] == ["allow", "deny"]
            await until(lambda: len(warnings) >= 2)
    kinds = [
        bridle.events.WarningKind.MISSING_CAPABILITIES,
        bridle.events.WarningKind.PERMISSION_FAILED,
    ]
    assert [warning.kind for warning in warnings] == kinds
    assert isinstance(warnings[1].error, ValueError)
    assert "boom" in caplog.text


async def test_a_hook_that_raises_is_logged_with_its_traceback_reported_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R299, R301, C26: it never propagates."""
    warnings: list[bridle.SdkWarning] = []

    async def broken(context: bridle.PreToolUseContext) -> None:
        raise ValueError("boom")

    with caplog.at_level(logging.WARNING, logger="bridle"):
        puppet = Puppet()
        sdk = SdkOptions(on_warning=warnings.append)
        async with session(puppet, sdk, on_pre_tool_use=broken) as talk:
            called = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}}
            request = {"subtype": "hook_callback", "callback_id": "hook_0", "input": called}
            puppet.say({"type": "control_request", "request_id": "q", "request": request})
            await until(lambda: len(warnings) >= 2 and len(puppet.written) >= 2)
            assert puppet.written[1]["response"]["response"] == {"continue": True}
            assert talk.alive
    kinds = [bridle.events.WarningKind.MISSING_CAPABILITIES, bridle.events.WarningKind.HOOK_FAILED]
    assert [warning.kind for warning in warnings] == kinds
    assert isinstance(warnings[1].error, ValueError)
    assert "Traceback" in caplog.text
    assert "in broken" in caplog.text


@pytest.mark.requirement("S118")
async def test_events_reach_their_listener_in_order() -> None:
    """C28."""
    heard: list[str] = []

    async def listener(event: bridle.SessionEvent) -> None:
        heard.append(type(event).__name__)

    puppet = Puppet()
    async with session(puppet, on_event=listener):
        pass
    await until(lambda: len(heard) >= 2)
    assert heard == ["SessionReady", "SessionEnded"]


async def test_what_comes_after_the_end_is_dropped() -> None:
    """R365."""
    puppet = Puppet()
    talk = session(puppet)
    await talk.connect()
    unread = talk.messages()
    await talk.stop()
    puppet.say(assistant("too late"))
    puppet.events.exited(0)
    puppet.events.output_ended()
    puppet.events.input_failed("broken")
    assert await _collect(unread) == []
    assert [type(event).__name__ async for event in talk.events()] == [
        "SessionReady",
        "SessionEnded",
    ]


@pytest.mark.parametrize("error", [ValueError("no"), bridle.OptionsError("env", "is wrong")])
async def test_a_start_that_fails_in_its_own_way_leaves_nothing_and_does_not_hang(
    error: Exception,
) -> None:
    def factory(_: TransportEvents) -> object:
        raise error

    talk = Session(bidir=BidirOptions(transport_factory=factory))
    asking = asyncio.ensure_future(talk.interrupt())
    with pytest.raises(type(error)):
        await talk.connect()
    with pytest.raises(bridle.SessionNotInitialized):
        await asking
    await talk.aclose()


async def test_a_process_that_cannot_be_killed_is_given_up(set_limits: SetLimits) -> None:
    class Immortal(Puppet):
        def terminate(self) -> None:
            self.signals.append("term")

    set_limits(unkillable_process=0.01, shutdown_steps=dict.fromkeys(ShutdownStep, 0.01))
    puppet = Immortal()
    talk = session(puppet)
    await talk.connect()
    await talk.stop()
    assert (puppet.signals, puppet.closed) == (["term", "kill"], 1)


async def test_a_session_belongs_to_its_loop() -> None:
    puppet = Puppet()
    async with session(puppet) as talk:
        with pytest.raises(UsageError, match="event loop"):
            await asyncio.to_thread(asyncio.run, talk.ping())
