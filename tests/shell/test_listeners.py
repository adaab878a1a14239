"""Warnings on their way to the log, to listeners and to events, at a limited rate."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.support.processes import run, until

from bridle import (
    BidirOptions,
    CliOptions,
    SdkOptions,
    SdkWarning,
    SessionEnded,
    query,
    start_session,
)
from bridle._observe.listeners import WarningOutlet
from bridle._observe.warning_rate import BURST, INTERVAL
from bridle.errors._redaction import redact_text
from bridle.events import WarningKind
from bridle.telemetry import Happened, Observation
from bridle.testing import FakeCli, FakeTransport

JUNK = b"SECRET words and no JSON\n"
MANY = 30_000


async def test_counted_warnings_are_delivered_when_their_time_has_come() -> None:
    told: list[SdkWarning] = []
    loop = asyncio.get_running_loop()
    outlet = WarningOutlet(loop, told.append, redact_text)
    began = loop.time()
    for _ in range(BURST + 5):
        outlet.tell(SdkWarning(WarningKind.MALFORMED_LINE))
    assert len(told) == BURST
    await until(lambda: len(told) != BURST)
    assert loop.time() - began >= INTERVAL
    assert [one.count for one in told] == [*([1] * BURST), 5]
    outlet.flush()
    assert len(told) == BURST + 1


async def test_a_flood_of_junk_makes_few_log_lines_and_loses_no_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither does it quote a word, nor does a warning follow the last event."""
    told: list[SdkWarning] = []
    transport = FakeTransport()
    sdk = SdkOptions(on_warning=told.append)
    bidir = BidirOptions(transport_factory=transport)
    session = await start_session(None, sdk, bidir)
    for _ in range(MANY // 1000):
        transport.say(JUNK * 1000)
    await asyncio.sleep(0)
    await session.stop()
    events = [event async for event in session.events()]
    assert [one.kind for one in told if one.level == "info"] == ["missing_capabilities"]
    told = [one for one in told if one.level != "info"]
    assert sum(one.count for one in told) == MANY
    warnings = [event for event in events if isinstance(event, SdkWarning)]
    assert warnings == told
    assert isinstance(events[-1], SessionEnded)
    assert len(caplog.records) == len(told) < 2 * BURST
    assert "SECRET" not in caplog.text + str(told)


async def test_a_query_limits_its_warnings_as_well(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    told: list[SdkWarning] = []
    talk = FakeCli().expect_initialize().start_turn()
    good = {"type": "keep_alive"}
    script = talk.repeat(500, FakeCli().garbage(JUNK).emit(good)).result().exit(0)
    with script as cli:
        options = CliOptions(cli_path=cli.path)
        stream = query("go", options, SdkOptions(on_warning=told.append))
        async with stream:
            async for _ in stream:
                pass
        kept = stream.warnings
    assert sum(one.count for one in kept if one.kind == "malformed_line") == 500
    assert len(caplog.records) < 2 * BURST
    assert "SECRET" not in caplog.text + str(kept)


def test_a_listener_that_always_raises_is_reported_at_a_limited_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also what fails while the session ends is counted."""
    told: list[SdkWarning] = []
    failed: list[SdkWarning] = []

    class Watch:
        def observe(self, observation: Observation) -> None:
            event = observation.event if isinstance(observation, Happened) else None
            if isinstance(event, SdkWarning) and event.level == "error":
                failed.append(event)

    async def fail(line: str) -> None:
        raise ValueError(line)

    async def main() -> None:
        transport = FakeTransport()
        sdk = SdkOptions(on_stderr=fail, on_warning=told.append, telemetry=Watch())
        async with start_session(None, sdk, BidirOptions(transport_factory=transport)):
            for number in range(200):
                transport.say_stderr(f"line {number}")
            await until(lambda: len(failed) >= BURST)

    run(main)
    assert [one.kind for one in told] == ["missing_capabilities"]
    assert {one.kind for one in failed} == {WarningKind.STDERR_CALLBACK_FAILED}
    assert sum(one.count for one in failed) == 200
    assert len(caplog.records) < 2 * BURST
